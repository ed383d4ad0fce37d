/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unit i of a stripe is row i of a matrix times the data units, over GF(256) with
 * the polynomial x^8+x^4+x^3+x^2+1. The first rows are the identity; row i of
 * Hadoop's "rs" codec after them has 1/(i xor j) in column j (a Cauchy matrix, every
 * square submatrix of which is invertible). "xor" has one row of ones.
 */
#include "hdfs/data/erasure_code.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define UNITS HY_HDFS_EC_UNITS_MAX

static uint8_t power[510], logarithm[256];
static pthread_once_t field_is_made = PTHREAD_ONCE_INIT;

static void make_field(void)
{
    unsigned x = 1;

    for (unsigned i = 0; i < 255; i++) {
        power[i] = power[i + 255] = (uint8_t)x;
        logarithm[x] = (uint8_t)i;
        x = x << 1 ^ (x & 0x80 ? 0x11d : 0);
    }
}

static uint8_t times(uint8_t a, uint8_t b)
{
    return a && b ? power[logarithm[a] + logarithm[b]] : 0;
}

static uint8_t inverse(uint8_t a)
{
    return power[255 - logarithm[a]];
}

int hy_hdfs_ec_init(struct hy_hdfs_ec *ec, const char *codec, unsigned data, unsigned parity)
{
    const bool is_xor = strcmp(codec, "xor") == 0;

    if ((!is_xor && strcmp(codec, "rs") != 0) || data == 0 || parity == 0 || data > UNITS || parity > UNITS - data ||
        (is_xor && parity != 1))
        return -ENOTSUP;
    pthread_once(&field_is_made, make_field);
    *ec = (struct hy_hdfs_ec){.is_xor = is_xor, .data = data, .parity = parity};
    return 0;
}

static uint8_t element(const struct hy_hdfs_ec *ec, unsigned row, unsigned column)
{
    if (row < ec->data)
        return row == column;
    return ec->is_xor ? 1 : inverse((uint8_t)(row ^ column));
}

/* Gauss-Jordan elimination: the right half of `m`, the identity, becomes the inverse of the left half. */
static int invert(uint8_t m[UNITS][2 * UNITS], unsigned k)
{
    for (unsigned column = 0; column < k; column++) {
        unsigned row = column;
        uint8_t scale;

        while (row < k && !m[row][column])
            row++;
        if (row == k)
            return -ENODATA;
        for (unsigned i = 0; i < 2 * k && row != column; i++) {
            uint8_t swap = m[row][i];

            m[row][i] = m[column][i];
            m[column][i] = swap;
        }
        scale = inverse(m[column][column]);
        for (unsigned i = 0; i < 2 * k; i++)
            m[column][i] = times(m[column][i], scale);
        for (unsigned r = 0; r < k; r++) {
            const uint8_t factor = r == column ? 0 : m[r][column];

            for (unsigned i = 0; i < 2 * k && factor; i++)
                m[r][i] ^= times(m[column][i], factor);
        }
    }
    return 0;
}

static void add_times(uint8_t *out, const uint8_t *unit, uint8_t factor, size_t n)
{
    uint8_t products[256];

    for (unsigned i = 0; i < 256; i++)
        products[i] = times((uint8_t)i, factor);
    for (size_t i = 0; i < n; i++)
        out[i] ^= products[unit[i]];
}

int hy_hdfs_ec_recover(const struct hy_hdfs_ec *ec, const uint8_t *const *units, unsigned lost, uint8_t *out, size_t n)
{
    uint8_t m[UNITS][2 * UNITS] = {0};
    unsigned used[UNITS], count = 0;
    int rc;

    for (unsigned i = 0; i < ec->data + ec->parity && count < ec->data; i++) {
        if (!units[i])
            continue;
        for (unsigned j = 0; j < ec->data; j++)
            m[count][j] = element(ec, i, j);
        m[count][ec->data + count] = 1;
        used[count++] = i;
    }
    rc = count < ec->data ? -ENODATA : invert(m, ec->data);
    if (rc < 0)
        return rc;
    memset(out, 0, n);
    for (unsigned i = 0; i < ec->data; i++)
        if (m[lost][ec->data + i])
            add_times(out, units[used[i]], m[lost][ec->data + i], n);
    return 0;
}
