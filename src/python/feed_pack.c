/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows to columns. The first row says what the shape is; those that follow are
 * added to the same columns as long as they have it. A list or array that is
 * longer or shorter than those before makes its column ragged, and goes on.
 *
 * Types are taken exactly: what is a subclass of something comes back as what it
 * was, or not at all. What fits nowhere is pickled, many rows at once.
 */
#include "feed.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define BATCH_BYTES (1u << 20) /* of values, when there is more to come */
#define FEW 8                  /* rows of one shape: not worth a batch where shapes change that often */
#define PICKLED 256            /* rows at once */
#define MESSAGE_REST 1024u     /* what a message has besides a pickle */

/* An answer of what follows: the row is as it should be, it is not, or an exception is set. */
enum { WRONG = -1, DIFFERS = 0, FITS = 1 };

/* ---- memory ------------------------------------------------------------------------- */

static void builder_init(struct hy_builder *b)
{
    *b = (struct hy_builder){0};
    hy_buf_init(&b->values, SIZE_MAX);
    hy_buf_init(&b->value_ends, SIZE_MAX);
    hy_buf_init(&b->row_ends, SIZE_MAX);
}

/* Forgets the shape. */
static void forget(struct hy_packer *p)
{
    for (size_t i = 0; i < p->builders_count; i++) {
        hy_buf_done(&p->builders[i].values);
        hy_buf_done(&p->builders[i].value_ends);
        hy_buf_done(&p->builders[i].row_ends);
    }
    for (size_t i = 0; i < p->keys_count; i++)
        Py_XDECREF(p->keys[i]);
    p->builders_count = p->keys_count = 0;
    p->shape.count = p->shape.columns = 0;
    p->rows = 0;
}

void hy_packer_done(struct hy_packer *p)
{
    forget(p);
    hy_shape_done(&p->shape);
    hy_buf_done(&p->text);
    free(p->keys);
    free(p->builders);
    free(p->columns);
    Py_CLEAR(p->array_type);
    Py_CLEAR(p->scalar_type);
    Py_CLEAR(p->row_type);
}

static int no_memory(void)
{
    PyErr_NoMemory();
    return WRONG;
}

/* ---- arrays ------------------------------------------------------------------------- */

/* Nobody has an array who has not imported NumPy. */
static int find_types(struct hy_packer *p)
{
    PyObject *modules = PyImport_GetModuleDict(), *numpy = PyDict_GetItemString(modules, "numpy");

    if (p->array_type || !numpy)
        return 0;
    p->array_type = PyObject_GetAttrString(numpy, "ndarray");
    p->scalar_type = PyObject_GetAttrString(numpy, "generic");
    return p->array_type && p->scalar_type ? 0 : -1;
}

static bool is_array(const struct hy_packer *p, PyObject *o)
{
    return (PyObject *)Py_TYPE(o) == p->array_type;
}

static bool is_scalar(const struct hy_packer *p, PyObject *o)
{
    return p->scalar_type && PyType_IsSubtype(Py_TYPE(o), (PyTypeObject *)p->scalar_type);
}

/* Of numbers as this machine has them; 0 for any other. */
static enum hy_dtype dtype_of(const Py_buffer *view)
{
    static const enum hy_dtype whole[2][9] = {
        {0, HY_DTYPE_UINT8, HY_DTYPE_UINT16, 0, HY_DTYPE_UINT32, 0, 0, 0, HY_DTYPE_UINT64},
        {0, HY_DTYPE_INT8, HY_DTYPE_INT16, 0, HY_DTYPE_INT32, 0, 0, 0, HY_DTYPE_INT64},
    };
    const char *format = view->format ? view->format : "B";

    if (format[0] == '=' || format[0] == '<' || format[0] == '@')
        format++;
    if (!format[0] || format[1] || view->itemsize < 1 || view->itemsize > 8)
        return 0;
    switch (format[0]) {
    case '?':
        return HY_DTYPE_BOOL;
    case 'e':
        return HY_DTYPE_FLOAT16;
    case 'f':
        return HY_DTYPE_FLOAT32;
    case 'd':
        return HY_DTYPE_FLOAT64;
    default:
        return strchr("bhilq", format[0])   ? whole[1][view->itemsize]
               : strchr("BHILQ", format[0]) ? whole[0][view->itemsize]
                                            : 0;
    }
}

