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
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "collective/group/negotiate_private.h"
#include "collective/group/group.h"

#define YIELDS 200         /* rounds without progress before it sleeps, while requests are pending */
#define WAITS_MS 250       /* without progress before a rank with a blocked thread reports that it waits */
#define POLLED_MS 1000     /* since the last poll: the thread is still polling */
#define IDLE_MS 1000
#define LAST_ROUNDS 8       /* by a waiting thread that is done, before it wakes the group's thread */
#define SLICE_NS 100000
#define BUSY_MS 1000       /* since the last request: a caller with `waits_next` may not wait after all, so ... */
#define BUSY_POLL_MS 5      /* ... the thread checks this often; a timer for each request would cost more */
#define FRAME_HEAD 4      /* u32, little-endian: the bytes that follow */
#define FRAME_MAX (8u << 20)

/* ---- sending --------------------------------------------------------------- */

static int send_to(struct hy_group *g, unsigned rank, const ProtobufCMessage *message)
{
    uint8_t small[512];
    size_t n = protobuf_c_message_get_packed_size(message);
    hy_cleanup_free uint8_t *large = FRAME_HEAD + n > sizeof small ? hy_malloc(FRAME_HEAD + n) : NULL;
    uint8_t *bytes = FRAME_HEAD + n > sizeof small ? large : small;

    if (!bytes)
        return -ENOMEM;
    if (n > FRAME_MAX)
        return -EMSGSIZE;
    hy_put_le(bytes, n, FRAME_HEAD);
    protobuf_c_message_pack(message, bytes + FRAME_HEAD);
    return hy_comm_send(g->comm, rank, bytes, FRAME_HEAD + n);
}

/* This rank cannot continue: the other ranks are notified, so that they do not wait for it. */
static void fail(struct hy_group *g, const struct hy_err *err)
{
    hy_group_break(g, err);
    hy_rendezvous_fail(g->rendezvous, err->text);
}

static void send_to_rank_0(struct hy_group *g, const Hy__FromRank *message)
{
    struct hy_err err = {0};
    int rc = g->negotiator ? hy_negotiator_receive(g->negotiator, 0, message, hy_clock_ms(), &err)
                           : send_to(g, 0, &message->base);

    if (rc < 0 && !err.code)
        err = *hy_comm_error(g->comm);
    if (rc < 0 && !err.code)
        hy_err_sys(&err, rc, "cannot send to rank 0");
    if (rc < 0)
        fail(g, &err);
}

static void warn(struct hy_group *g, const char *text)
{
    fprintf(stderr, "[hopyard] %s\n", text);
    hy_rendezvous_note(g->rendezvous, text);
}

/* ---- requests ----------------------------------------------------------------------- */

static int append_signature(const struct work *w, struct hy_buf *out)
{
    const struct hy_request *r = &w->request;
    uint32_t head[] = {r->kind, r->set, r->type, r->op, r->root, (uint32_t)r->tensor_count, (uint32_t)w->split_count};
    double scales[] = {r->prescale, r->postscale};
    int rc = hy_buf_append(out, head, sizeof head);

    if (rc == 0)
        rc = hy_buf_append(out, scales, sizeof scales);
    for (size_t i = 0; rc == 0 && i < r->tensor_count; i++)
        rc = hy_buf_append(out, &w->tensors[i].dim_count, sizeof w->tensors[i].dim_count) ||
             hy_buf_append(out, w->tensors[i].dims, w->tensors[i].dim_count * sizeof *w->tensors[i].dims)
                 ? -ENOMEM : 0;
    if (rc == 0)
        rc = hy_buf_append(out, w->splits, w->split_count * sizeof *w->splits);
    return rc < 0 ? rc : hy_buf_append(out, r->name, strlen(r->name));
}

