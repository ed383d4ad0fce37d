/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The type Source: sends rows to a training process and receives its results (feed/feed.h).
 * Results that arrive while a put waits are kept until they are requested, so that two full
 * rings never wait for each other.
 *
 * Waits do not hold the GIL, run signal handlers every 100 ms, and end after timeout_s.
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

#define BUSY "another thread uses the source"
#define SIZE_DEFAULT (16u << 20)
#define ARROW_BATCH_BYTES (1024u << 10) /* sent at once: the reader finds them in a cache */

struct source {
    PyObject object;
    struct hy_feed_source *source; /* NULL: closed, or the hub had terminated before it was open */
    struct hy_packer packer;
    PyObject *name, *results; /* a list: those received */
    uint64_t sent;            /* bytes */
    double timeout_s;          /* negative: none */
    bool timed_out, is_gone;  /* the last call; the training process has ended */
    bool is_shut_down, is_busy;
};

/* ---- calls ----------------------------------------------------------------------------- */

static const struct hy_py_state *state_of(const struct source *s)
{
    return PyType_GetModuleState(Py_TYPE((PyObject *)(uintptr_t)s));
}

static int begin_call(struct source *s)
{
    if (s->is_busy || (!s->source && !s->is_shut_down)) {
        PyErr_SetString(PyExc_ValueError, s->is_busy ? BUSY : "the source is closed");
        return -1;
    }
    s->is_busy = true;
    return 0;
}

