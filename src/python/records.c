/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TFRecord files of tf.Examples: the type Examples reads batches of columns, and
 * write_examples encodes columns. A column is a tuple
 *
 *     (name, kind, has_steps, values, value_ends, step_ends, row_ends)
 *
 * of buffers in the format of src/record/columns.h, for NumPy and Arrow to use in
 * place; on request `there` follows them. Reading and parsing do not hold the GIL.
 */
#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "files.h"
#include "record/record.h"
#include "column_values.h"

#define NAMES "surrogateescape" /* names are arbitrary bytes */
#define BATCH_MAX (1u << 20)    /* of records, in bytes: larger batches are slower, since they exceed the caches */
#define RAW_COLUMN "byteArray"        /* the column of raw records, as in Spark's readers */

struct examples {
    PyObject object;
    struct hy_records *file; /* NULL: closed */
    struct hy_columns columns;
    struct hy_buffer_pool *pool; /* memory of columns that were freed */
    PyObject *url;            /* bytes */
    uint64_t rows; /* in a batch */
    bool is_sequence, is_raw, has_presence, is_busy;
};

static const struct hy_py_state *state_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

/* ---- to Python ---------------------------------------------------------------- */

static PyObject *bytes_of(const struct hy_buf *b)
{
    return PyBytes_FromStringAndSize((const char *)hy_buf_bytes(b), (Py_ssize_t)b->len);
}

/* Moves the values out of the column. */
static PyObject *column_tuple(const struct hy_py_state *state, struct examples *e, struct hy_column *c)
{
    const bool has_presence = e->has_presence;
    hy_cleanup_ref PyObject *name = PyUnicode_DecodeUTF8(c->name, (Py_ssize_t)c->name_n, NAMES);
    hy_cleanup_ref PyObject *values = hy_py_column_values(state, e->pool, &c->values);
    hy_cleanup_ref PyObject *value_ends = bytes_of(&c->value_ends);
    hy_cleanup_ref PyObject *step_ends = bytes_of(&c->step_ends), *row_ends = bytes_of(&c->row_ends);
    hy_cleanup_ref PyObject *there = has_presence ? bytes_of(&c->there) : Py_NewRef(Py_None);

    if (!name || !values || !value_ends || !step_ends || !row_ends || !there)
        return NULL;
    return Py_BuildValue(has_presence ? "(OiOOOOOO)" : "(OiOOOOO)", name, (int)c->kind,
                         c->has_steps ? Py_True : Py_False, values, value_ends, step_ends, row_ends, there);
}

