/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hub: where rows come into this process. A message is taken row by row from where
 * it lies, or column by column; what is left of it waits for the next call.
 *
 * For rows of feeders that want results it is written down whose they were, in
 * their order; results go back in the same order (feed/feed.h).
 *
 * One thread takes rows: Python's, or one of TensorFlow's, which has no part in the
 * GIL (feed/feed.h). Another may give results, end or terminate the hub
 * meanwhile. Nobody waits for its turn with the GIL.
 */
#include "feed_rows.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "feed/feed.h"
#include "feed_wait.h"

/* Why there are no more rows in an answer; by event. */
static const char *const WHY_FULL = "";
static const char *const WHYS[] = {[HY_CONSUMER_PARTITION] = "partition", [HY_CONSUMER_END] = "end",
                                   [HY_CONSUMER_OTHER] = "other", [HY_CONSUMER_TIMEOUT] = "timeout"};

struct hub {
    PyObject object;
    struct hy_consumer *intake; /* its hub is NULL: closed */
    PyObject *name;
    struct unpacking {
        struct hy_unpacker unpacker;
        PyObject *kept; /* rows that were taken when a signal's handler raised */
    } unpackings[HY_CONSUMER_QUEUES]; /* by queue */
    struct hy_float_pins pins;
    struct hy_packer packer;
    struct hy_batch_stream **batches; /* that were asked for */
    size_t batches_count;
    struct visit {
        unsigned long thread;
        bool is_in;
    } visits[2];      /* Python's threads that are in: for something else, and to take rows */
    bool is_deferred; /* who is in terminates it when it leaves: a signal's handler wanted it */
};

/* ---- who is in --------------------------------------------------------------------------- */

static const struct hy_py_state *state_of(const struct hub *h)
{
    return PyType_GetModuleState(Py_TYPE((PyObject *)(uintptr_t)h));
}

/* Is this thread in? Then a signal's handler is here, in the middle of it. */
static bool is_inside(const struct hub *h)
{
    const unsigned long self = PyThread_get_thread_ident();

    return (h->visits[0].is_in && h->visits[0].thread == self) || (h->visits[1].is_in && h->visits[1].thread == self);
}

static int refuse(const char *why)
{
    PyErr_SetString(PyExc_ValueError, why);
    return -1;
}

/* 0, or -1 with an exception set. */
static int enter(struct hub *h, bool takes_rows)
{
    int rc;

    if (is_inside(h))
        return refuse("another thread takes rows");
    do {
        Py_BEGIN_ALLOW_THREADS
        rc = hy_consumer_enter(h->intake, takes_rows, HY_PY_WAIT_SLICE_MS);
        Py_END_ALLOW_THREADS
    } while (rc == -EAGAIN && PyErr_CheckSignals() == 0);
    if (rc == 0)
        h->visits[takes_rows] = (struct visit){PyThread_get_thread_ident(), true};
    return rc == 0         ? 0
           : rc == -EAGAIN ? -1
                           : refuse(rc == -EBUSY ? "another thread takes rows" : "the hub is closed");
}

static int fail(const struct hub *h, int rc)
{
    if (rc == -ENOMEM)
        PyErr_NoMemory();
    else
        hy_py_error(state_of(h), "the hub '%U' cannot go on: %s", h->name, strerror(-rc));
    return -1;
}

static struct hy_feed_queue *queue_of(struct hub *h, const char *name)
{
    struct hy_feed_queue *q = hy_consumer_queue(h->intake, name);

    if (!q)
        PyErr_Format(PyExc_ValueError, "there are %d queues already, or the name '%s' is too long", HY_CONSUMER_QUEUES,
                     name);
    return q;
}

static struct unpacking *unpacking_of(struct hub *h, const struct hy_feed_queue *q)
{
    return &h->unpackings[q - h->intake->queues];
}

static int terminate_now(struct hub *h)
{
    struct hy_err err = {0};

    for (int i = 0; i < HY_CONSUMER_QUEUES; i++) {
        hy_unpack_end(&h->unpackings[i].unpacker);
        Py_CLEAR(h->unpackings[i].kept);
    }
    if (hy_consumer_terminate(h->intake, &err) == 0)
        return 0;
    hy_py_raise(state_of(h), &err);
    return -1;
}

