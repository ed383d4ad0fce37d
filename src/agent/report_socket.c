/* SPDX-License-Identifier: Apache-2.0 */
/* The socket on which trials report to their agent: `hopyard report`, and messages of ranks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/trial.h"
#include "base/file.h"
#include "base/mem.h"
#include "wire/wire.h"

#define REPORTS_MAX (4u * 1024 * 1024) /* bytes that the driver has not received yet; further reports wait */

/* A connection whose next report waits for the driver. */
struct deferred {
    struct hy_list link;
    struct hy_local_conn *conn;
};

/* The newest one replaces earlier ones. */
static void take_failure(struct trial *t, const Hy__TrialReport *r)
{
    char *said = hy_strdup(r->error), *detail = *r->detail ? hy_strdup(r->detail) : NULL;

    if (!said || (*r->detail && !detail)) {
        free(said);
        free(detail);
        hy_agent_end(t->agent, 1, "out of memory");
        return;
    }
    free(t->said);
    free(t->detail);
    t->said = said;
    t->detail = detail;
}

static void take_remark(struct trial *t, const Hy__TrialReport *r)
{
    char *remark = hy_strdup(r->remark);

    if (!remark) {
        hy_agent_end(t->agent, 1, "out of memory");
        return;
    }
    free(t->remark);
    t->remark = remark;
    t->ended.lacks_metric = r->lacks_metric;
}

static void forward_metrics(struct trial *t, const Hy__TrialReport *r)
{
    Hy__Report report = HY__REPORT__INIT;
    Hy__Control m = HY__CONTROL__INIT;

    report.trial = t->number;
    report.attempt = t->attempt;
    report.step = r->step;
    report.n_metrics = r->n_metrics;
    report.metrics = r->metrics;
    m.body_case = HY__CONTROL__BODY_REPORT;
    m.report = &report;
    hy_agent_send(t->agent, &m);
}

/* The trial with this token; NULL: unknown. */
static struct trial *speaker(struct agent *a, const Hy__TrialReport *r)
{
    unsigned long long run, trial;
    unsigned attempt;
    char tag[64] = "";

    if (r->token.len && r->token.len < sizeof tag)
        memcpy(tag, r->token.data, r->token.len);
    if (sscanf(tag, "%llu.%llu.%u", &run, &trial, &attempt) != 3 || !a->welcomed ||
        run != (unsigned long long)a->welcomed->welcome->run)
        return NULL;
    return hy_map_get(&a->trials, hy_agent_trial_key(trial, attempt));
}

static bool has_long_name(const Hy__TrialReport *r)
{
    for (size_t i = 0; i < r->n_metrics; i++)
        if (strlen(r->metrics[i]->name) > HY_NAME_LIMIT)
            return true;
    return false;
}

static const char *take_report(struct trial *t, struct hy_local_conn *c, const Hy__TrialReport *r)
{
    if (!t || !t->agent->peer)
        return "this trial has ended, or was never started here";
    if (r->n_metrics > HY_VALUES_LIMIT)
        return "too many values at once";
    if (has_long_name(r))
        return "the name of a value is longer than 255 bytes";
    if (*r->error)
        take_failure(t, r);
    if (*r->remark)
        take_remark(t, r);
    if (r->n_metrics)
        forward_metrics(t, r);
    return r->group ? hy_agent_group_receive(t, c, r->group) : "";
}

/* `t`: NULL: not known. */
static void send_answer(struct hy_local_conn *c, const struct trial *t, const char *error)
{
    Hy__TrialReportAnswer answer = HY__TRIAL_REPORT_ANSWER__INIT;
    uint8_t packed[256];

    answer.error = (char *)error;
    if (t)
        answer.decision = t->decision;
    if (hy_local_send(c, packed, hy__trial_report_answer__pack(&answer, packed)) < 0)
        hy_local_end(c);
}

/* Backpressure: reports wait like printed output. */
static bool defer(struct agent *a, struct hy_local_conn *c)
{
    struct deferred *d;

    if (!a->peer || hy_peer_unacked(a->peer, HY_STREAM_CONTROL) <= REPORTS_MAX)
        return false;
    d = hy_malloc(sizeof *d);
    if (!d)
        return false;
    d->conn = c;
    hy_list_push(&a->deferred, &d->link);
    hy_local_defer(c);
    return true;
}

static void deferred_free(struct deferred *d)
{
    hy_list_remove(&d->link);
    free(d);
}

static bool has_caught_up(const struct agent *a)
{
    return !a->peer || hy_peer_unacked(a->peer, HY_STREAM_CONTROL) <= REPORTS_MAX / 2;
}

void hy_agent_report_socket_resume(struct agent *a)
{
    hy_list_each(it, &a->deferred) {
        struct deferred *d = hy_container(it, struct deferred, link);
        struct hy_local_conn *c = d->conn;

        if (!has_caught_up(a))
            return;
        deferred_free(d);
        hy_local_resume(c); /* it may be deferred again, at the end of the list */
    }
}

static void on_report(void *arg, struct hy_local_conn *c, const uint8_t *bytes, size_t n)
{
    Hy__TrialReport *r;
    struct trial *t;

    if (defer(arg, c))
        return;
    r = n <= HY_REPORT_LIMIT ? hy__trial_report__unpack(NULL, n, bytes) : NULL;
    t = r ? speaker(arg, r) : NULL;
    send_answer(c, t, r ? take_report(t, c, r) : "this is not a report");
    if (t && !*r->error && !*r->remark) /* those are of the runner, after the function has returned */
        t->ended.decision = t->decision;
    hy__trial_report__free_unpacked(r, NULL);
}

static void on_open(void *arg, struct hy_local_conn *c)
{
    (void)arg;
    (void)c;
}

static void on_close(void *arg, struct hy_local_conn *c)
{
    struct agent *a = arg;

    hy_list_each(it, &a->deferred) {
        struct deferred *d = hy_container(it, struct deferred, link);

        if (d->conn == c)
            deferred_free(d);
    }
    hy_agent_group_disconnected(c);
}

int hy_agent_report_socket_open(struct agent *a, struct hy_err *err)
{
    static const struct hy_local_events events = {on_open, on_report, on_close};
    hy_cleanup_free char *directory = hy_runtime_dir(err);

    if (!directory)
        return err->code;
    a->report_path = hy_asprintf("%s/agent-%d.sock", directory, (int)getpid());
    if (!a->report_path)
        return hy_err_oom(err);
    if (hy_reaper_file(a->report_path) < 0)
        return hy_err_set(err, -EPIPE, "the reaper is gone");
    return hy_local_listen(&a->loop, a->report_path, &events, a, &a->reports, err);
}
