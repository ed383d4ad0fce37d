/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns and their commits.
 *
 * Handlers record their changes for the store (struct hy_changes) and queue
 * messages. At the end of an iteration of the loop the turn is sealed: a thread
 * of libuv's pool applies and commits its changes, and then its messages, event
 * files and updates for clients are sent. Meanwhile the loop continues, answers
 * pings and records the next turn. Turns are committed one at a time and in
 * order, so nothing is visible outside before the store has it and everything
 * before it.
 *
 * A write that is impossible for a while (a full disk, a store that another
 * program has locked) is a stall. It is retried every second, here for the
 * store, in trial_output.c and tensorboard_events.c for their files. During a
 * stall no trial is started and none is killed. After --disk-timeout the run is
 * interrupted.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "driver/run.h"

#define RETRY_MS 1000
#define SLOW_MS 5000                    /* a longer commit is reported to clients */
#define RECORDED_MAX (4u * 1024 * 1024) /* agents are paused while a turn is larger */
#define STALL_MS (10 * 60 * 1000)       /* the default of --disk-timeout */

/* ---- stalls -------------------------------------------------------------------- */

bool hy_is_stall(int rc)
{
    return rc == -ENOSPC || rc == -EDQUOT || rc == -EBUSY || rc == -EIO || rc == -EROFS || rc == -EMFILE ||
           rc == -ENFILE;
}

static int64_t stall_limit(const struct driver *d)
{
    return d->spec->disk_timeout_ms > 0 ? d->spec->disk_timeout_ms : STALL_MS;
}

static void notify(struct driver *d, const char *text)
{
    hy_warn("%s", text);
    free(d->stalls.notice);
    d->stalls.notice = hy_strdup(text); /* out of memory: only the log has it */
    hy_clients_notify(d);
}

void hy_stall_begin(struct driver *d, const char *why)
{
    char text[900], limit[32];

    if (d->stalls.count++ > 0)
        return;
    d->stalls.since = hy_clock_ms();
    snprintf(d->stalls.why, sizeof d->stalls.why, "%s", why);
    snprintf(text, sizeof text,
             "the run is waiting: %s (it continues by itself when this is resolved, and is interrupted after %s)", why,
             hy_format_duration(stall_limit(d), limit, sizeof limit));
    notify(d, text);
}

void hy_stall_begin_file(struct driver *d, const char *path, int rc)
{
    char why[700];

    if (rc == -ENOSPC || rc == -EDQUOT)
        snprintf(why, sizeof why, "disk full: cannot write '%s'; free some space", path);
    else
        snprintf(why, sizeof why, "cannot write '%s': %s", path, strerror(-rc));
    hy_stall_begin(d, why);
}

void hy_stall_end(struct driver *d)
{
    if (--d->stalls.count > 0)
        return;
    d->stalls.since = 0;
    if (d->commit.is_broken)
        return;
    notify(d, "the run continues: everything can be written again");
    free(d->stalls.notice);
    d->stalls.notice = NULL;
}

/* No trial is started until there is room again. */
void hy_stall_begin_no_room(struct driver *d, const char *why)
{
    if (d->stalls.has_no_room)
        return;
    d->stalls.has_no_room = true;
    hy_stall_begin(d, why);
}

static void probe_for_room(struct driver *d)
{
    static const uint8_t block[4096];
    hy_cleanup_free char *probe = d->stalls.has_no_room ? hy_path_join(d->logdir, ".room") : NULL;

    if (!probe || hy_file_write(probe, block, sizeof block, 0600) < 0 || unlink(probe) < 0)
        return;
    d->stalls.has_no_room = false;
    hy_stall_end(d);
}

/* A user who stops the run waits no longer than for trials that do not end. */
static bool is_stalled_for_too_long(const struct driver *d, int64_t now)
{
    if (!d->stalls.count)
        return false;
    return now - d->stalls.since > stall_limit(d) || (d->end.stop_by && now > d->end.stop_by);
}

/* ---- interrupting the run -------------------------------------------------------------------- */

/* What was recorded and not committed is discarded, with the messages that depend on it. */
static void interrupt(struct driver *d, const char *why, bool can_resume)
{
    struct commit *c = &d->commit;

    d->commit.is_broken = true;
    if (d->agents.net) {
        hy_net_discard(d->agents.net);
        hy_net_pause(d->agents.net, false); /* for the Byes of agents */
    }
    hy_changes_clear(&c->recorded);
    if (!c->is_busy)
        hy_changes_clear(&c->sealed);
    hy_run_interrupt(d, why, can_resume);
}

/* ---- the commit ------------------------------------------------------------------------------ */

