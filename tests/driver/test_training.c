/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver of a training, seen by its agents. The driver is the real one, in a
 * process of its own (this program, with the word "driver"); the agents are
 * made up here, so that they can say what real ones never would. The local
 * agent that the driver starts ends at once and is of no use to it.
 */
#include "support.h"

#include <errno.h>
#include <unistd.h>
#include <uv.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "client/client.h"
#include "driver/driver.h"
#include "store/store.h"
#include "wire/wire.h"

#define PATIENCE_MS 60000
#define AGENTS 3
#define WORDS 64

struct fake {
    struct world *world;
    const char *name;
    uint32_t slots;
    struct hy_net *net;
    struct hy_peer *peer;
    bool bye;
    Hy__Control *said[WORDS]; /* by the driver: Start, Kill and Group */
    size_t count;
};

struct world {
    char project[64];
    uv_loop_t loop;
    uv_prepare_t turn;
    uv_timer_t patience;
    bool late;
    int64_t run;
    uint16_t port;
    uint8_t key[HY_KEY_SIZE];
    struct fake agents[AGENTS];
};

static struct world w;

/* ---- agents ------------------------------------------------------------------------- */

static void send_to_driver(struct fake *f, Hy__Control__BodyCase kind, void *body)
{
    Hy__Control m = HY__CONTROL__INIT;

    m.body_case = kind;
    m.bye = body; /* one of the oneof's pointers */
    assert_int_equal(hy_peer_send(f->peer, &m), 0);
}

static void introduce(struct fake *f)
{
    Hy__AgentInfo info = HY__AGENT_INFO__INIT;

    info.name = info.host = (char *)f->name;
    info.version = (char *)HY_VERSION;
    info.slots = f->slots;
    info.shares_files = true;
    send_to_driver(f, HY__CONTROL__BODY_AGENT_INFO, &info);
}

static void on_message(void *arg, struct hy_peer *p, const Hy__Control *m)
{
    Hy__Bye bye = HY__BYE__INIT;
    struct fake *f = arg;

    if (m->body_case == HY__CONTROL__BODY_WELCOME) {
        introduce(f);
    } else if (m->body_case == HY__CONTROL__BODY_BYE) {
        f->bye = true;
        send_to_driver(f, HY__CONTROL__BODY_BYE, &bye);
        f->peer = NULL;
        hy_peer_close(p, 2000);
    } else {
        assert_true(f->count < WORDS);
        f->said[f->count++] = hy_control_copy(m);
    }
}

static void on_up(void *arg, struct hy_peer *p)
{
    (void)arg;
    (void)p;
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
    (void)p;
    (void)why;
    ((struct fake *)arg)->peer = NULL;
}

static struct fake *join_run(int at, const char *name, uint32_t slots)
{
    static const struct hy_net_settings settings = {.silence_ms = PATIENCE_MS, .ping_ms = 100};
    static const struct hy_net_events events = {on_up, on_message, on_data, on_room, on_gone};
    struct fake *f = &w.agents[at];
    uint8_t key[HY_KEY_SIZE];
    char identity[32];

    snprintf(identity, sizeof identity, "join-%s", name);
    f->name = name;
    f->slots = slots;
    f->net = hy_net_new(&w.loop, &settings, &events, f);
    assert_non_null(f->net);
    assert_int_equal(hy_key_derive(w.key, identity, key), 0);
    assert_int_equal(hy_net_dial(f->net, "127.0.0.1", w.port, identity, key, &f->peer, NULL), 0);
    return f;
}

/* ---- the world ---------------------------------------------------------------------------- */

static void on_turn(uv_prepare_t *h)
{
    (void)h;
    for (int i = 0; i < AGENTS; i++)
        if (w.agents[i].net)
            hy_net_flush(w.agents[i].net);
}

static void on_patience(uv_timer_t *t)
{
    (void)t;
    w.late = true;
}

