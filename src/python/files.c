/* SPDX-License-Identifier: Apache-2.0 */
/* Functions on files by URL: each wraps one of src/fs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/string_list.h"
#include "files.h"
#include "fs/fs.h"
#include "hdfs/hdfs.h"
#include "share/share.h"

/*
 * For hy_fs_on_wait. Signal handlers run only in the main thread, and no other thread
 * may wait for the GIL here: the thread that renews HDFS leases must not stall while
 * Python code computes.
 */
static int is_interrupted(void)
{
    PyGILState_STATE gil;
    int rc;

    if (gettid() != getpid() || !Py_IsInitialized())
        return 0;
    gil = PyGILState_Ensure();
    rc = PyErr_Occurred() ? -1 : PyErr_CheckSignals();
    PyGILState_Release(gil);
    return rc;
}

static const struct hy_py_state *state_of(PyObject *module)
{
    return PyModule_GetState(module);
}

static PyObject *none_or_error(PyObject *module, int rc, const struct hy_err *err, PyObject *url)
{
    return hy_py_file_check(state_of(module), rc, err, url) < 0 ? NULL : Py_NewRef(Py_None);
}

/* ---- metadata ------------------------------------------------------------------- */

static PyStructSequence_Field info_fields[] = {
    {"name", "the last part of its path"},
    {"size", "of a directory: 0"},
    {"is_dir", NULL},
    {"is_link", NULL},
    {"mode", "the lowest 12 bits of st_mode"},
    {"owner", NULL},
    {"group", NULL},
    {"modified_ms", "since 1970; 0: unknown"},
    {"accessed_ms", NULL},
    {"replication", "of a directory: 0"},
    {"block_size", NULL},
    {NULL, NULL},
};
static PyStructSequence_Field usage_fields[] = {
    {"bytes", NULL}, {"files", NULL}, {"folders", NULL}, {"stored", "bytes on disks, with all replicas"}, {NULL, NULL},
};
static PyStructSequence_Field room_fields[] = {{"capacity", NULL}, {"used", NULL}, {"free", NULL}, {NULL, NULL}};

static PyStructSequence_Desc info_desc = {"hopyard._hopyard.Info", "A file or a directory.", info_fields, 11};
static PyStructSequence_Desc usage_desc = {"hopyard._hopyard.Usage", "The size of a directory tree.", usage_fields, 4};
static PyStructSequence_Desc room_desc = {"hopyard._hopyard.Room", "Space of a file system, in bytes.", room_fields, 3};

static PyObject *checked(PyObject *sequence)
{
    if (!PyErr_Occurred())
        return sequence;
    Py_XDECREF(sequence);
    return NULL;
}

static PyObject *to_info(const struct hy_py_state *state, const struct hy_fs_info *i)
{
    PyObject *o = PyStructSequence_New((PyTypeObject *)state->file_types[HY_PY_FILE_INFO]);

    if (!o)
        return NULL;
    PyStructSequence_SetItem(o, 0, PyUnicode_DecodeFSDefault(i->name));
    PyStructSequence_SetItem(o, 1, PyLong_FromUnsignedLongLong(i->size));
    PyStructSequence_SetItem(o, 2, PyBool_FromLong(i->is_dir));
    PyStructSequence_SetItem(o, 3, PyBool_FromLong(i->is_link));
    PyStructSequence_SetItem(o, 4, PyLong_FromUnsignedLong(i->mode));
    PyStructSequence_SetItem(o, 5, PyUnicode_DecodeFSDefault(i->owner));
    PyStructSequence_SetItem(o, 6, PyUnicode_DecodeFSDefault(i->group));
    PyStructSequence_SetItem(o, 7, PyLong_FromLongLong(i->modified_ms));
    PyStructSequence_SetItem(o, 8, PyLong_FromLongLong(i->accessed_ms));
    PyStructSequence_SetItem(o, 9, PyLong_FromUnsignedLong(i->replication));
    PyStructSequence_SetItem(o, 10, PyLong_FromUnsignedLongLong(i->block_size));
    return checked(o);
}

static PyObject *to_numbers(PyObject *type, const uint64_t *numbers, Py_ssize_t n)
{
    PyObject *o = PyStructSequence_New((PyTypeObject *)type);

    for (Py_ssize_t i = 0; o && i < n; i++)
        PyStructSequence_SetItem(o, i, PyLong_FromUnsignedLongLong(numbers[i]));
    return checked(o);
}

