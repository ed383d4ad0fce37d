/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "driver/params_text.h"
#include "driver/run.h"

#define STARTS_MAX 1000          /* asks and starts in one turn: an agent may report any number of slots */
#define BACKOFF_FIRST_MS 1000
#define BACKOFF_MAX_MS 60000
#define WAITS_FOR_MAX 300             /* bytes of the reason that is shown */

/* ---- allocation ------------------------------------------------------------------------------ */

struct trial *hy_trial_new(struct driver *d, uint64_t number, const struct hy_value *values)
{
    struct trial *t = hy_calloc(1, sizeof *t);

    if (!t)
        return NULL;
    t->number = number;
    t->step = -1;
    hy_list_init(&t->on_agent);
    hy_list_init(&t->waiting);
    hy_list_init(&t->outputs);
    t->values = hy_calloc(d->space.count + 1, sizeof *t->values);
    if (t->values)
        memcpy(t->values, values, d->space.count * sizeof *values);
    t->params = hy_params_json(&d->space, values);
    if (!t->values || !t->params || hy_map_put(&d->trials.map, number, t) < 0) {
        hy_trial_free(d, t);
        return NULL;
    }
    return t;
}

void hy_trial_free(struct driver *d, struct trial *t)
{
    if (hy_map_get(&d->trials.map, t->number) == t)
        hy_map_remove(&d->trials.map, t->number);
    hy_list_remove(&t->on_agent);
    hy_list_remove(&t->waiting);
    if (t->ended)
        hy__control__free_unpacked(t->ended, NULL);
    hy_events_detach(d, t);
    hy_rank_reset(t);
    free(t->waits_for);
    free(t->lost_file);
    free(t->values);
    free(t->params);
    free(t->dir);
    free(t);
}

int hy_run_update_best(struct driver *d, const struct hy_trial_row *row)
{
    struct best *b = &d->trials.best;
    char *params, *dir;

    if (b->number && !(d->spec->maximize ? row->value > b->value : row->value < b->value))
        return 0;
    params = hy_strdup(row->params ? row->params : "");
    dir = hy_strdup(row->dir ? row->dir : "");
    if (!params || !dir) {
        free(params);
        free(dir);
        return -ENOMEM;
    }
    free(b->params);
    free(b->dir);
    *b = (struct best){.number = (uint64_t)row->number,
                       .ended_seq = row->ended_seq,
                       .value = row->value,
                       .params = params,
                       .dir = dir,
                       .elapsed_ms = row->ended - row->started,
                       .attempts = (uint32_t)row->attempts};
    return 0;
}

/* ---- asking the search ----------------------------------------------------------------------- */

int hy_trial_queue(struct driver *d, struct trial *t)
{
    struct hy_need need = hy_run_need(d, t);
    int rc;

    t->phase = TRIAL_QUEUED;
    t->queued_wall = hy_clock_wall_ms();
    if (hy_is_training(d) && d->training.gang != GANG_STARTED)
        return 0; /* together with all other ranks */
    rc = hy_schedule_submit(d->schedule, t->number, &need);
    if (rc < 0)
        hy_run_out_of_memory(d);
    return rc;
}

int hy_run_take_dir(struct driver *d, const char *dir)
{
    static char taken;
    uint64_t key = hy_hash(dir, strlen(dir));

    if (hy_map_get(&d->trials.dirs, key))
        return -EEXIST;
    return hy_map_put(&d->trials.dirs, key, &taken);
}

/* A name that no other trial has: two trials may have the same parameters. Two names with the same hash count as
 * equal; then the second one is longer than necessary. */
static char *name_dir(struct driver *d, const struct trial *t)
{
    char *dir = hy_params_dir(&d->space, t->values, t->number);
    int rc;

    while (dir && (rc = hy_run_take_dir(d, dir)) < 0) {
        char *longer = rc == -EEXIST ? hy_asprintf("%s~%llu", dir, (unsigned long long)t->number) : NULL;

        free(dir);
        dir = longer;
    }
    return dir;
}

