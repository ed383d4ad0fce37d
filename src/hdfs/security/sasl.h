/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client side of SASL, by a shared secret (DIGEST-MD5, sasl_digest_md5.c) or a
 * Kerberos ticket (GSSAPI, sasl_gssapi.c). It turns a challenge of the server into a
 * response; the caller transports them. Afterwards messages can be signed
 * (integrity) or encrypted (privacy).
 *
 * One thread does the exchange. Then one thread may wrap and another unwrap at the
 * same time.
 */
#ifndef HY_HDFS_SECURITY_SASL_H
#define HY_HDFS_SECURITY_SASL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hy_buf;
struct hy_err;
struct hy_hdfs_sasl;

/* Quality of protection: Hadoop's authentication, integrity and privacy. Bits, as on the wire. */
enum hy_hdfs_qop { HY_HDFS_QOP_AUTH = 1, HY_HDFS_QOP_INTEGRITY = 2, HY_HDFS_QOP_PRIVACY = 4 };

/* The acceptable ones, in order of preference. */
struct hy_hdfs_qops {
    enum hy_hdfs_qop all[3];
    size_t count;
};

/* Pure: parses "privacy,integrity". NULL is authentication. -EINVAL with a message that names `key`. */
int hy_hdfs_qops_parse(const char *text, const char *key, struct hy_hdfs_qops *ret, struct hy_err *err);
bool hy_hdfs_qops_has(const struct hy_hdfs_qops *q, enum hy_hdfs_qop one);
/* The preferred one of the bits in `offered`; 0 when there is none. */
enum hy_hdfs_qop hy_hdfs_qops_choose(const struct hy_hdfs_qops *q, unsigned offered);

struct hy_hdfs_digest_login {
    const char *user, *password;
    const char *protocol, *server; /* as announced by the server */
    const char *nonce;             /* of the client; NULL: random. Only tests set it */
};

/* Copies its arguments. NULL: out of memory, or no random numbers. */
struct hy_hdfs_sasl *hy_hdfs_sasl_digest_new(const struct hy_hdfs_digest_login *login, const struct hy_hdfs_qops *qops);
/* Uses the ticket in the default cache, for the server principal ("hdfs/host@REALM"). NULL: err->code is -Exxx. */
struct hy_hdfs_sasl *hy_hdfs_sasl_gssapi_new(const char *principal, const struct hy_hdfs_qops *qops,
                                             struct hy_err *err);
void hy_hdfs_sasl_free(struct hy_hdfs_sasl *s); /* NULL is fine */

/*
 * Processes a challenge and appends the response. 1 when there is a response to
 * send, even an empty one, 0 when there is none, or -Exxx: -EACCES, -EPROTO, …
 */
int hy_hdfs_sasl_step(struct hy_hdfs_sasl *s, const uint8_t *challenge, size_t n, struct hy_buf *response,
                      struct hy_err *err);
/* Both sides are authenticated. */
bool hy_hdfs_sasl_is_done(const struct hy_hdfs_sasl *s);

/* The calls below require that the exchange is done. */
enum hy_hdfs_qop hy_hdfs_sasl_qop(const struct hy_hdfs_sasl *s);
/* Most bytes that can be wrapped at once. */
size_t hy_hdfs_sasl_wrap_max(const struct hy_hdfs_sasl *s);
/* Appends the wrapped bytes. 0 or -Exxx. */
int hy_hdfs_sasl_wrap(struct hy_hdfs_sasl *s, const void *bytes, size_t n, struct hy_buf *out);
/* In place. Returns the length of the content at the start of `token`, or -Exxx: -EBADMSG for a forged token. */
int64_t hy_hdfs_sasl_unwrap(struct hy_hdfs_sasl *s, uint8_t *token, size_t n);

/* Pure: NUL-terminated; NULL when out of memory. */
char *hy_hdfs_base64(const uint8_t *bytes, size_t n);

#endif
