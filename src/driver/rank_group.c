/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The group that the ranks of a training form.
 *
 * A generation begins when all awaited ranks have joined: each gets a roster
 * with all members and a secret key. It ends when a member dies or joins again:
 * the other members are notified at once, and if the training is elastic they
 * are awaited again. Members of earlier generations keep their order and come
 * before new ones, so that rank 0 has the state of the training.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "driver/run.h"
#include "wire/wire.h"

#define NOTES_A_SECOND 5
#define NOTE_MAX 300      /* bytes */
#define END_TEXT_MAX 500       /* bytes of the text about a rank's end */

void hy_rank_reset(struct trial *t)
{
    if (t->member.join)
        hy__control__free_unpacked(t->member.join, NULL);
    if (t->member.node)
        hy__control__free_unpacked(t->member.node, NULL);
    free(t->member.death);
    free(t->member.end_message);
    t->member = (struct member){0};
}

/* ---- messages to ranks ----------------------------------------------------------------------- */

void hy_rank_send(struct driver *d, struct trial *t, Hy__GroupWord *word)
{
    Hy__Control m = HY__CONTROL__INIT;
    struct hy_err err = {0};
    int rc;

    word->trial = t->number;
    word->attempt = t->attempt;
    m.body_case = HY__CONTROL__BODY_GROUP;
    m.group = word;
    rc = hy_agents_send(t->agent, &m);
    if (rc == -ENOBUFS && !(t->agent->is_managed && hy_is_training(d))) {
        hy_agent_set_violation(t->agent, "it does not read the messages for its ranks");
    } else if (rc == -ENOBUFS) {
        hy_err_set(&err, rc, "agent %s does not read the messages for its ranks; use fewer ranks per machine",
                   t->agent->name);
        hy_run_fail(d, &err);
    } else if (rc < 0) {
        hy_run_out_of_memory(d);
    }
}

static uint32_t rank_of(const struct driver *d, const struct trial *t)
{
    return t->member.generation ? t->member.rank : hy_node_rank(d->spec, t->number);
}

static void send_lost(struct driver *d, struct trial *t, const struct trial *lost, const char *why)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;
    Hy__GroupLost body = HY__GROUP_LOST__INIT;

    body.generation = t->member.awaits_roster ? 0 : t->member.generation;
    body.rank = rank_of(d, lost);
    body.why = (char *)why;
    word.body_case = HY__GROUP_WORD__BODY_LOST;
    word.lost = &body;
    hy_rank_send(d, t, &word);
}

static void send_outdated(struct driver *d, struct trial *t)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;

    word.body_case = HY__GROUP_WORD__BODY_OUTDATED;
    word.outdated = true;
    hy_rank_send(d, t, &word);
}

bool hy_ranks_has_others(const struct driver *d, const struct trial *t)
{
    struct trial *u;

    for (size_t i = 0; (u = hy_map_next(&d->trials.map, &i));)
        if (u != t && hy_rank_is_alive(u) && u->member.join && !u->member.has_left)
            return true;
    return false;
}

/* Whether it is, or was until now, in the current generation. */
static bool is_in_generation(const struct driver *d, const struct trial *t)
{
    return t->member.generation && t->member.generation == d->group.generation && !t->member.awaits_roster;
}

static bool is_member(const struct driver *d, const struct trial *t)
{
    return is_in_generation(d, t) && hy_rank_is_alive(t);
}

void hy_ranks_notify_lost(struct driver *d, const struct trial *lost, const char *why)
{
    struct trial *t;

    for (size_t i = 0; (t = hy_map_next(&d->trials.map, &i));)
        if (t != lost && hy_rank_is_alive(t) && t->member.join && !t->member.has_left)
            send_lost(d, t, lost, why);
}

/* The generation cannot continue without `lost`: notifies its members, once. */
static void end_generation(struct driver *d, const struct trial *lost, const char *why)
{
    struct trial *t;

    if (d->group.is_broken)
        return;
    d->group.is_broken = true;
    for (size_t i = 0; (t = hy_map_next(&d->trials.map, &i));)
        if (t != lost && is_member(d, t) && !t->member.has_left)
            send_lost(d, t, lost, why);
}

/* ---- rosters -------------------------------------------------------------------------- */

