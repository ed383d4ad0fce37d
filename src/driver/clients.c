/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "driver/run.h"

#define ROWS_MAX 100              /* running trials in one update */
#define NEWEST 64                 /* ended trials for those who do not want all */
#define BATCH 500                 /* ended trials in one update, for those who do */
#define PENDING_MAX (1024 * 1024) /* a client that does not read gets no more */
#define HEARTBEAT_MS 1000
#define ADDRESS_MAX 255           /* of a TensorBoard that is announced */

/* Those who have announced something stand behind those who have not, the
 * newest last. Who only announces is sent nothing. */
struct client {
    struct hy_list link;
    struct hy_local_conn *conn;
    bool watches, wants_all;
    bool feeds; /* rows come from it to a cluster's nodes */
    char *tensorboard; /* its address; NULL: it has announced none */
    size_t seen_ended, seen_notes;
    int64_t last_ms;
};

/* ---- the parts of an update ---------------------------------------------------------- */

/* An update and all it owns. */
struct view {
    Hy__Update update;
    Hy__TrialView *rows;
    Hy__TrialView **pointers;
    size_t count, room;
    int failed;
};

static char *copy(struct view *v, const char *text)
{
    char *c = hy_strdup(text ? text : "");

    if (!c)
        v->failed = 1;
    return c ? c : (char *)protobuf_c_empty_string;
}

static void drop(char *text)
{
    if (text != (char *)protobuf_c_empty_string)
        free(text);
}

static void view_done(struct view *v)
{
    for (size_t i = 0; i < v->count; i++) {
        Hy__TrialView *r = &v->rows[i];
        char *texts[] = {r->params, r->state, r->message, r->dir, r->agent};

        for (size_t k = 0; k < HY_COUNT(texts); k++)
            drop(texts[k]);
    }
    free(v->rows);
    free(v->pointers);
}

static Hy__TrialView *next_row(struct view *v)
{
    Hy__TrialView *r;

    if (v->count == v->room)
        return NULL;
    r = &v->rows[v->count];
    v->pointers[v->count++] = r;
    hy__trial_view__init(r);
    return r;
}

static int add_ended(void *arg, const struct hy_trial_row *row)
{
    struct view *v = arg;
    Hy__TrialView *r = next_row(v);

    if (!r)
        return 0;
    r->number = (uint64_t)row->number;
    r->params = copy(v, row->params);
    r->state = copy(v, hy_trial_state_name(row->state));
    r->has_value = row->has_value;
    r->value = row->value;
    r->elapsed_ms = row->ended ? row->ended - row->started : 0;
    r->message = copy(v, row->message);
    r->dir = copy(v, row->dir);
    r->attempt = (uint32_t)row->attempts;
    r->step = -1;
    return 0;
}

static int fetch(struct driver *d, struct view *v, uint64_t number)
{
    struct hy_err err = {0};
    int rc = hy_store_trial_each(d->store, d->run, (int64_t)number, HY_TRIALS_BY_NUMBER, 0, 1, add_ended, v, &err);

    if (rc < 0)
        hy_warn("cannot read a trial trial=%llu error=%s", (unsigned long long)number, err.text);
    return rc;
}

static const char *phase_name(const struct trial *t)
{
    if (t->phase == TRIAL_OVER)
        return hy_trial_state_name(t->member.verdict);
    return t->phase == TRIAL_RUNNING && !t->held ? "running" : t->phase == TRIAL_WAITING ? "retry" : "waiting";
}

static void add_running(struct driver *d, struct view *v, const struct trial *t, int64_t now)
{
    Hy__TrialView *r = next_row(v);

    (void)d;
    if (!r)
        return;
    r->number = t->number;
    r->params = copy(v, t->params);
    r->state = copy(v, phase_name(t));
    r->has_value = t->has_value;
    r->value = t->value;
    r->elapsed_ms = t->phase == TRIAL_RUNNING && !t->held ? now - t->started_ms : 0;
    r->message = copy(v, t->phase == TRIAL_OVER ? t->member.message : t->held);
    r->dir = copy(v, t->dir);
    r->attempt = t->attempt;
    r->agent = copy(v, t->agent ? t->agent->name : "");
    r->step = t->step;
}

static int by_number(const void *a, const void *b)
{
    const Hy__TrialView *x = *(Hy__TrialView *const *)a, *y = *(Hy__TrialView *const *)b;

    return x->number < y->number ? -1 : x->number > y->number;
}

