/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/group/group.h"
#include "collective/group/thread.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

#define STOP_S 1               /* for the current request to finish when the group is stopped */
#define DESCRIPTION_MAX (4u << 20)
#define RECEIVED_MAX (16u << 20) /* a message of another rank, and the start of the next */

/* ---- works --------------------------------------------------------------------- */

static void work_free(struct work *w)
{
    free((char *)w->request.name);
    free(w->tensors);
    free(w->splits);
    free(w);
}

/* Without splits, all members of an alltoall get the same number of rows. */
static int copy_splits(struct work *w, const struct hy_request *r, size_t count)
{
    w->splits = hy_calloc(count + 1, sizeof *w->splits);
    if (!w->splits)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        w->splits[i] = r->splits ? r->splits[i] : r->tensors[0].dims[0] / (int64_t)count;
    w->split_count = count;
    w->request.splits = w->splits;
    return 0;
}

static struct work *work_new(const struct hy_request *r, size_t split_count)
{
    struct work *w = hy_calloc(1, sizeof *w);

    if (!w)
        return NULL;
    hy_list_init(&w->link);
    w->request = *r;
    w->request.name = hy_strdup(r->name);
    w->tensors = hy_calloc(r->tensor_count + 1, sizeof *w->tensors);
    w->request.tensors = w->tensors;
    if (!w->request.name || !w->tensors || copy_splits(w, r, split_count) < 0) {
        work_free(w);
        return NULL;
    }
    if (r->tensor_count)
        memcpy(w->tensors, r->tensors, r->tensor_count * sizeof *w->tensors);
    return w;
}

/* With `lock` held. */
static void end_work(struct hy_group *g, struct work *w, int64_t result, const struct hy_err *err)
{
    hy_list_remove(&w->link);
    hy_map_remove(&g->by_key, w->key);
    w->result = result;
    if (err)
        w->err = *err;
    if (result < 0)
        w->err.code = (int)result;
    w->is_done = true;
    pthread_cond_broadcast(&g->over);
}

void hy_work_complete(struct hy_group *g, struct work *w, int64_t result, const struct hy_err *err)
{
    pthread_mutex_lock(&g->lock);
    end_work(g, w, result, err);
    pthread_mutex_unlock(&g->lock);
}

void hy_group_break(struct hy_group *g, const struct hy_err *err)
{
    pthread_mutex_lock(&g->lock);
    if (!g->broken.code) {
        g->broken = *err;
        g->broken.code = -ECONNABORTED;
    }
    hy_list_each(it, &g->asked)
        end_work(g, hy_container(it, struct work, link), -ECONNABORTED, &g->broken);
    hy_list_each(it, &g->queued)
        end_work(g, hy_container(it, struct work, link), -ECONNABORTED, &g->broken);
    g->asked_count = 0;
    pthread_mutex_unlock(&g->lock);
}

/* By set and name; another name with the same hash gets the next key. */
static uint64_t key_of(const struct hy_group *g, uint32_t set, const char *name)
{
    uint64_t key = hy_group_key(set, hy_hash(name, strlen(name)));
    const struct work *w;

    while ((w = hy_map_get(&g->by_key, key)) && (w->request.set != set || strcmp(w->request.name, name) != 0))
        key++;
    return key;
}

struct work *hy_group_find(struct hy_group *g, uint32_t set, const char *name)
{
    return hy_map_get(&g->by_key, key_of(g, set, name));
}

/* ---- validation of requests --------------------------------------------------------- */

static int check_tensor(const struct hy_request *r, const struct hy_tensor *t, struct hy_err *err)
{
    size_t elements = 1;

    if (t->dim_count > HY_DIMS_MAX)
        return hy_err_set(err, -EINVAL, "tensor '%s' has %u dimensions; the maximum is %d", r->name, t->dim_count,
                          HY_DIMS_MAX);
    for (uint32_t d = 0; d < t->dim_count; d++)
        if (t->dims[d] < 0 || __builtin_mul_overflow(elements, (size_t)t->dims[d], &elements) ||
            elements > (SIZE_MAX >> 8))
            return hy_err_set(err, -EINVAL, "tensor '%s' has an invalid shape", r->name);
    if (t->dim_count == 0 && (r->kind == HY_ALLGATHER || r->kind == HY_ALLTOALL || r->kind == HY_REDUCESCATTER))
        return hy_err_set(err, -EINVAL, "tensor '%s' is a scalar: it has no rows to %s", r->name,
                          r->kind == HY_ALLGATHER ? "gather" : "distribute");
    return 0;
}

