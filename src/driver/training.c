/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training: its trials are ranks, which start together and depend on each
 * other.
 *
 * All ranks are placed at once, as a gang, or none is; from then on each is a
 * separate task of the schedule. If one dies and the training is not elastic,
 * the training is aborted: the others are notified (rank_group.c), have five
 * seconds to end by themselves, and are killed. When all have ended, all are
 * restarted, or the training ends. Until then a rank that has ended is only
 * TRIAL_ENDED, since it may be needed again.
 *
 * An elastic training continues with the remaining ranks. The dead one is
 * restarted where there is room, and then joins the others. Only if fewer ranks
 * than --min-np remain is it aborted.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "driver/run.h"

#define STILL_NEEDED "exit status 0, but the others still needed it"

/* ---- lists of ranks -------------------------------------------------------------------------- */

bool hy_rank_is_alive(const struct trial *t)
{
    return t->phase == TRIAL_RUNNING && !t->ended && !t->member.death && t->agent->peer;
}

static int by_number(const void *a, const void *b)
{
    const struct trial *x = *(struct trial *const *)a, *y = *(struct trial *const *)b;

    return x->number < y->number ? -1 : x->number > y->number;
}

struct trial **hy_training_ranks(struct driver *d, size_t *ret_count)
{
    struct trial **all = hy_calloc(d->trials.map.count + 1, sizeof *all), *t;
    size_t n = 0;

    if (!all) {
        hy_run_out_of_memory(d);
        return NULL;
    }
    for (size_t i = 0; (t = hy_map_next(&d->trials.map, &i));)
        all[n++] = t;
    qsort(all, n, sizeof(struct trial *), by_number);
    *ret_count = n;
    return all;
}

static size_t count_ranks(const struct driver *d, bool (*which)(const struct trial *))
{
    struct trial *t;
    size_t n = 0;

    for (size_t i = 0; (t = hy_map_next(&d->trials.map, &i));)
        n += which(t);
    return n;
}

static bool has_not_ended(const struct trial *t)
{
    return t->phase != TRIAL_ENDED;
}

static bool is_survivor(const struct trial *t)
{
    return hy_rank_is_alive(t) && t->member.generation;
}

static bool is_waiting(const struct trial *t)
{
    return hy_rank_is_alive(t) && t->member.awaits_roster;
}

/* ---- starting all ranks ---------------------------------------------------------------------- */

/* Servers come last: the largest need is placed first. */
static struct hy_need need_of(const struct driver *d, uint32_t size)
{
    struct hy_need need = hy_run_need(d, NULL);
    uint32_t servers = hy_spec_servers(d->spec);

    need.roles[0].count = size - servers;
    if (servers) {
        need.roles[1] = (struct hy_role_need){.count = servers, .memory = need.roles[0].memory};
        need.role_count = 2;
    }
    return need;
}

struct hy_need hy_training_need(const struct driver *d)
{
    return need_of(d, hy_is_elastic(d) ? d->spec->ranks_min : d->spec->ranks);
}

static void queue_gang(struct driver *d, uint32_t size)
{
    struct hy_need need = need_of(d, size);

    d->training.size = size;
    d->training.gang = GANG_QUEUED;
    if (hy_schedule_submit(d->schedule, GANG_TASK, &need) < 0)
        hy_run_out_of_memory(d);
}

void hy_training_pump(struct driver *d)
{
    struct training *g = &d->training;

    if (g->gang != GANG_PENDING || d->phase != PHASE_RUNNING || hy_clock_ms() < g->start_at)
        return;
    while (d->trials.map.count < d->spec->ranks)
        if (!hy_trial_ask(d))
            return;
    queue_gang(d, d->spec->ranks);
}

void hy_training_shrink_to_fit(struct driver *d)
{
    struct training *g = &d->training;
    struct hy_need need = hy_run_need(d, NULL);
    uint32_t *size = &need.roles[0].count;

    if (!hy_is_training(d) || !hy_is_elastic(d) || g->gang != GANG_QUEUED)
        return;
    *size = d->spec->ranks;
    while (*size > d->spec->ranks_min && !hy_schedule_possible(d->schedule, &need))
        --*size;
    if (*size == g->size)
        return;
    hy_schedule_done(d->schedule, GANG_TASK);
    queue_gang(d, *size);
}

