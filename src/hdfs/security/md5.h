/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The primitives of DIGEST-MD5: MD5 (RFC 1321), HMAC-MD5 (RFC 2104) and RC4. They
 * are implemented here because a training process need not have OpenSSL, and a
 * policy may have disabled them there. Do not use them for anything else.
 */
#ifndef HY_HDFS_SECURITY_MD5_H
#define HY_HDFS_SECURITY_MD5_H

#include <stddef.h>
#include <stdint.h>

#define HY_HDFS_MD5_SIZE 16u
#define HY_HDFS_MD5_BLOCK 64u

struct hy_hdfs_md5 {
    uint32_t state[4];
    uint64_t length; /* bytes so far */
    uint8_t block[HY_HDFS_MD5_BLOCK];
};

void hy_hdfs_md5_init(struct hy_hdfs_md5 *m);
void hy_hdfs_md5_add(struct hy_hdfs_md5 *m, const void *bytes, size_t n);
void hy_hdfs_md5_end(struct hy_hdfs_md5 *m, uint8_t out[HY_HDFS_MD5_SIZE]);

/* A key for many messages: both halves are initialized once. */
struct hy_hdfs_hmac_md5 {
    struct hy_hdfs_md5 inner, outer;
};

void hy_hdfs_hmac_md5_init(struct hy_hdfs_hmac_md5 *h, const void *key, size_t n);
void hy_hdfs_hmac_md5_add(struct hy_hdfs_hmac_md5 *h, const void *bytes, size_t n);
void hy_hdfs_hmac_md5_end(struct hy_hdfs_hmac_md5 *h, uint8_t out[HY_HDFS_MD5_SIZE]);

struct hy_hdfs_rc4 {
    uint8_t s[256];
    uint8_t i, j;
};

void hy_hdfs_rc4_init(struct hy_hdfs_rc4 *r, const uint8_t *key, size_t n); /* n > 0 */
/* In place; continues where the last call ended. */
void hy_hdfs_rc4_apply(struct hy_hdfs_rc4 *r, uint8_t *bytes, size_t n);

#endif