static size_t fill_running(struct driver *d, struct view *v)
{
    size_t first = v->count;
    int64_t now = hy_clock_ms();
    struct trial *t;

    for (size_t i = 0; v->count - first < ROWS_MAX && (t = hy_map_next(&d->trials, &i));)
        add_running(d, v, t, now);
    qsort(v->pointers + first, v->count - first, sizeof *v->pointers, by_number);
    return v->count - first;
}

/* The address of the newest that is still there. */
static const char *tensorboard_of(struct driver *d)
{
    struct client *c;

    if (hy_list_empty(&d->clients))
        return NULL;
    c = hy_container(d->clients.prev, struct client, link);
    return c->tensorboard;
}

static void fill_head(struct driver *d, struct view *v, bool last)
{
    uint64_t over = d->done + d->failed;
    int64_t elapsed = hy_clock_wall_ms() - d->created_wall, here = hy_clock_ms() - d->begun_ms;
    struct hy_schedule_stats s;
    struct agent *a;
    Hy__Update *u = &v->update;

    hy_schedule_stats(d->schedule, &s);
    u->run = d->run;
    u->name = d->spec->name;
    u->state = (char *)hy_run_state_name(d->phase >= PHASE_ENDING ? d->end_state : HY_RUN_RUNNING);
    u->metric = d->spec->metric;
    u->maximize = d->spec->maximize;
    u->ranks = d->spec->ranks;
    u->nodes = hy_is_cluster(d);
    u->total = hy_run_total(d);
    u->done = d->done;
    u->failed = d->failed;
    u->stopped = d->stopped;
    u->running_count = s.running;
    u->elapsed_ms = elapsed;
    u->left_ms = u->total > 0 && d->ended_here && (uint64_t)u->total >= over ? (int64_t)((double)here / (double)d->ended_here * (double)((uint64_t)u->total - over)) : -1;
    u->message = d->end_message ? d->end_message : (char *)protobuf_c_empty_string;
    u->last = last;
    u->logdir = (char *)hy_remote_logdir(d);
    if (tensorboard_of(d))
        u->tensorboard = (char *)tensorboard_of(d);
    u->slots = (uint32_t)s.slots;
    for (size_t i = 0; (a = hy_map_next(&d->agents, &i));)
        u->agents += a->in_schedule;
}

/* ---- to one client ------------------------------------------------------------------ */

int hy_client_send(struct client *c, const Hy__ClientAnswer *answer)
{
    hy_cleanup_free uint8_t *bytes = hy_malloc(hy__client_answer__get_packed_size(answer));

    return bytes ? hy_local_send(c->conn, bytes, hy__client_answer__pack(answer, bytes)) : -ENOMEM;
}

static int send_view(struct client *c, const struct view *v)
{
    Hy__ClientAnswer answer = HY__CLIENT_ANSWER__INIT;

    answer.body_case = HY__CLIENT_ANSWER__BODY_UPDATE;
    answer.update = (Hy__Update *)&v->update;
    return hy_client_send(c, &answer);
}

static void fill_ended(struct driver *d, struct view *v, const struct client *c, size_t n)
{
    v->update.ended = v->pointers + v->count;
    for (size_t i = 0; i < n; i++)
        fetch(d, v, d->ended[c->seen_ended + i]);
    v->update.n_ended = v->count - (size_t)(v->update.ended - v->pointers);
}

/* Sends one update with at most `batch` ended trials. 1 when there is more to
 * tell, 0 when not, -EMSGSIZE when it is too long for a message, -Exxx. */
static int tell(struct driver *d, struct client *c, size_t batch, bool last)
{
    size_t n = d->ended_count - c->seen_ended < batch ? d->ended_count - c->seen_ended : batch;
    bool more = c->seen_ended + n < d->ended_count;
    struct view v = {.room = ROWS_MAX + n + 1};
    int rc = -ENOMEM;

    hy__update__init(&v.update);
    v.rows = hy_calloc(v.room, sizeof *v.rows);
    v.pointers = hy_calloc(v.room, sizeof *v.pointers);
    if (v.rows && v.pointers) {
        fill_head(d, &v, last && !more);
        v.update.n_running = fill_running(d, &v);
        v.update.running = v.pointers;
        if (d->best && fetch(d, &v, d->best) == 0 && v.count > v.update.n_running)
            v.update.best = v.pointers[v.update.n_running];
        fill_ended(d, &v, c, n);
        v.update.notes = d->notes + c->seen_notes;
        v.update.n_notes = d->note_count - c->seen_notes;
        rc = v.failed ? -ENOMEM : send_view(c, &v);
    }
    view_done(&v);
    if (rc < 0)
        return rc;
    c->seen_ended += n;
    c->seen_notes = d->note_count;
    c->last_ms = hy_clock_ms();
    return more;
}

