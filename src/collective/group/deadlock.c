/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "collective/group/negotiate_private.h"

#define TICK_MS 100

static const struct negotiator_set *set_of(const struct hy_negotiator *c, const struct pending_request *m)
{
    return &c->sets[m->ask->set];
}

void hy_negotiator_list_ranks(const struct hy_negotiator *c, const struct pending_request *m, bool ready, char *text,
                              size_t size)
{
    const struct negotiator_set *set = set_of(c, m);
    unsigned total = 0, shown = 0;
    size_t at = 0;

    for (unsigned i = 0; i < set->count; i++)
        total += hy_negotiator_is_ready(c, m, i) == ready;
    text[0] = '\0';
    at = (size_t)snprintf(text, size, "rank%s ", total == 1 ? "" : "s");
    for (unsigned i = 0; i < set->count && shown < 8 && at < size; i++)
        if (hy_negotiator_is_ready(c, m, i) == ready) {
            at += (size_t)snprintf(text + at, size - at, "%s%u",
                                   shown == 0           ? ""
                                   : shown + 1 == total ? " and "
                                                        : ", ",
                                   set->members[i]);
            shown++;
        }
    if (shown < total && at < size)
        snprintf(text + at, size - at, " and %u more", total - shown);
}

/* Whether all missing members can still send the request. */
static bool can_complete(const struct hy_negotiator *c, const struct pending_request *m)
{
    const struct negotiator_set *set = set_of(c, m);

    for (unsigned i = 0; i < set->count; i++)
        if (!hy_negotiator_is_ready(c, m, i) && !c->ranks[set->members[i]].can_progress)
            return false;
    return true;
}

/* The request can complete, so the ranks that wait for it can progress. Returns whether that is new. */
static bool mark_askers(struct hy_negotiator *c, const struct pending_request *m)
{
    const struct negotiator_set *set = set_of(c, m);
    bool changed = false;

    for (unsigned i = 0; i < set->count; i++)
        if (m->asked[i] && !c->ranks[set->members[i]].can_progress)
            c->ranks[set->members[i]].can_progress = changed = true;
    return changed;
}

/* Marks the ranks that can progress: those that do not wait, and those that wait for a request that such ranks can
 * complete. */
static void find_progressing_ranks(struct hy_negotiator *c)
{
    bool changed = true;

    for (unsigned r = 0; r < c->size; r++)
        c->ranks[r].can_progress = !c->ranks[r].waits && !c->ranks[r].left;
    while (changed) {
        changed = false;
        hy_list_each(it, &c->pending) {
            struct pending_request *m = hy_container(it, struct pending_request, link);

            if (!m->refused && can_complete(c, m))
                changed |= mark_askers(c, m);
        }
    }
}

static bool has_asked(const struct hy_negotiator *c, const struct pending_request *m, unsigned rank)
{
    const struct negotiator_set *set = set_of(c, m);

    for (unsigned i = 0; i < set->count; i++)
        if (set->members[i] == rank)
            return m->asked[i];
    return false;
}

/* A request that `rank` waits for, or that was just refused to it; NULL: none. */
static const struct pending_request *asked_by(const struct hy_negotiator *c, unsigned rank)
{
    const struct pending_request *refused = NULL;

    hy_list_each(it, &c->pending) {
        const struct pending_request *m = hy_container(it, struct pending_request, link);

        if (has_asked(c, m, rank) && !m->refused)
            return m;
        if (has_asked(c, m, rank))
            refused = m;
    }
    return refused;
}