static int add_to_store(struct driver *d, struct trial *t)
{
    struct hy_trial_row row = {.number = (int64_t)t->number,
                               .params = t->params,
                               .state = HY_TRIAL_RUNNING,
                               .started = hy_clock_wall_ms(),
                               .asked_seq = ++d->trials.seq};

    t->asked_wall = row.started;
    row.dir = t->dir = name_dir(d, t);
    return hy_run_check_recorded(d, t->dir ? hy_changes_trial_add(&d->commit.recorded, &row) : -ENOMEM);
}

int hy_trial_ask(struct driver *d)
{
    hy_cleanup_free struct hy_value *values = NULL;
    struct trial *t;
    uint64_t number;
    int rc;

    if (d->trials.search_over || d->phase != PHASE_RUNNING)
        return 0;
    values = hy_calloc(d->space.count + 1, sizeof *values);
    rc = values ? hy_search_ask(d->search, &number, values) : -ENOMEM;
    if (rc == -ENODATA) {
        d->trials.search_over = true;
        return 0;
    }
    if (rc == 0)
        return 0;
    t = rc == 1 ? hy_trial_new(d, number, values) : NULL;
    if (!t) {
        hy_run_out_of_memory(d);
        return 0;
    }
    return add_to_store(d, t) == 0 && hy_early_stop_add(d, t) == 0 && hy_trial_queue(d, t) == 0;
}

/* ---- placing trials -------------------------------------------------------------------------- */

static void start_at(struct driver *d, const struct hy_placement *place)
{
    struct trial *t = hy_map_get(&d->trials.map, place->task);

    if (place->task == GANG_TASK)
        hy_training_start(d, place);
    else if (hy_attempt_begin(d, t, &place->assignments[0]) == 0)
        hy_attempt_send(d, t, &place->assignments[0]);
}

/* Trials that wait for a whole agent or a whole GPU must not leave the other machines idle. */
static bool fits_beside_waiting(struct driver *d)
{
    struct hy_need need = hy_run_need(d, NULL);
    int rc = hy_is_training(d) ? 0 : hy_schedule_fits(d->schedule, &need);

    if (rc < 0)
        hy_run_out_of_memory(d);
    return rc > 0;
}

static bool has_free_slot(struct driver *d)
{
    struct hy_schedule_stats s;

    hy_schedule_stats(d->schedule, &s);
    if (s.waiting > 0)
        return fits_beside_waiting(d);
    if (s.slots_used >= s.slots)
        return false;
    return d->spec->parallel == 0 || s.running < d->spec->parallel;
}

/* Only the first rank's value counts. */
static bool is_measured(const struct driver *d, const struct trial *t)
{
    if (!hy_is_training(d))
        return *d->spec->metric;
    return *d->spec->metric && hy_node_has_rank(d->spec, t->number) && hy_node_rank(d->spec, t->number) == 0;
}

/* The number is only known at the end; the first such trial was noted when it ended. */
static void note_without_metric(struct driver *d)
{
    if (!d->trials.no_metric_noted || d->trials.done < 2)
        return;
    if (d->trials.without_metric >= d->trials.done)
        hy_run_note(d, "none of the %llu finished trials has a metric, so there is no best trial",
                    (unsigned long long)d->trials.done);
    else
        hy_run_note(d, "%llu of the %llu finished trials have no metric", (unsigned long long)d->trials.without_metric,
                    (unsigned long long)d->trials.done);
}

static void finish(struct driver *d, enum hy_run_state state, const char *message)
{
    note_without_metric(d);
    hy_run_finish(d, state, message);
}

/* A paused trial that is to continue comes before a new one. */
static bool queue_another(struct driver *d)
{
    return hy_early_stop_promote(d) || hy_trial_ask(d) || hy_early_stop_close(d);
}

