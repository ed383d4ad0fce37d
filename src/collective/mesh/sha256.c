/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/mesh/sha256.h"

#include <string.h>

static const uint32_t rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotr(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static uint32_t get_be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put_be32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (24 - 8 * i));
}

static void expand(uint32_t w[64], const uint8_t *block)
{
    for (int i = 0; i < 16; i++)
        w[i] = get_be32(block + 4 * i);
    for (int i = 16; i < 64; i++) {
        uint32_t s0 = rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ w[i - 2] >> 10;

        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
}

/* a .. h of the standard are v[0] .. v[7]. */
static void compress(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64], v[8];

    expand(w, block);
    memcpy(v, state, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t s1 = rotr(v[4], 6) ^ rotr(v[4], 11) ^ rotr(v[4], 25);
        uint32_t s0 = rotr(v[0], 2) ^ rotr(v[0], 13) ^ rotr(v[0], 22);
        uint32_t t1 = v[7] + s1 + ((v[4] & v[5]) ^ (~v[4] & v[6])) + rounds[i] + w[i];
        uint32_t t2 = s0 + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));

        memmove(v + 1, v, 7 * sizeof v[0]);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        state[i] += v[i];
}

void hy_sha256_init(struct hy_sha256 *s)
{
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    memcpy(s->state, first, sizeof first);
    s->length = 0;
}

void hy_sha256_add(struct hy_sha256 *s, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;

    while (n) {
        size_t at = s->length % HY_SHA256_BLOCK;
        size_t part = n < HY_SHA256_BLOCK - at ? n : HY_SHA256_BLOCK - at;

        memcpy(s->block + at, p, part);
        s->length += part;
        p += part;
        n -= part;
        if (at + part == HY_SHA256_BLOCK)
            compress(s->state, s->block);
    }
}

void hy_sha256_end(struct hy_sha256 *s, uint8_t digest[HY_SHA256_SIZE])
{
    static const uint8_t padding[HY_SHA256_BLOCK] = {0x80};
    uint64_t bits = s->length * 8;
    uint8_t tail[8];

    /* One byte at least, and as many that eight are left in the block. */
    hy_sha256_add(s, padding, 1 + (HY_SHA256_BLOCK + 55 - s->length % HY_SHA256_BLOCK) % HY_SHA256_BLOCK);
    put_be32(tail, (uint32_t)(bits >> 32));
    put_be32(tail + 4, (uint32_t)bits);
    hy_sha256_add(s, tail, sizeof tail);
    for (int i = 0; i < 8; i++)
        put_be32(digest + 4 * i, s->state[i]);
}

static void begin_padded(struct hy_sha256 *s, const uint8_t key[HY_SHA256_BLOCK], uint8_t pad)
{
    uint8_t padded[HY_SHA256_BLOCK];

    for (int i = 0; i < HY_SHA256_BLOCK; i++)
        padded[i] = key[i] ^ pad;
    hy_sha256_init(s);
    hy_sha256_add(s, padded, sizeof padded);
}

void hy_hmac_sha256(const void *key, size_t key_size, const void *bytes, size_t n, uint8_t mac[HY_SHA256_SIZE])
{
    uint8_t block[HY_SHA256_BLOCK] = {0};
    struct hy_sha256 s;

    if (key_size > sizeof block) {
        hy_sha256_init(&s);
        hy_sha256_add(&s, key, key_size);
        hy_sha256_end(&s, block);
    } else if (key_size) {
        memcpy(block, key, key_size);
    }
    begin_padded(&s, block, 0x36);
    hy_sha256_add(&s, bytes, n);
    hy_sha256_end(&s, mac);
    begin_padded(&s, block, 0x5c);
    hy_sha256_add(&s, mac, HY_SHA256_SIZE);
    hy_sha256_end(&s, mac);
}

bool hy_mac_equal(const uint8_t a[HY_SHA256_SIZE], const uint8_t b[HY_SHA256_SIZE])
{
    uint8_t difference = 0;

    for (int i = 0; i < HY_SHA256_SIZE; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}