/* The same for who has something to end: whoever takes rows is asked to leave. */
static int enter_to_end(struct hub *h)
{
    int rc;

    hy_consumer_interrupt(h->intake);
    rc = enter(h, false);
    if (rc < 0)
        atomic_store(&h->intake->is_interrupted, false);
    return rc;
}

/* 0, or -1 with an exception set. */
static int leave(struct hub *h, bool takes_rows)
{
    int rc = 0;

    if (h->is_deferred) {
        h->is_deferred = false;
        rc = terminate_now(h);
    }
    h->visits[takes_rows].is_in = false;
    hy_consumer_leave(h->intake, takes_rows);
    return rc;
}

/* ---- messages ---------------------------------------------------------------------------- */

struct request {
    struct hy_feed_queue *queue;
    unsigned long long most;
    int64_t end;
    int other;
    bool stop_at_partition; /* at the end of a partition */
    bool accepts_pickles;
};

/* Until a batch is in hand. NULL then, or why there is none; -1 in *ret with an exception set. */
static const char *next_message(struct hub *h, const struct request *r, int *ret)
{
    int slice, rc = HY_CONSUMER_ROWS;

    *ret = 0;
    r->queue->accepts_pickles = r->accepts_pickles;
    do {
        slice = hy_py_wait_ms(r->end);
        Py_BEGIN_ALLOW_THREADS
        rc = hy_consumer_next(h->intake, r->queue, r->stop_at_partition, r->other, slice);
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals() < 0)
            *ret = -1;
        else if (rc < 0)
            *ret = fail(h, rc);
    } while (*ret == 0 && rc == HY_CONSUMER_TIMEOUT && slice > 0);
    return *ret < 0 || rc == HY_CONSUMER_ROWS ? NULL : WHYS[rc];
}

/* Rows have been taken from the message in hand; a count as hy_unpack_rows has it. 0 or -1. */
static int after_rows(struct hub *h, struct hy_feed_queue *q, Py_ssize_t count)
{
    int rc;

    if (count < 0) { /* the message made no sense (-EBADMSG), or an exception is set: it is no more */
        hy_unpack_end(&unpacking_of(h, q)->unpacker);
        hy_consumer_discard(h->intake, q, count == -EBADMSG);
        return count == -1 ? -1 : 0;
    }
    rc = hy_consumer_advance(h->intake, q, (uint64_t)count);
    if (!q->has_batch)
        hy_unpack_end(&unpacking_of(h, q)->unpacker);
    return rc < 0 ? fail(h, rc) : 0;
}

/* ---- rows -------------------------------------------------------------------------------- */

static int parse_request(struct hub *h, PyObject *args, PyObject *kwargs, struct request *r)
{
    static const char *const names[] = {"n", "timeout", "queue", "stops", "other", NULL};
    const char *queue = "input";
    double timeout = -1;
    int stops = 0;

    r->other = -1;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "K|dspi:next", (char **)names, &r->most, &timeout, &queue, &stops,
                                     &r->other))
        return -1;
    r->most = r->most < PY_SSIZE_T_MAX ? r->most : PY_SSIZE_T_MAX;
    r->end = hy_py_deadline(timeout);
    r->stop_at_partition = stops;
    r->queue = queue_of(h, queue);
    return r->queue && enter(h, true) == 0 ? 0 : -1;
}

/* What was kept when the last call raised, as far as it is wanted. */
static PyObject *begin_rows(struct unpacking *u, Py_ssize_t most)
{
    hy_cleanup_ref PyObject *kept = hy_take(u->kept);

    if (!kept || PyList_Size(kept) <= most)
        return kept ? hy_take(kept) : PyList_New(0);
    u->kept = PyList_GetSlice(kept, most, PyList_Size(kept));
    return u->kept ? PyList_GetSlice(kept, 0, most) : NULL;
}

/* Rows of what is in hand, which another may have begun with. As hy_unpack_rows has it. */
static Py_ssize_t unpack(struct hub *h, struct hy_feed_queue *q, PyObject *list, Py_ssize_t most)
{
    struct hy_unpacker *u = &unpacking_of(h, q)->unpacker;
    int rc;

    u->pins = &h->pins;
    rc = u->of && u->number == q->cursor.number ? 0 : hy_unpack_begin(u, &q->cursor);
    return rc < 0 ? rc : hy_unpack_rows(u, &q->cursor, list, most);
}

