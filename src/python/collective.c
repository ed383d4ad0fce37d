/* SPDX-License-Identifier: Apache-2.0 */
/* The group of this process, for hopyard.collective and hopyard.hvd. */
#include "module.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "collective/collective.h"
#include "current_group.h"

#define TICKET "hopyard.ticket"

/* An output whose size is only known when the request has completed. */
struct output {
    void *bytes;
    size_t size;
    uint32_t dim_count;
    int64_t dims[HY_DIMS_MAX];
};

/* A request; its buffers are held until it has completed. */
struct ticket {
    int64_t number;        /* 0: it has been waited for */
    Py_buffer *views;      /* inputs, then outputs */
    size_t view_count;
    struct output *outputs;
    size_t output_count;
    struct ticket *next;   /* in `orphans` */
};

/* Requests whose capsule is gone; their buffers are in use until they have completed. Guarded by the GIL. */
static struct ticket *orphans;

#define SIGNAL_CHECK_MS 100 /* how often a wait checks for signals */

static const char *kind_of(int code)
{
    switch (code) {
    case -EBADMSG:
        return "mismatch";
    case -EDEADLK:
        return "deadlock";
    case -ECONNABORTED:
        return "lost";
    case -ENOTCONN:
        return "not initialized";
    default:
        return "invalid";
    }
}

static PyObject *raise_group(const struct hy_py_state *state, const struct hy_err *err)
{
    PyObject *error, *kind;

    if (err->code == -ENOMEM)
        return PyErr_NoMemory();
    error = PyObject_CallFunction(state->group_error, "s", err->text);
    kind = error ? PyUnicode_FromString(kind_of(err->code)) : NULL;
    if (kind && PyObject_SetAttrString(error, "kind", kind) == 0)
        PyErr_SetObject(state->group_error, error);
    Py_XDECREF(kind);
    Py_XDECREF(error);
    return NULL;
}

/* The group, or NULL with an exception set. */
static struct hy_group *hold_group(const struct hy_py_state *state)
{
    struct hy_group *g = hy_current_group_hold();

    if (!g)
        raise_group(state,
                    &(struct hy_err){.code = -ENOTCONN, .text = "Horovod has not been initialized; use hvd.init()."});
    return g;
}

/* ---- joining and leaving ------------------------------------------------------------ */

PyObject *hy_py_group_join(PyObject *module, PyObject *ignored)
{
    const struct hy_py_state *state = PyModule_GetState(module);
    struct hy_err err = {0};
    PyThreadState *thread;
    int rc;

    (void)ignored;
    thread = PyEval_SaveThread();
    rc = hy_current_group_join(hy_py_is_interrupted, &thread, &err);
    PyEval_RestoreThread(thread);
    if (rc == -EINTR)
        return NULL;
    return rc < 0 ? raise_group(state, &err) : Py_NewRef(Py_None);
}

static void reap_orphans(void);

PyObject *hy_py_group_leave(PyObject *module, PyObject *ignored)
{
    (void)module;
    (void)ignored;
    Py_BEGIN_ALLOW_THREADS hy_current_group_leave();
    Py_END_ALLOW_THREADS reap_orphans(); /* all have completed now */
    return Py_NewRef(Py_None);
}

PyObject *hy_py_group_joined(PyObject *module, PyObject *ignored)
{
    struct hy_group *g = hy_current_group_hold();

    (void)module;
    (void)ignored;
    if (g)
        hy_current_group_release();
    return PyBool_FromLong(g != NULL);
}

static unsigned is_homogeneous(const struct hy_group *g)
{
    return hy_group_is_homogeneous(g);
}

static unsigned is_outdated(const struct hy_group *g)
{
    return hy_group_is_outdated(g);
}

