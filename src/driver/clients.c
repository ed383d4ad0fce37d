/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates for clients. An update is the same for all clients: it is packed once
 * and contains nothing that grows with the run. Clients read ended trials and
 * notes from the store themselves, up to the positions in the update. So the
 * driver's cost for a client is one write per update.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "driver/run.h"

#define ROWS_MAX 100                  /* running trials in one update */
#define ROWS_BYTES_MAX (512u * 1024)  /* of their parameters: with long ones an update has fewer trials */
#define HEARTBEAT_MS 1000             /* between two updates when nothing changes */
#define SENDS_A_SECOND 250            /* to all watchers together; with more watchers, updates are less frequent */
#define WATCHERS_MAX 1000
#define CONNECTIONS_MAX 1100          /* with clients that only stop the run, announce or supply */
#define ADDRESS_MAX 255               /* bytes of an announced TensorBoard address */

/* In the list, clients that have announced something come last, the newest at the end. A client that only announces
 * is sent nothing. */
struct client {
    struct hy_list link;
    struct hy_local_conn *conn;
    bool watches, only_last;
    bool feeds; /* it sends rows to the nodes of a cluster */
    char *tensorboard; /* its address; NULL: none announced */
};

/* ---- the contents of an update --------------------------------------------------------------- */

/* Its strings are borrowed from the driver. */
struct view {
    Hy__Update update;
    Hy__TrialView rows[ROWS_MAX], best;
    Hy__TrialView *pointers[ROWS_MAX];
};

static char *borrow(const char *text)
{
    return (char *)(text ? text : protobuf_c_empty_string);
}

static const char *phase_name(const struct trial *t)
{
    if (t->phase == TRIAL_ENDED)
        return hy_trial_state_name(t->member.end_state);
    if (t->phase == TRIAL_PAUSED)
        return hy_trial_state_name(HY_TRIAL_PAUSED);
    return t->phase == TRIAL_RUNNING && !t->waits_for ? "running" : t->phase == TRIAL_WAITING ? "retry" : "waiting";
}

static void fill_row(Hy__TrialView *r, const struct trial *t, int64_t now)
{
    hy__trial_view__init(r);
    r->number = t->number;
    r->params = borrow(t->params);
    r->state = borrow(phase_name(t));
    r->has_value = t->has_value;
    r->value = t->value;
    r->elapsed_ms = t->phase == TRIAL_RUNNING && !t->waits_for ? now - t->started_ms : 0;
    r->message = borrow(t->phase == TRIAL_ENDED ? t->member.end_message : t->waits_for);
    r->dir = borrow(t->dir);
    r->attempt = t->attempt;
    r->agent = borrow(t->agent ? t->agent->name : NULL);
    r->step = t->step;
}

static int by_number(const void *a, const void *b)
{
    const Hy__TrialView *x = *(Hy__TrialView *const *)a, *y = *(Hy__TrialView *const *)b;

    return x->number < y->number ? -1 : x->number > y->number;
}

/* Those that are paused, or the others. Returns the number of rows so far. */
static size_t fill_rows(struct driver *d, struct view *v, size_t n, bool paused, size_t *bytes)
{
    int64_t now = hy_clock_ms();
    struct trial *t;

    for (size_t i = 0; n < ROWS_MAX && *bytes < ROWS_BYTES_MAX && (t = hy_map_next(&d->trials.map, &i));) {
        if ((t->phase == TRIAL_PAUSED) != paused)
            continue;
        fill_row(&v->rows[n], t, now);
        v->pointers[n] = &v->rows[n];
        *bytes += strlen(t->params);
        n++;
    }
    return n;
}

static void fill_running(struct driver *d, struct view *v)
{
    size_t bytes = 0, n = fill_rows(d, v, 0, false, &bytes);

    if (d->trials.paused)
        n = fill_rows(d, v, n, true, &bytes);
    qsort(v->pointers, n, sizeof *v->pointers, by_number);
    v->update.running = v->pointers;
    v->update.n_running = n;
}

static void fill_best(const struct driver *d, struct view *v)
{
    const struct best *b = &d->trials.best;

    if (!b->number || (d->commit.is_broken && b->ended_seq > d->commit.committed.ended_seq))
        return;
    hy__trial_view__init(&v->best);
    v->best.number = b->number;
    v->best.params = borrow(b->params);
    v->best.state = borrow(hy_trial_state_name(HY_TRIAL_DONE));
    v->best.has_value = true;
    v->best.value = b->value;
    v->best.elapsed_ms = b->elapsed_ms;
    v->best.dir = borrow(b->dir);
    v->best.attempt = b->attempts;
    v->best.step = -1;
    v->update.best = &v->best;
}

