/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hub: where rows come into this process. A message is taken row by row from where
 * it lies, or column by column; what is left of it waits for the next call.
 *
 * For rows of feeders that want results it is written down whose they were, in
 * their order; results go back in the same order.
 *
 * One thread takes rows. Another may end or terminate the hub meanwhile: it wakes
 * the first, and waits until that is out. The GIL guards all of this.
 */
#include "feed.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/mem.h"
#include "feed/hub.h"
#include "feed_wait.h"

#define QUEUES 16

/* Why there are no more rows in an answer. */
static const char *const WHY_FULL = "", *const WHY_TIME = "timeout", *const WHY_PARTITION = "partition";
static const char *const WHY_END = "end", *const WHY_OTHER = "other";

struct queue {
    char name[HY_QUEUE_MAX]; /* "": not used yet */
    struct hy_taken taken;
    bool is_in_hand;
    struct hy_unpacker unpacker;
    PyObject *kept; /* rows that were taken when a signal's handler raised */
};

struct hub {
    PyObject object;
    struct hy_hub *hub; /* NULL: closed */
    PyObject *name;
    struct queue queues[QUEUES];
    struct hy_packer packer;
    struct owed {
        uint64_t feeder, rows;
    } *owed; /* results */
    size_t owed_first, owed_count, owed_room;
    int out; /* an eventfd: who was in is out */
    unsigned long busy; /* the thread that is in */
    bool is_busy, is_asked, is_terminated;
    bool is_deferred; /* who is in terminates it when it leaves: a signal's handler wanted it */
};

/* ---- who is in --------------------------------------------------------------------------- */

static const struct hy_py_state *state_of(const struct hub *h)
{
    return PyType_GetModuleState(Py_TYPE((PyObject *)(uintptr_t)h));
}

static int enter(struct hub *h)
{
    if (!h->hub || h->is_busy) {
        PyErr_SetString(PyExc_ValueError, h->hub ? "another thread takes rows" : "the hub is closed");
        return -1;
    }
    h->is_busy = true;
    h->busy = PyThread_get_thread_ident();
    return 0;
}

static int fail(const struct hub *h, int rc)
{
    if (rc == -ENOMEM)
        PyErr_NoMemory();
    else
        hy_py_error(state_of(h), "the hub '%U' cannot go on: %s", h->name, strerror(-rc));
    return -1;
}

static struct queue *queue_of(struct hub *h, const char *name)
{
    for (int i = 0; i < QUEUES && strlen(name) < HY_QUEUE_MAX; i++) {
        struct queue *q = &h->queues[i];

        if (!q->name[0])
            memcpy(q->name, name, strlen(name) + 1);
        if (strcmp(q->name, name) == 0)
            return q;
    }
    PyErr_Format(PyExc_ValueError, "there are %d queues already, or the name '%s' is too long", QUEUES, name);
    return NULL;
}

/* ---- messages ---------------------------------------------------------------------------- */

static void put_down(struct hub *h, struct queue *q)
{
    hy_unpack_end(&q->unpacker);
    if (q->is_in_hand)
        hy_hub_release(h->hub, q->taken.feeder);
    q->is_in_hand = false;
}

static int terminate_now(struct hub *h)
{
    struct hy_err err = {0};
    int rc;

    for (int i = 0; i < QUEUES; i++) {
        put_down(h, &h->queues[i]);
        Py_CLEAR(h->queues[i].kept);
    }
    h->owed_first = h->owed_count = 0;
    rc = hy_hub_terminate(h->hub, &err);
    h->is_terminated = rc == 0;
    h->is_asked = false;
    if (rc < 0)
        hy_py_raise(state_of(h), &err);
    return rc < 0 ? -1 : 0;
}

/* 0, or -1 with an exception set. */
static int leave(struct hub *h)
{
    h->is_busy = false;
    if (h->is_deferred) {
        h->is_deferred = false;
        return terminate_now(h);
    }
    if (h->is_asked)
        (void)!write(h->out, &(uint64_t){1}, sizeof(uint64_t)); /* fails only where it is readable already */
    return 0;
}

