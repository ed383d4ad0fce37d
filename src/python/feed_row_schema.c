/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema of a Python row, with a typed column for each leaf. Types must match
 * exactly, since an instance of a subclass would not come back as such.
 */
#include "feed_row_schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* ---- memory ------------------------------------------------------------------------- */

static void builder_init(struct hy_builder *b)
{
    *b = (struct hy_builder){0};
    hy_buf_init(&b->values, SIZE_MAX);
    hy_buf_init(&b->value_ends, SIZE_MAX);
    hy_buf_init(&b->row_ends, SIZE_MAX);
}

void hy_packer_reset(struct hy_packer *p)
{
    for (size_t i = 0; i < p->builders_count; i++) {
        hy_buf_done(&p->builders[i].values);
        hy_buf_done(&p->builders[i].value_ends);
        hy_buf_done(&p->builders[i].row_ends);
    }
    for (size_t i = 0; i < p->keys_count; i++)
        Py_XDECREF(p->keys[i]);
    p->builders_count = p->keys_count = 0;
    p->schema.count = p->schema.columns = 0;
    p->rows = 0;
}

void hy_packer_done(struct hy_packer *p)
{
    hy_packer_reset(p);
    hy_feed_schema_done(&p->schema);
    hy_buf_done(&p->text);
    free(p->keys);
    free(p->builders);
    free(p->columns);
    Py_CLEAR(p->array_type);
    Py_CLEAR(p->scalar_type);
    Py_CLEAR(p->row_type);
}

static int out_of_memory(void)
{
    PyErr_NoMemory();
    return HY_ROW_ERROR;
}

/* ---- arrays ------------------------------------------------------------------------- */

/* Without an imported NumPy there are no arrays. */
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

/* Of numbers in native byte order; 0 for any other. */
static enum hy_dtype dtype_of(const Py_buffer *view)
{
    static const enum hy_dtype integers[2][9] = {
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
        return strchr("bhilq", format[0])   ? integers[1][view->itemsize]
               : strchr("BHILQ", format[0]) ? integers[0][view->itemsize]
                                            : 0;
    }
}

int hy_packer_view(const struct hy_packer *p, PyObject *o, Py_buffer *view, enum hy_dtype *ret)
{
    if (!is_array(p, o) && !is_scalar(p, o))
        return HY_ROW_DIFFERS;
    if (PyObject_GetBuffer(o, view, PyBUF_FULL_RO) < 0) {
        PyErr_Clear(); /* such as dates */
        return HY_ROW_DIFFERS;
    }
    *ret = dtype_of(view);
    if (*ret && view->ndim <= HY_BATCH_DIMS && (view->ndim > 0) == is_array(p, o))
        return HY_ROW_FITS;
    PyBuffer_Release(view);
    return HY_ROW_DIFFERS;
}

/* ---- the schema of the first row ------------------------------------------------------ */

static char kind_of_value(PyObject *o)
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

/* Whether all values have one type and all lists of a level the same length. */
static bool is_uniform(PyObject *list, const struct hy_batch_column *c, unsigned depth, char element)
{
    const Py_ssize_t n = PyList_Size(list);

    if ((uint64_t)n != c->shape[depth])
        return false;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyList_GetItem(list, i);
        const bool is_list = PyList_CheckExact(o);

        if (depth + 1 < c->dims ? !is_list || !is_uniform(o, c, depth + 1, element) : kind_of_value(o) != element)
            return false;
    }
    return true;
}

/* Whether it is a list of values, possibly nested; sets the shape of the column. */
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
    *ret_element = kind_of_value(o);
    return *ret_element && is_uniform(list, c, 0, *ret_element);
}

/* For one more node, which may be a column. */
static int reserve_node(struct hy_packer *p)
{
    if (hy_array_grow(p->keys, p->schema.count) < 0 || hy_array_grow(p->builders, p->schema.columns) < 0 ||
        hy_array_grow(p->columns, p->schema.columns) < 0)
        return out_of_memory();
    return HY_ROW_FITS;
}

/* Appends a node. NULL with an exception set, or without one over the limit. */
static struct hy_feed_schema_node *add_node(struct hy_packer *p, char kind)
{
    struct hy_feed_schema_node *n;

    if (p->schema.count >= HY_FEED_SCHEMA_NODES_MAX / 2 || p->schema.columns >= HY_BATCH_COLUMNS_MAX ||
        reserve_node(p) < 0)
        return NULL;
    n = hy_feed_schema_add(&p->schema, kind);
    if (!n)
        return PyErr_NoMemory(), NULL;
    p->keys[p->keys_count++] = NULL;
    if (p->schema.columns > p->builders_count)
        builder_init(&p->builders[p->builders_count++]);
    return n;
}

static int no_node(void)
{
    return PyErr_Occurred() ? HY_ROW_ERROR : HY_ROW_DIFFERS;
}

