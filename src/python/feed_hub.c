/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The type Hub: a consumer of rows (feed/feed.h). A batch is read in place, row by
 * row or column by column; the next call continues where the previous one stopped.
 *
 * One thread takes rows: a Python thread, or a thread of TensorFlow without the GIL.
 * Other threads may return results, end or terminate the hub meanwhile. No thread
 * waits to enter the consumer while it holds the GIL.
 */
#include "feed_rows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "feed/feed.h"
#include "feed_wait.h"

#define BUSY "another thread takes rows"

/* Why a call returned fewer rows than requested, by event. */
static const char *const REASON_FULL = "";
static const char *const REASONS[] = {[HY_CONSUMER_PARTITION] = "partition",
                                      [HY_CONSUMER_END] = "end",
                                      [HY_CONSUMER_OTHER] = "other",
                                      [HY_CONSUMER_TIMEOUT] = "timeout"};

struct hub {
    PyObject object;
    struct hy_consumer *consumer; /* its hub is NULL: closed */
    PyObject *name;
    struct unpacking {
        struct hy_unpacker unpacker;
        PyObject *kept; /* rows that were taken when a signal handler raised */
    } unpackings[HY_CONSUMER_QUEUES]; /* by queue */
    struct hy_float_pins pins;
    struct hy_packer packer;
    struct hy_batch_stream **streams; /* of batches() */
    size_t streams_count;
    struct entry {
        unsigned long thread;
        bool is_entered;
    } entries[2];      /* Python threads that have entered: [0] for another purpose, [1] to take rows */
    bool is_termination_deferred; /* terminate on leave: a signal handler has asked for it */
};

/* ---- entering and leaving ------------------------------------------------------------------ */

static const struct hy_py_state *state_of(const struct hub *h)
{
    return PyType_GetModuleState(Py_TYPE((PyObject *)(uintptr_t)h));
}

/* Whether this thread has entered: then this is a call from a signal handler. */
static bool has_entered(const struct hub *h)
{
    const unsigned long self = PyThread_get_thread_ident();

    return (h->entries[0].is_entered && h->entries[0].thread == self) ||
           (h->entries[1].is_entered && h->entries[1].thread == self);
}

static int raise_value_error(const char *reason)
{
    PyErr_SetString(PyExc_ValueError, reason);
    return -1;
}

/* 0, or -1 with an exception set. */
static int enter(struct hub *h, bool takes_rows)
{
    int rc;

    if (has_entered(h))
        return raise_value_error(BUSY);
    do {
        Py_BEGIN_ALLOW_THREADS rc = hy_consumer_enter(h->consumer, takes_rows, HY_PY_WAIT_SLICE_MS);
        Py_END_ALLOW_THREADS
    } while (rc == -EAGAIN && PyErr_CheckSignals() == 0);
    if (rc == 0)
        h->entries[takes_rows] = (struct entry){PyThread_get_thread_ident(), true};
    return rc == 0 ? 0 : rc == -EAGAIN ? -1 : raise_value_error(rc == -EBUSY ? BUSY : "the hub is closed");
}

static int raise_hub_error(const struct hub *h, int rc)
{
    if (rc == -ENOMEM)
        PyErr_NoMemory();
    else
        hy_py_error(state_of(h), "the hub '%U' failed: %s", h->name, strerror(-rc));
    return -1;
}

static struct hy_feed_queue *queue_of(struct hub *h, const char *name)
{
    struct hy_feed_queue *q = hy_consumer_queue(h->consumer, name);

    if (!q)
        PyErr_Format(PyExc_ValueError, "there are %d queues already, or the name '%s' is too long", HY_CONSUMER_QUEUES,
                     name);
    return q;
}

static struct unpacking *unpacking_of(struct hub *h, const struct hy_feed_queue *q)
{
    return &h->unpackings[q - h->consumer->queues];
}

