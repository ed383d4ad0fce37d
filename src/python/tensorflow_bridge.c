/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table by which the library of TensorFlow ops calls the group and the feeds of
 * this process (tensorflow/bridge.h).
 */
#include "module.h"

#include <dlfcn.h>
#include <errno.h>

#include "current_group.h"
#include "tensorflow/tensorflow.h"

static int not_joined(struct hy_err *err)
{
    return hy_err_set(err, -ENOTCONN, "Horovod has not been initialized; use hvd.init().");
}

static int64_t bridge_start(const struct hy_request *request, struct hy_err *err)
{
    struct hy_group *g = hy_current_group_hold();
    int64_t ticket;

    if (!g)
        return not_joined(err);
    ticket = hy_group_start(g, request, err);
    hy_current_group_release();
    return ticket;
}

static int64_t bridge_wait(int64_t ticket, struct hy_err *err)
{
    struct hy_group *g = hy_current_group_hold();
    int64_t result;

    if (!g)
        return not_joined(err);
    result = hy_group_wait(g, ticket, err);
    hy_current_group_release();
    return result;
}

static int bridge_poll(int64_t ticket, int timeout_ms)
{
    struct hy_group *g = hy_current_group_hold();
    int over;

    if (!g)
        return 1;
    over = hy_group_poll_for(g, ticket, timeout_ms);
    hy_current_group_release();
    return over;
}

static int bridge_query(int what)
{
    static unsigned (*const answers[])(const struct hy_group *) = {
        [HY_QUERY_RANK] = hy_group_rank,
        [HY_QUERY_SIZE] = hy_group_size,
        [HY_QUERY_LOCAL_RANK] = hy_group_local_rank,
        [HY_QUERY_LOCAL_SIZE] = hy_group_local_size,
        [HY_QUERY_CROSS_RANK] = hy_group_cross_rank,
        [HY_QUERY_CROSS_SIZE] = hy_group_cross_size,
    };
    struct hy_group *g = what >= 0 && what <= HY_QUERY_CROSS_SIZE ? hy_current_group_hold() : NULL;
    int answer;

    if (!g)
        return -ENOTCONN;
    answer = (int)answers[what](g);
    hy_current_group_release();
    return answer;
}

static int attach(const char *library, struct hy_err *err)
{
    static const struct hy_bridge bridge = {HY_BRIDGE_VERSION, bridge_start, bridge_wait,
                                            bridge_poll,       bridge_query, hy_batch_stream_next};
    void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    hy_tensorflow_attach_fn *attach_fn = handle ? (hy_tensorflow_attach_fn *)dlsym(handle, HY_BRIDGE_ATTACH) : NULL;
    int rc = attach_fn ? attach_fn(&bridge) : -ENOENT;

    if (handle)
        dlclose(handle); /* TensorFlow keeps it loaded */
    if (rc == -ENOENT)
        return hy_err_set(err, rc, "'%s' is not loaded, or is not the library of hopyard's operations", library);
    return rc < 0 ? hy_err_set(err, rc, "'%s' is of another version of hopyard; install it again", library) : 0;
}

PyObject *hy_py_attach_tensorflow(PyObject *module, PyObject *args)
{
    struct hy_err err = {0};
    const char *path;

    if (!PyArg_ParseTuple(args, "s:attach_tensorflow", &path))
        return NULL;
    if (attach(path, &err) < 0)
        return hy_py_raise(PyModule_GetState(module), &err);
    return Py_NewRef(Py_None);
}