/* What has no buffer, or no type of ours, is none. */
static int view_of(const struct hy_packer *p, PyObject *o, Py_buffer *view, enum hy_dtype *ret)
{
    if (!is_array(p, o) && !is_scalar(p, o))
        return DIFFERS;
    if (PyObject_GetBuffer(o, view, PyBUF_FULL_RO) < 0) {
        PyErr_Clear(); /* dates, for one */
        return DIFFERS;
    }
    *ret = dtype_of(view);
    if (*ret && view->ndim <= HY_BATCH_DIMS && (view->ndim > 0) == is_array(p, o))
        return FITS;
    PyBuffer_Release(view);
    return DIFFERS;
}

/* ---- shapes: what the first row is ---------------------------------------------------- */

static char value_of(PyObject *o)
{
    return PyFloat_CheckExact(o)     ? 'f'
           : PyLong_CheckExact(o)    ? 'i'
           : PyBool_Check(o)         ? 'b'
           : PyUnicode_CheckExact(o) ? 's'
           : PyBytes_CheckExact(o)   ? 'y'
                                     : '\0';
}

static enum hy_dtype dtype_of_value(char value)
{
    return value == 'f'   ? HY_DTYPE_FLOAT64
           : value == 'i' ? HY_DTYPE_INT64
           : value == 'b' ? HY_DTYPE_BOOL
           : value == 's' ? HY_DTYPE_STR
                          : HY_DTYPE_BYTES;
}

/* Whether all within are values of one type, in lists of the same lengths. */
static bool is_uniform(PyObject *list, const struct hy_batch_column *c, unsigned depth, char element)
{
    const Py_ssize_t n = PyList_Size(list);

    if ((uint64_t)n != c->shape[depth])
        return false;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyList_GetItem(list, i);
        const bool is_list = PyList_CheckExact(o);

        if (depth + 1 < c->dims ? !is_list || !is_uniform(o, c, depth + 1, element) : value_of(o) != element)
            return false;
    }
    return true;
}

/* Is it a list of values, maybe nested? Then its shape is the column's. */
static bool is_list_of_values(PyObject *list, struct hy_batch_column *c, char *ret_element)
{
    PyObject *o = list;

    c->dims = 0;
    while (PyList_CheckExact(o)) {
        if (c->dims == HY_BATCH_DIMS || PyList_Size(o) == 0)
            return false;
        c->shape[c->dims++] = (uint64_t)PyList_Size(o);
        o = PyList_GetItem(o, 0);
    }
    *ret_element = value_of(o);
    return *ret_element && is_uniform(list, c, 0, *ret_element);
}

/* Room for one more node, and its builder if it is a leaf. */
static int make_room(struct hy_packer *p)
{
    const size_t nodes = p->shape.count + 1, columns = p->shape.columns + 1u;
    PyObject **keys = hy_reallocarray(p->keys, nodes, sizeof *keys);
    struct hy_builder *builders;
    struct hy_batch_column *list;

    if (!keys)
        return no_memory();
    p->keys = keys;
    builders = hy_reallocarray(p->builders, columns, sizeof *builders);
    if (!builders)
        return no_memory();
    p->builders = builders;
    list = hy_reallocarray(p->columns, columns, sizeof *list);
    if (!list)
        return no_memory();
    p->columns = list;
    return FITS;
}

/* A new node behind the others. NULL with an exception set, or without one when there are too many. */
static struct hy_shape_node *add_node(struct hy_packer *p, char kind)
{
    struct hy_shape_node *n;

    if (p->shape.count >= HY_SHAPE_NODES_MAX / 2 || p->shape.columns >= HY_BATCH_COLUMNS_MAX || make_room(p) < 0)
        return NULL;
    n = hy_shape_add(&p->shape, kind);
    if (!n)
        return PyErr_NoMemory(), NULL;
    p->keys[p->keys_count++] = NULL;
    if (p->shape.columns > p->builders_count)
        builder_init(&p->builders[p->builders_count++]);
    return n;
}

