/* SPDX-License-Identifier: Apache-2.0 */
/* What a server of DIGEST-MD5 says (sasl_digest_md5.c): for those who test how it is read. */
#ifndef HY_HDFS_SECURITY_SASL_DIGEST_MD5_H
#define HY_HDFS_SECURITY_SASL_DIGEST_MD5_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HY_HDFS_DIGEST_TEXT_MAX 512u

struct hy_hdfs_digest_challenge {
    char realm[HY_HDFS_DIGEST_TEXT_MAX]; /* the first one; "": none */
    char nonce[HY_HDFS_DIGEST_TEXT_MAX];
    char rspauth[33]; /* of its last word: its own proof, in hexadecimal */
    unsigned qops;    /* enum hy_hdfs_qop, added up */
    uint32_t max;     /* bytes of what it takes wrapped */
    bool has_rc4, is_md5_sess;
};

/* Pure. 0 or -EPROTO. */
int hy_hdfs_digest_parse(const uint8_t *bytes, size_t n, struct hy_hdfs_digest_challenge *ret);

#endif
