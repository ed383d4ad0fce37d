/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values of a column as a Python object with the buffer protocol, without a copy,
 * and a pool for their memory: fresh memory from the system costs more than reading
 * values into it. Requires the GIL.
 */
#ifndef HY_PYTHON_COLUMN_VALUES_H
#define HY_PYTHON_COLUMN_VALUES_H

#include "module.h"

struct hy_buf;
struct hy_buffer_pool; /* opaque */

struct hy_buffer_pool *hy_buffer_pool_new(void); /* NULL when out of memory */
void hy_buffer_pool_unref(struct hy_buffer_pool *s); /* NULL is fine */

/* Moves the bytes of the buffer into an object; the buffer is empty then, with memory from the pool. Small ones are
 * copied into a bytes object. A new reference, or NULL. */
PyObject *hy_py_column_values(const struct hy_py_state *state, struct hy_buffer_pool *s, struct hy_buf *b);

#endif