static void turn(void)
{
    uv_run(&w.loop, UV_RUN_ONCE);
    assert_false(w.late);
}

/* How its log goes on behind `word`; "": it is not in there. */
static void read_log(const char *word, char *text, size_t size)
{
    hy_cleanup_buf struct hy_buf log;
    char path[128], *at;

    snprintf(path, sizeof path, "%s/.hopyard/run-1.log", w.project);
    hy_buf_init(&log, 1u << 20);
    assert_int_equal(hy_file_read(path, &log), 0);
    at = strstr(hy_buf_cstr(&log), word);
    snprintf(text, size, "%s", at ? at + strlen(word) : "");
}

static void until_log(const char *word)
{
    char text[16] = "";

    while (!*text) {
        turn();
        read_log(word, text, sizeof text);
    }
}

static void learn_port(void)
{
    struct hy_err err = {0};
    char path[128], text[64];
    unsigned port;

    read_log("--join HOST:", text, sizeof text);
    assert_int_equal(sscanf(text, "%u", &port), 1);
    w.port = (uint16_t)port;
    snprintf(path, sizeof path, "%s/.hopyard/run-1.key", w.project);
    assert_int_equal(hy_key_read(path, w.key, &err), 0);
}

static void start_training(uint32_t ranks, uint32_t least, uint32_t retries)
{
    Hy__RunSpec spec = HY__RUN_SPEC__INIT;
    char *argv[] = {(char *)"train"};
    struct hy_err err = {0};

    spec.argv = argv;
    spec.n_argv = 1;
    spec.project = spec.cwd = w.project;
    spec.listen = (char *)"127.0.0.1:0";
    spec.versions = (char *)"{}";
    spec.ranks = ranks;
    spec.ranks_min = least;
    spec.retries = retries;
    if (hy_driver_launch(&spec, NULL, &w.run, &err) < 0)
        fail_msg("%s", err.text);
    learn_port();
}

static int begin(void **state)
{
    (void)state;
    w = (struct world){.project = "/tmp/hy-training-XXXXXX"};
    if (!mkdtemp(w.project) || setenv("XDG_RUNTIME_DIR", w.project, 1) < 0)
        return -1;
    uv_loop_init(&w.loop);
    uv_prepare_init(&w.loop, &w.turn);
    uv_timer_init(&w.loop, &w.patience);
    uv_timer_start(&w.patience, on_patience, PATIENCE_MS, 0);
    return uv_prepare_start(&w.turn, on_turn);
}

static void close_walk(uv_handle_t *h, void *arg)
{
    (void)arg;
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

static int end(void **state)
{
    (void)state;
    for (int i = 0; i < AGENTS; i++) {
        struct fake *f = &w.agents[i];

        if (f->peer)
            hy_peer_close(f->peer, 0);
        hy_net_free(f->net);
        for (size_t k = 0; k < f->count; k++)
            hy__control__free_unpacked(f->said[k], NULL);
    }
    uv_run(&w.loop, UV_RUN_NOWAIT);
    uv_walk(&w.loop, close_walk, NULL);
    uv_run(&w.loop, UV_RUN_DEFAULT);
    uv_loop_close(&w.loop);
    return hy_remove_tree(w.project);
}

/* ---- what is said and heard ------------------------------------------------------------------ */

/* The next word to this agent. */
static const Hy__Control *hear(struct fake *f, size_t at)
{
    while (f->count <= at)
        turn();
    return f->said[at];
}

static const Hy__Start *hear_start(struct fake *f, size_t at, uint64_t trial, uint32_t attempt)
{
    const Hy__Control *m = hear(f, at);

    assert_int_equal(m->body_case, HY__CONTROL__BODY_START);
    assert_int_equal(m->start->trial, trial);
    assert_int_equal(m->start->attempt, attempt);
    return m->start;
}

static const Hy__GroupWord *hear_group(struct fake *f, size_t at, Hy__GroupWord__BodyCase kind,
                                       uint64_t trial)
{
    const Hy__Control *m = hear(f, at);

    assert_int_equal(m->body_case, HY__CONTROL__BODY_GROUP);
    assert_int_equal(m->group->body_case, kind);
    assert_int_equal(m->group->trial, trial);
    return m->group;
}

static const Hy__Roster *hear_roster(struct fake *f, size_t at, uint64_t trial)
{
    return hear_group(f, at, HY__GROUP_WORD__BODY_ROSTER, trial)->roster;
}

static const char *hear_lost(struct fake *f, size_t at, uint64_t trial)
{
    return hear_group(f, at, HY__GROUP_WORD__BODY_LOST, trial)->lost->why;
}

static const char *word_of(const Hy__Start *s, const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < s->n_env; i++)
        if (strncmp(s->env[i], name, n) == 0 && s->env[i][n] == '=')
            return s->env[i] + n + 1;
    return "";
}