/* Never asks for more trials than there are free slots, so that the search can use the latest results. */
void hy_trials_pump(struct driver *d)
{
    if (hy_is_training(d))
        hy_training_pump(d);
    for (int i = 0; d->phase == PHASE_RUNNING && !d->stalls.count && i < STARTS_MAX; i++) {
        struct hy_placement place;
        int rc = hy_schedule_next(d->schedule, &place);

        if (rc < 0)
            hy_run_out_of_memory(d);
        else if (rc == 1)
            start_at(d, &place);
        else if (!has_free_slot(d) || (hy_is_training(d) && !hy_training_needs_ranks(d)) || !queue_another(d))
            break;
    }
    if (d->phase == PHASE_RUNNING && d->trials.map.count == 0 && hy_is_training(d) && hy_events_all_written(d))
        hy_training_finish(d);
    if (d->phase == PHASE_RUNNING && d->trials.search_over && d->trials.map.count == 0 && hy_events_all_written(d))
        finish(d, d->trials.failed && !d->trials.done && !d->trials.pruned ? HY_RUN_FAILED : HY_RUN_DONE, NULL);
    if (d->phase == PHASE_STOPPING && d->trials.map.count == 0 && hy_events_all_written(d))
        finish(d, HY_RUN_STOPPED, "stopped");
}

/* ---- ending attempts and trials -------------------------------------------------------------- */

/* Longer texts of an agent are cut. */
static const char *detail_of(Hy__Ended *e)
{
    if (strlen(e->detail) > HY_REPORT_LIMIT)
        e->detail[HY_REPORT_LIMIT] = '\0';
    return *e->detail ? e->detail : NULL;
}

int hy_trial_end_attempt(struct driver *d, struct trial *t, enum hy_attempt_state state, enum hy_charge charge,
                         const char *message)
{
    Hy__Control *ended = hy_take(t->ended); /* owns the strings of the row */
    Hy__Ended *e = ended ? ended->ended : NULL;
    struct hy_attempt_row row = {.trial = (int64_t)t->number,
                                 .number = t->attempt,
                                 .agent = t->agent->name,
                                 .host = t->agent->host,
                                 .state = state,
                                 .message = message,
                                 .charge = charge,
                                 .gpus = t->gpu_mask,
                                 .started = t->started_wall,
                                 .ended = hy_clock_wall_ms()};
    int rc;

    if (e) {
        row.exit_code = e->outcome == HY__ENDED__OUTCOME__EXITED ? e->code : -(int64_t)e->code;
        row.cpu_ms = e->cpu_ms;
        row.peak_memory = (int64_t)e->peak_memory;
        row.gpus = e->gpu_mask ? e->gpu_mask : t->gpu_mask; /* 0: from an older agent */
        row.detail = state != HY_ATTEMPT_DONE ? detail_of(e) : NULL;
    }
    hy_list_remove(&t->on_agent);
    hy_outputs_close(d, t);
    hy_checkpoint_cancel(t);
    hy_events_attempt_over(t);
    free(hy_take(t->waits_for));
    t->agent = NULL;
    t->charged[charge]++;
    hy_schedule_done(d->schedule, t->number);
    d->changed = true;
    rc = hy_run_check_recorded(d, hy_changes_attempt_end(&d->commit.recorded, &row));
    hy__control__free_unpacked(ended, NULL);
    return rc;
}

void hy_trial_end(struct driver *d, struct trial *t, enum hy_trial_state state, const char *message)
{
    bool is_told = state != HY_TRIAL_STOPPED, is_over = state == HY_TRIAL_DONE || state == HY_TRIAL_PRUNED;
    struct hy_trial_row row = {.number = (int64_t)t->number,
                               .state = state,
                               .has_value = t->has_value && is_over && is_measured(d, t),
                               .value = t->value,
                               .message = message,
                               .attempts = t->attempt,
                               .params = t->params,
                               .dir = t->dir,
                               .started = t->asked_wall,
                               .ended = hy_clock_wall_ms(),
                               .ended_seq = ++d->trials.seq};

    row.told_seq = is_told ? row.ended_seq : 0;
    if (hy_run_check_recorded(d, hy_changes_trial_end(&d->commit.recorded, &row)) < 0)
        return;
    d->trials.ended_seq = row.ended_seq;
    hy_events_end(d, t, state);
    if (is_told)
        hy_search_tell(d->search, t->number, row.has_value ? t->value : NAN);
    if (row.has_value && state == HY_TRIAL_DONE && hy_run_update_best(d, &row) < 0)
        hy_run_out_of_memory(d);
    d->trials.without_metric += state == HY_TRIAL_DONE && *d->spec->metric && !row.has_value;
    *(state == HY_TRIAL_DONE     ? &d->trials.done
      : state == HY_TRIAL_FAILED ? &d->trials.failed
      : state == HY_TRIAL_PRUNED ? &d->trials.pruned
                                 : &d->trials.stopped) += 1;
    d->trials.ended_here++;
    if (is_told) /* otherwise it runs again when the run is resumed */
        hy_early_stop_end(d, t);
    hy_trial_free(d, t);
}