/* Everything that ranks must agree on; the caller frees the arrays. */
static int fill_ask(const struct work *w, Hy__Ask *ask, Hy__Shape **ret_shapes)
{
    const struct hy_request *r = &w->request;
    Hy__Shape *shapes = hy_calloc(r->tensor_count + 1, sizeof *shapes);

    *ret_shapes = shapes;
    ask->tensors = hy_calloc(r->tensor_count + 1, sizeof *ask->tensors);
    if (!shapes || !ask->tensors)
        return -ENOMEM;
    ask->n_tensors = r->tensor_count;
    for (size_t i = 0; i < r->tensor_count; i++) {
        hy__shape__init(&shapes[i]);
        shapes[i].n_dims = w->tensors[i].dim_count;
        shapes[i].dims = w->tensors[i].dims;
        ask->tensors[i] = &shapes[i];
    }
    ask->name = (char *)r->name;
    ask->kind = r->kind;
    ask->set = r->set;
    ask->type = r->type;
    ask->op = r->op;
    ask->root = r->root;
    ask->prescale = r->prescale;
    ask->postscale = r->postscale;
    ask->splits = w->splits;
    ask->n_splits = w->split_count;
    return 0;
}

static void send_ask(struct hy_group *g, Hy__Ask *ask)
{
    Hy__FromRank message = HY__FROM_RANK__INIT;

    message.body_case = HY__FROM_RANK__BODY_ASK;
    message.ask = ask;
    send_to_rank_0(g, &message);
}

static int send_full_ask(struct hy_group *g, const struct work *w)
{
    Hy__Ask ask = HY__ASK__INIT;
    Hy__Shape *shapes;
    int rc = fill_ask(w, &ask, &shapes);

    if (rc == 0)
        send_ask(g, &ask);
    free(ask.tensors);
    free(shapes);
    return rc;
}

/* The id of a request that is identical to an earlier one; 0: none. */
static uint32_t cached_id(struct hy_group *g, const struct work *w)
{
    const struct cached_request *r = hy_map_get(&g->cached_requests, w->key);
    hy_cleanup_buf struct hy_buf signature;

    hy_buf_init(&signature, 1u << 24);
    if (!r || append_signature(w, &signature) < 0 || r->size != signature.len ||
        memcmp(r->signature, hy_buf_bytes(&signature), r->size) != 0)
        return 0;
    return r->id;
}

static void report_waiting(struct hy_group *g, bool waits)
{
    Hy__FromRank message = HY__FROM_RANK__INIT;

    g->reported_waiting = waits;
    message.body_case = HY__FROM_RANK__BODY_WAITS;
    message.waits = waits;
    send_to_rank_0(g, &message);
}

/*
 * After a request or an order, a rank no longer waits. Rank 0 assumes that by itself, but the report and an order may
 * have crossed each other; then it would mistake a rank that computes for one that waits.
 */
static void note_activity(struct hy_group *g)
{
    g->idle_since = hy_clock_ms();
    g->waiting_acknowledged = g->warned = false;
    if (g->reported_waiting)
        report_waiting(g, false);
}

static void submit(struct hy_group *g, struct work *w)
{
    Hy__Ask short_ask = HY__ASK__INIT;
    struct hy_err err = {0};

    short_ask.id = cached_id(g, w);
    note_activity(g);
    if (short_ask.id)
        send_ask(g, &short_ask);
    else if (send_full_ask(g, w) < 0) {
        hy_err_oom(&err);
        fail(g, &err);
    }
}

/* The oldest queued request, which is moved to the asked ones; NULL: none. */
static struct work *next_queued(struct hy_group *g)
{
    struct work *w = NULL;

    pthread_mutex_lock(&g->lock);
    if (!hy_list_empty(&g->queued)) {
        w = hy_container(g->queued.next, struct work, link);
        hy_list_remove(&w->link);
        hy_list_push(&g->asked, &w->link);
        g->asked_count++;
    }
    pthread_mutex_unlock(&g->lock);
    return w;
}

static bool submit_queued(struct hy_group *g)
{
    struct work *w;
    bool any = false;

    while ((w = next_queued(g))) {
        submit(g, w);
        any = true;
    }
    if (any && atomic_load_explicit(&g->has_timeline, memory_order_relaxed)) {
        pthread_mutex_lock(&g->lock);
        if (g->timeline)
            hy_timeline_cycle(g->timeline);
        pthread_mutex_unlock(&g->lock);
    }
    return any;
}

/* ---- orders -------------------------------------------------------------------------- */

