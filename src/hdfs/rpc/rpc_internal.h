/* SPDX-License-Identifier: Apache-2.0 */
/* How a connection is secured (rpc_sasl.c), for rpc.c. */
#ifndef HY_HDFS_RPC_RPC_INTERNAL_H
#define HY_HDFS_RPC_RPC_INTERNAL_H

#include "hdfs/rpc/rpc.h"
#include "hdfs/security/tokens.h"

struct hy_buf;
struct hy_hdfs_sasl;
struct hy_hdfs_sock;

/* rpc.c: a frame of version 9 whose length is not known yet, and its end. */
int hy_hdfs_rpc_begin_frame(struct hy_buf *b, int32_t id, int32_t retry, const uint8_t *client_id, size_t client_id_n);
void hy_hdfs_rpc_end_frame(struct hy_buf *b, size_t begin);
/* The next frame, malloc'ed, of at most `max` bytes. Reads nothing behind it. */
int hy_hdfs_rpc_receive_frame(struct hy_hdfs_sock *sock, size_t max, uint8_t **ret, size_t *ret_n);

enum hy_hdfs_rpc_auth { HY_HDFS_AUTH_SIMPLE, HY_HDFS_AUTH_TOKEN, HY_HDFS_AUTH_KERBEROS };

/* What we have to show. */
struct hy_hdfs_rpc_credentials {
    struct hy_hdfs_tokens tokens;  /* of the file */
    const Hdfs__Token *token; /* for this server; or NULL */
    bool has_kerberos;        /* the settings want it */
};

/* Looks for it; `sock` is connected to the peer. */
int hy_hdfs_rpc_credentials_load(struct hy_hdfs_rpc_credentials *l, const struct hy_hdfs_sock *sock, const struct hy_hdfs_rpc_peer *peer,
                      struct hy_err *err);
void hy_hdfs_rpc_credentials_done(struct hy_hdfs_rpc_credentials *l);

/*
 * The exchange, after the preamble. *ret_method is how it ended. *ret_sasl is
 * NULL when all goes on as it is, and otherwise wraps each frame from now on.
 */
int hy_hdfs_rpc_authenticate(struct hy_hdfs_sock *sock, const struct hy_hdfs_rpc_credentials *l, const struct hy_hdfs_rpc_peer *peer,
                   enum hy_hdfs_rpc_auth *ret_method, struct hy_hdfs_sasl **ret_sasl, struct hy_err *err);

/* Appends frames that hold the bytes wrapped. 0 or -Exxx. */
int hy_hdfs_rpc_wrap(struct hy_hdfs_sasl *s, const uint8_t *bytes, size_t n, struct hy_buf *out);
/* Receives a wrapped frame, and appends what was in it. */
int hy_hdfs_rpc_receive_wrapped(struct hy_hdfs_sasl *s, struct hy_hdfs_sock *sock, size_t max, struct hy_buf *in);

#endif
