/* SPDX-License-Identifier: Apache-2.0 */
#include "module.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "search/search.h"

struct search {
    PyObject object;
    struct hy_search *search;
    struct hy_value *values; /* of one point */
    PyObject *choices;       /* see hy_py_search_space */
    uint64_t asked;          /* the number of the last trial */
};

static const struct hy_py_state *state_of(PyTypeObject *type)
{
    return PyType_GetModuleState(type);
}

/* ---- settings --------------------------------------------------------------- */

/* The index of the text in a NULL-terminated list, or -1 with an exception set. */
static int index_of_name(const struct hy_py_state *state, const char *what, const char *text, const char *const *names)
{
    hy_cleanup_buf struct hy_buf all;

    hy_buf_init(&all, 200);
    for (int i = 0; names[i]; i++)
        if (strcmp(names[i], text) == 0)
            return i;
    for (int i = 0; names[i]; i++)
        if (hy_buf_printf(&all, "%s'%s'", i ? ", " : "", names[i]) < 0)
            break;
    hy_py_error(state, "unknown %s '%s'; choose one of %s", what, text,
                hy_buf_cstr(&all) ? hy_buf_cstr(&all) : names[0]);
    return -1;
}

/* An integer from low to high; None leaves *ret unchanged. */
static int parse_uint(const struct hy_py_state *state, const char *what, PyObject *o, uint64_t low, uint64_t high,
                      uint64_t *ret)
{
    unsigned long long value;
    PyObject *index;

    if (o == Py_None)
        return 0;
    index = PyNumber_Index(o);
    if (!index)
        return -1;
    value = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (PyErr_Occurred() || value < low || value > high) {
        PyErr_Clear();
        hy_py_error(state, "%s is %R, but must be from %llu to %llu", what, o, (unsigned long long)low,
                    (unsigned long long)high);
        return -1;
    }
    *ret = value;
    return 0;
}

static int parse_double(PyObject *o, double *ret)
{
    *ret = o == Py_None ? NAN : PyFloat_AsDouble(o);
    return PyErr_Occurred() ? -1 : 0;
}

struct arguments {
    const char *kind, *direction, *strategy;
    PyObject *space, *seed, *samples, *population, *generations, *mutation, *crossover;
    int asynchronous;
};

static int parse(PyObject *args, PyObject *kwargs, struct arguments *a)
{
    static const char *const names[] = {"kind",      "space",      "direction",    "seed",
                                        "samples",   "population", "generations",  "mutation",
                                        "crossover", "strategy",   "asynchronous", NULL};

    *a = (struct arguments){.seed = Py_None,
                            .samples = Py_None,
                            .population = Py_None,
                            .generations = Py_None,
                            .mutation = Py_None,
                            .crossover = Py_None};
    return PyArg_ParseTupleAndKeywords(args, kwargs, "sOs|OOOOOOzp:Search", (char **)names, &a->kind, &a->space,
                                       &a->direction, &a->seed, &a->samples, &a->population, &a->generations,
                                       &a->mutation, &a->crossover, &a->strategy, &a->asynchronous)
               ? 0
               : -1;
}

static int settings_of(const struct hy_py_state *state, const struct arguments *a, struct hy_search_settings *s)
{
    static const char *const kinds[] = {"grid", "random", "evolve", "paired", "tpe", "cma", NULL};
    static const char *const directions[] = {"min", "max", NULL};
    static const char *const strategies[] = {"best1bin", "rand1bin", NULL};
    int kind = index_of_name(state, "kind of search", a->kind, kinds), direction, strategy = -1;
    uint64_t population = 0, generations = 0;

    if (kind < 0)
        return -1;
    direction = index_of_name(state, "direction", a->direction, directions);
    if (direction < 0)
        return -1;
    if (a->strategy && (strategy = index_of_name(state, "strategy", a->strategy, strategies)) < 0)
        return -1;
    *s = (struct hy_search_settings){.kind = (enum hy_search_kind)kind,
                                     .maximize = direction == 1,
                                     .strategy = (enum hy_de_strategy)(strategy + 1),
                                     .asynchronous = a->asynchronous};
    if (parse_uint(state, "seed", a->seed, 0, UINT64_MAX, &s->seed) < 0 ||
        parse_uint(state, "samples", a->samples, 1, UINT64_MAX - 1, &s->samples) < 0 ||
        parse_uint(state, "population", a->population, 1, UINT32_MAX, &population) < 0 ||
        parse_uint(state, "generations", a->generations, 1, UINT32_MAX, &generations) < 0 ||
        parse_double(a->mutation, &s->mutation) < 0 || parse_double(a->crossover, &s->crossover) < 0)
        return -1;
    s->population = (uint32_t)population;
    s->generations = (uint32_t)generations;
    return 0;
}

static int takes_lists(enum hy_search_kind kind)
{
    return kind == HY_SEARCH_GRID || kind == HY_SEARCH_PAIRED;
}

