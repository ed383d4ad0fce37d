/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The group's thread. In each round it sends the requests that were started since the last one, receives messages (on
 * rank 0 the negotiator answers at once), and executes orders. While requests are pending it polls for a moment between
 * rounds, since the answer is near, and then sleeps.
 *
 * While it sleeps, the waiting thread makes progress itself: on a busy core, waking another thread costs more than most
 * collectives. The thread that makes progress holds `progress_lock`.
 */
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "collective/group/group.h"

#define YIELDS 200         /* rounds without progress before it sleeps, while requests are pending */
#define WAITS_MS 250       /* without progress before a rank with a blocked thread reports that it waits */
#define POLLED_MS 1000     /* since the last poll: the thread is still polling */
#define IDLE_MS 1000
#define LAST_ROUNDS 8      /* by a waiting thread that is done, before it wakes the group's thread */
#define SLICE_NS 100000
#define BUSY_MS 1000       /* since the last request: a caller with `waits_next` may not wait after all, so ... */
#define BUSY_POLL_MS 5     /* ... the thread checks this often; a timer for each request would cost more */

static bool make_progress(struct hy_group *g)
{
    bool any = hy_group_submit_queued(g);

    return g->size > 1 && hy_group_receive_all(g) ? true : any;
}

/* ---- sleeping ------------------------------------------------------------------------------------ */

/* The reason for the wakeup was written with `lock` held, and the thread checks it with `lock` held after setting
 * `asleep`: at least one of the two sees the other. */
void hy_group_wake(struct hy_group *g)
{
    uint64_t one = 1;

    if (atomic_load(&g->asleep) && write(g->wake, &one, sizeof one) < 0 && errno != EAGAIN)
        abort(); /* an eventfd counts up to 2^64 - 2 */
}

static bool has_queued(struct hy_group *g)
{
    bool any;

    pthread_mutex_lock(&g->lock);
    any = !hy_list_empty(&g->queued) || g->stopping;
    pthread_mutex_unlock(&g->lock);
    return any;
}

/* Whether a thread has been blocked, or for a longer time polling, without progress. */
static bool is_any_thread_waiting(struct hy_group *g, int64_t now)
{
    int64_t quiet_ms = now - g->idle_since;
    bool any;

    pthread_mutex_lock(&g->lock);
    any = g->blocked > 0 ? quiet_ms >= WAITS_MS : now - g->polled_ms < POLLED_MS && quiet_ms >= HY_POLLS_WAIT_MS;
    pthread_mutex_unlock(&g->lock);
    return any;
}

/* Rank 0 has not acknowledged that this rank waits: it is stopped, or its machine is slow. */
static void warn_rank_0_silent(struct hy_group *g, int64_t now)
{
    char text[300];
    const struct work *w;

    if (g->warned || g->waiting_acknowledged || !g->reported_waiting || !g->stall_limits.warn_ms ||
        now - g->idle_since < g->stall_limits.warn_ms)
        return;
    g->warned = true;
    w = hy_container(g->asked.next, struct work, link);
    snprintf(text, sizeof text, "rank 0: no answer for %lld s to rank %u, which waits for '%.100s'",
             (long long)g->stall_limits.warn_ms / 1000, g->rank, w->request.name);
    hy_group_warn(g, text);
}

/* Reports to rank 0 that this rank waits, for the detection of deadlocks. Returns for how long to sleep. */
static int64_t check_timeouts(struct hy_group *g)
{
    int64_t now = hy_clock_ms(), next = -1;

    if (g->asked_count && is_any_thread_waiting(g, now)) {
        if (!g->reported_waiting)
            hy_group_report_waiting(g, true);
        warn_rank_0_silent(g, now);
    }
    if (g->negotiator)
        next = hy_negotiator_tick(g->negotiator, now);
    if (g->asked_count)
        return WAITS_MS < next - now || next < 0 ? WAITS_MS / 2 : next - now;
    if (now - g->idle_since < BUSY_MS)
        return BUSY_POLL_MS;
    return next < 0 ? IDLE_MS : next - now;
}

static bool has_sets_without_us(const struct hy_group *g)
{
    for (unsigned s = 0; s < HY_SETS_MAX; s++)
        if (g->sets[s].count && !g->sets[s].set)
            return true;
    return false;
}

/* Messages of peers cannot lead to an order while this rank has no pending request, so they need not wake it. */
static bool needs_peers(const struct hy_group *g)
{
    return g->asked_count || (g->negotiator && has_sets_without_us(g));
}

/* From now on, requests and messages wake the thread. 1: there are some already. */
static int arm_wakeup(struct hy_group *g)
{
    atomic_store(&g->asleep, true);
    if (has_queued(g))
        return 1;
    return needs_peers(g) ? hy_comm_arm_wakeup(g->comm) : 0;
}

static void disarm_wakeup(struct hy_group *g)
{
    hy_comm_disarm_wakeup(g->comm);
    atomic_store(&g->asleep, false);
}