void hy_training_wait_for_machines(struct driver *d, const struct hy_err *why)
{
    if (hy_is_training(d) && !d->training.wait_noted)
        hy_run_note(d, "waiting for machines to join: %s", why->text);
    d->training.wait_noted = true;
}

struct gang_slot {
    uint32_t role;
    uint64_t agent;
    size_t at; /* index in the gang's placement */
};

static int by_agent(const void *a, const void *b)
{
    const struct gang_slot *x = a, *y = b;

    if (x->role != y->role)
        return x->role < y->role ? -1 : 1;
    if (x->agent != y->agent)
        return x->agent < y->agent ? -1 : 1;
    return x->at < y->at ? -1 : 1;
}

/*
 * Ranks of one agent have consecutive numbers, and agents are in the order in
 * which the user listed them. The schedule fills agents in the order in which
 * they joined, with tasks in the order in which they are queued: so they are
 * queued accordingly. The servers of a cluster have the lowest numbers and the
 * last places.
 */
static int queue_in_rank_order(struct driver *d, struct trial **ranks, const struct hy_placement *place)
{
    size_t n = place->count, servers = hy_spec_servers(d->spec);
    hy_cleanup_free struct gang_slot *slots = hy_calloc(n, sizeof *slots);
    hy_cleanup_free struct trial **in_slot = hy_calloc(n, sizeof *in_slot);
    int rc = 0;

    if (!slots || !in_slot) {
        hy_run_out_of_memory(d);
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++)
        slots[i] = (struct gang_slot){place->assignments[i].role, place->assignments[i].agent, i};
    qsort(slots, n, sizeof *slots, by_agent);
    for (size_t i = 0; i < n; i++)
        in_slot[slots[i].at] = ranks[(servers + i) % n];
    hy_schedule_done(d->schedule, GANG_TASK);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = hy_trial_queue(d, in_slot[i]);
    return rc;
}

/* The tasks that were just queued take the places of the gang. */
static int begin_all(struct driver *d, struct trial **ranks, struct hy_assignment *places, size_t n)
{
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++) {
        struct hy_placement place;

        if (hy_schedule_next(d->schedule, &place) != 1) {
            hy_run_out_of_memory(d); /* impossible otherwise: the gang just fitted */
            return -ENOMEM;
        }
        ranks[i] = hy_map_get(&d->trials.map, place.task);
        places[i] = place.assignments[0];
        rc = hy_attempt_begin(d, ranks[i], &places[i]);
    }
    return rc;
}

void hy_training_start(struct driver *d, const struct hy_placement *gang)
{
    size_t all = 0, n = gang->count;
    hy_cleanup_free struct hy_assignment *places = hy_calloc(n, sizeof *places);
    hy_cleanup_free struct trial **ranks = hy_training_ranks(d, &all);

    d->training.gang = GANG_STARTED;
    if (!places || !ranks || all < n) {
        hy_run_out_of_memory(d);
        return;
    }
    if (queue_in_rank_order(d, ranks, gang) < 0 || begin_all(d, ranks, places, n) < 0)
        return;
    for (size_t i = 0; i < n; i++)
        hy_attempt_send(d, ranks[i], &places[i]);
    for (size_t i = n; i < all; i++) /* started when there is room */
        hy_trial_queue(d, ranks[i]);
}

bool hy_training_needs_ranks(const struct driver *d)
{
    const struct training *g = &d->training;

    return g->gang == GANG_STARTED && !g->has_finished_rank && !g->abort_reason &&
           count_ranks(d, has_not_ended) < d->spec->ranks_max;
}

/* ---- ending all ranks ------------------------------------------------------------------------ */

static void rank_ended(struct driver *d, struct trial *t, enum hy_trial_state result, const char *message)
{
    t->phase = TRIAL_ENDED;
    t->member.end_state = result;
    free(t->member.end_message);
    t->member.end_message = message ? hy_strdup(message) : NULL; /* out of memory: no message */
    d->changed = true;
}

