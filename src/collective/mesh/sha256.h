/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 and HMAC (FIPS 180-4, RFC 2104), since training processes do not load OpenSSL. */
#ifndef HY_COLLECTIVE_SHA256_H
#define HY_COLLECTIVE_SHA256_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HY_SHA256_SIZE 32
#define HY_SHA256_BLOCK 64

struct hy_sha256 {
    uint32_t state[8];
    uint64_t length; /* bytes so far */
    uint8_t block[HY_SHA256_BLOCK];
};

void hy_sha256_init(struct hy_sha256 *s);
void hy_sha256_add(struct hy_sha256 *s, const void *bytes, size_t n);
void hy_sha256_end(struct hy_sha256 *s, uint8_t digest[HY_SHA256_SIZE]);

void hy_hmac_sha256(const void *key, size_t key_size, const void *bytes, size_t n, uint8_t mac[HY_SHA256_SIZE]);

/* In constant time. */
bool hy_mac_equal(const uint8_t a[HY_SHA256_SIZE], const uint8_t b[HY_SHA256_SIZE]);

#endif
