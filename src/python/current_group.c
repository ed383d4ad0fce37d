/* SPDX-License-Identifier: Apache-2.0 */
#include "current_group.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    pthread_mutex_t transition; /* held to join or leave; recursive: a signal handler may leave during a join */
    pthread_cond_t idle;
    struct hy_group *group;
    pid_t pid;            /* that has joined; a fork of it has not */
    unsigned users;
} current = {.lock = PTHREAD_MUTEX_INITIALIZER,
             .transition = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
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
    current.group = g; /* that of a parent process is not freed: it is not ours */
    current.pid = getpid();
    current.users = 0;
    pthread_mutex_unlock(&current.lock);
    return 0;
}

int hy_current_group_join(bool (*give_up)(void *arg), void *arg, struct hy_err *err)
{
    int rc;

    pthread_mutex_lock(&current.transition);
    rc = join(give_up, arg, err);
    pthread_mutex_unlock(&current.transition);
    return rc;
}

/*
 * Waits until the group has no users. It is stopped first, while it can still be found: pending requests use the
 * buffers of threads that have yet to wait for them.
 */
static struct hy_group *take(void)
{
    struct hy_group *g = current.pid == getpid() ? current.group : NULL; /* stable while `transition` is held */

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
    pthread_mutex_lock(&current.transition);
    hy_group_leave(take());
    pthread_mutex_unlock(&current.transition);
}