struct rosters {
    struct trial **ranks; /* in their new order */
    size_t count;
    Hy__GroupMember *rows;
    Hy__GroupMember **members;
    uint8_t key[HY_KEY_SIZE];
};

/* Members of an earlier generation, in its order; then new ones. */
static int by_previous_rank(const void *a, const void *b)
{
    const struct trial *x = *(struct trial *const *)a, *y = *(struct trial *const *)b;

    if (!x->member.generation != !y->member.generation)
        return x->member.generation ? -1 : 1;
    if (x->member.generation && x->member.rank != y->member.rank)
        return x->member.rank < y->member.rank ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

static void fill_members(struct driver *d, struct rosters *r)
{
    struct agent *a;
    uint32_t hosts = 0;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        a->scratch = 0;
    for (size_t i = 0; i < r->count; i++) {
        const Hy__GroupJoin *join = r->ranks[i]->member.join->group->join;
        Hy__GroupMember *m = r->members[i] = &r->rows[i];

        hy__group_member__init(m);
        if (!r->ranks[i]->agent->scratch)
            r->ranks[i]->agent->scratch = ++hosts;
        m->host = r->ranks[i]->agent->scratch - 1;
        m->addresses = join->addresses;
        m->n_addresses = join->n_addresses;
        m->port = join->port;
        m->bell = join->bell;
        m->trial = r->ranks[i]->number;
    }
}

static void send_rosters(struct driver *d, struct rosters *r)
{
    Hy__Roster roster = HY__ROSTER__INIT;
    Hy__GroupWord word = HY__GROUP_WORD__INIT;

    roster.generation = d->group.generation;
    roster.members = r->members;
    roster.n_members = r->count;
    roster.key.data = r->key;
    roster.key.len = sizeof r->key;
    word.body_case = HY__GROUP_WORD__BODY_ROSTER;
    word.roster = &roster;
    for (size_t i = 0; i < r->count && d->phase == PHASE_RUNNING; i++) {
        struct member *m = &r->ranks[i]->member;

        roster.rank = m->rank = (uint32_t)i;
        m->generation = roster.generation;
        m->awaits_roster = false;
        hy_rank_send(d, r->ranks[i], &word);
    }
}

static void begin_generation(struct driver *d, struct trial **ranks, size_t count)
{
    hy_cleanup_free Hy__GroupMember *rows = hy_calloc(count, sizeof *rows);
    hy_cleanup_free Hy__GroupMember **members = hy_calloc(count, sizeof *members);
    struct rosters r = {.ranks = ranks, .count = count, .rows = rows, .members = members};

    if (!rows || !members || hy_key_random(r.key) < 0) {
        hy_run_out_of_memory(d);
        return;
    }
    qsort(ranks, count, sizeof(struct trial *), by_previous_rank);
    d->group.generation++;
    d->group.is_broken = d->group.is_outdated = false;
    fill_members(d, &r);
    send_rosters(d, &r);
    explicit_bzero(r.key, sizeof r.key);
    hy_info("group is complete generation=%llu ranks=%zu", (unsigned long long)d->group.generation, count);
    if (d->group.generation > 1 && hy_is_elastic(d))
        hy_run_note(d, "the training continues with %zu rank%s", count, count == 1 ? "" : "s");
}

/*
 * Whether the group waits for `t`: for members of the last generation, and at
 * the beginning for all ranks. A rank that is restarted later joins when it is
 * ready.
 */
static bool is_awaited(const struct driver *d, const struct trial *t, bool first)
{
    if (t->member.awaits_roster || t->phase == TRIAL_ENDED || !hy_node_has_rank(d->spec, t->number))
        return false;
    if (!hy_is_elastic(d))
        return true;
    return hy_rank_is_alive(t) && (first || t->member.generation);
}

static bool is_first_generation(struct trial **ranks, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (hy_rank_is_alive(ranks[i]) && ranks[i]->member.generation)
            return false;
    return true;
}

void hy_ranks_form_group(struct driver *d)
{
    size_t all, n = 0;
    hy_cleanup_free struct trial **ranks = hy_training_ranks(d, &all);
    bool first = ranks && is_first_generation(ranks, all);

    if (!ranks || d->phase != PHASE_RUNNING || d->training.abort_reason)
        return;
    for (size_t i = 0; i < all; i++) {
        if (is_awaited(d, ranks[i], first))
            return;
        if (hy_rank_is_alive(ranks[i]) && ranks[i]->member.awaits_roster)
            ranks[n++] = ranks[i];
    }
    if (n && n >= (hy_is_elastic(d) ? d->spec->ranks_min : hy_spec_ranks(d->spec)))
        begin_generation(d, ranks, n);
}

/* ---- messages from ranks --------------------------------------------------------------------- */

static const char *host_of(const struct agent *a)
{
    return a->is_managed && !a->host_spec && a->host ? a->host : a->name;
}

/* Its directory has the number with which it was started; its rank may have changed since. */
char *hy_rank_name(const struct driver *d, const struct trial *t, char name[HY_RANK_NAME_MAX])
{
    const struct hy_node node = hy_node_of(d->spec, t->number);
    unsigned rank = rank_of(d, t), first = (unsigned)(t->number - 1);
    const char *host = host_of(t->agent);

    if (node.role)
        snprintf(name, HY_RANK_NAME_MAX, "%s %u on %s", node.role, node.index, host);
    else if (rank == first)
        snprintf(name, HY_RANK_NAME_MAX, "rank %u on %s", rank, host);
    else
        snprintf(name, HY_RANK_NAME_MAX, "rank %u (started as rank %u) on %s", rank, first, host);
    return name;
}

/* Aborts the training; the cause is another rank if `t` failed because that one had left. */
static void abort_after(struct driver *d, struct trial *t, enum hy_charge charge)
{
    struct trial *cause = t->member.missed_trial ? hy_map_get(&d->trials.map, t->member.missed_trial) : NULL;

    if (!cause || cause->member.death) {
        hy_training_abort_take(d, t, charge, hy_strdup(t->member.death));
        return;
    }
    hy_training_abort_take(d, cause, HY_CHARGE_FAILURE,
                           hy_asprintf("rank %u left the group (its program ended or called shutdown) while rank %u "
                                       "still needed it",
                                       cause->member.rank, t->member.rank));
    if (d->training.abort_cause == cause->number)
        hy_training_fail_rank(d, cause);
}

void hy_rank_died(struct driver *d, struct trial *t, enum hy_charge charge, const char *how)
{
    struct member *m = &t->member;
    bool was_in = is_in_generation(d, t);
    char name[HY_RANK_NAME_MAX];

    if (d->phase != PHASE_RUNNING || m->death)
        return;
    m->death = hy_asprintf("%s %.*s", hy_rank_name(d, t, name), END_TEXT_MAX, how);
    m->awaits_roster = false;
    if (!m->death)
        hy_run_out_of_memory(d);
    else if (!hy_is_elastic(d))
        abort_after(d, t, charge);
    else if (was_in) /* even if it has left: it may have done so while failing */
        end_generation(d, t, m->death);
    if (m->death && hy_is_elastic(d))
        hy_ranks_form_group(d);
}

/* A member that joins again without having left has abandoned its generation, and the others cannot continue it. */
static void handle_rejoin(struct driver *d, struct trial *t)
{
    char name[HY_RANK_NAME_MAX], why[HY_RANK_NAME_MAX + 32];

    if (!is_member(d, t) || t->member.has_left)
        return;
    snprintf(why, sizeof why, "%s has joined again", hy_rank_name(d, t, name));
    end_generation(d, t, why);
}

static void notify_outdated(struct driver *d)
{
    struct trial *t;

    if (d->group.is_broken || d->group.is_outdated)
        return;
    d->group.is_outdated = true;
    for (size_t i = 0; (t = hy_map_next(&d->trials.map, &i));)
        if (is_member(d, t) && !t->member.has_left)
            send_outdated(d, t);
}

bool hy_are_valid_addresses(char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(list[i]) > HY_RANK_ADDRESS_LIMIT)
            return false;
    return n <= HY_RANK_ADDRESSES_LIMIT;
}

