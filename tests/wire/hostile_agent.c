/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent that has a run's key and sends invalid or excessive messages, for
 * e2e/test_hostile_agents.py:
 *
 *     hostile_agent PORT KEYFILE CASE
 *
 * It joins under the name of its case, with one slot, and prints "ready" when a trial was started on it (or, if the
 * case is about the first message, when it receives Welcome). After a line on standard input it sends the messages of
 * its case. It prints "gone" when the driver has dropped it; if the driver should not, it prints "sent" and leaves
 * normally.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "base/mem.h"
#include "wire/net.h"
#include "wire/wire.h"

#define LONG 2000000u
#define MANY 400000u
#define FLOOD 50000u

struct state {
    uv_loop_t loop;
    uv_poll_t input;
    uv_timer_t timer;
    struct hy_net *net;
    struct hy_peer *peer;
    const struct attack *attack;
    uint64_t trial;
    uint32_t attempt;
    unsigned turn;
    char *text; /* LONG bytes */
};

/* Sends `count` messages; `turn` is the index of the current one. */
struct attack {
    const char *name;
    void (*fill)(struct state *s, Hy__Control *m);
    unsigned count;
    bool at_join;     /* it is the first message */
    bool is_harmless; /* the driver should not drop the agent */
};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "hostile_agent: %s\n", what);
    exit(2);
}

static void print_line(const char *word)
{
    printf("%s\n", word);
    fflush(stdout);
}

/* ---- messages --------------------------------------------------------------------------- */

static Hy__Output *output_of(struct state *s, Hy__Control *m)
{
    static Hy__Output o;

    hy__output__init(&o);
    o.trial = s->trial;
    o.attempt = s->attempt;
    o.stream = 1;
    o.path = (char *)"file";
    o.mode = S_IFREG | 0644;
    m->body_case = HY__CONTROL__BODY_OUTPUT;
    m->output = &o;
    return &o;
}

static Hy__AgentInfo *info_of(struct state *s, Hy__Control *m)
{
    static Hy__AgentInfo info;

    hy__agent_info__init(&info);
    info.name = (char *)s->attack->name;
    info.host = (char *)"hostile";
    info.version = (char *)HY_VERSION;
    info.slots = 1;
    m->body_case = HY__CONTROL__BODY_AGENT_INFO;
    m->agent_info = &info;
    return &info;
}

static Hy__Report *report_of(struct state *s, Hy__Control *m)
{
    static Hy__Report r;

    hy__report__init(&r);
    r.trial = s->trial;
    r.attempt = s->attempt;
    m->body_case = HY__CONTROL__BODY_REPORT;
    m->report = &r;
    return &r;
}

static Hy__Ended *ended_of(struct state *s, Hy__Control *m)
{
    static Hy__Ended e;

    hy__ended__init(&e);
    e.trial = s->trial;
    e.attempt = s->attempt;
    m->body_case = HY__CONTROL__BODY_ENDED;
    m->ended = &e;
    return &e;
}

static Hy__GroupWord *word_of(struct state *s, Hy__Control *m)
{
    static Hy__GroupWord w;

    hy__group_word__init(&w);
    w.trial = s->trial;
    w.attempt = s->attempt;
    m->body_case = HY__CONTROL__BODY_GROUP;
    m->group = &w;
    return &w;
}

static Hy__Metric **metrics_of(const char *name, size_t n)
{
    static Hy__Metric metric;
    Hy__Metric **list = hy_calloc(n, sizeof(Hy__Metric *));

    if (!list)
        die("out of memory");
    hy__metric__init(&metric);
    metric.name = (char *)name;
    metric.value = 1;
    for (size_t i = 0; i < n; i++)
        list[i] = &metric;
    return list;
}

static void offset_end(struct state *s, Hy__Control *m)
{
    output_of(s, m)->offset = INT64_MAX;
}

static void offset_beyond(struct state *s, Hy__Control *m)
{
    output_of(s, m)->offset = UINT64_MAX;
}

static void offset_sum(struct state *s, Hy__Control *m)
{
    Hy__Output *o = output_of(s, m);

    o->offset = 4096;
    o->size = UINT64_MAX - 4095;
}

/* A new file for each offset. */
static void offsets_sparse(struct state *s, Hy__Control *m)
{
    static char path[40];
    Hy__Output *o = output_of(s, m);

    snprintf(path, sizeof path, "file-%u", s->turn / 2);
    o->path = path;
    o->offset = s->turn % 2 ? UINT64_C(1) << (51 + s->turn / 2 % 12) : 0;
}

static void path_long(struct state *s, Hy__Control *m)
{
    for (unsigned i = 100; i < LONG; i += 100)
        s->text[i] = '/';
    output_of(s, m)->path = s->text;
}