static PyObject *column_list(const struct hy_py_state *state, struct examples *e)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < e->columns.count; i++) {
        hy_cleanup_ref PyObject *tuple = column_tuple(state, e, &e->columns.list[i]);

        if (!tuple || PyList_Append(list, tuple) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* ---- reading ------------------------------------------------------------------ */

static int add_raw_record(struct hy_columns *c, const struct hy_record *r, struct hy_err *err)
{
    struct hy_column *column = hy_columns_add(c, RAW_COLUMN, strlen(RAW_COLUMN), false, HY_KIND_BYTES);

    if (!column || hy_column_begin(column, c->rows) < 0 || hy_column_add_bytes(column, r->bytes, r->n) < 0 ||
        hy_column_end(column) < 0)
        return hy_err_oom(err);
    hy_columns_end_row(c);
    return 0;
}

static int parse(struct examples *e, const struct hy_record *r, struct hy_err *err)
{
    if (e->is_raw)
        return add_raw_record(&e->columns, r, err);
    return e->is_sequence ? hy_sequence_example_parse(&e->columns, r->bytes, r->n, err)
                          : hy_example_parse(&e->columns, r->bytes, r->n, err);
}

/* Up to the row or size limit of a batch, or the end of the file. */
static int read_batch(struct examples *e, struct hy_err *err)
{
    struct hy_record r;
    uint64_t bytes = 0;
    int rc = 1;

    hy_columns_clear(&e->columns);
    while (e->columns.rows < e->rows && bytes < BATCH_MAX && (rc = hy_records_next(e->file, &r, err)) > 0) {
        bytes += r.n;
        rc = parse(e, &r, err);
        if (rc < 0)
            return hy_err_wrap(err, "%s: the record at byte %llu", PyBytes_AsString(e->url),
                               (unsigned long long)hy_records_at(e->file)),
                   rc;
    }
    return rc < 0 ? rc : hy_columns_fill(&e->columns);
}

static PyObject *examples_next(PyObject *self, PyObject *ignored)
{
    struct examples *e = (struct examples *)self;
    struct hy_err err = {0};
    int rc;

    (void)ignored;
    if (!e->file || e->is_busy) {
        PyErr_SetString(PyExc_ValueError, e->file ? "another thread is reading the file" : "the file is closed");
        return NULL;
    }
    e->is_busy = true;
    Py_BEGIN_ALLOW_THREADS rc = read_batch(e, &err);
    Py_END_ALLOW_THREADS e->is_busy = false;
    if (hy_py_file_check(state_of(self), rc, &err, e->url) < 0)
        return NULL;
    return e->columns.rows ? Py_BuildValue("(KN)", (unsigned long long)e->columns.rows, column_list(state_of(self), e))
                           : Py_NewRef(Py_None);
}

static PyObject *examples_want(PyObject *self, PyObject *args)
{
    struct examples *e = (struct examples *)self;
    int kind, has_steps = 0;
    const char *name;
    Py_ssize_t n;

    if (!PyArg_ParseTuple(args, "s#i|p:want", &name, &n, &kind, &has_steps))
        return NULL;
    if (kind < HY_KIND_NONE || kind > HY_KIND_INT64 || e->is_busy) {
        PyErr_SetString(PyExc_ValueError, "kind must be 0 (any), 1 (bytes), 2 (float) or 3 (int64)");
        return NULL;
    }
    if (!hy_columns_add(&e->columns, name, (size_t)n, has_steps, (enum hy_column_kind)kind))
        return PyErr_NoMemory();
    e->columns.is_closed = true;
    return Py_NewRef(Py_None);
}

static PyObject *examples_close(PyObject *self, PyObject *ignored)
{
    struct examples *e = (struct examples *)self;

    (void)ignored;
    if (!e->is_busy)
        hy_records_close(hy_take(e->file));
    return Py_NewRef(Py_None);
}

static PyObject *examples_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"url", "rows", "sequence", "there", "bare", NULL};
    hy_cleanup_ref PyObject *url = NULL;
    PyObject *self;
    struct hy_records *file = NULL;
    struct hy_err err = {0};
    unsigned long long rows = 4096;
    int is_sequence = 0, has_presence = 0, is_raw = 0, rc;
    struct examples *e;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|Kppp:Examples", (char **)names, PyUnicode_FSConverter, &url,
                                     &rows, &is_sequence, &has_presence, &is_raw))
        return NULL;
    self = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    e = (struct examples *)self;
    hy_columns_init(&e->columns);
    e->url = Py_NewRef(url);
    e->pool = hy_buffer_pool_new();
    if (!e->pool) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    e->rows = rows ? rows : 1;
    e->is_sequence = is_sequence;
    e->has_presence = has_presence;
    e->is_raw = is_raw;
    Py_BEGIN_ALLOW_THREADS rc = hy_records_open(PyBytes_AsString(url), &file, &err);
    Py_END_ALLOW_THREADS e->file = file;
    if (hy_py_file_check(state_of(self), rc, &err, url) < 0)
        Py_CLEAR(self);
    return self;
}