static bool is_valid_join(const Hy__GroupJoin *join)
{
    return join->port <= UINT16_MAX && strlen(join->bell) <= HY_RANK_ADDRESS_LIMIT &&
           hy_are_valid_addresses(join->addresses, join->n_addresses);
}

static void on_join(struct driver *d, struct trial *t, const Hy__Control *m)
{
    Hy__Control *join = hy_control_copy(m);

    if (!join) {
        hy_run_out_of_memory(d);
        return;
    }
    handle_rejoin(d, t);
    if (t->member.join)
        hy__control__free_unpacked(t->member.join, NULL);
    t->member.join = join;
    t->member.awaits_roster = true;
    t->member.has_left = false;
    t->member.missed_trial = 0;
    if (d->training.abort_reason)
        send_lost(d, t, t, d->training.abort_reason);
    else if (!t->member.generation)
        notify_outdated(d);
    hy_training_check_deadlock(d);
    hy_ranks_form_group(d);
}

/* Ranks send few notes; more than that are not logged. */
static void on_note(struct driver *d, struct trial *t, const char *text)
{
    struct rank_group *g = &d->group;
    int64_t now = hy_clock_ms();
    char name[HY_RANK_NAME_MAX];

    if (now - g->notes_from >= 1000) {
        g->notes_from = now;
        g->notes = 0;
    }
    if (g->notes++ < NOTES_A_SECOND)
        hy_run_note(d, "%s: %.*s", hy_rank_name(d, t, name), NOTE_MAX, text);
}