/* Stores the id of a request; out of memory, the request has no id on this rank. */
static void cache_request(struct hy_group *g, const struct work *w, uint32_t id)
{
    hy_cleanup_buf struct hy_buf signature;
    struct cached_request *r;

    hy_buf_init(&signature, 1u << 24);
    if (!id || hy_map_get(&g->cached_requests, w->key) || append_signature(w, &signature) < 0)
        return;
    r = hy_calloc(1, sizeof *r);
    if (r) {
        *r = (struct cached_request){.id = id, .key = w->key, .size = signature.len,
                                 .signature = hy_malloc(signature.len + 1)};
        if (r->signature && hy_map_put(&g->by_id, id, r) == 0) {
            memcpy(r->signature, hy_buf_bytes(&signature), signature.len);
            if (hy_map_put(&g->cached_requests, r->key, r) == 0)
                return;
            hy_map_remove(&g->by_id, id);
        }
        free(r->signature);
        free(r);
    }
}

/* The request of an order; NULL: this rank has joined and has not started it. */
static struct work *find_work(struct hy_group *g, const Hy__Run *run)
{
    const struct cached_request *r;
    struct work *w = NULL;

    pthread_mutex_lock(&g->lock);
    if (run->ask)
        w = hy_group_find(g, run->ask->set, run->ask->name);
    else if ((r = hy_map_get(&g->by_id, run->id)))
        w = hy_map_get(&g->by_key, r->key);
    pthread_mutex_unlock(&g->lock);
    return w;
}

static void record_timeline(struct hy_group *g, const struct work *w, const char *name, uint32_t kind, uint64_t bytes,
                       int64_t begun)
{
    pthread_mutex_lock(&g->lock);
    if (g->timeline)
        hy_timeline_request(g->timeline, name, hy_kind_name(kind), bytes, w && w->asked_us ? w->asked_us : begun,
                            begun, hy_timeline_now());
    pthread_mutex_unlock(&g->lock);
}

static uint64_t bytes_of(const struct work *w)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < w->request.tensor_count; i++) {
        uint64_t n = hy_type_size(w->request.type);

        for (uint32_t d = 0; d < w->tensors[i].dim_count; d++)
            n *= (uint64_t)w->tensors[i].dims[d];
        sum += n;
    }
    return sum;
}

/* For waiting threads, all errors of the communicator mean that the group is broken. */
static int request_error(int rc)
{
    return rc == -EINVAL || rc == -ENOMEM ? rc : -ECONNABORTED;
}

/* Removed first, so that hy_group_break does not complete it as well. */
static void remove_asked(struct hy_group *g, struct work *w)
{
    pthread_mutex_lock(&g->lock);
    hy_list_remove(&w->link);
    g->asked_count--;
    pthread_mutex_unlock(&g->lock);
}

void hy_group_on_wait(void *arg)
{
    struct hy_group *g = arg;
    int awaited = hy_comm_awaited(g->comm);
    int64_t now = hy_clock_ms();
    char text[300];

    if (!g->current || awaited < 0 || !g->stall_limits.warn_ms || now - g->current_since < g->current_warn_ms)
        return;
    snprintf(text, sizeof text, "rank %d: no data for %lld s during '%.100s', for which rank %u waits", awaited,
             (long long)(now - g->current_since) / 1000, g->current, g->rank);
    warn(g, text);
    g->current_warn_ms *= 2;
}

static void execute(struct hy_group *g, const Hy__Run *run)
{
    struct work *w = find_work(g, run);
    bool has_timeline = atomic_load_explicit(&g->has_timeline, memory_order_relaxed);
    int64_t begun = has_timeline ? hy_timeline_now() : 0, result = 0;
    struct hy_err err = {0};
    int rc;

    if (!w && !run->ask) {
        hy_err_set(&err, -EPROTO, "rank 0 ordered a request that this rank has not started");
        fail(g, &err);
        return;
    }
    g->current = w ? w->request.name : run->ask->name;
    g->current_since = hy_clock_ms();
    g->current_warn_ms = g->stall_limits.warn_ms;
    rc = hy_group_perform(g, w, run->ask, run, &result, &err);
    g->current = NULL;
    if (w && has_timeline)
        record_timeline(g, w, w->request.name, w->request.kind, bytes_of(w), begun);
    if (w) {
        cache_request(g, w, run->id);
        remove_asked(g, w);
    }
    if (hy_comm_error(g->comm)->code < 0)
        fail(g, hy_comm_error(g->comm));
    else if (rc < 0 && rc != -EINVAL && !g->alone)
        fail(g, &err); /* the others have executed it without this rank, or wait for it */
    if (w)
        hy_work_complete(g, w, rc < 0 ? request_error(rc) : result, &err);
}