static void say(struct fake *f, uint64_t trial, uint32_t attempt, Hy__GroupWord__BodyCase kind, void *body)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;

    word.trial = trial;
    word.attempt = attempt;
    word.body_case = kind;
    if (kind == HY__GROUP_WORD__BODY_LEAVE || kind == HY__GROUP_WORD__BODY_OUTDATED)
        word.leave = true;
    else
        word.join = body; /* one of the oneof's pointers */
    send_to_driver(f, HY__CONTROL__BODY_GROUP, &word);
}

static void say_join(struct fake *f, uint64_t trial, uint32_t attempt, uint32_t port)
{
    Hy__GroupJoin join = HY__GROUP_JOIN__INIT;
    char bell[32], *addresses[] = {(char *)"192.0.2.1", (char *)"fd00::1"};

    snprintf(bell, sizeof bell, "bell-%u", port);
    join.addresses = addresses;
    join.n_addresses = 2;
    join.port = port;
    join.bell = bell;
    say(f, trial, attempt, HY__GROUP_WORD__BODY_JOIN, &join);
}

static void say_lost(struct fake *f, uint64_t trial, uint32_t attempt, const char *why)
{
    Hy__GroupLost lost = HY__GROUP_LOST__INIT;

    lost.why = (char *)why;
    say(f, trial, attempt, HY__GROUP_WORD__BODY_LOST, &lost);
}

static void say_ended(struct fake *f, uint64_t trial, uint32_t attempt, Hy__Ended__Outcome outcome, int code)
{
    Hy__Ended ended = HY__ENDED__INIT;

    ended.trial = trial;
    ended.attempt = attempt;
    ended.outcome = outcome;
    ended.code = code;
    send_to_driver(f, HY__CONTROL__BODY_ENDED, &ended);
}

static void until_bye(void)
{
    for (int i = 0; i < AGENTS; i++)
        while (w.agents[i].peer && !w.agents[i].bye)
            turn();
}

/* ---- how it came out ------------------------------------------------------------------------------ */

struct outcome {
    enum hy_run_state state;
    char message[300];
    int64_t done, failed, stopped;
};

static int take_run(void *arg, const struct hy_run_row *row, const struct hy_run_counts *c)
{
    struct outcome *o = arg;

    o->state = row->state;
    snprintf(o->message, sizeof o->message, "%s", row->message ? row->message : "");
    o->done = c->done;
    o->failed = c->failed;
    o->stopped = c->stopped;
    return 0;
}

static struct outcome outcome(void)
{
    struct outcome o = {0};
    struct hy_store *s = NULL;
    struct hy_err err = {0};

    until_bye();
    assert_int_equal(hy_store_open(w.project, HY_STORE_READ, &s, &err), 0);
    assert_int_equal(hy_store_run_each(s, w.run, take_run, &o, &err), 0);
    while (hy_store_run_alive(s, w.run)) { /* its folder is about to go */
        usleep(2000);
        uv_run(&w.loop, UV_RUN_NOWAIT);
        assert_false(w.late);
    }
    hy_store_close(s);
    return o;
}