static int missing(void)
{
    return PyErr_Occurred() ? WRONG : DIFFERS;
}

/* The leaf's column gets its type, and ends that begin with 0. */
static int add_leaf(struct hy_packer *p, char kind, char element, const struct hy_batch_column *c)
{
    struct hy_shape_node *n = add_node(p, kind);
    struct hy_builder *b;

    if (!n)
        return missing();
    n->element = element;
    b = &p->builders[n->column];
    b->column = *c;
    if (hy_column_each(c, &b->each) < 0)
        return DIFFERS;
    return hy_buf_append(&b->value_ends, &(int64_t){0}, sizeof(int64_t)) < 0 ? no_memory() : FITS;
}

static int describe(struct hy_packer *p, PyObject *o, PyObject *key, unsigned depth);

/* The one that is described next is under a key; its text lasts as long as the key. */
static int set_key(struct hy_packer *p, size_t node, PyObject *key)
{
    Py_ssize_t n;
    const char *text = PyUnicode_CheckExact(key) ? PyUnicode_AsUTF8AndSize(key, &n) : NULL;

    if (!text) {
        PyErr_Clear();
        return DIFFERS;
    }
    p->shape.nodes[node].key = text;
    p->shape.nodes[node].key_n = (size_t)n;
    p->keys[node] = Py_NewRef(key);
    return FITS;
}

static int describe_sequence(struct hy_packer *p, PyObject *o, char kind, PyObject *fields, unsigned depth)
{
    const Py_ssize_t n = PySequence_Size(o);
    struct hy_shape_node *node = n >= 0 && n <= (Py_ssize_t)HY_BATCH_COLUMNS_MAX ? add_node(p, kind) : NULL;
    int rc = FITS;

    if (!node)
        return missing();
    node->count = (uint32_t)n;
    for (Py_ssize_t i = 0; i < n && rc == FITS; i++) {
        PyObject *item = PyList_CheckExact(o) ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i);

        rc = describe(p, item, fields ? PyList_GetItem(fields, i) : NULL, depth + 1);
    }
    return rc;
}

static int describe_dict(struct hy_packer *p, PyObject *o, unsigned depth)
{
    struct hy_shape_node *node = PyDict_Size(o) <= (Py_ssize_t)HY_BATCH_COLUMNS_MAX ? add_node(p, '{') : NULL;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    int rc = FITS;

    if (!node)
        return missing();
    node->count = (uint32_t)PyDict_Size(o);
    while (rc == FITS && PyDict_Next(o, &at, &key, &value))
        rc = describe(p, value, key, depth + 1);
    return rc;
}

/* The fields of a pyspark.sql.Row: a new reference to a list of them; NULL when it is none. */
static PyObject *fields_of(struct hy_packer *p, PyObject *o)
{
    PyObject *fields;

    if (!p->row_type) {
        hy_cleanup_ref PyObject *module = PyObject_GetAttrString((PyObject *)Py_TYPE(o), "__module__");
        hy_cleanup_ref PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(o), "__name__");

        PyErr_Clear();
        if (!module || !name || !PyUnicode_Check(module) || !PyUnicode_Check(name) ||
            PyUnicode_CompareWithASCIIString(module, "pyspark.sql.types") != 0 ||
            PyUnicode_CompareWithASCIIString(name, "Row") != 0)
            return NULL;
        p->row_type = Py_NewRef((PyObject *)Py_TYPE(o));
    }
    if ((PyObject *)Py_TYPE(o) != p->row_type)
        return NULL;
    fields = PyObject_GetAttrString(o, "__fields__");
    PyErr_Clear(); /* a Row of names has none */
    if (fields && PyList_CheckExact(fields) && PyList_Size(fields) == PyTuple_Size(o))
        return fields;
    Py_XDECREF(fields);
    return NULL;
}

static int describe_row(struct hy_packer *p, PyObject *o, unsigned depth)
{
    hy_cleanup_ref PyObject *fields = fields_of(p, o);
    const size_t self = p->shape.count;
    int rc = fields ? describe_sequence(p, o, '<', fields, depth) : DIFFERS;

    if (rc == FITS && !p->keys[self])
        p->keys[self] = Py_NewRef(fields);
    return rc;
}