static void on_refusal(struct hy_group *g, const Hy__Refuse *refuse)
{
    struct hy_err err = {0};
    struct work *w;

    hy_err_set(&err, -refuse->code, "%s", refuse->why);
    if (refuse->missed)
        hy_rendezvous_report_missed(g->rendezvous, refuse->missed - 1);
    pthread_mutex_lock(&g->lock);
    w = hy_group_find(g, refuse->set, refuse->name);
    pthread_mutex_unlock(&g->lock);
    if (!w)
        return;
    g->asked_count--;
    hy_work_complete(g, w, err.code, &err);
}

static void on_order(struct hy_group *g, const Hy__ToRank *message)
{
    struct hy_err err = {0};

    if (message->body_case == HY__TO_RANK__BODY_HEARD) {
        g->waiting_acknowledged = true;
        return;
    }
    note_activity(g);
    if (g->broken.code)
        return;
    switch (message->body_case) {
    case HY__TO_RANK__BODY_RUN:
        execute(g, message->run);
        break;
    case HY__TO_RANK__BODY_REFUSE:
        on_refusal(g, message->refuse);
        break;
    case HY__TO_RANK__BODY_LEFT:
        if (message->left == g->rank) {
            g->may_leave = true;
            break;
        }
        hy_err_set(&err, -ECONNABORTED, "rank %u has left the group: its program has called shutdown or ended",
                   message->left);
        if (g->asked_count)
            hy_rendezvous_report_missed(g->rendezvous, message->left);
        g->missed = message->left + 1;
        hy_group_break(g, &err);
        break;
    default:
        break;
    }
}

/* ---- events of the negotiator ------------------------------------------------------------------ */

/* The communicator's error, or the given message if it has none. */
static const struct hy_err *comm_error_or(struct hy_group *g, const char *otherwise)
{
    static _Thread_local struct hy_err err;

    if (hy_comm_error(g->comm)->code)
        return hy_comm_error(g->comm);
    hy_err_set(&err, -ECONNABORTED, "%s", otherwise);
    return &err;
}

static void on_send(void *arg, const unsigned *ranks, unsigned count, const Hy__ToRank *message)
{
    struct hy_group *g = arg;
    bool for_us = false;

    for (unsigned i = 0; i < count; i++) {
        if (ranks[i] == 0)
            for_us = true;
        else if (!g->broken.code && send_to(g, ranks[i], &message->base) < 0)
            fail(g, comm_error_or(g, "cannot send orders to the other ranks"));
    }
    if (for_us && !g->broken.code && message->body_case == HY__TO_RANK__BODY_RUN && hy_comm_flush(g->comm) < 0)
        fail(g, comm_error_or(g, "cannot send orders to the other ranks"));
    if (for_us && !g->broken.code)
        on_order(g, message);
}

static void on_warn(void *arg, const char *text)
{
    warn(arg, text);
}

static void on_fail(void *arg, const char *text)
{
    struct hy_err err = {0};

    hy_err_set(&err, -ECONNABORTED, "%s", text);
    fail(arg, &err);
}

const struct hy_negotiator_events hy_group_negotiator_events = {on_send, on_warn, on_fail};

/* ---- receiving ---------------------------------------------------------------------------------- */

