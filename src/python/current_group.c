/* SPDX-License-Identifier: Apache-2.0 */
#include "current_group.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

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
