/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to a server of Hadoop's, mostly a NameNode: its RPC, version 9. Any number of threads
 * call over it at once; there is no thread of its own: of those who wait for
 * answers, one reads for all. Retries and other NameNodes are cluster.c's.
 */
#ifndef HY_HDFS_RPC_RPC_H
#define HY_HDFS_RPC_RPC_H

#include <stddef.h>
#include <stdint.h>

#include "hdfs.pb-c.h"

struct hy_err;
struct hy_hdfs_conf;
struct hy_hdfs_rpc;

#define HY_HDFS_RPC_CLIENT_ID_SIZE 16u

struct hy_hdfs_rpc_peer {
    const char *host;
    unsigned port;
    const char *protocol;  /* whose methods are called: a class of Hadoop's */
    const char *user;      /* in whose name things are done */
    const char *real_user; /* who does them, when that is another; or NULL */
    const uint8_t *client_id;

    /* How we prove who we are. All NULL: the server has to believe us. */
    const struct hy_hdfs_conf *conf;
    const char *nameservice;  /* to which it belongs, if there are several like it */
    const char *principal;    /* the setting that tells its Kerberos principal; or NULL: it has none */
    const Hdfs__Token *token; /* for just this server, where it is not to be looked for in the file of tokens */
};

/* NULL: err->code is -Exxx. The caller has one reference. */
struct hy_hdfs_rpc *hy_hdfs_rpc_connect(const struct hy_hdfs_rpc_peer *peer, struct hy_err *err);
struct hy_hdfs_rpc *hy_hdfs_rpc_ref(struct hy_hdfs_rpc *c);
void hy_hdfs_rpc_unref(struct hy_hdfs_rpc *c);

struct hy_hdfs_rpc_call {
    const char *method;
    const ProtobufCMessage *request;
    int32_t id;    /* not in use by another call of this client id */
    int32_t retry; /* 0 the first time */
};

/* An answer: `header` says whether it is one or an exception. hy_hdfs_rpc_response_done frees it. */
struct hy_hdfs_rpc_response {
    Hdfs__RpcResponseHeader *header;
    const uint8_t *body;
    size_t n;
    uint8_t *frame; /* private: what body points into */
};

/* 0, also for an exception of the NameNode; -Exxx when the connection failed: it is of no use any more. */
int hy_hdfs_rpc_send(struct hy_hdfs_rpc *c, const struct hy_hdfs_rpc_call *call, struct hy_hdfs_rpc_response *ret);
void hy_hdfs_rpc_response_done(struct hy_hdfs_rpc_response *a);

/* Pure: takes a frame apart (what follows its length). Takes `frame` (malloc'ed), in any case. 0 or -EPROTO, -ENOMEM. */
int hy_hdfs_rpc_response_parse(uint8_t *frame, size_t n, struct hy_hdfs_rpc_response *ret);

/* A message behind its length, as Hadoop's "delimited" ones are. 0 or -Exxx. */
struct hy_buf;
int hy_hdfs_delimited_append(struct hy_buf *b, const ProtobufCMessage *m);
/* The length at the beginning of bytes: how many bytes it takes, 0 when there are not enough, or -EPROTO. */
int hy_hdfs_delimited_length(const uint8_t *bytes, size_t n, uint32_t *ret);

#endif
