/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Driver.submit: starts a run by one message to the program, `hopyard driver
 * --submit`. Nothing that starts a driver (SQLite, libuv, TLS) is in this process.
 */
#include "module.h"

#include <stdlib.h>

#include "base/mem.h"
#include "wire/wire.h"

/* ---- the message ------------------------------------------------------------------------ */

/* Texts are borrowed from bytes objects, which `texts` holds. */
struct submission {
    Hy__Submission message;
    Hy__RunSpec spec;
    Hy__Submission__Option *options, **option_pointers;
    Hy__RoleSpec *roles, **role_pointers;
    char **argv;
    PyObject *texts;
};

static void submission_done(struct submission *s)
{
    free(s->options);
    free(s->option_pointers);
    free(s->roles);
    free(s->role_pointers);
    free(s->argv);
    Py_XDECREF(s->texts);
}

/* As the command line would have it, with bytes that are not UTF-8. NULL with an exception set. */
static char *text_of(struct submission *s, PyObject *value)
{
    PyObject *bytes = NULL;
    char *text;
    int rc;

    if (!value || !PyUnicode_FSConverter(value, &bytes))
        return NULL;
    text = PyBytes_AsString(bytes);
    rc = PyList_Append(s->texts, bytes);
    Py_DECREF(bytes);
    return rc < 0 ? NULL : text;
}

/* An array of `n` structures and one of pointers to them. */
static int make_arrays(size_t n, size_t size, void *ret, void *ret_pointers)
{
    void **items = ret, **pointers = ret_pointers;

    *items = hy_calloc(n + 1, size);
    *pointers = hy_calloc(n + 1, sizeof(void *));
    if (*items && *pointers)
        return 0;
    PyErr_NoMemory();
    return -1;
}

static int take_options(struct submission *s, PyObject *list)
{
    Py_ssize_t n = PyList_Size(list);

    if (n < 0 || make_arrays((size_t)n, sizeof *s->options, &s->options, &s->option_pointers) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        Hy__Submission__Option *o = s->option_pointers[i] = &s->options[i];
        PyObject *pair = PyList_GetItem(list, i), *name, *value;

        hy__submission__option__init(o);
        if (!pair || !PyArg_ParseTuple(pair, "UU:submit", &name, &value) || !(o->name = text_of(s, name)) ||
            !(o->value = text_of(s, value)))
            return -1;
    }
    s->message.options = s->option_pointers;
    s->message.n_options = (size_t)n;
    return 0;
}

static int take_roles(struct submission *s, PyObject *list)
{
    Py_ssize_t n = PyList_Size(list);

    if (n < 0 || make_arrays((size_t)n, sizeof *s->roles, &s->roles, &s->role_pointers) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        Hy__RoleSpec *r = s->role_pointers[i] = &s->roles[i];
        PyObject *pair = PyList_GetItem(list, i), *name;
        unsigned count;

        hy__role_spec__init(r);
        if (!pair || !PyArg_ParseTuple(pair, "UI:submit", &name, &count) || !(r->name = text_of(s, name)))
            return -1;
        r->count = count;
    }
    s->spec.roles = s->role_pointers;
    s->spec.n_roles = (size_t)n;
    return 0;
}

static int take_argv(struct submission *s, PyObject *list)
{
    Py_ssize_t n = PyList_Size(list);

    s->argv = n < 0 ? NULL : hy_calloc((size_t)n + 1, sizeof *s->argv);
    if (!s->argv)
        return n < 0 ? -1 : (PyErr_NoMemory(), -1);
    for (Py_ssize_t i = 0; i < n; i++)
        if (!(s->argv[i] = text_of(s, PyList_GetItem(list, i))))
            return -1;
    s->spec.argv = s->argv;
    s->spec.n_argv = (size_t)n;
    return 0;
}

static int take_arguments(struct submission *s, PyObject *args, PyObject *kwargs, char **ret_program)
{
    static const char *const names[] = {"program",  "command", "options",         "run",   "argv",
                                        "function", "title",   "app_id",          "roles", "fed",
                                        "warm_key", "address", "metric_optional", NULL};
    PyObject *program, *command, *options, *run = NULL, *argv = NULL, *title = NULL, *app_id = NULL, *roles = NULL;
    PyObject *warm_key = NULL, *address = NULL;
    const char *function = NULL;
    Py_ssize_t function_n = 0;
    int fed = 0, optional = 0;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OUO!|$UO!y#UUO!pUUp:submit", (char **)names, &program, &command,
                                     &PyList_Type, &options, &run, &PyList_Type, &argv, &function, &function_n, &title,
                                     &app_id, &PyList_Type, &roles, &fed, &warm_key, &address, &optional))
        return -1;
    *ret_program = text_of(s, program);
    s->message.command = text_of(s, command);
    if (!*ret_program || !s->message.command || take_options(s, options) < 0 || (argv && take_argv(s, argv) < 0) ||
        (roles && take_roles(s, roles) < 0) || (run && !(s->message.run = text_of(s, run))) ||
        (title && !(s->spec.title = text_of(s, title))) || (app_id && !(s->spec.app_id = text_of(s, app_id))) ||
        (warm_key && !(s->spec.warm_key = text_of(s, warm_key))) ||
        (address && !(s->spec.address = text_of(s, address))))
        return -1;
    if (*s->spec.address)
        s->spec.engine = (char *)"spark"; /* the client has a SparkSession, and supplies agents */
    s->spec.function = (ProtobufCBinaryData){.data = (uint8_t *)function, .len = (size_t)function_n};
    s->spec.fed = fed;
    s->spec.metric_optional = optional;
    return 0;
}

/* ---- the answer -------------------------------------------------------------------------- */

/* hopyard.Error with the attribute `option`: the name of an invalid option, or "". */
static void raise_refusal(const struct hy_py_state *state, const Hy__Submitted *answer)
{
    PyObject *error = PyObject_CallFunction(state->error, "s", answer->text);
    PyObject *option = error ? PyUnicode_FromString(answer->option) : NULL;

    if (option && PyObject_SetAttrString(error, "option", option) == 0)
        PyErr_SetObject(state->error, error);
    Py_XDECREF(option);
    Py_XDECREF(error);
}

PyObject *hy_py_submit(const struct hy_py_state *state, PyObject *args, PyObject *kwargs)
{
    struct submission s = {.message = HY__SUBMISSION__INIT, .spec = HY__RUN_SPEC__INIT, .texts = PyList_New(0)};
    Hy__Submitted *answer = NULL;
    PyObject *result = NULL;
    struct hy_err err = {0};
    char *program = NULL;
    int rc = -1;

    s.message.spec = &s.spec;
    if (s.texts && take_arguments(&s, args, kwargs, &program) == 0) {
        Py_BEGIN_ALLOW_THREADS;
        rc = hy_submit(program, NULL, &s.message, &answer, &err);
        Py_END_ALLOW_THREADS;
        if (rc < 0)
            hy_py_raise(state, &err);
    }
    if (rc == 0 && answer->run)
        result = Py_BuildValue("LO&", (long long)answer->run, PyUnicode_DecodeFSDefault, answer->socket);
    else if (rc == 0)
        raise_refusal(state, answer);
    if (answer)
        hy__submitted__free_unpacked(answer, NULL);
    submission_done(&s);
    return result;
}
