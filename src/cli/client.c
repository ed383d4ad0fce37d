/* SPDX-License-Identifier: Apache-2.0 */
/* Words to and from a driver, and a run told without one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/proto.h"
#include "cli/stream.h"
#include "cli/watch.h"
#include "driver/driver.h"
#include "wire/wire.h"

#define LAST_LINES 15 /* a traceback's, of the rank that failed first */

int hy_client_connect(struct hy_store *s, int64_t run, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_driver_socket(hy_store_folder(s), run, err);

    return path ? hy_local_connect(path, err) : err->code;
}

static int put(int fd, const Hy__ClientRequest *request)
{
    uint8_t bytes[2048]; /* a sentence is the longest that is in one */
    size_t n = hy__client_request__get_packed_size(request);

    return n <= sizeof bytes ? hy_local_put(fd, bytes, hy__client_request__pack(request, bytes)) : -E2BIG;
}

int hy_client_watch(int fd, bool trials)
{
    Hy__ClientRequest request = HY__CLIENT_REQUEST__INIT;
    Hy__Watch watch = HY__WATCH__INIT;

    watch.trials = trials;
    request.body_case = HY__CLIENT_REQUEST__BODY_WATCH;
    request.watch = &watch;
    return put(fd, &request);
}

int hy_client_stop(int fd, bool feed)
{
    Hy__ClientRequest request = HY__CLIENT_REQUEST__INIT;
    Hy__StopRun stop = HY__STOP_RUN__INIT;

    stop.feed = feed;
    request.body_case = HY__CLIENT_REQUEST__BODY_STOP;
    request.stop = &stop;
    return put(fd, &request);
}

int hy_client_feeds(int fd)
{
    Hy__ClientRequest request = HY__CLIENT_REQUEST__INIT;
    Hy__Announce announce = HY__ANNOUNCE__INIT;

    announce.feeds = true;
    request.body_case = HY__CLIENT_REQUEST__BODY_ANNOUNCE;
    request.announce = &announce;
    return put(fd, &request);
}

int hy_client_announce(int fd, const char *tensorboard)
{
    Hy__ClientRequest request = HY__CLIENT_REQUEST__INIT;
    Hy__Announce announce = HY__ANNOUNCE__INIT;

    announce.tensorboard = (char *)tensorboard;
    request.body_case = HY__CLIENT_REQUEST__BODY_ANNOUNCE;
    request.announce = &announce;
    return put(fd, &request);
}

int hy_client_supply(int fd, const Hy__Supply *offer)
{
    Hy__ClientRequest request = HY__CLIENT_REQUEST__INIT;

    request.body_case = HY__CLIENT_REQUEST__BODY_SUPPLY;
    request.supply = (Hy__Supply *)offer;
    return put(fd, &request);
}

int hy_client_over(int fd, uint64_t id, bool lives, const char *why)
{
    Hy__ClientRequest request = HY__CLIENT_REQUEST__INIT;
    Hy__AgentOver over = HY__AGENT_OVER__INIT;
    char text[1024];

    snprintf(text, sizeof text, "%s", why);
    over.id = id;
    over.why = text;
    over.lives = lives;
    request.body_case = HY__CLIENT_REQUEST__BODY_OVER;
    request.over = &over;
    return put(fd, &request);
}

int hy_client_next(int fd, struct hy_buf *rest, struct hy_buf *message, int timeout_ms,
                   Hy__ClientAnswer **ret)
{
    int rc = hy_local_get(fd, rest, message, timeout_ms);

    if (rc <= 0)
        return rc;
    *ret = hy__client_answer__unpack(&hy_proto_memory, message->len, hy_buf_bytes(message));
    return *ret ? 1 : -EPROTO;
}

int hy_exit_of(const Hy__Update *last, bool stopped_by_us)
{
    if (stopped_by_us && strcmp(last->state, "stopped") == 0)
        return HY_EXIT_STOPPED;
    return strcmp(last->state, "done") == 0 && (last->failed == 0 || last->ranks) ? HY_EXIT_OK
                                                                                  : HY_EXIT_FAILED;
}

int hy_say_detached(int64_t run, bool json, const char *tensorboard)
{
    hy_cleanup_out struct hy_out out = {0};
    struct hy_teller teller = {.json = json};
    struct hy_style style;

    hy_style_of(STDOUT_FILENO, &style);
    hy_out_init(&out, &style);
    hy_teller_detached(&teller, run, tensorboard, &out);
    return hy_out_flush(&out, STDOUT_FILENO);
}

/* ---- without a driver ------------------------------------------------------- */

static int take_failed(void *arg, const struct hy_trial_row *row)
{
    struct hy_board *b = arg;
    Hy__TrialView *view;

    if (row->state != HY_TRIAL_FAILED)
        return 0;
    view = hy_trial_view_new(row);
    if (!view)
        return -ENOMEM;
    hy_board_take_failure(b, view);
    return b->failure_count == HY_BOARD_FAILURES || b->failure_count >= b->now->failed ? 1 : 0;
}

