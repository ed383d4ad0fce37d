/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Source: rows out of this process into one that trains. Results come back the
 * same way; those that come while a put waits are kept until they are asked for,
 * so that two full rings never wait for each other.
 *
 * Whatever waits does so without the GIL, and handlers of signals run every 100 ms. It waits for somebody who may be
 * busy for long, but not for ever: as long as its patience lasts.
 */
#include "feed_rows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "feed/feed.h"
#include "feed_wait.h"

#define SIZE_DEFAULT (16u << 20)
#define PIECE (1024u << 10) /* bytes of a batch of Arrow's that are sent at once: who reads them finds them in a cache */

struct source {
    PyObject object;
    struct hy_feed_source *source; /* NULL: closed, or the hub had enough before it was open */
    struct hy_packer packer;
    PyObject *name, *results; /* a list: of what has come */
    uint64_t sent;            /* bytes */
    double patience;          /* in seconds; less than none: without end */
    bool timed_out, is_gone;  /* it did not last; the process that takes the rows has ended */
    bool is_over, is_busy;
};

/* ---- states ---------------------------------------------------------------------------- */

static const struct hy_py_state *state_of(const struct source *s)
{
    return PyType_GetModuleState(Py_TYPE((PyObject *)(uintptr_t)s));
}

static int enter(struct source *s)
{
    if (s->is_busy || (!s->source && !s->is_over)) {
        PyErr_SetString(PyExc_ValueError, s->is_busy ? "another thread uses the source" : "the source is closed");
        return -1;
    }
    s->is_busy = true;
    return 0;
}

/* What hy_source_… has answered: 1 or more; 0 when the hub has had enough; -1 with an exception set. */
static int check(struct source *s, int rc)
{
    if (rc > 0)
        return rc;
    if (rc == -ESHUTDOWN) {
        s->is_over = true;
        return 0;
    }
    s->is_gone |= rc == -EPIPE;
    if (rc == -ENOMEM)
        PyErr_NoMemory();
    else if (rc == -EMSGSIZE)
        PyErr_Format(PyExc_ValueError, "a row is larger than a message of %zu bytes; give the source a larger size",
                     hy_feed_source_batch_max(s->source));
    else if (rc == -EPIPE)
        hy_py_error(state_of(s), "the process that takes the rows, at '%U', is gone", s->name);
    else
        hy_py_error(state_of(s), "cannot feed '%U': %s", s->name, strerror(-rc));
    return -1;
}

/* ---- results --------------------------------------------------------------------------- */

/* Takes all that is there. 0, or -1 with an exception set. */
static int take_results(struct source *s)
{
    struct hy_unpacker u = {0};
    struct hy_batch_cursor reading = {0};
    struct hy_batch b = {0};
    struct hy_ring_message m;
    Py_ssize_t rc;

    while ((rc = hy_feed_source_next(s->source, &m)) > 0) {
        rc = m.kind == HY_FEED_BATCH ? hy_batch_parse(m.bytes, m.n, &b) : -EBADMSG;
        if (rc == 0)
            rc = hy_batch_cursor_begin(&reading, &b);
        if (rc == 0)
            rc = hy_unpack_begin(&u, &reading);
        if (rc == 0)
            rc = hy_unpack_rows(&u, &reading, s->results, PY_SSIZE_T_MAX);
        hy_unpack_end(&u);
        hy_batch_cursor_end(&reading);
        hy_feed_source_release(s->source);
        if (rc < 0)
            break;
    }
    hy_batch_done(&b);
    if (rc < -1)
        hy_py_error(state_of(s), "results from '%U' make no sense", s->name);
    return rc < 0 ? -1 : 0;
}

/* Waits for an event: its bits, 0 when it took too long; as check() has it, with *ret_over set when that is 0. */
static int wait_once(struct source *s, size_t need, int timeout_ms, bool *ret_over)
{
    int rc;

    Py_BEGIN_ALLOW_THREADS
    rc = hy_feed_source_wait(s->source, need, timeout_ms);
    Py_END_ALLOW_THREADS
    *ret_over = rc == -ESHUTDOWN;
    if (rc < 0)
        return check(s, rc);
    if (rc & HY_FEED_SOURCE_RESULTS && take_results(s) < 0)
        return -1;
    return PyErr_CheckSignals() < 0 ? -1 : rc;
}

static int lose_patience(struct source *s)
{
    char seconds[32];

    s->timed_out = true;
    snprintf(seconds, sizeof seconds, "%g", s->patience);
    hy_py_error(state_of(s), "the process at '%U' has taken no rows, or given no results, for %s s; raise feed_timeout, or "
                "look at its log", s->name, seconds);
    return -1;
}