static int take_rows(struct hub *h, const struct request *r, PyObject *list, const char **ret_why)
{
    int rc = 0;

    *ret_why = WHY_FULL;
    while (rc == 0 && PyList_Size(list) < (Py_ssize_t)r->most) {
        const char *why = next_message(h, r, &rc);
        Py_ssize_t wanted;

        if (rc < 0 || why) {
            *ret_why = why;
            return rc;
        }
        wanted = (Py_ssize_t)r->most - PyList_Size(list);
        rc = after_rows(h, r->queue, unpack(h, r->queue, list, wanted));
    }
    return rc;
}

static PyObject *hub_next_rows(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct hub *h = (struct hub *)self;
    struct request r = {.accepts_pickles = true};
    PyObject *list;
    const char *why;
    int rc;

    if (parse_request(h, args, kwargs, &r) < 0)
        return NULL;
    list = begin_rows(unpacking_of(h, r.queue), (Py_ssize_t)r.most);
    rc = list ? take_rows(h, &r, list, &why) : -1;
    if (leave(h, true) < 0)
        rc = -1;
    if (rc == 0)
        return Py_BuildValue("Ns", list, why);
    if (list && !unpacking_of(h, r.queue)->kept)
        unpacking_of(h, r.queue)->kept = hy_take(list);
    Py_XDECREF(list);
    return NULL;
}

/* ---- rows that come requeue ------------------------------------------------------------------ */

static bool feed_again(const struct hub *h, const char *queue, const void *pickle, size_t n, uint32_t first)
{
    hy_cleanup_ref PyObject *rows = hy_unpickle(pickle, n);
    hy_cleanup_ref PyObject *feed = rows ? PyImport_ImportModule("hopyard._feed.feeders") : NULL;
    hy_cleanup_ref PyObject *fed = feed ? PyObject_CallMethod(feed, "feed_own_hub", "OsOI", h->name, queue, rows, first) : NULL;

    return fed != NULL;
}

/* Within hy_consumer_next, by any thread, without the GIL. */
static int requeue(void *context, const char *queue, const void *pickle, size_t n, uint32_t first)
{
    const struct hub *h = context;
    const PyGILState_STATE gil = PyGILState_Ensure();
    const bool is_well = feed_again(h, queue, pickle, n, first);

    if (!is_well)
        PyErr_WriteUnraisable(h->name);
    PyGILState_Release(gil);
    return is_well ? 0 : -EBADMSG;
}

/* ---- columns ----------------------------------------------------------------------------- */

static int take_columns(struct hub *h, const struct request *r, struct hy_gathered *g, PyObject *list,
                        const char **ret_why)
{
    struct hy_feed_queue *q = r->queue;
    int rc = 0;

    *ret_why = WHY_FULL;
    while (rc == 0 && g->rows < r->most && PyList_Size(list) == 0) {
        const char *why = next_message(h, r, &rc);
        Py_ssize_t count;

        if (rc < 0 || why) {
            *ret_why = why;
            return rc;
        }
        if (hy_batch_cursor_is_pickled(&q->cursor)) /* one list, and no columns */
            count = g->rows ? 0 : unpack(h, q, list, (Py_ssize_t)r->most);
        else
            count = (Py_ssize_t)hy_gather(g, &q->cursor, NULL, r->most - g->rows, NULL);
        if (count == 0 && !hy_batch_cursor_is_done(&q->cursor))
            return 0; /* rows of another shape: they are for the next call */
        if (count == -ENOMEM) {
            PyErr_NoMemory();
            count = -1;
        }
        rc = after_rows(h, q, count);
    }
    return rc;
}

static PyObject *hub_next_columns(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct hub *h = (struct hub *)self;
    hy_cleanup_ref PyObject *list = PyList_New(0), *arrays = PyList_New(0);
    struct hy_gathered g = {.sink = {.grow = hy_grow_bytearray, .context = arrays}};
    struct request r = {0};
    PyObject *made = NULL;
    const char *why;
    int rc;

    if (!list || !arrays || parse_request(h, args, kwargs, &r) < 0)
        return NULL;
    rc = take_columns(h, &r, &g, list, &why);
    if (leave(h, true) < 0)
        rc = -1;
    if (rc == 0 && PyList_Size(list))
        made = Py_BuildValue("nsOs", PyList_Size(list), "*", list, why);
    else if (rc == 0)
        made = Py_BuildValue("Ks#Ns", (unsigned long long)g.rows, g.schema ? g.schema : "", (Py_ssize_t)g.schema_n,
                             hy_gathered_columns(&g, arrays), why);
    hy_gathered_done(&g);
    return made;
}