int64_t hy_backoff_ms(uint32_t times)
{
    int64_t wait = (int64_t)BACKOFF_FIRST_MS << (times > 6 ? 6 : times - 1);

    return wait > BACKOFF_MAX_MS ? BACKOFF_MAX_MS : wait;
}

void hy_trial_backoff(struct driver *d, struct trial *t, uint32_t times)
{
    t->due_ms = hy_clock_ms() + hy_backoff_ms(times);
    t->phase = TRIAL_WAITING;
    hy_list_push(&d->trials.waiting, &t->waiting);
}

static void retry_or_fail(struct driver *d, struct trial *t, const char *message)
{
    uint32_t failures = t->charged[HY_CHARGE_FAILURE];

    if (failures > d->spec->retries) {
        hy_trial_end(d, t, HY_TRIAL_FAILED, message);
        return;
    }
    if (d->phase != PHASE_RUNNING) { /* resume retries it */
        hy_trial_end(d, t, HY_TRIAL_STOPPED, message);
        return;
    }
    hy_trial_backoff(d, t, failures);
    hy_run_note(d, "trial %llu: %s; retried (%u of %u)", (unsigned long long)t->number, message, failures,
                d->spec->retries);
}

const char *hy_trial_find_fault(struct driver *d, const struct trial *t, const Hy__Ended *e, char *text, size_t size)
{
    const char *metric = d->spec->metric;

    if (*e->message)
        snprintf(text, size, "%s", e->message);
    else if (e->outcome == HY__ENDED__OUTCOME__SIGNALED)
        snprintf(text, size, "ended by signal %d (%s)", e->code, strsignal(e->code));
    else if (e->outcome != HY__ENDED__OUTCOME__EXITED)
        snprintf(text, size, "killed");
    else if (e->code != 0)
        snprintf(text, size, "exit status %d", e->code);
    else if (*e->metric_error)
        snprintf(text, size, "%s", e->metric_error);
    else if (t->lost_file)
        snprintf(text, size, "%s", t->lost_file);
    else if (!is_measured(d, t) || (!t->has_value && d->spec->metric_optional))
        return NULL;
    else if (!t->has_value && *e->remark)
        snprintf(text, size, "%s", e->remark);
    else if (!t->has_value && d->spec->function.len)
        snprintf(text, size, "it returned no %s; return a number, or a dict with the key '%s'", metric, metric);
    else if (!t->has_value)
        snprintf(text, size, "it has no %s; print '%s=NUMBER', or write it to $HOPYARD_RESULT", metric, metric);
    else if (!isfinite(t->value))
        snprintf(text, size, "its %s is %s", metric, isnan(t->value) ? "NaN" : "infinite");
    else
        return NULL;
    return text;
}

int hy_trial_store_metrics(struct driver *d, struct trial *t, uint32_t attempt, int64_t step, size_t n,
                           Hy__Metric **metrics)
{
    for (size_t i = 0; i < n; i++) {
        struct hy_metric_row row = {.trial = (int64_t)t->number,
                                    .attempt = attempt,
                                    .step = step,
                                    .name = metrics[i]->name,
                                    .value = metrics[i]->value,
                                    .time = hy_clock_wall_ms(),
                                    .run_seq = hy_early_stop_place(d, t, metrics[i]->name)};

        if (hy_run_check_recorded(d, hy_changes_metric_add(&d->commit.recorded, &row)) < 0)
            return -1;
        hy_events_scalar(t, row.name, step, row.value);
    }
    return 0;
}