PyObject *hy_py_group_query(PyObject *module, PyObject *arg)
{
    static unsigned (*const answers[])(const struct hy_group *) = {
        hy_group_rank,       hy_group_size,       hy_group_local_rank, hy_group_local_size,
        hy_group_cross_rank, hy_group_cross_size, is_homogeneous,      is_outdated,
    };
    const struct hy_py_state *state = PyModule_GetState(module);
    long what = PyLong_AsLong(arg);
    struct hy_group *g;
    unsigned answer;

    if (what == -1 && PyErr_Occurred())
        return NULL;
    if (what < 0 || (size_t)what >= HY_COUNT(answers))
        return hy_py_error(state, "unknown query %ld", what);
    g = hold_group(state);
    if (!g)
        return NULL;
    answer = answers[what](g);
    hy_current_group_release();
    return PyLong_FromUnsignedLong(answer);
}

/* ---- requests ------------------------------------------------------------------------- */

static void ticket_free(struct ticket *t)
{
    for (size_t i = 0; i < t->view_count; i++)
        PyBuffer_Release(&t->views[i]);
    for (size_t i = 0; i < t->output_count; i++)
        free(t->outputs[i].bytes);
    free(t->views);
    free(t->outputs);
    free(t);
}

/* Called by the thread of the group. */
static void *allocate(void *arg, size_t tensor, const int64_t *dims, uint32_t dim_count, size_t bytes)
{
    struct ticket *t = arg;
    struct output *out = tensor < t->output_count ? &t->outputs[tensor] : NULL;

    if (!out)
        return NULL;
    memcpy(out->dims, dims, dim_count * sizeof *dims);
    out->dim_count = dim_count;
    out->size = bytes;
    out->bytes = hy_malloc(bytes + 1);
    return out->bytes;
}

