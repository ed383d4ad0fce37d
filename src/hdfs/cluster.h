/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cluster as a client sees it: its NameNodes, one of which answers, and its
 * settings. There is one for each authority of a URL, user, Kerberos ticket and
 * file of tokens, and folder of settings; it lives as long as the process.
 */
#ifndef HY_HDFS_CLUSTER_H
#define HY_HDFS_CLUSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "hdfs.pb-c.h"

struct hy_hdfs_data_key;
struct hy_err;
struct hy_hdfs_conf;

struct hy_hdfs_cluster {
    const char *name;        /* "hdfs://namenode:8020", for sentences */
    const char *user;        /* in whose name things are done */
    const char *client_name; /* by which the NameNode knows who holds a lease */
    const struct hy_hdfs_conf *conf;
    struct hy_hdfs_namenodes *namenodes; /* cluster.c's */
    struct hy_hdfs_data_key *data_key;          /* datanode_sasl.c's */
};

/*
 * The cluster of a URL, and the path in it: absolute, without "//", "." and "..".
 * The caller frees the path.
 */
int hy_hdfs_cluster_find(const char *url, struct hy_hdfs_cluster **ret, char **ret_path, struct hy_err *err);
/* Pure: that path. NULL: -EINVAL, or out of memory. */
char *hy_hdfs_path(const char *path);

/*
 * Asks the NameNode. Waits out its absence, goes to another one where there is
 * one, and asks again: a NameNode does nothing twice that it has done. The
 * answer is of type `type`; free it by protobuf_c_message_free_unpacked.
 * An exception is -Exxx with its first line as the sentence.
 */
int hy_hdfs_call(struct hy_hdfs_cluster *c, const char *method, const ProtobufCMessage *request,
                 const ProtobufCMessageDescriptor *type, void *ret_answer, struct hy_err *err);

/* The cluster's own defaults, asked for once. */
int hy_hdfs_defaults(struct hy_hdfs_cluster *c, const Hdfs__ServerDefaults **ret, struct hy_err *err);

void hy_hdfs_free_response(void *pointer_to_message);
#define hy_cleanup_hdfs_response __attribute__((cleanup(hy_hdfs_free_response)))

/* Pure: what an exception of the NameNode means, by the name of its class. */
int hy_hdfs_exception(const char *class_name, const char *text, struct hy_err *err);

/* In a child that was forked, which has no use for its parent's connections, threads and locks. */
void hy_hdfs_clusters_forked(void);
/* See hy_hdfs_done. */
void hy_hdfs_clusters_done(void);

#endif