static int check_splits(const struct hy_request *r, unsigned members, struct hy_err *err)
{
    int64_t rows = r->tensors[0].dims[0], sum = 0;

    if (r->splits && r->split_count != members)
        return hy_err_set(err, -EINVAL, "tensor '%s' has %zu splits for %u ranks", r->name, r->split_count, members);
    if (!r->splits && rows % (int64_t)members)
        return hy_err_set(err, -EINVAL,
                          "tensor '%s' has %lld rows, which cannot be divided equally among %u ranks; pass splits",
                          r->name, (long long)rows, members);
    for (unsigned i = 0; r->splits && i < members; i++)
        if (r->splits[i] < 0 || __builtin_add_overflow(sum, r->splits[i], &sum))
            return hy_err_set(err, -EINVAL, "tensor '%s': splits must not be negative", r->name);
    if (r->splits && sum != rows)
        return hy_err_set(err, -EINVAL, "tensor '%s' has %lld rows, but its splits add up to %lld", r->name,
                          (long long)rows, (long long)sum);
    return 0;
}

static bool is_reduction(enum hy_kind kind)
{
    return kind == HY_ALLREDUCE || kind == HY_REDUCESCATTER;
}

static int check_op(const struct hy_request *r, struct hy_err *err)
{
    bool is_float = r->type == HY_F16 || r->type == HY_BF16 || r->type == HY_F32 || r->type == HY_F64;

    if (!is_reduction(r->kind))
        return 0;
    if (r->op == HY_ADASUM && (!is_float || r->kind != HY_ALLREDUCE))
        return hy_err_set(err, -EINVAL, "tensor '%s': Adasum is an allreduce of floating-point numbers", r->name);
    if (r->op == HY_AVERAGE && r->type == HY_BOOL)
        return hy_err_set(err, -EINVAL, "tensor '%s': bool has no average; use Min, Max, Sum or Product", r->name);
    return 0;
}

/* The description must fit into one message, with room for additions. */
static int check_length(const struct hy_request *r, struct hy_err *err)
{
    size_t bytes = strlen(r->name);

    for (size_t i = 0; i < r->tensor_count; i++)
        bytes += 8 + 10 * (size_t)r->tensors[i].dim_count;
    if (bytes > DESCRIPTION_MAX)
        return hy_err_set(err, -EINVAL,
                          "'%.100s': the description of a request of %zu tensors takes %zu bytes; split the request",
                          r->name, r->tensor_count, bytes);
    return 0;
}

static int check_request(const struct hy_group *g, const struct hy_request *r, struct hy_err *err)
{
    const struct group_set *set = r->set < HY_SETS_MAX ? &g->sets[r->set] : NULL;
    int rc = 0;

    if (!set || !set->count)
        return hy_err_set(err, -EINVAL, "'%s': there is no process set %u; add it first", r->name, r->set);
    if (!set->set)
        return hy_err_set(err, -EINVAL, "'%s': rank %u is not a member of process set %u", r->name, g->rank, r->set);
    if (r->kind == HY_JOIN && r->set)
        return hy_err_set(err, -EINVAL, "'%s': all ranks join together, not those of a process set", r->name);
    if (r->kind >= HY_KINDS || r->type >= HY_TYPES || r->op >= HY_REDUCES || r->tensor_count > HY_TENSORS_MAX ||
        (r->kind == HY_ALLTOALL && r->tensor_count != 1))
        return hy_err_set(err, -EINVAL, "'%s': invalid request", r->name);
    if (r->kind == HY_BROADCAST && r->root >= g->size)
        return hy_err_set(err, -EINVAL, "tensor '%s': there is no rank %u to broadcast from", r->name, r->root);
    for (size_t i = 0; rc == 0 && i < r->tensor_count; i++)
        rc = check_tensor(r, &r->tensors[i], err);
    if (rc == 0)
        rc = check_length(r, err);
    if (rc == 0 && r->kind == HY_ALLTOALL)
        rc = check_splits(r, set->count, err);
    return rc < 0 ? rc : check_op(r, err);
}

