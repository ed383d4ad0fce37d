/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of tensors, aligned as TensorFlow requires. Freed blocks are kept for later
 * allocations of their size: the first touch of a new page costs more than copying
 * data into it. The cache is bounded, and the oldest block is freed first.
 *
 * Thread-safe.
 */
#ifndef HY_TENSORFLOW_MEMORY_H
#define HY_TENSORFLOW_MEMORY_H

#include <stddef.h>

/* NULL when out of memory. */
void *hy_memory_alloc(size_t n);
void hy_memory_free(void *memory); /* NULL is fine */

#endif