/* Adds a leaf and its column. */
static int add_leaf(struct hy_packer *p, char kind, char element, const struct hy_batch_column *c)
{
    struct hy_feed_schema_node *n = add_node(p, kind);
    struct hy_builder *b;

    if (!n)
        return no_node();
    n->element = element;
    b = &p->builders[n->column];
    b->column = *c;
    if (hy_batch_column_item_values(c, &b->each) < 0)
        return HY_ROW_DIFFERS;
    return hy_buf_append(&b->value_ends, &(int64_t){0}, sizeof(int64_t)) < 0 ? out_of_memory() : HY_ROW_FITS;
}

static int describe(struct hy_packer *p, PyObject *o, PyObject *key, unsigned depth);

/* The node keeps a reference to the key, which owns the text. */
static int set_key(struct hy_packer *p, size_t node, PyObject *key)
{
    Py_ssize_t n;
    const char *text = PyUnicode_CheckExact(key) ? PyUnicode_AsUTF8AndSize(key, &n) : NULL;

    if (!text) {
        PyErr_Clear();
        return HY_ROW_DIFFERS;
    }
    p->schema.nodes[node].key = text;
    p->schema.nodes[node].key_n = (size_t)n;
    p->keys[node] = Py_NewRef(key);
    return HY_ROW_FITS;
}

static int describe_sequence(struct hy_packer *p, PyObject *o, char kind, PyObject *fields, unsigned depth)
{
    const Py_ssize_t n = PySequence_Size(o);
    struct hy_feed_schema_node *node = n >= 0 && n <= (Py_ssize_t)HY_BATCH_COLUMNS_MAX ? add_node(p, kind) : NULL;
    int rc = HY_ROW_FITS;

    if (!node)
        return no_node();
    node->count = (uint32_t)n;
    for (Py_ssize_t i = 0; i < n && rc == HY_ROW_FITS; i++) {
        PyObject *item = PyList_CheckExact(o) ? PyList_GetItem(o, i) : PyTuple_GetItem(o, i);

        rc = describe(p, item, fields ? PyList_GetItem(fields, i) : NULL, depth + 1);
    }
    return rc;
}

static int describe_dict(struct hy_packer *p, PyObject *o, unsigned depth)
{
    struct hy_feed_schema_node *node = PyDict_Size(o) <= (Py_ssize_t)HY_BATCH_COLUMNS_MAX ? add_node(p, '{') : NULL;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    int rc = HY_ROW_FITS;

    if (!node)
        return no_node();
    node->count = (uint32_t)PyDict_Size(o);
    while (rc == HY_ROW_FITS && PyDict_Next(o, &at, &key, &value))
        rc = describe(p, value, key, depth + 1);
    return rc;
}

PyObject *hy_packer_row_fields(struct hy_packer *p, PyObject *o)
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
    PyErr_Clear(); /* a Row without field names has none */
    if (fields && PyList_CheckExact(fields) && PyList_Size(fields) == PyTuple_Size(o))
        return fields;
    Py_XDECREF(fields);
    return NULL;
}

static int describe_row(struct hy_packer *p, PyObject *o, unsigned depth)
{
    hy_cleanup_ref PyObject *fields = hy_packer_row_fields(p, o);
    const size_t self = p->schema.count;
    int rc = fields ? describe_sequence(p, o, '<', fields, depth) : HY_ROW_DIFFERS;

    if (rc == HY_ROW_FITS && !p->keys[self])
        p->keys[self] = Py_NewRef(fields);
    return rc;
}

static int describe_array(struct hy_packer *p, PyObject *o)
{
    struct hy_batch_column c = {0};
    Py_buffer view;
    int rc = hy_packer_view(p, o, &view, &c.dtype);

    if (rc != HY_ROW_FITS)
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
        return PyList_Size(o) ? describe_sequence(p, o, '[', NULL, depth) : HY_ROW_DIFFERS;
    c.dtype = dtype_of_value(element);
    return add_leaf(p, 'l', element, &c);
}

/* Adds the nodes of an object. HY_ROW_DIFFERS: it has no schema. */
static int describe(struct hy_packer *p, PyObject *o, PyObject *key, unsigned depth)
{
    const char value = kind_of_value(o);
    const size_t self = p->schema.count;
    int rc;

    if (depth >= HY_FEED_SCHEMA_DEPTH_MAX)
        return HY_ROW_DIFFERS;
    if (value)
        rc = add_leaf(p, value, 0, &(struct hy_batch_column){.dtype = dtype_of_value(value)});
    else if (PyList_CheckExact(o))
        rc = describe_list(p, o, depth);
    else if (PyTuple_CheckExact(o))
        rc = describe_sequence(p, o, '(', NULL, depth);
    else if (PyDict_CheckExact(o))
        rc = describe_dict(p, o, depth);
    else if (PyTuple_Check(o))
        rc = key ? HY_ROW_DIFFERS : describe_row(p, o, depth); /* keys[] holds a key or fields, not both */
    else
        rc = describe_array(p, o);
    return rc == HY_ROW_FITS && key ? set_key(p, self, key) : rc;
}

int hy_packer_set_schema(struct hy_packer *p, PyObject *row)
{
    hy_packer_reset(p);
    return find_types(p) < 0 ? HY_ROW_ERROR : describe(p, row, NULL, 0);
}
