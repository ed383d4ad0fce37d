/* SPDX-License-Identifier: Apache-2.0 */
#include "module.h"

#include <errno.h>

PyObject *hy_py_raise(const struct hy_py_state *state, const struct hy_err *err)
{
    if (err->code == -ENOMEM)
        return PyErr_NoMemory();
    PyErr_SetString(state->error, err->text);
    return NULL;
}

bool hy_py_is_interrupted(void *arg)
{
    PyThreadState **thread = arg;
    bool raised;

    PyEval_RestoreThread(*thread);
    raised = PyErr_CheckSignals() < 0;
    *thread = PyEval_SaveThread();
    return raised;
}

PyObject *hy_py_error(const struct hy_py_state *state, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    PyErr_FormatV(state->error, fmt, args);
    va_end(args);
    return NULL;
}

/* Consumes the reference, which may be NULL. */
static int add_type(PyObject *module, const char *name, PyObject *type)
{
    int rc = type ? PyModule_AddObjectRef(module, name, type) : -1;

    Py_XDECREF(type);
    return rc;
}

static int module_exec(PyObject *module)
{
    struct hy_py_state *state = PyModule_GetState(module);

    state->error = PyErr_NewExceptionWithDoc("hopyard.Error", "The base of all errors of hopyard.", NULL, NULL);
    if (!state->error || PyModule_AddObjectRef(module, "Error", state->error) < 0)
        return -1;
    state->group_error = PyErr_NewExceptionWithDoc(
        "hopyard.GroupError",
        "A collective operation failed; `kind` is 'mismatch', 'deadlock', 'lost', 'invalid' or 'not initialized'.",
        state->error, NULL);
    if (!state->group_error || PyModule_AddObjectRef(module, "GroupError", state->group_error) < 0)
        return -1;
    state->search_type = hy_py_search_type(module);
    if (!state->search_type || PyModule_AddObjectRef(module, "Search", state->search_type) < 0)
        return -1;
    state->values_type = hy_py_values_type(module);
    if (!state->values_type || PyModule_AddObjectRef(module, "Values", state->values_type) < 0)
        return -1;
    if (hy_py_files_add(module) < 0 || add_type(module, "Examples", hy_py_examples_type(module)) < 0)
        return -1;
    if (add_type(module, "Driver", hy_py_driver_type(module)) < 0)
        return -1;
    if (add_type(module, "Node", hy_py_node_type(module)) < 0 || add_type(module, "Hub", hy_py_hub_type(module)) < 0 ||
        add_type(module, "Source", hy_py_source_type(module)) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "version", HY_VERSION);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    struct hy_py_state *state = PyModule_GetState(module);

    Py_VISIT(state->error);
    Py_VISIT(state->group_error);
    Py_VISIT(state->search_type);
    Py_VISIT(state->values_type);
    for (size_t i = 0; i < HY_PY_FILE_ERRORS; i++)
        Py_VISIT(state->file_errors[i]);
    for (size_t i = 0; i < HY_PY_FILE_TYPES; i++)
        Py_VISIT(state->file_types[i]);
    return 0;
}

static int module_clear(PyObject *module)
{
    struct hy_py_state *state = PyModule_GetState(module);

    Py_CLEAR(state->error);
    Py_CLEAR(state->group_error);
    Py_CLEAR(state->search_type);
    Py_CLEAR(state->values_type);
    for (size_t i = 0; i < HY_PY_FILE_ERRORS; i++)
        Py_CLEAR(state->file_errors[i]);
    for (size_t i = 0; i < HY_PY_FILE_TYPES; i++)
        Py_CLEAR(state->file_types[i]);
    return 0;
}

