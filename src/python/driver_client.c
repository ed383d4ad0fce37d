/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The type Driver: a connection to the driver of a run.
 *
 * Any thread may send; one at a time may wait in next(). close() wakes it.
 */
#include "module.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <structmember.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/text.h"
#include "wire/wire.h"

#define REQUEST_MAX 4096 /* bytes; a request has one text at most, which is cut to fit */
#define TEXT_MAX 2000

struct driver {
    PyObject object;
    PyObject *run; /* its number if submit() has started it; None: not known */
    int fd; /* -1: the driver had ended before it was connected to */
    bool is_closed, is_waiting;
    pthread_mutex_t sending;
    struct hy_buf rest, message; /* of next() */
};

static const struct hy_py_state *state_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

/* ---- life cycle ----------------------------------------------------------------- */

static struct driver *connect_to(PyTypeObject *type, const char *socket, struct hy_err *err)
{
    struct driver *d = (struct driver *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);

    if (!d)
        return NULL;
    Py_BEGIN_ALLOW_THREADS; /* a driver that is stopped may not accept */
    d->fd = hy_local_connect(socket, err);
    Py_END_ALLOW_THREADS;
    d->run = Py_NewRef(Py_None);
    pthread_mutex_init(&d->sending, NULL);
    hy_buf_init(&d->rest, HY_LOCAL_MAX + 65536);
    hy_buf_init(&d->message, HY_LOCAL_MAX);
    return d;
}

static PyObject *driver_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"socket", NULL};
    struct hy_err err = {0};
    struct driver *d;
    PyObject *path;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&:Driver", (char **)names, PyUnicode_FSConverter, &path))
        return NULL;
    d = connect_to(type, PyBytes_AsString(path), &err);
    if (d && d->fd < 0) {
        hy_py_raise(state_of((PyObject *)d), &err);
        Py_CLEAR(d);
    }
    Py_DECREF(path);
    return (PyObject *)d;
}

/* A short run may have ended before it is connected to. */
static PyObject *driver_submit(PyObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *started = hy_py_submit(PyType_GetModuleState((PyTypeObject *)type), args, kwargs), *run, *path = NULL;
    struct driver *d = NULL;
    struct hy_err err = {0};

    if (started && PyArg_ParseTuple(started, "OO&", &run, PyUnicode_FSConverter, &path))
        d = connect_to((PyTypeObject *)type, PyBytes_AsString(path), &err);
    if (d) {
        Py_DECREF(d->run);
        d->run = Py_NewRef(run);
    }
    Py_XDECREF(path);
    Py_XDECREF(started);
    return (PyObject *)d;
}

static void driver_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    struct driver *d = (struct driver *)self;

    if (d->fd >= 0)
        close(d->fd);
    Py_XDECREF(d->run);
    pthread_mutex_destroy(&d->sending);
    hy_buf_done(&d->rest);
    hy_buf_done(&d->message);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* The descriptor is closed with the object: another thread may be using it. */
static PyObject *driver_close(PyObject *self, PyObject *ignored)
{
    struct driver *d = (struct driver *)self;

    (void)ignored;
    d->is_closed = true;
    if (d->fd < 0)
        return Py_NewRef(Py_None);
    if (shutdown(d->fd, SHUT_RDWR) < 0 && errno != ENOTCONN)
        return PyErr_SetFromErrno(PyExc_OSError);
    return Py_NewRef(Py_None);
}

/* ---- requests --------------------------------------------------------------------- */