static int terminate(struct hub *h)
{
    struct hy_err err = {0};

    for (int i = 0; i < HY_CONSUMER_QUEUES; i++) {
        hy_unpack_end(&h->unpackings[i].unpacker);
        Py_CLEAR(h->unpackings[i].kept);
    }
    if (hy_consumer_terminate(h->consumer, &err) == 0)
        return 0;
    hy_py_raise(state_of(h), &err);
    return -1;
}

/* Interrupts the thread that takes rows, and enters. As enter. */
static int interrupt_and_enter(struct hub *h)
{
    int rc;

    hy_consumer_interrupt(h->consumer);
    rc = enter(h, false);
    if (rc < 0)
        atomic_store(&h->consumer->is_interrupted, false);
    return rc;
}

/* 0, or -1 with an exception set. */
static int leave(struct hub *h, bool takes_rows)
{
    int rc = 0;

    if (h->is_termination_deferred) {
        h->is_termination_deferred = false;
        rc = terminate(h);
    }
    h->entries[takes_rows].is_entered = false;
    hy_consumer_leave(h->consumer, takes_rows);
    return rc;
}

/* ---- messages ---------------------------------------------------------------------------- */

struct take_args {
    struct hy_feed_queue *queue;
    unsigned long long max;
    int64_t end;
    int other;
    bool stop_at_partition;
    bool accepts_pickles;
};

/* Waits until the queue holds a batch: NULL. Otherwise the reason; -1 in *ret with an exception set. */
static const char *next_message(struct hub *h, const struct take_args *r, int *ret)
{
    int slice, rc = HY_CONSUMER_ROWS;

    *ret = 0;
    r->queue->accepts_pickles = r->accepts_pickles;
    do {
        slice = hy_py_wait_ms(r->end);
        Py_BEGIN_ALLOW_THREADS rc = hy_consumer_next(h->consumer, r->queue, r->stop_at_partition, r->other, slice);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals() < 0) *ret = -1;
        else if (rc < 0) *ret = raise_hub_error(h, rc);
    } while (*ret == 0 && rc == HY_CONSUMER_TIMEOUT && slice > 0);
    return *ret < 0 || rc == HY_CONSUMER_ROWS ? NULL : REASONS[rc];
}

/* Accounts for rows taken from the batch; `count` as returned by hy_unpack_rows. 0 or -1. */
static int account_rows(struct hub *h, struct hy_feed_queue *q, Py_ssize_t count)
{
    int rc;

    if (count < 0) { /* the batch is invalid (-EBADMSG), or an exception is set: discard it */
        hy_unpack_end(&unpacking_of(h, q)->unpacker);
        hy_consumer_discard(h->consumer, q, count == -EBADMSG);
        return count == -1 ? -1 : 0;
    }
    rc = hy_consumer_advance(h->consumer, q, (uint64_t)count);
    if (!q->has_batch)
        hy_unpack_end(&unpacking_of(h, q)->unpacker);
    return rc < 0 ? raise_hub_error(h, rc) : 0;
}

/* ---- rows -------------------------------------------------------------------------------- */

static int parse_and_enter(struct hub *h, PyObject *args, PyObject *kwargs, struct take_args *r)
{
    static const char *const names[] = {"n", "timeout", "queue", "stops", "other", NULL};
    const char *queue = "input";
    double timeout = -1;
    int stop_at_partition = 0;

    r->other = -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "K|dspi:next", (char **)names, &r->max, &timeout, &queue,
                                     &stop_at_partition, &r->other))
        return -1;
    r->max = r->max < PY_SSIZE_T_MAX ? r->max : PY_SSIZE_T_MAX;
    r->end = hy_py_deadline(timeout);
    r->stop_at_partition = stop_at_partition;
    r->queue = queue_of(h, queue);
    return r->queue && enter(h, true) == 0 ? 0 : -1;
}

/* Up to max rows that were kept when the previous call raised. */
static PyObject *take_kept_rows(struct unpacking *u, Py_ssize_t max)
{
    hy_cleanup_ref PyObject *kept = hy_take(u->kept);

    if (!kept || PyList_Size(kept) <= max)
        return kept ? hy_take(kept) : PyList_New(0);
    u->kept = PyList_GetSlice(kept, max, PyList_Size(kept));
    return u->kept ? PyList_GetSlice(kept, 0, max) : NULL;
}

