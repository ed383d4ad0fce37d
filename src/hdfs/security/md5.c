/* SPDX-License-Identifier: Apache-2.0 */
#include "hdfs/security/md5.h"

#include <string.h>

#include "base/text.h"

/* ---- MD5 --------------------------------------------------------------------------- */

#define ROTATE(x, n) ((x) << (n) | (x) >> (32 - (n)))
#define F(x, y, z) ((z) ^ ((x) & ((y) ^ (z))))
#define G(x, y, z) ((y) ^ ((z) & ((x) ^ (y))))
#define H(x, y, z) ((x) ^ (y) ^ (z))
#define I(x, y, z) ((y) ^ ((x) | ~(z)))

/* The constant of a step is floor(2^32 * |sin(step)|), counted from 1. */
#define STEP(f, a, b, c, d, k, shift, number) (a) = (b) + ROTATE((a) + f(b, c, d) + x[k] + (number), shift)

static void take_block(uint32_t state[4], const uint8_t *block)
{
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], x[16];

    for (int i = 0; i < 16; i++)
        x[i] = (uint32_t)hy_get_le(block + 4 * i, 4);

    STEP(F, a, b, c, d, 0, 7, 0xd76aa478u);
    STEP(F, d, a, b, c, 1, 12, 0xe8c7b756u);
    STEP(F, c, d, a, b, 2, 17, 0x242070dbu);
    STEP(F, b, c, d, a, 3, 22, 0xc1bdceeeu);
    STEP(F, a, b, c, d, 4, 7, 0xf57c0fafu);
    STEP(F, d, a, b, c, 5, 12, 0x4787c62au);
    STEP(F, c, d, a, b, 6, 17, 0xa8304613u);
    STEP(F, b, c, d, a, 7, 22, 0xfd469501u);
    STEP(F, a, b, c, d, 8, 7, 0x698098d8u);
    STEP(F, d, a, b, c, 9, 12, 0x8b44f7afu);
    STEP(F, c, d, a, b, 10, 17, 0xffff5bb1u);
    STEP(F, b, c, d, a, 11, 22, 0x895cd7beu);
    STEP(F, a, b, c, d, 12, 7, 0x6b901122u);
    STEP(F, d, a, b, c, 13, 12, 0xfd987193u);
    STEP(F, c, d, a, b, 14, 17, 0xa679438eu);
    STEP(F, b, c, d, a, 15, 22, 0x49b40821u);

    STEP(G, a, b, c, d, 1, 5, 0xf61e2562u);
    STEP(G, d, a, b, c, 6, 9, 0xc040b340u);
    STEP(G, c, d, a, b, 11, 14, 0x265e5a51u);
    STEP(G, b, c, d, a, 0, 20, 0xe9b6c7aau);
    STEP(G, a, b, c, d, 5, 5, 0xd62f105du);
    STEP(G, d, a, b, c, 10, 9, 0x02441453u);
    STEP(G, c, d, a, b, 15, 14, 0xd8a1e681u);
    STEP(G, b, c, d, a, 4, 20, 0xe7d3fbc8u);
    STEP(G, a, b, c, d, 9, 5, 0x21e1cde6u);
    STEP(G, d, a, b, c, 14, 9, 0xc33707d6u);
    STEP(G, c, d, a, b, 3, 14, 0xf4d50d87u);
    STEP(G, b, c, d, a, 8, 20, 0x455a14edu);
    STEP(G, a, b, c, d, 13, 5, 0xa9e3e905u);
    STEP(G, d, a, b, c, 2, 9, 0xfcefa3f8u);
    STEP(G, c, d, a, b, 7, 14, 0x676f02d9u);
    STEP(G, b, c, d, a, 12, 20, 0x8d2a4c8au);

    STEP(H, a, b, c, d, 5, 4, 0xfffa3942u);
    STEP(H, d, a, b, c, 8, 11, 0x8771f681u);
    STEP(H, c, d, a, b, 11, 16, 0x6d9d6122u);
    STEP(H, b, c, d, a, 14, 23, 0xfde5380cu);
    STEP(H, a, b, c, d, 1, 4, 0xa4beea44u);
    STEP(H, d, a, b, c, 4, 11, 0x4bdecfa9u);
    STEP(H, c, d, a, b, 7, 16, 0xf6bb4b60u);
    STEP(H, b, c, d, a, 10, 23, 0xbebfbc70u);
    STEP(H, a, b, c, d, 13, 4, 0x289b7ec6u);
    STEP(H, d, a, b, c, 0, 11, 0xeaa127fau);
    STEP(H, c, d, a, b, 3, 16, 0xd4ef3085u);
    STEP(H, b, c, d, a, 6, 23, 0x04881d05u);
    STEP(H, a, b, c, d, 9, 4, 0xd9d4d039u);
    STEP(H, d, a, b, c, 12, 11, 0xe6db99e5u);
    STEP(H, c, d, a, b, 15, 16, 0x1fa27cf8u);
    STEP(H, b, c, d, a, 2, 23, 0xc4ac5665u);

    STEP(I, a, b, c, d, 0, 6, 0xf4292244u);
    STEP(I, d, a, b, c, 7, 10, 0x432aff97u);
    STEP(I, c, d, a, b, 14, 15, 0xab9423a7u);
    STEP(I, b, c, d, a, 5, 21, 0xfc93a039u);
    STEP(I, a, b, c, d, 12, 6, 0x655b59c3u);
    STEP(I, d, a, b, c, 3, 10, 0x8f0ccc92u);
    STEP(I, c, d, a, b, 10, 15, 0xffeff47du);
    STEP(I, b, c, d, a, 1, 21, 0x85845dd1u);
    STEP(I, a, b, c, d, 8, 6, 0x6fa87e4fu);
    STEP(I, d, a, b, c, 15, 10, 0xfe2ce6e0u);
    STEP(I, c, d, a, b, 6, 15, 0xa3014314u);
    STEP(I, b, c, d, a, 13, 21, 0x4e0811a1u);
    STEP(I, a, b, c, d, 4, 6, 0xf7537e82u);
    STEP(I, d, a, b, c, 11, 10, 0xbd3af235u);
    STEP(I, c, d, a, b, 2, 15, 0x2ad7d2bbu);
    STEP(I, b, c, d, a, 9, 21, 0xeb86d391u);

    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
}