static void path_part(struct state *s, Hy__Control *m)
{
    s->text[300] = '\0';
    output_of(s, m)->path = s->text;
}

static void path_deep(struct state *s, Hy__Control *m)
{
    for (unsigned i = 1; i < 4000; i += 2)
        s->text[i] = '/';
    s->text[4001] = '\0';
    output_of(s, m)->path = s->text;
}

static void path_out(struct state *s, Hy__Control *m)
{
    output_of(s, m)->path = (char *)"a/../../../out";
}

static void files_announced(struct state *s, Hy__Control *m)
{
    static char path[40];
    Hy__Output *o = output_of(s, m);

    snprintf(path, sizeof path, "file-%u", s->turn);
    o->path = path;
    o->size = 1;
}

static void files_empty(struct state *s, Hy__Control *m)
{
    output_of(s, m);
}

static void too_much(struct state *s, Hy__Control *m)
{
    output_of(s, m)->size = UINT64_C(1) << 45;
}

static void stream_control(struct state *s, Hy__Control *m)
{
    output_of(s, m)->stream = 0;
}

static void stream_of_driver(struct state *s, Hy__Control *m)
{
    output_of(s, m)->stream = UINT32_MAX;
}

static void name_long(struct state *s, Hy__Control *m)
{
    info_of(s, m)->name = s->text;
}

static void host_long(struct state *s, Hy__Control *m)
{
    info_of(s, m)->host = s->text;
}

static void gpus_many(struct state *s, Hy__Control *m)
{
    static char *names[1000];
    Hy__AgentInfo *info = info_of(s, m);

    for (size_t i = 0; i < HY_COUNT(names); i++)
        names[i] = (char *)"GPU";
    info->gpu_uuids = names;
    info->n_gpu_uuids = HY_COUNT(names);
}

static void metric_long(struct state *s, Hy__Control *m)
{
    Hy__Report *r = report_of(s, m);

    r->n_metrics = 1;
    r->metrics = metrics_of(s->text, 1);
}

static void metrics_many(struct state *s, Hy__Control *m)
{
    Hy__Report *r = report_of(s, m);

    r->n_metrics = MANY;
    r->metrics = metrics_of("m", MANY);
}

static void ended_message(struct state *s, Hy__Control *m)
{
    ended_of(s, m)->message = s->text;
}

static void ended_detail(struct state *s, Hy__Control *m)
{
    ended_of(s, m)->detail = s->text;
}

static void ended_metrics(struct state *s, Hy__Control *m)
{
    Hy__Ended *e = ended_of(s, m);

    e->n_metrics = MANY;
    e->metrics = metrics_of("m", MANY);
}

static void ended_outputs(struct state *s, Hy__Control *m)
{
    static Hy__OutputEnd end;
    static Hy__OutputEnd *list[1000];
    Hy__Ended *e = ended_of(s, m);

    hy__output_end__init(&end);
    for (size_t i = 0; i < HY_COUNT(list); i++)
        list[i] = &end;
    e->outputs = list;
    e->n_outputs = HY_COUNT(list);
}

static void note_long(struct state *s, Hy__Control *m)
{
    static Hy__Note note;

    hy__note__init(&note);
    note.text = s->text;
    m->body_case = HY__CONTROL__BODY_NOTE;
    m->note = &note;
}

static void held_long(struct state *s, Hy__Control *m)
{
    static Hy__Held held;

    hy__held__init(&held);
    held.trial = s->trial;
    held.attempt = s->attempt;
    held.why = s->text;
    m->body_case = HY__CONTROL__BODY_HELD;
    m->held = &held;
}

static void bye_long(struct state *s, Hy__Control *m)
{
    static Hy__Bye bye;

    hy__bye__init(&bye);
    bye.why = s->text;
    m->body_case = HY__CONTROL__BODY_BYE;
    m->bye = &bye;
}

static void word_long(struct state *s, Hy__Control *m)
{
    Hy__GroupWord *w = word_of(s, m);

    w->body_case = HY__GROUP_WORD__BODY_FAILED;
    w->failed = s->text;
}

static void join_long(struct state *s, Hy__Control *m)
{
    static Hy__GroupJoin join;
    Hy__GroupWord *w = word_of(s, m);

    hy__group_join__init(&join);
    join.bell = s->text;
    w->body_case = HY__GROUP_WORD__BODY_JOIN;
    w->join = &join;
}

static void notes_flood(struct state *s, Hy__Control *m)
{
    note_long(s, m);
    m->note->text = (char *)"\x1b[2J\x1b]0;owned\x07 <script>alert(1)</script>\r\n";
}