static _Atomic int64_t last_ticket; /* across all groups, so that tickets are never reused */

/* ---- start and wait ------------------------------------------------------------------ */

/* With `lock` held. A ticket, or -Exxx, and the work remains the caller's. */
static int64_t enqueue(struct hy_group *g, struct work *w, struct hy_err *err)
{
    if (g->broken.code) {
        if (g->missed)
            hy_rendezvous_report_missed(g->rendezvous, g->missed - 1);
        *err = g->broken;
        return -ECONNABORTED;
    }
    w->key = key_of(g, w->request.set, w->request.name);
    if (hy_map_get(&g->by_key, w->key))
        return hy_err_set(err, -EEXIST, "a request named '%s' is pending; wait for it, or use different names",
                          w->request.name);
    w->ticket = atomic_fetch_add(&last_ticket, 1) + 1;
    if (hy_map_put(&g->tickets, (uint64_t)w->ticket, w) < 0)
        return hy_err_oom(err);
    if (hy_map_put(&g->by_key, w->key, w) < 0) {
        hy_map_remove(&g->tickets, (uint64_t)w->ticket);
        return hy_err_oom(err);
    }
    hy_list_push(&g->queued, &w->link);
    return w->ticket;
}

static int64_t start(struct hy_group *g, const struct hy_request *r, size_t split_count, struct hy_err *err)
{
    struct work *w = work_new(r, split_count);
    int64_t ticket;

    if (!w)
        return hy_err_oom(err);
    w->asked_us = g->timeline ? hy_timeline_now() : 0;
    ticket = enqueue(g, w, err);
    if (ticket < 0)
        work_free(w);
    return ticket;
}

int64_t hy_group_start(struct hy_group *g, const struct hy_request *r, struct hy_err *err)
{
    int64_t ticket;

    pthread_mutex_lock(&g->lock);
    ticket = check_request(g, r, err);
    if (ticket == 0)
        ticket = start(g, r, r->kind == HY_ALLTOALL ? g->sets[r->set].count : 0, err);
    pthread_mutex_unlock(&g->lock);
    if (ticket > 0 && !r->waits_next)
        hy_group_wake(g);
    return ticket;
}

/* Called with `lock` held, and releases it meanwhile. */
static void progress_inline(struct hy_group *g, int64_t ticket)
{
    pthread_mutex_unlock(&g->lock);
    hy_group_progress_inline(g, ticket);
    pthread_mutex_lock(&g->lock);
}

int64_t hy_group_wait(struct hy_group *g, int64_t ticket, struct hy_err *err)
{
    struct work *w;
    int64_t result;

    pthread_mutex_lock(&g->lock);
    w = hy_map_get(&g->tickets, (uint64_t)ticket);
    if (!w || w->is_waited_for) {
        pthread_mutex_unlock(&g->lock);
        return hy_err_set(err, -EINVAL, "there is no request %lld, or it has been waited for already",
                          (long long)ticket);
    }
    w->is_waited_for = true; /* no other thread can wait for it from now on */
    g->blocked++;
    if (!w->is_done)
        progress_inline(g, ticket);
    while (!w->is_done)
        pthread_cond_wait(&g->over, &g->lock);
    g->blocked--;
    hy_map_remove(&g->tickets, (uint64_t)ticket);
    pthread_mutex_unlock(&g->lock);
    result = w->result;
    if (result < 0)
        *err = w->err;
    work_free(w);
    return result;
}

/* With `lock` held. */
static bool is_done(struct hy_group *g, int64_t ticket)
{
    const struct work *w = hy_map_get(&g->tickets, (uint64_t)ticket);

    return !w || w->is_done;
}

static struct timespec after_ms(int timeout_ms)
{
    struct timespec by;

    clock_gettime(CLOCK_MONOTONIC, &by);
    by.tv_sec += timeout_ms / 1000;
    by.tv_nsec += timeout_ms % 1000 * 1000000L;
    by.tv_sec += by.tv_nsec / 1000000000L;
    by.tv_nsec %= 1000000000L;
    return by;
}

int hy_group_await(struct hy_group *g, int64_t ticket, int timeout_ms)
{
    struct timespec by = after_ms(timeout_ms);
    int rc = 0, over;

    pthread_mutex_lock(&g->lock);
    g->blocked++;
    if (!is_done(g, ticket))
        progress_inline(g, ticket);
    while (!(over = is_done(g, ticket)) && rc == 0)
        rc = pthread_cond_timedwait(&g->over, &g->lock, &by);
    g->blocked--;
    pthread_mutex_unlock(&g->lock);
    return over;
}