/* The machine lacked a process, file or memory at that moment: not the trial's fault. */
static bool is_shortage(const Hy__Ended *e)
{
    return e->outcome == HY__ENDED__OUTCOME__NOT_STARTED &&
           (e->code == -EMFILE || e->code == -ENFILE || e->code == -EAGAIN || e->code == -ENOMEM ||
            e->code == -ENOSPC || e->code == -EDQUOT);
}

enum hy_charge hy_trial_charge(const Hy__Ended *e)
{
    return is_shortage(e) ? HY_CHARGE_SHORTAGE : e->gpu_fault ? HY_CHARGE_GPU_FAULT : HY_CHARGE_FAILURE;
}

static uint32_t count_setbacks(const struct trial *t)
{
    return t->charged[HY_CHARGE_SHORTAGE] + t->charged[HY_CHARGE_GPU_FAULT];
}

static bool is_full_disk(const Hy__Ended *e)
{
    return e->outcome == HY__ENDED__OUTCOME__NOT_STARTED && (e->code == -ENOSPC || e->code == -EDQUOT);
}

/* The disk of the run itself is full: not charged to the trial. */
static void wait_for_disk(struct driver *d, struct trial *t, const char *message)
{
    char text[700];

    snprintf(text, sizeof text, "%s", message);
    if (hy_trial_end_attempt(d, t, HY_ATTEMPT_LOST, HY_CHARGE_NONE, text) < 0)
        return;
    hy_stall_begin_no_room(d, text);
    if (d->phase != PHASE_RUNNING)
        hy_trial_end(d, t, HY_TRIAL_STOPPED, "stopped");
    else
        hy_trial_backoff(d, t, 1);
}

static void retry_after_shortage(struct driver *d, struct trial *t, const char *message)
{
    char text[700];

    snprintf(text, sizeof text, "%s", message); /* `message` is freed with the attempt */
    if (hy_trial_end_attempt(d, t, HY_ATTEMPT_LOST, HY_CHARGE_SHORTAGE, text) < 0)
        return;
    if (d->phase != PHASE_RUNNING) {
        hy_trial_end(d, t, HY_TRIAL_STOPPED, "stopped");
        return;
    }
    hy_trial_backoff(d, t, count_setbacks(t));
    hy_run_note(d, "trial %llu: %s; retried", (unsigned long long)t->number, text);
}

/* Another trial on its GPU has caused the fault, or this one has: it cannot be determined. */
static void retry_after_gpu_fault(struct driver *d, struct trial *t)
{
    if (hy_trial_end_attempt(d, t, HY_ATTEMPT_LOST, HY_CHARGE_GPU_FAULT, "another trial on its GPU failed") < 0)
        return;
    if (d->phase != PHASE_RUNNING) {
        hy_trial_end(d, t, HY_TRIAL_STOPPED, "stopped");
        return;
    }
    hy_run_note(d, "trial %llu: a fault of its GPU, which it shares with other trials; retried%s",
                (unsigned long long)t->number,
                hy_run_need(d, t).roles[0].gpu_share >= HY_GPU_WHOLE ? ", with a GPU to itself" : "");
    hy_trial_queue(d, t);
}

/* Once for each kind: all trials run the same function. */
static void note_remark(struct driver *d, const struct trial *t, const Hy__Ended *e)
{
    bool *noted = e->lacks_metric ? &d->trials.no_metric_noted : &d->trials.choice_noted;

    if (!*e->remark || *noted || (e->lacks_metric && t->has_value)) /* the metric was printed or reported */
        return;
    *noted = true;
    hy_run_note(d, "trial %llu: %s", (unsigned long long)t->number, e->remark);
}

/* However it has ended; its value is the last one that it has reported. */
static void end_early(struct driver *d, struct trial *t)
{
    const Hy__Ended *e = t->ended->ended;

    if (hy_trial_store_metrics(d, t, t->attempt, -1, e->n_metrics, e->metrics) == 0 &&
        hy_trial_end_attempt(d, t, HY_ATTEMPT_STOPPED, HY_CHARGE_NONE, NULL) == 0)
        hy_early_stop_attempt_over(d, t);
}

