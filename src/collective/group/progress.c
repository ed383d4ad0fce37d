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
#define LAST_LOOKS 8       /* of who has helped, before it wakes the thread for the rest */
#define TURN_NS 100000
#define BUSY_MS 1000       /* since something was asked for: who waits next may not wait after all, so ... */
#define BUSY_NAP_MS 5      /* ... the thread looks so often; a timer for each request costs more than that */
#define FRAME_HEAD 4      /* u32, little-endian: the bytes that follow */
#define FRAME_MAX (8u << 20)

/* ---- what we say --------------------------------------------------------------- */

static int tell(struct hy_group *g, unsigned rank, const ProtobufCMessage *message)
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
    return hy_comm_tell(g->comm, rank, bytes, FRAME_HEAD + n);
}

/* This rank cannot go on, perhaps for a reason that nobody else knows: the others are told, and wait no more. */
static void fail(struct hy_group *g, const struct hy_err *err)
{
    hy_group_break(g, err);
    hy_rendezvous_fail(g->rendezvous, err->text);
}

static void say(struct hy_group *g, const Hy__FromRank *message)
{
    struct hy_err err = {0};
    int rc = g->council ? hy_council_hear(g->council, 0, message, hy_clock_ms(), &err) : tell(g, 0, &message->base);

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

static int sign(const struct work *w, struct hy_buf *out)
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

static void say_ask(struct hy_group *g, Hy__Ask *ask)
{
    Hy__FromRank message = HY__FROM_RANK__INIT;

    message.body_case = HY__FROM_RANK__BODY_ASK;
    message.ask = ask;
    say(g, &message);
}

static int ask_in_full(struct hy_group *g, const struct work *w)
{
    Hy__Ask ask = HY__ASK__INIT;
    Hy__Shape *shapes;
    int rc = fill_ask(w, &ask, &shapes);

    if (rc == 0)
        say_ask(g, &ask);
    free(ask.tensors);
    free(shapes);
    return rc;
}

/* The number of a request that is in every word as it was before; 0: it has none. */
static uint32_t number_of(struct hy_group *g, const struct work *w)
{
    const struct remembered *r = hy_map_get(&g->remembered, w->key);
    hy_cleanup_buf struct hy_buf signature;

    hy_buf_init(&signature, 1u << 24);
    if (!r || sign(w, &signature) < 0 || r->size != signature.len ||
        memcmp(r->signature, hy_buf_bytes(&signature), r->size) != 0)
        return 0;
    return r->id;
}

static void say_waits(struct hy_group *g, bool waits)
{
    Hy__FromRank message = HY__FROM_RANK__INIT;

    g->said_waits = waits;
    message.body_case = HY__FROM_RANK__BODY_WAITS;
    message.waits = waits;
    say(g, &message);
}

/*
 * Something was asked for or ordered: whoever has said that it waits takes that back. Rank 0 thinks so by itself, but
 * our word and its order may have passed each other, and then a rank that computes would be taken for one that waits.
 */
static void something_new(struct hy_group *g)
{
    g->quiet_since = hy_clock_ms();
    g->was_heard = g->warned = false;
    if (g->said_waits)
        say_waits(g, false);
}

static void ask_for(struct hy_group *g, struct work *w)
{
    Hy__Ask short_ask = HY__ASK__INIT;
    struct hy_err err = {0};

    short_ask.id = number_of(g, w);
    something_new(g);
    if (short_ask.id)
        say_ask(g, &short_ask);
    else if (ask_in_full(g, w) < 0) {
        hy_err_oom(&err);
        fail(g, &err);
    }
}

/* The oldest that nobody has asked for yet; it is among the asked ones then. */
static struct work *next_fresh(struct hy_group *g)
{
    struct work *w = NULL;

    pthread_mutex_lock(&g->lock);
    if (!hy_list_empty(&g->fresh)) {
        w = hy_container(g->fresh.next, struct work, link);
        hy_list_remove(&w->link);
        hy_list_push(&g->asked, &w->link);
        g->asked_count++;
    }
    pthread_mutex_unlock(&g->lock);
    return w;
}

static bool ask_for_fresh(struct hy_group *g)
{
    struct work *w;
    bool any = false;

    while ((w = next_fresh(g))) {
        ask_for(g, w);
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
static void remember(struct hy_group *g, const struct work *w, uint32_t id)
{
    hy_cleanup_buf struct hy_buf signature;
    struct remembered *r;

    hy_buf_init(&signature, 1u << 24);
    if (!id || hy_map_get(&g->remembered, w->key) || sign(w, &signature) < 0)
        return;
    r = hy_calloc(1, sizeof *r);
    if (r) {
        *r = (struct remembered){.id = id, .key = w->key, .size = signature.len,
                                 .signature = hy_malloc(signature.len + 1)};
        if (r->signature && hy_map_put(&g->by_id, id, r) == 0) {
            memcpy(r->signature, hy_buf_bytes(&signature), signature.len);
            if (hy_map_put(&g->remembered, r->key, r) == 0)
                return;
            hy_map_remove(&g->by_id, id);
        }
        free(r->signature);
        free(r);
    }
}

/* What the order is about; NULL: we have joined, and have nothing to give. */
static struct work *work_of(struct hy_group *g, const Hy__Run *run)
{
    const struct remembered *r;
    struct work *w = NULL;

    pthread_mutex_lock(&g->lock);
    if (run->ask)
        w = hy_group_find(g, run->ask->set, run->ask->name);
    else if ((r = hy_map_get(&g->by_id, run->id)))
        w = hy_map_get(&g->by_key, r->key);
    pthread_mutex_unlock(&g->lock);
    return w;
}

static void write_down(struct hy_group *g, const struct work *w, const char *name, uint32_t kind, uint64_t bytes,
                       int64_t begun)
{
    pthread_mutex_lock(&g->lock);
    if (g->timeline)
        hy_timeline_request(g->timeline, name, hy_council_kind(kind), bytes, w && w->asked_us ? w->asked_us : begun,
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
static int what_it_is(int rc)
{
    return rc == -EINVAL || rc == -ENOMEM ? rc : -ECONNABORTED;
}

/* It has an end of its own, if the group has one now. */
static void take_out(struct hy_group *g, struct work *w)
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

    if (!g->doing || awaited < 0 || !g->stall_limits.warn_ms || now - g->doing_since < g->doing_warned_ms)
        return;
    snprintf(text, sizeof text, "rank %d: not heard for %lld s by rank %u in the midst of '%.100s'", awaited,
             (long long)(now - g->doing_since) / 1000, g->rank, g->doing);
    warn(g, text);
    g->doing_warned_ms *= 2;
}

static void carry_out(struct hy_group *g, const Hy__Run *run)
{
    struct work *w = work_of(g, run);
    bool has_timeline = atomic_load_explicit(&g->has_timeline, memory_order_relaxed);
    int64_t begun = has_timeline ? hy_timeline_now() : 0, result = 0;
    struct hy_err err = {0};
    int rc;

    if (!w && !run->ask) {
        hy_err_set(&err, -EPROTO, "rank 0 orders something that was not asked for");
        fail(g, &err);
        return;
    }
    g->doing = w ? w->request.name : run->ask->name;
    g->doing_since = hy_clock_ms();
    g->doing_warned_ms = g->stall_limits.warn_ms;
    rc = hy_group_perform(g, w, run->ask, run, &result, &err);
    g->doing = NULL;
    if (w && has_timeline)
        write_down(g, w, w->request.name, w->request.kind, bytes_of(w), begun);
    if (w) {
        remember(g, w, run->id);
        take_out(g, w);
    }
    if (hy_comm_error(g->comm)->code < 0)
        fail(g, hy_comm_error(g->comm));
    else if (rc < 0 && rc != -EINVAL && !g->alone)
        fail(g, &err); /* the others have done it without us, or wait for us */
    if (w)
        hy_work_over(g, w, rc < 0 ? what_it_is(rc) : result, &err);
}

static void take_refusal(struct hy_group *g, const Hy__Refuse *refuse)
{
    struct hy_err err = {0};
    struct work *w;

    hy_err_set(&err, -refuse->code, "%s", refuse->why);
    if (refuse->missed)
        hy_rendezvous_miss(g->rendezvous, refuse->missed - 1);
    pthread_mutex_lock(&g->lock);
    w = hy_group_find(g, refuse->set, refuse->name);
    pthread_mutex_unlock(&g->lock);
    if (!w)
        return;
    g->asked_count--;
    hy_work_over(g, w, err.code, &err);
}

static void take_order(struct hy_group *g, const Hy__ToRank *message)
{
    struct hy_err err = {0};

    if (message->body_case == HY__TO_RANK__BODY_HEARD) {
        g->was_heard = true;
        return;
    }
    something_new(g);
    if (g->broken.code)
        return;
    switch (message->body_case) {
    case HY__TO_RANK__BODY_RUN:
        carry_out(g, message->run);
        break;
    case HY__TO_RANK__BODY_REFUSE:
        take_refusal(g, message->refuse);
        break;
    case HY__TO_RANK__BODY_LEFT:
        if (message->left == g->rank) {
            g->may_go = true;
            break;
        }
        hy_err_set(&err, -ECONNABORTED, "rank %u has left the group: its program has called shutdown or ended",
                   message->left);
        if (g->asked_count)
            hy_rendezvous_miss(g->rendezvous, message->left);
        g->missed = message->left + 1;
        hy_group_break(g, &err);
        break;
    default:
        break;
    }
}

/* ---- the council's voice ------------------------------------------------------------------ */

/* The communicator's sentence, or ours if it has none. */
static const struct hy_err *what_went_wrong(struct hy_group *g, const char *otherwise)
{
    static _Thread_local struct hy_err err;

    if (hy_comm_error(g->comm)->code)
        return hy_comm_error(g->comm);
    hy_err_set(&err, -ECONNABORTED, "%s", otherwise);
    return &err;
}

static void on_tell(void *arg, const unsigned *ranks, unsigned count, const Hy__ToRank *message)
{
    struct hy_group *g = arg;
    bool for_us = false;

    for (unsigned i = 0; i < count; i++) {
        if (ranks[i] == 0)
            for_us = true;
        else if (!g->broken.code && tell(g, ranks[i], &message->base) < 0)
            fail(g, what_went_wrong(g, "cannot tell the other ranks what to do"));
    }
    if (for_us && !g->broken.code && message->body_case == HY__TO_RANK__BODY_RUN && hy_comm_flush(g->comm) < 0)
        fail(g, what_went_wrong(g, "cannot tell the other ranks what to do"));
    if (for_us && !g->broken.code)
        take_order(g, message);
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

const struct hy_council_events hy_group_council_events = {on_tell, on_warn, on_fail};

/* ---- hearing ---------------------------------------------------------------------------------- */

static int take_bytes(struct hy_group *g, unsigned rank, const uint8_t *bytes, size_t n, struct hy_err *err)
{
    Hy__FromRank *from;
    Hy__ToRank *to;
    int rc;

    if (rank == 0) {
        to = hy__to_rank__unpack(NULL, n, bytes);
        if (!to)
            return hy_err_set(err, -EPROTO, "what rank 0 says makes no sense");
        take_order(g, to);
        hy__to_rank__free_unpacked(to, NULL);
        return 0;
    }
    from = hy__from_rank__unpack(NULL, n, bytes);
    if (!from)
        return hy_err_set(err, -EPROTO, "what rank %u says makes no sense", rank);
    rc = hy_council_hear(g->council, rank, from, hy_clock_ms(), err);
    if (from->body_case == HY__FROM_RANK__BODY_LEAVES)
        hy_comm_let_go(g->comm, rank);
    hy__from_rank__free_unpacked(from, NULL);
    return rc;
}

/* All messages of one rank that are complete: how many, or -Exxx. */
static int hear(struct hy_group *g, unsigned rank, struct hy_err *err)
{
    struct hy_buf *in = &g->heard[rank];
    int count = 0, rc = hy_comm_hear(g->comm, rank, in);

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
        rc = take_bytes(g, rank, hy_buf_bytes(in) + FRAME_HEAD, n, err);
        if (rc < 0)
            return rc;
        hy_buf_consume(in, FRAME_HEAD + n);
        count++;
    }
    return count;
}

/* Who has closed its connection has ended, which is known where it matters; as long as we want nothing of it that is
 * no failure of ours. */
static bool is_end_of_another(const struct hy_group *g, int rc)
{
    return !g->asked_count && (rc == -ECONNRESET || rc == -ECONNREFUSED || rc == -EPIPE);
}

static bool hear_all(struct hy_group *g)
{
    struct hy_err err = {0};
    unsigned first = g->council ? 1 : 0, end = g->council ? g->size : 1;
    bool any = false;

    for (unsigned rank = first; rank < end && !g->broken.code; rank++) {
        int rc = hear(g, rank, &err);

        if (rc < 0 && is_end_of_another(g, rc))
            hy_group_break(g, &err);
        else if (rc < 0)
            fail(g, &err);
        any |= rc > 0;
    }
    return any;
}

static bool go_round(struct hy_group *g)
{
    bool any = ask_for_fresh(g);

    return g->size > 1 && hear_all(g) ? true : any;
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

static bool is_anything_fresh(struct hy_group *g)
{
    bool any;

    pthread_mutex_lock(&g->lock);
    any = !hy_list_empty(&g->fresh) || g->stopping;
    pthread_mutex_unlock(&g->lock);
    return any;
}

/* Nothing has come to a thread that is blocked, or, for a longer time, to one that polls. */
static bool does_anybody_wait(struct hy_group *g, int64_t now)
{
    int64_t quiet_ms = now - g->quiet_since;
    bool any;

    pthread_mutex_lock(&g->lock);
    any = g->blocked > 0 ? quiet_ms >= WAITS_MS : now - g->polled_ms < POLLED_MS && quiet_ms >= HY_POLLS_WAIT_MS;
    pthread_mutex_unlock(&g->lock);
    return any;
}

/* Rank 0 has not even heard that we wait: it is stopped, or its machine is slow. */
static void warn_of_silence(struct hy_group *g, int64_t now)
{
    char text[300];
    const struct work *w;

    if (g->warned || g->was_heard || !g->said_waits || !g->stall_limits.warn_ms ||
        now - g->quiet_since < g->stall_limits.warn_ms)
        return;
    g->warned = true;
    w = hy_container(g->asked.next, struct work, link);
    snprintf(text, sizeof text, "rank 0: not heard for %lld s by rank %u, which waits for '%.100s'",
             (long long)g->stall_limits.warn_ms / 1000, g->rank, w->request.name);
    warn(g, text);
}

/* Whoever is blocked, and to whom nothing comes, says so: perhaps all are. Returns for how long to sleep. */
static int64_t mind_the_time(struct hy_group *g)
{
    int64_t now = hy_clock_ms(), next = -1;

    if (g->asked_count && does_anybody_wait(g, now)) {
        if (!g->said_waits)
            say_waits(g, true);
        warn_of_silence(g, now);
    }
    if (g->council)
        next = hy_council_tick(g->council, now);
    if (g->asked_count)
        return WAITS_MS < next - now || next < 0 ? WAITS_MS / 2 : next - now;
    if (now - g->quiet_since < BUSY_MS)
        return BUSY_NAP_MS;
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
static bool wants_to_hear(const struct hy_group *g)
{
    return g->asked_count || (g->council && has_sets_without_us(g));
}

/* Says that whoever has news must wake the thread, and looks once more: 1: there is some. */
static int lie_down(struct hy_group *g)
{
    atomic_store(&g->asleep, true);
    if (is_anything_fresh(g))
        return 1;
    return wants_to_hear(g) ? hy_comm_lie_down(g->comm) : 0;
}

static void get_up(struct hy_group *g)
{
    hy_comm_get_up(g->comm);
    atomic_store(&g->asleep, false);
}

/* Without the turn: who waits may take it. */
static int nap(struct hy_group *g, int64_t timeout_ms)
{
    struct hy_nap nap;
    int rc = 0;

    hy_comm_nap_begin(g->comm, g->wake, wants_to_hear(g), &nap);
    g->is_napping = true;
    g->hears = wants_to_hear(g);
    pthread_mutex_unlock(&g->turn);
    if (poll(nap.fds, nap.count, timeout_ms > HY_CHECK_MS ? HY_CHECK_MS : (int)timeout_ms) < 0) {
        rc = errno == EINTR ? 0 : -errno;
        nap.count = 0;
    }
    pthread_mutex_lock(&g->turn);
    g->is_napping = false;
    return rc < 0 || !nap.count ? rc : hy_comm_nap_end(g->comm, &nap);
}

static void sleep_until_news(struct hy_group *g)
{
    int64_t timeout = mind_the_time(g);
    uint64_t count;
    int rc;

    if (g->broken.code)
        return;
    rc = lie_down(g);
    if (rc == 0)
        rc = nap(g, timeout);
    get_up(g);
    if (read(g->wake, &count, sizeof count) < 0 && errno != EAGAIN && errno != EINTR)
        rc = -errno;
    if (rc < 0)
        fail(g, what_went_wrong(g, "the group's thread cannot sleep"));
}

static bool is_over(struct hy_group *g)
{
    bool over;

    pthread_mutex_lock(&g->lock);
    over = g->stopping || g->broken.code;
    pthread_mutex_unlock(&g->lock);
    return over;
}

/* What was ordered before rank 0 heard that we go is still done: the others count on us. */
static void do_the_rest(struct hy_group *g)
{
    while (!g->may_go && !g->broken.code)
        if (!hear_all(g) && hy_comm_sleep(g->comm, -1, IDLE_MS) < 0)
            fail(g, what_went_wrong(g, "the group's thread cannot sleep"));
}

static int tell_that_we_leave(struct hy_group *g)
{
    Hy__FromRank from = HY__FROM_RANK__INIT;

    from.body_case = HY__FROM_RANK__BODY_LEAVES;
    from.leaves = g->asked_count > 0;
    return tell(g, 0, &from.base);
}

static int tell_all_that_we_leave(struct hy_group *g)
{
    Hy__ToRank to = HY__TO_RANK__INIT;
    int rc = 0;

    to.body_case = HY__TO_RANK__BODY_LEFT;
    to.left = 0;
    for (unsigned rank = 1; rank < g->size && rc == 0; rank++)
        rc = tell(g, rank, &to.base);
    return rc;
}

/* The others need not wait for us; and our end is no failure to those who have heard it, so it waits until all can,
 * also who is still connecting. Whoever cannot hear us is gone, and that is no failure of ours either. */
static void say_goodbye(struct hy_group *g)
{
    if (g->broken.code || g->size == 1)
        return;
    if (g->council) {
        if (tell_all_that_we_leave(g) == 0)
            (void)hy_comm_flush(g->comm);
        return;
    }
    if (tell_that_we_leave(g) < 0)
        return;
    if (g->asked_count > 0)
        do_the_rest(g);
    else
        (void)hy_comm_flush(g->comm);
}

/*
 * This thread runs for microseconds at a time, and everybody waits for it meanwhile: it asks for short turns, which
 * come sooner. Kernels before 6.12 do not listen; that is fine.
 */
static void ask_for_short_turns(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } turns = {.size = sizeof turns, .policy = SCHED_OTHER, .nice = getpriority(PRIO_PROCESS, 0), .runtime = TURN_NS};

    (void)syscall(SYS_sched_setattr, 0, &turns, 0);
}

void *hy_group_progress(void *arg)
{
    struct hy_group *g = arg;
    unsigned quiet = 0;

    ask_for_short_turns();
    pthread_mutex_lock(&g->turn);
    g->quiet_since = hy_clock_ms();
    while (!is_over(g)) {
        if (go_round(g)) {
            quiet = 0;
        } else if (g->asked_count && ++quiet < YIELDS) {
            sched_yield();
        } else {
            sleep_until_news(g);
        }
    }
    say_goodbye(g);
    pthread_mutex_unlock(&g->turn);
    return NULL;
}

/* ---- helping --------------------------------------------------------------------------------------- */

/* The thread sleeps on, if nothing is left for it. */
static void hand_back(struct hy_group *g)
{
    int news = lie_down(g);

    for (unsigned i = 0; news > 0 && i < LAST_LOOKS; i++) {
        get_up(g);
        go_round(g);
        news = lie_down(g);
    }
    if (news || (wants_to_hear(g) && !g->hears))
        hy_group_wake(g);
}

void hy_group_help(struct hy_group *g, int64_t ticket)
{
    unsigned quiet = 0;

    if (g->alone ? pthread_mutex_lock(&g->turn) : pthread_mutex_trylock(&g->turn))
        return;
    if (g->is_napping)
        get_up(g);
    while (quiet < YIELDS && !is_over(g) && !hy_work_is_over(g, ticket)) {
        if (go_round(g)) {
            quiet = 0;
        } else {
            quiet++;
            sched_yield();
        }
    }
    if (g->is_napping)
        hand_back(g);
    pthread_mutex_unlock(&g->turn);
}