bool hy_work_is_done(struct hy_group *g, int64_t ticket)
{
    bool over;

    pthread_mutex_lock(&g->lock);
    over = is_done(g, ticket);
    pthread_mutex_unlock(&g->lock);
    return over;
}

int hy_group_poll_for(struct hy_group *g, int64_t ticket, int timeout_ms)
{
    struct timespec by = after_ms(timeout_ms);
    int over;

    pthread_mutex_lock(&g->lock);
    g->polled_ms = hy_clock_ms();
    if (!is_done(g, ticket) && timeout_ms)
        (void)pthread_cond_timedwait(&g->over, &g->lock, &by); /* is_done is checked in any case */
    else if (!is_done(g, ticket))
        progress_inline(g, ticket);
    over = is_done(g, ticket);
    pthread_mutex_unlock(&g->lock);
    return over;
}

int hy_group_poll(struct hy_group *g, int64_t ticket)
{
    if (g->alone) /* there is no thread */
        hy_group_progress_inline(g, ticket);
    return hy_work_is_done(g, ticket);
}

/* ---- process sets ------------------------------------------------------------------------ */

/* A request of all ranks without tensors. */
static int64_t run_without_tensors(struct hy_group *g, enum hy_kind kind, const char *name, const int64_t *list,
                                   size_t count, struct hy_err *err)
{
    struct hy_request r = {.kind = kind, .name = name, .prescale = 1, .postscale = 1, .splits = list};
    int64_t ticket;

    pthread_mutex_lock(&g->lock);
    ticket = start(g, &r, count, err);
    pthread_mutex_unlock(&g->lock);
    if (ticket < 0)
        return ticket;
    return hy_group_wait(g, ticket, err);
}

int64_t hy_group_set_add(struct hy_group *g, const unsigned *members, size_t count, struct hy_err *err)
{
    hy_cleanup_free int64_t *list = hy_calloc(count + 1, sizeof *list);

    if (!list)
        return hy_err_oom(err);
    if (count > g->size)
        return hy_err_set(err, -EINVAL, "a process set of %zu ranks: there are %u", count, g->size);
    for (size_t i = 0; i < count; i++)
        list[i] = members[i];
    return run_without_tensors(g, HY_SET_ADD, "add_process_set", list, count, err);
}

int hy_group_set_remove(struct hy_group *g, uint32_t set, struct hy_err *err)
{
    int64_t number = set;

    return (int)run_without_tensors(g, HY_SET_REMOVE, "remove_process_set", &number, 1, err);
}

int hy_group_set_members(struct hy_group *g, uint32_t set, unsigned *members, size_t room)
{
    int rc = -ENOENT;

    pthread_mutex_lock(&g->lock);
    if (set < HY_SETS_MAX && g->sets[set].count) {
        rc = (int)g->sets[set].count;
        for (size_t i = 0; i < room && i < g->sets[set].count; i++)
            members[i] = g->sets[set].members[i];
    }
    pthread_mutex_unlock(&g->lock);
    return rc;
}

/* ---- the timeline -------------------------------------------------------------------------- */

int hy_group_timeline_start(struct hy_group *g, const char *path, bool mark_cycles, struct hy_err *err)
{
    struct hy_timeline *t = NULL;
    int rc;

    pthread_mutex_lock(&g->lock);
    rc = g->timeline ? hy_err_set(err, -EALREADY, "a timeline is being written already; stop it first")
                     : hy_timeline_open(path, g->rank, mark_cycles, &t, err);
    if (rc == 0)
        g->timeline = t;
    atomic_store(&g->has_timeline, g->timeline != NULL);
    pthread_mutex_unlock(&g->lock);
    return rc;
}

int hy_group_timeline_stop(struct hy_group *g, struct hy_err *err)
{
    struct hy_timeline *t;

    pthread_mutex_lock(&g->lock);
    t = hy_take(g->timeline);
    atomic_store(&g->has_timeline, false);
    pthread_mutex_unlock(&g->lock);
    return hy_timeline_close(t, err);
}

