/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that keeps files alive which are open for writing: the NameNode
 * forgets a writer who is silent for a minute, and so does a DataNode. It is
 * there while a file is.
 */
#ifndef HY_HDFS_KEEPER_H
#define HY_HDFS_KEEPER_H

#include "base/list.h"

struct hy_err;
struct hy_hdfs_cluster;

struct hy_kept {
    struct hy_list link; /* private */
    struct hy_hdfs_cluster *cluster;
    void (*beat)(struct hy_kept *k); /* every few seconds, in the keeper's thread; must not block for long */
};

int hy_keeper_add(struct hy_kept *k, struct hy_err *err);
/* `beat` does not run any more when it returns. Does nothing when `k` was not added. */
void hy_keeper_remove(struct hy_kept *k);

/* See hy_hdfs_clusters_forked. */
void hy_keeper_forked(void);

#endif