/* The message made no sense (-EBADMSG), or an exception is set (-1): it is no more. 0 or -1. */
static int give_up(struct hub *h, struct queue *q, Py_ssize_t rc)
{
    hy_unpack_end(&q->unpacker);
    if (rc == -EBADMSG && q->is_in_hand) {
        hy_hub_drop(h->hub, q->taken.feeder);
        q->is_in_hand = false;
    }
    put_down(h, q);
    return rc == -1 ? -1 : 0;
}

static int take_up(struct hub *h, struct queue *q)
{
    int rc;

    q->is_in_hand = true;
    rc = hy_unpack_begin(&q->unpacker, q->taken.batch);
    return rc < 0 ? give_up(h, q, rc) : 0;
}

/* Waits for a message. 0 when there may be one, or why not; NULL with an exception set is -1 in *ret. */
static const char *wait_for_message(struct hub *h, const struct queue *q, int other, int64_t end, int *ret)
{
    const int slice = hy_py_left_of(end);
    int rc;

    Py_BEGIN_ALLOW_THREADS
    rc = hy_hub_wait(h->hub, q->name, other, slice);
    Py_END_ALLOW_THREADS
    *ret = PyErr_CheckSignals() < 0 ? -1 : rc < 0 ? fail(h, rc) : 0;
    if (*ret < 0)
        return NULL;
    if (h->is_asked || rc == HY_HUB_OVER)
        return WHY_END;
    return rc == HY_HUB_OTHER ? WHY_OTHER : rc == HY_HUB_NOTHING && slice == 0 ? WHY_TIME : NULL;
}

struct request {
    struct queue *queue;
    unsigned long long most;
    int64_t end;
    int other;
    bool stops; /* at the end of a partition */
};

/* Until a batch is in hand. NULL then, or why there is none; -1 in *ret with an exception set. */
static const char *next_message(struct hub *h, const struct request *r, int *ret)
{
    struct queue *q = r->queue;
    const char *why = NULL;

    *ret = 0;
    while (*ret == 0 && !why && !q->is_in_hand) {
        int rc = h->is_asked || h->is_terminated ? 0 : hy_hub_next(h->hub, q->name, &q->taken);

        if (rc < 0) {
            *ret = fail(h, rc);
        } else if (rc == 0) {
            why = wait_for_message(h, q, r->other, r->end, ret);
        } else if (q->taken.is_end) {
            hy_hub_release(h->hub, q->taken.feeder);
            why = r->stops ? WHY_PARTITION : NULL;
        } else {
            *ret = take_up(h, q);
        }
    }
    return why;
}

/* ---- what is owed ------------------------------------------------------------------------ */

static int add_owed(struct hub *h, uint64_t feeder, uint64_t rows)
{
    if (h->owed_first == h->owed_count)
        h->owed_first = h->owed_count = 0;
    if (h->owed_count > h->owed_first && h->owed[h->owed_count - 1].feeder == feeder) {
        h->owed[h->owed_count - 1].rows += rows;
        return 0;
    }
    if (h->owed_first > h->owed_room / 2) {
        memmove(h->owed, h->owed + h->owed_first, (h->owed_count - h->owed_first) * sizeof *h->owed);
        h->owed_count -= h->owed_first;
        h->owed_first = 0;
    }
    if (h->owed_count == h->owed_room) {
        struct owed *owed = hy_reallocarray(h->owed, 2 * h->owed_room + 16, sizeof *owed);

        if (!owed)
            return fail(h, -ENOMEM);
        h->owed = owed;
        h->owed_room = 2 * h->owed_room + 16;
    }
    h->owed[h->owed_count++] = (struct owed){feeder, rows};
    return 0;
}

/* Rows have been taken from the message in hand; a count as hy_unpack_rows has it. 0 or -1. */
static int after_rows(struct hub *h, struct queue *q, Py_ssize_t count)
{
    int rc = 0;

    if (count < 0)
        return give_up(h, q, count);
    if (q->taken.wants_results)
        rc = add_owed(h, q->taken.feeder, (uint64_t)count);
    if (hy_unpack_is_over(&q->unpacker))
        put_down(h, q);
    return rc;
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
    r->end = hy_py_end_of(timeout);
    r->stops = stops;
    r->queue = queue_of(h, queue);
    return r->queue && enter(h) == 0 ? 0 : -1;
}

