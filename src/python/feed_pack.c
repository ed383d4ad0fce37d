/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows to columns. The first row sets the schema, and the rows after it are added to
 * the same columns as long as they match. A list or array of another length makes
 * its column ragged. Rows without a schema are pickled, many at a time.
 */
#include "feed_row_schema.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define BATCH_BYTES (1u << 20) /* of values; then a batch is sent */
#define FEW_ROWS 8                  /* of one schema: where it changes that often, rows are pickled */
#define PICKLED_ROWS 256            /* in one pickle */
#define MESSAGE_OVERHEAD 1024u     /* bytes of a message besides the pickle */

static int out_of_memory(void)
{
    PyErr_NoMemory();
    return HY_ROW_ERROR;
}

/* ---- values -------------------------------------------------------------------------- */

static int add_float(struct hy_builder *b, PyObject *o)
{
    double *room;

    if (!PyFloat_CheckExact(o))
        return HY_ROW_DIFFERS;
    room = (double *)(void *)hy_buf_reserve(&b->values, sizeof *room);
    if (!room)
        return out_of_memory();
    *room = PyFloat_AsDouble(o);
    hy_buf_added(&b->values, sizeof *room);
    return HY_ROW_FITS;
}

static int add_int(struct hy_builder *b, PyObject *o)
{
    long long value;
    int overflow;

    if (!PyLong_CheckExact(o))
        return HY_ROW_DIFFERS;
    value = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow)
        return HY_ROW_DIFFERS;
    return hy_buf_append(&b->values, &value, sizeof value) < 0 ? out_of_memory() : HY_ROW_FITS;
}

static int add_bool(struct hy_builder *b, PyObject *o)
{
    if (o != Py_True && o != Py_False)
        return HY_ROW_DIFFERS;
    return hy_buf_append(&b->values, &(char){o == Py_True}, 1) < 0 ? out_of_memory() : HY_ROW_FITS;
}

static int add_bytes_value(struct hy_builder *b, const char *bytes, Py_ssize_t n)
{
    if (hy_buf_append(&b->values, bytes, (size_t)n) < 0 ||
        hy_buf_append(&b->value_ends, &(int64_t){(int64_t)b->values.len}, sizeof(int64_t)) < 0)
        return out_of_memory();
    return HY_ROW_FITS;
}

static int add_text(struct hy_builder *b, PyObject *o)
{
    const char *text;
    Py_ssize_t n;

    if (!PyUnicode_CheckExact(o))
        return HY_ROW_DIFFERS;
    text = PyUnicode_AsUTF8AndSize(o, &n);
    if (!text) {
        PyErr_Clear(); /* a lone surrogate */
        return HY_ROW_DIFFERS;
    }
    return add_bytes_value(b, text, n);
}

static int add_bytes(struct hy_builder *b, PyObject *o)
{
    return PyBytes_CheckExact(o) ? add_bytes_value(b, PyBytes_AsString(o), PyBytes_Size(o)) : HY_ROW_DIFFERS;
}

static int add_value(struct hy_builder *b, char kind, PyObject *o)
{
    switch (kind) {
    case 'f':
        return add_float(b, o);
    case 'i':
        return add_int(b, o);
    case 'b':
        return add_bool(b, o);
    case 's':
        return add_text(b, o);
    default:
        return add_bytes(b, o);
    }
}

/* ---- lists and arrays ------------------------------------------------------------------ */

/* From the current row on; all previous rows have the same length. */
static int make_ragged(struct hy_builder *b, uint32_t rows)
{
    struct hy_batch_column *c = &b->column;
    int64_t *room = (int64_t *)(void *)hy_buf_reserve(&b->row_ends, (rows + 1ull) * sizeof *room);

    if (!room)
        return out_of_memory();
    for (uint32_t i = 0; i <= rows; i++)
        room[i] = (int64_t)(i * c->shape[0]);
    hy_buf_added(&b->row_ends, (rows + 1ull) * sizeof *room);
    c->is_ragged = true;
    c->items = (uint64_t)rows * c->shape[0];
    c->dims--;
    memmove(c->shape, c->shape + 1, c->dims * sizeof c->shape[0]);
    (void)hy_batch_column_item_values(c, &b->each); /* a factor of a product that did not overflow */
    return HY_ROW_FITS;
}

/* n is the first dimension of this row. */
static int begin_row(struct hy_builder *b, uint32_t rows, Py_ssize_t n)
{
    int rc = HY_ROW_FITS;

    if (!b->column.is_ragged && b->column.shape[0] != (uint64_t)n)
        rc = make_ragged(b, rows);
    if (rc != HY_ROW_FITS || !b->column.is_ragged)
        return rc;
    b->column.items += (uint64_t)n;
    return hy_buf_append(&b->row_ends, &(int64_t){(int64_t)b->column.items}, sizeof(int64_t)) < 0 ? out_of_memory()
                                                                                                  : HY_ROW_FITS;
}

