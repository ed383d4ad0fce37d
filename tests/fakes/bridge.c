/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A group of one for the ops of src/tensorflow, so that they can be tried with
 * no extension and no other rank: what was started is done by a thread, later.
 *
 *     allreduce ... alltoall   a copy of the input (float64: times prescale and postscale); alltoall also the splits
 *     join                     rank 7 was the last
 *
 * The name says what else happens: "fail:EBADMSG ..." ends with that error,
 * "refuse:EINVAL ..." is not taken, "never ..." is not over before fake_end().
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tensorflow/tensorflow.h"

#define ROOM 4096

struct work {
    struct hy_request request;
    struct hy_tensor *tensors;
    char *name;
    int64_t *splits;
    int64_t result;
    int is_over;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct work *works[ROOM]; /* by ticket modulo ROOM */
static int64_t first = 1, next = 1;
static int is_running, is_held, is_left, size = 1;
static char order[ROOM]; /* names as they were started, a space behind each */

static const struct {
    const char *name;
    int code;
} errors[] = {{"EBADMSG", EBADMSG}, {"EDEADLK", EDEADLK}, {"EINVAL", EINVAL},     {"ECONNABORTED", ECONNABORTED},
              {"ENOMEM", ENOMEM},   {"EEXIST", EEXIST},   {"ENOTCONN", ENOTCONN}, {"EIO", EIO}};

static int error_of(const char *name, const char *when)
{
    size_t n = strlen(when);

    for (size_t i = 0; strncmp(name, when, n) == 0 && i < sizeof(errors) / sizeof(errors[0]); i++)
        if (strncmp(name + n, errors[i].name, strlen(errors[i].name)) == 0)
            return -errors[i].code;
    return 0;
}

static size_t bytes_of(const struct hy_tensor *t, enum hy_type type)
{
    static const size_t sizes[HY_TYPES] = {1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 1};
    size_t bytes = sizes[type];

    for (uint32_t i = 0; i < t->dim_count; i++)
        bytes *= (size_t)t->dims[i];
    return bytes;
}

static int copy_tensor(struct work *w, size_t i)
{
    struct hy_tensor *t = &w->tensors[i];
    const struct hy_request *r = &w->request;
    size_t bytes = bytes_of(t, r->type);
    void *out = t->out ? t->out : r->allocate(r->arg, i, t->dims, t->dim_count, bytes);

    if (!out)
        return -ENOMEM;
    memcpy(out, t->in, bytes);
    for (size_t k = 0; r->type == HY_F64 && k < bytes / sizeof(double); k++)
        ((double *)out)[k] *= r->prescale * r->postscale;
    return 0;
}

static int give_splits(struct work *w)
{
    int64_t dims[1] = {(int64_t)w->request.split_count};
    int32_t *out = w->request.allocate(w->request.arg, 1, dims, 1, w->request.split_count * sizeof(*out));

    for (size_t i = 0; out && i < w->request.split_count; i++)
        out[i] = (int32_t)w->splits[i];
    return out ? 0 : -ENOMEM;
}

static int64_t do_work(struct work *w)
{
    int64_t result = error_of(w->name, "fail:");

    for (size_t i = 0; result == 0 && i < w->request.tensor_count; i++)
        result = copy_tensor(w, i);
    if (result == 0 && w->request.kind == HY_ALLTOALL)
        result = give_splits(w);
    return result == 0 && w->request.kind == HY_JOIN ? 7 : result;
}

static void *run(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (first == next || is_held)
            pthread_cond_wait(&changed, &lock);
        struct work *w = works[first++ % ROOM];
        if (w && strncmp(w->name, "never", 5) != 0) {
            w->result = do_work(w);
            w->is_over = 1;
        }
        pthread_cond_broadcast(&changed);
    }
    return NULL;
}