void hy_hdfs_md5_init(struct hy_hdfs_md5 *m)
{
    *m = (struct hy_hdfs_md5){.state = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u}};
}

void hy_hdfs_md5_add(struct hy_hdfs_md5 *m, const void *bytes, size_t n)
{
    const uint8_t *from = bytes;
    const size_t there = m->length % HY_HDFS_MD5_BLOCK;

    if (n == 0)
        return;
    m->length += n;
    if (there) {
        const size_t part = n < HY_HDFS_MD5_BLOCK - there ? n : HY_HDFS_MD5_BLOCK - there;

        memcpy(m->block + there, from, part);
        from += part;
        n -= part;
        if (there + part < HY_HDFS_MD5_BLOCK)
            return;
        take_block(m->state, m->block);
    }
    for (; n >= HY_HDFS_MD5_BLOCK; n -= HY_HDFS_MD5_BLOCK, from += HY_HDFS_MD5_BLOCK)
        take_block(m->state, from);
    memcpy(m->block, from, n);
}

void hy_hdfs_md5_end(struct hy_hdfs_md5 *m, uint8_t out[HY_HDFS_MD5_SIZE])
{
    static const uint8_t padding[HY_HDFS_MD5_BLOCK] = {0x80};
    const size_t there = m->length % HY_HDFS_MD5_BLOCK;
    uint8_t bits[8];

    hy_put_le(bits, m->length * 8, 8);
    hy_hdfs_md5_add(m, padding, (there < 56 ? 56 : 120) - there);
    hy_hdfs_md5_add(m, bits, sizeof(bits));
    for (int i = 0; i < 4; i++)
        hy_put_le(out + 4 * i, m->state[i], 4);
}

/* ---- HMAC-MD5 ---------------------------------------------------------------------- */

void hy_hdfs_hmac_md5_init(struct hy_hdfs_hmac_md5 *h, const void *key, size_t n)
{
    uint8_t own[HY_HDFS_MD5_BLOCK] = {0}, inner[HY_HDFS_MD5_BLOCK], outer[HY_HDFS_MD5_BLOCK];

    if (n > HY_HDFS_MD5_BLOCK) {
        struct hy_hdfs_md5 m;

        hy_hdfs_md5_init(&m);
        hy_hdfs_md5_add(&m, key, n);
        hy_hdfs_md5_end(&m, own);
    } else if (n) {
        memcpy(own, key, n);
    }
    for (size_t i = 0; i < HY_HDFS_MD5_BLOCK; i++) {
        inner[i] = own[i] ^ 0x36;
        outer[i] = own[i] ^ 0x5c;
    }
    hy_hdfs_md5_init(&h->inner);
    hy_hdfs_md5_add(&h->inner, inner, sizeof(inner));
    hy_hdfs_md5_init(&h->outer);
    hy_hdfs_md5_add(&h->outer, outer, sizeof(outer));
}

void hy_hdfs_hmac_md5_add(struct hy_hdfs_hmac_md5 *h, const void *bytes, size_t n)
{
    hy_hdfs_md5_add(&h->inner, bytes, n);
}

void hy_hdfs_hmac_md5_end(struct hy_hdfs_hmac_md5 *h, uint8_t out[HY_HDFS_MD5_SIZE])
{
    uint8_t inner[HY_HDFS_MD5_SIZE];

    hy_hdfs_md5_end(&h->inner, inner);
    hy_hdfs_md5_add(&h->outer, inner, sizeof(inner));
    hy_hdfs_md5_end(&h->outer, out);
}

/* ---- RC4 --------------------------------------------------------------------------- */

void hy_hdfs_rc4_init(struct hy_hdfs_rc4 *r, const uint8_t *key, size_t n)
{
    uint8_t j = 0;

    r->i = r->j = 0;
    for (int i = 0; i < 256; i++)
        r->s[i] = (uint8_t)i;
    for (size_t i = 0; i < 256; i++) {
        const uint8_t old = r->s[i];

        j = (uint8_t)(j + old + key[i % n]);
        r->s[i] = r->s[j];
        r->s[j] = old;
    }
}

void hy_hdfs_rc4_apply(struct hy_hdfs_rc4 *r, uint8_t *bytes, size_t n)
{
    uint8_t i = r->i, j = r->j;

    for (size_t k = 0; k < n; k++) {
        const uint8_t a = r->s[++i];
        const uint8_t b = r->s[j = (uint8_t)(j + a)];

        r->s[i] = b;
        r->s[j] = a;
        bytes[k] ^= r->s[(uint8_t)(a + b)];
    }
    r->i = i;
    r->j = j;
}