/* The files of the store were removed, but they are still open: the data of this run can be saved. */
static void keep_snapshot(struct driver *d, struct hy_err *err)
{
    struct hy_err why = {0}, stale = *err;
    int rc = hy_store_backup_run(d->store, d->run, &why);

    if (rc == 0)
        hy_err_set(err, stale.code, "%s; the data of run %lld is saved in '%s/runs/%lld.db'; `hopyard import` reads it",
                   stale.text, (long long)d->run, hy_store_dir_path(d->store), (long long)d->run);
    else
        hy_err_set(err, stale.code, "%s, and no snapshot could be written: %s", stale.text, why.text);
}

static void apply_changes(uv_work_t *job)
{
    struct commit *c = hy_container(job, struct commit, job);
    struct driver *d = hy_container(c, struct driver, commit);

    c->err.code = 0;
    c->rc = hy_store_apply(d->store, d->run, &c->sealed, &c->err);
    if (c->rc == -ESTALE)
        keep_snapshot(d, &c->err);
}

struct progress hy_run_progress(const struct driver *d)
{
    return (struct progress){.done = d->trials.done,
                             .failed = d->trials.failed,
                             .stopped = d->trials.stopped,
                             .pruned = d->trials.pruned,
                             .paused = d->trials.paused,
                             .ended_seq = d->trials.ended_seq,
                             .notes_until = d->notes.until};
}

static void on_committed(struct driver *d)
{
    struct commit *c = &d->commit;

    d->commit.committed = c->sealed_progress;

    hy_changes_clear(&c->sealed);
    if (c->is_stalled) {
        c->is_stalled = false;
        hy_stall_end(d);
    }
    if (d->commit.is_broken || !d->agents.net)
        return; /* the run has been interrupted meanwhile */
    hy_net_release(d->agents.net);
    hy_net_pause(d->agents.net, false);
    hy_events_flush(d);
    hy_clients_send(d);
}

static void on_failed(struct driver *d)
{
    struct commit *c = &d->commit;

    if (!hy_is_stall(c->rc)) {
        interrupt(d, c->err.text, c->rc != -ESTALE);
        return;
    }
    c->retry_at = hy_clock_ms() + RETRY_MS;
    if (c->is_stalled)
        return;
    c->is_stalled = true;
    hy_stall_begin(d, c->err.text);
}

static void on_applied(uv_work_t *job, int status)
{
    struct commit *c = hy_container(job, struct commit, job);
    struct driver *d = hy_container(c, struct driver, commit);

    (void)status; /* jobs are never canceled */
    c->is_busy = false;
    if (c->rc == 0)
        on_committed(d);
    else if (!d->commit.is_broken)
        on_failed(d);
}

static void start_commit(struct driver *d)
{
    struct commit *c = &d->commit;
    int rc = uv_queue_work(&d->loop, &c->job, apply_changes, on_applied);

    c->is_busy = rc == 0;
    if (rc < 0)
        interrupt(d, uv_strerror(rc), true);
}

static void seal(struct driver *d)
{
    struct commit *c = &d->commit;

    hy_changes_take(&c->sealed, &c->recorded);
    c->sealed_progress = hy_run_progress(d);
    c->started_ms = hy_clock_ms();
    hy_net_seal(d->agents.net);
    hy_events_seal(d);
    hy_clients_prepare(d);
    start_commit(d);
}

bool hy_commit_is_done(const struct driver *d)
{
    return d->commit.is_broken || (!d->commit.sealed.bytes && !d->commit.recorded.bytes);
}

void hy_commit_turn(struct driver *d)
{
    struct commit *c = &d->commit;

    if (d->commit.is_broken || c->sealed.bytes) {
        if (c->recorded.bytes > RECORDED_MAX)
            hy_net_pause(d->agents.net, true);
        return;
    }
    if (c->recorded.bytes) {
        seal(d);
        return;
    }
    hy_net_seal(d->agents.net);
    hy_net_release(d->agents.net);
    hy_events_seal(d);
    hy_events_flush(d);
    hy_clients_prepare(d);
    hy_clients_send(d);
}

void hy_commit_tick(struct driver *d, int64_t now)
{
    struct commit *c = &d->commit;

    if (d->commit.is_broken)
        return;
    if (c->is_busy && !c->is_stalled && now - c->started_ms > SLOW_MS) {
        c->is_stalled = true;
        hy_stall_begin(d, "the store does not respond; another program may have locked it, or its disk is slow");
    }
    if (is_stalled_for_too_long(d, now)) {
        char text[700];

        snprintf(text, sizeof text, "%s", d->stalls.why);
        interrupt(d, text, true);
        return;
    }
    if (!d->stalls.count || now < c->retry_at)
        return;
    c->retry_at = now + RETRY_MS;
    probe_for_room(d);
    hy_outputs_retry(d);
    hy_events_retry(d);
    if (c->sealed.bytes && !c->is_busy)
        start_commit(d);
}

int hy_run_check_recorded(struct driver *d, int rc)
{
    if (d->commit.is_broken)
        return -EIO;
    if (rc < 0)
        interrupt(d, "out of memory", true); /* half a turn must not be committed */
    return rc;
}