/* Ranks without a process do not get one any more. */
static void cancel_unstarted(struct driver *d, const char *message)
{
    struct trial *t;

    for (size_t i = 0; (t = hy_map_next(&d->trials.map, &i));) {
        if (t->phase != TRIAL_QUEUED && t->phase != TRIAL_WAITING)
            continue;
        if (t->phase == TRIAL_QUEUED)
            hy_schedule_done(d->schedule, t->number);
        hy_list_remove(&t->waiting);
        if (t->member.death)
            rank_ended(d, t, HY_TRIAL_FAILED, t->member.death);
        else
            rank_ended(d, t, HY_TRIAL_STOPPED, message);
    }
}

static void end_all(struct driver *d)
{
    size_t n;
    hy_cleanup_free struct trial **ranks = hy_training_ranks(d, &n);

    for (size_t i = 0; ranks && i < n; i++)
        hy_trial_end(d, ranks[i], ranks[i]->member.end_state, ranks[i]->member.end_message);
}

/* Attempts that do not use up --retries, but are limited as well. */
static uint32_t count_setbacks(const uint32_t charged[HY_CHARGES])
{
    return charged[HY_CHARGE_LOSS] + charged[HY_CHARGE_SHORTAGE] + charged[HY_CHARGE_GPU_FAULT];
}

static bool may_restart_all(const struct driver *d)
{
    const struct training *g = &d->training;

    if (!g->abort_reason || hy_is_elastic(d) || d->spec->fed || d->phase != PHASE_RUNNING)
        return false;
    if (g->abort_charge == HY_CHARGE_FAILURE)
        return g->charged[HY_CHARGE_FAILURE] < d->spec->retries;
    return g->abort_charge == HY_CHARGE_NONE || count_setbacks(g->charged) + 1 < LOSSES_MAX;
}

static void restart_all(struct driver *d)
{
    struct training *g = &d->training;
    const char *all = hy_is_cluster(d) ? "nodes" : "ranks";
    uint32_t failures, lost;
    struct trial *t;

    g->charged[g->abort_charge]++;
    failures = g->charged[HY_CHARGE_FAILURE];
    lost = g->charged[HY_CHARGE_NONE] + count_setbacks(g->charged);
    if (g->abort_charge == HY_CHARGE_FAILURE) {
        g->start_at = hy_clock_ms() + hy_backoff_ms(failures);
        hy_run_note(d, "%s; all %s are restarted (%u of %u)", g->abort_reason, all, failures, d->spec->retries);
    } else {
        g->start_at = hy_clock_ms() + (lost > 1 ? hy_backoff_ms(lost - 1) : 0);
        hy_run_note(d, "%s; all %s are restarted", g->abort_reason, all);
    }
    for (size_t i = 0; (t = hy_map_next(&d->trials.map, &i));)
        t->phase = TRIAL_WAITING;
    free(hy_take(g->abort_reason));
    g->kill_at = d->cluster.dismiss_at = 0;
    g->has_finished_rank = false;
    g->gang = GANG_PENDING;
    d->changed = true;
}

static void finish_if_all_ended(struct driver *d)
{
    if (count_ranks(d, has_not_ended))
        return;
    if (may_restart_all(d))
        restart_all(d);
    else
        end_all(d);
}

void hy_training_abort_take(struct driver *d, const struct trial *cause, enum hy_charge charge, char *why)
{
    struct training *g = &d->training;

    if (!why) {
        hy_run_out_of_memory(d);
        return;
    }
    if (g->abort_reason || d->phase != PHASE_RUNNING) { /* the first cause counts */
        free(why);
        return;
    }
    hy_info("training is aborted cause=%llu why=\"%s\"", (unsigned long long)cause->number, why);
    g->abort_reason = why;
    g->abort_cause = cause->number;
    g->abort_charge = charge;
    g->kill_at = hy_clock_ms() + (hy_is_cluster(d) ? 0 : ABORT_GRACE_MS); /* TensorFlow does not end by itself */
    hy_ranks_notify_lost(d, cause, why);
    cancel_unstarted(d, why);
}

