/* SPDX-License-Identifier: Apache-2.0 */
/* How a node of a cluster finds the others, and what it tells of itself. */
#include "module.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "collective/mesh.h"
#include "wire/node.h"

/* Without the GIL; true: a signal's handler has raised an exception. */
static bool is_interrupted(void *arg)
{
    PyThreadState **thread = arg;
    bool raised;

    PyEval_RestoreThread(*thread);
    raised = PyErr_CheckSignals() < 0;
    *thread = PyEval_SaveThread();
    return raised;
}

static int join(uint16_t port, Hy__TrialReportAnswer **ret, struct hy_err *err)
{
    struct hy_presence where = {.port = port};
    PyThreadState *thread = PyEval_SaveThread();
    int rc = hy_mesh_addresses(&where.addresses, &where.address_count, err);

    if (rc == 0)
        rc = hy_node_join(&where, is_interrupted, &thread, ret, err);
    for (size_t i = 0; i < where.address_count; i++)
        free(where.addresses[i]);
    free(where.addresses);
    PyEval_RestoreThread(thread);
    return rc;
}

static PyObject *list_of(const Hy__Nodes *nodes)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < nodes->n_nodes; i++) {
        const Hy__Node *n = nodes->nodes[i];
        PyObject *tuple = Py_BuildValue("(sIsIs)", n->role, n->index, n->address, n->port, n->host);

        if (!tuple || PyList_Append(list, tuple) < 0)
            Py_CLEAR(list);
        Py_XDECREF(tuple);
    }
    return list;
}

PyObject *hy_py_serve_cluster(PyObject *module, PyObject *arg)
{
    const struct hy_py_state *state = PyModule_GetState(module);
    const long fd = PyLong_AsLong(arg);
    struct hy_err err = {0};

    if (PyErr_Occurred())
        return NULL;
    return hy_node_serves((int)fd, &err) < 0 ? hy_py_raise(state, &err) : Py_NewRef(Py_None);
}

PyObject *hy_py_join_cluster(PyObject *module, PyObject *arg)
{
    const struct hy_py_state *state = PyModule_GetState(module);
    const long port = PyLong_AsLong(arg);
    Hy__TrialReportAnswer *answer = NULL;
    struct hy_err err = {0};
    PyObject *list, *found;
    int fd;

    if (PyErr_Occurred())
        return NULL;
    if (port < 1 || port > UINT16_MAX)
        return hy_py_error(state, "%R is no port", arg);
    fd = join((uint16_t)port, &answer, &err);
    if (fd < 0)
        return fd == -EINTR && PyErr_Occurred() ? NULL : hy_py_raise(state, &err);
    list = list_of(answer->group->nodes);
    found = list ? Py_BuildValue("(iIN)", fd, answer->group->nodes->self, list) : NULL;
    if (!found)
        close(fd);
    hy__trial_report_answer__free_unpacked(answer, NULL);
    return found;
}
