/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cluster as a client sees it: its NameNodes, one of which is active, and its
 * settings. There is one for each combination of authority, user, Kerberos ticket,
 * token file and directory of settings; it lives as long as the process.
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
    const char *name;        /* "hdfs://namenode:8020", for messages */
    const char *user;        /* the effective user */
    const char *client_name; /* identifies the lease holder to the NameNode */
    const struct hy_hdfs_conf *conf;
    struct hy_hdfs_namenodes *namenodes; /* private to cluster.c */
    struct hy_hdfs_data_key *data_key;          /* private to datanode_sasl.c */
};

/*
 * The cluster of a URL, and the path in it: absolute, without "//", "." and "..".
 * The caller frees the path.
 */
int hy_hdfs_cluster_find(const char *url, struct hy_hdfs_cluster **ret, char **ret_path, struct hy_err *err);
/* Pure: normalizes a path. NULL when out of memory. */
char *hy_hdfs_path(const char *path);

/*
 * Calls the NameNode. Retries while none responds, and fails over to another one
 * if there are several: NameNodes recognize repeated calls and execute them once.
 * The response is of type `type`; free it with protobuf_c_message_free_unpacked.
 * An exception is -Exxx with its first line as the message.
 */
int hy_hdfs_call(struct hy_hdfs_cluster *c, const char *method, const ProtobufCMessage *request,
                 const ProtobufCMessageDescriptor *type, void *ret_response, struct hy_err *err);

/* The defaults of the cluster, requested once. */
int hy_hdfs_defaults(struct hy_hdfs_cluster *c, const Hdfs__ServerDefaults **ret, struct hy_err *err);

void hy_hdfs_free_response(void *pointer_to_message);
#define hy_cleanup_hdfs_response __attribute__((cleanup(hy_hdfs_free_response)))

/* Pure: maps an exception of the NameNode to -Exxx by the name of its class. */
int hy_hdfs_exception(const char *class_name, const char *text, struct hy_err *err);

/* In a forked child: forgets the connections, threads and locks of the parent. */
void hy_hdfs_clusters_forked(void);
/* See hy_hdfs_done. */
void hy_hdfs_clusters_done(void);

#endif
