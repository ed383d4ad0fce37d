/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The group's thread. One round: what was started since the last one is asked
 * for, what the others say is heard (rank 0's council answers at once), and
 * what is ordered is done. Between rounds it looks around for a moment if
 * something is open, since the answer is near, and then sleeps.
 *
 * While it sleeps, a thread that waits goes round in its place: on a core that
 * is busy, waking one another costs more than most collectives. `turn` is held
 * by who goes round, whichever thread it is.
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

#define YIELDS 200         /* rounds without news before it sleeps, while something is open */
#define WAITS_MS 250       /* so long nothing has come to who is blocked, before it says that it waits */
#define POLLED_MS 1000     /* a thread has polled since then: it does so still */
#define IDLE_MS 1000
#define LAST_ROUNDS 8       /* of who has helped, before it wakes the thread for the rest */
#define SLICE_NS 100000
#define BUSY_MS 1000       /* since something was asked for: who waits next may not wait after all, so ... */
#define BUSY_POLL_MS 5      /* ... the thread looks so often; a timer for each request costs more than that */
#define FRAME_HEAD 4      /* u32, little-endian: the bytes that follow */
#define FRAME_MAX (8u << 20)

/* ---- what we say --------------------------------------------------------------- */

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

/* This rank cannot go on, perhaps for a reason that nobody else knows: the others are told, and wait no more. */
static void fail(struct hy_group *g, const struct hy_err *err)
{
    hy_group_break(g, err);
    hy_rendezvous_fail(g->rendezvous, err->text);
}

static void send_to_rank_0(struct hy_group *g, const Hy__FromRank *message)
{
    struct hy_err err = {0};
    int rc = g->negotiator ? hy_negotiator_receive(g->negotiator, 0, message, hy_clock_ms(), &err) : send_to(g, 0, &message->base);

    if (rc < 0 && !err.code)
        err = *hy_comm_error(g->comm);
    if (rc < 0 && !err.code)
        hy_err_sys(&err, rc, "cannot tell rank 0");
    if (rc < 0)
        fail(g, &err);
}

static void warn(struct hy_group *g, const char *text)
{
    fprintf(stderr, "[hopyard] %s\n", text);
    hy_rendezvous_note(g->rendezvous, text);
}

/* ---- asking ----------------------------------------------------------------------- */

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

/* Everything that others must agree to; the arrays are the caller's to free. */
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

/* The number of a request that is in every word as it was before; 0: it has none. */
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
 * Something was asked for or ordered: whoever has said that it waits takes that back. Rank 0 thinks so by itself, but
 * our word and its order may have passed each other, and then a rank that computes would be taken for one that waits.
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

/* The oldest that nobody has asked for yet; it is among the asked ones then. */
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

/* With the number that stands for it from now on; without memory it goes without. */
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

/* What the order is about; NULL: we have joined, and have nothing to give. */
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

/* What the communicator says is one thing to those who wait: the group is broken. */
static int request_error(int rc)
{
    return rc == -EINVAL || rc == -ENOMEM ? rc : -ECONNABORTED;
}

/* It has an end of its own, if the group has one now. */
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
    snprintf(text, sizeof text, "rank %d: not heard for %lld s by rank %u in the midst of '%.100s'", awaited,
             (long long)(now - g->current_since) / 1000, g->rank, g->current);
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
        hy_err_set(&err, -EPROTO, "rank 0 orders something that was not asked for");
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
        fail(g, &err); /* the others have done it without us, or wait for us */
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

/* ---- the council's voice ------------------------------------------------------------------ */

/* The communicator's sentence, or ours if it has none. */
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
            fail(g, comm_error_or(g, "cannot tell the other ranks what to do"));
    }
    if (for_us && !g->broken.code && message->body_case == HY__TO_RANK__BODY_RUN && hy_comm_flush(g->comm) < 0)
        fail(g, comm_error_or(g, "cannot tell the other ranks what to do"));
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

/* ---- hearing ---------------------------------------------------------------------------------- */