static PyObject *put(PyObject *self, const Hy__ClientRequest *request)
{
    struct driver *d = (struct driver *)self;
    size_t n = hy__client_request__get_packed_size(request);
    uint8_t bytes[REQUEST_MAX];
    int rc;

    if (d->fd < 0)
        return Py_NewRef(Py_False);
    if (n > sizeof bytes)
        return hy_py_error(state_of(self), "a request to the driver has %zu bytes (the limit is %zu)", n, sizeof bytes);
    hy__client_request__pack(request, bytes);
    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&d->sending);
    rc = hy_local_put(d->fd, bytes, n);
    pthread_mutex_unlock(&d->sending);
    Py_END_ALLOW_THREADS;
    if (rc == -EPIPE || rc == -ECONNRESET || (rc < 0 && d->is_closed))
        return Py_NewRef(Py_False);
    if (rc < 0)
        return hy_py_error(state_of(self), "cannot send to the driver: %s", strerror(-rc));
    return Py_NewRef(Py_True);
}

static PyObject *driver_watch(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"only_last", NULL};
    Hy__ClientRequest request = HY__CLIENT_REQUEST__INIT;
    Hy__Watch watch = HY__WATCH__INIT;
    int only_last = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p:watch", (char **)names, &only_last))
        return NULL;
    watch.only_last = only_last;
    request.body_case = HY__CLIENT_REQUEST__BODY_WATCH;
    request.watch = &watch;
    return put(self, &request);
}

static PyObject *driver_stop(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"feed", NULL};
    Hy__ClientRequest request = HY__CLIENT_REQUEST__INIT;
    Hy__StopRun stop = HY__STOP_RUN__INIT;
    int feed = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p:stop", (char **)names, &feed))
        return NULL;
    stop.feed = feed;
    request.body_case = HY__CLIENT_REQUEST__BODY_STOP;
    request.stop = &stop;
    return put(self, &request);
}

static PyObject *driver_hold_feed(PyObject *self, PyObject *ignored)
{
    Hy__ClientRequest request = HY__CLIENT_REQUEST__INIT;
    Hy__Announce announce = HY__ANNOUNCE__INIT;

    (void)ignored;
    announce.feeds = true;
    request.body_case = HY__CLIENT_REQUEST__BODY_ANNOUNCE;
    request.announce = &announce;
    return put(self, &request);
}

/* Cut at a character's beginning. */
static void cut(char *ret, size_t size, const char *text)
{
    size_t n = strlen(text);

    if (n >= size)
        for (n = size - 1; n && ((unsigned char)text[n] & 0xc0) == 0x80;)
            n--;
    memcpy(ret, text, n);
    ret[n] = '\0';
}

static PyObject *driver_supply(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"what", "agents", "parallel", "note", "more", NULL};
    Hy__ClientRequest request = HY__CLIENT_REQUEST__INIT;
    Hy__Supply supply = HY__SUPPLY__INIT;
    const char *what, *note = "";
    char note_text[TEXT_MAX], what_text[500];
    unsigned agents, parallel = 0;
    int more = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sI|Isp:supply", (char **)names, &what, &agents, &parallel, &note,
                                     &more))
        return NULL;
    cut(what_text, sizeof what_text, what);
    cut(note_text, sizeof note_text, note);
    supply.what = what_text;
    supply.note = note_text;
    supply.agents = agents;
    supply.parallel = parallel;
    supply.more = more;
    request.body_case = HY__CLIENT_REQUEST__BODY_SUPPLY;
    request.supply = &supply;
    return put(self, &request);
}

static PyObject *driver_agent_ended(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"agent", "why", "lives", "died", NULL};
    Hy__ClientRequest request = HY__CLIENT_REQUEST__INIT;
    Hy__AgentOver over = HY__AGENT_OVER__INIT;
    unsigned long long agent;
    int lives = 0, died = 0;
    char why_text[TEXT_MAX];
    const char *why;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "Ks|pp:agent_ended", (char **)names, &agent, &why, &lives, &died))
        return NULL;
    cut(why_text, sizeof why_text, why);
    over.id = agent;
    over.why = why_text;
    over.lives = lives;
    over.died = died;
    request.body_case = HY__CLIENT_REQUEST__BODY_OVER;
    request.over = &over;
    return put(self, &request);
}

/* ---- events ----------------------------------------------------------------------- */