void hy_training_fail_rank(struct driver *d, struct trial *t)
{
    if (t->phase == TRIAL_ENDED)
        rank_ended(d, t, HY_TRIAL_FAILED, STILL_NEEDED);
    else if (!t->member.death)
        t->member.death = hy_strdup(STILL_NEEDED); /* out of memory: it counts as done */
}

void hy_training_finish(struct driver *d)
{
    const char *why = d->training.abort_reason;

    if (!why && d->trials.done == 0)
        why = hy_is_cluster(d) ? "no node succeeded" : "no rank succeeded";
    hy_run_finish(d, why ? HY_RUN_FAILED : HY_RUN_DONE, why);
}

/* An elastic training waits for machines, by default without a limit. */
static void check_elastic_timeout(struct driver *d, int64_t now)
{
    struct training *g = &d->training;
    size_t alive = count_ranks(d, hy_rank_is_alive);
    struct hy_err err = {0};

    if (!d->spec->elastic_timeout_ms || d->phase != PHASE_RUNNING || g->has_finished_rank || g->abort_reason ||
        d->stalls.count || alive >= d->spec->ranks_min) {
        g->too_few_since = 0;
        return;
    }
    if (!g->too_few_since)
        g->too_few_since = now;
    if (now - g->too_few_since < d->spec->elastic_timeout_ms)
        return;
    hy_err_set(&err, -ETIMEDOUT,
               "for %lld s there %s %zu rank%s, but the minimum is %u; the elastic timeout ends the "
               "training",
               (long long)d->spec->elastic_timeout_ms / 1000, alive == 1 ? "was" : "were", alive, alive == 1 ? "" : "s",
               d->spec->ranks_min);
    hy_run_fail(d, &err);
}

void hy_training_tick(struct driver *d, int64_t now)
{
    struct training *g = &d->training;
    struct trial *t;

    hy_nodes_tick(d, now);
    check_elastic_timeout(d, now);
    if (g->kill_at && d->stalls.count)
        g->kill_at = now + ABORT_GRACE_MS; /* they have not been notified yet */
    if (!g->kill_at || now < g->kill_at)
        return;
    g->kill_at = 0;
    for (size_t i = 0; (t = hy_map_next(&d->trials.map, &i));)
        if (hy_rank_is_alive(t) && !t->killed)
            hy_trial_kill(d, t);
}

/* ---- ending one rank of an elastic training -------------------------------------------------- */

static void abort_too_few(struct driver *d, const struct trial *cause)
{
    uint32_t least = d->spec->ranks_min;
    size_t left = count_ranks(d, has_not_ended);
    const char *how = cause->member.death ? cause->member.death : "ranks have ended";

    hy_training_abort_take(
        d, cause, HY_CHARGE_FAILURE,
        hy_asprintf("%s; the training needs %u rank%s, but only %zu remain", how, least, least == 1 ? "" : "s", left));
}

/* They joined when the others had finished. */
static void dismiss_late_ranks(struct driver *d)
{
    struct trial *t;

    for (size_t i = 0; (t = hy_map_next(&d->trials.map, &i));)
        if (hy_rank_is_alive(t) && !t->killed)
            hy_trial_kill(d, t);
}

static void check_elastic(struct driver *d, const struct trial *last)
{
    struct training *g = &d->training;
    size_t left, waiting;

    if (g->has_finished_rank)
        cancel_unstarted(d, "the other ranks were done before it was restarted");
    left = count_ranks(d, has_not_ended);
    waiting = count_ranks(d, is_waiting);
    if (!g->has_finished_rank && left < d->spec->ranks_min)
        abort_too_few(d, last);
    else if (g->has_finished_rank && left && !count_ranks(d, is_survivor))
        dismiss_late_ranks(d);
    else if (g->has_finished_rank && left == waiting && left && left < d->spec->ranks_min)
        abort_too_few(d, last);
    else
        hy_ranks_form_group(d);
    finish_if_all_ended(d);
}

/* Without --retries a rank is restarted as long as enough others run. */
static bool may_retry_rank(const struct driver *d, const struct trial *t, enum hy_charge charge)
{
    if (d->training.has_finished_rank || d->training.abort_reason)
        return false;
    if (charge != HY_CHARGE_FAILURE)
        return charge == HY_CHARGE_NONE || count_setbacks(t->charged) < LOSSES_MAX;
    if (d->spec->retries)
        return t->charged[HY_CHARGE_FAILURE] <= d->spec->retries;
    return count_ranks(d, hy_rank_is_alive) >= d->spec->ranks_min;
}