static void describe_deadlock(const struct hy_negotiator *c, const struct pending_request *m, char *text, size_t size)
{
    const struct negotiator_set *set = set_of(c, m);
    char askers[160];
    unsigned missing = 0;
    const struct pending_request *other;

    while (hy_negotiator_is_ready(c, m, missing) || c->ranks[set->members[missing]].can_progress)
        missing++; /* there is one, since it cannot complete */
    missing = set->members[missing];
    other = asked_by(c, missing);
    hy_negotiator_list_ranks(c, m, true, askers, sizeof askers);
    snprintf(text, size, "deadlock: tensor '%s' (%s): %s requested it, but rank %u cannot: it waits for %s%s%s%s%s",
             m->ask->name, hy_kind_name(m->ask->kind), askers, missing, other ? "'" : "something else",
             other ? other->ask->name : "", other ? "' (" : "", other ? hy_kind_name(other->ask->kind) : "",
             other ? ")" : "");
}

/* True when it was refused, and possibly freed. */
static bool check_deadlock(struct hy_negotiator *c, struct pending_request *m, int64_t now)
{
    char text[600];

    if (can_complete(c, m)) {
        m->deadlocked_since = -1;
    } else if (m->deadlocked_since < 0) {
        m->deadlocked_since = now;
    } else if (now - m->deadlocked_since >= HY_NEGOTIATOR_DEADLOCK_MS) {
        describe_deadlock(c, m, text, sizeof text);
        hy_negotiator_refuse(c, m, -EDEADLK, text);
        return true;
    }
    return false;
}

static void describe_stall(const struct hy_negotiator *c, const struct pending_request *m, int64_t now, char *text,
                           size_t size)
{
    char missing[160], waiting[160];

    hy_negotiator_list_ranks(c, m, false, missing, sizeof missing);
    hy_negotiator_list_ranks(c, m, true, waiting, sizeof waiting);
    snprintf(text, size, "%s: no request for '%s' (%s) for %lld s; %s wait%s for it", missing, m->ask->name,
             hy_kind_name(m->ask->kind), (long long)(now - m->since) / 1000, waiting,
             strncmp(waiting, "rank ", 5) == 0 ? "s" : "");
}

static void warn(struct hy_negotiator *c, struct pending_request *m, int64_t now)
{
    char text[600];

    describe_stall(c, m, now, text, sizeof text);
    c->events->warn(c->arg, text);
    m->warned_after *= 2;
    m->warn_at = now + m->warned_after;
}

/* True when the group has failed because a request has stalled for too long. */
static bool fail_if_stalled(struct hy_negotiator *c, const struct pending_request *m, int64_t now)
{
    const int64_t limit = c->stall_limits.fail_ms;
    char text[600], sentence[700];

    if (!limit || now - m->since < limit || m->ask->kind == HY_JOIN)
        return false;
    describe_stall(c, m, now, text, sizeof text);
    snprintf(sentence, sizeof sentence, "%s; the training ends after %lld s (HOROVOD_STALL_SHUTDOWN_TIME_SECONDS)",
             text, (long long)limit / 1000);
    c->events->fail(c->arg, sentence);
    return true;
}

static bool is_any_rank_waiting(const struct hy_negotiator *c)
{
    for (unsigned r = 0; r < c->size; r++)
        if (c->ranks[r].waits)
            return true;
    return false;
}

int64_t hy_negotiator_tick(struct hy_negotiator *c, int64_t now)
{
    bool waits = is_any_rank_waiting(c), warned = false;
    int64_t next = -1;

    if (waits)
        find_progressing_ranks(c);
    hy_list_each(it, &c->pending) {
        struct pending_request *m = hy_container(it, struct pending_request, link);

        if (m->refused || (waits && check_deadlock(c, m, now)))
            continue;
        if (fail_if_stalled(c, m, now))
            return -1;
        if (!warned && c->stall_limits.warn_ms && now >= m->warn_at && m->ask->kind != HY_JOIN) {
            warn(c, m, now);
            warned = true; /* other requests stall for the same reason */
        }
    }
    /* The missing ranks were refused a request, too: a later request of the same name is a new one. */
    hy_list_each(it, &c->pending)
        if (hy_container(it, struct pending_request, link)->refused == -EDEADLK)
            hy_negotiator_remove(c, hy_container(it, struct pending_request, link));
    if (!hy_list_empty(&c->pending))
        next = now + TICK_MS;
    return next;
}