static int wait_for_room(struct source *s, size_t need)
{
    const int64_t end = hy_py_deadline(s->patience);
    bool is_over = false;
    int rc = 0, slice = 1;

    while (rc >= 0 && !is_over && !(rc & HY_FEED_SOURCE_SPACE) && slice > 0) {
        slice = hy_py_wait_ms(end);
        rc = wait_once(s, need, slice, &is_over);
    }
    if (rc >= 0 && !is_over && !(rc & HY_FEED_SOURCE_SPACE))
        return lose_patience(s);
    return is_over ? 0 : rc;
}

/* ---- rows ------------------------------------------------------------------------------ */

static int send_batch(void *context, const struct hy_batch *b)
{
    struct source *s = context;
    int rc;

    while ((rc = hy_feed_source_put(s->source, b)) == 0) {
        rc = wait_for_room(s, hy_feed_source_needed(s->source));
        if (rc <= 0)
            return rc;
    }
    if (rc > 0)
        s->sent += hy_feed_source_needed(s->source);
    return check(s, rc);
}

static PyObject *answer(struct source *s, int rc)
{
    s->is_busy = false;
    return rc < 0 ? NULL : PyBool_FromLong(rc > 0);
}

static PyObject *source_put(PyObject *self, PyObject *rows)
{
    struct source *s = (struct source *)self;
    hy_cleanup_ref PyObject *list = PyList_CheckExact(rows) ? Py_NewRef(rows) : PySequence_List(rows);
    struct hy_pack_sink how = {.send = send_batch, .context = s};

    if (!list || enter(s) < 0)
        return NULL;
    if (s->is_over)
        return answer(s, 0);
    how.most = hy_feed_source_batch_max(s->source);
    return answer(s, hy_pack_rows(&s->packer, list, 0, PyList_Size(list), &how));
}

static PyObject *source_put_pickle(PyObject *self, PyObject *pickle)
{
    struct source *s = (struct source *)self;
    struct hy_batch_column column = {.dtype = HY_DTYPE_PICKLE};
    const struct hy_batch b = {.count = 1, .schema = "*", .schema_n = 1, .columns = &column};
    Py_ssize_t n;
    char *bytes;

    if (PyBytes_AsStringAndSize(pickle, &bytes, &n) < 0 || enter(s) < 0)
        return NULL;
    if (s->is_over)
        return answer(s, 0);
    column.values = bytes;
    column.values_n = (size_t)n;
    return answer(s, send_batch(s, &b));
}

static PyObject *source_end_partition(PyObject *self, PyObject *ignored)
{
    struct source *s = (struct source *)self;
    int rc = 1;

    (void)ignored;
    if (enter(s) < 0)
        return NULL;
    if (s->is_over)
        return answer(s, 0);
    while (rc > 0 && (rc = hy_feed_source_put_end(s->source)) == 0) {
        rc = wait_for_room(s, hy_feed_source_needed(s->source));
        if (rc <= 0)
            return answer(s, rc);
    }
    return answer(s, check(s, rc));
}

/* ---- Arrow ----------------------------------------------------------------------------- */

/* Rows from *at on, as many as make a piece: *at is behind them then. As send_batch, or -Exxx below -1. */
static int put_piece(struct source *s, const struct ArrowSchema *schema, const struct ArrowArray *array,
                     const struct hy_buf *text, int64_t *at, int64_t *step)
{
    const int64_t rows = *step < array->length - *at ? *step : array->length - *at;
    const size_t most = hy_feed_source_batch_max(s->source) / 4 < PIECE ? hy_feed_source_batch_max(s->source) / 4 : PIECE;
    struct hy_arrow_batch a = {0};
    size_t n;
    int rc = hy_arrow_batch_view(schema, array, *at, (uint32_t)rows, &a);

    a.batch.schema = (const char *)hy_buf_bytes(text);
    a.batch.schema_n = text->len;
    if (rc == 0)
        rc = hy_batch_size(&a.batch, &n);
    if (rc == 0 && n > most && rows > 1) {
        *step = (rows + 1) / 2;
        rc = 1;
    } else if (rc == 0) {
        rc = send_batch(s, &a.batch);
        *at += rows;
    }
    hy_arrow_batch_done(&a);
    return rc;
}

