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

PyObject *hy_py_error(const struct hy_py_state *state, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    PyErr_FormatV(state->error, fmt, args);
    va_end(args);
    return NULL;
}

static int module_exec(PyObject *module)
{
    struct hy_py_state *state = PyModule_GetState(module);

    state->error =
        PyErr_NewExceptionWithDoc("hopyard.Error", "What hopyard cannot do, in a sentence.", NULL, NULL);
    if (!state->error || PyModule_AddObjectRef(module, "Error", state->error) < 0)
        return -1;
    state->search_type = hy_py_search_type(module);
    if (!state->search_type || PyModule_AddObjectRef(module, "Search", state->search_type) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "version", HY_VERSION);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    struct hy_py_state *state = PyModule_GetState(module);

    Py_VISIT(state->error);
    Py_VISIT(state->search_type);
    return 0;
}

static int module_clear(PyObject *module)
{
    struct hy_py_state *state = PyModule_GetState(module);

    Py_CLEAR(state->error);
    Py_CLEAR(state->search_type);
    return 0;
}

static PyMethodDef module_methods[] = {
    {"report", hy_py_report, METH_VARARGS, "report(values, step, error, detail): from a trial to its agent."},
    {"serve", hy_py_serve, METH_O, "serve(fd): forks trials; gives each its environment, None at the end."},
    {"settle", hy_py_settle, METH_NOARGS, "How many threads go on, when those are ended that a fork ends."},
    {"leave", hy_py_leave, METH_O, "leave(status): writes what C has printed, and ends the process."},
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
