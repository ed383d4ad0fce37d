/* SPDX-License-Identifier: Apache-2.0 */
#include "current_group.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "tensorflow/bridge.h"

static struct {
    pthread_mutex_t lock;
    pthread_mutex_t turn; /* one joins or leaves at a time; a signal's handler may leave where its thread joins */
    pthread_cond_t idle;
    struct hy_group *group;
    pid_t pid;            /* who has joined: a fork of it has not */
    unsigned users;
} current = {.lock = PTHREAD_MUTEX_INITIALIZER,
             .turn = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
             .idle = PTHREAD_COND_INITIALIZER};

struct hy_group *hy_current_group_hold(void)
{
    struct hy_group *g;

    pthread_mutex_lock(&current.lock);
    g = current.group && current.pid == getpid() ? current.group : NULL;
    if (g)
        current.users++;
    pthread_mutex_unlock(&current.lock);
    return g;
}

void hy_current_group_release(void)
{
    pthread_mutex_lock(&current.lock);
    if (--current.users == 0)
        pthread_cond_broadcast(&current.idle);
    pthread_mutex_unlock(&current.lock);
}

static int join(bool (*give_up)(void *arg), void *arg, struct hy_err *err)
{
    struct hy_group *g = NULL;
    int rc;

    if (current.group && current.pid == getpid())
        return 0;
    rc = hy_group_join_or(&g, give_up, arg, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&current.lock);
    current.group = g; /* what a parent process had is its own */
    current.pid = getpid();
    current.users = 0;
    pthread_mutex_unlock(&current.lock);
    return 0;
}

int hy_current_group_join(bool (*give_up)(void *arg), void *arg, struct hy_err *err)
{
    int rc;

    pthread_mutex_lock(&current.turn);
    rc = join(give_up, arg, err);
    pthread_mutex_unlock(&current.turn);
    return rc;
}

/*
 * Nobody gets it any more; those who have it are done. It is stopped before that: until then who waits must find it,
 * for what he has given is in use.
 */
static struct hy_group *take(void)
{
    struct hy_group *g = current.pid == getpid() ? current.group : NULL; /* it is our turn: it stays what it is */

    if (g)
        hy_group_stop(g);
    pthread_mutex_lock(&current.lock);
    current.group = NULL;
    while (g && current.users)
        pthread_cond_wait(&current.idle, &current.lock);
    pthread_mutex_unlock(&current.lock);
    return g;
}

void hy_current_group_leave(void)
{
    pthread_mutex_lock(&current.turn);
    hy_group_leave(take());
    pthread_mutex_unlock(&current.turn);
}

/* ---- the bridge ------------------------------------------------------------------ */

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
        [HY_QUERY_RANK] = hy_group_rank,             [HY_QUERY_SIZE] = hy_group_size,
        [HY_QUERY_LOCAL_RANK] = hy_group_local_rank, [HY_QUERY_LOCAL_SIZE] = hy_group_local_size,
        [HY_QUERY_CROSS_RANK] = hy_group_cross_rank, [HY_QUERY_CROSS_SIZE] = hy_group_cross_size,
    };
    struct hy_group *g = what >= 0 && what <= HY_QUERY_CROSS_SIZE ? hy_current_group_hold() : NULL;
    int answer;

    if (!g)
        return -ENOTCONN;
    answer = (int)answers[what](g);
    hy_current_group_release();
    return answer;
}

int hy_py_attach_bridge(const char *library, struct hy_err *err)
{
    static const struct hy_bridge bridge = {HY_BRIDGE_VERSION, bridge_start, bridge_wait, bridge_poll,
                                            bridge_query, hy_batch_stream_next};
    void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    hy_tensorflow_attach_fn *attach = handle ? (hy_tensorflow_attach_fn *)dlsym(handle, HY_BRIDGE_ATTACH) : NULL;
    int rc = attach ? attach(&bridge) : -ENOENT;

    if (handle)
        dlclose(handle); /* TensorFlow keeps it */
    if (rc == -ENOENT)
        return hy_err_set(err, rc, "'%s' is not loaded, or is not the library of hopyard's operations", library);
    return rc < 0 ? hy_err_set(err, rc, "'%s' is of another version of hopyard; install it again", library) : 0;
}