static void retry_or_fail_rank(struct driver *d, struct trial *t, enum hy_charge charge, const char *message)
{
    uint32_t failures = t->charged[HY_CHARGE_FAILURE];
    uint32_t losses = t->charged[HY_CHARGE_NONE] + count_setbacks(t->charged);
    const char *how = t->member.death ? t->member.death : message;

    if (may_retry_rank(d, t, charge)) {
        hy_run_note(d, "%s; it is restarted", how);
        hy_trial_backoff(d, t, charge == HY_CHARGE_FAILURE ? failures : losses);
    } else {
        hy_run_note(d, "%s; it is not restarted", how);
        rank_ended(d, t, HY_TRIAL_FAILED, message);
    }
}

/* ---- ending one rank ------------------------------------------------------------------------- */

struct result {
    enum hy_attempt_state attempt;
    enum hy_trial_state trial;
    enum hy_charge charge; /* if it has failed */
    char text[1024]; /* "": no fault */
};

static void apply_elastic_result(struct driver *d, struct trial *t, const struct result *v)
{
    const char *message = *v->text ? v->text : NULL;

    d->training.has_finished_rank |= v->trial == HY_TRIAL_DONE;
    if (v->trial == HY_TRIAL_FAILED)
        retry_or_fail_rank(d, t, v->charge, message);
    else
        rank_ended(d, t, v->trial, message);
    check_elastic(d, t);
}

/* Ends the attempt, and continues, restarts or ends the training. */
static void apply_result(struct driver *d, struct trial *t, const struct result *v)
{
    const char *message = *v->text ? v->text : NULL;

    if (hy_trial_end_attempt(d, t, v->attempt, v->trial == HY_TRIAL_FAILED ? v->charge : HY_CHARGE_NONE, message) < 0)
        return;
    if (d->phase != PHASE_RUNNING) {
        hy_trial_end(d, t, v->trial, message);
    } else if (hy_is_elastic(d) && !d->training.abort_reason) {
        apply_elastic_result(d, t, v);
    } else {
        d->training.has_finished_rank |= v->trial == HY_TRIAL_DONE && hy_node_has_rank(d->spec, t->number);
        rank_ended(d, t, v->trial, message);
        hy_training_check_deadlock(d);
        hy_nodes_check_done(d);
        finish_if_all_ended(d);
    }
}

void hy_training_check_deadlock(struct driver *d)
{
    struct trial *t, *over = NULL;
    char name[HY_NODE_NAME_MAX];

    if (hy_is_elastic(d) || d->training.abort_reason)
        return;
    for (size_t i = 0; (t = hy_map_next(&d->trials.map, &i));)
        over = t->phase == TRIAL_ENDED && hy_node_has_rank(d->spec, t->number) ? t : over;
    if (over && count_ranks(d, is_waiting))
        hy_training_abort_take(d, over, HY_CHARGE_FAILURE,
                               hy_asprintf("%s %s has ended, but the others wait for it to join",
                                           hy_is_cluster(d) ? "node" : "rank",
                                           hy_node_name(d->spec, over->number, name)));
}

static bool ended_well(const struct driver *d, const struct trial *t, const Hy__Ended *e)
{
    if (e->outcome != HY__ENDED__OUTCOME__EXITED || e->code != 0)
        return false;
    return t->member.has_left || !hy_ranks_has_others(d, t);
}

static void describe_end(const struct trial *t, const Hy__Ended *e, char *text, size_t size)
{
    if (e->outcome == HY__ENDED__OUTCOME__NOT_STARTED)
        snprintf(text, size, "could not be started: %s", e->message);
    else if (*e->message)
        snprintf(text, size, e->outcome == HY__ENDED__OUTCOME__EXITED ? "failed: %s" : "was %s", e->message);
    else if (e->outcome == HY__ENDED__OUTCOME__SIGNALED)
        snprintf(text, size, "was ended by signal %d (%s)", e->code, strsignal(e->code));
    else if (e->code)
        snprintf(text, size, "ended with exit status %d", e->code);
    else
        snprintf(text, size, "ended (exit status 0) %s",
                 t->member.join ? "while the others were still training" : "without joining the others");
}