/* As in Horovod, by the environment. */
static int start_wanted_timeline(struct hy_group *g, struct hy_err *err)
{
    const char *path = getenv("HOROVOD_TIMELINE"), *cycles = getenv("HOROVOD_TIMELINE_MARK_CYCLES");

    const char *own = getenv("HOPYARD_TRIAL_DIR"), *name;
    hy_cleanup_free char *below = NULL;
    bool mark = cycles && strcmp(cycles, "0") != 0;
    int rc;

    if (!path || !*path || strcmp(path, "DYNAMIC") == 0)
        return 0;
    rc = hy_group_timeline_start(g, path, mark, err);
    if (rc != -ENOENT || !own)
        return rc;
    /* This machine has no such directory; files in the trial's directory are copied to the driver. */
    name = strrchr(path, '/');
    below = hy_path_join(own, name ? name + 1 : path);
    return below ? hy_group_timeline_start(g, below, mark, err) : hy_err_oom(err);
}

/* ---- joining and leaving --------------------------------------------------------------------------- */

static void group_free(struct hy_group *g)
{
    struct cached_request *r;
    struct work *w;

    for (size_t i = 0; (r = hy_map_next(&g->cached_requests, &i));) {
        free(r->signature);
        free(r);
    }
    for (size_t i = 0; (w = hy_map_next(&g->tickets, &i));)
        work_free(w); /* no thread has waited for it */
    for (unsigned s = 0; s < HY_SETS_MAX; s++) {
        hy_set_close(g->sets[s].set);
        free(g->sets[s].members);
    }
    for (unsigned i = 0; g->received && i < g->size; i++)
        hy_buf_done(&g->received[i]);
    free(g->received);
    free(g->stage);
    hy_negotiator_free(g->negotiator);
    hy_comm_close(g->comm);
    hy_rendezvous_free(g->rendezvous);
    hy_map_done(&g->cached_requests);
    hy_map_done(&g->by_id);
    hy_map_done(&g->tickets);
    hy_map_done(&g->by_key);
    if (g->wake >= 0)
        close(g->wake);
    pthread_mutex_destroy(&g->lock);
    pthread_mutex_destroy(&g->progress_lock);
    pthread_cond_destroy(&g->over);
    free(g);
}

static int open_world(struct hy_group *g, struct hy_err *err)
{
    hy_cleanup_free int64_t *all = hy_calloc(g->size, sizeof *all);

    g->received = hy_calloc(g->size, sizeof *g->received);
    if (!all || !g->received)
        return hy_err_oom(err);
    for (unsigned i = 0; i < g->size; i++) {
        all[i] = i;
        hy_buf_init(&g->received[i], RECEIVED_MAX);
    }
    return hy_group_add_set(g, 0, all, g->size, err) ? 0 : err->code;
}

/* A variable in seconds, as ms; `otherwise` if it is not set. */
static int64_t seconds_of(const char *variable, int64_t otherwise)
{
    const char *text = getenv(variable);
    uint64_t seconds;

    if (!text || !*text)
        return otherwise;
    if (hy_parse_u64(text, &seconds) == 0 && seconds <= INT32_MAX)
        return (int64_t)seconds * 1000;
    hy_warn("ignoring %s: '%s' is not a number of seconds", variable, text);
    return otherwise;
}

/* As in Horovod, there is no failure before the first warning. */
static struct hy_stall_limits wanted_stall_limits(void)
{
    const char *disabled = getenv("HOROVOD_STALL_CHECK_DISABLE");
    struct hy_stall_limits limits = {0};