static int describe_array(struct hy_packer *p, PyObject *o)
{
    struct hy_batch_column c = {0};
    Py_buffer view;
    int rc = view_of(p, o, &view, &c.dtype);

    if (rc != FITS)
        return rc;
    c.dims = (unsigned)view.ndim;
    for (unsigned i = 0; i < c.dims; i++)
        c.shape[i] = (uint64_t)view.shape[i];
    PyBuffer_Release(&view);
    return add_leaf(p, 'a', 0, &c);
}

static int describe_list(struct hy_packer *p, PyObject *o, unsigned depth)
{
    struct hy_batch_column c = {0};
    char element;

    if (!is_list_of_values(o, &c, &element))
        return PyList_Size(o) ? describe_sequence(p, o, '[', NULL, depth) : DIFFERS;
    c.dtype = dtype_of_value(element);
    return add_leaf(p, 'l', element, &c);
}

/* What it is, and all within. DIFFERS: nothing that has a shape. */
static int describe(struct hy_packer *p, PyObject *o, PyObject *key, unsigned depth)
{
    const char value = value_of(o);
    const size_t self = p->shape.count;
    int rc;

    if (depth >= HY_SHAPE_DEPTH_MAX)
        return DIFFERS;
    if (value)
        rc = add_leaf(p, value, 0, &(struct hy_batch_column){.dtype = dtype_of_value(value)});
    else if (PyList_CheckExact(o))
        rc = describe_list(p, o, depth);
    else if (PyTuple_CheckExact(o))
        rc = describe_sequence(p, o, '(', NULL, depth);
    else if (PyDict_CheckExact(o))
        rc = describe_dict(p, o, depth);
    else if (PyTuple_Check(o))
        rc = key ? DIFFERS : describe_row(p, o, depth); /* a node has a key or fields */
    else
        rc = describe_array(p, o);
    return rc == FITS && key ? set_key(p, self, key) : rc;
}

/* ---- values -------------------------------------------------------------------------- */

static int add_double(struct hy_builder *b, PyObject *o)
{
    double *room;

    if (!PyFloat_CheckExact(o))
        return DIFFERS;
    room = (double *)(void *)hy_buf_reserve(&b->values, sizeof *room);
    if (!room)
        return no_memory();
    *room = PyFloat_AsDouble(o);
    hy_buf_added(&b->values, sizeof *room);
    return FITS;
}

static int add_whole(struct hy_builder *b, PyObject *o)
{
    long long value;
    int overflow;

    if (!PyLong_CheckExact(o))
        return DIFFERS;
    value = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (overflow)
        return DIFFERS;
    return hy_buf_append(&b->values, &value, sizeof value) < 0 ? no_memory() : FITS;
}

static int add_bool(struct hy_builder *b, PyObject *o)
{
    if (o != Py_True && o != Py_False)
        return DIFFERS;
    return hy_buf_append(&b->values, &(char){o == Py_True}, 1) < 0 ? no_memory() : FITS;
}

static int add_run(struct hy_builder *b, const char *bytes, Py_ssize_t n)
{
    if (hy_buf_append(&b->values, bytes, (size_t)n) < 0 ||
        hy_buf_append(&b->value_ends, &(int64_t){(int64_t)b->values.len}, sizeof(int64_t)) < 0)
        return no_memory();
    return FITS;
}

static int add_text(struct hy_builder *b, PyObject *o)
{
    const char *text;
    Py_ssize_t n;

    if (!PyUnicode_CheckExact(o))
        return DIFFERS;
    text = PyUnicode_AsUTF8AndSize(o, &n);
    if (!text) {
        PyErr_Clear(); /* half of a surrogate pair */
        return DIFFERS;
    }
    return add_run(b, text, n);
}

static int add_bytes(struct hy_builder *b, PyObject *o)
{
    return PyBytes_CheckExact(o) ? add_run(b, PyBytes_AsString(o), PyBytes_Size(o)) : DIFFERS;
}

