/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exceptions of files: each is a hopyard.Error and also the exception that Python's
 * open() would raise, with errno and filename.
 */
#include <errno.h>
#include <string.h>

#include "files.h"

static const struct {
    const char *name, *doc;
    PyObject **base;
    int codes[2];
} kinds[HY_PY_FILE_ERRORS - 1] = {
    {"hopyard.FileNotFound", "There is no such file or directory.", &PyExc_FileNotFoundError, {ENOENT, 0}},
    {"hopyard.FileExists", "The file exists already.", &PyExc_FileExistsError, {EEXIST, 0}},
    {"hopyard.FileForbidden", "Permission was denied.", &PyExc_PermissionError, {EACCES, EPERM}},
    {"hopyard.IsFolder", "It is a directory, not a file.", &PyExc_IsADirectoryError, {EISDIR, 0}},
    {"hopyard.NotFolder", "It is a file, not a directory.", &PyExc_NotADirectoryError, {ENOTDIR, 0}},
};

void hy_py_unref(PyObject **object)
{
    Py_XDECREF(*object);
}

/* The message alone, without OSError's "[Errno 2] …: 'name'", since it names the file already. */
static PyObject *error_str(PyObject *self)
{
    PyObject *sentence = PyObject_GetAttrString(self, "strerror");

    if (!sentence || PyUnicode_Check(sentence))
        return sentence;
    Py_DECREF(sentence);
    return PyUnicode_FromString("file error"); /* raised without a message */
}

static PyObject *add(PyObject *module, PyObject *type)
{
    if (type && PyModule_AddType(module, (PyTypeObject *)type) == 0)
        return type;
    Py_XDECREF(type);
    return NULL;
}

static PyObject *new_file_error(PyObject *module, PyObject *error)
{
    static PyType_Slot slots[] = {
        {Py_tp_str, error_str},
        {Py_tp_doc, (void *)"An operation on a file failed; see errno and filename."},
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

static PyObject *new_subclass(PyObject *module, PyObject *base, size_t i)
{
    hy_cleanup_ref PyObject *bases = PyTuple_Pack(2, base, *kinds[i].base);

    return bases ? add(module, PyErr_NewExceptionWithDoc(kinds[i].name, kinds[i].doc, bases, NULL)) : NULL;
}

int hy_py_file_errors_add(PyObject *module)
{
    struct hy_py_state *state = PyModule_GetState(module);

    state->file_errors[0] = new_file_error(module, state->error);
    for (size_t i = 1; i < HY_PY_FILE_ERRORS && state->file_errors[i - 1]; i++)
        state->file_errors[i] = new_subclass(module, state->file_errors[0], i - 1);
    return state->file_errors[HY_PY_FILE_ERRORS - 1] ? 0 : -1;
}

static PyObject *class_of_errno(const struct hy_py_state *state, int code)
{
    for (size_t i = 0; i < HY_PY_FILE_ERRORS - 1; i++)
        if (code == kinds[i].codes[0] || code == kinds[i].codes[1])
            return state->file_errors[i + 1];
    return state->file_errors[0];
}

/* Messages may contain names that are not UTF-8. */
static void raise(const struct hy_py_state *state, int code, const char *text, PyObject *url)
{
    hy_cleanup_ref PyObject *sentence = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    hy_cleanup_ref PyObject *name = PyUnicode_DecodeFSDefault(PyBytes_AsString(url));
    hy_cleanup_ref PyObject *args = sentence && name ? Py_BuildValue("(iOO)", code, sentence, name) : NULL;

    if (args)
        PyErr_SetObject(class_of_errno(state, code), args);
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
