/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A search space from a Python mapping.
 *
 *     {"lr": [0.1, 0.01]}       in a grid: choices of any type
 *                               otherwise: bounds, as any two numbers
 *     {"act": ["relu", "tanh"]} a category
 *     {"n": choice(32, 64)}     a category of any type: an object with an attribute `choices`, and maybe `when`
 *     {"lr": "log:1e-5..1e-1"}  the syntax of the command line
 */
#include "module.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "search/search.h"

/* A str as a C string, valid as long as `o`; NULL with an exception set, also when it contains a NUL. */
static const char *c_string_of(const struct hy_py_state *state, PyObject *o)
{
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(o, &size);

    if (text && strlen(text) == (size_t)size)
        return text;
    PyErr_Clear();
    hy_py_error(state, "%R cannot be used in a search space: it contains a NUL or a lone surrogate", o);
    return NULL;
}

/* The Python object for an item of a list in text form: an int, a float or a str. */
static PyObject *object_of_text(const char *text)
{
    PyObject *number;
    double value;

    if (hy_parse_double(text, &value) < 0 || !isfinite(value))
        return PyUnicode_FromString(text);
    number = PyLong_FromString(text, NULL, 10);
    if (number)
        return number;
    PyErr_Clear();
    return PyFloat_FromDouble(value);
}

/* The same for all choices, as a tuple. */
static PyObject *objects_of_choices(const struct hy_dim *dim)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)dim->choice_count);

    for (size_t i = 0; tuple && i < dim->choice_count; i++) {
        PyObject *object = object_of_text(dim->choices[i]);

        if (!object || PyTuple_SetItem(tuple, (Py_ssize_t)i, object) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

/* The values of a JSON list, as a tuple; a condition may follow the list. */
static PyObject *json_objects(PyObject *text)
{
    PyObject *json = PyImport_ImportModule("json");
    PyObject *decoder = json ? PyObject_CallMethod(json, "JSONDecoder", NULL) : NULL;
    PyObject *both = decoder ? PyObject_CallMethod(decoder, "raw_decode", "O", text) : NULL;
    PyObject *list = both ? PyTuple_GetItem(both, 0) : NULL;
    PyObject *tuple = list ? PySequence_Tuple(list) : NULL;

    Py_XDECREF(both);
    Py_XDECREF(decoder);
    Py_XDECREF(json);
    return tuple;
}

/* "name=text", in the syntax of the command line. */
static PyObject *add_text(const struct hy_py_state *state, PyObject *name, PyObject *value, int grid,
                          struct hy_space *space)
{
    const char *key = c_string_of(state, name), *values = c_string_of(state, value);
    hy_cleanup_free char *text = key && values ? hy_asprintf("%s=%s", key, values) : NULL;
    const struct hy_dim *dim;
    struct hy_err err = {0};

    if (!key || !values)
        return NULL;
    if (!text)
        return PyErr_NoMemory();
    if (strchr(key, '='))
        return hy_py_error(state, "the name %R cannot be used: it contains '='", name);
    if ((grid ? hy_space_add_grid : hy_space_add)(space, text, &err) < 0)
        return hy_py_raise(state, &err);
    dim = &space->dims[space->count - 1];
    if (dim->kind != HY_DIM_CATEGORY)
        return Py_NewRef(Py_None);
    return dim->json ? json_objects(value) : objects_of_choices(dim);
}

static int is_number(PyObject *o)
{
    return PyNumber_Check(o) && !PyBool_Check(o) && !PyComplex_Check(o);
}

static PyObject *add_bounds(const struct hy_py_state *state, char *name, PyObject *pair, struct hy_space *space)
{
    PyObject *low = PyTuple_GetItem(pair, 0), *high = PyTuple_GetItem(pair, 1);
    struct hy_dim dim = {.name = name, .kind = HY_DIM_FLOAT};
    struct hy_err err = {0};

    dim.low = PyFloat_AsDouble(low);
    if (!PyErr_Occurred())
        dim.high = PyFloat_AsDouble(high);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return hy_py_error(state, "the bounds of '%s' must be finite numbers", name);
    }
    if (PyIndex_Check(low) && PyIndex_Check(high))
        dim.kind = HY_DIM_INT;
    if (hy_space_add_dim(space, &dim, &err) < 0)
        return hy_py_raise(state, &err);
    return Py_NewRef(Py_None);
}

/*
 * What conditions and constraints compare: the text that the choice has on the command line. Objects that have none are
 * numbered, so that they differ.
 */
static char *text_of_choice(PyObject *o, size_t n)
{
    PyObject *shown = PyIndex_Check(o) || PyFloat_Check(o) ? PyObject_Str(o) : NULL;
    PyObject *text = shown ? shown : o;
    Py_ssize_t size;
    const char *utf8 = PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &size) : NULL;
    char *copy;

    if (o == Py_None || PyBool_Check(o))
        copy = hy_strdup(o == Py_None ? "null" : o == Py_True ? "true" : "false");
    else
        copy = utf8 && strlen(utf8) == (size_t)size ? hy_strdup(utf8) : hy_asprintf("choice %zu", n + 1);
    PyErr_Clear(); /* a lone surrogate */
    Py_XDECREF(shown);
    return copy;
}