static int add_floats(struct hy_builder *b, PyObject *list, Py_ssize_t n)
{
    double *room = (double *)(void *)hy_buf_reserve(&b->values, (size_t)n * sizeof *room);

    if (!room)
        return out_of_memory();
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyList_GetItem(list, i);

        if (!PyFloat_CheckExact(o))
            return HY_ROW_DIFFERS;
        room[i] = PyFloat_AsDouble(o);
    }
    hy_buf_added(&b->values, (size_t)n * sizeof *room);
    return HY_ROW_FITS;
}

/* `shape` is that of each element. */
static int add_nested(struct hy_builder *b, PyObject *list, Py_ssize_t n, char element, const uint64_t *shape,
                      unsigned dims)
{
    int rc = HY_ROW_FITS;

    if (dims == 0 && element == 'f')
        return add_floats(b, list, n);
    for (Py_ssize_t i = 0; i < n && rc == HY_ROW_FITS; i++) {
        PyObject *o = PyList_GetItem(list, i);

        if (dims == 0)
            rc = add_value(b, element, o);
        else if (PyList_CheckExact(o) && (uint64_t)PyList_Size(o) == shape[0])
            rc = add_nested(b, o, PyList_Size(o), element, shape + 1, dims - 1);
        else
            rc = HY_ROW_DIFFERS;
    }
    return rc;
}

static int add_list(struct hy_packer *p, struct hy_builder *b, char element, PyObject *o)
{
    const struct hy_batch_column *c = &b->column;
    unsigned skipped;
    Py_ssize_t n;
    int rc;

    if (!PyList_CheckExact(o))
        return HY_ROW_DIFFERS;
    n = PyList_Size(o);
    rc = begin_row(b, p->rows, n);
    skipped = c->is_ragged ? 0 : 1;
    return rc == HY_ROW_FITS ? add_nested(b, o, n, element, c->shape + skipped, c->dims - skipped) : rc;
}

static bool has_shape(const struct hy_batch_column *c, const Py_buffer *view)
{
    const unsigned first = view->ndim > 0, skipped = first && !c->is_ragged; /* the first dimension may differ */

    if ((unsigned)view->ndim != c->dims + c->is_ragged)
        return false;
    for (unsigned i = first; i < (unsigned)view->ndim; i++)
        if ((uint64_t)view->shape[i] != c->shape[i - first + skipped])
            return false;
    return true;
}

static int copy_view(struct hy_builder *b, Py_buffer *view)
{
    uint8_t *room = hy_buf_reserve(&b->values, (size_t)view->len);

    if (!room)
        return out_of_memory();
    if (PyBuffer_IsContiguous(view, 'C'))
        memcpy(room, view->buf, (size_t)view->len);
    else if (PyBuffer_ToContiguous(room, view, view->len, 'C') < 0)
        return HY_ROW_ERROR;
    hy_buf_added(&b->values, (size_t)view->len);
    return HY_ROW_FITS;
}

static int add_array(struct hy_packer *p, struct hy_builder *b, PyObject *o)
{
    enum hy_dtype dtype;
    Py_buffer view;
    int rc = hy_packer_view(p, o, &view, &dtype);

    if (rc != HY_ROW_FITS)
        return rc;
    rc = dtype == b->column.dtype && has_shape(&b->column, &view) ? HY_ROW_FITS : HY_ROW_DIFFERS;
    if (rc == HY_ROW_FITS && view.ndim)
        rc = begin_row(b, p->rows, view.shape[0]);
    if (rc == HY_ROW_FITS)
        rc = copy_view(b, &view);
    PyBuffer_Release(&view);
    return rc;
}

/* ---- rows ---------------------------------------------------------------------------- */

static int add_object(struct hy_packer *p, size_t *at, PyObject *o);

static int add_sequence(struct hy_packer *p, size_t *at, PyObject *o, uint32_t count)
{
    const bool is_list = PyList_CheckExact(o);
    int rc = (is_list ? PyList_Size(o) : PyTuple_Size(o)) == (Py_ssize_t)count ? HY_ROW_FITS : HY_ROW_DIFFERS;

    for (uint32_t i = 0; i < count && rc == HY_ROW_FITS; i++)
        rc = add_object(p, at, is_list ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i));
    return rc;
}