static int on_message(struct hy_group *g, unsigned rank, const uint8_t *bytes, size_t n, struct hy_err *err)
{
    Hy__FromRank *from;
    Hy__ToRank *to;
    int rc;

    if (rank == 0) {
        to = hy__to_rank__unpack(NULL, n, bytes);
        if (!to)
            return hy_err_set(err, -EPROTO, "rank 0 sent an invalid message");
        on_order(g, to);
        hy__to_rank__free_unpacked(to, NULL);
        return 0;
    }
    from = hy__from_rank__unpack(NULL, n, bytes);
    if (!from)
        return hy_err_set(err, -EPROTO, "rank %u sent an invalid message", rank);
    rc = hy_negotiator_receive(g->negotiator, rank, from, hy_clock_ms(), err);
    if (from->body_case == HY__FROM_RANK__BODY_LEAVES)
        hy_comm_drop_rank(g->comm, rank);
    hy__from_rank__free_unpacked(from, NULL);
    return rc;
}

/* Handles all complete messages of one rank; returns how many, or -Exxx. */
static int receive_from(struct hy_group *g, unsigned rank, struct hy_err *err)
{
    struct hy_buf *in = &g->received[rank];
    int count = 0, rc = hy_comm_receive(g->comm, rank, in);

    if (rc < 0) {
        *err = *hy_comm_error(g->comm);
        return err->code ? rc : hy_err_sys(err, rc, "cannot receive from rank %u", rank);
    }
    while (in->len >= FRAME_HEAD && !g->broken.code) {
        uint32_t n = (uint32_t)hy_get_le(hy_buf_bytes(in), FRAME_HEAD);

        if (n > FRAME_MAX)
            return hy_err_set(err, -EPROTO, "rank %u sends a message of %u bytes", rank, n);
        if (in->len < FRAME_HEAD + n)
            break;
        rc = on_message(g, rank, hy_buf_bytes(in) + FRAME_HEAD, n, err);
        if (rc < 0)
            return rc;
        hy_buf_consume(in, FRAME_HEAD + n);
        count++;
    }
    return count;
}

/* A peer that has closed its connection has exited, which the driver knows. As long as no request is pending, that is
 * not a failure of this rank. */
static bool is_irrelevant_exit(const struct hy_group *g, int rc)
{
    return !g->asked_count && (rc == -ECONNRESET || rc == -ECONNREFUSED || rc == -EPIPE);
}

static bool receive_all(struct hy_group *g)
{
    struct hy_err err = {0};
    unsigned first = g->negotiator ? 1 : 0, end = g->negotiator ? g->size : 1;
    bool any = false;

    for (unsigned rank = first; rank < end && !g->broken.code; rank++) {
        int rc = receive_from(g, rank, &err);

        if (rc < 0 && is_irrelevant_exit(g, rc))
            hy_group_break(g, &err);
        else if (rc < 0)
            fail(g, &err);
        any |= rc > 0;
    }
    return any;
}

static bool make_progress(struct hy_group *g)
{
    bool any = submit_queued(g);

    return g->size > 1 && receive_all(g) ? true : any;
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
    warn(g, text);
}

/* Reports to rank 0 that this rank waits, for the detection of deadlocks. Returns for how long to sleep. */
static int64_t check_timeouts(struct hy_group *g)
{
    int64_t now = hy_clock_ms(), next = -1;

    if (g->asked_count && is_any_thread_waiting(g, now)) {
        if (!g->reported_waiting)
            report_waiting(g, true);
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
        fail(g, comm_error_or(g, "the group's thread cannot sleep"));
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
        if (!receive_all(g) && hy_comm_sleep(g->comm, -1, IDLE_MS) < 0)
            fail(g, comm_error_or(g, "the group's thread cannot sleep"));
}

static int send_leaves(struct hy_group *g)
{
    Hy__FromRank from = HY__FROM_RANK__INIT;

    from.body_case = HY__FROM_RANK__BODY_LEAVES;
    from.leaves = g->asked_count > 0;
    return send_to(g, 0, &from.base);
}

static int send_left_to_all(struct hy_group *g)
{
    Hy__ToRank to = HY__TO_RANK__INIT;
    int rc = 0;

    to.body_case = HY__TO_RANK__BODY_LEFT;
    to.left = 0;
    for (unsigned rank = 1; rank < g->size && rc == 0; rank++)
        rc = send_to(g, rank, &to.base);
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
    } attributes = {.size = sizeof attributes, .policy = SCHED_OTHER, .nice = getpriority(PRIO_PROCESS, 0),
                    .runtime = SLICE_NS};

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