/* Rows of the held batch, which another caller may have begun. As hy_unpack_rows. */
static Py_ssize_t unpack(struct hub *h, struct hy_feed_queue *q, PyObject *list, Py_ssize_t max)
{
    struct hy_unpacker *u = &unpacking_of(h, q)->unpacker;
    int rc;

    u->pins = &h->pins;
    rc = u->of && u->number == q->cursor.number ? 0 : hy_unpack_begin(u, &q->cursor);
    return rc < 0 ? rc : hy_unpack_rows(u, &q->cursor, list, max);
}

static int take_rows(struct hub *h, const struct take_args *r, PyObject *list, const char **ret_reason)
{
    int rc = 0;

    *ret_reason = REASON_FULL;
    while (rc == 0 && PyList_Size(list) < (Py_ssize_t)r->max) {
        const char *reason = next_message(h, r, &rc);
        Py_ssize_t remaining;

        if (rc < 0 || reason) {
            *ret_reason = reason;
            return rc;
        }
        remaining = (Py_ssize_t)r->max - PyList_Size(list);
        rc = account_rows(h, r->queue, unpack(h, r->queue, list, remaining));
    }
    return rc;
}

static PyObject *hub_next_rows(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct hub *h = (struct hub *)self;
    struct take_args r = {.accepts_pickles = true};
    PyObject *list;
    const char *reason;
    int rc;

    if (parse_and_enter(h, args, kwargs, &r) < 0)
        return NULL;
    list = take_kept_rows(unpacking_of(h, r.queue), (Py_ssize_t)r.max);
    rc = list ? take_rows(h, &r, list, &reason) : -1;
    if (leave(h, true) < 0)
        rc = -1;
    if (rc == 0)
        return Py_BuildValue("Ns", list, reason);
    if (list && !unpacking_of(h, r.queue)->kept)
        unpacking_of(h, r.queue)->kept = hy_take(list);
    Py_XDECREF(list);
    return NULL;
}

/* ---- requeued pickles ---------------------------------------------------------------------- */

static bool feed_again(const struct hub *h, const char *queue, const void *pickle, size_t n, uint32_t first)
{
    hy_cleanup_ref PyObject *rows = hy_unpickle(pickle, n);
    hy_cleanup_ref PyObject *feed = rows ? PyImport_ImportModule("hopyard._feed.feeders") : NULL;
    hy_cleanup_ref PyObject *fed = NULL;

    if (feed)
        fed = PyObject_CallMethod(feed, "feed_own_hub", "OsOI", h->name, queue, rows, first);
    return fed != NULL;
}

/* Called by hy_consumer_next, in any thread, without the GIL. */
static int requeue(void *context, const char *queue, const void *pickle, size_t n, uint32_t first)
{
    const struct hub *h = context;
    const PyGILState_STATE gil = PyGILState_Ensure();
    const bool is_fed = feed_again(h, queue, pickle, n, first);

    if (!is_fed)
        PyErr_WriteUnraisable(h->name);
    PyGILState_Release(gil);
    return is_fed ? 0 : -EBADMSG;
}

/* ---- columns ----------------------------------------------------------------------------- */

static int take_columns(struct hub *h, const struct take_args *r, struct hy_gathered *g, PyObject *list,
                        const char **ret_reason)
{
    struct hy_feed_queue *q = r->queue;
    int rc = 0;

    *ret_reason = REASON_FULL;
    while (rc == 0 && g->rows < r->max && PyList_Size(list) == 0) {
        const char *reason = next_message(h, r, &rc);
        Py_ssize_t count;

        if (rc < 0 || reason) {
            *ret_reason = reason;
            return rc;
        }
        if (hy_batch_cursor_is_pickled(&q->cursor)) /* a list of rows instead of columns */
            count = g->rows ? 0 : unpack(h, q, list, (Py_ssize_t)r->max);
        else
            count = (Py_ssize_t)hy_gather(g, &q->cursor, NULL, r->max - g->rows, NULL);
        if (count == 0 && !hy_batch_cursor_is_done(&q->cursor))
            return 0; /* rows of another schema: left for the next call */
        if (count == -ENOMEM) {
            PyErr_NoMemory();
            count = -1;
        }
        rc = account_rows(h, q, count);
    }
    return rc;
}