void hy_training_ended(struct driver *d, struct trial *t)
{
    const Hy__Ended *e = t->ended->ended;
    char how[700];

    if (t->member.death || e->outcome == HY__ENDED__OUTCOME__KILLED || ended_well(d, t, e))
        return;
    describe_end(t, e, how, sizeof how);
    hy_rank_died(d, t, hy_trial_charge(e), how);
}

static bool was_aborted(const struct driver *d, const struct trial *t)
{
    return d->training.abort_reason && d->training.abort_cause != t->number;
}

void hy_rank_displace(struct driver *d, struct trial *t, const char *why)
{
    char how[160];

    snprintf(how, sizeof how, "was ended: %s", why);
    t->member.displaced = true;
    hy_rank_died(d, t, HY_CHARGE_NONE, how);
    hy_trial_kill(d, t);
}

/* It may run again where there is room. */
static struct result displaced(const struct trial *t)
{
    struct result v = {HY_ATTEMPT_LOST, HY_TRIAL_FAILED, HY_CHARGE_NONE, "its machine has no slot for it any more"};

    if (t->member.death)
        snprintf(v.text, sizeof v.text, "%s", t->member.death);
    return v;
}

static struct result evaluate_attempt(struct driver *d, struct trial *t)
{
    const Hy__Ended *e = t->ended->ended;
    struct result v = {HY_ATTEMPT_DONE, HY_TRIAL_DONE, hy_trial_charge(e), ""};
    const bool has_gone = t->member.dismissed && !d->training.abort_reason;
    const char *fault = has_gone ? NULL : hy_trial_find_fault(d, t, e, v.text, sizeof v.text);

    if (!fault && !t->member.death)
        return v;
    v.attempt = v.charge == HY_CHARGE_FAILURE ? HY_ATTEMPT_FAILED : HY_ATTEMPT_LOST;
    v.trial = HY_TRIAL_FAILED;
    if (!fault)
        snprintf(v.text, sizeof v.text, STILL_NEEDED);
    if (!was_aborted(d, t) && e->outcome != HY__ENDED__OUTCOME__KILLED)
        return v;
    v.attempt = HY_ATTEMPT_STOPPED;
    v.trial = HY_TRIAL_STOPPED;
    if (was_aborted(d, t))
        snprintf(v.text, sizeof v.text, "ended because %s", d->training.abort_reason);
    else
        snprintf(v.text, sizeof v.text, "%s",
                 d->phase == PHASE_RUNNING ? "the others were done before it joined" : "stopped");
    return v;
}

void hy_training_process_end(struct driver *d, struct trial *t)
{
    const Hy__Ended *e = t->ended->ended;
    struct result v = t->member.displaced && d->phase == PHASE_RUNNING ? displaced(t) : evaluate_attempt(d, t);

    if (hy_is_elastic(d) && v.trial == HY_TRIAL_FAILED && v.charge == HY_CHARGE_FAILURE && d->phase == PHASE_RUNNING)
        hy_agents_start_cooldown(d, t->agent);
    if (hy_trial_store_metrics(d, t, t->attempt, -1, e->n_metrics, e->metrics) == 0)
        apply_result(d, t, &v);
}

void hy_training_lost(struct driver *d, struct trial *t, bool died, const char *why)
{
    struct result v = {.attempt = HY_ATTEMPT_LOST, .charge = died ? HY_CHARGE_LOSS : HY_CHARGE_NONE};
    char how[600];

    v.trial = d->phase == PHASE_RUNNING ? HY_TRIAL_FAILED : HY_TRIAL_STOPPED;
    snprintf(how, sizeof how, "is lost: its agent is gone (%s)", why);
    hy_rank_died(d, t, v.charge, how);
    snprintf(v.text, sizeof v.text, "its agent was lost: %s", why);
    t->has_value = false;
    apply_result(d, t, &v);
}
