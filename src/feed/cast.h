/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Casts of numbers to the type of a signature: Python's floats and ints are float64
 * and int64, datasets often are not. Private to src/feed.
 *
 * A cast is safe when it keeps the kind of a number: a float to any float, an integer
 * to any integer (each value is checked) or float, a bool to any number.
 */
#ifndef HY_FEED_CAST_H
#define HY_FEED_CAST_H

#include <stdbool.h>
#include <stddef.h>

#include "feed/feed.h"

/* Also of strings: str may be cast to bytes. */
bool hy_cast_is_safe(enum hy_dtype from, enum hy_dtype to);

/* Casts n numbers, which must be safe; bools become 0 or 1. 0, or -ERANGE when a value is out of range; the output is
 * undefined then. */
int hy_cast(enum hy_dtype from, const void *values, size_t n, enum hy_dtype to, void *ret);

#endif
