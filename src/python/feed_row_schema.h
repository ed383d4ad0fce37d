/* SPDX-License-Identifier: Apache-2.0 */
/* A row while it is packed: what feed_describe.c finds out about it for feed_pack.c. */
#ifndef HY_PYTHON_FEED_ROW_SCHEMA_H
#define HY_PYTHON_FEED_ROW_SCHEMA_H

#include "feed_rows.h"

/* An answer of what follows: the row is as it should be, it is not, or an exception is set. */
enum { HY_ROW_ERROR = -1, HY_ROW_DIFFERS = 0, HY_ROW_FITS = 1 };

/* Makes the packer's shape that of the row, with a builder for each column. DIFFERS: it has none. */
int hy_packer_set_schema(struct hy_packer *p, PyObject *row);
void hy_packer_reset(struct hy_packer *p);
/* Of an array or a scalar of NumPy's. DIFFERS: what has no buffer, or no type of ours. */
int hy_packer_view(const struct hy_packer *p, PyObject *o, Py_buffer *view, enum hy_dtype *ret);
/* Of a pyspark.sql.Row: a new reference to the list of its fields; NULL when it is none. */
PyObject *hy_packer_row_fields(struct hy_packer *p, PyObject *o);

#endif
