/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Errors of files: each is a hopyard.Error, and at the same time what Python's own
 * open() would have raised, with its errno and filename.
 */
#include <errno.h>
#include <string.h>

#include "files.h"

static const struct {
    const char *name, *doc;
    PyObject **base;
    int codes[2];
} kinds[HY_PY_FILE_ERRORS - 1] = {
    {"hopyard.FileNotFound", "There is no such file or folder.", &PyExc_FileNotFoundError, {ENOENT, 0}},
    {"hopyard.FileExists", "There is one already.", &PyExc_FileExistsError, {EEXIST, 0}},
    {"hopyard.FileForbidden", "It may not be done.", &PyExc_PermissionError, {EACCES, EPERM}},
    {"hopyard.IsFolder", "It is a folder, no file.", &PyExc_IsADirectoryError, {EISDIR, 0}},
    {"hopyard.NotFolder", "It is a file, no folder.", &PyExc_NotADirectoryError, {ENOTDIR, 0}},
};

void hy_py_unref(PyObject **object)
{
    Py_XDECREF(*object);
}

/* The sentence, and not OSError's "[Errno 2] …: 'name'": it names the file itself. */
static PyObject *error_str(PyObject *self)
{
    PyObject *sentence = PyObject_GetAttrString(self, "strerror");

    if (!sentence || PyUnicode_Check(sentence))
        return sentence;
    Py_DECREF(sentence);
    return PyUnicode_FromString("an error of files"); /* made without one */
}

static PyObject *add(PyObject *module, PyObject *type)
{
    if (type && PyModule_AddType(module, (PyTypeObject *)type) == 0)
        return type;
    Py_XDECREF(type);
    return NULL;
}

static PyObject *file_error(PyObject *module, PyObject *error)
{
    static PyType_Slot slots[] = {
        {Py_tp_str, error_str},
        {Py_tp_doc, (void *)"What could not be done with a file; errno and filename tell more."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "hopyard.FileError",
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
        .slots = slots,
    };
    hy_cleanup_ref PyObject *bases = PyTuple_Pack(2, error, PyExc_OSError);

    return bases ? add(module, PyType_FromModuleAndSpec(module, &spec, bases)) : NULL;
}

static PyObject *kind_of_error(PyObject *module, PyObject *file_error, size_t i)
{
    hy_cleanup_ref PyObject *bases = PyTuple_Pack(2, file_error, *kinds[i].base);

    return bases ? add(module, PyErr_NewExceptionWithDoc(kinds[i].name, kinds[i].doc, bases, NULL)) : NULL;
}

int hy_py_file_errors_add(PyObject *module)
{
    struct hy_py_state *state = PyModule_GetState(module);

    state->file_errors[0] = file_error(module, state->error);
    for (size_t i = 1; i < HY_PY_FILE_ERRORS && state->file_errors[i - 1]; i++)
        state->file_errors[i] = kind_of_error(module, state->file_errors[0], i - 1);
    return state->file_errors[HY_PY_FILE_ERRORS - 1] ? 0 : -1;
}

static PyObject *class_for(const struct hy_py_state *state, int code)
{
    for (size_t i = 0; i < HY_PY_FILE_ERRORS - 1; i++)
        if (code == kinds[i].codes[0] || code == kinds[i].codes[1])
            return state->file_errors[i + 1];
    return state->file_errors[0];
}

/* Texts may quote names that are no UTF-8. */
static void raise(const struct hy_py_state *state, int code, const char *text, PyObject *url)
{
    hy_cleanup_ref PyObject *sentence = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    hy_cleanup_ref PyObject *name = PyUnicode_DecodeFSDefault(PyBytes_AsString(url));
    hy_cleanup_ref PyObject *args = sentence && name ? Py_BuildValue("(iOO)", code, sentence, name) : NULL;

    if (args)
        PyErr_SetObject(class_for(state, code), args);
}

int hy_py_file_check(const struct hy_py_state *state, int64_t rc, const struct hy_err *err, PyObject *url)
{
    if (PyErr_Occurred())
        return -1;
    if (rc >= 0)
        return 0;
    if (rc == -ENOMEM)
        PyErr_NoMemory();
    else
        raise(state, (int)-rc, err->text[0] ? err->text : strerror((int)-rc), url);
    return -1;
}
