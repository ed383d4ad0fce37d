/* SPDX-License-Identifier: Apache-2.0 */
#include "column_values.h"

#include <stdlib.h>

#include "base/buf.h"
#include "base/mem.h"

#define COPY_MAX (64u << 10) /* bytes: smaller values are copied */
#define POOLED_MAX (4u << 20) /* bytes: larger buffers are freed, since they may never be needed again */
#define POOL_SIZE 16

struct hy_buffer_pool {
    size_t users, count;
    struct hy_buf list[POOL_SIZE];
};

struct values {
    PyObject object;
    struct hy_buffer_pool *pool;
    struct hy_buf bytes;
};

/* ---- the pool --------------------------------------------------------------------------- */

struct hy_buffer_pool *hy_buffer_pool_new(void)
{
    struct hy_buffer_pool *s = hy_calloc(1, sizeof *s);

    if (s)
        s->users = 1;
    return s;
}

void hy_buffer_pool_unref(struct hy_buffer_pool *s)
{
    if (!s || --s->users)
        return;
    for (size_t i = 0; i < s->count; i++)
        hy_buf_done(&s->list[i]);
    free(s);
}

static void return_to_pool(struct hy_buffer_pool *s, struct hy_buf *b)
{
    if (s->count == POOL_SIZE || b->len > POOLED_MAX) {
        hy_buf_done(b);
        return;
    }
    hy_buf_clear(b);
    s->list[s->count++] = *b;
}

static struct hy_buf take_from_pool(struct hy_buffer_pool *s, size_t max)
{
    struct hy_buf b;

    hy_buf_init(&b, max);
    if (s->count)
        b = s->list[--s->count];
    b.max = max;
    return b;
}

/* ---- the object ------------------------------------------------------------------------- */

PyObject *hy_py_column_values(const struct hy_py_state *state, struct hy_buffer_pool *s, struct hy_buf *b)
{
    PyTypeObject *type = (PyTypeObject *)state->values_type;
    PyObject *self;

    if (b->len < COPY_MAX)
        return PyBytes_FromStringAndSize((const char *)hy_buf_bytes(b), (Py_ssize_t)b->len);
    self = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    ((struct values *)self)->bytes = *b;
    ((struct values *)self)->pool = s;
    s->users++;
    *b = take_from_pool(s, b->max);
    return self;
}

static int values_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    struct hy_buf *b = &((struct values *)self)->bytes;

    return PyBuffer_FillInfo(view, self, (void *)(uintptr_t)hy_buf_bytes(b), (Py_ssize_t)b->len, 1, flags);
}

static Py_ssize_t values_length(PyObject *self)
{
    return (Py_ssize_t)((struct values *)self)->bytes.len;
}

static void values_dealloc(PyObject *self)
{
    struct values *v = (struct values *)self;
    PyTypeObject *type = Py_TYPE(self);

    return_to_pool(v->pool, &v->bytes);
    hy_buffer_pool_unref(v->pool);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

PyObject *hy_py_values_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_bf_getbuffer, values_getbuffer},
        {Py_sq_length, values_length},
        {Py_tp_dealloc, values_dealloc},
        {Py_tp_doc, (void *)"The bytes of a column, by the buffer protocol."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "hopyard._hopyard.Values",
        .basicsize = sizeof(struct values),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };

    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