/* The address of the newest one that is still connected. */
static const char *tensorboard_of(struct driver *d)
{
    struct client *c;

    if (hy_list_empty(&d->clients.list))
        return NULL;
    c = hy_container(d->clients.list.prev, struct client, link);
    return c->tensorboard;
}

static void fill_head(struct driver *d, struct view *v, bool last)
{
    /* What was not committed does not count. */
    struct progress t = d->commit.is_broken ? d->commit.committed : hy_run_progress(d);
    uint64_t over = t.done + t.failed + t.pruned;
    int64_t elapsed = hy_clock_wall_ms() - d->created_wall, here = hy_clock_ms() - d->process.begun_ms;
    struct hy_schedule_stats s;
    struct agent *a;
    Hy__Update *u = &v->update;

    hy_schedule_stats(d->schedule, &s);
    u->run = d->run;
    u->name = d->spec->name;
    u->state = (char *)hy_run_state_name(d->phase >= PHASE_ENDING ? d->end.state : HY_RUN_RUNNING);
    u->metric = d->spec->metric;
    u->maximize = d->spec->maximize;
    u->ranks = d->spec->ranks;
    u->nodes = hy_is_cluster(d);
    u->nodes_joined = d->cluster.has_joined;
    u->resume = hy_run_resume(d->spec);
    u->total = hy_run_total(d);
    u->done = t.done;
    u->failed = t.failed;
    u->stopped = t.stopped;
    u->pruned = t.pruned;
    u->paused = t.paused;
    u->running_count = s.running;
    u->elapsed_ms = elapsed;
    u->left_ms = -1;
    if (u->total > 0 && d->trials.ended_here && (uint64_t)u->total >= over)
        u->left_ms = (int64_t)((double)here / (double)d->trials.ended_here * (double)((uint64_t)u->total - over));
    u->message = d->end.message ? d->end.message : (char *)protobuf_c_empty_string;
    u->last = last;
    u->logdir = (char *)hy_mirror_logdir(d);
    if (tensorboard_of(d))
        u->tensorboard = (char *)tensorboard_of(d);
    u->ended_seq = (uint64_t)t.ended_seq;
    u->notes_before = (uint64_t)d->notes.before;
    u->notes_until = (uint64_t)t.notes_until;
    if (last && hy_run_has_all_notes(d)) {
        u->has_all_notes = true;
        u->all_notes = d->notes.texts.items;
        u->n_all_notes = d->notes.texts.count;
    }
    u->slots = (uint32_t)s.slots;
    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        u->agents += a->in_schedule;
}

/* ---- sending --------------------------------------------------------------------------------- */

int hy_client_send(struct client *c, const Hy__ClientAnswer *answer)
{
    hy_cleanup_free uint8_t *bytes = hy_malloc(hy__client_answer__get_packed_size(answer));

    return bytes ? hy_local_send(c->conn, bytes, hy__client_answer__pack(answer, bytes)) : -ENOMEM;
}

/* Packs the current state. Free it; NULL when out of memory. */
static uint8_t *pack_update(struct driver *d, bool last, size_t *ret_n)
{
    hy_cleanup_free struct view *v = hy_calloc(1, sizeof *v);
    Hy__ClientAnswer answer = HY__CLIENT_ANSWER__INIT;
    uint8_t *bytes;

    if (!v)
        return NULL;
    hy__update__init(&v->update);
    fill_head(d, v, last);
    fill_running(d, v);
    fill_best(d, v);
    answer.body_case = HY__CLIENT_ANSWER__BODY_UPDATE;
    answer.update = &v->update;
    bytes = hy_malloc(hy__client_answer__get_packed_size(&answer));
    if (bytes)
        *ret_n = hy__client_answer__pack(&answer, bytes);
    return bytes;
}

/* A client that has not read the previous update is skipped; a later update includes everything. So each client has
 * at most one update in memory. A client that cannot be sent to is disconnected: it may connect again, and reads
 * the end of a run from the store. */
static void send_update(struct client *c, const uint8_t *bytes, size_t n, bool last)
{
    int rc;

    if (!last && (c->only_last || hy_local_pending(c->conn) > 0))
        return;
    rc = bytes ? hy_local_send(c->conn, bytes, n) : -ENOMEM;
    if (rc < 0)
        hy_warn_limited("cannot send an update to a client error=%s", strerror(-rc));
    if (rc < 0 || last) {
        c->watches = false;
        hy_local_end(c->conn);
    }
}

/* `with_only_last`: also those that want the last update only. */
static size_t count_watchers(struct driver *d, bool with_only_last)
{
    size_t n = 0;

    hy_list_each(it, &d->clients.list) {
        const struct client *c = hy_container(it, struct client, link);

        n += c->watches && (with_only_last || !c->only_last);
    }
    return n;
}