static int add_dict(struct hy_packer *p, size_t *at, PyObject *o, uint32_t count)
{
    PyObject *key, *value;
    Py_ssize_t next = 0;
    int rc = PyDict_Size(o) == (Py_ssize_t)count ? HY_ROW_FITS : HY_ROW_DIFFERS;

    while (rc == HY_ROW_FITS && PyDict_Next(o, &next, &key, &value)) {
        PyObject *expected = p->keys[*at];

        if (key != expected && (!PyUnicode_CheckExact(key) || PyUnicode_Compare(key, expected) != 0))
            return HY_ROW_DIFFERS;
        rc = add_object(p, at, value);
    }
    return rc;
}

static int add_row(struct hy_packer *p, size_t *at, PyObject *o, const struct hy_feed_schema_node *n)
{
    hy_cleanup_ref PyObject *fields = PyTuple_Check(o) ? hy_packer_row_fields(p, o) : NULL;
    PyObject *expected = p->keys[n - p->schema.nodes];
    int same = fields ? fields == expected ? 1 : PyObject_RichCompareBool(fields, expected, Py_EQ) : 0;

    return same > 0 ? add_sequence(p, at, o, n->count) : same < 0 ? HY_ROW_ERROR : HY_ROW_DIFFERS;
}

/* Adds the object for the node at *at and its descendants. */
static int add_object(struct hy_packer *p, size_t *at, PyObject *o)
{
    const struct hy_feed_schema_node *n = &p->schema.nodes[(*at)++];

    switch (n->kind) {
    case '(':
        return PyTuple_CheckExact(o) ? add_sequence(p, at, o, n->count) : HY_ROW_DIFFERS;
    case '[':
        return PyList_CheckExact(o) ? add_sequence(p, at, o, n->count) : HY_ROW_DIFFERS;
    case '{':
        return PyDict_CheckExact(o) ? add_dict(p, at, o, n->count) : HY_ROW_DIFFERS;
    case '<':
        return add_row(p, at, o, n);
    case 'l':
        return add_list(p, &p->builders[n->column], n->element, o);
    case 'a':
        return add_array(p, &p->builders[n->column], o);
    default:
        return add_value(&p->builders[n->column], n->kind, o);
    }
}

/* Removes what an incomplete row has added. */
static void roll_back_row(struct hy_packer *p)
{
    for (size_t i = 0; i < p->builders_count; i++) {
        struct hy_builder *b = &p->builders[i];
        const int64_t *ends = (const int64_t *)(const void *)hy_buf_bytes(&b->value_ends);
        const int64_t *row_ends = (const int64_t *)(const void *)hy_buf_bytes(&b->row_ends);
        const uint64_t items = b->column.is_ragged ? (uint64_t)row_ends[p->rows] : p->rows;
        const size_t size = hy_dtype_size(b->column.dtype);

        if (b->column.is_ragged) {
            b->column.items = items;
            hy_buf_cut(&b->row_ends, (p->rows + 1ull) * sizeof(int64_t));
        }
        hy_buf_cut(&b->values, size ? items * b->each * size : (size_t)ends[items * b->each]);
        if (!size)
            hy_buf_cut(&b->value_ends, (items * b->each + 1) * sizeof(int64_t));
    }
}

static int try_row(struct hy_packer *p, PyObject *row)
{
    size_t at = 0;
    int rc = p->schema.count && p->rows < HY_BATCH_ROWS_MAX ? add_object(p, &at, row) : HY_ROW_DIFFERS;

    if (rc == HY_ROW_FITS)
        p->rows++;
    else if (p->schema.count)
        roll_back_row(p);
    return rc;
}

/* The first row of a schema. */
static int try_first(struct hy_packer *p, PyObject *row)
{
    int rc = hy_packer_set_schema(p, row);

    if (rc == HY_ROW_FITS)
        rc = try_row(p, row);
    if (rc != HY_ROW_FITS)
        hy_packer_reset(p);
    return rc;
}

/* ---- batches ------------------------------------------------------------------------- */

static size_t packed_bytes(const struct hy_packer *p)
{
    size_t n = 0;

    for (size_t i = 0; i < p->builders_count; i++)
        n += p->builders[i].values.len + p->builders[i].value_ends.len + p->builders[i].row_ends.len;
    return n;
}

/* Keeps the schema; ragged columns stay ragged. */
static void clear_rows(struct hy_packer *p)
{
    p->rows = 0;
    for (size_t i = 0; i < p->builders_count; i++) {
        struct hy_builder *b = &p->builders[i];

        hy_buf_clear(&b->values);
        hy_buf_cut(&b->value_ends, sizeof(int64_t));
        b->column.items = 0;
        if (b->column.is_ragged)
            hy_buf_cut(&b->row_ends, sizeof(int64_t));
    }
}