void hy_trial_process_end(struct driver *d, struct trial *t)
{
    const Hy__Ended *e = t->ended->ended;
    bool killed = e->outcome == HY__ENDED__OUTCOME__KILLED;
    char text[700];
    const char *fault;

    if (d->phase >= PHASE_ENDING || !hy_outputs_complete(t->agent, e) || hy_events_are_stalled(t))
        return; /* called again when more has been written */
    if (e->sent_files && !t->lost_file)
        hy_outputs_install_checkpoint(d, t);
    if (hy_early_stop_has_ended(t, e)) {
        end_early(d, t);
        return;
    }
    if (killed && !t->killed) { /* not by the driver: its agent was asked to end */
        hy_agents_stop_placing(d, t->agent);
        hy_trials_lost(d, t, hy_agents_bye_is_charged(d, t->agent), "it was asked to end");
        return;
    }
    if (e->has_metric) {
        t->has_value = true;
        t->value = e->metric;
    }
    if (hy_is_training(d)) {
        hy_training_process_end(d, t);
        return;
    }
    if (is_full_disk(e) && t->agent->shares_files) {
        wait_for_disk(d, t, e->message);
        return;
    }
    if (is_shortage(e) && count_setbacks(t) + 1 < SETBACKS_MAX) {
        retry_after_shortage(d, t, e->message);
        return;
    }
    if (e->gpu_fault && count_setbacks(t) + 1 < SETBACKS_MAX) {
        retry_after_gpu_fault(d, t);
        return;
    }
    fault = hy_trial_find_fault(d, t, e, text, sizeof text);
    if (!fault && !killed)
        note_remark(d, t, e);
    if (hy_trial_store_metrics(d, t, t->attempt, -1, e->n_metrics, e->metrics) < 0)
        return;
    if (hy_trial_end_attempt(d, t,
                             killed  ? HY_ATTEMPT_STOPPED
                             : fault ? HY_ATTEMPT_FAILED
                                     : HY_ATTEMPT_DONE,
                             fault && !killed ? HY_CHARGE_FAILURE : HY_CHARGE_NONE, fault) < 0)
        return;
    if (killed)
        hy_trial_end(d, t, HY_TRIAL_STOPPED, "stopped");
    else if (fault)
        retry_or_fail(d, t, fault);
    else
        hy_trial_end(d, t, HY_TRIAL_DONE, NULL);
}

struct trial *hy_trial_find_running(struct driver *d, struct agent *a, uint64_t number, uint32_t attempt)
{
    struct trial *t = hy_map_get(&d->trials.map, number);

    if (d->phase >= PHASE_ENDING)
        return NULL;
    if (t && t->phase == TRIAL_RUNNING && t->agent == a && t->attempt == attempt && !t->ended)
        return t;
    hy_info_limited("ignored a stale message agent=%s trial=%llu attempt=%u", a->name, (unsigned long long)number,
                    attempt);
    return NULL;
}

/* `earlier`: what it waited for until now; NULL: nothing. The store keeps the last reason when the wait is over. */
static int record_hold(struct driver *d, const struct trial *t, const char *earlier)
{
    struct hy_attempt_row row = {.trial = (int64_t)t->number,
                                 .number = t->attempt,
                                 .held = t->waits_for ? t->waits_for : earlier,
                                 .begun = t->waits_for ? 0 : hy_clock_wall_ms()};

    return row.held ? hy_changes_attempt_held(&d->commit.recorded, &row) : 0;
}

void hy_trials_held(struct driver *d, struct agent *a, const Hy__Held *held)
{
    struct trial *t = hy_trial_find_running(d, a, held->trial, held->attempt);
    hy_cleanup_free char *reason = NULL;

    if (!t)
        return;
    reason = hy_take(t->waits_for);
    /* Out of memory: the reason is not shown. */
    t->waits_for = *held->why ? hy_strndup(held->why, WAITS_FOR_MAX) : NULL;
    if (!*held->why)
        t->started_ms = hy_clock_ms();
    else if (!d->trials.held_noted)
        hy_run_note(d, "trial %llu waits: %s", (unsigned long long)t->number, held->why);
    d->trials.held_noted |= *held->why != '\0';
    d->changed = true;
    hy_run_check_recorded(d, record_hold(d, t, reason));
}