static PyObject *hub_next_columns(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct hub *h = (struct hub *)self;
    hy_cleanup_ref PyObject *list = PyList_New(0), *arrays = PyList_New(0);
    struct hy_gathered g = {.sink = {.grow = hy_grow_bytearray, .context = arrays}};
    struct take_args r = {0};
    PyObject *made = NULL;
    const char *reason;
    int rc;

    if (!list || !arrays || parse_and_enter(h, args, kwargs, &r) < 0)
        return NULL;
    rc = take_columns(h, &r, &g, list, &reason);
    if (leave(h, true) < 0)
        rc = -1;
    if (rc == 0 && PyList_Size(list))
        made = Py_BuildValue("nsOs", PyList_Size(list), "*", list, reason);
    else if (rc == 0)
        made = Py_BuildValue("Ks#Ns", (unsigned long long)g.rows, g.schema ? g.schema : "", (Py_ssize_t)g.schema_n,
                             hy_gathered_columns(&g, arrays), reason);
    hy_gathered_done(&g);
    return made;
}

/* ---- batch streams ------------------------------------------------------------------------- */

/* (dtype, shape, is_ragged); a ragged column whose rows all have the same length is reported as not ragged. */
static PyObject *column_type(const struct hy_batch_column *c, uint32_t rows)
{
    uint64_t items;
    bool is_even = c->is_ragged && rows > 1 && hy_batch_column_is_uniform(c, rows, &items);

    return Py_BuildValue("sNO", hy_dtype_name(c->dtype), hy_shape_tuple(c, is_even, is_even ? items : 0),
                         c->is_ragged && !is_even ? Py_True : Py_False);
}