/* ---- the type --------------------------------------------------------------- */

static int init_search(const struct hy_py_state *state, struct search *self, const struct arguments *a)
{
    struct hy_search_settings settings;
    struct hy_space space = {0};
    struct hy_err err = {0};
    int rc = settings_of(state, a, &settings);

    if (rc == 0)
        rc = hy_py_search_space(state, a->space, takes_lists(settings.kind), &space, &self->choices);
    if (rc == 0 && hy_search_new(&space, &settings, &self->search, &err) < 0) {
        hy_py_raise(state, &err);
        rc = -1;
    }
    if (rc == 0 && !(self->values = hy_calloc(space.count, sizeof *self->values))) {
        PyErr_NoMemory();
        rc = -1;
    }
    hy_space_done(&space);
    return rc;
}

static PyObject *search_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct arguments a;
    PyObject *self;

    if (parse(args, kwargs, &a) < 0)
        return NULL;
    self = alloc(type, 0);
    if (self && init_search(state_of(type), (struct search *)self, &a) < 0)
        Py_CLEAR(self);
    return self;
}

static int search_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((struct search *)self)->choices);
    return 0;
}

static int search_clear(PyObject *self)
{
    Py_CLEAR(((struct search *)self)->choices);
    return 0;
}

static void search_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    struct search *s = (struct search *)self;

    PyObject_GC_UnTrack(self);
    search_clear(self);
    hy_search_free(s->search);
    free(s->values);
    release(self);
    Py_DECREF(type);
}

/* ---- ask and tell ------------------------------------------------------------ */

static PyObject *object_at(const struct search *s, size_t i)
{
    const struct hy_dim *dim = &hy_search_space(s->search)->dims[i];
    PyObject *choices = PyList_GetItem(s->choices, (Py_ssize_t)i);

    if (!choices)
        return NULL;
    if (dim->kind == HY_DIM_CATEGORY)
        return Py_XNewRef(PyTuple_GetItem(choices, (Py_ssize_t)s->values[i].number));
    return dim->kind == HY_DIM_INT ? PyLong_FromDouble(s->values[i].number) : PyFloat_FromDouble(s->values[i].number);
}

static PyObject *params_of(const struct search *s)
{
    const struct hy_space *space = hy_search_space(s->search);
    PyObject *params = PyDict_New();

    for (size_t i = 0; params && i < space->count; i++) {
        PyObject *object;

        if (isnan(s->values[i].number)) /* inactive */
            continue;
        object = object_at(s, i);
        if (!object || PyDict_SetItemString(params, space->dims[i].name, object) < 0)
            Py_CLEAR(params);
        Py_XDECREF(object);
    }
    return params;
}

static PyObject *search_ask(PyObject *self, PyObject *ignored)
{
    struct search *s = (struct search *)self;
    int rc = hy_search_ask(s->search, &s->asked, s->values);
    PyObject *params;

    (void)ignored;
    if (rc == -ENOMEM)
        return PyErr_NoMemory();
    if (rc <= 0)
        return Py_NewRef(Py_None);
    params = params_of(s);
    return params ? Py_BuildValue("KN", (unsigned long long)s->asked, params) : NULL;
}

static PyObject *search_tell(PyObject *self, PyObject *args)
{
    struct search *s = (struct search *)self;
    unsigned long long number;
    PyObject *object;
    double value;

    if (!PyArg_ParseTuple(args, "KO:tell", &number, &object) || parse_double(object, &value) < 0)
        return NULL;
    if (hy_search_tell(s->search, number, value) < 0)
        return hy_py_error(state_of(Py_TYPE(self)), "trial %llu was never asked for, or its result is already known",
                           number);
    return Py_NewRef(Py_None);
}

static PyObject *search_total(PyObject *self, void *ignored)
{
    uint64_t total = hy_search_total(((struct search *)self)->search);

    (void)ignored;
    return total == UINT64_MAX ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(total);
}

static PyObject *search_done(PyObject *self, void *ignored)
{
    struct search *s = (struct search *)self;

    (void)ignored;
    return PyBool_FromLong(s->asked == hy_search_total(s->search));
}

static PyMethodDef methods[] = {
    {"ask", search_ask, METH_NOARGS, "The next trial as (number, params), or None."},
    {"tell", search_tell, METH_VARARGS, "tell(number, value): the result of a trial; None: it failed."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"total", search_total, NULL, "The number of trials; None: unlimited.", NULL},
    {"done", search_done, NULL, "Whether every trial has been asked for.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyObject *hy_py_search_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_new, search_new},
        {Py_tp_dealloc, search_dealloc},
        {Py_tp_traverse, search_traverse},
        {Py_tp_clear, search_clear},
        {Py_tp_methods, methods},
        {Py_tp_getset, getters},
        {Py_tp_doc, (void *)"A search: ask and tell. See hopyard.search."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "hopyard._hopyard.Search",
        .basicsize = sizeof(struct search),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };

    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
