/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages between this rank and rank 0: requests are sent, orders are received and executed. On rank 0 the
 * negotiator takes the place of the control channel for its own requests and orders.
 *
 * All functions are called with `progress_lock` held.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "collective/group/group.h"
#include "collective/group/negotiate_private.h"

#define FRAME_HEAD 4 /* u32, little-endian: the bytes that follow */
#define FRAME_MAX (8u << 20)

/* ---- sending --------------------------------------------------------------- */

int hy_group_send(struct hy_group *g, unsigned rank, const ProtobufCMessage *message)
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
void hy_group_fail(struct hy_group *g, const struct hy_err *err)
{
    hy_group_break(g, err);
    hy_rendezvous_fail(g->rendezvous, err->text);
}

static void send_to_rank_0(struct hy_group *g, const Hy__FromRank *message)
{
    struct hy_err err = {0};
    int rc = g->negotiator ? hy_negotiator_receive(g->negotiator, 0, message, hy_clock_ms(), &err)
                           : hy_group_send(g, 0, &message->base);

    if (rc < 0 && !err.code)
        err = *hy_comm_error(g->comm);
    if (rc < 0 && !err.code)
        hy_err_sys(&err, rc, "cannot send to rank 0");
    if (rc < 0)
        hy_group_fail(g, &err);
}

void hy_group_warn(struct hy_group *g, const char *text)
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
                 ? -ENOMEM
                 : 0;
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

void hy_group_report_waiting(struct hy_group *g, bool waits)
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
        hy_group_report_waiting(g, false);
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
        hy_group_fail(g, &err);
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

bool hy_group_submit_queued(struct hy_group *g)
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
        *r = (struct cached_request){
            .id = id, .key = w->key, .size = signature.len, .signature = hy_malloc(signature.len + 1)};
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
        hy_timeline_request(g->timeline, name, hy_kind_name(kind), bytes, w && w->asked_us ? w->asked_us : begun, begun,
                            hy_timeline_now());
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
    hy_group_warn(g, text);
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
        hy_group_fail(g, &err);
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
        hy_group_fail(g, hy_comm_error(g->comm));
    else if (rc < 0 && rc != -EINVAL && !g->alone)
        hy_group_fail(g, &err); /* the others have executed it without this rank, or wait for it */
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
const struct hy_err *hy_group_comm_error(struct hy_group *g, const char *otherwise)
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
        else if (!g->broken.code && hy_group_send(g, ranks[i], &message->base) < 0)
            hy_group_fail(g, hy_group_comm_error(g, "cannot send orders to the other ranks"));
    }
    if (for_us && !g->broken.code && message->body_case == HY__TO_RANK__BODY_RUN && hy_comm_flush(g->comm) < 0)
        hy_group_fail(g, hy_group_comm_error(g, "cannot send orders to the other ranks"));
    if (for_us && !g->broken.code)
        on_order(g, message);
}

static void on_warn(void *arg, const char *text)
{
    hy_group_warn(arg, text);
}

static void on_fail(void *arg, const char *text)
{
    struct hy_err err = {0};

    hy_err_set(&err, -ECONNABORTED, "%s", text);
    hy_group_fail(arg, &err);
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

bool hy_group_receive_all(struct hy_group *g)
{
    struct hy_err err = {0};
    unsigned first = g->negotiator ? 1 : 0, end = g->negotiator ? g->size : 1;
    bool any = false;

    for (unsigned rank = first; rank < end && !g->broken.code; rank++) {
        int rc = receive_from(g, rank, &err);

        if (rc < 0 && is_irrelevant_exit(g, rc))
            hy_group_break(g, &err);
        else if (rc < 0)
            hy_group_fail(g, &err);
        any |= rc > 0;
    }
    return any;
}