static PyObject *column_types(const struct hy_batch *b)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < b->count; i++) {
        hy_cleanup_ref PyObject *column = column_type(&b->columns[i], b->rows);

        if (!column || PyList_Append(list, column) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *hub_next_shape(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct hub *h = (struct hub *)self;
    const struct hy_batch *b;
    struct take_args r = {0};
    PyObject *made = NULL;
    const char *reason;
    int rc;

    if (parse_and_enter(h, args, kwargs, &r) < 0)
        return NULL;
    reason = next_message(h, &r, &rc);
    b = r.queue->cursor.batch;
    if (rc == 0)
        made = reason ? Py_BuildValue("s[]s", "", reason)
                      : Py_BuildValue("s#Ns", b->schema, (Py_ssize_t)b->schema_n, column_types(b), REASON_FULL);
    if (leave(h, true) < 0)
        Py_CLEAR(made);
    return made;
}

/* From (name, dtype, shape or None, is_ragged); -1 in a shape: any. */
static int parse_signature_column(struct hy_signature_column *c, PyObject *tuple)
{
    const char *name, *dtype;
    PyObject *shape;
    int is_ragged;

    if (!PyTuple_Check(tuple) || !PyArg_ParseTuple(tuple, "ssOp:column", &name, &dtype, &shape, &is_ragged))
        return PyErr_Occurred() ? -1 : raise_value_error("a column must be a tuple");
    (void)snprintf(c->name, sizeof c->name, "%s", name); /* for messages: truncation is fine */
    c->dtype = hy_dtype_by_name(dtype);
    c->is_ragged = is_ragged;
    c->dims = shape == Py_None ? -1 : (int)PyTuple_Size(shape);
    if (PyErr_Occurred() || !c->dtype || c->dims > HY_BATCH_DIMS)
        return PyErr_Occurred() ? -1 : raise_value_error("unknown type, or too many dimensions");
    for (int i = 0; i < c->dims; i++)
        c->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    return PyErr_Occurred() ? -1 : 0;
}

static int parse_signature(struct hy_signature *sig, const char *text, int allows_extra, PyObject *list)
{
    const Py_ssize_t count = PyList_Size(list);
    hy_cleanup_free struct hy_signature_column *columns = hy_calloc((size_t)count, sizeof *columns);
    int rc;

    if (!columns)
        return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < count; i++)
        if (parse_signature_column(&columns[i], PyList_GetItem(list, i)) < 0)
            return -1;
    rc = hy_signature_init(sig, text, allows_extra, columns, (uint32_t)count);
    if (rc == -ENOMEM)
        PyErr_NoMemory();
    return rc == -EINVAL ? raise_value_error("the columns do not match the schema") : rc < 0 ? -1 : 0;
}

static int add_stream(struct hub *h, const struct hy_batch_stream_options *o, struct hy_signature *sig)
{
    int rc = hy_array_grow(h->streams, h->streams_count);

    if (rc == 0)
        rc = hy_batch_stream_new(h->consumer, o, sig, &h->streams[h->streams_count]);
    h->streams_count += rc == 0;
    hy_signature_done(sig);
    if (rc == -ENOMEM)
        PyErr_NoMemory();
    return rc == -EINVAL ? raise_value_error("invalid queue, or batches of 0 rows") : rc < 0 ? -1 : 0;
}

static PyObject *hub_batches(PyObject *self, PyObject *args)
{
    struct hub *h = (struct hub *)self;
    struct hy_batch_stream_options o = {0};
    unsigned long long rows;
    int stop_at_partition, drop_remainder, allows_extra;
    struct hy_signature sig = {0};
    PyObject *columns;
    const char *text;

    if (!PyArg_ParseTuple(args, "sKppspO!:batches", &o.queue, &rows, &stop_at_partition, &drop_remainder, &text,
                          &allows_extra, &PyList_Type, &columns))
        return NULL;
    o.rows = rows;
    o.stop_at_partition = stop_at_partition;
    o.drop_remainder = drop_remainder;
    if (parse_signature(&sig, text, allows_extra, columns) < 0 || add_stream(h, &o, &sig) < 0)
        return NULL;
    return PyLong_FromLongLong(hy_batch_stream_handle(h->streams[h->streams_count - 1]));
}

static PyObject *hub_is_over(PyObject *self, PyObject *number)
{
    struct hub *h = (struct hub *)self;
    const long long remaining = PyLong_AsLongLong(number);

    if (remaining == -1 && PyErr_Occurred())
        return NULL;
    if (!h->consumer->hub || h->consumer->is_terminated)
        return Py_NewRef(Py_True);
    for (size_t i = 0; i < h->streams_count; i++)
        if (hy_batch_stream_handle(h->streams[i]) == remaining)
            return PyBool_FromLong(hy_batch_stream_is_over(h->streams[i]));
    return Py_NewRef(Py_True);
}

/* ---- results ----------------------------------------------------------------------------- */

struct recipient {
    struct hub *hub;
    uint64_t feeder;
};

/* 0: the feeder is gone. */
static int send_results(void *context, const struct hy_batch *b)
{
    const struct recipient *g = context;
    const struct hy_consumer *c = g->hub->consumer;
    size_t needed;
    int rc;

    while ((rc = hy_feed_hub_put(c->hub, g->feeder, b, &needed)) == 0) {
        Py_BEGIN_ALLOW_THREADS rc = hy_feed_hub_wait_for_space(c->hub, g->feeder, needed, HY_PY_WAIT_SLICE_MS);
        Py_END_ALLOW_THREADS if (PyErr_CheckSignals() < 0) return -1;
        if (rc < 0 || c->is_interrupted)
            break;
    }
    if (rc == -EPIPE || c->is_interrupted)
        return 0;
    if (rc == -EMSGSIZE)
        PyErr_SetString(PyExc_ValueError, "a result exceeds the limit of its ring; give the source a larger size");
    return rc == -EMSGSIZE ? -1 : rc < 0 ? raise_hub_error(g->hub, rc) : 1;
}

static int return_results(struct hub *h, PyObject *list)
{
    struct hy_consumer *c = h->consumer;
    const Py_ssize_t n = PyList_Size(list);
    Py_ssize_t at = 0;
    int rc = 0;

    while (at < n && rc >= 0 && c->outstanding_first < c->outstanding_count) {
        struct hy_outstanding *o = &c->outstanding[c->outstanding_first];
        const Py_ssize_t count = o->rows < (uint64_t)(n - at) ? (Py_ssize_t)o->rows : n - at;
        struct recipient g = {h, o->feeder};
        struct hy_pack_sink sink = {
            .send = send_results, .context = &g, .max = hy_feed_hub_result_max(c->hub, o->feeder)};

        rc = sink.max ? hy_pack_rows(&h->packer, list, at, at + count, &sink) : 0;
        at += count;
        o->rows -= (uint64_t)count;
        c->outstanding_first += o->rows == 0;
    }
    if (rc >= 0 && at < n && !c->is_terminated) {
        PyErr_Format(PyExc_ValueError, "there are %zd more results than rows that need one", n - at);
        return -1;
    }
    return rc < 0 ? -1 : 0;
}

static PyObject *hub_results(PyObject *self, PyObject *results)
{
    struct hub *h = (struct hub *)self;
    hy_cleanup_ref PyObject *list = PySequence_List(results);
    int rc;

    if (!list || enter(h, false) < 0)
        return NULL;
    rc = return_results(h, list);
    if (leave(h, false) < 0)
        rc = -1;
    return rc < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- end ----------------------------------------------------------------------------------- */

static PyObject *hub_end(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    hy_consumer_end(((struct hub *)self)->consumer);
    return Py_NewRef(Py_None);
}

static PyObject *hub_terminate(PyObject *self, PyObject *ignored)
{
    struct hub *h = (struct hub *)self;
    int rc;

    (void)ignored;
    if (!h->consumer->hub || h->consumer->is_terminated)
        return Py_NewRef(Py_None);
    if (has_entered(h)) {
        hy_consumer_interrupt(h->consumer);
        h->is_termination_deferred = true;
        return Py_NewRef(Py_None);
    }
    if (interrupt_and_enter(h) < 0)
        return NULL;
    rc = terminate(h);
    if (leave(h, false) < 0)
        rc = -1;
    return rc < 0 ? NULL : Py_NewRef(Py_None);
}

static void discard_and_close(struct hub *h)
{
    for (int i = 0; i < HY_CONSUMER_QUEUES; i++) {
        hy_unpack_end(&h->unpackings[i].unpacker);
        Py_CLEAR(h->unpackings[i].kept);
    }
    hy_float_pins_done(&h->pins);
    hy_consumer_close(h->consumer);
}

/* Interrupts a thread of TensorFlow; a Python thread that takes rows is an error. */
static PyObject *hub_close(PyObject *self, PyObject *ignored)
{
    struct hub *h = (struct hub *)self;

    (void)ignored;
    if (h->entries[0].is_entered || h->entries[1].is_entered)
        return raise_value_error(BUSY), NULL;
    if (!h->consumer->hub)
        return Py_NewRef(Py_None);
    if (interrupt_and_enter(h) < 0)
        return NULL;
    discard_and_close(h);
    return leave(h, false) < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *hub_enter(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return Py_NewRef(self);
}

static PyObject *hub_exit(PyObject *self, PyObject *args)
{
    (void)args;
    return hub_close(self, NULL);
}

static PyObject *hub_dropped(PyObject *self, void *ignored)
{
    struct hub *h = (struct hub *)self;

    (void)ignored;
    return PyLong_FromUnsignedLongLong(h->consumer->hub ? hy_feed_hub_dropped(h->consumer->hub) : 0);
}

/* ---- life cycle ---------------------------------------------------------------------------- */

static int open_hub(struct hub *h)
{
    const char *name = PyUnicode_AsUTF8AndSize(h->name, NULL);
    struct hy_err err = {0};
    struct hy_feed_hub *hub;
    int rc;

    if (!name)
        return -1;
    rc = hy_feed_hub_open(name, &hub, &err);
    if (rc < 0) {
        hy_py_raise(state_of(h), &err);
        return rc;
    }
    h->consumer = hy_consumer_new(hub);
    if (!h->consumer)
        return raise_hub_error(h, -ENOMEM);
    h->consumer->requeue = requeue;
    h->consumer->requeue_context = h;
    return 0;
}

static PyObject *hub_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"name", NULL};
    PyObject *self, *name;
    struct hub *h;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "U:Hub", (char **)names, &name))
        return NULL;
    self = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    h = (struct hub *)self;
    h->name = Py_NewRef(name);
    if (open_hub(h) < 0)
        Py_CLEAR(self);
    return self;
}