/* With many watchers updates are less frequent, so that their cost per second is bounded. */
static int64_t update_interval(size_t watchers)
{
    int64_t ms = (int64_t)watchers * 1000 / SENDS_A_SECOND;

    return ms <= TICK_MS ? 0 : ms > HEARTBEAT_MS ? HEARTBEAT_MS : ms;
}

void hy_clients_prepare(struct driver *d)
{
    int64_t now = hy_clock_ms();
    size_t watchers;

    if (!d->clients.update_due || d->phase > PHASE_ENDING)
        return;
    d->clients.update_due = false;
    watchers = count_watchers(d, false);
    if (watchers == 0 || now - d->clients.updated_ms < (d->changed ? update_interval(watchers) : HEARTBEAT_MS))
        return;
    d->changed = false;
    d->clients.updated_ms = now;
    free(d->clients.update);
    d->clients.update = pack_update(d, false, &d->clients.update_size);
    if (!d->clients.update)
        hy_warn_limited("out of memory for an update of clients");
}

static void send_to_all(struct driver *d, const uint8_t *bytes, size_t n, bool last)
{
    hy_list_each(it, &d->clients.list) {
        struct client *c = hy_container(it, struct client, link);

        if (c->watches)
            send_update(c, bytes, n, last);
    }
}

void hy_clients_send(struct driver *d)
{
    hy_cleanup_free uint8_t *bytes = hy_take(d->clients.update);

    if (bytes)
        send_to_all(d, bytes, d->clients.update_size, false);
}

void hy_clients_end(struct driver *d)
{
    size_t n = 0;
    hy_cleanup_free uint8_t *bytes = count_watchers(d, true) ? pack_update(d, true, &n) : NULL;

    send_to_all(d, bytes, n, true);
}

static void notify(struct driver *d, struct client *c)
{
    Hy__ClientAnswer answer = HY__CLIENT_ANSWER__INIT;

    answer.body_case = HY__CLIENT_ANSWER__BODY_NOTICE;
    answer.notice = d->stalls.notice;
    if (hy_client_send(c, &answer) < 0)
        hy_warn_limited("cannot send a notice to a client");
}

void hy_clients_notify(struct driver *d)
{
    hy_list_each(it, &d->clients.list) {
        struct client *c = hy_container(it, struct client, link);

        if (c->watches && !c->only_last && d->stalls.notice)
            notify(d, c);
    }
}

/* ---- connections and requests ---------------------------------------------------------------- */

static void refuse(struct driver *d, struct client *c, int most)
{
    Hy__ClientAnswer answer = HY__CLIENT_ANSWER__INIT;
    char text[160];

    snprintf(text, sizeof text,
             "run %lld has the maximum of %d clients; disconnect one of them and retry (the run continues)",
             (long long)d->run, most);
    answer.body_case = HY__CLIENT_ANSWER__BODY_ERROR;
    answer.error = text;
    if (hy_client_send(c, &answer) < 0)
        hy_warn_limited("cannot send a refusal to a client");
}

static void on_open(void *arg, struct hy_local_conn *conn)
{
    struct driver *d = arg;
    struct client *c = hy_calloc(1, sizeof *c);

    if (!c) {
        hy_local_end(conn);
        return;
    }
    c->conn = conn;
    hy_list_push_front(&d->clients.list, &c->link);
    hy_local_set_data(conn, c);
    if (++d->clients.count > CONNECTIONS_MAX) {
        refuse(d, c, CONNECTIONS_MAX);
        hy_local_end(conn);
    }
}

static void on_close(void *arg, struct hy_local_conn *conn)
{
    struct driver *d = arg;
    struct client *c = hy_local_data(conn);

    if (!c)
        return;
    d->changed |= c->tensorboard != NULL;
    hy_list_remove(&c->link);
    d->clients.count--;
    if (c->feeds)
        hy_nodes_feeder_lost(d);
    if (c == d->supply.supplier) {
        d->supply.supplier = NULL;
        hy_supply_lost(d);
    }
    free(c->tensorboard);
    free(c);
}

static void on_announce(struct driver *d, struct client *c, const Hy__Announce *a)
{
    size_t n = strlen(a->tensorboard);
    char *address = n && n <= ADDRESS_MAX ? hy_strdup(a->tensorboard) : NULL;

    c->feeds |= a->feeds;
    if (a->feeds && !n)
        return;
    if (!address) {
        hy_warn_limited("a client announced an invalid address bytes=%zu", n);
        return;
    }
    free(c->tensorboard);
    c->tensorboard = address;
    hy_list_remove(&c->link);
    hy_list_push(&d->clients.list, &c->link);
    d->changed = true;
}

