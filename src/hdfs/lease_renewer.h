/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that keeps files alive which are open for writing: the NameNode
 * forgets a writer who is silent for a minute, and so does a DataNode. It is
 * there while a file is.
 */
#ifndef HY_HDFS_LEASE_RENEWER_H
#define HY_HDFS_LEASE_RENEWER_H

#include "base/list.h"

struct hy_err;
struct hy_hdfs_cluster;

struct hy_hdfs_lease {
    struct hy_list link; /* private */
    struct hy_hdfs_cluster *cluster;
    void (*beat)(struct hy_hdfs_lease *k); /* every few seconds, in the keeper's thread; must not block for long */
};

int hy_hdfs_lease_renewer_add(struct hy_hdfs_lease *k, struct hy_err *err);
/* `beat` does not run any more when it returns. Does nothing when `k` was not added. */
void hy_hdfs_lease_renewer_remove(struct hy_hdfs_lease *k);

/* See hy_hdfs_clusters_forked. */
void hy_hdfs_lease_renewer_forked(void);

#endif