    if (disabled && *disabled && strcmp(disabled, "0") != 0)
        return limits;
    limits.warn_ms = seconds_of("HOROVOD_STALL_CHECK_TIME_SECONDS", HY_NEGOTIATOR_WARN_MS);
    limits.fail_ms = seconds_of("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 0);
    if (limits.fail_ms <= limits.warn_ms)
        limits.fail_ms = 0;
    return limits;
}

static int open_inside(struct hy_group *g, struct hy_err *err)
{
    int rc = open_world(g, err);

    if (rc < 0)
        return rc;
    g->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (g->wake < 0)
        return hy_err_sys(err, -errno, "cannot create an eventfd");
    g->stall_limits = wanted_stall_limits();
    if (g->rank == 0) {
        g->negotiator = hy_negotiator_new(g->size, &hy_group_negotiator_events, g);
        if (!g->negotiator)
            return hy_err_oom(err);
        hy_negotiator_set_stall_limits(g->negotiator, &g->stall_limits);
    }
    return start_wanted_timeline(g, err);
}

static int start_thread(struct hy_group *g, struct hy_err *err)
{
    int rc;

    if (g->alone)
        return 0;
    rc = hy_thread_start(&g->thread, hy_group_progress, g);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot start the thread for collectives");
    pthread_setname_np(g->thread, "hopyard");
    g->has_thread = true;
    return 0;
}

/* With the monotonic clock. */
static void init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

int hy_group_join(struct hy_group **ret, struct hy_err *err)
{
    return hy_group_join_or(ret, NULL, NULL, err);
}

int hy_group_join_or(struct hy_group **ret, bool (*give_up)(void *arg), void *arg, struct hy_err *err)
{
    struct hy_group *g = hy_calloc(1, sizeof *g);
    int rc;

    if (!g)
        return hy_err_oom(err);
    g->wake = -1;
    pthread_mutex_init(&g->lock, NULL);
    pthread_mutex_init(&g->progress_lock, NULL);
    init_condition(&g->over);
    hy_list_init(&g->queued);
    hy_list_init(&g->asked);
    rc = hy_rendezvous(&g->rendezvous, &g->comm, give_up, arg, err);
    if (rc == 0) {
        g->rank = hy_comm_rank(g->comm);
        g->size = hy_comm_size(g->comm);
        hy_rendezvous_on_wait(g->rendezvous, hy_group_on_wait, g);
        g->alone = !g->rendezvous; /* in an elastic training, a single rank must learn of new ranks */
        rc = open_inside(g, err);
    }
    if (rc == 0)
        rc = start_thread(g, err);
    if (rc < 0) {
        hy_rendezvous_fail(g->rendezvous, err->text); /* the others are already in the group with this rank */
        group_free(g);
        return rc;
    }
    *ret = g;
    return 0;
}

/* The thread may be in a collective that other ranks never start: then it is canceled. */
static void end_thread(struct hy_group *g)
{
    struct timespec by;

    hy_group_wake(g);
    clock_gettime(CLOCK_REALTIME, &by);
    by.tv_sec += STOP_S;
    if (pthread_timedjoin_np(g->thread, NULL, &by) != 0) {
        hy_rendezvous_cancel(g->rendezvous);
        pthread_join(g->thread, NULL);
    }
    g->has_thread = false;
}

void hy_group_stop(struct hy_group *g)
{
    struct hy_err err = {.code = -ECONNABORTED, .text = "this rank has left the group"};

    pthread_mutex_lock(&g->lock);
    g->stopping = true;
    pthread_mutex_unlock(&g->lock);
    if (g->has_thread)
        end_thread(g);
    pthread_mutex_lock(&g->progress_lock); /* a waiting thread may be making progress */
    hy_group_break(g, &err);
    pthread_mutex_unlock(&g->progress_lock);
}

void hy_group_leave(struct hy_group *g)
{
    if (!g)
        return;
    hy_group_stop(g);
    if (hy_rendezvous_leave(g->rendezvous) < 0)
        hy_debug("the agent did not acknowledge that this rank has left");
    if (hy_timeline_close(g->timeline, NULL) < 0)
        hy_warn("the timeline is incomplete");
    group_free(g);
}

unsigned hy_group_rank(const struct hy_group *g)
{
    return g->rank;
}

unsigned hy_group_size(const struct hy_group *g)
{
    return g->size;
}

unsigned hy_group_local_rank(const struct hy_group *g)
{
    return hy_comm_local_rank(g->comm);
}

unsigned hy_group_local_size(const struct hy_group *g)
{
    return hy_comm_local_size(g->comm);
}

unsigned hy_group_cross_rank(const struct hy_group *g)
{
    return hy_comm_cross_rank(g->comm);
}

unsigned hy_group_cross_size(const struct hy_group *g)
{
    return hy_comm_cross_size(g->comm);
}

bool hy_group_is_homogeneous(const struct hy_group *g)
{
    return hy_comm_is_homogeneous(g->comm);
}

bool hy_group_is_outdated(const struct hy_group *g)
{
    return hy_rendezvous_is_outdated(g->rendezvous);
}
