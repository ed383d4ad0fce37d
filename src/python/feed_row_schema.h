/* SPDX-License-Identifier: Apache-2.0 */
/* The schema of a row that is packed: feed_row_schema.c, for feed_pack.c. */
#ifndef HY_PYTHON_FEED_ROW_SCHEMA_H
#define HY_PYTHON_FEED_ROW_SCHEMA_H

#include "feed_rows.h"

/* Results of the functions below: an exception is set; the row does not fit the schema; it does. */
enum { HY_ROW_ERROR = -1, HY_ROW_DIFFERS = 0, HY_ROW_FITS = 1 };

/* Sets the schema of the packer to that of the row, with a builder for each column. DIFFERS: the row has no schema. */
int hy_packer_set_schema(struct hy_packer *p, PyObject *row);
void hy_packer_reset(struct hy_packer *p);
/* The buffer of a NumPy array or scalar. DIFFERS: it has none, or its type is not supported. */
int hy_packer_view(const struct hy_packer *p, PyObject *o, Py_buffer *view, enum hy_dtype *ret);
/* A new reference to the list of field names of a pyspark.sql.Row; NULL when it is not one. */
PyObject *hy_packer_row_fields(struct hy_packer *p, PyObject *o);

#endif
