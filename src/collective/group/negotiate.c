/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/group/negotiate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "collective/group/negotiate_private.h"

/* ---- sets ------------------------------------------------------------------- */

static int index_in(const struct negotiator_set *set, unsigned rank)
{
    unsigned low = 0, high = set->count;

    while (low < high) {
        unsigned middle = (low + high) / 2;

        if (set->members[middle] < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < set->count && set->members[low] == rank ? (int)low : -1;
}

static int open_world(struct hy_negotiator *c)
{
    c->sets[0].members = hy_calloc(c->size, sizeof *c->sets[0].members);
    if (!c->sets[0].members)
        return -ENOMEM;
    c->sets[0].count = c->size;
    for (unsigned r = 0; r < c->size; r++)
        c->sets[0].members[r] = r;
    return 0;
}

static bool has_members(const struct negotiator_set *set, const int64_t *members, size_t count)
{
    if (set->count != count)
        return false;
    for (size_t i = 0; i < count; i++)
        if (set->members[i] != members[i])
            return false;
    return true;
}

/* The number of the new set, or -Exxx with a message. */
static int add_set(struct hy_negotiator *c, const Hy__Ask *ask, struct hy_err *err)
{
    unsigned slot = 0;

    if (ask->n_splits == 0)
        return hy_err_set(err, -EINVAL, "a process set needs at least one rank");
    for (size_t i = 0; i < ask->n_splits; i++)
        if (ask->splits[i] < 0 || ask->splits[i] >= c->size || (i && ask->splits[i] <= ask->splits[i - 1]))
            return hy_err_set(err, -EINVAL, "a process set has ranks from 0 to %u in ascending order", c->size - 1);
    for (unsigned s = 0; s < HY_SETS_MAX; s++)
        if (has_members(&c->sets[s], ask->splits, ask->n_splits))
            return hy_err_set(err, -EINVAL, "there is a process set with the same ranks already: number %u", s);
    while (slot < HY_SETS_MAX && c->sets[slot].count)
        slot++;
    if (slot == HY_SETS_MAX)
        return hy_err_set(err, -EINVAL, "there are already %u process sets, the maximum; remove one", HY_SETS_MAX);
    c->sets[slot].members = hy_calloc(ask->n_splits, sizeof *c->sets[slot].members);
    if (!c->sets[slot].members)
        return hy_err_oom(err);
    for (size_t i = 0; i < ask->n_splits; i++)
        c->sets[slot].members[i] = (unsigned)ask->splits[i];
    c->sets[slot].count = (unsigned)ask->n_splits;
    return (int)slot;
}

static int remove_set(struct hy_negotiator *c, const Hy__Ask *ask, struct hy_err *err)
{
    int64_t number = ask->n_splits == 1 ? ask->splits[0] : -1;

    if (number <= 0 || number >= (int64_t)HY_SETS_MAX || !c->sets[number].count)
        return hy_err_set(err, -EINVAL, "there is no process set %" PRId64 " to remove", number);
    hy_list_each(it, &c->pending) {
        struct pending_request *m = hy_container(it, struct pending_request, link);

        if (m->ask->set == (uint32_t)number && m->refused)
            hy_negotiator_remove(c, m); /* ranks that send it later learn that the set does not exist */
        else if (m->ask->set == (uint32_t)number)
            return hy_err_set(err, -EINVAL, "process set %" PRId64 " cannot be removed: '%s' is pending", number,
                              m->ask->name);
    }
    free(c->sets[number].members);
    c->sets[number] = (struct negotiator_set){0};
    return 0;
}

/* ---- pending requests ------------------------------------------------------- */

static void pending_free(struct pending_request *m)
{
    if (m->own)
        hy__ask__free_unpacked(m->own, NULL);
    free(m->asked);
    free(m->table);
    free(m->why);
    free(m);
}

void hy_negotiator_remove(struct hy_negotiator *c, struct pending_request *m)
{
    hy_list_remove(&m->link);
    hy_map_remove(&c->by_key, m->key);
    c->pending_count--;
    pending_free(m);
}

static Hy__Ask *copy_ask(const Hy__Ask *ask)
{
    size_t n = hy__ask__get_packed_size(ask);
    hy_cleanup_free uint8_t *bytes = hy_malloc(n + 1);

    if (!bytes)
        return NULL;
    return hy__ask__unpack(NULL, hy__ask__pack(ask, bytes), bytes);
}

/* By set and name; another name with the same hash gets the next key. */
static uint64_t key_of(const struct hy_negotiator *c, const Hy__Ask *ask)
{
    uint64_t key = hy_hash(ask->name, strlen(ask->name)) ^ (uint64_t)ask->set << 40;
    const struct pending_request *m;

    while ((m = hy_map_get(&c->by_key, key)) && (m->ask->set != ask->set || strcmp(m->ask->name, ask->name) != 0))
        key++;
    return key;
}

static size_t table_width(const struct hy_negotiator *c, const Hy__Ask *ask)
{
    return ask->kind == HY_ALLGATHER ? ask->n_tensors : ask->kind == HY_ALLTOALL ? c->sets[ask->set].count : 0;
}

/* The id of an identical earlier request; 0: none. */
static uint32_t known_id(const struct hy_negotiator *c, uint64_t key, const Hy__Ask *ask)
{
    uint32_t id = (uint32_t)(uintptr_t)hy_map_get(&c->known_keys, key);

    return id && (c->known[id] == ask || hy_negotiator_is_same(c->known[id], ask)) ? id : 0;
}

static struct pending_request *add_pending(struct hy_negotiator *c, uint64_t key, unsigned rank, const Hy__Ask *ask,
                                           int64_t now)
{
    unsigned members = c->sets[ask->set].count;
    struct pending_request *m = hy_calloc(1, sizeof *m);

    if (!m)
        return NULL;
    *m = (struct pending_request){.key = key,
                                  .id = known_id(c, key, ask),
                                  .ask = ask,
                                  .first = rank,
                                  .since = now,
                                  .deadlocked_since = -1,
                                  .warn_at = now + c->stall_limits.warn_ms,
                                  .warned_after = c->stall_limits.warn_ms,
                                  .table_width = table_width(c, ask)};
    hy_list_init(&m->link);
    m->asked = hy_calloc(members, sizeof *m->asked);
    m->table = m->table_width ? hy_calloc(members * m->table_width, sizeof *m->table) : NULL;
    m->ask = m->id ? c->known[m->id] : (m->own = copy_ask(ask));
    if (!m->asked || !m->ask || (m->table_width && !m->table) || hy_map_put(&c->by_key, key, m) < 0) {
        pending_free(m);
        return NULL;
    }
    hy_list_push(&c->pending, &m->link);
    c->pending_count++;
    return m;
}

/* Whether joined ranks can take part, with zeros or no rows: a product with zeros would be wrong. */
static bool allows_joined(const Hy__Ask *ask)
{
    return ask->kind == HY_ALLREDUCE ? ask->op == HY_SUM || ask->op == HY_AVERAGE
                                     : ask->kind == HY_ALLGATHER || ask->kind == HY_BARRIER;
}

bool hy_negotiator_is_ready(const struct hy_negotiator *c, const struct pending_request *m, unsigned index)
{
    return m->asked[index] || (c->ranks[c->sets[m->ask->set].members[index]].joined && allows_joined(m->ask));
}

static bool is_complete(const struct hy_negotiator *c, const struct pending_request *m)
{
    unsigned members = c->sets[m->ask->set].count;

    if (m->asked_count == members)
        return true;
    for (unsigned i = 0; i < members; i++)
        if (!hy_negotiator_is_ready(c, m, i))
            return false;
    return true;
}

/* ---- messages to ranks --------------------------------------------------------- */

static void send_to(struct hy_negotiator *c, const unsigned *ranks, unsigned count, const Hy__ToRank *message)
{
    for (unsigned i = 0; i < count; i++)
        c->ranks[ranks[i]].waits = false; /* until it reports so again */
    c->events->send(c->arg, ranks, count, message);
}

static void send_refusal(struct hy_negotiator *c, const struct pending_request *m, unsigned rank)
{
    Hy__Refuse refuse = HY__REFUSE__INIT;
    Hy__ToRank message = HY__TO_RANK__INIT;

    refuse.name = (char *)m->ask->name;
    refuse.set = m->ask->set;
    refuse.code = -m->refused;
    refuse.why = m->why ? m->why : (char *)"out of memory";
    refuse.missed = m->missed;
    message.body_case = HY__TO_RANK__BODY_REFUSE;
    message.refuse = &refuse;
    send_to(c, &rank, 1, &message);
}

/* An acknowledgment, so that a waiting rank can distinguish a late peer from a dead rank 0. */
static void send_heard(struct hy_negotiator *c, unsigned rank)
{
    Hy__ToRank message = HY__TO_RANK__INIT;

    message.body_case = HY__TO_RANK__BODY_HEARD;
    message.heard = true;
    c->events->send(c->arg, &rank, 1, &message);
}

static void send_may_leave(struct hy_negotiator *c, unsigned rank)
{
    Hy__ToRank message = HY__TO_RANK__INIT;

    message.body_case = HY__TO_RANK__BODY_LEFT;
    message.left = rank;
    c->events->send(c->arg, &rank, 1, &message);
}

/* Ranks that have left or joined will not send it. */
static bool is_received_by_all(const struct hy_negotiator *c, const struct pending_request *m)
{
    const struct negotiator_set *set = &c->sets[m->ask->set];

    for (unsigned i = 0; i < set->count; i++)
        if (!m->asked[i] && !c->ranks[set->members[i]].left && !c->ranks[set->members[i]].joined)
            return false;
    return true;
}

/* After a refused join, ranks continue as before. */
static void undo_join(struct hy_negotiator *c, const struct pending_request *m)
{
    for (unsigned i = 0; m->ask->kind == HY_JOIN && i < c->size; i++)
        c->ranks[i].joined = false;
}

void hy_negotiator_refuse(struct hy_negotiator *c, struct pending_request *m, int code, const char *why)
{
    const struct negotiator_set *set = &c->sets[m->ask->set];

    m->refused = code;
    m->why = hy_strdup(why);
    undo_join(c, m);
    for (unsigned i = 0; i < set->count; i++)
        if (m->asked[i] && !c->ranks[set->members[i]].left)
            send_refusal(c, m, set->members[i]);
    if (is_received_by_all(c, m))
        hy_negotiator_remove(c, m);
}

static bool has_joined_member(const struct hy_negotiator *c, const struct pending_request *m)
{
    const struct negotiator_set *set = &c->sets[m->ask->set];

    for (unsigned i = 0; i < set->count; i++)
        if (!m->asked[i])
            return true;
    return false;
}

/* Names that are used only once, such as numbered ones, must not use up the ids. */
static bool was_seen_before(struct hy_negotiator *c, const struct pending_request *m)
{
    if (hy_map_get(&c->seen_keys, m->key))
        return true;
    if (c->seen_keys.count >= HY_NEGOTIATOR_SEEN_MAX)
        hy_map_done(&c->seen_keys);
    (void)hy_map_put(&c->seen_keys, m->key, c); /* out of memory: it counts as new the next time as well */
    return false;
}

/* Requests that are identical in every step get an id when they are seen for the second time. */
static bool deserves_id(struct hy_negotiator *c, const struct pending_request *m)
{
    return !m->id && c->known_count < HY_NEGOTIATOR_IDS_MAX && m->own && !hy_map_get(&c->known_keys, m->key) &&
           (m->ask->kind == HY_ALLREDUCE || m->ask->kind == HY_BROADCAST || m->ask->kind == HY_REDUCESCATTER ||
            m->ask->kind == HY_BARRIER) &&
           was_seen_before(c, m);
}

static void assign_id(struct hy_negotiator *c, struct pending_request *m)
{
    if (!deserves_id(c, m) || hy_map_put(&c->known_keys, m->key, (void *)(uintptr_t)(c->known_count + 1)) < 0)
        return; /* without an id */
    m->id = ++c->known_count;
    c->known[m->id] = hy_take(m->own);
}

static void run(struct hy_negotiator *c, struct pending_request *m, uint32_t answer)
{
    const struct negotiator_set *set = &c->sets[m->ask->set];
    bool all_have_id = !m->in_full && !has_joined_member(c, m);
    Hy__Run order = HY__RUN__INIT;
    Hy__ToRank message = HY__TO_RANK__INIT;

    assign_id(c, m);
    order.id = m->id;
    order.ask = all_have_id ? NULL : (Hy__Ask *)m->ask;
    order.table = m->table;
    order.n_table = m->table_width * set->count;
    order.answer = answer;
    message.body_case = HY__TO_RANK__BODY_RUN;
    message.run = &order;
    send_to(c, set->members, set->count, &message);
    hy_negotiator_remove(c, m);
}

static void end_join(struct hy_negotiator *c, struct pending_request *m)
{
    for (unsigned r = 0; r < c->size; r++)
        c->ranks[r].joined = false;
    run(c, m, c->last_joined);
}

/* All members have sent it. */
static void complete(struct hy_negotiator *c, struct pending_request *m)
{
    struct hy_err err = {0};
    int answer = 0;

    if (m->ask->kind == HY_JOIN) {
        end_join(c, m);
        return;
    }
    if (m->ask->kind == HY_SET_ADD)
        answer = add_set(c, m->ask, &err);
    else if (m->ask->kind == HY_SET_REMOVE)
        answer = remove_set(c, m->ask, &err);
    if (answer < 0)
        hy_negotiator_refuse(c, m, answer, err.text);
    else
        run(c, m, (uint32_t)answer);
}

/* ---- messages of ranks ---------------------------------------------------------- */

/* The rows of one member. */
static void fill_table(struct pending_request *m, int index, const Hy__Ask *ask)
{
    int64_t *row = m->table + (size_t)index * m->table_width;

    for (size_t i = 0; i < m->table_width; i++)
        row[i] = ask->kind == HY_ALLGATHER ? ask->tensors[i]->dims[0] : ask->splits[i];
}

static bool is_valid_shape(const Hy__Shape *shape, bool has_rows)
{
    if (shape->n_dims > HY_DIMS_MAX || (has_rows && shape->n_dims == 0))
        return false;
    for (size_t i = 0; i < shape->n_dims; i++)
        if (shape->dims[i] < 0)
            return false;
    return true;
}

/* What every correct rank ensures. */
static bool is_valid_ask(const struct hy_negotiator *c, const Hy__Ask *ask)
{
    bool has_rows = ask->kind == HY_ALLGATHER || ask->kind == HY_ALLTOALL;

    if (ask->kind >= HY_KINDS || ask->type >= HY_TYPES || ask->op >= HY_REDUCES || ask->set >= HY_SETS_MAX ||
        ask->root >= c->size || ask->n_tensors > HY_TENSORS_MAX || ask->n_splits > HY_RANKS_MAX)
        return false;
    for (size_t i = 0; i < ask->n_tensors; i++)
        if (!is_valid_shape(ask->tensors[i], has_rows))
            return false;
    return ask->kind != HY_ALLTOALL || !c->sets[ask->set].count ||
           (ask->n_tensors == 1 && ask->n_splits == c->sets[ask->set].count);
}

/* The full description; NULL: invalid. */
static const Hy__Ask *full_ask(const struct hy_negotiator *c, const Hy__Ask *ask)
{
    if (ask->id)
        return ask->id <= c->known_count ? c->known[ask->id] : NULL;
    return is_valid_ask(c, ask) ? ask : NULL;
}

/* Whether a member has left or joined in a way that rules out the request. *ret_missed: Refuse.missed. */
static bool find_obstacle(const struct hy_negotiator *c, const Hy__Ask *ask, uint32_t *ret_missed, struct hy_err *ret)
{
    const struct negotiator_set *set = &c->sets[ask->set];

    for (unsigned i = 0; i < set->count; i++) {
        const struct negotiator_rank *r = &c->ranks[set->members[i]];

        if (r->left) {
            hy_err_set(ret, -ECONNABORTED,
                       "'%s' (%s): rank %u has left the group: its program has called shutdown or ended", ask->name,
                       hy_kind_name(ask->kind), set->members[i]);
            *ret_missed = set->members[i] + 1;
            return true;
        }
        if (r->joined && !allows_joined(ask) && ask->kind != HY_JOIN) {
            hy_err_set(ret, -EBADMSG, "'%s': %s%s%s is not possible while rank %u has joined", ask->name,
                       hy_kind_name(ask->kind), ask->kind == HY_ALLREDUCE ? " by " : "",
                       ask->kind == HY_ALLREDUCE ? hy_reduce_name(ask->op) : "", set->members[i]);
            return true;
        }
    }
    return false;
}

static void settle(struct hy_negotiator *c, struct pending_request *m)
{
    struct hy_err err = {0};

    if (m->refused) {
        if (is_received_by_all(c, m))
            hy_negotiator_remove(c, m);
        return;
    }
    if (find_obstacle(c, m->ask, &m->missed, &err))
        hy_negotiator_refuse(c, m, err.code, err.text);
    else if (is_complete(c, m))
        complete(c, m);
}

/* A rank that joins or leaves affects all pending requests. */
static void settle_all(struct hy_negotiator *c)
{
    hy_list_each(it, &c->pending)
        settle(c, hy_container(it, struct pending_request, link));
}

/* The first time that this rank sends the request. */
static void add_to(struct hy_negotiator *c, struct pending_request *m, unsigned rank, int index, const Hy__Ask *ask)
{
    struct hy_err err = {0};

    m->asked[index] = true;
    m->asked_count++;
    if (m->refused) {
        send_refusal(c, m, rank);
        if (is_received_by_all(c, m))
            hy_negotiator_remove(c, m);
    } else if (m->ask != ask && hy_negotiator_is_mismatch(m, rank, ask, &err)) {
        hy_negotiator_refuse(c, m, err.code, err.text);
    } else {
        if (m->table)
            fill_table(m, index, ask);
        if (ask->kind == HY_JOIN) {
            c->ranks[rank].joined = true;
            c->last_joined = rank;
            settle_all(c);
        } else {
            settle(c, m);
        }
    }
}

/* The set does not exist (any more), or the rank is not in it. */
static void refuse_nonmember(struct hy_negotiator *c, unsigned rank, const Hy__Ask *ask)
{
    struct pending_request m = {.ask = ask, .refused = -EINVAL};

    m.why = hy_asprintf("'%s': rank %u is not a member of process set %u, or the set was removed", ask->name, rank,
                        ask->set);
    send_refusal(c, &m, rank);
    free(m.why);
}

static int receive_ask(struct hy_negotiator *c, unsigned rank, const Hy__Ask *said, int64_t now, struct hy_err *err)
{
    const Hy__Ask *ask = full_ask(c, said);
    struct pending_request *m;
    uint64_t key;
    int index;

    if (!ask)
        return hy_err_set(err, -EPROTO, "rank %u sent an invalid request", rank);
    index = index_in(&c->sets[ask->set], rank);
    if (index < 0) {
        refuse_nonmember(c, rank, ask);
        return 0;
    }
    key = key_of(c, ask);
    m = hy_map_get(&c->by_key, key);
    if (m && m->refused && m->asked[index]) { /* a retry after the refusal */
        send_refusal(c, m, rank);
        return 0;
    }
    if (!m && c->pending_count == HY_NEGOTIATOR_PENDING_MAX)
        return hy_err_set(err, -ENOBUFS, "more than %u requests are pending", HY_NEGOTIATOR_PENDING_MAX);
    if (!m)
        m = add_pending(c, key, rank, ask, now);
    if (!m)
        return hy_err_oom(err);
    if (m->asked[index])
        return hy_err_set(err, -EPROTO, "rank %u requested '%s' twice", rank, ask->name);
    m->in_full |= !said->id;
    add_to(c, m, rank, index, ask);
    return 0;
}

int hy_negotiator_receive(struct hy_negotiator *c, unsigned rank, const Hy__FromRank *message, int64_t now,
                          struct hy_err *err)
{
    struct negotiator_rank *r;

    if (rank >= c->size)
        return hy_err_set(err, -EPROTO, "rank %u does not exist", rank);
    r = &c->ranks[rank];
    switch (message->body_case) {
    case HY__FROM_RANK__BODY_ASK:
        r->waits = false;
        return r->left ? 0 : receive_ask(c, rank, message->ask, now, err);
    case HY__FROM_RANK__BODY_WAITS:
        r->waits = message->waits;
        if (r->waits)
            send_heard(c, rank);
        return 0;
    case HY__FROM_RANK__BODY_LEAVES:
        r->left = true;
        settle_all(c);
        if (message->leaves)
            send_may_leave(c, rank);
        return 0;
    default:
        return hy_err_set(err, -EPROTO, "rank %u sent an unknown message", rank);
    }
}

struct hy_negotiator *hy_negotiator_new(unsigned size, const struct hy_negotiator_events *events, void *arg)
{
    struct hy_negotiator *c = hy_calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->size = size;
    c->events = events;
    c->arg = arg;
    c->stall_limits.warn_ms = HY_NEGOTIATOR_WARN_MS;
    hy_list_init(&c->pending);
    c->ranks = hy_calloc(size, sizeof *c->ranks);
    if (!c->ranks || open_world(c) < 0) {
        hy_negotiator_free(c);
        return NULL;
    }
    return c;
}

void hy_negotiator_set_stall_limits(struct hy_negotiator *c, const struct hy_stall_limits *limits)
{
    c->stall_limits = *limits;
}

void hy_negotiator_free(struct hy_negotiator *c)
{
    if (!c)
        return;
    hy_list_each(it, &c->pending)
        hy_negotiator_remove(c, hy_container(it, struct pending_request, link));
    for (uint32_t i = 1; i <= c->known_count; i++)
        hy__ask__free_unpacked(c->known[i], NULL);
    for (unsigned s = 0; s < HY_SETS_MAX; s++)
        free(c->sets[s].members);
    hy_map_done(&c->by_key);
    hy_map_done(&c->known_keys);
    hy_map_done(&c->seen_keys);
    free(c->ranks);
    free(c);
}