static void words_flood(struct state *s, Hy__Control *m)
{
    Hy__GroupWord *w = word_of(s, m);

    w->body_case = HY__GROUP_WORD__BODY_NOTE;
    w->note = (char *)"\x1b[2J";
}

static void stale_flood(struct state *s, Hy__Control *m)
{
    ended_of(s, m)->trial = 1000000 + s->turn;
}

static Hy__Usage *usage_of(struct state *s, Hy__Control *m, size_t n)
{
    static Hy__UsageReport r;
    static Hy__Usage u;
    static int64_t list[HY_USAGE_POINTS + 1];

    for (size_t i = 0; i < HY_COUNT(list); i++)
        list[i] = 1;
    hy__usage__init(&u);
    hy__usage_report__init(&r);
    u.time_ms = u.memory = u.cpu_ms = list;
    u.n_time_ms = u.n_memory = u.n_cpu_ms = n;
    r.trial = s->trial;
    r.attempt = s->attempt;
    r.usage = &u;
    m->body_case = HY__CONTROL__BODY_USAGE;
    m->usage = &r;
    return &u;
}

static void usage_many(struct state *s, Hy__Control *m)
{
    usage_of(s, m, HY_USAGE_POINTS + 1);
}

static void usage_uneven(struct state *s, Hy__Control *m)
{
    usage_of(s, m, HY_USAGE_POINTS)->n_cpu_ms--;
}

static void usage_of_machine(struct state *s, Hy__Control *m)
{
    static Hy__AgentUsage usage;
    static Hy__AgentUsage__Gpu gpu, *gpus[] = {&gpu};

    hy__agent_usage__init(&usage);
    hy__agent_usage__gpu__init(&gpu);
    gpu.name = s->text;
    usage.gpus = gpus;
    usage.n_gpus = 1;
    m->body_case = HY__CONTROL__BODY_AGENT_USAGE;
    m->agent_usage = &usage;
}

/* Of trials that it does not have. */
static void usage_flood(struct state *s, Hy__Control *m)
{
    usage_of(s, m, 1);
    m->usage->trial = s->turn % 2 ? 1000000 + s->turn : s->trial + 1;
}

static const struct attack attacks[] = {
    {"offset-end", offset_end, 1, false, false},
    {"offset-beyond", offset_beyond, 1, false, false},
    {"offset-sum", offset_sum, 1, false, false},
    {"offsets-sparse", offsets_sparse, 24, false, false},
    {"path-long", path_long, 1, false, false},
    {"path-part", path_part, 1, false, false},
    {"path-deep", path_deep, 1, false, false},
    {"path-out", path_out, 1, false, false},
    {"files-announced", files_announced, MANY, false, false},
    {"files-empty", files_empty, MANY, false, false},
    {"too-much", too_much, 1, false, false},
    {"stream-control", stream_control, 1, false, false},
    {"stream-of-driver", stream_of_driver, 1, false, false},
    {"name-long", name_long, 1, true, false},
    {"host-long", host_long, 1, true, false},
    {"gpus-many", gpus_many, 1, true, false},
    {"metric-long", metric_long, 1, false, false},
    {"metrics-many", metrics_many, 1, false, false},
    {"ended-message", ended_message, 1, false, false},
    {"ended-detail", ended_detail, 1, false, false},
    {"ended-metrics", ended_metrics, 1, false, false},
    {"ended-outputs", ended_outputs, 1, false, false},
    {"note-long", note_long, 1, false, false},
    {"held-long", held_long, 1, false, false},
    {"bye-long", bye_long, 1, false, false},
    {"word-long", word_long, 1, false, false},
    {"join-long", join_long, 1, false, false},
    {"usage-many", usage_many, 1, false, false},
    {"usage-uneven", usage_uneven, 1, false, false},
    {"usage-of-machine", usage_of_machine, 1, false, false},
    {"unreadable", NULL, 1, false, false},
    {"notes-flood", notes_flood, FLOOD, false, true},
    {"words-flood", words_flood, FLOOD, false, true},
    {"stale-flood", stale_flood, FLOOD, false, true},
    {"usage-flood", usage_flood, FLOOD, false, true},
};

/* ---- sending ----------------------------------------------------------------------------- */

static int send_unreadable(struct state *s)
{
    uint8_t *at;
    int rc = hy_mux_message(s->peer->mux, 100, &at);

    if (rc == 0)
        memset(at, 0xff, 100);
    if (hy_list_empty(&s->peer->queued))
        hy_list_push(&s->net->queued, &s->peer->queued);
    return rc;
}

static int send_one(struct state *s)
{
    Hy__Control m = HY__CONTROL__INIT;

    if (!s->attack->fill)
        return send_unreadable(s);
    s->attack->fill(s, &m);
    return hy_peer_send(s->peer, &m);
}