/* What was kept when the last call raised, as far as it is wanted. */
static PyObject *begin_rows(struct queue *q, Py_ssize_t most)
{
    hy_cleanup_ref PyObject *kept = hy_take(q->kept);

    if (!kept || PyList_Size(kept) <= most)
        return kept ? hy_take(kept) : PyList_New(0);
    q->kept = PyList_GetSlice(kept, most, PyList_Size(kept));
    return q->kept ? PyList_GetSlice(kept, 0, most) : NULL;
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
        rc = after_rows(h, r->queue, hy_unpack_rows(&r->queue->unpacker, list, wanted));
    }
    return rc;
}

static PyObject *hub_next_rows(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct hub *h = (struct hub *)self;
    struct request r = {0};
    PyObject *list;
    const char *why;
    int rc;

    if (parse_request(h, args, kwargs, &r) < 0)
        return NULL;
    list = begin_rows(r.queue, (Py_ssize_t)r.most);
    rc = list ? take_rows(h, &r, list, &why) : -1;
    if (leave(h) < 0)
        rc = -1;
    if (rc == 0)
        return Py_BuildValue("Ns", list, why);
    if (list && !r.queue->kept)
        r.queue->kept = hy_take(list);
    Py_XDECREF(list);
    return NULL;
}

/* ---- columns ----------------------------------------------------------------------------- */

/* Rows that were pickled have no columns: they are one list. */
static bool is_pickled(const struct queue *q)
{
    return q->unpacker.shape.nodes[0].kind == '*';
}

static int take_columns(struct hub *h, const struct request *r, struct hy_gathered *g, PyObject *list,
                        const char **ret_why)
{
    struct queue *q = r->queue;
    int rc = 0;

    *ret_why = WHY_FULL;
    while (rc == 0 && g->rows < r->most && PyList_Size(list) == 0) {
        const char *why = next_message(h, r, &rc);
        Py_ssize_t count;

        if (rc < 0 || why) {
            *ret_why = why;
            return rc;
        }
        if (is_pickled(q))
            count = g->rows ? 0 : hy_unpack_rows(&q->unpacker, list, (Py_ssize_t)r->most);
        else
            count = hy_gather(g, &q->unpacker, r->most - g->rows);
        if (count == 0 && q->unpacker.next < q->unpacker.batch->rows)
            return 0; /* rows of another shape: they are for the next call */
        rc = after_rows(h, q, count);
    }
    return rc;
}

static PyObject *hub_next_columns(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct hub *h = (struct hub *)self;
    hy_cleanup_ref PyObject *list = PyList_New(0);
    struct hy_gathered g = {0};
    struct request r = {0};
    PyObject *made = NULL;
    const char *why;
    int rc;

    if (!list || parse_request(h, args, kwargs, &r) < 0)
        return NULL;
    rc = take_columns(h, &r, &g, list, &why);
    if (leave(h) < 0)
        rc = -1;
    if (rc == 0 && PyList_Size(list))
        made = Py_BuildValue("nsOs", PyList_Size(list), "*", list, why);
    else if (rc == 0)
        made = Py_BuildValue("Ks#Ns", (unsigned long long)g.rows, g.shape ? g.shape : "", (Py_ssize_t)g.shape_n,
                             hy_gathered_columns(&g), why);
    hy_gathered_done(&g);
    return made;
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
    size_t need;
    int rc;

    while ((rc = hy_hub_put(g->hub->hub, g->feeder, b, &need)) == 0) {
        Py_BEGIN_ALLOW_THREADS
        rc = hy_hub_wait_for_room(g->hub->hub, g->feeder, need, HY_PY_SLICE_MS);
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals() < 0)
            return -1;
        if (rc < 0 || g->hub->is_asked)
            break;
    }
    if (rc == -EPIPE || g->hub->is_asked)
        return 0;
    if (rc == -EMSGSIZE)
        PyErr_SetString(PyExc_ValueError, "a result is larger than its ring takes; give the source a larger size");
    return rc == -EMSGSIZE ? -1 : rc < 0 ? fail(g->hub, rc) : 1;
}