static PyObject *answer_arrow(struct source *s, int rc)
{
    if (rc < -1 && rc != -ENOTSUP && rc != -ENOMEM)
        PyErr_SetString(PyExc_ValueError, "what Arrow gave makes no sense, or has too many columns");
    else if (rc == -ENOMEM)
        PyErr_NoMemory();
    if (rc != -ENOTSUP)
        return answer(s, rc);
    s->is_busy = false;
    return Py_NewRef(Py_None);
}

static PyObject *source_put_arrow(PyObject *self, PyObject *batch)
{
    hy_cleanup_ref PyObject *capsules = PyObject_CallMethod(batch, "__arrow_c_array__", NULL);
    struct source *s = (struct source *)self;
    const struct ArrowSchema *schema;
    const struct ArrowArray *array;
    struct hy_buf text;
    int64_t at = 0, step = HY_BATCH_ROWS_MAX;
    int rc = 1;

    if (!capsules || !PyTuple_Check(capsules) || PyTuple_Size(capsules) != 2) {
        if (capsules)
            PyErr_SetString(PyExc_TypeError, "__arrow_c_array__ gives two capsules");
        return NULL;
    }
    schema = PyCapsule_GetPointer(PyTuple_GetItem(capsules, 0), "arrow_schema");
    array = schema ? PyCapsule_GetPointer(PyTuple_GetItem(capsules, 1), "arrow_array") : NULL;
    if (!array || enter(s) < 0)
        return NULL;
    if (s->is_over)
        return answer(s, 0);
    hy_buf_init(&text, HY_BATCH_SCHEMA_MAX);
    if ((rc = hy_arrow_schema(schema, &text)) == 0)
        rc = 1;
    while (rc > 0 && at < array->length)
        rc = put_piece(s, schema, array, &text, &at, &step);
    hy_buf_done(&text);
    return answer_arrow(s, rc);
}

/* ---- waiting --------------------------------------------------------------------------- */

static PyObject *source_results(PyObject *self, PyObject *args)
{
    struct source *s = (struct source *)self;
    double timeout = -1;
    bool is_over = s->is_over;
    PyObject *list;
    int64_t end;
    int rc = 0;

    if (!PyArg_ParseTuple(args, "|d:results", &timeout) || enter(s) < 0)
        return NULL;
    end = hy_py_deadline(timeout < 0 ? s->patience : timeout);
    if (s->source && take_results(s) < 0)
        return answer(s, -1);
    while (rc >= 0 && !is_over && PyList_Size(s->results) == 0 && hy_py_wait_ms(end) != 0)
        rc = wait_once(s, 0, hy_py_wait_ms(end), &is_over);
    if (rc >= 0 && !is_over && timeout < 0 && PyList_Size(s->results) == 0)
        rc = lose_patience(s);
    list = rc < 0 ? NULL : PyList_New(0);
    if (list) {
        PyObject *taken = s->results;

        s->results = list;
        list = taken;
    }
    s->is_busy = false;
    if (list && is_over && PyList_Size(list) == 0) { /* nothing will come any more */
        Py_DECREF(list);
        return Py_NewRef(Py_None);
    }
    return list;
}

static PyObject *source_wait_until_taken(PyObject *self, PyObject *ignored)
{
    struct source *s = (struct source *)self;
    const int64_t end = hy_py_deadline(s->patience);
    int rc = 0;

    (void)ignored;
    if (enter(s) < 0)
        return NULL;
    while (!s->is_over && rc == 0) {
        const int slice = hy_py_wait_ms(end);

        Py_BEGIN_ALLOW_THREADS
        rc = hy_feed_source_wait_until_taken(s->source, slice);
        Py_END_ALLOW_THREADS
        if (rc == 0 && PyErr_CheckSignals() < 0)
            return answer(s, -1);
        if (rc == 0 && slice == 0)
            return answer(s, lose_patience(s));
        rc = rc < 0 ? check(s, rc) : rc;
    }
    return answer(s, rc < 0 ? -1 : !s->is_over);
}

/* ---- from birth to death ----------------------------------------------------------------- */

static PyObject *source_close(PyObject *self, PyObject *ignored)
{
    struct source *s = (struct source *)self;

    (void)ignored;
    if (s->is_busy) {
        PyErr_SetString(PyExc_ValueError, "another thread uses the source");
        return NULL;
    }
    hy_feed_source_close(hy_take(s->source));
    return Py_NewRef(Py_None);
}

static PyObject *source_enter(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return Py_NewRef(self);
}

static PyObject *source_exit(PyObject *self, PyObject *args)
{
    (void)args;
    return source_close(self, NULL);
}