/* ---- batches ----------------------------------------------------------------------------- */

/* (dtype, shape, is_ragged); a ragged column whose rows all have as many items is none. */
static PyObject *describe_column(const struct hy_batch_column *c, uint32_t rows)
{
    uint64_t items;
    bool is_even = c->is_ragged && rows > 1 && hy_batch_column_is_uniform(c, rows, &items);

    return Py_BuildValue("sNO", hy_dtype_name(c->dtype), hy_shape_tuple(c, is_even, is_even ? items : 0),
                         c->is_ragged && !is_even ? Py_True : Py_False);
}

static PyObject *describe(const struct hy_batch *b)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < b->count; i++) {
        hy_cleanup_ref PyObject *column = describe_column(&b->columns[i], b->rows);

        if (!column || PyList_Append(list, column) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *hub_next_shape(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct hub *h = (struct hub *)self;
    const struct hy_batch *b;
    struct request r = {0};
    PyObject *made = NULL;
    const char *why;
    int rc;

    if (parse_request(h, args, kwargs, &r) < 0)
        return NULL;
    why = next_message(h, &r, &rc);
    b = r.queue->cursor.batch;
    if (rc == 0)
        made = why ? Py_BuildValue("s[]s", "", why)
                   : Py_BuildValue("s#Ns", b->schema, (Py_ssize_t)b->schema_n, describe(b), WHY_FULL);
    if (leave(h, true) < 0)
        Py_CLEAR(made);
    return made;
}

/* From (name, dtype, shape or None, is_ragged), where -1 in a shape is any. */
static int take_wanted_column(struct hy_signature_column *c, PyObject *tuple)
{
    const char *name, *dtype;
    PyObject *shape;
    int is_ragged;

    if (!PyTuple_Check(tuple) || !PyArg_ParseTuple(tuple, "ssOp:column", &name, &dtype, &shape, &is_ragged))
        return PyErr_Occurred() ? -1 : refuse("a column is a tuple");
    (void)snprintf(c->name, sizeof c->name, "%s", name); /* for messages: it may be cut */
    c->dtype = hy_dtype_by_name(dtype);
    c->is_ragged = is_ragged;
    c->dims = shape == Py_None ? -1 : (int)PyTuple_Size(shape);
    if (PyErr_Occurred() || !c->dtype || c->dims > HY_BATCH_DIMS)
        return PyErr_Occurred() ? -1 : refuse("there is no such type, or it has too many dimensions");
    for (int i = 0; i < c->dims; i++)
        c->shape[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    return PyErr_Occurred() ? -1 : 0;
}

static int take_wanted(struct hy_signature *w, const char *text, int allows_extra, PyObject *list)
{
    const Py_ssize_t count = PyList_Size(list);
    hy_cleanup_free struct hy_signature_column *columns = hy_calloc((size_t)count, sizeof *columns);
    int rc;

    if (!columns)
        return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < count; i++)
        if (take_wanted_column(&columns[i], PyList_GetItem(list, i)) < 0)
            return -1;
    rc = hy_signature_init(w, text, allows_extra, columns, (uint32_t)count);
    if (rc == -ENOMEM)
        PyErr_NoMemory();
    return rc == -EINVAL ? refuse("the columns do not fit together") : rc < 0 ? -1 : 0;
}

static int add_batches(struct hub *h, const struct hy_batch_stream_options *o, struct hy_signature *w)
{
    struct hy_batch_stream **all = hy_reallocarray(h->batches, h->batches_count + 1, sizeof *all);
    int rc = all ? 0 : -ENOMEM;

    if (all) {
        h->batches = all;
        rc = hy_batch_stream_new(h->intake, o, w, &all[h->batches_count]);
        h->batches_count += rc == 0;
    }
    hy_signature_done(w);
    if (rc == -ENOMEM)
        PyErr_NoMemory();
    return rc == -EINVAL ? refuse("there is no such queue, or a batch has no rows") : rc < 0 ? -1 : 0;
}

static PyObject *hub_batches(PyObject *self, PyObject *args)
{
    struct hub *h = (struct hub *)self;
    struct hy_batch_stream_options o = {0};
    unsigned long long rows;
    int stops, drops, allows_extra;
    struct hy_signature w = {0};
    PyObject *columns;
    const char *text;

    if (!PyArg_ParseTuple(args, "sKppspO!:batches", &o.queue, &rows, &stops, &drops, &text, &allows_extra,
                          &PyList_Type, &columns))
        return NULL;
    o.rows = rows;
    o.stop_at_partition = stops;
    o.drop_remainder = drops;
    if (take_wanted(&w, text, allows_extra, columns) < 0 || add_batches(h, &o, &w) < 0)
        return NULL;
    return PyLong_FromLongLong(hy_batch_stream_handle(h->batches[h->batches_count - 1]));
}

static PyObject *hub_is_over(PyObject *self, PyObject *number)
{
    struct hub *h = (struct hub *)self;
    const long long wanted = PyLong_AsLongLong(number);

    if (wanted == -1 && PyErr_Occurred())
        return NULL;
    if (!h->intake->hub || h->intake->is_terminated)
        return Py_NewRef(Py_True);
    for (size_t i = 0; i < h->batches_count; i++)
        if (hy_batch_stream_handle(h->batches[i]) == wanted)
            return PyBool_FromLong(hy_batch_stream_is_over(h->batches[i]));
    return Py_NewRef(Py_True);
}

/* ---- results ----------------------------------------------------------------------------- */

struct giving {
    struct hub *hub;
    uint64_t feeder;
};

/* 0: the feeder is gone, and nobody wants them. */
static int send_results(void *context, const struct hy_batch *b)
{
    const struct giving *g = context;
    const struct hy_consumer *in = g->hub->intake;
    size_t need;
    int rc;

    while ((rc = hy_feed_hub_put(in->hub, g->feeder, b, &need)) == 0) {
        Py_BEGIN_ALLOW_THREADS
        rc = hy_feed_hub_wait_for_space(in->hub, g->feeder, need, HY_PY_WAIT_SLICE_MS);
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals() < 0)
            return -1;
        if (rc < 0 || in->is_interrupted)
            break;
    }
    if (rc == -EPIPE || in->is_interrupted)
        return 0;
    if (rc == -EMSGSIZE)
        PyErr_SetString(PyExc_ValueError, "a result is larger than its ring takes_rows; give the source a larger size");
    return rc == -EMSGSIZE ? -1 : rc < 0 ? fail(g->hub, rc) : 1;
}

static int give(struct hub *h, PyObject *list)
{
    struct hy_consumer *in = h->intake;
    const Py_ssize_t n = PyList_Size(list);
    Py_ssize_t at = 0;
    int rc = 0;

    while (at < n && rc >= 0 && in->outstanding_first < in->outstanding_count) {
        struct hy_outstanding *o = &in->outstanding[in->outstanding_first];
        const Py_ssize_t count = o->rows < (uint64_t)(n - at) ? (Py_ssize_t)o->rows : n - at;
        struct giving g = {h, o->feeder};
        struct hy_pack_sink how = {.send = send_results, .context = &g, .most = hy_feed_hub_result_max(in->hub, o->feeder)};

        rc = how.most ? hy_pack_rows(&h->packer, list, at, at + count, &how) : 0;
        at += count;
        o->rows -= (uint64_t)count;
        in->outstanding_first += o->rows == 0;
    }
    if (rc >= 0 && at < n && !in->is_terminated) {
        PyErr_Format(PyExc_ValueError, "there are %zd results more than rows that want one", n - at);
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
    rc = give(h, list);
    if (leave(h, false) < 0)
        rc = -1;
    return rc < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- its end ----------------------------------------------------------------------------- */

static PyObject *hub_end(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    hy_consumer_end(((struct hub *)self)->intake);
    return Py_NewRef(Py_None);
}

static PyObject *hub_terminate(PyObject *self, PyObject *ignored)
{
    struct hub *h = (struct hub *)self;
    int rc;

    (void)ignored;
    if (!h->intake->hub || h->intake->is_terminated)
        return Py_NewRef(Py_None);
    if (is_inside(h)) {
        hy_consumer_interrupt(h->intake);
        h->is_deferred = true;
        return Py_NewRef(Py_None);
    }
    if (enter_to_end(h) < 0)
        return NULL;
    rc = terminate_now(h);
    if (leave(h, false) < 0)
        rc = -1;
    return rc < 0 ? NULL : Py_NewRef(Py_None);
}

static void done(struct hub *h)
{
    for (int i = 0; i < HY_CONSUMER_QUEUES; i++) {
        hy_unpack_end(&h->unpackings[i].unpacker);
        Py_CLEAR(h->unpackings[i].kept);
    }
    hy_float_pins_done(&h->pins);
    hy_consumer_close(h->intake);
}

/* A thread of TensorFlow's leaves when it is asked; one of Python's is told of here. */
static PyObject *hub_close(PyObject *self, PyObject *ignored)
{
    struct hub *h = (struct hub *)self;

    (void)ignored;
    if (h->visits[0].is_in || h->visits[1].is_in)
        return refuse("another thread takes rows"), NULL;
    if (!h->intake->hub)
        return Py_NewRef(Py_None);
    if (enter_to_end(h) < 0)
        return NULL;
    done(h);
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
    return PyLong_FromUnsignedLongLong(h->intake->hub ? hy_feed_hub_dropped(h->intake->hub) : 0);
}

/* ---- birth and death ----------------------------------------------------------------------- */

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
    h->intake = hy_consumer_new(hub);
    if (!h->intake)
        return fail(h, -ENOMEM);
    h->intake->requeue = requeue;
    h->intake->requeue_context = h;
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

/* Whatever thread of TensorFlow's is in: it is out within a moment, for which it may need the GIL. */
static void let_go(struct hub *h)
{
    hy_consumer_interrupt(h->intake);
    Py_BEGIN_ALLOW_THREADS
    while (hy_consumer_enter(h->intake, false, HY_PY_WAIT_SLICE_MS) == -EAGAIN)
        continue;
    Py_END_ALLOW_THREADS
    done(h);
    hy_consumer_leave(h->intake, false);
    for (size_t i = 0; i < h->batches_count; i++)
        hy_batch_stream_free(h->batches[i]);
    hy_consumer_unref(h->intake);
}

static void hub_dealloc(PyObject *self)
{
    struct hub *h = (struct hub *)self;
    PyTypeObject *type = Py_TYPE(self);

    if (h->intake)
        let_go(h);
    hy_packer_done(&h->packer);
    free(h->batches);
    Py_XDECREF(h->name);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyMethodDef methods[] = {
    {"next_rows", (PyCFunction)(void (*)(void))hub_next_rows, METH_VARARGS | METH_KEYWORDS,
     "next_rows(n, timeout=-1, queue='input', stops=False, other=-1): (rows, why there are not n of them). That is '' "
     "when there are, 'timeout', 'partition' (only with stops: one has ended), 'end', or 'other': that descriptor is "
     "ready."},
    {"next_columns", (PyCFunction)(void (*)(void))hub_next_columns, METH_VARARGS | METH_KEYWORDS,
     "next_columns(n, ...), the same: (rows, shape, columns, why). A column is (dtype, shape of a row or item, values, "
     "value_ends, row_ends). With '' there may be fewer, where others follow that have another shape. Where the shape "
     "is '*', columns is a list of rows."},
    {"next_shape", (PyCFunction)(void (*)(void))hub_next_shape, METH_VARARGS | METH_KEYWORDS,
     "next_shape(n, ...), the same: (shape, [(dtype, shape of a row or item, is_ragged), ...], why) of the rows that "
     "come next, which are not taken."},
    {"batches", hub_batches, METH_VARARGS,
     "batches(queue, rows, stops, drops, shape, allows_extra, [(name, dtype, shape or None, is_ragged), ...]): a "
     "number, by which TensorFlow's operation takes batches of these columns."},
    {"is_over", hub_is_over, METH_O, "is_over(number): has the operation been told so, or will it be?"},
    {"results", hub_results, METH_O, "results(list): one for each row, in the order in which rows were taken."},
    {"end", hub_end, METH_NOARGS, "end(): no more feeders are expected; from any thread."},
    {"terminate", hub_terminate, METH_NOARGS,
     "terminate(): it has had enough, and its feeders are told; from any thread."},
    {"close", hub_close, METH_NOARGS, NULL},
    {"__enter__", hub_enter, METH_NOARGS, NULL},
    {"__exit__", hub_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"dropped", hub_dropped, NULL, "How many feeders made no sense.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyObject *hy_py_hub_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_new, hub_new},
        {Py_tp_dealloc, hub_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, getters},
        {Py_tp_doc, (void *)"Hub(name): takes rows from the Sources of that name."},
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
