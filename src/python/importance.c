/* SPDX-License-Identifier: Apache-2.0 */
/* The importance of hyperparameters (src/search). */
#include "module.h"

#include <errno.h>
#include <math.h>

#include "search/search.h"

static PyObject *failed(const struct hy_py_state *state, int rc)
{
    if (rc == -E2BIG)
        return hy_py_error(state, "there are more than %d hyperparameters", HY_TRIAL_COLUMNS_MAX);
    return PyErr_NoMemory();
}

static int set_param(const struct hy_py_state *state, struct hy_trial_columns *c, PyObject *name, PyObject *value)
{
    const char *key = PyUnicode_AsUTF8AndSize(name, NULL), *text = NULL;
    double number = 0;
    int rc;

    if (PyUnicode_Check(value))
        text = PyUnicode_AsUTF8AndSize(value, NULL);
    else
        number = PyFloat_AsDouble(value);
    if (!key || PyErr_Occurred())
        return -1;
    rc = text ? hy_trial_columns_set_text(c, key, text) : hy_trial_columns_set_number(c, key, number);
    if (rc < 0)
        failed(state, rc);
    return rc < 0 ? -1 : 0;
}

/* `row`: (hyperparameters, value) */
static int add_row(const struct hy_py_state *state, struct hy_trial_columns *c, PyObject *row)
{
    PyObject *params, *name, *item;
    Py_ssize_t at = 0;
    double value;
    int rc;

    if (!PyArg_ParseTuple(row, "O!d", &PyDict_Type, &params, &value))
        return -1;
    rc = hy_trial_columns_add(c, value);
    if (rc < 0)
        failed(state, rc);
    while (rc == 1 && PyDict_Next(params, &at, &name, &item))
        if (set_param(state, c, name, item) < 0)
            return -1;
    return rc < 0 ? -1 : 0;
}

static PyObject *shares_of(const struct hy_importance *m, const struct hy_trial_columns *c)
{
    PyObject *list = PyList_New((Py_ssize_t)m->count);

    for (size_t i = 0; list && i < m->count; i++) {
        PyObject *item = Py_BuildValue("(sd)", c->params[m->params[i].param].name, m->params[i].share);

        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *pairs_of(const struct hy_importance *m, const struct hy_trial_columns *c)
{
    PyObject *list = PyList_New((Py_ssize_t)m->pair_count);

    for (size_t i = 0; list && i < m->pair_count; i++) {
        const struct hy_pair_share *p = &m->pairs[i];
        PyObject *item = Py_BuildValue("(ssd)", c->params[p->first].name, c->params[p->second].name, p->share);

        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *compute(const struct hy_py_state *state, struct hy_trial_columns *c)
{
    hy_cleanup_importance struct hy_importance m = {0};
    PyObject *shares, *pairs, *result = NULL;
    int rc;

    Py_BEGIN_ALLOW_THREADS rc = hy_trial_columns_finish(c);
    if (rc == 0)
        rc = hy_importance_init(&m, c);
    Py_END_ALLOW_THREADS if (rc < 0) return failed(state, rc);
    shares = shares_of(&m, c);
    pairs = pairs_of(&m, c);
    if (shares && pairs)
        result = Py_BuildValue("(OOnz)", shares, pairs, (Py_ssize_t)c->rows, m.why[0] ? m.why : NULL);
    Py_XDECREF(shares);
    Py_XDECREF(pairs);
    return result;
}

PyObject *hy_py_importance(PyObject *module, PyObject *rows)
{
    const struct hy_py_state *state = PyModule_GetState(module);
    hy_cleanup_trial_columns struct hy_trial_columns c;
    PyObject *row, *iterator = PyObject_GetIter(rows);

    hy_trial_columns_init(&c);
    while (iterator && (row = PyIter_Next(iterator))) {
        int rc = PyTuple_Check(row) ? add_row(state, &c, row) : -1;

        Py_DECREF(row);
        if (rc < 0 && !PyErr_Occurred())
            hy_py_error(state, "importance() takes pairs (hyperparameters, value)");
        if (rc < 0)
            break;
    }
    Py_XDECREF(iterator);
    return PyErr_Occurred() ? NULL : compute(state, &c);
}
