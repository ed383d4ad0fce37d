/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of a trial to its agent: metrics, the error of a failed trial, remarks on its return value. */
#include "module.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "wire/wire.h"

struct report_message {
    Hy__TrialReport report;
    Hy__Metric metrics[HY_REPORT_METRICS_MAX], *pointers[HY_REPORT_METRICS_MAX];
};

/* The names are borrowed from the dict. */
static int add_values(const struct hy_py_state *state, PyObject *values, struct report_message *out)
{
    PyObject *name, *value;
    Py_ssize_t at = 0, n;

    while (PyDict_Next(values, &at, &name, &value)) {
        Hy__Metric *m = &out->metrics[out->report.n_metrics];
        const char *text = PyUnicode_AsUTF8AndSize(name, &n);

        if (!text)
            return -1;
        if (n == 0 || (size_t)n != strlen(text)) {
            hy_py_error(state, "%R is not a valid name for a value", name);
            return -1;
        }
        if (out->report.n_metrics == HY_REPORT_METRICS_MAX) {
            hy_py_error(state, "at most %d values can be reported at once", HY_REPORT_METRICS_MAX);
            return -1;
        }
        hy__metric__init(m);
        m->name = (char *)text;
        m->value = PyFloat_AsDouble(value);
        if (PyErr_Occurred())
            return -1;
        out->pointers[out->report.n_metrics++] = m;
    }
    return 0;
}

static int set_step(const struct hy_py_state *state, PyObject *step, int64_t *ret)
{
    long long value = step == Py_None ? -1 : PyLong_AsLongLong(step);

    if (PyErr_Occurred() || (step != Py_None && value < 0)) {
        PyErr_Clear();
        hy_py_error(state, "step must be an integer of 0 or more, not %R", step);
        return -1;
    }
    *ret = value;
    return 0;
}

static const char *decision_name(Hy__Decision__Kind decision)
{
    return decision == HY__DECISION__KIND__STOP ? "stop" : decision == HY__DECISION__KIND__PAUSE ? "pause" : "continue";
}

PyObject *hy_py_report(PyObject *module, PyObject *args)
{
    const struct hy_py_state *state = PyModule_GetState(module);
    const char *error = NULL, *detail = NULL, *remark = NULL;
    PyObject *values, *step;
    struct report_message out;
    Hy__Decision__Kind decision = HY__DECISION__KIND__CONTINUE;
    int lacks_metric = 0;
    struct hy_err err = {0};
    int rc;

    if (!PyArg_ParseTuple(args, "O!Ozz|zp:report", &PyDict_Type, &values, &step, &error, &detail, &remark,
                          &lacks_metric))
        return NULL;
    hy__trial_report__init(&out.report);
    out.report.metrics = out.pointers;
    if (error)
        out.report.error = (char *)error;
    if (detail)
        out.report.detail = (char *)detail;
    if (remark)
        out.report.remark = (char *)remark;
    out.report.lacks_metric = lacks_metric;
    if (add_values(state, values, &out) < 0 || set_step(state, step, &out.report.step) < 0)
        return NULL;
    if (!error && !remark && !getenv("HOPYARD_SOCKET")) /* called outside of a trial */
        return PyUnicode_FromString(decision_name(decision));
    Py_BEGIN_ALLOW_THREADS rc = hy_report_send(&out.report, &decision, &err);
    Py_END_ALLOW_THREADS return rc < 0 ? hy_py_raise(state, &err) : PyUnicode_FromString(decision_name(decision));
}