static void examples_dealloc(PyObject *self)
{
    struct examples *e = (struct examples *)self;
    PyTypeObject *type = Py_TYPE(self);

    hy_records_close(e->file);
    hy_columns_done(&e->columns);
    hy_buffer_pool_unref(e->pool);
    Py_XDECREF(e->url);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"next", examples_next, METH_NOARGS, "next(): (rows, columns), or None at the end."},
    {"want", examples_want, METH_VARARGS,
     "want(name, kind, has_steps=False): selects a column; columns that are not selected are skipped."},
    {"close", examples_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

PyObject *hy_py_examples_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_new, examples_new},
        {Py_tp_dealloc, examples_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_doc, (void *)"Examples(url, rows=4096, sequence=False, there=False, bare=False): tf.Examples of a file "
                            "of records, by columns; bare: the raw bytes of the records, in one column."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "hopyard._hopyard.Examples",
        .basicsize = sizeof(struct examples),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };

    return PyType_FromModuleAndSpec(module, &spec, NULL);
}

/* ---- writing ------------------------------------------------------------------ */

/* `count` + 1 offsets from 0 on that do not decrease; the last is *ret_last. */
static int check_ends(const struct hy_buf *ends, uint64_t count, uint64_t *ret_last)
{
    const int64_t *at = hy_column_ends(ends);

    if (count >= SIZE_MAX / sizeof *at || ends->len != (count + 1) * sizeof *at || at[0] != 0)
        return -EINVAL;
    for (uint64_t i = 0; i < count; i++)
        if (at[i + 1] < at[i])
            return -EINVAL;
    *ret_last = (uint64_t)at[count];
    return 0;
}

static int check_column(const struct hy_column *c, uint64_t rows)
{
    uint64_t count, bytes;

    if (c->kind == HY_KIND_NONE)
        return 0; /* it is not written */
    if (c->there.len && c->there.len != rows)
        return -EINVAL;
    if (check_ends(&c->row_ends, rows, &count) < 0 || (c->has_steps && check_ends(&c->step_ends, count, &count) < 0))
        return -EINVAL;
    if (c->kind == HY_KIND_BYTES)
        return check_ends(&c->value_ends, count, &bytes) == 0 && bytes == c->values.len ? 0 : -EINVAL;
    return c->values.len % (c->kind == HY_KIND_FLOAT ? 4 : 8) == 0 &&
                   c->values.len / (c->kind == HY_KIND_FLOAT ? 4 : 8) == count
               ? 0
               : -EINVAL;
}

static int copy_buffer(struct hy_buf *b, const Py_buffer *from)
{
    hy_buf_clear(b);
    return hy_buf_append(b, from->buf, (size_t)from->len) < 0 ? -ENOMEM : 0;
}

/* 0, or -1 with an exception set. */
static int add_column(struct hy_columns *c, PyObject *tuple, uint64_t rows)
{
    Py_buffer parts[5] = {0};
    struct hy_column *column;
    int kind, has_steps, rc = -ENOMEM;
    const char *name;
    Py_ssize_t n;

    if (!PyArg_ParseTuple(tuple, "s#ipy*y*y*y*|y*:column", &name, &n, &kind, &has_steps, &parts[0], &parts[1],
                          &parts[2], &parts[3], &parts[4]))
        return -1;
    column = hy_columns_add(c, name, (size_t)n, has_steps, (enum hy_column_kind)kind);
    if (column)
        rc = copy_buffer(&column->values, &parts[0]);
    if (rc == 0)
        rc = copy_buffer(&column->value_ends, &parts[1]);
    if (rc == 0)
        rc = copy_buffer(&column->step_ends, &parts[2]);
    if (rc == 0)
        rc = copy_buffer(&column->row_ends, &parts[3]);
    if (rc == 0 && parts[4].obj)
        rc = copy_buffer(&column->there, &parts[4]);
    for (size_t i = 0; i < HY_COUNT(parts); i++)
        PyBuffer_Release(&parts[i]);
    if (rc == 0 && (kind < HY_KIND_NONE || kind > HY_KIND_INT64 || check_column(column, rows) < 0))
        rc = -EINVAL;
    if (rc == 0)
        return 0;
    if (rc == -EINVAL)
        PyErr_Format(PyExc_ValueError,
                     "the column '%s' is inconsistent: its offsets must start at 0, not decrease, "
                     "and end at the number of values",
                     name);
    else
        PyErr_NoMemory();
    return -1;
}