/* ---- tests ---------------------------------------------------------------------------------------- */

/* Two ranks on "a", one on "b", in the first generation. */
static void three_ranks_on_two_agents(uint32_t least, uint32_t retries)
{
    struct fake *a, *b;

    start_training(3, least, retries);
    a = join_run(0, "a", 2);
    until_log("agent a has joined");
    b = join_run(1, "b", 1);
    hear_start(a, 0, 1, 1);
    hear_start(a, 1, 2, 1);
    hear_start(b, 0, 3, 1);
    say_join(a, 1, 1, 11);
    say_join(a, 2, 1, 12);
    say_join(b, 3, 1, 13);
    hear_roster(a, 2, 1);
    hear_roster(a, 3, 2);
    hear_roster(b, 1, 3);
}

static void test_ranks_start_when_there_is_room_for_all_and_neighbours_stay_together(void **state)
{
    static const char *const names[] = {"HOPYARD_GROUP", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK",
                                        "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE"};
    static const char *const numbers[3][7] = {
        {"1", "0", "3", "0", "2", "0", "2"},
        {"1", "1", "3", "1", "2", "0", "1"},
        {"1", "2", "3", "0", "1", "1", "2"},
    };
    struct fake *a, *b;

    (void)state;
    start_training(3, 0, 0);
    a = join_run(0, "a", 2);
    until_log("agent a has joined");
    assert_int_equal(a->count, 0); /* there is no room for three */
    b = join_run(1, "b", 1);
    for (size_t i = 0; i < 7; i++) {
        assert_string_equal(word_of(hear_start(a, 0, 1, 1), names[i]), numbers[0][i]);
        assert_string_equal(word_of(hear_start(a, 1, 2, 1), names[i]), numbers[1][i]);
        assert_string_equal(word_of(hear_start(b, 0, 3, 1), names[i]), numbers[2][i]);
    }
    for (uint64_t t = 1; t <= 3; t++)
        say_ended(t < 3 ? a : b, t, 1, HY__ENDED__OUTCOME__EXITED, 0);
    assert_int_equal(outcome().state, HY_RUN_DONE);
}

static void test_a_roster_names_all_members_their_hosts_and_one_key(void **state)
{
    struct fake *a = &w.agents[0], *b = &w.agents[1];
    const Hy__Roster *r[3];

    (void)state;
    three_ranks_on_two_agents(0, 0);
    r[0] = hear_roster(a, 2, 1);
    r[1] = hear_roster(a, 3, 2);
    r[2] = hear_roster(b, 1, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(r[i]->generation, 1);
        assert_int_equal(r[i]->rank, i);
        assert_int_equal(r[i]->n_members, 3);
        assert_int_equal(r[i]->key.len, 32);
        assert_memory_equal(r[i]->key.data, r[0]->key.data, 32);
        for (size_t k = 0; k < 3; k++) {
            assert_int_equal(r[i]->members[k]->host, k == 2);
            assert_int_equal(r[i]->members[k]->port, 11 + k);
            assert_int_equal(r[i]->members[k]->n_addresses, 2);
            assert_string_equal(r[i]->members[k]->addresses[1], "fd00::1");
        }
    }
    for (uint64_t t = 1; t <= 3; t++) {
        say(t < 3 ? a : b, t, 1, HY__GROUP_WORD__BODY_LEAVE, NULL);
        say_ended(t < 3 ? a : b, t, 1, HY__ENDED__OUTCOME__EXITED, 0);
    }
    assert_int_equal(outcome().done, 3);
}

static void test_the_first_agent_has_the_first_ranks_whoever_has_more_room(void **state)
{
    struct fake *a, *b;

    (void)state;
    start_training(3, 0, 1);
    a = join_run(0, "a", 1);
    until_log("agent a has joined");
    b = join_run(1, "b", 2);
    hear_start(a, 0, 1, 1);
    hear_start(b, 0, 2, 1);
    hear_start(b, 1, 3, 1);
    for (uint64_t t = 1; t <= 3; t++)
        say_ended(t < 2 ? a : b, t, 1, HY__ENDED__OUTCOME__EXITED, 0);
    assert_int_equal(outcome().state, HY_RUN_DONE);
}