/* None: no trial has a metric yet. */
static PyObject *best_of(const Hy__TrialView *best)
{
    if (!best)
        return Py_NewRef(Py_None);
    return Py_BuildValue("{sKsssdsssLsI}", "number", (unsigned long long)best->number, "params", best->params, "value",
                         best->value, "dir", best->dir, "elapsed_ms", (long long)best->elapsed_ms, "attempt",
                         (unsigned)best->attempt);
}

/* None: only the store has them. */
static PyObject *notes_of(const Hy__Update *u)
{
    PyObject *notes;

    if (!u->has_all_notes)
        return Py_NewRef(Py_None);
    notes = PyList_New((Py_ssize_t)u->n_all_notes);
    for (size_t i = 0; notes && i < u->n_all_notes; i++) {
        PyObject *text = PyUnicode_DecodeUTF8(u->all_notes[i], (Py_ssize_t)strlen(u->all_notes[i]), "replace");

        if (!text || PyList_SetItem(notes, (Py_ssize_t)i, text) < 0)
            Py_CLEAR(notes);
    }
    return notes;
}

static PyObject *update_event(const Hy__Update *u)
{
    PyObject *best = best_of(u->best), *notes = notes_of(u), *event = NULL;

    if (best && notes)
        event = Py_BuildValue("{s{sLsssssssOsKsKsKsKsKsKsLsssOsssOsOsO}}", "update", "run", (long long)u->run, "name",
                              u->name, "state", u->state, "metric", u->metric, "maximize",
                              u->maximize ? Py_True : Py_False, "done", (unsigned long long)u->done, "failed",
                              (unsigned long long)u->failed, "stopped", (unsigned long long)u->stopped, "pruned",
                              (unsigned long long)u->pruned, "paused", (unsigned long long)u->paused, "running",
                              (unsigned long long)u->running_count, "total", (long long)u->total, "message", u->message,
                              "last", u->last ? Py_True : Py_False, "logdir", u->logdir, "nodes_joined",
                              u->nodes_joined ? Py_True : Py_False, "best", best, "notes", notes);
    Py_XDECREF(best);
    Py_XDECREF(notes);
    return event;
}

static PyObject *order_event(const Hy__AgentOrder *o)
{
    char key[2 * HY_KEY_SIZE + 1] = "", join[320];
    PyObject *event;

    for (size_t i = 0; i < o->key.len && i < HY_KEY_SIZE; i++)
        snprintf(key + 2 * i, 3, "%02x", o->key.data[i]);
    hy_format_host_port(o->address, (uint16_t)o->port, join, sizeof join);
    event = Py_BuildValue("{sKssssssss}", "start", (unsigned long long)o->id, "name", o->name, "identity", o->identity,
                          "key", key, "join", join);
    explicit_bzero(key, sizeof key);
    return event;
}

static PyObject *event_of(const struct hy_py_state *state, const Hy__ClientAnswer *answer)
{
    switch (answer->body_case) {
    case HY__CLIENT_ANSWER__BODY_UPDATE:
        return update_event(answer->update);
    case HY__CLIENT_ANSWER__BODY_START:
        return order_event(answer->start);
    case HY__CLIENT_ANSWER__BODY_STOP:
        return Py_BuildValue("{sK}", "stop", (unsigned long long)answer->stop);
    case HY__CLIENT_ANSWER__BODY_NOTICE:
        return Py_BuildValue("{ss}", "notice", answer->notice);
    case HY__CLIENT_ANSWER__BODY_ERROR:
        return hy_py_error(state, "%s", answer->error);
    default:
        return PyDict_New(); /* of a newer driver */
    }
}

/* As hy_local_get; -EINTR only when a signal handler has raised. */
static int receive(struct driver *d, double timeout)
{
    const int64_t until = timeout < 0 ? INT64_MAX : hy_clock_ms() + (int64_t)(timeout * 1000);
    int rc;

    do {
        int64_t left = timeout < 0 ? -1 : until - hy_clock_ms();

        Py_BEGIN_ALLOW_THREADS;
        rc = hy_local_get(d->fd, &d->rest, &d->message,
                          timeout < 0        ? -1
                          : left > INT32_MAX ? INT32_MAX
                          : left > 0         ? (int)left
                                             : 0);
        Py_END_ALLOW_THREADS;
    } while (rc == -EINTR && PyErr_CheckSignals() == 0);
    return rc;
}