/* A thread of TensorFlow that has entered leaves soon, but may need the GIL to do so. */
static void close_and_unref(struct hub *h)
{
    hy_consumer_interrupt(h->consumer);
    Py_BEGIN_ALLOW_THREADS while (hy_consumer_enter(h->consumer, false, HY_PY_WAIT_SLICE_MS) == -EAGAIN) continue;
    Py_END_ALLOW_THREADS discard_and_close(h);
    hy_consumer_leave(h->consumer, false);
    for (size_t i = 0; i < h->streams_count; i++)
        hy_batch_stream_free(h->streams[i]);
    hy_consumer_unref(h->consumer);
}

static void hub_dealloc(PyObject *self)
{
    struct hub *h = (struct hub *)self;
    PyTypeObject *type = Py_TYPE(self);

    if (h->consumer)
        close_and_unref(h);
    hy_packer_done(&h->packer);
    free(h->streams);
    Py_XDECREF(h->name);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"next_rows", (PyCFunction)(void (*)(void))hub_next_rows, METH_VARARGS | METH_KEYWORDS,
     "next_rows(n, timeout=-1, queue='input', stops=False, other=-1): (rows, reason). The reason is '' for n rows; for "
     "fewer 'timeout', 'partition' (one has ended; only with stops), 'end', or 'other' (that descriptor is readable)."},
    {"next_columns", (PyCFunction)(void (*)(void))hub_next_columns, METH_VARARGS | METH_KEYWORDS,
     "next_columns(n, ...): (rows, schema, columns, reason). A column is (dtype, shape of a row or item, values, "
     "value_ends, row_ends). With '' there may be fewer than n rows when the schema changes after them. When the "
     "schema is '*', columns is a list of rows."},
    {"next_shape", (PyCFunction)(void (*)(void))hub_next_shape, METH_VARARGS | METH_KEYWORDS,
     "next_shape(n, ...): (schema, [(dtype, shape of a row or item, is_ragged), ...], reason) of the next rows, which "
     "are not taken."},
    {"batches", hub_batches, METH_VARARGS,
     "batches(queue, rows, stops, drops, schema, allows_extra, [(name, dtype, shape or None, is_ragged), ...]): the "
     "handle of a batch stream for the TensorFlow op."},
    {"is_over", hub_is_over, METH_O,
     "is_over(handle): whether the stream has ended, or its next call will report the end."},
    {"results", hub_results, METH_O, "results(list): one for each row, in the order in which rows were taken."},
    {"end", hub_end, METH_NOARGS, "end(): no more feeders will connect; from any thread."},
    {"terminate", hub_terminate, METH_NOARGS,
     "terminate(): discards pending rows and stops all feeders; from any thread."},
    {"close", hub_close, METH_NOARGS, NULL},
    {"__enter__", hub_enter, METH_NOARGS, NULL},
    {"__exit__", hub_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"dropped", hub_dropped, NULL, "The number of feeders that were dropped as invalid.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyObject *hy_py_hub_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_new, hub_new},
        {Py_tp_dealloc, hub_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, getters},
        {Py_tp_doc, (void *)"Hub(name): receives rows from the Sources of that name."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "hopyard._hopyard.Hub",
        .basicsize = sizeof(struct hub),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };

    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
