/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that renews the leases of files that are open for writing: NameNode and
 * DataNodes give up on a writer after a minute of silence. It runs while such a
 * file is open.
 */
#ifndef HY_HDFS_LEASE_RENEWER_H
#define HY_HDFS_LEASE_RENEWER_H

#include "base/list.h"

struct hy_err;
struct hy_hdfs_cluster;

struct hy_hdfs_lease {
    struct hy_list link; /* private */
    struct hy_hdfs_cluster *cluster;
    void (*heartbeat)(struct hy_hdfs_lease *l); /* every few seconds, in the renewer's thread; must not block long */
};

int hy_hdfs_lease_renewer_add(struct hy_hdfs_lease *l, struct hy_err *err);
/* After it returns, `heartbeat` does not run any more. Does nothing when `l` was not added. */
void hy_hdfs_lease_renewer_remove(struct hy_hdfs_lease *l);

/* See hy_hdfs_clusters_forked. */
void hy_hdfs_lease_renewer_forked(void);

#endif
