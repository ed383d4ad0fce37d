/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to a Hadoop server, usually a NameNode: Hadoop RPC, version 9. Any
 * number of threads call over it at once. It has no thread: one of the waiting
 * callers reads the responses for all. Retries and failover are in cluster.c.
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
    const char *protocol;  /* a Java interface */
    const char *user;      /* the effective user */
    const char *real_user; /* the authenticated user, when it is a proxy; or NULL */
    const uint8_t *client_id;

    /* Credentials. All NULL: no authentication. */
    const struct hy_hdfs_conf *conf;
    const char *nameservice;  /* of a server with failover; or NULL */
    const char *principal;    /* name of the setting with its Kerberos principal; or NULL */
    const Hdfs__Token *token; /* for this server, instead of the token file */
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

/* `header` tells success from an exception. hy_hdfs_rpc_response_done frees it. */
struct hy_hdfs_rpc_response {
    Hdfs__RpcResponseHeader *header;
    const uint8_t *body;
    size_t n;
    uint8_t *frame; /* private: `body` points into it */
};

/* Calls and waits for the response. 0, also for an exception; -Exxx when the connection has failed and is unusable. */
int hy_hdfs_rpc_invoke(struct hy_hdfs_rpc *c, const struct hy_hdfs_rpc_call *call, struct hy_hdfs_rpc_response *ret);
void hy_hdfs_rpc_response_done(struct hy_hdfs_rpc_response *a);

/* Pure: parses a frame (without its length). Takes `frame` (from malloc) in any case. 0 or -EPROTO, -ENOMEM. */
int hy_hdfs_rpc_response_parse(uint8_t *frame, size_t n, struct hy_hdfs_rpc_response *ret);

/* Appends a message after its length, a "delimited" message. 0 or -Exxx. */
struct hy_buf;
int hy_hdfs_delimited_append(struct hy_buf *b, const ProtobufCMessage *m);
/* Parses the length of a delimited message. Returns the bytes it takes, 0 when incomplete, or -EPROTO. */
int hy_hdfs_delimited_length(const uint8_t *bytes, size_t n, uint32_t *ret);

#endif