static PyObject *driver_next(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"timeout", NULL};
    struct driver *d = (struct driver *)self;
    Hy__ClientAnswer *answer;
    PyObject *given = Py_None, *event;
    double timeout = -1;
    int rc;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:next", (char **)names, &given))
        return NULL;
    if (given != Py_None && (timeout = PyFloat_AsDouble(given)) < 0 && PyErr_Occurred())
        return NULL;
    if (given != Py_None && !(timeout >= 0 && timeout < 1e9))
        timeout = timeout < 0 ? 0 : 1e9;
    if (d->fd < 0)
        return Py_NewRef(Py_None);
    if (d->is_waiting)
        return hy_py_error(state_of(self), "another thread waits for events of this driver");
    d->is_waiting = true;
    rc = receive(d, timeout);
    d->is_waiting = false;
    if (rc == -EINTR)
        return NULL;
    if (rc == -EAGAIN) {
        PyErr_SetString(PyExc_TimeoutError, "no event of the driver within the timeout");
        return NULL;
    }
    if (rc == 0 || rc == -ECONNRESET || d->is_closed)
        return Py_NewRef(Py_None);
    if (rc < 0)
        return hy_py_error(state_of(self), "cannot receive from the driver: %s", strerror(-rc));
    answer = hy__client_answer__unpack(NULL, d->message.len, hy_buf_bytes(&d->message));
    if (!answer)
        return hy_py_error(state_of(self), "the driver has sent an invalid message");
    event = event_of(state_of(self), answer);
    hy__client_answer__free_unpacked(answer, NULL);
    return event;
}

/* ---- the type ----------------------------------------------------------------------- */

static PyMemberDef members[] = {
    {"run", T_OBJECT_EX, offsetof(struct driver, run), READONLY, "The number of a run that submit() has started."},
    {0},
};

static PyMethodDef methods[] = {
    {"submit", (PyCFunction)(void (*)(void))driver_submit, METH_CLASS | METH_VARARGS | METH_KEYWORDS,
     "Starts a run and connects to its driver. Raises an Error whose `option` is the name of an invalid option."},
    {"watch", (PyCFunction)(void (*)(void))driver_watch, METH_VARARGS | METH_KEYWORDS,
     "Requests updates, ten a second at most, or only the last one."},
    {"next", (PyCFunction)(void (*)(void))driver_next, METH_VARARGS | METH_KEYWORDS,
     "The next event; None when the connection has ended; TimeoutError after `timeout` seconds."},
    {"stop", (PyCFunction)(void (*)(void))driver_stop, METH_VARARGS | METH_KEYWORDS,
     "Stops the run, or only its feed."},
    {"hold_feed", driver_hold_feed, METH_NOARGS, "Rows are fed as long as this connection exists."},
    {"supply", (PyCFunction)(void (*)(void))driver_supply, METH_VARARGS | METH_KEYWORDS,
     "Offers to start agents; orders follow as events."},
    {"agent_ended", (PyCFunction)(void (*)(void))driver_agent_ended, METH_VARARGS | METH_KEYWORDS,
     "Reports the end of an agent that was started by an order."},
    {"close", driver_close, METH_NOARGS, "Ends the connection; next() returns None."},
    {NULL, NULL, 0, NULL},
};

PyObject *hy_py_driver_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_new, driver_new},
        {Py_tp_dealloc, driver_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_members, members},
        {Py_tp_doc,
         (void *)"Driver(socket): a connection to the driver of a run. Requests return False if it has ended."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "hopyard._hopyard.Driver",
        .basicsize = sizeof(struct driver),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };

    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