static int on_message(struct hy_group *g, unsigned rank, const uint8_t *bytes, size_t n, struct hy_err *err)
{
    Hy__FromRank *from;
    Hy__ToRank *to;
    int rc;

    if (rank == 0) {
        to = hy__to_rank__unpack(NULL, n, bytes);
        if (!to)
            return hy_err_set(err, -EPROTO, "what rank 0 says makes no sense");
        on_order(g, to);
        hy__to_rank__free_unpacked(to, NULL);
        return 0;
    }
    from = hy__from_rank__unpack(NULL, n, bytes);
    if (!from)
        return hy_err_set(err, -EPROTO, "what rank %u says makes no sense", rank);
    rc = hy_negotiator_receive(g->negotiator, rank, from, hy_clock_ms(), err);
    if (from->body_case == HY__FROM_RANK__BODY_LEAVES)
        hy_comm_drop_rank(g->comm, rank);
    hy__from_rank__free_unpacked(from, NULL);
    return rc;
}

/* All messages of one rank that are complete: how many, or -Exxx. */
static int receive_from(struct hy_group *g, unsigned rank, struct hy_err *err)
{
    struct hy_buf *in = &g->received[rank];
    int count = 0, rc = hy_comm_receive(g->comm, rank, in);

    if (rc < 0) {
        *err = *hy_comm_error(g->comm);
        return err->code ? rc : hy_err_sys(err, rc, "cannot hear rank %u", rank);
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

/* Who has closed its connection has ended, which is known where it matters; as long as we want nothing of it that is
 * no failure of ours. */
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

/* What it is woken for was written under the lock, and the sleeper looks under the lock after it has said that it
 * sleeps: one of the two sees the other. */
void hy_group_wake(struct hy_group *g)
{
    uint64_t one = 1;

    if (atomic_load(&g->asleep) && write(g->wake, &one, sizeof one) < 0 && errno != EAGAIN)
        abort(); /* an eventfd takes 2^64 - 2 of them */
}

static bool has_queued(struct hy_group *g)
{
    bool any;

    pthread_mutex_lock(&g->lock);
    any = !hy_list_empty(&g->queued) || g->stopping;
    pthread_mutex_unlock(&g->lock);
    return any;
}

/* Nothing has come to a thread that is blocked, or, for a longer time, to one that polls. */
static bool is_any_thread_waiting(struct hy_group *g, int64_t now)
{
    int64_t quiet_ms = now - g->idle_since;
    bool any;

    pthread_mutex_lock(&g->lock);
    any = g->blocked > 0 ? quiet_ms >= WAITS_MS : now - g->polled_ms < POLLED_MS && quiet_ms >= HY_POLLS_WAIT_MS;
    pthread_mutex_unlock(&g->lock);
    return any;
}

/* Rank 0 has not even heard that we wait: it is stopped, or its machine is slow. */
static void warn_rank_0_silent(struct hy_group *g, int64_t now)
{
    char text[300];
    const struct work *w;

    if (g->warned || g->waiting_acknowledged || !g->reported_waiting || !g->stall_limits.warn_ms ||
        now - g->idle_since < g->stall_limits.warn_ms)
        return;
    g->warned = true;
    w = hy_container(g->asked.next, struct work, link);
    snprintf(text, sizeof text, "rank 0: not heard for %lld s by rank %u, which waits for '%.100s'",
             (long long)g->stall_limits.warn_ms / 1000, g->rank, w->request.name);
    warn(g, text);
}

/* Whoever is blocked, and to whom nothing comes, says so: perhaps all are. Returns for how long to sleep. */
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

/* Nothing can come of what others say before we have asked for something, too: until then they need not wake us. */
static bool needs_peers(const struct hy_group *g)
{
    return g->asked_count || (g->negotiator && has_sets_without_us(g));
}

/* Says that whoever has news must wake the thread, and looks once more: 1: there is some. */
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

/* Without the turn: who waits may take it. */
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

/* What was ordered before rank 0 heard that we go is still done: the others count on us. */
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

/* The others need not wait for us; and our end is no failure to those who have heard it, so it waits until all can,
 * also who is still connecting. Whoever cannot hear us is gone, and that is no failure of ours either. */
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
 * This thread runs for microseconds at a time, and everybody waits for it meanwhile: it asks for short turns, which
 * come sooner. Kernels before 6.12 do not listen; that is fine.
 */
static void request_short_slices(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attributes = {.size = sizeof attributes, .policy = SCHED_OTHER, .nice = getpriority(PRIO_PROCESS, 0), .runtime = SLICE_NS};

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

/* ---- helping --------------------------------------------------------------------------------------- */

/* The thread sleeps on, if nothing is left for it. */
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
