/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The type File: an open file, unbuffered and without a position. python/hopyard/_base/files.py
 * adds those.
 *
 * Threads may read from one file concurrently, and one may close it meanwhile: the
 * last read closes it then. A file for writing is used by one thread at a time; a
 * second one gets an error instead of blocking where no signal reaches it. The GIL
 * guards the count.
 */
#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "files.h"
#include "fs/fs.h"

struct file {
    PyObject object;
    struct hy_fs_file *file; /* NULL: closed */
    PyObject *url;           /* bytes */
    int users;               /* calls in progress */
    bool is_input, is_closing;
};

static const struct hy_py_state *state_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

/* ---- concurrent use --------------------------------------------------------- */

static int check_not_busy(const struct file *f)
{
    const struct hy_err err = {.text = "another thread is writing to the file; use it from one thread at a time"};

    return f->users ? hy_py_file_check(state_of((PyObject *)f), -EBUSY, &err, f->url) : 0;
}

static int enter(struct file *f)
{
    if (!f->file || f->is_closing) {
        PyErr_SetString(PyExc_ValueError, "the file is closed");
        return -1;
    }
    if (!f->is_input && check_not_busy(f) < 0)
        return -1;
    f->users++;
    return 0;
}

static int close_now(struct file *f)
{
    struct hy_fs_file *file = hy_take(f->file);
    struct hy_err err = {0};
    int rc;

    Py_BEGIN_ALLOW_THREADS rc = hy_fs_close(file, &err);
    Py_END_ALLOW_THREADS return hy_py_file_check(state_of((PyObject *)f), rc, &err, f->url);
}

/* 0, or -1 with an exception set: that of the call, or of a close that was deferred until its end. */
static int leave(struct file *f, int64_t rc, const struct hy_err *err)
{
    int failed = hy_py_file_check(state_of((PyObject *)f), rc, err, f->url);

    if (--f->users == 0 && f->is_closing && close_now(f) < 0)
        failed = -1;
    return failed;
}

static PyObject *file_close(PyObject *self, PyObject *ignored)
{
    struct file *f = (struct file *)self;

    (void)ignored;
    if (!f->file || f->is_closing)
        return Py_NewRef(Py_None);
    if (!f->is_input && check_not_busy(f) < 0)
        return NULL;
    f->is_closing = true;
    return f->users || close_now(f) == 0 ? Py_NewRef(Py_None) : NULL;
}

/* ---- life cycle ----------------------------------------------------------------- */

static int parse_mode(const char *mode, enum hy_fs_open_mode *ret)
{
    static const char modes[] = {[HY_FS_READ] = 'r', [HY_FS_WRITE] = 'w', [HY_FS_CREATE] = 'x', [HY_FS_APPEND] = 'a'};
    const bool is_short = mode[0] && (!mode[1] || strcmp(mode + 1, "b") == 0);
    const char *found = is_short ? memchr(modes, mode[0], sizeof modes) : NULL;

    if (!found) {
        PyErr_Format(PyExc_ValueError, "mode must be 'r', 'w', 'x' or 'a', not '%s'", mode);
        return -1;
    }
    *ret = (enum hy_fs_open_mode)(found - modes);
    return 0;
}

/* When a signal handler has raised after the file was opened, deallocation closes it. */
static int open_file(struct file *f, enum hy_fs_open_mode how)
{
    const char *url = PyBytes_AsString(f->url);
    struct hy_err err = {0};
    int rc;

    f->is_input = how == HY_FS_READ;
    Py_BEGIN_ALLOW_THREADS rc = hy_fs_open(url, how, &f->file, &err);
    Py_END_ALLOW_THREADS return hy_py_file_check(state_of((PyObject *)f), rc, &err, f->url);
}

static PyObject *file_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"url", "mode", NULL};
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    PyObject *self, *url = NULL;
    const char *mode = "r";
    enum hy_fs_open_mode how;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O&|s:File", (char **)names, PyUnicode_FSConverter, &url, &mode))
        return NULL;
    self = parse_mode(mode, &how) == 0 ? alloc(type, 0) : NULL;
    if (!self) {
        Py_DECREF(url);
        return NULL;
    }
    ((struct file *)self)->url = url;
    if (open_file((struct file *)self, how) == 0)
        return self;
    Py_DECREF(self);
    return NULL;
}

/* Preserves a pending exception. */
static void file_dealloc(PyObject *self)
{
    struct file *f = (struct file *)self;
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    PyObject *kind, *value, *traceback;

    PyErr_Fetch(&kind, &value, &traceback);
    if (f->file && close_now(f) < 0)
        PyErr_WriteUnraisable(f->url);
    PyErr_Restore(kind, value, traceback);
    Py_XDECREF(f->url);
    release(self);
    Py_DECREF(type);
}

/* ---- reading ------------------------------------------------------------------ */

static int check_offset(Py_ssize_t offset)
{
    if (offset >= 0)
        return 0;
    PyErr_SetString(PyExc_ValueError, "an offset must be 0 or more");
    return -1;
}

/* The number of bytes read, or -1 with an exception set. */
static Py_ssize_t read_at(struct file *f, void *into, Py_ssize_t n, Py_ssize_t offset)
{
    struct hy_err err = {0};
    int64_t got;

    if (check_offset(offset) < 0 || enter(f) < 0)
        return -1;
    Py_BEGIN_ALLOW_THREADS got = hy_fs_pread(f->file, into, (size_t)n, (uint64_t)offset, &err);
    Py_END_ALLOW_THREADS return leave(f, got, &err) < 0 ? -1 : (Py_ssize_t)got;
}