static int set_dims(PyObject *shape, struct hy_tensor *t)
{
    Py_ssize_t n = PySequence_Size(shape);

    if (n < 0)
        return -1;
    if (n > HY_DIMS_MAX) {
        PyErr_SetString(PyExc_ValueError, "too many dimensions");
        return -1;
    }
    t->dim_count = (uint32_t)n;
    for (Py_ssize_t d = 0; d < n; d++) {
        PyObject *item = PySequence_GetItem(shape, d);

        if (!item)
            return -1;
        t->dims[d] = PyLong_AsLongLong(item);
        Py_DECREF(item);
        if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

/* Adds a buffer to the ticket. Its memory, or NULL with an exception set. */
static void *add_view(struct ticket *t, PyObject *array, int flags)
{
    Py_buffer *v = &t->views[t->view_count];

    if (PyObject_GetBuffer(array, v, PyBUF_C_CONTIGUOUS | flags) < 0)
        return NULL;
    t->view_count++;
    return v->buf ? v->buf : (void *)v; /* an empty one may have no memory */
}

static int check_size(const struct ticket *t, size_t view_index, const struct hy_tensor *tensor, enum hy_type type)
{
    size_t bytes = hy_type_size(type);

    for (uint32_t d = 0; d < tensor->dim_count; d++)
        if (tensor->dims[d] < 0 || __builtin_mul_overflow(bytes, (size_t)tensor->dims[d], &bytes))
            bytes = SIZE_MAX;
    if ((size_t)t->views[view_index].len == bytes)
        return 0;
    PyErr_SetString(PyExc_ValueError, "the size of a buffer does not match its shape");
    return -1;
}

/* 0, or -1 with an exception. `arrays`, `outs` (or None) and `shapes` are sequences of the same length. */
static int set_tensors(struct ticket *t, struct hy_tensor *tensors, size_t count, PyObject *arrays, PyObject *outs,
                       PyObject *shapes, enum hy_type type)
{
    for (size_t i = 0; i < count; i++) {
        PyObject *array = PySequence_GetItem(arrays, (Py_ssize_t)i), *shape = PySequence_GetItem(shapes, (Py_ssize_t)i);
        PyObject *out = outs == Py_None ? NULL : PySequence_GetItem(outs, (Py_ssize_t)i);
        int bad = !array || !shape || (outs != Py_None && !out) || set_dims(shape, &tensors[i]) < 0 ||
                  !(tensors[i].in = add_view(t, array, 0)) || check_size(t, t->view_count - 1, &tensors[i], type) < 0 ||
                  (out && (!(tensors[i].out = add_view(t, out, PyBUF_WRITABLE)) ||
                           check_size(t, t->view_count - 1, &tensors[i], type) < 0));

        Py_XDECREF(array);
        Py_XDECREF(shape);
        Py_XDECREF(out);
        if (bad)
            return -1;
    }
    return 0;
}

static void finish(struct ticket *t, int64_t *ret_result, struct hy_err *err)
{
    struct hy_group *g;
    int64_t number = t->number;

    t->number = 0;
    Py_BEGIN_ALLOW_THREADS g = hy_current_group_hold();
    *ret_result = g ? hy_group_wait(g, number, err) : -ECONNABORTED;
    if (g)
        hy_current_group_release();
    else
        hy_err_set(err, -ECONNABORTED, "this rank has left the group");
    Py_END_ALLOW_THREADS
}

static bool is_over(const struct ticket *t)
{
    struct hy_group *g = hy_current_group_hold();
    bool over = !g || hy_group_poll(g, t->number);

    if (g)
        hy_current_group_release();
    return over;
}

/* Frees those that have completed, without waiting for the others. */
static void reap_orphans(void)
{
    struct ticket *next, *list = orphans;
    struct hy_err err;
    int64_t result;

    orphans = NULL;
    for (struct ticket *t = list; t; t = next) {
        next = t->next;
        if (is_over(t)) {
            finish(t, &result, &err);
            ticket_free(t);
        } else {
            t->next = orphans;
            orphans = t;
        }
    }
}

static void add_orphan(struct ticket *t)
{
    t->next = orphans;
    orphans = t;
    reap_orphans();
}

static void capsule_free(PyObject *capsule)
{
    struct ticket *t = PyCapsule_GetPointer(capsule, TICKET);

    if (t->number)
        add_orphan(t);
    else
        ticket_free(t);
}

/* 0 when it has completed; -1 when a signal handler has raised. It can be waited for again then. */
static int wait_interruptibly(const struct ticket *t)
{
    struct hy_group *g;
    int over;

    do {
        Py_BEGIN_ALLOW_THREADS g = hy_current_group_hold();
        over = g ? hy_group_await(g, t->number, SIGNAL_CHECK_MS) : 1;
        if (g)
            hy_current_group_release();
        Py_END_ALLOW_THREADS if (!over && PyErr_CheckSignals() < 0) return -1;
    } while (!over);
    return 0;
}

/* Consumes the ticket. */
static PyObject *start(const struct hy_py_state *state, struct ticket *t, struct hy_request *r)
{
    struct hy_group *g = hold_group(state);
    struct hy_err err = {0};
    PyObject *capsule;

    if (!g) {
        ticket_free(t);
        return NULL;
    }
    reap_orphans();
    r->allocate = allocate;
    r->arg = t;
    t->number = hy_group_start(g, r, &err);
    hy_current_group_release();
    if (t->number < 0) {
        ticket_free(t);
        return raise_group(state, &err);
    }
    capsule = PyCapsule_New(t, TICKET, capsule_free);
    if (!capsule)
        add_orphan(t);
    return capsule;
}

static int parse_int64_list(PyObject *splits, int64_t **ret, size_t *ret_count)
{
    Py_ssize_t n = splits == Py_None ? 0 : PySequence_Size(splits);

    if (splits == Py_None)
        return 0;
    *ret = n < 0 ? NULL : hy_calloc((size_t)n + 1, sizeof **ret);
    if (!*ret)
        return n < 0 ? -1 : (PyErr_NoMemory(), -1);
    *ret_count = (size_t)n;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(splits, i);

        if (!item)
            return -1;
        (*ret)[i] = PyLong_AsLongLong(item);
        Py_DECREF(item);
        if (PyErr_Occurred())
            return -1;
    }
    return 0;
}

PyObject *hy_py_group_start(PyObject *module, PyObject *args)
{
    const struct hy_py_state *state = PyModule_GetState(module);
    struct hy_request r = {0};
    PyObject *arrays, *outs, *shapes, *splits, *ret = NULL;
    hy_cleanup_free struct hy_tensor *tensors = NULL;
    hy_cleanup_free int64_t *list = NULL;
    unsigned kind, type, op;
    struct ticket *t;
    Py_ssize_t count;

    if (!PyArg_ParseTuple(args, "IsIIIIddOOOO:group_start", &kind, &r.name, &type, &op, &r.set, &r.root, &r.prescale,
                          &r.postscale, &arrays, &outs, &shapes, &splits))
        return NULL;
    r.kind = kind, r.type = type, r.op = op;
    count = PySequence_Size(arrays);
    if (count < 0)
        return NULL;
    if (type >= HY_TYPES || parse_int64_list(splits, &list, &r.split_count) < 0)
        return PyErr_Occurred() ? NULL : hy_py_error(state, "unknown type %u", type);
    t = hy_calloc(1, sizeof *t);
    tensors = hy_calloc((size_t)count + 1, sizeof *tensors);
    if (!t || !tensors) {
        free(t);
        return PyErr_NoMemory();
    }
    t->views = hy_calloc(2 * (size_t)count + 1, sizeof *t->views);
    t->output_count = outs == Py_None ? (size_t)count + 1 : 0;
    t->outputs = hy_calloc(t->output_count + 1, sizeof *t->outputs);
    r.tensors = tensors;
    r.tensor_count = (size_t)count;
    r.splits = list;
    if (!t->views || !t->outputs)
        PyErr_NoMemory();
    else if (set_tensors(t, tensors, r.tensor_count, arrays, outs, shapes, type) == 0)
        return start(state, t, &r);
    ticket_free(t);
    return ret;
}

/* (shape, bytes) */
static PyObject *output_pair(const struct output *out)
{
    PyObject *shape = PyTuple_New(out->dim_count), *bytes, *pair;

    for (uint32_t d = 0; shape && d < out->dim_count; d++) {
        PyObject *n = PyLong_FromLongLong(out->dims[d]);

        if (!n || PyTuple_SetItem(shape, d, n) < 0) {
            Py_DECREF(shape);
            return NULL;
        }
    }
    bytes = shape ? PyByteArray_FromStringAndSize(out->bytes, (Py_ssize_t)out->size) : NULL;
    pair = bytes ? PyTuple_Pack(2, shape, bytes) : NULL;
    Py_XDECREF(bytes);
    Py_XDECREF(shape);
    return pair;
}

static PyObject *outputs_list(const struct ticket *t)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < t->output_count; i++) {
        PyObject *pair = t->outputs[i].bytes ? output_pair(&t->outputs[i]) : NULL;

        if (!t->outputs[i].bytes)
            break;
        if (!pair || PyList_Append(list, pair) < 0)
            Py_CLEAR(list);
        Py_XDECREF(pair);
    }
    return list;
}

