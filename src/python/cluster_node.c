/* SPDX-License-Identifier: Apache-2.0 */
/* The type Node: membership of this process in its cluster, with the list of all nodes and notices for all of them. */
#include "module.h"

#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "collective/collective.h"
#include "wire/wire.h"

struct node {
    PyObject object;
    struct hy_node_link *link;
};

static const struct hy_py_state *state_of(PyObject *self)
{
    return PyType_GetModuleState(Py_TYPE(self));
}

static int join(uint16_t port, struct hy_node_link **ret, struct hy_err *err)
{
    struct hy_node_address where = {.port = port};
    PyThreadState *thread = PyEval_SaveThread();
    int rc = hy_host_addresses(&where.addresses, &where.address_count, err);

    if (rc == 0)
        rc = hy_node_join(&where, hy_py_is_interrupted, &thread, ret, err);
    for (size_t i = 0; i < where.address_count; i++)
        free(where.addresses[i]);
    free(where.addresses);
    PyEval_RestoreThread(thread);
    return rc;
}

static PyObject *node_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"port", NULL};
    struct hy_err err = {0};
    PyObject *self;
    int port, rc;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i:Node", (char **)names, &port))
        return NULL;
    self = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    if (port < 1 || port > UINT16_MAX)
        rc = hy_err_set(&err, -EINVAL, "%d is not a valid port", port);
    else
        rc = join((uint16_t)port, &((struct node *)self)->link, &err);
    if (rc < 0 && !PyErr_Occurred())
        hy_py_raise(state_of(self), &err);
    if (rc < 0)
        Py_CLEAR(self);
    return self;
}

static void node_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    hy_node_leave(((struct node *)self)->link);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *node_number(PyObject *self, void *ignored)
{
    (void)ignored;
    return PyLong_FromUnsignedLong(hy_node_list(((struct node *)self)->link)->self);
}

static PyObject *node_all(PyObject *self, void *ignored)
{
    const Hy__Nodes *nodes = hy_node_list(((struct node *)self)->link);
    PyObject *list = PyList_New(0);

    (void)ignored;
    for (size_t i = 0; list && i < nodes->n_nodes; i++) {
        const Hy__Node *n = nodes->nodes[i];
        PyObject *tuple = Py_BuildValue("(sIsIs)", n->role, n->index, n->address, n->port, n->host);

        if (!tuple || PyList_Append(list, tuple) < 0)
            Py_CLEAR(list);
        Py_XDECREF(tuple);
    }
    return list;
}

static PyObject *node_fileno(PyObject *self, PyObject *ignored)
{
    (void)ignored;
    return PyLong_FromLong(hy_node_socket(((struct node *)self)->link));
}

static PyObject *node_hear(PyObject *self, PyObject *ignored)
{
    struct hy_node_link *link = ((struct node *)self)->link;

    (void)ignored;
    if (hy_node_receive(link) < 0)
        return hy_py_error(state_of(self), "the agent of this node is gone, and the cluster with it");
    return PyBool_FromLong(hy_node_feed_ended(link));
}

static PyObject *node_serve(PyObject *self, PyObject *ignored)
{
    struct hy_err err = {0};

    (void)ignored;
    if (hy_node_report_serving(((struct node *)self)->link, &err) < 0)
        return hy_py_raise(state_of(self), &err);
    return Py_NewRef(Py_None);
}

static PyObject *node_stay(PyObject *self, PyObject *ignored)
{
    struct hy_node_link *link = ((struct node *)self)->link;
    PyThreadState *thread = PyEval_SaveThread();
    struct hy_err err = {0};
    int rc;

    (void)ignored;
    rc = hy_node_finish(link, hy_py_is_interrupted, &thread, &err);
    PyEval_RestoreThread(thread);
    if (rc < 0 && !PyErr_Occurred())
        hy_py_raise(state_of(self), &err);
    return rc < 0 ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {
    {"fileno", node_fileno, METH_NOARGS, "The descriptor to poll; then call hear()."},
    {"hear", node_hear, METH_NOARGS, "Receives notices: True when no more rows will be fed."},
    {"serve", node_serve, METH_NOARGS, "Declares that this node only serves the others from now on."},
    {"stay", node_stay, METH_NOARGS, "Declares that this node is done, and waits until no other node needs it."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef fields[] = {
    {"number", node_number, NULL, "The index of this node in `nodes`.", NULL},
    {"nodes", node_all, NULL, "All nodes: (role, index, address, port, host).", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyObject *hy_py_node_type(PyObject *module)
{
    static PyType_Slot slots[] = {
        {Py_tp_new, node_new},
        {Py_tp_dealloc, node_dealloc},
        {Py_tp_methods, methods},
        {Py_tp_getset, fields},
        {Py_tp_doc, (void *)"Node(port): joins the cluster of this run; waits until all nodes have joined."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "hopyard._hopyard.Node",
        .basicsize = sizeof(struct node),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
        .slots = slots,
    };

    return PyType_FromModuleAndSpec(module, &spec, NULL);
}