static void on_watch(struct driver *d, struct client *c, const Hy__Watch *watch)
{
    if (!c->watches && count_watchers(d, true) >= WATCHERS_MAX) {
        refuse(d, c, WATCHERS_MAX); /* it stays connected: it may still stop the run */
        return;
    }
    c->watches = true;
    c->only_last = watch->only_last;
    d->changed = true;
    if (d->stalls.notice && !c->only_last)
        notify(d, c);
    if (d->phase == PHASE_LEAVING) /* it has connected late; the end is committed */
        hy_clients_end(d);
}

/* A client that has not read the previous answer gets none: each has at most one in memory. */
static void on_status(struct driver *d, struct client *c)
{
    size_t n = 0;
    hy_cleanup_free uint8_t *bytes = hy_local_pending(c->conn) ? NULL : hy_status_pack(d, &n);
    int rc = bytes ? hy_local_send(c->conn, bytes, n) : -ENOMEM;

    if (rc < 0)
        hy_warn_limited("cannot send the status to a client");
}

static void on_message(void *arg, struct hy_local_conn *conn, const uint8_t *bytes, size_t n)
{
    struct driver *d = arg;
    struct client *c = hy_local_data(conn);
    Hy__ClientRequest *r = hy__client_request__unpack(NULL, n, bytes);

    if (!r || !c) {
        hy_warn_limited("a client sent an invalid request bytes=%zu", n);
        hy_local_end(conn);
    } else if (r->body_case == HY__CLIENT_REQUEST__BODY_WATCH) {
        on_watch(d, c, r->watch);
    } else if (r->body_case == HY__CLIENT_REQUEST__BODY_STOP) {
        if (r->stop->feed)
            hy_nodes_end_feed(d);
        else
            hy_run_stop(d);
    } else if (r->body_case == HY__CLIENT_REQUEST__BODY_STATUS) {
        on_status(d, c);
    } else if (r->body_case == HY__CLIENT_REQUEST__BODY_ANNOUNCE) {
        on_announce(d, c, r->announce);
    } else if (r->body_case == HY__CLIENT_REQUEST__BODY_SUPPLY) {
        hy_supply_offered(d, c, r->supply);
    } else if (r->body_case == HY__CLIENT_REQUEST__BODY_OVER && c == d->supply.supplier) {
        hy_supply_agent_ended(d, r->over);
    }
    hy__client_request__free_unpacked(r, NULL);
}

/* ---- the process that owns the run ----------------------------------------------------------- */

static void on_owner(uv_poll_t *h, int status, int events)
{
    struct driver *d = h->data;
    char byte;
    ssize_t n = HY_SYS(read(d->clients.owner_fd, &byte, 1));

    (void)status;
    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    uv_poll_stop(h);
    if (n > 0)
        return; /* the owner has detached from the run */
    if (d->phase == PHASE_RUNNING)
        hy_run_note(d, "the command that started the run has ended, so the run is stopped");
    hy_run_stop(d);
}

static int open_owner(struct driver *d, struct hy_err *err)
{
    int rc;

    if (d->clients.owner_fd < 0)
        return 0;
    rc = uv_poll_init(&d->loop, &d->clients.owner, d->clients.owner_fd);
    if (rc == 0) {
        d->clients.owner.data = d;
        rc = uv_poll_start(&d->clients.owner, UV_READABLE | UV_DISCONNECT, on_owner);
    }
    return rc < 0 ? hy_err_set(err, rc, "cannot watch the command that started this run: %s", uv_strerror(rc)) : 0;
}

/* ---- opening -------------------------------------------------------------------------------- */

char *hy_driver_socket(const char *store_dir, int64_t run, struct hy_err *err)
{
    hy_cleanup_free char *runtime = hy_runtime_dir(err);
    hy_cleanup_free char *real = runtime ? realpath(store_dir, NULL) : NULL;
    char *path;

    if (!runtime)
        return NULL;
    if (!real) {
        hy_err_sys(err, -errno, "cannot find the directory '%s'", store_dir);
        return NULL;
    }
    path = hy_asprintf("%s/%012llx-%lld.sock", runtime, (unsigned long long)(hy_hash(real, strlen(real)) >> 16),
                       (long long)run);
    if (!path)
        hy_err_oom(err);
    return path;
}

int hy_clients_open(struct driver *d, struct hy_err *err)
{
    static const struct hy_local_events events = {on_open, on_message, on_close};

    if (open_owner(d, err) < 0)
        return err->code;
    d->clients.socket_path = hy_driver_socket(hy_store_dir_path(d->store), d->run, err);
    if (!d->clients.socket_path)
        return err->code;
    return hy_local_listen(&d->loop, d->clients.socket_path, &events, d, &d->clients.local, err);
}