static void test_words_for_others_ranks_other_attempts_or_of_no_agent_are_fenced(void **state)
{
    struct fake *a, *b;
    Hy__Roster roster = HY__ROSTER__INIT;

    (void)state;
    start_training(2, 0, 0);
    a = join_run(0, "a", 1);
    until_log("agent a has joined");
    b = join_run(1, "b", 1);
    hear_start(a, 0, 1, 1);
    hear_start(b, 0, 2, 1);
    say_join(b, 1, 1, 66);                       /* a's rank */
    say_lost(b, 1, 1, "is dead, says its enemy");
    say_join(b, 2, 2, 66);                       /* an attempt that is not */
    say_join(b, 7, 1, 66);                       /* a rank that is not */
    say_join(b, 2, 1, 70000);                    /* a port that is none */
    say(b, 2, 1, HY__GROUP_WORD__BODY_ROSTER, &roster);
    say(b, 2, 1, HY__GROUP_WORD__BODY_OUTDATED, NULL);
    say(b, 2, 1, HY__GROUP_WORD__BODY__NOT_SET, NULL);
    say_ended(b, 1, 1, HY__ENDED__OUTCOME__SIGNALED, 9);
    say_join(b, 2, 1, 12);
    say_join(a, 1, 1, 11);
    /* The next words: nothing came of all that. */
    assert_int_equal(hear_roster(a, 1, 1)->members[1]->port, 12);
    assert_int_equal(hear_roster(b, 1, 2)->members[0]->port, 11);
    for (uint64_t t = 1; t <= 2; t++) {
        say(t < 2 ? a : b, t, 1, HY__GROUP_WORD__BODY_LEAVE, NULL);
        say_ended(t < 2 ? a : b, t, 1, HY__ENDED__OUTCOME__EXITED, 0);
    }
    assert_int_equal(outcome().done, 2);
}

static void test_the_others_hear_of_a_death_before_its_end_is_told(void **state)
{
    struct fake *a = &w.agents[0], *b = &w.agents[1];
    struct outcome o;

    (void)state;
    three_ranks_on_two_agents(0, 0);
    say_lost(b, 3, 1, "was ended by signal 11 (Segmentation fault)");
    assert_string_equal(hear_lost(a, 4, 1), "rank 2 on b was ended by signal 11 (Segmentation fault)");
    assert_string_equal(hear_lost(a, 5, 2), "rank 2 on b was ended by signal 11 (Segmentation fault)");
    assert_int_equal(a->said[4]->group->lost->generation, 1);
    assert_int_equal(a->said[4]->group->lost->rank, 2);
    say_ended(b, 3, 1, HY__ENDED__OUTCOME__SIGNALED, 11);
    say_ended(a, 1, 1, HY__ENDED__OUTCOME__EXITED, 1);
    say_ended(a, 2, 1, HY__ENDED__OUTCOME__EXITED, 1);
    o = outcome();
    assert_int_equal(o.state, HY_RUN_FAILED);
    assert_string_equal(o.message, "rank 2 on b was ended by signal 11 (Segmentation fault)");
    assert_int_equal(o.failed, 1);
    assert_int_equal(o.stopped, 2);
}

