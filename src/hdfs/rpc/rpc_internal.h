/* SPDX-License-Identifier: Apache-2.0 */
/* What rpc.c and rpc_sasl.c share: frames and authentication. */
#ifndef HY_HDFS_RPC_RPC_INTERNAL_H
#define HY_HDFS_RPC_RPC_INTERNAL_H

#include "hdfs/rpc/rpc.h"
#include "hdfs/security/tokens.h"

struct hy_buf;
struct hy_hdfs_sasl;
struct hy_hdfs_sock;

/* rpc.c: begins a frame, and fills in its length. */
int hy_hdfs_rpc_begin_frame(struct hy_buf *b, int32_t id, int32_t retry, const uint8_t *client_id, size_t client_id_n);
void hy_hdfs_rpc_end_frame(struct hy_buf *b, size_t begin);
/* The next frame (from malloc) of at most `max` bytes. Reads nothing beyond it. */
int hy_hdfs_rpc_receive_frame(struct hy_hdfs_sock *sock, size_t max, uint8_t **ret, size_t *ret_n);

enum hy_hdfs_rpc_auth { HY_HDFS_AUTH_SIMPLE, HY_HDFS_AUTH_TOKEN, HY_HDFS_AUTH_KERBEROS };

struct hy_hdfs_rpc_credentials {
    struct hy_hdfs_tokens tokens;  /* from the token file */
    const Hdfs__Token *token; /* for this server; or NULL */
    bool has_kerberos;        /* the settings ask for it */
};

/* `sock` is connected to the peer. */
int hy_hdfs_rpc_credentials_load(struct hy_hdfs_rpc_credentials *l, const struct hy_hdfs_sock *sock,
                                 const struct hy_hdfs_rpc_peer *peer, struct hy_err *err);
void hy_hdfs_rpc_credentials_done(struct hy_hdfs_rpc_credentials *l);

/*
 * The SASL exchange, after the preamble. *ret_method is the method used. *ret_sasl
 * is NULL, or it wraps each frame from now on.
 */
int hy_hdfs_rpc_authenticate(struct hy_hdfs_sock *sock, const struct hy_hdfs_rpc_credentials *l,
                             const struct hy_hdfs_rpc_peer *peer, enum hy_hdfs_rpc_auth *ret_method,
                             struct hy_hdfs_sasl **ret_sasl, struct hy_err *err);

/* Appends frames with the wrapped bytes. 0 or -Exxx. */
int hy_hdfs_rpc_wrap(struct hy_hdfs_sasl *s, const uint8_t *bytes, size_t n, struct hy_buf *out);
/* Receives a wrapped frame and appends its content. */
int hy_hdfs_rpc_receive_wrapped(struct hy_hdfs_sasl *s, struct hy_hdfs_sock *sock, size_t max, struct hy_buf *in);

#endif
