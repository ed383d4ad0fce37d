/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who we are, proven to a server of Hadoop's: the client's side of SASL, by a
 * shared secret (DIGEST-MD5, sasl_digest_md5.c) or a Kerberos ticket (GSSAPI, sasl_gssapi.c).
 * A server's challenge goes in, our response comes out; who carries them knows
 * nothing of what is in them. Afterwards what is said can be signed (integrity)
 * or encrypted (privacy), piece by piece.
 *
 * One thread does the exchange. Then one at a time may wrap, and one at a time
 * unwrap, both at once.
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

/* Those that will do, the best liked first. */
struct hy_hdfs_qops {
    enum hy_hdfs_qop all[3];
    size_t count;
};

/* Pure: "privacy,integrity", as settings have it. NULL is authentication. -EINVAL with a sentence that names `key`. */
int hy_hdfs_qops_parse(const char *text, const char *key, struct hy_hdfs_qops *ret, struct hy_err *err);
bool hy_hdfs_qops_has(const struct hy_hdfs_qops *q, enum hy_hdfs_qop one);
/* The best liked of those in `offered`, which is a sum of bits; 0 when there is none. */
enum hy_hdfs_qop hy_hdfs_qops_choose(const struct hy_hdfs_qops *q, unsigned offered);

struct hy_hdfs_digest_login {
    const char *user, *password;
    const char *protocol, *server; /* what the server calls itself */
    const char *nonce;             /* ours; NULL: a new one, as it has to be but for tests */
};

/* Takes copies. NULL: out of memory, or no random numbers. */
struct hy_hdfs_sasl *hy_hdfs_sasl_digest_new(const struct hy_hdfs_digest_login *login, const struct hy_hdfs_qops *qops);
/* By the ticket in the default cache, for the server of that name ("hdfs/host@REALM"). NULL: err->code is -Exxx. */
struct hy_hdfs_sasl *hy_hdfs_sasl_gssapi_new(const char *principal, const struct hy_hdfs_qops *qops, struct hy_err *err);
void hy_hdfs_sasl_free(struct hy_hdfs_sasl *s); /* NULL is fine */

/*
 * Takes a challenge and appends the response. 1 when there is one to send,
 * even an empty one, 0 when there is none, or -Exxx: -EACCES, -EPROTO, …
 */
int hy_hdfs_sasl_step(struct hy_hdfs_sasl *s, const uint8_t *challenge, size_t n, struct hy_buf *response, struct hy_err *err);
/* Both sides have proven themselves. */
bool hy_hdfs_sasl_is_done(const struct hy_hdfs_sasl *s);

/* All below only when it is done. */
enum hy_hdfs_qop hy_hdfs_sasl_qop(const struct hy_hdfs_sasl *s);
/* How many bytes can be wrapped at once. */
size_t hy_hdfs_sasl_wrap_max(const struct hy_hdfs_sasl *s);
/* Appends them wrapped. 0 or -Exxx. */
int hy_hdfs_sasl_wrap(struct hy_hdfs_sasl *s, const void *bytes, size_t n, struct hy_buf *out);
/* In place. How many bytes `token` begins with then, or -Exxx: -EBADMSG for one that is not the server's. */
int64_t hy_hdfs_sasl_unwrap(struct hy_hdfs_sasl *s, uint8_t *token, size_t n);

/* Pure: as text, NUL-terminated; NULL when out of memory. */
char *hy_hdfs_base64(const uint8_t *bytes, size_t n);

#endif