static void test_an_agent_that_goes_is_named_and_all_start_again_when_there_is_room(void **state)
{
    struct fake *a = &w.agents[0], *b = &w.agents[1], *c;
    Hy__Bye bye = HY__BYE__INIT;

    (void)state;
    three_ranks_on_two_agents(0, 0);
    bye.why = (char *)"the power fails";
    send_to_driver(b, HY__CONTROL__BODY_BYE, &bye);
    assert_string_equal(hear_lost(a, 4, 1), "rank 2 on b is lost: its agent is gone (the power fails)");
    hear_lost(a, 5, 2);
    hy_peer_close(b->peer, 0);
    b->peer = NULL;
    say_ended(a, 1, 1, HY__ENDED__OUTCOME__EXITED, 1);
    say_ended(a, 2, 1, HY__ENDED__OUTCOME__EXITED, 1);
    c = join_run(2, "c", 1);
    hear_start(a, 6, 1, 2);
    hear_start(a, 7, 2, 2);
    hear_start(c, 0, 3, 2);
    say_join(a, 1, 1, 99); /* of the attempt before */
    say_join(a, 1, 2, 21);
    say_join(c, 3, 2, 23);
    say_join(a, 2, 2, 22);
    assert_int_equal(hear_roster(a, 8, 1)->members[0]->port, 21);
    assert_int_equal(hear_roster(c, 1, 3)->generation, 2);
    for (uint64_t t = 1; t <= 3; t++) {
        say(t < 3 ? a : c, t, 2, HY__GROUP_WORD__BODY_LEAVE, NULL);
        say_ended(t < 3 ? a : c, t, 2, HY__ENDED__OUTCOME__EXITED, 0);
    }
    assert_int_equal(outcome().state, HY_RUN_DONE);
}

static void test_survivors_keep_their_order_and_wait_only_for_each_other(void **state)
{
    struct fake *a = &w.agents[0], *b = &w.agents[1];
    const Hy__Roster *r;

    (void)state;
    three_ranks_on_two_agents(2, 9);
    say_lost(a, 1, 1, "was ended by signal 9 (Killed)");
    hear_lost(a, 4, 2);
    hear_lost(b, 2, 3);
    say_ended(a, 1, 1, HY__ENDED__OUTCOME__SIGNALED, 9);
    say_join(b, 3, 1, 33);
    say_join(a, 2, 1, 32);
    r = hear_roster(a, 5, 2);
    assert_int_equal(r->generation, 2);
    assert_int_equal(r->n_members, 2);
    assert_int_equal(r->members[0]->trial, 2);
    assert_int_equal(r->members[1]->trial, 3);
    assert_int_equal(hear_roster(b, 3, 3)->rank, 1);
    hear_start(a, 6, 1, 2); /* after a while */
    say_join(a, 1, 2, 41);
    hear_group(a, 7, HY__GROUP_WORD__BODY_OUTDATED, 2);
    hear_group(b, 4, HY__GROUP_WORD__BODY_OUTDATED, 3);
    say(a, 2, 1, HY__GROUP_WORD__BODY_LEAVE, NULL);
    say_join(a, 2, 1, 42);
    say(b, 3, 1, HY__GROUP_WORD__BODY_LEAVE, NULL); /* gone for a moment: it is waited for */
    say_join(b, 3, 1, 43);
    r = hear_roster(b, 5, 3);
    assert_int_equal(r->generation, 3);
    assert_int_equal(r->n_members, 3);
    assert_int_equal(r->members[0]->trial, 2);
    assert_int_equal(r->members[1]->trial, 3);
    assert_int_equal(r->members[2]->trial, 1);
    assert_int_equal(r->members[2]->host, 0);
    for (uint64_t t = 1; t <= 3; t++) {
        say(t < 3 ? a : b, t, t == 1 ? 2 : 1, HY__GROUP_WORD__BODY_LEAVE, NULL);
        say_ended(t < 3 ? a : b, t, t == 1 ? 2 : 1, HY__ENDED__OUTCOME__EXITED, 0);
    }
    assert_int_equal(outcome().state, HY_RUN_DONE);
}

