/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that Python looks at where they are, without a copy; and their memory,
 * which is used again when nobody looks any more. Memory that is fresh from the
 * system costs more than what is read into it. All with the GIL.
 */
#ifndef HY_PYTHON_COLUMN_VALUES_H
#define HY_PYTHON_COLUMN_VALUES_H

#include "module.h"

struct hy_buf;
struct hy_buffer_pool; /* opaque */

struct hy_buffer_pool *hy_buffer_pool_new(void); /* NULL when out of memory */
void hy_buffer_pool_unref(struct hy_buffer_pool *s); /* NULL is fine */

/* The buffer's bytes, as an object with the buffer protocol; the buffer is empty then, with memory of another one that is
 * gone. Few bytes are copied. A new reference, or NULL. */
PyObject *hy_py_column_values(const struct hy_py_state *state, struct hy_buffer_pool *s, struct hy_buf *b);

#endif
