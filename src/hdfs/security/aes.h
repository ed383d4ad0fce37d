/* SPDX-License-Identifier: Apache-2.0 */
/* AES in counter mode, by OpenSSL, which is loaded on first use. */
#ifndef HY_HDFS_SECURITY_AES_H
#define HY_HDFS_SECURITY_AES_H

#include <stddef.h>
#include <stdint.h>

struct hy_hdfs_aes;
struct hy_err;

#define HY_HDFS_AES_IV_SIZE 16u

/* A key of 16, 24 or 32 bytes. NULL: err->code is -EINVAL, -ELIBACC when OpenSSL is not installed, … */
struct hy_hdfs_aes *hy_hdfs_aes_new(const uint8_t *key, size_t n, const uint8_t iv[HY_HDFS_AES_IV_SIZE],
                                    struct hy_err *err);
void hy_hdfs_aes_free(struct hy_hdfs_aes *a); /* NULL is fine */
/* Encrypts or decrypts (the same operation); continues where the last call ended. `to` may be `from`. 0 or -EIO. */
int hy_hdfs_aes_apply(struct hy_hdfs_aes *a, const uint8_t *from, uint8_t *to, size_t n);

#endif