PyObject *hy_py_fs_stat(PyObject *module, PyObject *arg)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    hy_cleanup_ref PyObject *url = NULL;
    struct hy_err err = {0};
    const char *text;
    int rc;

    if (!PyUnicode_FSConverter(arg, &url))
        return NULL;
    text = PyBytes_AsString(url);
    Py_BEGIN_ALLOW_THREADS rc = hy_fs_stat(text, &info, &err);
    Py_END_ALLOW_THREADS return hy_py_file_check(state_of(module), rc, &err, url) < 0
        ? NULL
        : to_info(state_of(module), &info);
}

PyObject *hy_py_fs_usage(PyObject *module, PyObject *arg)
{
    hy_cleanup_ref PyObject *url = NULL;
    struct hy_fs_usage usage = {0};
    struct hy_err err = {0};
    const char *text;
    int rc;

    if (!PyUnicode_FSConverter(arg, &url))
        return NULL;
    text = PyBytes_AsString(url);
    Py_BEGIN_ALLOW_THREADS rc = hy_fs_usage(text, &usage, &err);
    Py_END_ALLOW_THREADS if (hy_py_file_check(state_of(module), rc, &err, url) < 0) return NULL;
    return to_numbers(state_of(module)->file_types[HY_PY_FILE_USAGE],
                      (uint64_t[]){usage.bytes, usage.files, usage.directories, usage.stored}, 4);
}

PyObject *hy_py_fs_room(PyObject *module, PyObject *arg)
{
    hy_cleanup_ref PyObject *url = NULL;
    struct hy_fs_space room = {0};
    struct hy_err err = {0};
    const char *text;
    int rc;

    if (!PyUnicode_FSConverter(arg, &url))
        return NULL;
    text = PyBytes_AsString(url);
    Py_BEGIN_ALLOW_THREADS rc = hy_fs_space(text, &room, &err);
    Py_END_ALLOW_THREADS if (hy_py_file_check(state_of(module), rc, &err, url) < 0) return NULL;
    return to_numbers(state_of(module)->file_types[HY_PY_FILE_ROOM], (uint64_t[]){room.capacity, room.used, room.free},
                      3);
}

/* `how` as in os.access. */
PyObject *hy_py_fs_access(PyObject *module, PyObject *args)
{
    hy_cleanup_ref PyObject *url = NULL;
    struct hy_err err = {0};
    const char *text;
    int how, rc;

    if (!PyArg_ParseTuple(args, "O&i:access", PyUnicode_FSConverter, &url, &how))
        return NULL;
    text = PyBytes_AsString(url);
    Py_BEGIN_ALLOW_THREADS rc = hy_fs_access(text, how, &err);
    Py_END_ALLOW_THREADS if (rc == -EACCES || rc == -EROFS) return PyErr_Occurred() ? NULL : PyBool_FromLong(0);
    return hy_py_file_check(state_of(module), rc, &err, url) < 0 ? NULL : PyBool_FromLong(1);
}

/* ---- lists: collected without the GIL, then converted ------------------------------ */

struct entries {
    struct hy_fs_info *list;
    size_t count;
};

static void entries_done(struct entries *e)
{
    for (size_t i = 0; i < e->count; i++)
        hy_fs_info_done(&e->list[i]);
    free(e->list);
}

#define cleanup_entries __attribute__((cleanup(entries_done)))

static int keep_entry(void *arg, struct hy_fs_info *entry, struct hy_err *err)
{
    struct entries *e = arg;

    if (hy_array_grow(e->list, e->count) < 0)
        return hy_err_oom(err);
    e->list[e->count++] = *entry;
    *entry = (struct hy_fs_info){0};
    return 0;
}