/* Approximate: values, and some bytes for each row and feature. */
static size_t estimate_size(const struct hy_columns *c, uint64_t rows)
{
    size_t n = 32 * (size_t)rows;

    for (size_t i = 0; i < c->count; i++)
        n += c->list[i].values.len + (c->list[i].name_n + 16) * (size_t)rows;
    return n;
}

static int append_examples(struct hy_buf *b, const struct hy_columns *c, uint64_t rows, bool is_sequence)
{
    int rc = hy_buf_reserve(b, estimate_size(c, rows)) ? 0 : -ENOMEM; /* at once, since growing would copy it */

    for (uint64_t row = 0; row < rows && rc == 0; row++)
        rc = hy_example_append(b, c, row, is_sequence);
    return rc;
}

PyObject *hy_py_write_examples(PyObject *module, PyObject *args)
{
    hy_cleanup_buf struct hy_buf b;
    PyObject *list, *made = NULL;
    struct hy_columns c;
    unsigned long long rows;
    int is_sequence = 0, rc = 0;

    (void)module;
    hy_buf_init(&b, PY_SSIZE_T_MAX);
    if (!PyArg_ParseTuple(args, "KO!|p:write_examples", &rows, &PyList_Type, &list, &is_sequence))
        return NULL;
    hy_columns_init(&c);
    for (Py_ssize_t i = 0; i < PyList_Size(list) && rc == 0; i++)
        rc = add_column(&c, PyList_GetItem(list, i), rows);
    if (rc == 0) {
        Py_BEGIN_ALLOW_THREADS rc = append_examples(&b, &c, rows, is_sequence);
        Py_END_ALLOW_THREADS made = rc == 0 ? bytes_of(&b) : PyErr_NoMemory();
    }
    hy_columns_done(&c);
    return made;
}

/* Each value of a column of bytes as a record. 0, or -EINVAL for invalid offsets. */
static int append_records(struct hy_buf *b, const struct hy_column *c, uint64_t count)
{
    const int64_t *ends = hy_column_ends(&c->value_ends);
    uint64_t bytes;
    int rc = check_ends(&c->value_ends, count, &bytes) < 0 || bytes != c->values.len ? -EINVAL : 0;

    for (uint64_t i = 0; i < count && rc == 0; i++)
        rc = hy_record_append(b, hy_buf_bytes(&c->values) + ends[i], (size_t)(ends[i + 1] - ends[i]));
    return rc;
}

PyObject *hy_py_write_records(PyObject *module, PyObject *args)
{
    hy_cleanup_buf struct hy_buf b;
    struct hy_column c = {0};
    Py_buffer values, ends;
    int rc;

    (void)module;
    hy_buf_init(&b, PY_SSIZE_T_MAX);
    if (!PyArg_ParseTuple(args, "y*y*:write_records", &values, &ends))
        return NULL;
    hy_buf_init(&c.values, SIZE_MAX / 2);
    hy_buf_init(&c.value_ends, SIZE_MAX / 2);
    rc = copy_buffer(&c.values, &values);
    if (rc == 0)
        rc = copy_buffer(&c.value_ends, &ends);
    Py_BEGIN_ALLOW_THREADS if (rc == 0) rc = append_records(&b, &c, c.value_ends.len / sizeof(int64_t) - 1);
    Py_END_ALLOW_THREADS PyBuffer_Release(&values);
    PyBuffer_Release(&ends);
    hy_buf_done(&c.values);
    hy_buf_done(&c.value_ends);
    if (rc == -EINVAL)
        PyErr_SetString(PyExc_ValueError, "offsets must start at 0, not decrease, and end at the number of bytes");
    else if (rc < 0)
        PyErr_NoMemory();
    return rc == 0 ? bytes_of(&b) : NULL;
}