static int give(struct hub *h, PyObject *list)
{
    const Py_ssize_t n = PyList_Size(list);
    Py_ssize_t at = 0;
    int rc = 0;

    while (at < n && rc >= 0 && h->owed_first < h->owed_count) {
        struct owed *o = &h->owed[h->owed_first];
        const Py_ssize_t count = o->rows < (uint64_t)(n - at) ? (Py_ssize_t)o->rows : n - at;
        struct giving g = {h, o->feeder};
        struct hy_packing how = {.send = send_results, .context = &g, .most = hy_hub_most(h->hub, o->feeder)};

        rc = how.most ? hy_pack_rows(&h->packer, list, at, at + count, &how) : 0;
        at += count;
        o->rows -= (uint64_t)count;
        h->owed_first += o->rows == 0;
    }
    if (rc >= 0 && at < n && !h->is_terminated) {
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

    if (!list || enter(h) < 0)
        return NULL;
    rc = give(h, list);
    if (leave(h) < 0)
        rc = -1;
    return rc < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- its end ----------------------------------------------------------------------------- */

static PyObject *hub_end(PyObject *self, PyObject *ignored)
{
    struct hub *h = (struct hub *)self;

    (void)ignored;
    if (h->hub)
        hy_hub_end(h->hub);
    return Py_NewRef(Py_None);
}

/* Who is in is asked to leave. 0, or -1 with an exception set. */
static int wait_until_out(struct hub *h)
{
    struct pollfd p = {.fd = h->out, .events = POLLIN};
    uint64_t count;

    h->is_asked = true;
    while (h->is_busy) {
        hy_hub_wake(h->hub);
        Py_BEGIN_ALLOW_THREADS
        (void)poll(&p, 1, HY_PY_SLICE_MS);
        (void)!read(h->out, &count, sizeof count);
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals() < 0)
            return -1;
    }
    return 0;
}

static PyObject *hub_terminate(PyObject *self, PyObject *ignored)
{
    struct hub *h = (struct hub *)self;

    (void)ignored;
    if (!h->hub || h->is_terminated)
        return Py_NewRef(Py_None);
    if (h->is_busy && h->busy == PyThread_get_thread_ident()) {
        h->is_asked = h->is_deferred = true;
        return Py_NewRef(Py_None);
    }
    return wait_until_out(h) < 0 || terminate_now(h) < 0 ? NULL : Py_NewRef(Py_None);
}

static void done(struct hub *h)
{
    for (int i = 0; i < QUEUES; i++) {
        hy_unpack_end(&h->queues[i].unpacker);
        h->queues[i].is_in_hand = false;
        Py_CLEAR(h->queues[i].kept);
    }
    hy_hub_close(hy_take(h->hub));
}

static PyObject *hub_close(PyObject *self, PyObject *ignored)
{
    struct hub *h = (struct hub *)self;

    (void)ignored;
    if (h->is_busy) {
        PyErr_SetString(PyExc_ValueError, "another thread takes rows");
        return NULL;
    }
    done(h);
    return Py_NewRef(Py_None);
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
    return PyLong_FromUnsignedLongLong(h->hub ? hy_hub_dropped(h->hub) : 0);
}

/* ---- birth and death ----------------------------------------------------------------------- */

static int open_hub(struct hub *h)
{
    const char *name = PyUnicode_AsUTF8AndSize(h->name, NULL);
    struct hy_err err = {0};
    int rc;

    if (!name)
        return -1;
    h->out = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (h->out < 0)
        return PyErr_SetFromErrno(PyExc_OSError), -1;
    rc = hy_hub_open(name, &h->hub, &err);
    if (rc < 0)
        hy_py_raise(state_of(h), &err);
    return rc;
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
    h->out = -1;
    h->name = Py_NewRef(name);
    if (open_hub(h) < 0)
        Py_CLEAR(self);
    return self;
}

static void hub_dealloc(PyObject *self)
{
    struct hub *h = (struct hub *)self;
    PyTypeObject *type = Py_TYPE(self);

    done(h);
    hy_packer_done(&h->packer);
    hy_close_at(&h->out);
    free(h->owed);
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