static void free_texts(char **texts, size_t count)
{
    for (size_t i = 0; texts && i < count; i++)
        free(texts[i]);
    free(texts);
}

/* NULL when out of memory. */
static char **texts_of_choices(PyObject *values, size_t count)
{
    char **texts = hy_calloc(count, sizeof *texts);

    for (size_t i = 0; texts && i < count; i++) {
        texts[i] = text_of_choice(PyTuple_GetItem(values, (Py_ssize_t)i), i);
        if (!texts[i]) {
            free_texts(texts, i);
            return NULL;
        }
    }
    return texts;
}

/* The values themselves stay here. `when`: a condition, or None. */
static PyObject *add_choices(const struct hy_py_state *state, char *name, PyObject *values, PyObject *when,
                             struct hy_space *space)
{
    struct hy_dim dim = {.name = name, .kind = HY_DIM_CATEGORY, .choice_count = (size_t)PyTuple_Size(values)};
    const char *condition = when == Py_None ? NULL : c_string_of(state, when);
    hy_cleanup_free char *copy = condition ? hy_strdup(condition) : NULL;
    struct hy_err err = {0};
    int rc;

    if (when != Py_None && !copy)
        return condition ? PyErr_NoMemory() : NULL;
    dim.condition = copy;
    dim.choices = texts_of_choices(values, dim.choice_count);
    if (!dim.choices)
        return PyErr_NoMemory();
    rc = hy_space_add_dim(space, &dim, &err);
    free_texts(dim.choices, dim.choice_count);
    return rc < 0 ? hy_py_raise(state, &err) : Py_NewRef(values);
}

/* An attribute, None if there is none; NULL with an exception set. */
static PyObject *optional(PyObject *o, const char *name)
{
    return PyObject_HasAttrString(o, name) ? PyObject_GetAttrString(o, name) : Py_NewRef(Py_None);
}

static PyObject *tuple_of(PyObject *value)
{
    PyObject *choices = PyObject_HasAttrString(value, "choices") ? PyObject_GetAttrString(value, "choices")
                                                                 : Py_NewRef(value);
    PyObject *tuple = choices ? PySequence_Tuple(choices) : NULL;

    Py_XDECREF(choices);
    return tuple;
}

/* The object's `choices`, or bounds, or a list of choices. */
static PyObject *add_tuple(const struct hy_py_state *state, char *name, PyObject *value, PyObject *values, int is_list,
                           struct hy_space *space)
{
    PyObject *when, *objects;

    if (!is_list && PyTuple_Size(values) == 2 && is_number(PyTuple_GetItem(values, 0)) &&
        is_number(PyTuple_GetItem(values, 1)))
        return add_bounds(state, name, values, space);
    when = PyObject_HasAttrString(value, "choices") ? optional(value, "when") : Py_NewRef(Py_None);
    objects = when ? add_choices(state, name, values, when, space) : NULL;
    Py_XDECREF(when);
    return objects;
}

static PyObject *add_values(const struct hy_py_state *state, PyObject *name, PyObject *value, int grid,
                            struct hy_space *space)
{
    const char *text = c_string_of(state, name);
    hy_cleanup_free char *copy = text ? hy_strdup(text) : NULL;
    int is_list = grid || PyObject_HasAttrString(value, "choices");
    PyObject *values, *objects;

    if (!copy)
        return text ? PyErr_NoMemory() : NULL;
    values = tuple_of(value);
    if (!values) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            hy_py_error(state, "'%s' needs a list of values, or a text such as '1..4'; got %R", copy, value);
        return NULL;
    }
    objects = add_tuple(state, copy, value, values, is_list, space);
    Py_DECREF(values);
    return objects;
}

static int add_item(const struct hy_py_state *state, PyObject *item, int grid, struct hy_space *space,
                    PyObject *choices)
{
    PyObject *name = PyTuple_GetItem(item, 0), *value = PyTuple_GetItem(item, 1), *objects;
    int rc;

    if (!name || !value)
        return -1;
    if (!PyUnicode_Check(name)) {
        hy_py_error(state, "the names of a space must be strings; got %R", name);
        return -1;
    }
    objects = PyUnicode_Check(value) ? add_text(state, name, value, grid, space)
                                     : add_values(state, name, value, grid, space);
    if (!objects)
        return -1;
    rc = PyList_Append(choices, objects);
    Py_DECREF(objects);
    return rc;
}

int hy_py_search_space(const struct hy_py_state *state, PyObject *mapping, int grid, struct hy_space *space,
                       PyObject **ret_choices)
{
    PyObject *items = PyMapping_Check(mapping) ? PyMapping_Items(mapping) : NULL, *choices = PyList_New(0);
    int rc = items && choices ? 0 : -1;

    if (!items && choices) {
        PyErr_Clear();
        hy_py_error(state, "a space is a dict of names and values; got %R", mapping);
    }
    for (Py_ssize_t i = 0; rc == 0 && i < PyList_Size(items); i++)
        rc = add_item(state, PyList_GetItem(items, i), grid, space, choices);
    if (rc == 0)
        *ret_choices = Py_NewRef(choices);
    Py_XDECREF(items);
    Py_XDECREF(choices);
    return rc;
}