static int64_t enter(const struct hy_request *r)
{
    struct work *w = calloc(1, sizeof(*w));

    w->request = *r;
    w->name = strdup(r->name);
    w->tensors = calloc(r->tensor_count + 1, sizeof(*w->tensors));
    memcpy(w->tensors, r->tensors, r->tensor_count * sizeof(*w->tensors));
    w->splits = calloc(r->split_count + 1, sizeof(*w->splits));
    if (r->splits)
        memcpy(w->splits, r->splits, r->split_count * sizeof(*w->splits));
    works[next % ROOM] = w;
    snprintf(order + strlen(order), sizeof(order) - strlen(order), "%s ", r->name);
    return next++;
}

static int is_in_flight(const char *name)
{
    for (size_t i = 0; i < ROOM; i++)
        if (works[i] && !works[i]->is_over && strcmp(works[i]->name, name) == 0)
            return 1;
    return 0;
}

static int64_t start(const struct hy_request *r, struct hy_err *err)
{
    int64_t ticket = error_of(r->name, "refuse:");
    pthread_t thread;

    pthread_mutex_lock(&lock);
    if (ticket == 0)
        ticket = is_in_flight(r->name) ? -EEXIST : enter(r);
    if (ticket > 0 && !is_running)
        is_running = pthread_create(&thread, NULL, run, NULL) == 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (ticket < 0 && err) {
        err->code = (int)ticket;
        snprintf(err->text, sizeof(err->text), "the group refused '%s'", r->name);
    }
    return ticket;
}

static int64_t wait_for(int64_t ticket, struct hy_err *err)
{
    struct work *w = works[ticket % ROOM];
    int64_t result;

    if (is_left)
        return -ENOTCONN;
    pthread_mutex_lock(&lock);
    while (!w->is_over)
        pthread_cond_wait(&changed, &lock);
    works[ticket % ROOM] = NULL;
    pthread_mutex_unlock(&lock);
    result = w->result;
    if (result < 0 && err) {
        err->code = (int)result;
        snprintf(err->text, sizeof(err->text), "the group failed at '%s'", w->name);
    }
    free(w->tensors);
    free(w->splits);
    free(w->name);
    free(w);
    return result;
}

static int poll_for(int64_t ticket, int timeout_ms)
{
    const struct work *w = works[ticket % ROOM];
    struct timespec by;
    int over;

    clock_gettime(CLOCK_REALTIME, &by);
    by.tv_nsec += timeout_ms * 1000000L;
    by.tv_sec += by.tv_nsec / 1000000000L;
    by.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&lock);
    if (!is_left && !w->is_over && timeout_ms)
        pthread_cond_timedwait(&changed, &lock, &by);
    over = is_left || w->is_over;
    pthread_mutex_unlock(&lock);
    return over;
}

static int query(int what)
{
    return what == HY_QUERY_SIZE ? size : what > HY_QUERY_CROSS_SIZE ? -EINVAL : 10 + what;
}

static const struct hy_bridge bridge = {HY_BRIDGE_VERSION, start, wait_for, poll_for, query, NULL};

const struct hy_bridge *fake_bridge(void)
{
    return &bridge;
}

/* 1: nothing is done until 0. */
void fake_hold(int hold)
{
    pthread_mutex_lock(&lock);
    is_held = hold;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* Those named "never" fail now, as when a group is left. */
void fake_end(void)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < ROOM; i++)
        if (works[i] && !works[i]->is_over && strncmp(works[i]->name, "never", 5) == 0) {
            works[i]->result = -ECONNABORTED;
            works[i]->is_over = 1;
        }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

/* 1: nobody can wait, as while the group is being left. */
void fake_leave(int leave)
{
    is_left = leave;
}

void fake_size(int n)
{
    size = n;
}

/* What was started since the last call. */
const char *fake_order(void)
{
    static char told[ROOM];

    pthread_mutex_lock(&lock);
    memcpy(told, order, sizeof(told));
    order[0] = '\0';
    pthread_mutex_unlock(&lock);
    return told;
}
