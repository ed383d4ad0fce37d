/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Columns to rows, and gathered columns to Python. The feeder can change the batch at
 * any time: each offset is checked where it is used, and values are only copied.
 *
 * The arrays of a NumPy column are views of one array with all rows, which lives as
 * long as any of them.
 */
#include "feed_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define PIN_INTERVAL 16384 /* one float in so many: two or three per megabyte */

/* ---- life cycle ------------------------------------------------------------------------ */

void hy_unpack_end(struct hy_unpacker *u)
{
    for (size_t i = 0; i < u->keys_count; i++)
        Py_XDECREF(u->keys[i]);
    for (size_t i = 0; i < u->arrays_count; i++)
        Py_XDECREF(u->arrays[i]);
    free(u->keys);
    free(u->arrays);
    Py_XDECREF(u->make_row);
    *u = (struct hy_unpacker){.pins = u->pins};
}

PyObject *hy_shape_tuple(const struct hy_batch_column *c, bool has_first, uint64_t first)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)(c->dims + has_first));

    for (unsigned i = 0; tuple && i < c->dims + has_first; i++) {
        PyObject *n = PyLong_FromUnsignedLongLong(has_first && i == 0 ? first : c->shape[i - has_first]);

        if (!n || PyTuple_SetItem(tuple, (Py_ssize_t)i, n) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* All rows, or items, of a column, as a writable copy. */
static PyObject *array_of(const struct hy_batch_column *c, uint32_t rows)
{
    hy_cleanup_ref PyObject *numpy = PyImport_ImportModule("numpy");
    hy_cleanup_ref PyObject *bytes = PyByteArray_FromStringAndSize(c->values, (Py_ssize_t)c->values_n);
    hy_cleanup_ref PyObject *shape = hy_shape_tuple(c, true, c->is_ragged ? c->items : rows);

    return numpy && bytes && shape ? PyObject_CallMethod(numpy, "ndarray", "OsO", shape, hy_dtype_name(c->dtype), bytes)
                                   : NULL;
}

PyObject *hy_unpickle(const void *bytes, size_t n)
{
    hy_cleanup_ref PyObject *pickle = PyImport_ImportModule("pickle");
    hy_cleanup_ref PyObject *loads = pickle ? PyObject_GetAttrString(pickle, "loads") : NULL;
    hy_cleanup_ref PyObject *view = PyMemoryView_FromMemory((char *)(uintptr_t)bytes, (Py_ssize_t)n, PyBUF_READ);
    hy_cleanup_ref PyObject *args = loads && view ? PyTuple_Pack(1, view) : NULL;
    hy_cleanup_ref PyObject *kwargs = args ? Py_BuildValue("{ss}", "encoding", "bytes") : NULL; /* as Spark does */

    PyObject *rows = kwargs ? PyObject_Call(loads, args, kwargs) : NULL;

    if (rows && !PyList_CheckExact(rows)) { /* Spark's JVM pickles tuples */
        hy_cleanup_ref PyObject *others = rows;

        rows = PyTuple_CheckExact(others) ? PySequence_List(others) : NULL;
        if (!rows && !PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "the pickle is not a list of rows");
    }
    return rows;
}

static PyObject *load_pickle(const struct hy_batch_column *c, uint32_t rows)
{
    PyObject *list = hy_unpickle(c->values, c->values_n);

    if (list && rows && PyList_Size(list) != (Py_ssize_t)rows) {
        Py_CLEAR(list);
        PyErr_SetString(PyExc_ValueError, "the pickle does not have the declared number of rows");
    }
    return list;
}

/* The list of field names of a Row, shared by all of them, as in Spark. */
static int set_fields(struct hy_unpacker *u, size_t self)
{
    const uint32_t count = u->of->schema.nodes[self].count;
    PyObject *fields = PyList_New((Py_ssize_t)count);
    size_t at = self + 1;

    u->keys[self] = fields;
    for (uint32_t i = 0; fields && i < count; i++) {
        if (PyList_SetItem(fields, (Py_ssize_t)i, Py_NewRef(u->keys[at])) < 0)
            return -1;
        for (uint32_t left = 1; left; left--, at++) /* skips the descendants */
            left += u->of->schema.nodes[at].count;
    }
    return fields ? 0 : -1;
}

static int find_make_row(struct hy_unpacker *u)
{
    hy_cleanup_ref PyObject *types = u->make_row ? NULL : PyImport_ImportModule("pyspark.sql.types");

    if (types)
        u->make_row = PyObject_GetAttrString(types, "_create_row");
    return u->make_row ? 0 : -1;
}

/* In reverse order, so that the keys of a Row exist before its list of fields. */
static int set_keys(struct hy_unpacker *u)
{
    for (size_t i = u->of->schema.count; i-- > 0;) {
        const struct hy_feed_schema_node *n = &u->of->schema.nodes[i];

        if (n->kind == '<') {
            if (n->key)
                return -EBADMSG; /* keys[] holds a key or fields, not both */
            if (set_fields(u, i) < 0 || find_make_row(u) < 0)
                return -1;
        } else if (n->key) {
            u->keys[i] = PyUnicode_DecodeUTF8(n->key, (Py_ssize_t)n->key_n, NULL);
            if (!u->keys[i])
                return PyErr_Clear(), -EBADMSG;
        }
    }
    return 0;
}

static int set_arrays(struct hy_unpacker *u)
{
    for (size_t i = 0; i < u->of->schema.count; i++) {
        const struct hy_feed_schema_node *n = &u->of->schema.nodes[i];
        const struct hy_batch_column *c = &u->of->batch->columns[n->column];

        if (n->kind != 'a' && n->kind != '*')
            continue;
        u->arrays[n->column] = n->kind == 'a' ? array_of(c, u->of->batch->rows) : load_pickle(c, u->of->batch->rows);
        if (!u->arrays[n->column])
            return -1;
    }
    return 0;
}

int hy_unpack_begin(struct hy_unpacker *u, const struct hy_batch_cursor *r)
{
    hy_unpack_end(u);
    u->of = r;
    u->number = r->number;
    u->keys = hy_calloc(r->schema.count, sizeof *u->keys);
    u->arrays = hy_calloc(r->batch->count, sizeof *u->arrays);
    if (!u->keys || !u->arrays)
        return PyErr_NoMemory(), -1;
    u->keys_count = r->schema.count;
    u->arrays_count = r->batch->count;
    return set_keys(u);
}

/* ---- values -------------------------------------------------------------------------- */

static PyObject *text_of(const char *text, uint64_t n)
{
    PyObject *o = PyUnicode_DecodeUTF8(text, (Py_ssize_t)n, NULL);

    if (!o && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))
        PyErr_Clear();
    return o;
}

/* NULL without an exception: the batch is invalid. */
static PyObject *value_at(const struct hy_batch_column *c, char kind, uint64_t i)
{
    uint64_t from, to;

    switch (kind) {
    case 'f':
        return PyFloat_FromDouble(((const double *)c->values)[i]);
    case 'i':
        return PyLong_FromLongLong(((const int64_t *)c->values)[i]);
    case 'b':
        return PyBool_FromLong(((const uint8_t *)c->values)[i]);
    default:
        if (!hy_ends_at(c->value_ends, i, c->values_n, &from, &to))
            return NULL;
        if (kind == 's')
            return text_of((const char *)c->values + from, to - from);
        return PyBytes_FromStringAndSize((const char *)c->values + from, (Py_ssize_t)(to - from));
    }
}

void hy_float_pins_done(struct hy_float_pins *p)
{
    for (size_t i = 0; i < HY_COUNT(p->list); i++)
        Py_CLEAR(p->list[i]);
}

static void add_pin(struct hy_float_pins *p, PyObject *o)
{
    PyObject *old = p->list[p->next];

    p->list[p->next] = o;
    p->next = (p->next + 1) % HY_COUNT(p->list);
    Py_XDECREF(old);
}

static void maybe_pin(struct hy_float_pins *p, PyObject *o)
{
    if (++p->since % PIN_INTERVAL == 0)
        add_pin(p, Py_NewRef(o));
}

/* Pins the arena of the objects that were created last. */
static void pin_new_float(struct hy_float_pins *p)
{
    PyObject *o = PyFloat_FromDouble(0);

    if (o)
        add_pin(p, o);
    else
        PyErr_Clear();
}

/* Equal neighbors share one object: images are mostly background. */
static PyObject *float_list(struct hy_float_pins *pins, const double *values, uint64_t n)
{
    PyObject *list = PyList_New((Py_ssize_t)n), *last = NULL;
    double previous = 0;

    for (uint64_t i = 0; list && i < n; i++) {
        const double value = *(const volatile double *)&values[i];

        if (!last || memcmp(&value, &previous, sizeof value) != 0) {
            last = PyFloat_FromDouble(value);
            if (last && pins)
                maybe_pin(pins, last);
        } else {
            Py_INCREF(last);
        }
        previous = value;
        if (!last || PyList_SetItem(list, (Py_ssize_t)i, last) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* A list of n values, or of n lists of the rest of the shape, from the value *at on. */
static PyObject *nested_list(struct hy_float_pins *pins, const struct hy_batch_column *c, char element, uint64_t *at,
                             uint64_t n, unsigned dim)
{
    PyObject *list;

    if (element == 'f' && dim == c->dims) {
        list = float_list(pins, (const double *)c->values + *at, n);
        *at += n;
        return list;
    }
    list = PyList_New((Py_ssize_t)n);
    for (uint64_t i = 0; list && i < n; i++) {
        PyObject *o = dim == c->dims ? value_at(c, element, (*at)++)
                                     : nested_list(pins, c, element, at, c->shape[dim], dim + 1);

        if (!o || PyList_SetItem(list, (Py_ssize_t)i, o) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *list_at(struct hy_float_pins *pins, const struct hy_batch_column *c, char element, uint32_t row)
{
    uint64_t each = 1, from = row, to, at;

    if (hy_batch_column_item_values(c, &each) < 0 ||
        (c->is_ragged && !hy_ends_at(c->row_ends, row, c->items, &from, &to)))
        return NULL;
    at = from * each;
    return c->is_ragged ? nested_list(pins, c, element, &at, to - from, 0)
                        : nested_list(pins, c, element, &at, c->shape[0], 1);
}

static PyObject *array_at(PyObject *all, const struct hy_batch_column *c, uint32_t row)
{
    uint64_t from, to;

    if (!c->is_ragged)
        return PySequence_GetItem(all, (Py_ssize_t)row);
    if (!hy_ends_at(c->row_ends, row, c->items, &from, &to))
        return NULL;
    return PySequence_GetSlice(all, (Py_ssize_t)from, (Py_ssize_t)to);
}

/* ---- rows ---------------------------------------------------------------------------- */

static PyObject *make_object(struct hy_unpacker *u, size_t *at, uint32_t row);

static PyObject *make_list(struct hy_unpacker *u, size_t *at, uint32_t row, uint32_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (uint32_t i = 0; list && i < count; i++) {
        PyObject *o = make_object(u, at, row);

        if (!o || PyList_SetItem(list, (Py_ssize_t)i, o) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *make_tuple(struct hy_unpacker *u, size_t *at, uint32_t row, uint32_t count)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);

    for (uint32_t i = 0; tuple && i < count; i++) {
        PyObject *o = make_object(u, at, row);

        if (!o || PyTuple_SetItem(tuple, (Py_ssize_t)i, o) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *make_dict(struct hy_unpacker *u, size_t *at, uint32_t row, uint32_t count)
{
    PyObject *dict = PyDict_New();

    for (uint32_t i = 0; dict && i < count; i++) {
        PyObject *key = u->keys[*at];
        hy_cleanup_ref PyObject *o = make_object(u, at, row);

        if (!o || PyDict_SetItem(dict, key, o) < 0)
            Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *make_row(struct hy_unpacker *u, size_t *at, uint32_t row, uint32_t count)
{
    PyObject *fields = u->keys[*at - 1];
    hy_cleanup_ref PyObject *values = make_tuple(u, at, row, count);

    return values ? PyObject_CallFunctionObjArgs(u->make_row, fields, values, NULL) : NULL;
}

/* The object for the node at *at and its descendants. */
static PyObject *make_object(struct hy_unpacker *u, size_t *at, uint32_t row)
{
    const struct hy_feed_schema_node *n = &u->of->schema.nodes[(*at)++];
    const struct hy_batch_column *c = &u->of->batch->columns[n->column];

    switch (n->kind) {
    case '(':
        return make_tuple(u, at, row, n->count);
    case '[':
        return make_list(u, at, row, n->count);
    case '{':
        return make_dict(u, at, row, n->count);
    case '<':
        return make_row(u, at, row, n->count);
    case 'l':
        return list_at(u->pins, c, n->element, row);
    case 'a':
        return array_at(u->arrays[n->column], c, row);
    case '*':
        return Py_NewRef(PyList_GetItem(u->arrays[n->column], (Py_ssize_t)row));
    default:
        return value_at(c, n->kind, row);
    }
}

Py_ssize_t hy_unpack_rows(struct hy_unpacker *u, struct hy_batch_cursor *r, PyObject *list, Py_ssize_t max)
{
    Py_ssize_t left, count;

    if (!u->has_arrays && set_arrays(u) < 0)
        return -1;
    u->has_arrays = true;
    if (r->rows == HY_BATCH_ROWS_UNKNOWN) {
        r->rows = (uint32_t)PyList_Size(u->arrays[0]);
        if (u->pins)
            pin_new_float(u->pins);
    }
    left = (Py_ssize_t)(r->rows - r->next);
    count = max < left ? max : left;
    for (Py_ssize_t i = 0; i < count; i++, r->next++) {
        size_t at = 0;
        hy_cleanup_ref PyObject *row = make_object(u, &at, r->next);

        if (!row)
            return PyErr_Occurred() ? -1 : -EBADMSG;
        if (PyList_Append(list, row) < 0)
            return -1;
    }
    return count;
}

/* ---- columns ------------------------------------------------------------------------- */

void *hy_grow_bytearray(void *list, uint32_t column, size_t n)
{
    while (PyList_Size(list) <= (Py_ssize_t)column) {
        hy_cleanup_ref PyObject *array = PyByteArray_FromStringAndSize(NULL, 0);

        if (!array || PyList_Append(list, array) < 0)
            return NULL;
    }
    PyObject *array = PyList_GetItem(list, (Py_ssize_t)column);

    return PyByteArray_Resize(array, (Py_ssize_t)n) < 0 ? NULL : PyByteArray_AsString(array);
}

/* The bytes of the offsets, or None. */
static PyObject *ends_of(const struct hy_buf *ends, bool has)
{
    if (!has)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)hy_buf_bytes(ends), (Py_ssize_t)ends->len);
}

PyObject *hy_gathered_columns(const struct hy_gathered *g, PyObject *arrays)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < g->count; i++) {
        const struct hy_gathered_column *c = &g->columns[i];
        hy_cleanup_ref PyObject *column = NULL;

        if (hy_grow_bytearray(arrays, i, c->values_n))
            column = Py_BuildValue("sNONN", hy_dtype_name(c->like.dtype), hy_shape_tuple(&c->like, false, 0),
                                   PyList_GetItem(arrays, (Py_ssize_t)i),
                                   ends_of(&c->value_ends, hy_dtype_size(c->like.dtype) == 0),
                                   ends_of(&c->row_ends, c->like.is_ragged));
        if (!column || PyList_Append(list, column) < 0)
            Py_CLEAR(list);
    }
    return list;
}