static struct ticket *ticket_of(const struct hy_py_state *state, PyObject *capsule)
{
    struct ticket *t = PyCapsule_GetPointer(capsule, TICKET);

    if (t && !t->number) {
        hy_py_error(state, "this request has already been waited for");
        return NULL;
    }
    return t;
}

PyObject *hy_py_group_wait(PyObject *module, PyObject *capsule)
{
    const struct hy_py_state *state = PyModule_GetState(module);
    struct ticket *t = ticket_of(state, capsule);
    struct hy_err err = {0};
    PyObject *list, *ret;
    int64_t result;

    if (!t || wait_interruptibly(t) < 0)
        return NULL;
    if (!ticket_of(state, capsule)) /* another thread has waited for it meanwhile */
        return NULL;
    finish(t, &result, &err);
    if (result < 0)
        return raise_group(state, &err);
    list = outputs_list(t);
    ret = list ? Py_BuildValue("LO", (long long)result, list) : NULL;
    Py_XDECREF(list);
    return ret;
}

PyObject *hy_py_group_poll(PyObject *module, PyObject *capsule)
{
    const struct hy_py_state *state = PyModule_GetState(module);
    struct ticket *t = ticket_of(state, capsule);
    struct hy_group *g = t ? hold_group(state) : NULL;
    int over;

    if (!g)
        return NULL;
    over = hy_group_poll(g, t->number);
    hy_current_group_release();
    return PyBool_FromLong(over);
}

