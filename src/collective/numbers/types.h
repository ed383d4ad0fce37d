/* SPDX-License-Identifier: Apache-2.0 */
/* Element types, reductions and limits: shared by all of collective and its callers. */
#ifndef HY_COLLECTIVE_TYPES_H
#define HY_COLLECTIVE_TYPES_H

#include <stddef.h>
#include <stdint.h>

enum hy_type {
    HY_U8,
    HY_I8,
    HY_U16,
    HY_I16,
    HY_U32,
    HY_I32,
    HY_U64,
    HY_I64,
    HY_F16,
    HY_BF16,
    HY_F32,
    HY_F64,
    HY_BOOL,
    HY_TYPES
};

/* bool: sum and max are OR, product and min are AND, average is invalid. The average of integers truncates. */
enum hy_reduce { HY_SUM, HY_AVERAGE, HY_MIN, HY_MAX, HY_PRODUCT, HY_ADASUM, HY_REDUCES };

#define HY_RANKS_MAX 1024u
#define HY_LOCAL_MAX_RANKS 128u /* ranks of one agent */
#define HY_SETS_MAX 64u         /* process sets at a time, including the world */

size_t hy_type_size(enum hy_type type);       /* 1, 2, 4 or 8 */
const char *hy_type_name(enum hy_type type);  /* "float32", as in NumPy and TensorFlow */
const char *hy_reduce_name(enum hy_reduce op); /* "average" */

#endif
