/* SPDX-License-Identifier: Apache-2.0 */
/* Challenges of a DIGEST-MD5 server (sasl_digest_md5.c), for tests of the parser. */
#ifndef HY_HDFS_SECURITY_SASL_DIGEST_MD5_H
#define HY_HDFS_SECURITY_SASL_DIGEST_MD5_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HY_HDFS_DIGEST_TEXT_MAX 512u

struct hy_hdfs_digest_challenge {
    char realm[HY_HDFS_DIGEST_TEXT_MAX]; /* the first one; "": none */
    char nonce[HY_HDFS_DIGEST_TEXT_MAX];
    char rspauth[33]; /* its proof in the last message, in hexadecimal */
    unsigned qops;    /* enum hy_hdfs_qop, or-ed */
    uint32_t max;     /* bytes of a wrapped message */
    bool has_rc4, is_md5_sess;
};

/* Pure. 0 or -EPROTO. */
int hy_hdfs_digest_parse(const uint8_t *bytes, size_t n, struct hy_hdfs_digest_challenge *ret);

#endif