static int flush(struct hy_packer *p, const struct hy_pack_sink *sink)
{
    struct hy_batch batch = {.rows = p->rows, .count = p->schema.columns, .columns = p->columns};
    int rc;

    if (p->rows == 0)
        return 1;
    hy_buf_clear(&p->text);
    p->text.max = SIZE_MAX;
    if (hy_feed_schema_write(&p->schema, &p->text) < 0)
        return out_of_memory();
    batch.schema = (const char *)hy_buf_bytes(&p->text);
    batch.schema_n = p->text.len;
    for (size_t i = 0; i < p->builders_count; i++) {
        const struct hy_builder *b = &p->builders[i];

        p->columns[i] = b->column;
        p->columns[i].values = hy_buf_bytes(&b->values);
        p->columns[i].values_n = b->values.len;
        p->columns[i].value_ends = (const int64_t *)(const void *)hy_buf_bytes(&b->value_ends);
        p->columns[i].row_ends = (const int64_t *)(const void *)hy_buf_bytes(&b->row_ends);
    }
    rc = sink->send(sink->context, &batch);
    clear_rows(p);
    return rc;
}

/* Falls back to cloudpickle for functions and for classes of __main__. */
static PyObject *pickle_rows(PyObject *rows)
{
    hy_cleanup_ref PyObject *pickle = PyImport_ImportModule("pickle"), *cloudpickle = NULL;
    PyObject *bytes = pickle ? PyObject_CallMethod(pickle, "dumps", "Oi", rows, 5) : NULL;

    if (bytes || !PyErr_ExceptionMatches(PyExc_Exception))
        return bytes;
    PyErr_Clear();
    cloudpickle = PyImport_ImportModule("cloudpickle");
    return cloudpickle ? PyObject_CallMethod(cloudpickle, "dumps", "Oi", rows, 5) : NULL;
}

/* As one batch, or recursively as two halves when it is too large. */
static int send_pickled(PyObject *list, Py_ssize_t from, Py_ssize_t to, const struct hy_pack_sink *sink)
{
    hy_cleanup_ref PyObject *rows = PyList_GetSlice(list, from, to), *bytes = rows ? pickle_rows(rows) : NULL;
    struct hy_batch_column column = {.dtype = HY_DTYPE_PICKLE};
    struct hy_batch batch = {
        .rows = (uint32_t)(to - from), .count = 1, .schema = "*", .schema_n = 1, .columns = &column};
    int rc;

    if (!bytes || !PyBytes_Check(bytes))
        return -1;
    column.values = PyBytes_AsString(bytes);
    column.values_n = (size_t)PyBytes_Size(bytes);
    if (column.values_n + MESSAGE_OVERHEAD <= sink->max || to - from == 1)
        return sink->send(sink->context, &batch);
    rc = send_pickled(list, from, from + (to - from) / 2, sink);
    return rc == 1 ? send_pickled(list, from + (to - from) / 2, to, sink) : rc;
}

/* The row *at does not match the schema. Advances *at past the rows that were handled. */
static int change_schema(struct hy_packer *p, PyObject *list, Py_ssize_t *at, Py_ssize_t to,
                         const struct hy_pack_sink *sink)
{
    const bool has_few = p->rows > 0 && p->rows < FEW_ROWS;
    Py_ssize_t from = *at - (has_few ? (Py_ssize_t)p->rows : 0), end;
    int rc = has_few ? 1 : flush(p, sink);

    if (rc != 1)
        return rc;
    rc = has_few ? HY_ROW_DIFFERS : try_first(p, PyList_GetItem(list, *at));
    if (rc == HY_ROW_FITS)
        (*at)++;
    if (rc != HY_ROW_DIFFERS)
        return rc;
    hy_packer_reset(p);
    end = to - from < PICKLED_ROWS ? to : from + PICKLED_ROWS;
    *at = end;
    return send_pickled(list, from, end, sink);
}

int hy_pack_rows(struct hy_packer *p, PyObject *list, Py_ssize_t from, Py_ssize_t to, const struct hy_pack_sink *sink)
{
    const size_t limit = sink->max / 4 < BATCH_BYTES ? sink->max / 4 : BATCH_BYTES;
    int rc = 1;

    clear_rows(p); /* of an earlier call that failed */
    while (rc == 1 && from < to && from < PyList_Size(list)) {
        rc = try_row(p, PyList_GetItem(list, from));
        if (rc == HY_ROW_FITS)
            from++;
        else if (rc == HY_ROW_DIFFERS)
            rc = change_schema(p, list, &from, to, sink);
        if (rc == 1 && packed_bytes(p) >= limit)
            rc = flush(p, sink);
    }
    return rc == 1 ? flush(p, sink) : rc;
}
