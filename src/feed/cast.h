/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of one type as another's: what a dataset's signature wants, and rows of
 * Python's floats and ints do not have.
 *
 * Safe is what keeps the kind of a number: a float as any float, an integer as any
 * integer that holds it (each is looked at) or as a float, a bool as any number.
 */
#ifndef HY_FEED_CAST_H
#define HY_FEED_CAST_H

#include <stdbool.h>
#include <stddef.h>

#include "feed/feed.h"

/* Also of texts: str and bytes are the same to who wants bytes. */
bool hy_cast_is_safe(enum hy_dtype from, enum hy_dtype to);

/* Casts n numbers, where that is safe; bools are 0 or 1 afterwards. 0, or -ERANGE: one of them is too large, and what
 * was written means nothing. */
int hy_cast(enum hy_dtype from, const void *values, size_t n, enum hy_dtype to, void *ret);

#endif