/* Releases progress_lock meanwhile, so that a waiting thread can make progress. */
static int poll_unlocked(struct hy_group *g, int64_t timeout_ms)
{
    struct hy_comm_poll wait;
    int rc = 0;

    hy_comm_poll_begin(g->comm, g->wake, needs_peers(g), &wait);
    g->is_polling = true;
    g->polls_peers = needs_peers(g);
    pthread_mutex_unlock(&g->progress_lock);
    if (poll(wait.fds, wait.count, timeout_ms > HY_CHECK_MS ? HY_CHECK_MS : (int)timeout_ms) < 0) {
        rc = errno == EINTR ? 0 : -errno;
        wait.count = 0;
    }
    pthread_mutex_lock(&g->progress_lock);
    g->is_polling = false;
    return rc < 0 || !wait.count ? rc : hy_comm_poll_end(g->comm, &wait);
}

static void sleep_until_event(struct hy_group *g)
{
    int64_t timeout = check_timeouts(g);
    uint64_t count;
    int rc;

    if (g->broken.code)
        return;
    rc = arm_wakeup(g);
    if (rc == 0)
        rc = poll_unlocked(g, timeout);
    disarm_wakeup(g);
    if (read(g->wake, &count, sizeof count) < 0 && errno != EAGAIN && errno != EINTR)
        rc = -errno;
    if (rc < 0)
        hy_group_fail(g, hy_group_comm_error(g, "the group's thread cannot sleep"));
}

static bool is_ending(struct hy_group *g)
{
    bool ending;

    pthread_mutex_lock(&g->lock);
    ending = g->stopping || g->broken.code;
    pthread_mutex_unlock(&g->lock);
    return ending;
}

/* Executes the orders that rank 0 sent before it knew that this rank leaves: other ranks take part in them. */
static void drain_orders(struct hy_group *g)
{
    while (!g->may_leave && !g->broken.code)
        if (!hy_group_receive_all(g) && hy_comm_sleep(g->comm, -1, IDLE_MS) < 0)
            hy_group_fail(g, hy_group_comm_error(g, "the group's thread cannot sleep"));
}

static int send_leaves(struct hy_group *g)
{
    Hy__FromRank from = HY__FROM_RANK__INIT;

    from.body_case = HY__FROM_RANK__BODY_LEAVES;
    from.leaves = g->asked_count > 0;
    return hy_group_send(g, 0, &from.base);
}

static int send_left_to_all(struct hy_group *g)
{
    Hy__ToRank to = HY__TO_RANK__INIT;
    int rc = 0;

    to.body_case = HY__TO_RANK__BODY_LEFT;
    to.left = 0;
    for (unsigned rank = 1; rank < g->size && rc == 0; rank++)
        rc = hy_group_send(g, rank, &to.base);
    return rc;
}

/* Other ranks do not wait for this one any more, and do not take its exit for a failure. It blocks until the message
 * is sent to all of them, including those that are still connecting. A rank that cannot receive it has exited. */
static void announce_leave(struct hy_group *g)
{
    if (g->broken.code || g->size == 1)
        return;
    if (g->negotiator) {
        if (send_left_to_all(g) == 0)
            (void)hy_comm_flush(g->comm);
        return;
    }
    if (send_leaves(g) < 0)
        return;
    if (g->asked_count > 0)
        drain_orders(g);
    else
        (void)hy_comm_flush(g->comm);
}

/*
 * This thread runs for microseconds at a time, while all ranks wait for it: with a short time slice it is scheduled
 * sooner. Kernels before 6.12 ignore it.
 */
static void request_short_slices(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {
        .size = sizeof attributes, .policy = SCHED_OTHER, .nice = getpriority(PRIO_PROCESS, 0), .runtime = SLICE_NS};

    (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}

void *hy_group_progress(void *arg)
{
    struct hy_group *g = arg;
    unsigned quiet = 0;

    request_short_slices();
    pthread_mutex_lock(&g->progress_lock);
    g->idle_since = hy_clock_ms();
    while (!is_ending(g)) {
        if (make_progress(g)) {
            quiet = 0;
        } else if (g->asked_count && ++quiet < YIELDS) {
            sched_yield();
        } else {
            sleep_until_event(g);
        }
    }
    announce_leave(g);
    pthread_mutex_unlock(&g->progress_lock);
    return NULL;
}

/* ---- progress by a waiting thread ---------------------------------------------------------------- */

/* The group's thread keeps sleeping unless there is work left. */
static void return_to_thread(struct hy_group *g)
{
    int pending = arm_wakeup(g);

    for (unsigned i = 0; pending > 0 && i < LAST_ROUNDS; i++) {
        disarm_wakeup(g);
        make_progress(g);
        pending = arm_wakeup(g);
    }
    if (pending || (needs_peers(g) && !g->polls_peers))
        hy_group_wake(g);
}

void hy_group_progress_inline(struct hy_group *g, int64_t ticket)
{
    unsigned quiet = 0;

    if (g->alone ? pthread_mutex_lock(&g->progress_lock) : pthread_mutex_trylock(&g->progress_lock))
        return;
    if (g->is_polling)
        disarm_wakeup(g);
    while (quiet < YIELDS && !is_ending(g) && !hy_work_is_done(g, ticket)) {
        if (make_progress(g)) {
            quiet = 0;
        } else {
            quiet++;
            sched_yield();
        }
    }
    if (g->is_polling)
        return_to_thread(g);
    pthread_mutex_unlock(&g->progress_lock);
}