void hy_board_failures(struct hy_board *b, struct hy_store *s, int64_t run)
{
    struct hy_err err = {0};

    if (!b->now || b->now->failed == 0)
        return;
    /* The store knows them all, the driver told the newest only. */
    if (hy_store_trial_each(s, run, 0, HY_TRIALS_BY_NUMBER, 0, 0, take_failed, b, &err) < 0)
        return;
}

struct search { /* for the failed rank that ended first */
    struct hy_store *store;
    int64_t run;
    Hy__TrialView *first;
    int64_t ended;
};

static int last_end(void *arg, const struct hy_attempt_row *a)
{
    int64_t *ended = arg;

    *ended = a->ended; /* the last one's remains */
    return 0;
}

/* All ranks end with the training; when a process did its attempt says. */
static int take_earliest(void *arg, const struct hy_trial_row *row)
{
    struct search *s = arg;
    int64_t ended = row->ended;
    struct hy_err err = {0};
    Hy__TrialView *view;

    if (row->state != HY_TRIAL_FAILED)
        return 0;
    if (hy_store_attempt_each(s->store, s->run, row->number, last_end, &ended, &err) < 0)
        ended = row->ended;
    if (s->first && ended >= s->ended)
        return 0;
    view = hy_trial_view_new(row);
    if (!view)
        return -ENOMEM;
    if (s->first)
        hy__trial_view__free_unpacked(s->first, &hy_proto_memory);
    s->first = view;
    s->ended = ended;
    return 0;
}

void hy_board_find_culprit(struct hy_board *b, struct hy_store *s, const struct hy_runinfo *info)
{
    struct search search = {.store = s, .run = info->row.id};
    struct hy_err err = {0};

    if (hy_store_trial_each(s, info->row.id, 0, HY_TRIALS_BY_NUMBER, 0, 0, take_earliest, &search, &err) < 0)
        err.code = 0; /* then what is known so far has to do */
    if (search.first)
        hy_board_take_culprit(b, search.first,
                              info->spec ? hy_last_lines(info->row.logdir, info->spec, search.first->number, LAST_LINES)
                                         : hy_strdup(""));
}

static int take_ended(void *arg, const struct hy_trial_row *row)
{
    struct hy_board *b = arg;
    Hy__TrialView *view;

    if (row->state == HY_TRIAL_RUNNING)
        return 0;
    view = hy_trial_view_new(row);
    if (!view)
        return -ENOMEM;
    hy_board_take_ended(b, view);
    return 0;
}

void hy_board_newest(struct hy_board *b, struct hy_store *s, const struct hy_runinfo *info)
{
    const struct hy_run_counts *c = &info->counts;
    int64_t all = c->running + c->done + c->failed + c->stopped;
    int64_t offset = all > HY_BOARD_RECENT ? all - HY_BOARD_RECENT : 0;
    struct hy_err err = {0};

    if (hy_store_trial_each(s, info->row.id, 0, HY_TRIALS_BY_NUMBER, offset, 0, take_ended, b, &err) < 0)
        return;
}

static int take_note(void *arg, const struct hy_note_row *row)
{
    char *text = hy_strdup(row->text);

    if (!text)
        return -ENOMEM;
    hy_board_take_note(arg, text);
    return 0;
}

void hy_board_notes(struct hy_board *b, struct hy_store *s, int64_t run)
{
    struct hy_err err = {0};

    if (hy_store_note_each(s, run, take_note, b, &err) < 0)
        return;
}

struct telling {
    struct hy_teller *teller;
    Hy__Update *update; /* what a driver would have said, without trials */
    struct hy_out *out;
    int fd;
};

static int tell_trial(void *arg, const struct hy_trial_row *row)
{
    struct telling *t = arg;
    Hy__TrialView view, *one = &view;
    Hy__Update u = *t->update;
    int rc;

    if (row->state == HY_TRIAL_RUNNING)
        return 0;
    hy_trial_view(row, &view);
    u.ended = &one;
    u.n_ended = 1;
    u.last = false;
    rc = hy_teller_update(t->teller, &u, t->out);
    return rc < 0 || t->out->buf.len < 65536 ? rc : hy_out_flush(t->out, t->fd);
}

static int tell_note(void *arg, const struct hy_note_row *row)
{
    struct telling *t = arg;
    Hy__Update u = *t->update;
    char *one = (char *)row->text;

    u.notes = &one;
    u.n_notes = 1;
    u.last = false;
    return hy_teller_update(t->teller, &u, t->out);
}

int hy_teller_from_store(struct hy_teller *t, struct hy_store *s, const struct hy_runinfo *info,
                         const Hy__Update *last, struct hy_out *out, int fd, struct hy_err *err)
{
    struct telling telling = {.teller = t, .update = (Hy__Update *)last, .out = out, .fd = fd};
    bool is_new = t->ended == 0;
    int rc = 0;

    if (is_new)
        rc = hy_store_trial_each(s, info->row.id, 0, HY_TRIALS_BY_NUMBER, 0, 0, tell_trial, &telling, err);
    if (rc >= 0 && is_new)
        rc = hy_store_note_each(s, info->row.id, tell_note, &telling, err);
    if (rc >= 0)
        rc = hy_teller_update(t, last, out);
    return rc < 0 ? rc : hy_out_flush(out, fd);
}