static int add_value(struct hy_builder *b, char kind, PyObject *o)
{
    switch (kind) {
    case 'f':
        return add_double(b, o);
    case 'i':
        return add_whole(b, o);
    case 'b':
        return add_bool(b, o);
    case 's':
        return add_text(b, o);
    default:
        return add_bytes(b, o);
    }
}

/* ---- lists and arrays ------------------------------------------------------------------ */

/* From the row in hand on it has rows of any length; those before have had the same. */
static int make_ragged(struct hy_builder *b, uint32_t rows)
{
    struct hy_batch_column *c = &b->column;
    int64_t *room = (int64_t *)(void *)hy_buf_reserve(&b->row_ends, (rows + 1ull) * sizeof *room);

    if (!room)
        return no_memory();
    for (uint32_t i = 0; i <= rows; i++)
        room[i] = (int64_t)(i * c->shape[0]);
    hy_buf_added(&b->row_ends, (rows + 1ull) * sizeof *room);
    c->is_ragged = true;
    c->items = (uint64_t)rows * c->shape[0];
    c->dims--;
    memmove(c->shape, c->shape + 1, c->dims * sizeof c->shape[0]);
    (void)hy_column_each(c, &b->each); /* a part of a product that was none too large */
    return FITS;
}

/* Its first dimension is n in this row. */
static int begin_row(struct hy_builder *b, uint32_t rows, Py_ssize_t n)
{
    int rc = FITS;

    if (!b->column.is_ragged && b->column.shape[0] != (uint64_t)n)
        rc = make_ragged(b, rows);
    if (rc != FITS || !b->column.is_ragged)
        return rc;
    b->column.items += (uint64_t)n;
    return hy_buf_append(&b->row_ends, &(int64_t){(int64_t)b->column.items}, sizeof(int64_t)) < 0 ? no_memory() : FITS;
}

static int add_doubles(struct hy_builder *b, PyObject *list, Py_ssize_t n)
{
    double *room = (double *)(void *)hy_buf_reserve(&b->values, (size_t)n * sizeof *room);

    if (!room)
        return no_memory();
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyList_GetItem(list, i);

        if (!PyFloat_CheckExact(o))
            return DIFFERS;
        room[i] = PyFloat_AsDouble(o);
    }
    hy_buf_added(&b->values, (size_t)n * sizeof *room);
    return FITS;
}

/* `shape` is that of what is within each. */
static int add_inside(struct hy_builder *b, PyObject *list, Py_ssize_t n, char element, const uint64_t *shape,
                      unsigned dims)
{
    int rc = FITS;

    if (dims == 0 && element == 'f')
        return add_doubles(b, list, n);
    for (Py_ssize_t i = 0; i < n && rc == FITS; i++) {
        PyObject *o = PyList_GetItem(list, i);

        if (dims == 0)
            rc = add_value(b, element, o);
        else if (PyList_CheckExact(o) && (uint64_t)PyList_Size(o) == shape[0])
            rc = add_inside(b, o, PyList_Size(o), element, shape + 1, dims - 1);
        else
            rc = DIFFERS;
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
        return DIFFERS;
    n = PyList_Size(o);
    rc = begin_row(b, p->rows, n);
    skipped = c->is_ragged ? 0 : 1;
    return rc == FITS ? add_inside(b, o, n, element, c->shape + skipped, c->dims - skipped) : rc;
}

static bool has_shape(const struct hy_batch_column *c, const Py_buffer *view)
{
    const unsigned first = view->ndim > 0, skipped = first && !c->is_ragged; /* the first may be another */

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
        return no_memory();
    if (PyBuffer_IsContiguous(view, 'C'))
        memcpy(room, view->buf, (size_t)view->len);
    else if (PyBuffer_ToContiguous(room, view, view->len, 'C') < 0)
        return WRONG;
    hy_buf_added(&b->values, (size_t)view->len);
    return FITS;
}

static int add_array(struct hy_packer *p, struct hy_builder *b, PyObject *o)
{
    enum hy_dtype dtype;
    Py_buffer view;
    int rc = view_of(p, o, &view, &dtype);

    if (rc != FITS)
        return rc;
    rc = dtype == b->column.dtype && has_shape(&b->column, &view) ? FITS : DIFFERS;
    if (rc == FITS && view.ndim)
        rc = begin_row(b, p->rows, view.shape[0]);
    if (rc == FITS)
        rc = copy_view(b, &view);
    PyBuffer_Release(&view);
    return rc;
}

/* ---- rows ---------------------------------------------------------------------------- */

static int add(struct hy_packer *p, size_t *at, PyObject *o);

static int add_sequence(struct hy_packer *p, size_t *at, PyObject *o, uint32_t count)
{
    const bool is_list = PyList_CheckExact(o);
    int rc = (is_list ? PyList_Size(o) : PyTuple_Size(o)) == (Py_ssize_t)count ? FITS : DIFFERS;

    for (uint32_t i = 0; i < count && rc == FITS; i++)
        rc = add(p, at, is_list ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i));
    return rc;
}