void hy_trials_usage(struct driver *d, struct agent *a, const Hy__UsageReport *r)
{
    struct trial *t = hy_trial_find_running(d, a, r->trial, r->attempt);
    struct hy_usage_row row = {.trial = (int64_t)r->trial, .attempt = r->attempt};
    struct hy_usage usage;
    hy_cleanup_buf struct hy_buf points;

    hy_buf_init(&points, HY_USAGE_PACKED_MAX);
    if (!t || hy_usage_read(r->usage, &usage) < 0 || usage.count == 0) /* hy_limits_exceeded has checked it */
        return;
    t->memory = (uint64_t)usage.points[usage.count - 1].memory << 10;
    t->gpu_mask = r->gpu_mask ? r->gpu_mask : t->gpu_mask;
    if (hy_run_check_recorded(d, hy_usage_pack(&usage, &points)) < 0) /* only what was checked: no unknown fields */
        return;
    row.points = hy_buf_bytes(&points);
    row.points_len = points.len;
    hy_run_check_recorded(d, hy_changes_usage_set(&d->commit.recorded, &row));
}

void hy_trials_ended(struct driver *d, struct agent *a, const Hy__Control *m)
{
    struct trial *t = hy_trial_find_running(d, a, m->ended->trial, m->ended->attempt);

    if (!t)
        return;
    t->ended = hy_control_copy(m);
    if (!t->ended) {
        hy_run_out_of_memory(d);
        return;
    }
    if (hy_is_training(d))
        hy_training_ended(d, t);
    hy_trial_process_end(d, t);
}

void hy_trials_report(struct driver *d, struct agent *a, const Hy__Report *r)
{
    struct trial *t = hy_trial_find_running(d, a, r->trial, r->attempt);

    if (!t || hy_trial_store_metrics(d, t, r->attempt, r->step, r->n_metrics, r->metrics) < 0)
        return;
    t->step = r->step;
    d->changed = true;
    for (size_t i = 0; i < r->n_metrics; i++)
        if (strcmp(r->metrics[i]->name, d->spec->metric) == 0) {
            t->has_value = true;
            t->value = r->metrics[i]->value;
            hy_early_stop_report(d, t, r->step, t->value);
        }
}

/* Not if the trial was not running yet, or not any more, when its agent died. */
static bool may_have_killed_agent(const struct trial *t)
{
    return !t->waits_for && (!t->ended || t->ended->ended->outcome == HY__ENDED__OUTCOME__KILLED);
}

/* Its agents died while nothing else ran on them, so the trial is the cause. */
static void fail_suspect(struct driver *d, struct trial *t, const char *why)
{
    char text[700];

    snprintf(text, sizeof text,
             "its agent died %u times while it ran, the last %u times with nothing else on it, so "
             "the trial kills it; the last time: %s",
             t->charged[HY_CHARGE_LOSS], t->charged[HY_CHARGE_LOSS] - LOSSES_BEFORE_ALONE, why);
    hy_trial_end(d, t, HY_TRIAL_FAILED, text);
}

static void note_suspects(struct driver *d, const struct trial *t)
{
    if (d->trials.suspects_noted || t->charged[HY_CHARGE_LOSS] < LOSSES_BEFORE_ALONE)
        return;
    d->trials.suspects_noted = true;
    hy_run_note(d,
                "an agent died for the second time while trial %llu ran on it; such trials run alone on an agent "
                "from now on, so that one that kills its agent is identified",
                (unsigned long long)t->number);
}