/* The result of a function of the source: 1 or more; 0 when the hub has terminated; -1 with an exception set. */
static int check_result(struct source *s, int rc)
{
    if (rc > 0)
        return rc;
    if (rc == -ESHUTDOWN) {
        s->is_shut_down = true;
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

/* Receives all pending results. 0, or -1 with an exception set. */
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
        hy_py_error(state_of(s), "received invalid results from '%U'", s->name);
    return rc < 0 ? -1 : 0;
}

/* Event bits, 0 on timeout or, with *ret_over set, when the hub has terminated; -1 with an exception set. */
static int wait_once(struct source *s, size_t need, int timeout_ms, bool *ret_over)
{
    int rc;

    Py_BEGIN_ALLOW_THREADS rc = hy_feed_source_wait(s->source, need, timeout_ms);
    Py_END_ALLOW_THREADS *ret_over = rc == -ESHUTDOWN;
    if (rc < 0)
        return check_result(s, rc);
    if (rc & HY_FEED_SOURCE_RESULTS && take_results(s) < 0)
        return -1;
    return PyErr_CheckSignals() < 0 ? -1 : rc;
}

static int raise_timeout(struct source *s)
{
    char seconds[32];

    s->timed_out = true;
    snprintf(seconds, sizeof seconds, "%g", s->timeout_s);
    hy_py_error(state_of(s),
                "the process at '%U' has taken no rows, or given no results, for %s s; raise "
                "feed_timeout, or look at its log",
                s->name, seconds);
    return -1;
}

static int wait_for_room(struct source *s, size_t need)
{
    const int64_t end = hy_py_deadline(s->timeout_s);
    bool is_shut_down = false;
    int rc = 0, slice = 1;

    while (rc >= 0 && !is_shut_down && !(rc & HY_FEED_SOURCE_SPACE) && slice > 0) {
        slice = hy_py_wait_ms(end);
        rc = wait_once(s, need, slice, &is_shut_down);
    }
    if (rc >= 0 && !is_shut_down && !(rc & HY_FEED_SOURCE_SPACE))
        return raise_timeout(s);
    return is_shut_down ? 0 : rc;
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
    return check_result(s, rc);
}

static PyObject *finish_call(struct source *s, int rc)
{
    s->is_busy = false;
    return rc < 0 ? NULL : PyBool_FromLong(rc > 0);
}

static PyObject *source_put(PyObject *self, PyObject *rows)
{
    struct source *s = (struct source *)self;
    hy_cleanup_ref PyObject *list = PyList_CheckExact(rows) ? Py_NewRef(rows) : PySequence_List(rows);
    struct hy_pack_sink sink = {.send = send_batch, .context = s};

    if (!list || begin_call(s) < 0)
        return NULL;
    if (s->is_shut_down)
        return finish_call(s, 0);
    sink.max = hy_feed_source_batch_max(s->source);
    return finish_call(s, hy_pack_rows(&s->packer, list, 0, PyList_Size(list), &sink));
}

static PyObject *source_put_pickle(PyObject *self, PyObject *pickle)
{
    struct source *s = (struct source *)self;
    struct hy_batch_column column = {.dtype = HY_DTYPE_PICKLE};
    const struct hy_batch b = {.count = 1, .schema = "*", .schema_n = 1, .columns = &column};
    Py_ssize_t n;
    char *bytes;

    if (PyBytes_AsStringAndSize(pickle, &bytes, &n) < 0 || begin_call(s) < 0)
        return NULL;
    if (s->is_shut_down)
        return finish_call(s, 0);
    column.values = bytes;
    column.values_n = (size_t)n;
    return finish_call(s, send_batch(s, &b));
}

static PyObject *source_end_partition(PyObject *self, PyObject *ignored)
{
    struct source *s = (struct source *)self;
    int rc = 1;

    (void)ignored;
    if (begin_call(s) < 0)
        return NULL;
    if (s->is_shut_down)
        return finish_call(s, 0);
    while (rc > 0 && (rc = hy_feed_source_put_end(s->source)) == 0) {
        rc = wait_for_room(s, hy_feed_source_needed(s->source));
        if (rc <= 0)
            return finish_call(s, rc);
    }
    return finish_call(s, check_result(s, rc));
}

/* ---- Arrow ----------------------------------------------------------------------------- */

/* Sends up to *step rows from *at on, which advances; halves *step when they are too large. As send_batch, or -Exxx
 * below -1. */
static int put_arrow_rows(struct source *s, const struct ArrowSchema *schema, const struct ArrowArray *array,
                          const struct hy_buf *text, int64_t *at, int64_t *step)
{
    const int64_t rows = *step < array->length - *at ? *step : array->length - *at;
    const size_t limit = hy_feed_source_batch_max(s->source) / 4;
    const size_t max = limit < ARROW_BATCH_BYTES ? limit : ARROW_BATCH_BYTES;
    struct hy_arrow_batch a = {0};
    size_t n;
    int rc = hy_arrow_batch_view(schema, array, *at, (uint32_t)rows, &a);

    a.batch.schema = (const char *)hy_buf_bytes(text);
    a.batch.schema_n = text->len;
    if (rc == 0)
        rc = hy_batch_size(&a.batch, &n);
    if (rc == 0 && n > max && rows > 1) {
        *step = (rows + 1) / 2;
        rc = 1;
    } else if (rc == 0) {
        rc = send_batch(s, &a.batch);
        *at += rows;
    }
    hy_arrow_batch_done(&a);
    return rc;
}

static PyObject *finish_arrow_call(struct source *s, int rc)
{
    if (rc < -1 && rc != -ENOTSUP && rc != -ENOMEM)
        PyErr_SetString(PyExc_ValueError, "the Arrow batch is invalid, or has too many columns");
    else if (rc == -ENOMEM)
        PyErr_NoMemory();
    if (rc != -ENOTSUP)
        return finish_call(s, rc);
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
            PyErr_SetString(PyExc_TypeError, "__arrow_c_array__ must return two capsules");
        return NULL;
    }
    schema = PyCapsule_GetPointer(PyTuple_GetItem(capsules, 0), "arrow_schema");
    array = schema ? PyCapsule_GetPointer(PyTuple_GetItem(capsules, 1), "arrow_array") : NULL;
    if (!array || begin_call(s) < 0)
        return NULL;
    if (s->is_shut_down)
        return finish_call(s, 0);
    hy_buf_init(&text, HY_BATCH_SCHEMA_MAX);
    if ((rc = hy_arrow_schema(schema, &text)) == 0)
        rc = 1;
    while (rc > 0 && at < array->length)
        rc = put_arrow_rows(s, schema, array, &text, &at, &step);
    hy_buf_done(&text);
    return finish_arrow_call(s, rc);
}

/* ---- waiting --------------------------------------------------------------------------- */