static PyObject *to_list(const struct hy_py_state *state, const struct entries *e)
{
    PyObject *list = PyList_New((Py_ssize_t)e->count);

    for (size_t i = 0; list && i < e->count; i++) {
        PyObject *info = to_info(state, &e->list[i]);

        if (!info || PyList_SetItem(list, (Py_ssize_t)i, info) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *hy_py_fs_list(PyObject *module, PyObject *arg)
{
    cleanup_entries struct entries entries = {0};
    hy_cleanup_ref PyObject *url = NULL;
    struct hy_err err = {0};
    const char *text;
    int rc;

    if (!PyUnicode_FSConverter(arg, &url))
        return NULL;
    text = PyBytes_AsString(url);
    Py_BEGIN_ALLOW_THREADS rc = hy_fs_list(text, keep_entry, &entries, &err);
    Py_END_ALLOW_THREADS return hy_py_file_check(state_of(module), rc, &err, url) < 0
        ? NULL
        : to_list(state_of(module), &entries);
}

static int keep_url(void *arg, const char *url, const struct hy_fs_info *info, struct hy_err *err)
{
    (void)info;
    return hy_string_list_add(arg, url) < 0 ? hy_err_oom(err) : 0;
}

static PyObject *to_texts(const struct hy_string_list *urls)
{
    PyObject *list = PyList_New((Py_ssize_t)urls->count);

    for (size_t i = 0; list && i < urls->count; i++) {
        PyObject *text = PyUnicode_DecodeFSDefault(urls->items[i]);

        if (!text || PyList_SetItem(list, (Py_ssize_t)i, text) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *hy_py_fs_glob(PyObject *module, PyObject *arg)
{
    hy_cleanup_string_list struct hy_string_list urls = {0};
    hy_cleanup_ref PyObject *pattern = NULL;
    struct hy_err err = {0};
    const char *text;
    int rc;

    if (!PyUnicode_FSConverter(arg, &pattern))
        return NULL;
    text = PyBytes_AsString(pattern);
    Py_BEGIN_ALLOW_THREADS rc = hy_fs_glob(text, keep_url, &urls, &err);
    Py_END_ALLOW_THREADS return hy_py_file_check(state_of(module), rc, &err, pattern) < 0 ? NULL : to_texts(&urls);
}

/* ---- changes ---------------------------------------------------------------------- */

PyObject *hy_py_fs_mkdirs(PyObject *module, PyObject *args)
{
    hy_cleanup_ref PyObject *url = NULL;
    struct hy_err err = {0};
    unsigned mode = 0777;
    const char *text;
    int rc;

    if (!PyArg_ParseTuple(args, "O&|I:mkdirs", PyUnicode_FSConverter, &url, &mode))
        return NULL;
    text = PyBytes_AsString(url);
    Py_BEGIN_ALLOW_THREADS rc = hy_fs_mkdirs(text, mode, &err);
    Py_END_ALLOW_THREADS return none_or_error(module, rc, &err, url);
}

PyObject *hy_py_fs_remove(PyObject *module, PyObject *args)
{
    hy_cleanup_ref PyObject *url = NULL;
    struct hy_err err = {0};
    int recursive = 0, rc;
    const char *text;

    if (!PyArg_ParseTuple(args, "O&|p:remove", PyUnicode_FSConverter, &url, &recursive))
        return NULL;
    text = PyBytes_AsString(url);
    Py_BEGIN_ALLOW_THREADS rc = hy_fs_remove(text, recursive, &err);
    Py_END_ALLOW_THREADS return none_or_error(module, rc, &err, url);
}

PyObject *hy_py_fs_rename(PyObject *module, PyObject *args)
{
    hy_cleanup_ref PyObject *from = NULL, *to = NULL;
    const char *source, *target;
    struct hy_err err = {0};
    int replace = 0, rc;

    if (!PyArg_ParseTuple(args, "O&O&|p:rename", PyUnicode_FSConverter, &from, PyUnicode_FSConverter, &to, &replace))
        return NULL;
    source = PyBytes_AsString(from);
    target = PyBytes_AsString(to);
    Py_BEGIN_ALLOW_THREADS rc = hy_fs_rename(source, target, replace, &err);
    Py_END_ALLOW_THREADS return none_or_error(module, rc, &err, rc == -EEXIST ? to : from);
}

PyObject *hy_py_fs_chmod(PyObject *module, PyObject *args)
{
    hy_cleanup_ref PyObject *url = NULL;
    struct hy_err err = {0};
    const char *text;
    unsigned mode;
    int rc;

    if (!PyArg_ParseTuple(args, "O&I:chmod", PyUnicode_FSConverter, &url, &mode))
        return NULL;
    text = PyBytes_AsString(url);
    Py_BEGIN_ALLOW_THREADS rc = hy_fs_chmod(text, mode, &err);
    Py_END_ALLOW_THREADS return none_or_error(module, rc, &err, url);
}

PyObject *hy_py_fs_chown(PyObject *module, PyObject *args)
{
    hy_cleanup_ref PyObject *url = NULL;
    const char *owner, *group, *text;
    struct hy_err err = {0};
    int rc;

    if (!PyArg_ParseTuple(args, "O&zz:chown", PyUnicode_FSConverter, &url, &owner, &group))
        return NULL;
    text = PyBytes_AsString(url);
    Py_BEGIN_ALLOW_THREADS rc = hy_fs_chown(text, owner, group, &err);
    Py_END_ALLOW_THREADS return none_or_error(module, rc, &err, url);
}

/* hy_fs_on_wait is not called for local files. */
static int check_interrupt(void *arg, uint64_t more_bytes)
{
    (void)arg;
    (void)more_bytes;
    return is_interrupted() ? -EINTR : 0;
}

PyObject *hy_py_fs_copy(PyObject *module, PyObject *args)
{
    hy_cleanup_ref PyObject *from = NULL, *to = NULL;
    int replace = 0, recursive = 1, rc;
    struct hy_fs_copy how = {.progress = check_interrupt};
    const char *source, *target;
    struct hy_err err = {0};

    if (!PyArg_ParseTuple(args, "O&O&|pp:copy", PyUnicode_FSConverter, &from, PyUnicode_FSConverter, &to, &replace,
                          &recursive))
        return NULL;
    how.replace = replace;
    how.recursive = recursive;
    source = PyBytes_AsString(from);
    target = PyBytes_AsString(to);
    Py_BEGIN_ALLOW_THREADS rc = hy_fs_copy(source, target, &how, &err);
    Py_END_ALLOW_THREADS return none_or_error(module, rc, &err, rc == -EEXIST ? to : from);
}

PyObject *hy_py_fs_join(PyObject *module, PyObject *args)
{
    hy_cleanup_ref PyObject *url = NULL, *name = NULL;
    hy_cleanup_free char *joined = NULL;

    (void)module;
    if (!PyArg_ParseTuple(args, "O&O&:join", PyUnicode_FSConverter, &url, PyUnicode_FSConverter, &name))
        return NULL;
    joined = hy_fs_join(PyBytes_AsString(url), PyBytes_AsString(name));
    return joined ? PyUnicode_DecodeFSDefault(joined) : PyErr_NoMemory();
}

/* ---- shares ----------------------------------------------------------------------- */

PyObject *hy_py_share_resolve(PyObject *module, PyObject *arg)
{
    hy_cleanup_ref PyObject *url = NULL;
    hy_cleanup_free char *real = NULL;
    struct hy_err err = {0};
    const char *text;
    int rc;

    if (!PyUnicode_FSConverter(arg, &url))
        return NULL;
    text = PyBytes_AsString(url);
    Py_BEGIN_ALLOW_THREADS rc = hy_share_resolve(text, &real, &err);
    Py_END_ALLOW_THREADS if (hy_py_file_check(state_of(module), rc, &err, url) < 0) return NULL;
    return Py_BuildValue("NO", PyUnicode_DecodeFSDefault(rc == 0 ? text : real), rc == 2 ? Py_True : Py_False);
}

static int add_target(void *arg, const struct hy_share_entry *e, const char *why)
{
    return why ? 0 : hy_string_list_add(arg, e->target);
}

PyObject *hy_py_share_targets(PyObject *module, PyObject *arg)
{
    hy_cleanup_string_list struct hy_string_list targets = {0};
    hy_cleanup_ref PyObject *url = NULL;
    struct hy_err err = {0};
    PyObject *list;
    const char *text;
    int rc;

    if (!PyUnicode_FSConverter(arg, &url))
        return NULL;
    text = PyBytes_AsString(url);
    Py_BEGIN_ALLOW_THREADS rc = hy_share_entries(text, add_target, &targets, &err);
    Py_END_ALLOW_THREADS if (hy_py_file_check(state_of(module), rc, &err, url) < 0) return NULL;
    list = PyList_New(0);
    for (size_t i = 0; list && i < targets.count; i++) {
        hy_cleanup_ref PyObject *target = PyUnicode_DecodeFSDefault(targets.items[i]);

        if (!target || PyList_Append(list, target) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* ---- the module ------------------------------------------------------------------- */

static PyObject *new_sequence(PyStructSequence_Desc *desc)
{
    return (PyObject *)PyStructSequence_NewType(desc);
}

int hy_py_files_add(PyObject *module)
{
    struct hy_py_state *state = PyModule_GetState(module);
    PyObject **types = state->file_types;

    if (hy_py_file_errors_add(module) < 0)
        return -1;
    types[HY_PY_FILE] = hy_py_file_type(module);
    types[HY_PY_FILE_INFO] = new_sequence(&info_desc);
    types[HY_PY_FILE_USAGE] = new_sequence(&usage_desc);
    types[HY_PY_FILE_ROOM] = new_sequence(&room_desc);
    for (size_t i = 0; i < HY_PY_FILE_TYPES; i++)
        if (!types[i] || PyModule_AddType(module, (PyTypeObject *)types[i]) < 0)
            return -1;
    hy_hdfs_add();
    hy_fs_on_wait(is_interrupted);
    return 0;
}
