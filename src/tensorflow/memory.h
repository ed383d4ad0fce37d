/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of tensors, aligned as TensorFlow wants it. What is dropped is kept for the
 * next of its size: a page that is fresh from the system costs more than what is
 * copied into it. What is kept is bounded, and the oldest of it goes first.
 *
 * All from any thread.
 */
#ifndef HY_TENSORFLOW_MEMORY_H
#define HY_TENSORFLOW_MEMORY_H

#include <stddef.h>

/* NULL when there is none. */
void *hy_memory_take(size_t n);
/* NULL is fine. */
void hy_memory_drop(void *memory);

#endif