static PyObject *source_results(PyObject *self, PyObject *args)
{
    struct source *s = (struct source *)self;
    double timeout = -1;
    bool is_shut_down = s->is_shut_down;
    PyObject *list;
    int64_t end;
    int rc = 0;

    if (!PyArg_ParseTuple(args, "|d:results", &timeout) || begin_call(s) < 0)
        return NULL;
    end = hy_py_deadline(timeout < 0 ? s->timeout_s : timeout);
    if (s->source && take_results(s) < 0)
        return finish_call(s, -1);
    while (rc >= 0 && !is_shut_down && PyList_Size(s->results) == 0 && hy_py_wait_ms(end) != 0)
        rc = wait_once(s, 0, hy_py_wait_ms(end), &is_shut_down);
    if (rc >= 0 && !is_shut_down && timeout < 0 && PyList_Size(s->results) == 0)
        rc = raise_timeout(s);
    list = rc < 0 ? NULL : PyList_New(0);
    if (list) {
        PyObject *taken = s->results;

        s->results = list;
        list = taken;
    }
    s->is_busy = false;
    if (list && is_shut_down && PyList_Size(list) == 0) { /* there will be no more */
        Py_DECREF(list);
        return Py_NewRef(Py_None);
    }
    return list;
}

static PyObject *source_wait_until_taken(PyObject *self, PyObject *ignored)
{
    struct source *s = (struct source *)self;
    const int64_t end = hy_py_deadline(s->timeout_s);
    int rc = 0;

    (void)ignored;
    if (begin_call(s) < 0)
        return NULL;
    while (!s->is_shut_down && rc == 0) {
        const int slice = hy_py_wait_ms(end);

        Py_BEGIN_ALLOW_THREADS rc = hy_feed_source_wait_until_taken(s->source, slice);
        Py_END_ALLOW_THREADS if (rc == 0 && PyErr_CheckSignals() < 0) return finish_call(s, -1);
        if (rc == 0 && slice == 0)
            return finish_call(s, raise_timeout(s));
        rc = rc < 0 ? check_result(s, rc) : rc;
    }
    return finish_call(s, rc < 0 ? -1 : !s->is_shut_down);
}

/* ---- life cycle -------------------------------------------------------------------------- */

static PyObject *source_close(PyObject *self, PyObject *ignored)
{
    struct source *s = (struct source *)self;

    (void)ignored;
    if (s->is_busy) {
        PyErr_SetString(PyExc_ValueError, BUSY);
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

    s->is_shut_down = rc == -ESHUTDOWN;
    if (rc == -ECONNREFUSED) /* callers that wait for a hub retry */
        PyErr_SetString(PyExc_ConnectionRefusedError, err.text);
    else if (rc < 0 && !s->is_shut_down && name)
        hy_py_raise(state_of(s), &err);
    return s->is_shut_down ? 0 : rc;
}

static PyObject *source_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"name", "queue", "results", "size", "patience", NULL};
    struct hy_feed_source_options o = {.queue = "input", .size = SIZE_DEFAULT};
    unsigned long long size = SIZE_DEFAULT;
    PyObject *self, *name;
    struct source *s;
    double timeout_s = -1;
    int results = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "U|spKd:Source", (char **)names, &name, &o.queue, &results, &size,
                                     &timeout_s))
        return NULL;
    o.needs_results = results;
    o.size = (size_t)size;
    self = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    s = (struct source *)self;
    s->name = Py_NewRef(name);
    s->timeout_s = timeout_s;
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
    {"takes_pickles", source_takes_pickles, NULL, "Whether the consumer accepts put_pickle.", NULL},
    {"gone", source_gone, NULL, "Whether a call raised because the training process has ended.", NULL},
    {"timed_out", source_timed_out, NULL, "Whether a call raised because no rows were taken for `patience` seconds.",
     NULL},
    {"sent", source_sent, NULL, "The size of all batches sent, in bytes.", NULL},
    {"most", source_most, NULL, "The size limit of a batch, in bytes.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"put", source_put, METH_O, "put(rows): False when the consumer has terminated."},
    {"put_arrow", source_put_arrow, METH_O,
     "put_arrow(batch): the same for an Arrow record batch. None, and nothing is put, when a column is not supported."},
    {"put_pickle", source_put_pickle, METH_O,
     "put_pickle(bytes): the same for a pickled list of rows. Only when takes_pickles is true."},
    {"end_partition", source_end_partition, METH_NOARGS, "end_partition(): the same for the end of a partition."},
    {"results", source_results, METH_VARARGS,
     "results(timeout=-1): a list of those received; None when the consumer has terminated."},
    {"wait_until_taken", source_wait_until_taken, METH_NOARGS,
     "wait_until_taken(): until the consumer has taken all rows; False when it has terminated."},
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
        {Py_tp_doc,
         (void *)"Source(name, queue='input', results=False, size=16 MiB, patience=-1): sends rows to the Hub "
                 "of that name. `patience` is the timeout of calls in seconds."},
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