static int add_dict(struct hy_packer *p, size_t *at, PyObject *o, uint32_t count)
{
    PyObject *key, *value;
    Py_ssize_t next = 0;
    int rc = PyDict_Size(o) == (Py_ssize_t)count ? FITS : DIFFERS;

    while (rc == FITS && PyDict_Next(o, &next, &key, &value)) {
        PyObject *wanted = p->keys[*at];

        if (key != wanted && (!PyUnicode_CheckExact(key) || PyUnicode_Compare(key, wanted) != 0))
            return DIFFERS;
        rc = add(p, at, value);
    }
    return rc;
}

static int add_row(struct hy_packer *p, size_t *at, PyObject *o, const struct hy_shape_node *n)
{
    hy_cleanup_ref PyObject *fields = PyTuple_Check(o) ? fields_of(p, o) : NULL;
    PyObject *wanted = p->keys[n - p->shape.nodes];
    int same = fields ? fields == wanted ? 1 : PyObject_RichCompareBool(fields, wanted, Py_EQ) : 0;

    return same > 0 ? add_sequence(p, at, o, n->count) : same < 0 ? WRONG : DIFFERS;
}

/* Adds what the node at *at stands for, and all within. */
static int add(struct hy_packer *p, size_t *at, PyObject *o)
{
    const struct hy_shape_node *n = &p->shape.nodes[(*at)++];

    switch (n->kind) {
    case '(':
        return PyTuple_CheckExact(o) ? add_sequence(p, at, o, n->count) : DIFFERS;
    case '[':
        return PyList_CheckExact(o) ? add_sequence(p, at, o, n->count) : DIFFERS;
    case '{':
        return PyDict_CheckExact(o) ? add_dict(p, at, o, n->count) : DIFFERS;
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

/* Takes back what a row has added that is not to be. */
static void undo_row(struct hy_packer *p)
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
    int rc = p->shape.count && p->rows < HY_BATCH_ROWS_MAX ? add(p, &at, row) : DIFFERS;

    if (rc == FITS)
        p->rows++;
    else if (p->shape.count)
        undo_row(p);
    return rc;
}

/* The first row of a shape. */
static int try_first(struct hy_packer *p, PyObject *row)
{
    int rc;

    forget(p);
    if (find_types(p) < 0)
        return WRONG;
    rc = describe(p, row, NULL, 0);
    if (rc == FITS)
        rc = try_row(p, row);
    if (rc != FITS)
        forget(p);
    return rc;
}

/* ---- batches ------------------------------------------------------------------------- */

static size_t bytes_in(const struct hy_packer *p)
{
    size_t n = 0;

    for (size_t i = 0; i < p->builders_count; i++)
        n += p->builders[i].values.len + p->builders[i].value_ends.len + p->builders[i].row_ends.len;
    return n;
}

/* Rows are forgotten, and the shape is kept; what became ragged stays so. */
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

static int flush(struct hy_packer *p, const struct hy_packing *how)
{
    struct hy_batch batch = {.rows = p->rows, .count = p->shape.columns, .columns = p->columns};
    int rc;

    if (p->rows == 0)
        return 1;
    hy_buf_clear(&p->text);
    p->text.max = SIZE_MAX;
    if (hy_shape_write(&p->shape, &p->text) < 0)
        return no_memory();
    batch.shape = (const char *)hy_buf_bytes(&p->text);
    batch.shape_n = p->text.len;
    for (size_t i = 0; i < p->builders_count; i++) {
        const struct hy_builder *b = &p->builders[i];

        p->columns[i] = b->column;
        p->columns[i].values = hy_buf_bytes(&b->values);
        p->columns[i].values_n = b->values.len;
        p->columns[i].value_ends = (const int64_t *)(const void *)hy_buf_bytes(&b->value_ends);
        p->columns[i].row_ends = (const int64_t *)(const void *)hy_buf_bytes(&b->row_ends);
    }
    rc = how->send(how->context, &batch);
    clear_rows(p);
    return rc;
}

/* What pickle cannot do, cloudpickle can: functions, and classes of the program itself. */
static PyObject *pickled(PyObject *rows)
{
    hy_cleanup_ref PyObject *pickle = PyImport_ImportModule("pickle"), *cloudpickle = NULL;
    PyObject *bytes = pickle ? PyObject_CallMethod(pickle, "dumps", "Oi", rows, 5) : NULL;

    if (bytes || !PyErr_ExceptionMatches(PyExc_Exception))
        return bytes;
    PyErr_Clear();
    cloudpickle = PyImport_ImportModule("cloudpickle");
    return cloudpickle ? PyObject_CallMethod(cloudpickle, "dumps", "Oi", rows, 5) : NULL;
}

/* As one batch, or as two halves where it would be too large. */
static int send_pickled(PyObject *list, Py_ssize_t from, Py_ssize_t to, const struct hy_packing *how)
{
    hy_cleanup_ref PyObject *rows = PyList_GetSlice(list, from, to), *bytes = rows ? pickled(rows) : NULL;
    struct hy_batch_column column = {.dtype = HY_DTYPE_PICKLE};
    struct hy_batch batch = {.rows = (uint32_t)(to - from), .count = 1, .shape = "*", .shape_n = 1, .columns = &column};
    int rc;

    if (!bytes || !PyBytes_Check(bytes))
        return -1;
    column.values = PyBytes_AsString(bytes);
    column.values_n = (size_t)PyBytes_Size(bytes);
    if (column.values_n + MESSAGE_REST <= how->most || to - from == 1)
        return how->send(how->context, &batch);
    rc = send_pickled(list, from, from + (to - from) / 2, how);
    return rc == 1 ? send_pickled(list, from + (to - from) / 2, to, how) : rc;
}

/* A row that does not go on as those before. *at is where it is, then the next to look at. */
static int change(struct hy_packer *p, PyObject *list, Py_ssize_t *at, Py_ssize_t to, const struct hy_packing *how)
{
    const bool is_few = p->rows > 0 && p->rows < FEW;
    Py_ssize_t from = *at - (is_few ? (Py_ssize_t)p->rows : 0), end;
    int rc = is_few ? 1 : flush(p, how);

    if (rc != 1)
        return rc;
    rc = is_few ? DIFFERS : try_first(p, PyList_GetItem(list, *at));
    if (rc == FITS)
        (*at)++;
    if (rc != DIFFERS)
        return rc;
    forget(p);
    end = to - from < PICKLED ? to : from + PICKLED;
    *at = end;
    return send_pickled(list, from, end, how);
}

int hy_pack_rows(struct hy_packer *p, PyObject *list, Py_ssize_t from, Py_ssize_t to, const struct hy_packing *how)
{
    const size_t limit = how->most / 4 < BATCH_BYTES ? how->most / 4 : BATCH_BYTES;
    int rc = 1;

    clear_rows(p); /* of one that was given up */
    while (rc == 1 && from < to && from < PyList_Size(list)) {
        rc = try_row(p, PyList_GetItem(list, from));
        if (rc == FITS)
            from++;
        else if (rc == DIFFERS)
            rc = change(p, list, &from, to, how);
        if (rc == 1 && bytes_in(p) >= limit)
            rc = flush(p, how);
    }
    return rc == 1 ? flush(p, how) : rc;
}