/* That rank has left in an orderly way, and its program may have succeeded: this matters only if `t` fails without
 * it. */
static void on_missed(struct driver *d, struct trial *t, uint32_t rank)
{
    struct trial *u;

    for (size_t i = 0; (u = hy_map_next(&d->trials.map, &i));)
        if (u != t && u->member.generation == t->member.generation && u->member.rank == rank)
            t->member.missed_trial = u->number; /* its Leave may arrive later */
}

/* The rank is alive but does not take part any more, and ranks in the middle of an operation with it are not aware
 * of that. */
static void on_failed(struct driver *d, struct trial *t, const char *why)
{
    hy_cleanup_free char *text = NULL;
    char name[HY_RANK_NAME_MAX];

    if (d->phase != PHASE_RUNNING || !is_member(d, t) || t->member.has_left)
        return;
    text = hy_asprintf("%s cannot continue: %.*s", hy_rank_name(d, t, name), END_TEXT_MAX, why);
    if (!text)
        hy_run_out_of_memory(d);
    else if (hy_is_elastic(d))
        end_generation(d, t, text);
    else
        hy_training_abort_take(d, t, HY_CHARGE_FAILURE, hy_take(text));
}

static void refuse(struct driver *d, struct trial *t)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;
    Hy__GroupLost body = HY__GROUP_LOST__INIT;

    body.why = (char *)"this run is not a training; start it with `hopyard train`";
    word.body_case = HY__GROUP_WORD__BODY_LOST;
    word.lost = &body;
    hy_rank_send(d, t, &word);
}

void hy_ranks_on_message(struct driver *d, struct agent *a, const Hy__Control *m)
{
    const Hy__GroupWord *word = m->group;
    struct trial *t = hy_trial_find_running(d, a, word->trial, word->attempt);

    if (!t || t->member.death)
        return;
    if (!hy_is_training(d)) {
        refuse(d, t);
        return;
    }
    if (word->body_case == HY__GROUP_WORD__BODY_JOIN && is_valid_join(word->join))
        on_join(d, t, m);
    else if (word->body_case == HY__GROUP_WORD__BODY_NODE)
        hy_nodes_join(d, t, m);
    else if (word->body_case == HY__GROUP_WORD__BODY_SERVES)
        hy_nodes_set_server(d, t);
    else if (word->body_case == HY__GROUP_WORD__BODY_DONE)
        hy_nodes_set_done(d, t);
    else if (word->body_case == HY__GROUP_WORD__BODY_LEAVE)
        t->member.has_left = true;
    else if (word->body_case == HY__GROUP_WORD__BODY_NOTE)
        on_note(d, t, word->note);
    else if (word->body_case == HY__GROUP_WORD__BODY_MISSED)
        on_missed(d, t, word->missed);
    else if (word->body_case == HY__GROUP_WORD__BODY_FAILED)
        on_failed(d, t, word->failed);
    else if (word->body_case == HY__GROUP_WORD__BODY_LOST && (hy_is_cluster(d) || hy_ranks_has_others(d, t)))
        hy_rank_died(d, t, HY_CHARGE_FAILURE, word->lost->why);
    else if (word->body_case != HY__GROUP_WORD__BODY_LOST) /* its Ended has the same information */
        hy_info_limited("ignored a group message agent=%s trial=%llu kind=%d", a->name, (unsigned long long)word->trial,
                        (int)word->body_case);
}