/* An update, and at the end of the run all that are needed. A client that
 * cannot be told any more is left: it may come again. */
static void bring_up_to_date(struct driver *d, struct client *c, bool last)
{
    size_t batch = c->wants_all ? BATCH : NEWEST;
    int rc;

    if (!c->wants_all && d->ended_count - c->seen_ended > NEWEST)
        c->seen_ended = d->ended_count - NEWEST;
    do {
        rc = tell(d, c, batch, last);
        if (rc == -EMSGSIZE && batch > 1) { /* long parameters: fewer at a time */
            batch /= 2;
            rc = 1;
            continue;
        }
    } while (rc == 1 && (last || batch < (c->wants_all ? BATCH : NEWEST)));
    if (rc < 0)
        hy_warn("a client cannot be told error=%s", strerror(-rc));
    if (rc < 0 || last)
        hy_local_end(c->conn);
}

void hy_clients_update(struct driver *d, bool last)
{
    int64_t now = hy_clock_ms();

    hy_list_each(it, &d->clients) {
        struct client *c = hy_container(it, struct client, link);

        if (!c->watches || (!last && !d->changed && now - c->last_ms < HEARTBEAT_MS && c->seen_ended == d->ended_count))
            continue;
        if (!last && hy_local_pending(c->conn) > PENDING_MAX)
            continue;
        bring_up_to_date(d, c, last);
    }
    d->changed = false;
}

/* ---- coming and going ------------------------------------------------------------------ */

static void on_open(void *arg, struct hy_local_conn *conn)
{
    struct driver *d = arg;
    struct client *c = hy_calloc(1, sizeof *c);

    if (!c) {
        hy_local_end(conn);
        return;
    }
    c->conn = conn;
    hy_list_push_front(&d->clients, &c->link);
    hy_local_set_data(conn, c);
}

static void on_close(void *arg, struct hy_local_conn *conn)
{
    struct driver *d = arg;
    struct client *c = hy_local_data(conn);

    if (!c)
        return;
    d->changed |= c->tensorboard != NULL;
    hy_list_remove(&c->link);
    if (c->feeds)
        hy_nodes_feeder_gone(d);
    if (c == d->supplier) {
        d->supplier = NULL;
        hy_supply_gone(d);
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
        hy_warn("a client announced no address bytes=%zu", n);
        return;
    }
    free(c->tensorboard);
    c->tensorboard = address;
    hy_list_remove(&c->link);
    hy_list_push(&d->clients, &c->link);
    d->changed = true;
}

static void on_message(void *arg, struct hy_local_conn *conn, const uint8_t *bytes, size_t n)
{
    struct driver *d = arg;
    struct client *c = hy_local_data(conn);
    Hy__ClientRequest *r = hy__client_request__unpack(NULL, n, bytes);

    if (!r || !c) {
        hy_warn("a client made no sense bytes=%zu", n);
        hy_local_end(conn);
    } else if (r->body_case == HY__CLIENT_REQUEST__BODY_WATCH) {
        c->watches = true;
        c->wants_all = r->watch->trials;
        d->changed = true;
        if (d->phase == PHASE_LEAVING) /* it came late; the end is committed */
            hy_clients_update(d, true);
    } else if (r->body_case == HY__CLIENT_REQUEST__BODY_STOP) {
        if (r->stop->feed)
            hy_nodes_feed_ends(d);
        else
            hy_run_stop(d);
    } else if (r->body_case == HY__CLIENT_REQUEST__BODY_ANNOUNCE) {
        on_announce(d, c, r->announce);
    } else if (r->body_case == HY__CLIENT_REQUEST__BODY_SUPPLY) {
        hy_supply_offered(d, c, r->supply);
    } else if (r->body_case == HY__CLIENT_REQUEST__BODY_OVER && c == d->supplier) {
        hy_supply_over(d, r->over);
    }
    hy__client_request__free_unpacked(r, NULL);
}

int hy_clients_open(struct driver *d, struct hy_err *err)
{
    static const struct hy_local_events events = {on_open, on_message, on_close};

    d->socket_path = hy_driver_socket(hy_store_folder(d->store), d->run, err);
    if (!d->socket_path)
        return err->code;
    return hy_local_listen(&d->loop, d->socket_path, &events, d, &d->local, err);
}