static int open_source(struct source *s, const struct hy_feed_source_options *o)
{
    const char *name = PyUnicode_AsUTF8AndSize(s->name, NULL);
    struct hy_err err = {0};
    int rc = name ? hy_feed_source_open(name, o, &s->source, &err) : -1;

    s->is_over = rc == -ESHUTDOWN;
    if (rc == -ECONNREFUSED) /* who waits for a hub asks again */
        PyErr_SetString(PyExc_ConnectionRefusedError, err.text);
    else if (rc < 0 && !s->is_over && name)
        hy_py_raise(state_of(s), &err);
    return s->is_over ? 0 : rc;
}

static PyObject *source_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"name", "queue", "results", "size", "patience", NULL};
    struct hy_feed_source_options o = {.queue = "input", .size = SIZE_DEFAULT};
    unsigned long long size = SIZE_DEFAULT;
    PyObject *self, *name;
    struct source *s;
    double patience = -1;
    int results = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "U|spKd:Source", (char **)names, &name, &o.queue, &results, &size,
                                     &patience))
        return NULL;
    o.needs_results = results;
    o.size = (size_t)size;
    self = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    s = (struct source *)self;
    s->name = Py_NewRef(name);
    s->patience = patience;
    s->results = PyList_New(0);
    if (!s->results || open_source(s, &o) < 0)
        Py_CLEAR(self);
    return self;
}

static void source_dealloc(PyObject *self)
{
    struct source *s = (struct source *)self;
    PyTypeObject *type = Py_TYPE(self);

    hy_feed_source_close(s->source);
    hy_packer_done(&s->packer);
    Py_XDECREF(s->name);
    Py_XDECREF(s->results);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *source_sent(PyObject *self, void *ignored)
{
    (void)ignored;
    return PyLong_FromUnsignedLongLong(((struct source *)self)->sent);
}

static PyObject *source_most(PyObject *self, void *ignored)
{
    struct source *s = (struct source *)self;

    (void)ignored;
    return PyLong_FromSize_t(s->source ? hy_feed_source_batch_max(s->source) : HY_RING_MIN);
}

static PyObject *source_gone(PyObject *self, void *ignored)
{
    (void)ignored;
    return PyBool_FromLong(((struct source *)self)->is_gone);
}

static PyObject *source_timed_out(PyObject *self, void *ignored)
{
    (void)ignored;
    return PyBool_FromLong(((struct source *)self)->timed_out);
}

static PyObject *source_takes_pickles(PyObject *self, void *ignored)
{
    struct source *s = (struct source *)self;

    (void)ignored;
    return PyBool_FromLong(s->source && hy_feed_source_may_pickle(s->source));
}

static PyGetSetDef getters[] = {
    {"takes_pickles", source_takes_pickles, NULL, "Is who takes the rows content with what somebody has pickled?", NULL},
    {"gone", source_gone, NULL, "Whether a call raised because the process that takes the rows has ended.", NULL},
    {"timed_out", source_timed_out, NULL, "Whether the last call raised because nobody took rows for `patience` seconds.", NULL},
    {"sent", source_sent, NULL, "Bytes of all batches.", NULL},
    {"most", source_most, NULL, "Bytes that a batch may have.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"put", source_put, METH_O, "put(rows): False when the consumer has had enough."},
    {"put_arrow", source_put_arrow, METH_O,
     "put_arrow(batch): the same, of a record batch. None, and nothing is put, when it has what has no column."},
    {"put_pickle", source_put_pickle, METH_O,
     "put_pickle(bytes): the same, of a list of rows that was pickled. Only where takes_pickles says so."},
    {"end_partition", source_end_partition, METH_NOARGS, "The same, of a partition's end."},
    {"results", source_results, METH_VARARGS,
     "results(timeout=-1): a list of those that have come; None when none will, since the consumer has had enough."},
    {"wait_until_taken", source_wait_until_taken, METH_NOARGS, "Until the consumer has all; False when it has had enough."},
    {"close", source_close, METH_NOARGS, NULL},
    {"__enter__", source_enter, METH_NOARGS, NULL},
    {"__exit__", source_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

PyObject *hy_py_source_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_new, source_new},
        {Py_tp_dealloc, source_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, getters},
        {Py_tp_doc, (void *)"Source(name, queue='input', results=False, size=16 MiB, patience=-1): rows for the Hub of that "
                            "name. Patience is how many seconds it waits for somebody who takes none."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "hopyard._hopyard.Source",
        .basicsize = sizeof(struct source),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };

    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