/* The size of the buffer: at most the rest of the file. A file without a size, as in /proc, is read as requested. */
static Py_ssize_t read_size(const struct file *f, Py_ssize_t n, Py_ssize_t offset)
{
    const uint64_t size = f->file ? hy_fs_size(f->file) : 0;
    const uint64_t rest = (uint64_t)offset < size ? size - (uint64_t)offset : 0;

    return n < 0 || (rest && rest < (uint64_t)n) ? (Py_ssize_t)rest : n;
}

/* Consumes `bytes`; copies only when the file turned out to be shorter. */
static PyObject *truncate_bytes(PyObject *bytes, Py_ssize_t n)
{
    PyObject *part;

    if (n == PyBytes_Size(bytes))
        return bytes;
    part = n < 0 ? NULL : PyBytes_FromStringAndSize(PyBytes_AsString(bytes), n);
    Py_DECREF(bytes);
    return part;
}

static PyObject *file_pread(PyObject *self, PyObject *args)
{
    struct file *f = (struct file *)self;
    Py_ssize_t n, offset;
    PyObject *bytes;

    if (!PyArg_ParseTuple(args, "nn:pread", &n, &offset) || check_offset(offset) < 0)
        return NULL;
    bytes = PyBytes_FromStringAndSize(NULL, read_size(f, n, offset));
    if (!bytes)
        return NULL;
    return truncate_bytes(bytes, read_at(f, PyBytes_AsString(bytes), PyBytes_Size(bytes), offset));
}

static PyObject *file_preadinto(PyObject *self, PyObject *args)
{
    Py_ssize_t offset, got;
    Py_buffer buffer;

    if (!PyArg_ParseTuple(args, "w*n:preadinto", &buffer, &offset))
        return NULL;
    got = read_at((struct file *)self, buffer.buf, buffer.len, offset);
    PyBuffer_Release(&buffer);
    return got < 0 ? NULL : PyLong_FromSsize_t(got);
}

/* ---- writing ------------------------------------------------------------------ */

static int write_all(struct file *f, const Py_buffer *buffer)
{
    struct hy_err err = {0};
    int rc;

    if (enter(f) < 0)
        return -1;
    Py_BEGIN_ALLOW_THREADS rc = hy_fs_write(f->file, buffer->buf, (size_t)buffer->len, &err);
    Py_END_ALLOW_THREADS return leave(f, rc, &err);
}

static PyObject *file_write(PyObject *self, PyObject *args)
{
    Py_buffer buffer;
    PyObject *written;

    if (!PyArg_ParseTuple(args, "y*:write", &buffer))
        return NULL;
    written = write_all((struct file *)self, &buffer) == 0 ? PyLong_FromSsize_t(buffer.len) : NULL;
    PyBuffer_Release(&buffer);
    return written;
}

static PyObject *file_flush(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"to_disk", NULL};
    struct file *f = (struct file *)self;
    struct hy_err err = {0};
    int to_disk = 0, rc;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p:flush", (char **)names, &to_disk) || enter(f) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS rc = hy_fs_flush(f->file, to_disk, &err);
    Py_END_ALLOW_THREADS return leave(f, rc, &err) < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- the type ----------------------------------------------------------------- */

static PyObject *file_enter(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return Py_NewRef(self);
}

static PyObject *file_exit(PyObject *self, PyObject *ignored)
{
    return file_close(self, ignored);
}

static PyObject *file_size(PyObject *self, void *ignored)
{
    const struct file *f = (const struct file *)self;

    (void)ignored;
    if (f->file)
        return PyLong_FromUnsignedLongLong(hy_fs_size(f->file));
    PyErr_SetString(PyExc_ValueError, "the file is closed");
    return NULL;
}

static PyObject *file_closed(PyObject *self, void *ignored)
{
    const struct file *f = (const struct file *)self;

    (void)ignored;
    return PyBool_FromLong(!f->file || f->is_closing);
}

static PyObject *file_url(PyObject *self, void *ignored)
{
    (void)ignored;
    return PyUnicode_DecodeFSDefault(PyBytes_AsString(((struct file *)self)->url));
}

static PyMethodDef methods[] = {
    {"pread", file_pread, METH_VARARGS,
     "pread(n, offset): n bytes, fewer only at the end of the file; all of them when n < 0."},
    {"preadinto", file_preadinto, METH_VARARGS, "preadinto(buffer, offset): the number of bytes read."},
    {"write", file_write, METH_VARARGS, "write(buffer): all of it."},
    {"flush", (PyCFunction)(void (*)(void))file_flush, METH_VARARGS | METH_KEYWORDS,
     "flush(to_disk=False): makes written bytes visible to new readers; to_disk: also durable."},
    {"close", file_close, METH_NOARGS, "Completes the file; raises when written bytes were lost."},
    {"__enter__", file_enter, METH_NOARGS, NULL},
    {"__exit__", file_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"size", file_size, NULL, "When reading, the size at open; when writing, the number of bytes written.", NULL},
    {"closed", file_closed, NULL, NULL, NULL},
    {"url", file_url, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyObject *hy_py_file_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_new, file_new},
        {Py_tp_dealloc, file_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, getters},
        {Py_tp_doc, (void *)"File(url, mode='r'): an open file; 'w' replaces, 'x' creates, 'a' appends."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "hopyard._hopyard.File",
        .basicsize = sizeof(struct file),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };

    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
