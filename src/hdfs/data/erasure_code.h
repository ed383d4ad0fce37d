/* SPDX-License-Identifier: Apache-2.0 */
/* Erasure codes: reconstruct a lost unit of a stripe from the others. Pure; see erasure_code.c. */
#ifndef HY_HDFS_DATA_ERASURE_CODE_H
#define HY_HDFS_DATA_ERASURE_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HY_HDFS_EC_UNITS_MAX 32u

struct hy_hdfs_ec {
    bool is_xor;           /* otherwise Reed-Solomon */
    unsigned data, parity; /* units of a stripe */
};

/* `codec`: "xor" or "rs". 0 or -ENOTSUP. */
int hy_hdfs_ec_init(struct hy_hdfs_ec *ec, const char *codec, unsigned data, unsigned parity);

/*
 * Computes n bytes of the data unit `lost`. units[i] is the same range of unit i,
 * data units first, or NULL when it is missing; as many units as there are data
 * units are needed. 0, -ENODATA when there are fewer, or -ENOMEM.
 */
int hy_hdfs_ec_recover(const struct hy_hdfs_ec *ec, const uint8_t *const *units, unsigned lost, uint8_t *out, size_t n);

#endif