/* ---- process sets ------------------------------------------------------------------------ */

PyObject *hy_py_group_set_add(PyObject *module, PyObject *ranks)
{
    const struct hy_py_state *state = PyModule_GetState(module);
    hy_cleanup_free int64_t *list = NULL;
    hy_cleanup_free unsigned *members = NULL;
    struct hy_err err = {0};
    struct hy_group *g;
    size_t count = 0;
    int64_t number;

    if (parse_int64_list(ranks, &list, &count) < 0)
        return NULL;
    members = hy_calloc(count + 1, sizeof *members);
    if (!members)
        return PyErr_NoMemory();
    for (size_t i = 0; i < count; i++)
        members[i] = list[i] >= 0 && list[i] < INT32_MAX ? (unsigned)list[i] : INT32_MAX;
    g = hold_group(state);
    if (!g)
        return NULL;
    Py_BEGIN_ALLOW_THREADS number = hy_group_set_add(g, members, count, &err);
    hy_current_group_release();
    Py_END_ALLOW_THREADS return number < 0 ? raise_group(state, &err) : PyLong_FromLongLong(number);
}

PyObject *hy_py_group_set_remove(PyObject *module, PyObject *arg)
{
    const struct hy_py_state *state = PyModule_GetState(module);
    unsigned long set = PyLong_AsUnsignedLong(arg);
    struct hy_err err = {0};
    struct hy_group *g = PyErr_Occurred() ? NULL : hold_group(state);
    int rc;

    if (!g)
        return NULL;
    Py_BEGIN_ALLOW_THREADS rc = hy_group_set_remove(g, set < HY_SETS_MAX ? (uint32_t)set : HY_SETS_MAX, &err);
    hy_current_group_release();
    Py_END_ALLOW_THREADS return rc < 0 ? raise_group(state, &err) : Py_NewRef(Py_None);
}

PyObject *hy_py_group_set_members(PyObject *module, PyObject *arg)
{
    const struct hy_py_state *state = PyModule_GetState(module);
    unsigned long set = PyLong_AsUnsignedLong(arg);
    struct hy_group *g = PyErr_Occurred() ? NULL : hold_group(state);
    unsigned members[HY_RANKS_MAX];
    PyObject *list;
    int count;

    if (!g)
        return NULL;
    count = hy_group_set_members(g, set < HY_SETS_MAX ? (uint32_t)set : HY_SETS_MAX, members, HY_RANKS_MAX);
    hy_current_group_release();
    if (count < 0)
        return hy_py_error(state, "there is no process set %lu", set);
    list = PyList_New(0);
    for (int i = 0; list && i < count; i++) {
        PyObject *rank = PyLong_FromUnsignedLong(members[i]);

        if (!rank || PyList_Append(list, rank) < 0)
            Py_CLEAR(list);
        Py_XDECREF(rank);
    }
    return list;
}

/* ---- the timeline -------------------------------------------------------------------------- */

PyObject *hy_py_group_timeline_start(PyObject *module, PyObject *args)
{
    const struct hy_py_state *state = PyModule_GetState(module);
    struct hy_err err = {0};
    struct hy_group *g;
    const char *path;
    int cycles, rc;

    if (!PyArg_ParseTuple(args, "sp:group_timeline_start", &path, &cycles))
        return NULL;
    g = hold_group(state);
    if (!g)
        return NULL;
    rc = hy_group_timeline_start(g, path, cycles, &err);
    hy_current_group_release();
    return rc < 0 ? raise_group(state, &err) : Py_NewRef(Py_None);
}

PyObject *hy_py_group_timeline_stop(PyObject *module, PyObject *ignored)
{
    const struct hy_py_state *state = PyModule_GetState(module);
    struct hy_err err = {0};
    struct hy_group *g = hold_group(state);
    int rc;

    (void)ignored;
    if (!g)
        return NULL;
    rc = hy_group_timeline_stop(g, &err);
    hy_current_group_release();
    return rc < 0 ? raise_group(state, &err) : Py_NewRef(Py_None);
}