static PyMethodDef module_methods[] = {
    {"report", hy_py_report, METH_VARARGS, "report(values, step, error, detail): from a trial to its agent."},
    {"serve", hy_py_serve, METH_O,
     "serve(fd): runs the fork server. Returns the environment in a trial, and None at the end in the server."},
    {"settle", hy_py_settle, METH_NOARGS,
     "settle(): the number of threads after a fork, whose handlers end the threads of some libraries."},
    {"leave", hy_py_leave, METH_O, "leave(status): flushes the output of C libraries and exits."},
    {"importance", hy_py_importance, METH_O,
     "importance(rows): shares, pairs, number of trials used, and why there are no shares; a row is (params, value)."},
    {"group_join", hy_py_group_join, METH_NOARGS, "Joins the group of this run; waits until all ranks have joined."},
    {"group_leave", hy_py_group_leave, METH_NOARGS, "Leaves the group."},
    {"group_joined", hy_py_group_joined, METH_NOARGS, "Whether this process is in a group."},
    {"group_query", hy_py_group_query, METH_O, "group_query(what): the rank, size ..."},
    {"group_start", hy_py_group_start, METH_VARARGS,
     "group_start(kind, name, type, op, set, root, prescale, postscale, arrays, outs, shapes, splits): a ticket."},
    {"group_wait", hy_py_group_wait, METH_O, "group_wait(ticket): (result, [(shape, bytes), ...])."},
    {"group_poll", hy_py_group_poll, METH_O, "group_poll(ticket): whether it has completed."},
    {"group_set_add", hy_py_group_set_add, METH_O, "group_set_add(ranks): the number of a new process set."},
    {"group_set_remove", hy_py_group_set_remove, METH_O, "group_set_remove(number)."},
    {"group_set_members", hy_py_group_set_members, METH_O, "group_set_members(number): its ranks."},
    {"group_timeline_start", hy_py_group_timeline_start, METH_VARARGS, "group_timeline_start(path, mark_cycles)."},
    {"group_timeline_stop", hy_py_group_timeline_stop, METH_NOARGS, "Completes the timeline file."},
    {"attach_tensorflow", hy_py_attach_tensorflow, METH_VARARGS,
     "attach_tensorflow(path): connects the library of TensorFlow ops to the group."},
    {"stat", hy_py_fs_stat, METH_O, "stat(url): an Info."},
    {"list", hy_py_fs_list, METH_O, "list(url): an Info for each entry of a directory, by name."},
    {"glob", hy_py_fs_glob, METH_O, "glob(pattern): the URLs that match it, in order."},
    {"usage", hy_py_fs_usage, METH_O, "usage(url): the Usage of a directory tree."},
    {"room", hy_py_fs_room, METH_O, "room(url): the Room of its file system."},
    {"access", hy_py_fs_access, METH_VARARGS, "access(url, how): whether access is allowed, as os.access."},
    {"mkdirs", hy_py_fs_mkdirs, METH_VARARGS, "mkdirs(url, mode=0o777): a directory and its parents."},
    {"remove", hy_py_fs_remove, METH_VARARGS, "remove(url, recursive=False)."},
    {"rename", hy_py_fs_rename, METH_VARARGS, "rename(from, to, replace=False): within a file system."},
    {"chmod", hy_py_fs_chmod, METH_VARARGS, "chmod(url, mode)."},
    {"chown", hy_py_fs_chown, METH_VARARGS, "chown(url, owner, group): None keeps it."},
    {"copy", hy_py_fs_copy, METH_VARARGS,
     "copy(from, to, replace=False, recursive=True): into a directory, or to a new name."},
    {"write_examples", hy_py_write_examples, METH_VARARGS,
     "write_examples(rows, columns, sequence=False): the bytes of a TFRecord file."},
    {"write_records", hy_py_write_records, METH_VARARGS,
     "write_records(values, ends): the bytes of a TFRecord file with a record for each value."},
    {"join", hy_py_fs_join, METH_VARARGS, "join(url, name)."},
    {"resolve_share", hy_py_share_resolve, METH_O,
     "resolve_share(url): the real path of PROJECT/Shared/OWNER::NAME/…, and whether it is the data set itself."},
    {"share_targets", hy_py_share_targets, METH_O, "share_targets(project): the real paths of its shares."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef module_def = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "_hopyard",
    .m_doc = "The C parts of hopyard.",
    .m_size = sizeof(struct hy_py_state),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__hopyard(void);

PyMODINIT_FUNC PyInit__hopyard(void)
{
    return PyModuleDef_Init(&module_def);
}