static void test_one_that_joins_anew_breaks_the_generation_it_was_in(void **state)
{
    struct fake *a = &w.agents[0], *b = &w.agents[1];

    (void)state;
    three_ranks_on_two_agents(1, 0);
    say_join(a, 2, 1, 50); /* it has lost a connection, and the others know nothing yet */
    assert_string_equal(hear_lost(b, 2, 3), "rank 1 on a has joined anew");
    hear_lost(a, 4, 1);
    say_join(a, 1, 1, 51);
    say_join(b, 3, 1, 53);
    assert_int_equal(hear_roster(b, 3, 3)->generation, 2);
    assert_int_equal(b->said[3]->group->roster->members[1]->port, 50);
    for (uint64_t t = 1; t <= 3; t++) {
        say(t < 3 ? a : b, t, 1, HY__GROUP_WORD__BODY_LEAVE, NULL);
        say_ended(t < 3 ? a : b, t, 1, HY__ENDED__OUTCOME__EXITED, 0);
    }
    assert_int_equal(outcome().state, HY_RUN_DONE);
}

/* How many lines of its log have this in them. */
static size_t count_log(const char *word)
{
    hy_cleanup_buf struct hy_buf log;
    char path[128];
    size_t count = 0;

    snprintf(path, sizeof path, "%s/.hopyard/run-1.log", w.project);
    hy_buf_init(&log, 1u << 20); /* a larger one fails here */
    assert_int_equal(hy_file_read(path, &log), 0);
    for (const char *at = hy_buf_cstr(&log); (at = strstr(at, word)); at++)
        count++;
    return count;
}

static void test_an_agent_that_has_gone_wrong_does_not_fill_the_log(void **state)
{
    enum { FLOOD = 3000 };
    Hy__Note note = HY__NOTE__INIT;
    struct fake *a;

    (void)state;
    start_training(1, 0, 0);
    a = join_run(0, "a", 1);
    hear_start(a, 0, 1, 1);
    note.text = (char *)"something that the user should know";
    for (int i = 0; i < FLOOD; i++) {
        send_to_driver(a, HY__CONTROL__BODY_NOTE, &note);
        say_join(a, 7, 1, 66);                                       /* a rank that is not */
        say_ended(a, 1, 2, HY__ENDED__OUTCOME__EXITED, 0);           /* an attempt that is not */
        if (i % 100 == 0)
            turn();
    }
    say_join(a, 1, 1, 11);
    hear_roster(a, 1, 1);
    say(a, 1, 1, HY__GROUP_WORD__BODY_LEAVE, NULL);
    say_ended(a, 1, 1, HY__ENDED__OUTCOME__EXITED, 0);
    assert_int_equal(outcome().state, HY_RUN_DONE);
    while (count_log("left out within") == 0 && !w.late) { /* the driver's last words; nothing wakes the loop then */
        uv_run(&w.loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
    assert_false(w.late);
    assert_in_range(count_log("something that the user should know"), 100, 100 + 2 * HY_LOG_BURST);
    assert_in_range(count_log("fenced a"), 2, 4 * HY_LOG_BURST);
}

#define TRAINING(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TRAINING(test_ranks_start_when_there_is_room_for_all_and_neighbours_stay_together),
        TRAINING(test_a_roster_names_all_members_their_hosts_and_one_key),
        TRAINING(test_the_first_agent_has_the_first_ranks_whoever_has_more_room),
        TRAINING(test_words_for_others_ranks_other_attempts_or_of_no_agent_are_fenced),
        TRAINING(test_the_others_hear_of_a_death_before_its_end_is_told),
        TRAINING(test_an_agent_that_goes_is_named_and_all_start_again_when_there_is_room),
        TRAINING(test_survivors_keep_their_order_and_wait_only_for_each_other),
        TRAINING(test_one_that_joins_anew_breaks_the_generation_it_was_in),
        TRAINING(test_an_agent_that_has_gone_wrong_does_not_fill_the_log),
    };

    if (argc > 1 && strcmp(argv[1], "driver") == 0)
        return hy_driver_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "agent") == 0)
        return 1;
    return cmocka_run_group_tests_name("training", tests, NULL, NULL);
}