static void leave(struct state *s)
{
    Hy__Control m = HY__CONTROL__INIT;
    Hy__Bye bye = HY__BYE__INIT;

    bye.why = (char *)"the case is complete";
    m.body_case = HY__CONTROL__BODY_BYE;
    m.bye = &bye;
    if (hy_peer_send(s->peer, &m) == 0)
        hy_net_flush(s->net);
}

/* Sends as many as fit into the queue; the timer repeats. */
static void on_timer(uv_timer_t *timer)
{
    struct state *s = timer->data;

    while (s->peer && s->turn < s->attack->count && send_one(s) == 0)
        s->turn++;
    if (s->peer && s->turn == s->attack->count) {
        uv_timer_stop(timer);
        if (s->attack->is_harmless) {
            print_line("sent");
            leave(s);
        }
    }
    hy_net_flush(s->net);
}

static void on_input(uv_poll_t *poll, int status, int events)
{
    struct state *s = poll->data;
    char byte;

    (void)events;
    if (status < 0 || read(STDIN_FILENO, &byte, 1) <= 0)
        exit(0); /* the test is over */
    if (!uv_is_active((uv_handle_t *)&s->timer))
        uv_timer_start(&s->timer, on_timer, 0, 5);
}

/* ---- joining ----------------------------------------------------------------------------- */

static void on_up(void *arg, struct hy_peer *p)
{
    (void)arg;
    (void)p;
}

static void on_message(void *arg, struct hy_peer *p, const Hy__Control *m)
{
    struct state *s = arg;
    Hy__Control reply = HY__CONTROL__INIT;

    if (m->body_case == HY__CONTROL__BODY_WELCOME && s->attack->at_join) {
        print_line("ready");
    } else if (m->body_case == HY__CONTROL__BODY_WELCOME) {
        info_of(s, &reply);
        if (hy_peer_send(p, &reply) < 0)
            die("cannot join");
        hy_net_flush(s->net);
    } else if (m->body_case == HY__CONTROL__BODY_START && !s->trial) {
        s->trial = m->start->trial;
        s->attempt = m->start->attempt;
        print_line("ready");
    }
}

static void on_data(void *arg, struct hy_peer *p, uint32_t stream, const uint8_t *bytes, size_t n)
{
    (void)arg;
    (void)bytes;
    hy_peer_consumed(p, stream, n);
}

static void on_room(void *arg, struct hy_peer *p, uint32_t stream)
{
    (void)arg;
    (void)p;
    (void)stream;
}

static void on_gone(void *arg, struct hy_peer *p, const char *why)
{
    struct state *s = arg;

    (void)p;
    (void)why;
    s->peer = NULL;
    print_line("gone");
}

static const struct attack *find_attack(const char *name)
{
    for (size_t i = 0; i < HY_COUNT(attacks); i++)
        if (strcmp(attacks[i].name, name) == 0)
            return &attacks[i];
    die("unknown case");
}

static void list_attacks(void)
{
    for (size_t i = 0; i < HY_COUNT(attacks); i++)
        printf("%s %s\n", attacks[i].name, attacks[i].is_harmless ? "harmless" : "dropped");
}

int main(int argc, char **argv)
{
    static const struct hy_net_settings settings = {.silence_ms = 30000, .ping_ms = 3000};
    static const struct hy_net_events events = {on_up, on_message, on_data, on_room, on_gone};
    static struct state s;
    uint8_t join_key[HY_KEY_SIZE], key[HY_KEY_SIZE];
    struct hy_err err = {0};
    char identity[64];

    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        list_attacks();
        return 0;
    }
    if (argc != 4)
        die("usage: hostile_agent PORT KEYFILE CASE");
    s.attack = find_attack(argv[3]);
    s.text = hy_malloc(LONG + 1);
    if (!s.text || uv_loop_init(&s.loop) < 0)
        die("out of memory");
    memset(s.text, 'x', LONG);
    s.text[LONG] = '\0';
    snprintf(identity, sizeof identity, "join-hostile-%d", (int)getpid());
    if (hy_key_read(argv[2], join_key, &err) < 0 || hy_key_derive(join_key, identity, key) < 0)
        die(err.text);
    s.net = hy_net_new(&s.loop, &settings, &events, &s);
    if (!s.net || hy_net_dial(s.net, "127.0.0.1", (uint16_t)atoi(argv[1]), identity, key, &s.peer, &err) < 0)
        die(err.text);
    uv_timer_init(&s.loop, &s.timer);
    uv_poll_init(&s.loop, &s.input, STDIN_FILENO);
    s.timer.data = s.input.data = &s;
    uv_poll_start(&s.input, UV_READABLE | UV_DISCONNECT, on_input);
    uv_run(&s.loop, UV_RUN_DEFAULT);
    return 0;
}