void hy_trials_lost(struct driver *d, struct trial *t, bool died, const char *why)
{
    bool counts = died && d->phase == PHASE_RUNNING && may_have_killed_agent(t);
    char text[700];

    if (d->phase >= PHASE_ENDING) { /* the end of the run is already in the store */
        hy_list_remove(&t->on_agent);
        hy_outputs_close(d, t);
        hy_checkpoint_cancel(t);
        t->agent = NULL;
        return;
    }
    if (hy_is_training(d)) {
        hy_training_lost(d, t, counts, why);
        return;
    }
    snprintf(text, sizeof text, "its agent was lost: %s", why);
    if (hy_trial_end_attempt(d, t, HY_ATTEMPT_LOST, counts ? HY_CHARGE_LOSS : HY_CHARGE_NONE, text) < 0)
        return;
    t->has_value = false;
    if (t->decision != HY_DECISION_CONTINUE)
        hy_early_stop_attempt_over(d, t);
    else if (d->phase != PHASE_RUNNING)
        hy_trial_end(d, t, HY_TRIAL_STOPPED, "stopped");
    else if (counts && t->charged[HY_CHARGE_LOSS] >= LOSSES_MAX)
        fail_suspect(d, t, why);
    else if (hy_trial_queue(d, t) == 0)
        note_suspects(d, t);
}

/* ---- the tick, and stopping ------------------------------------------------------------------ */

/* Some trials cannot be ended (a program that became root, an agent that does not answer): a user who stops the run
 * does not wait for them. */
static void abandon_trials(struct driver *d)
{
    struct trial *t;
    size_t i = 0;

    while (d->phase == PHASE_STOPPING && (t = hy_map_next(&d->trials.map, &i))) {
        hy_run_note(d, "trial %llu has not ended within %d s; it is abandoned", (unsigned long long)t->number,
                    STOP_MS / 1000);
        if (hy_trial_end_attempt(d, t, HY_ATTEMPT_STOPPED, HY_CHARGE_NONE, "it did not end when it was stopped") < 0)
            return;
        hy_trial_end(d, t, HY_TRIAL_STOPPED, "stopped");
        i = 0; /* the removal has changed the map */
    }
}

void hy_trials_tick(struct driver *d, int64_t now)
{
    if (d->phase == PHASE_STOPPING && now > d->end.stop_by)
        abandon_trials(d);
    if (hy_is_training(d))
        hy_training_tick(d, now);
    hy_checkpoints_tick(d);
    hy_list_each(it, &d->trials.waiting) {
        struct trial *t = hy_container(it, struct trial, waiting);

        if (t->due_ms > now)
            continue;
        hy_list_remove(&t->waiting);
        if (hy_trial_queue(d, t) < 0)
            return;
    }
}

void hy_trial_kill(struct driver *d, struct trial *t)
{
    Hy__Kill kill = HY__KILL__INIT;
    Hy__Control m = HY__CONTROL__INIT;
    int rc;

    kill.trial = t->number;
    kill.attempt = t->attempt;
    m.body_case = HY__CONTROL__BODY_KILL;
    m.kill = &kill;
    t->killed = true;
    rc = hy_agents_send(t->agent, &m);
    if (rc == -ENOBUFS)
        hy_agent_set_violation(t->agent, "it does not read its messages");
    else if (rc < 0)
        hy_run_out_of_memory(d);
}

void hy_trials_stop_all(struct driver *d)
{
    size_t n = 0;
    struct trial *t;
    hy_cleanup_free struct trial **all = hy_calloc(d->trials.map.count + 1, sizeof *all);

    if (!all) {
        hy_run_out_of_memory(d);
        return;
    }
    for (size_t i = 0; (t = hy_map_next(&d->trials.map, &i));)
        all[n++] = t;
    for (size_t i = 0; i < n; i++) {
        if (all[i]->phase == TRIAL_RUNNING) {
            hy_trial_kill(d, all[i]);
            continue;
        }
        if (all[i]->phase == TRIAL_QUEUED)
            hy_schedule_done(d->schedule, all[i]->number);
        if (all[i]->phase == TRIAL_PAUSED) /* it stays paused in the store */
            hy_trial_free(d, all[i]);
        else if (all[i]->phase == TRIAL_ENDED)
            hy_trial_end(d, all[i], all[i]->member.end_state, all[i]->member.end_message);
        else
            hy_trial_end(d, all[i], HY_TRIAL_STOPPED, "stopped");
    }
}
