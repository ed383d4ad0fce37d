/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/numbers/types.h"

static const struct {
    const char *name;
    size_t size;
} types[HY_TYPES] = {
    [HY_U8] = {"uint8", 1},    [HY_I8] = {"int8", 1},       [HY_U16] = {"uint16", 2},  [HY_I16] = {"int16", 2},
    [HY_U32] = {"uint32", 4},  [HY_I32] = {"int32", 4},     [HY_U64] = {"uint64", 8},  [HY_I64] = {"int64", 8},
    [HY_F16] = {"float16", 2}, [HY_BF16] = {"bfloat16", 2}, [HY_F32] = {"float32", 4}, [HY_F64] = {"float64", 8},
    [HY_BOOL] = {"bool", 1},
};

static const char *const reduces[HY_REDUCES] = {
    [HY_SUM] = "sum", [HY_AVERAGE] = "average", [HY_MIN] = "min",
    [HY_MAX] = "max", [HY_PRODUCT] = "product", [HY_ADASUM] = "adasum",
};

size_t hy_type_size(enum hy_type type)
{
    return types[type].size;
}

const char *hy_type_name(enum hy_type type)
{
    return types[type].name;
}

const char *hy_reduce_name(enum hy_reduce op)
{
    return reduces[op];
}
