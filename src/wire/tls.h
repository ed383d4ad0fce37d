/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls: TLS 1.3 with a pre-shared key that both ends prove, without sockets: the
 * caller passes encrypted bytes in and out. tls.c explains what is refused.
 */
#ifndef HY_WIRE_TLS_H
#define HY_WIRE_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire/wire.h"

#define HY_IDENTITY_MAX 255
#define HY_TLS_HELLO_MAX 2048u /* a client's first record, with its header; an agent's has about 300 bytes */

struct hy_buf;
struct hy_tls_context; /* opaque: shared by all links of a net */
struct hy_tls;         /* opaque: one link */

/* NULL when out of memory. */
struct hy_tls_context *hy_tls_context_new(void);
void hy_tls_context_free(struct hy_tls_context *c); /* NULL is fine */
/* The keys of the identities that may connect. */
void hy_tls_context_set_keys(struct hy_tls_context *c, hy_net_key_fn key_of, void *arg);

/* NULL when out of memory. The dialing end has an identity and its key. */
struct hy_tls *hy_tls_new_client(struct hy_tls_context *c, const char *identity, const uint8_t key[HY_KEY_SIZE]);
struct hy_tls *hy_tls_new_server(struct hy_tls_context *c);
void hy_tls_free(struct hy_tls *t); /* NULL is fine */

/*
 * The length of the record that begins with these n bytes: a ClientHello in one record, with its header. 0 when more
 * bytes are needed, -EPROTO with a reason in *ret_why when it cannot be an agent's.
 */
int64_t hy_tls_hello_size(const uint8_t *bytes, size_t n, const char **ret_why);

/* Input; the bytes must stay valid until hy_tls_handshake or hy_tls_read has returned 0. */
void hy_tls_feed(struct hy_tls *t, const uint8_t *bytes, size_t n);

/* Each of these appends the bytes to send to `out`. */

/* 1 when both ends have proven the key, 0 when more input is needed, -EPROTO. */
int hy_tls_handshake(struct hy_tls *t, struct hy_buf *out);
/* The number of decrypted bytes, 0 when more input is needed, -EPIPE when the
 * peer has closed, -EPROTO. */
int hy_tls_read(struct hy_tls *t, uint8_t *bytes, size_t n, struct hy_buf *out);
/* 0 or -EPROTO. */
int hy_tls_write(struct hy_tls *t, const uint8_t *bytes, size_t n, struct hy_buf *out);
/* Writes close_notify. */
void hy_tls_close(struct hy_tls *t, struct hy_buf *out);

/* The identity of the client (server: valid after the handshake). */
const char *hy_tls_identity(const struct hy_tls *t);
/* The handshake failed because the ends do not have the same key. */
bool hy_tls_refused(const struct hy_tls *t);
const char *hy_tls_why(const struct hy_tls *t); /* the reason, after -EPROTO */

#endif
