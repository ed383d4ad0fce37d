/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver of a training, tested with fake agents. The driver runs in a
 * separate process (this program, with the argument "driver"); the agents are
 * simulated here, so that they can send what real ones never would. The local
 * agent that the driver starts ends at once and is not used.
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

#define TIMEOUT_MS 60000
#define AGENTS 3
#define MESSAGES_MAX 64

struct fake_agent {
    struct test_run *world;
    const char *name;
    uint32_t slots;
    struct hy_net *net;
    struct hy_peer *peer;
    bool bye;
    Hy__Control *received[MESSAGES_MAX]; /* received from the driver: Start, Kill and Group */
    size_t count;
};

struct test_run {
    char project[64];
    uv_loop_t loop;
    uv_prepare_t turn;
    uv_timer_t timeout;
    bool timed_out;
    int64_t run;
    uint16_t port;
    uint8_t key[HY_KEY_SIZE];
    struct fake_agent agents[AGENTS];
};

static struct test_run w;

/* ---- fake agents ----------------------------------------------------------------------------- */

static void send_to_driver(struct fake_agent *f, Hy__Control__BodyCase kind, void *body)
{
    Hy__Control m = HY__CONTROL__INIT;

    m.body_case = kind;
    m.bye = body; /* one of the oneof's pointers */
    assert_int_equal(hy_peer_send(f->peer, &m), 0);
}

static void send_info(struct fake_agent *f)
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
    struct fake_agent *f = arg;

    if (m->body_case == HY__CONTROL__BODY_WELCOME) {
        send_info(f);
    } else if (m->body_case == HY__CONTROL__BODY_BYE) {
        f->bye = true;
        send_to_driver(f, HY__CONTROL__BODY_BYE, &bye);
        f->peer = NULL;
        hy_peer_close(p, 2000);
    } else {
        assert_true(f->count < MESSAGES_MAX);
        f->received[f->count++] = hy_control_copy(m);
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
    ((struct fake_agent *)arg)->peer = NULL;
}

static struct fake_agent *join_run(int at, const char *name, uint32_t slots)
{
    static const struct hy_net_settings settings = {.silence_ms = TIMEOUT_MS, .ping_ms = 100};
    static const struct hy_net_events events = {on_up, on_message, on_data, on_room, on_gone};
    struct fake_agent *f = &w.agents[at];
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

/* ---- setup ----------------------------------------------------------------------------------- */

static void on_turn(uv_prepare_t *h)
{
    (void)h;
    for (int i = 0; i < AGENTS; i++)
        if (w.agents[i].net)
            hy_net_flush(w.agents[i].net);
}

static void on_timeout(uv_timer_t *t)
{
    (void)t;
    w.timed_out = true;
}

static void turn(void)
{
    uv_run(&w.loop, UV_RUN_ONCE);
    assert_false(w.timed_out);
}

/* The text after `word` in the driver's log; "" if it is not found. */
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

static void wait_for_log(const char *word)
{
    char text[16] = "";

    while (!*text) {
        turn();
        read_log(word, text, sizeof text);
    }
}

static void read_port_and_key(void)
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
    hy_cleanup_launched struct hy_launched launched = {.owner = -1};
    struct hy_err err = {0};

    spec.argv = argv;
    spec.n_argv = 1;
    spec.project = spec.cwd = w.project;
    spec.listen = (char *)"127.0.0.1:0";
    spec.versions = (char *)"{}";
    spec.ranks = ranks;
    spec.ranks_min = least;
    spec.retries = retries;
    if (hy_driver_launch(&spec, false, &launched, &err) < 0)
        fail_msg("%s", err.text);
    w.run = launched.run;
    read_port_and_key();
}

static int begin(void **state)
{
    (void)state;
    w = (struct test_run){.project = "/tmp/hy-training-XXXXXX"};
    if (!mkdtemp(w.project) || setenv("XDG_RUNTIME_DIR", w.project, 1) < 0)
        return -1;
    uv_loop_init(&w.loop);
    uv_prepare_init(&w.loop, &w.turn);
    uv_timer_init(&w.loop, &w.timeout);
    uv_timer_start(&w.timeout, on_timeout, TIMEOUT_MS, 0);
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
        struct fake_agent *f = &w.agents[i];

        if (f->peer)
            hy_peer_close(f->peer, 0);
        hy_net_free(f->net);
        for (size_t k = 0; k < f->count; k++)
            hy__control__free_unpacked(f->received[k], NULL);
    }
    uv_run(&w.loop, UV_RUN_NOWAIT);
    uv_walk(&w.loop, close_walk, NULL);
    uv_run(&w.loop, UV_RUN_DEFAULT);
    uv_loop_close(&w.loop);
    return hy_remove_tree(w.project);
}

/* ---- sending and receiving ------------------------------------------------------------------- */

/* The message with that index, when it has arrived. */
static const Hy__Control *wait_message(struct fake_agent *f, size_t at)
{
    while (f->count <= at)
        turn();
    return f->received[at];
}

static const Hy__Start *expect_start(struct fake_agent *f, size_t at, uint64_t trial, uint32_t attempt)
{
    const Hy__Control *m = wait_message(f, at);

    assert_int_equal(m->body_case, HY__CONTROL__BODY_START);
    assert_int_equal(m->start->trial, trial);
    assert_int_equal(m->start->attempt, attempt);
    return m->start;
}

static const Hy__GroupWord *expect_group(struct fake_agent *f, size_t at, Hy__GroupWord__BodyCase kind, uint64_t trial)
{
    const Hy__Control *m = wait_message(f, at);

    assert_int_equal(m->body_case, HY__CONTROL__BODY_GROUP);
    assert_int_equal(m->group->body_case, kind);
    assert_int_equal(m->group->trial, trial);
    return m->group;
}

static const Hy__Roster *expect_roster(struct fake_agent *f, size_t at, uint64_t trial)
{
    return expect_group(f, at, HY__GROUP_WORD__BODY_ROSTER, trial)->roster;
}

static const char *expect_lost(struct fake_agent *f, size_t at, uint64_t trial)
{
    return expect_group(f, at, HY__GROUP_WORD__BODY_LOST, trial)->lost->why;
}

static const char *env_of(const Hy__Start *s, const char *name)
{
    size_t n = strlen(name);

    for (size_t i = 0; i < s->n_env; i++)
        if (strncmp(s->env[i], name, n) == 0 && s->env[i][n] == '=')
            return s->env[i] + n + 1;
    return "";
}

static void send_group(struct fake_agent *f, uint64_t trial, uint32_t attempt, Hy__GroupWord__BodyCase kind, void *body)
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

static void send_join(struct fake_agent *f, uint64_t trial, uint32_t attempt, uint32_t port)
{
    Hy__GroupJoin join = HY__GROUP_JOIN__INIT;
    char bell[32], *addresses[] = {(char *)"192.0.2.1", (char *)"fd00::1"};

    snprintf(bell, sizeof bell, "bell-%u", port);
    join.addresses = addresses;
    join.n_addresses = 2;
    join.port = port;
    join.bell = bell;
    send_group(f, trial, attempt, HY__GROUP_WORD__BODY_JOIN, &join);
}

static void send_lost(struct fake_agent *f, uint64_t trial, uint32_t attempt, const char *why)
{
    Hy__GroupLost lost = HY__GROUP_LOST__INIT;

    lost.why = (char *)why;
    send_group(f, trial, attempt, HY__GROUP_WORD__BODY_LOST, &lost);
}

static void send_ended(struct fake_agent *f, uint64_t trial, uint32_t attempt, Hy__Ended__Outcome outcome, int code)
{
    Hy__Ended ended = HY__ENDED__INIT;

    ended.trial = trial;
    ended.attempt = attempt;
    ended.outcome = outcome;
    ended.code = code;
    send_to_driver(f, HY__CONTROL__BODY_ENDED, &ended);
}

static void wait_for_bye(void)
{
    for (int i = 0; i < AGENTS; i++)
        while (w.agents[i].peer && !w.agents[i].bye)
            turn();
}

/* ---- results --------------------------------------------------------------------------------- */

struct outcome {
    enum hy_run_state state;
    char message[300];
    int64_t done, failed, stopped;
};

static int read_run(void *arg, const struct hy_run_row *row, const struct hy_run_counts *c)
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

    wait_for_bye();
    assert_int_equal(hy_store_open(w.project, HY_STORE_READ, &s, &err), 0);
    assert_int_equal(hy_store_run_each(s, w.run, read_run, &o, &err), 0);
    while (hy_store_run_alive(s, w.run)) { /* its runtime directory is about to be removed */
        usleep(2000);
        uv_run(&w.loop, UV_RUN_NOWAIT);
        assert_false(w.timed_out);
    }
    hy_store_close(s);
    return o;
}

/* ---- tests ---------------------------------------------------------------------------------------- */

/* Two ranks on "a", one on "b", in the first generation. */
static void start_three_ranks_on_two_agents(uint32_t least, uint32_t retries)
{
    struct fake_agent *a, *b;

    start_training(3, least, retries);
    a = join_run(0, "a", 2);
    wait_for_log("agent a has joined");
    b = join_run(1, "b", 1);
    expect_start(a, 0, 1, 1);
    expect_start(a, 1, 2, 1);
    expect_start(b, 0, 3, 1);
    send_join(a, 1, 1, 11);
    send_join(a, 2, 1, 12);
    send_join(b, 3, 1, 13);
    expect_roster(a, 2, 1);
    expect_roster(a, 3, 2);
    expect_roster(b, 1, 3);
}

HY_TEST_WITH(test_ranks_start_together_and_ranks_of_an_agent_are_consecutive, begin, end)
{
    static const char *const names[] = {"HOPYARD_GROUP",      "HOROVOD_RANK",       "HOROVOD_SIZE",
                                        "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE", "HOROVOD_CROSS_RANK",
                                        "HOROVOD_CROSS_SIZE"};
    static const char *const numbers[3][7] = {
        {"1", "0", "3", "0", "2", "0", "2"},
        {"1", "1", "3", "1", "2", "0", "1"},
        {"1", "2", "3", "0", "1", "1", "2"},
    };
    struct fake_agent *a, *b;

    start_training(3, 0, 0);
    a = join_run(0, "a", 2);
    wait_for_log("agent a has joined");
    assert_int_equal(a->count, 0); /* there are two slots */
    b = join_run(1, "b", 1);
    for (size_t i = 0; i < 7; i++) {
        assert_string_equal(env_of(expect_start(a, 0, 1, 1), names[i]), numbers[0][i]);
        assert_string_equal(env_of(expect_start(a, 1, 2, 1), names[i]), numbers[1][i]);
        assert_string_equal(env_of(expect_start(b, 0, 3, 1), names[i]), numbers[2][i]);
    }
    for (uint64_t t = 1; t <= 3; t++)
        send_ended(t < 3 ? a : b, t, 1, HY__ENDED__OUTCOME__EXITED, 0);
    assert_int_equal(outcome().state, HY_RUN_DONE);
}

HY_TEST_WITH(test_roster_has_all_members_their_hosts_and_a_shared_key, begin, end)
{
    struct fake_agent *a = &w.agents[0], *b = &w.agents[1];
    const Hy__Roster *r[3];

    start_three_ranks_on_two_agents(0, 0);
    r[0] = expect_roster(a, 2, 1);
    r[1] = expect_roster(a, 3, 2);
    r[2] = expect_roster(b, 1, 3);
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
        send_group(t < 3 ? a : b, t, 1, HY__GROUP_WORD__BODY_LEAVE, NULL);
        send_ended(t < 3 ? a : b, t, 1, HY__ENDED__OUTCOME__EXITED, 0);
    }
    assert_int_equal(outcome().done, 3);
}

HY_TEST_WITH(test_first_agent_has_the_first_ranks_regardless_of_its_slots, begin, end)
{
    struct fake_agent *a, *b;

    start_training(3, 0, 1);
    a = join_run(0, "a", 1);
    wait_for_log("agent a has joined");
    b = join_run(1, "b", 2);
    expect_start(a, 0, 1, 1);
    expect_start(b, 0, 2, 1);
    expect_start(b, 1, 3, 1);
    for (uint64_t t = 1; t <= 3; t++)
        send_ended(t < 2 ? a : b, t, 1, HY__ENDED__OUTCOME__EXITED, 0);
    assert_int_equal(outcome().state, HY_RUN_DONE);
}

HY_TEST_WITH(test_messages_for_other_ranks_or_attempts_are_ignored, begin, end)
{
    struct fake_agent *a, *b;
    Hy__Roster roster = HY__ROSTER__INIT;

    start_training(2, 0, 0);
    a = join_run(0, "a", 1);
    wait_for_log("agent a has joined");
    b = join_run(1, "b", 1);
    expect_start(a, 0, 1, 1);
    expect_start(b, 0, 2, 1);
    send_join(b, 1, 1, 66);                       /* a's rank */
    send_lost(b, 1, 1, "is dead, says its enemy");
    send_join(b, 2, 2, 66);                       /* an unknown attempt */
    send_join(b, 7, 1, 66);                       /* an unknown rank */
    send_join(b, 2, 1, 70000);                    /* an invalid port */
    send_group(b, 2, 1, HY__GROUP_WORD__BODY_ROSTER, &roster);
    send_group(b, 2, 1, HY__GROUP_WORD__BODY_OUTDATED, NULL);
    send_group(b, 2, 1, HY__GROUP_WORD__BODY__NOT_SET, NULL);
    send_ended(b, 1, 1, HY__ENDED__OUTCOME__SIGNALED, 9);
    send_join(b, 2, 1, 12);
    send_join(a, 1, 1, 11);
    /* All of that was ignored. */
    assert_int_equal(expect_roster(a, 1, 1)->members[1]->port, 12);
    assert_int_equal(expect_roster(b, 1, 2)->members[0]->port, 11);
    for (uint64_t t = 1; t <= 2; t++) {
        send_group(t < 2 ? a : b, t, 1, HY__GROUP_WORD__BODY_LEAVE, NULL);
        send_ended(t < 2 ? a : b, t, 1, HY__ENDED__OUTCOME__EXITED, 0);
    }
    assert_int_equal(outcome().done, 2);
}

HY_TEST_WITH(test_ranks_are_notified_of_a_death_before_its_ended_message, begin, end)
{
    struct fake_agent *a = &w.agents[0], *b = &w.agents[1];
    struct outcome o;

    start_three_ranks_on_two_agents(0, 0);
    send_lost(b, 3, 1, "was ended by signal 11 (Segmentation fault)");
    assert_string_equal(expect_lost(a, 4, 1), "rank 2 on b was ended by signal 11 (Segmentation fault)");
    assert_string_equal(expect_lost(a, 5, 2), "rank 2 on b was ended by signal 11 (Segmentation fault)");
    assert_int_equal(a->received[4]->group->lost->generation, 1);
    assert_int_equal(a->received[4]->group->lost->rank, 2);
    send_ended(b, 3, 1, HY__ENDED__OUTCOME__SIGNALED, 11);
    send_ended(a, 1, 1, HY__ENDED__OUTCOME__EXITED, 1);
    send_ended(a, 2, 1, HY__ENDED__OUTCOME__EXITED, 1);
    o = outcome();
    assert_int_equal(o.state, HY_RUN_FAILED);
    assert_string_equal(o.message, "rank 2 on b was ended by signal 11 (Segmentation fault)");
    assert_int_equal(o.failed, 1);
    assert_int_equal(o.stopped, 2);
}

HY_TEST_WITH(test_lost_agent_is_reported_and_all_ranks_restart_when_there_is_room, begin, end)
{
    struct fake_agent *a = &w.agents[0], *b = &w.agents[1], *c;
    Hy__Bye bye = HY__BYE__INIT;

    start_three_ranks_on_two_agents(0, 0);
    bye.why = (char *)"the power fails";
    send_to_driver(b, HY__CONTROL__BODY_BYE, &bye);
    assert_string_equal(expect_lost(a, 4, 1), "rank 2 on b is lost: its agent is gone (the power fails)");
    expect_lost(a, 5, 2);
    hy_peer_close(b->peer, 0);
    b->peer = NULL;
    send_ended(a, 1, 1, HY__ENDED__OUTCOME__EXITED, 1);
    send_ended(a, 2, 1, HY__ENDED__OUTCOME__EXITED, 1);
    c = join_run(2, "c", 1);
    expect_start(a, 6, 1, 2);
    expect_start(a, 7, 2, 2);
    expect_start(c, 0, 3, 2);
    send_join(a, 1, 1, 99); /* of the previous attempt */
    send_join(a, 1, 2, 21);
    send_join(c, 3, 2, 23);
    send_join(a, 2, 2, 22);
    assert_int_equal(expect_roster(a, 8, 1)->members[0]->port, 21);
    assert_int_equal(expect_roster(c, 1, 3)->generation, 2);
    for (uint64_t t = 1; t <= 3; t++) {
        send_group(t < 3 ? a : c, t, 2, HY__GROUP_WORD__BODY_LEAVE, NULL);
        send_ended(t < 3 ? a : c, t, 2, HY__ENDED__OUTCOME__EXITED, 0);
    }
    assert_int_equal(outcome().state, HY_RUN_DONE);
}

HY_TEST_WITH(test_surviving_ranks_keep_their_order_and_wait_only_for_each_other, begin, end)
{
    struct fake_agent *a = &w.agents[0], *b = &w.agents[1];
    const Hy__Roster *r;

    start_three_ranks_on_two_agents(2, 9);
    send_lost(a, 1, 1, "was ended by signal 9 (Killed)");
    expect_lost(a, 4, 2);
    expect_lost(b, 2, 3);
    send_ended(a, 1, 1, HY__ENDED__OUTCOME__SIGNALED, 9);
    send_join(b, 3, 1, 33);
    send_join(a, 2, 1, 32);
    r = expect_roster(a, 5, 2);
    assert_int_equal(r->generation, 2);
    assert_int_equal(r->n_members, 2);
    assert_int_equal(r->members[0]->trial, 2);
    assert_int_equal(r->members[1]->trial, 3);
    assert_int_equal(expect_roster(b, 3, 3)->rank, 1);
    expect_start(a, 6, 1, 2); /* after a backoff */
    send_join(a, 1, 2, 41);
    expect_group(a, 7, HY__GROUP_WORD__BODY_OUTDATED, 2);
    expect_group(b, 4, HY__GROUP_WORD__BODY_OUTDATED, 3);
    send_group(a, 2, 1, HY__GROUP_WORD__BODY_LEAVE, NULL);
    send_join(a, 2, 1, 42);
    send_group(b, 3, 1, HY__GROUP_WORD__BODY_LEAVE, NULL); /* it left for a moment: the group waits for it */
    send_join(b, 3, 1, 43);
    r = expect_roster(b, 5, 3);
    assert_int_equal(r->generation, 3);
    assert_int_equal(r->n_members, 3);
    assert_int_equal(r->members[0]->trial, 2);
    assert_int_equal(r->members[1]->trial, 3);
    assert_int_equal(r->members[2]->trial, 1);
    assert_int_equal(r->members[2]->host, 0);
    for (uint64_t t = 1; t <= 3; t++) {
        send_group(t < 3 ? a : b, t, t == 1 ? 2 : 1, HY__GROUP_WORD__BODY_LEAVE, NULL);
        send_ended(t < 3 ? a : b, t, t == 1 ? 2 : 1, HY__ENDED__OUTCOME__EXITED, 0);
    }
    assert_int_equal(outcome().state, HY_RUN_DONE);
}

HY_TEST_WITH(test_member_that_joins_again_ends_its_generation, begin, end)
{
    struct fake_agent *a = &w.agents[0], *b = &w.agents[1];

    start_three_ranks_on_two_agents(1, 0);
    send_join(a, 2, 1, 50); /* it has lost a connection, and the others are not aware of it yet */
    assert_string_equal(expect_lost(b, 2, 3), "rank 1 on a has joined again");
    expect_lost(a, 4, 1);
    send_join(a, 1, 1, 51);
    send_join(b, 3, 1, 53);
    assert_int_equal(expect_roster(b, 3, 3)->generation, 2);
    assert_int_equal(b->received[3]->group->roster->members[1]->port, 50);
    for (uint64_t t = 1; t <= 3; t++) {
        send_group(t < 3 ? a : b, t, 1, HY__GROUP_WORD__BODY_LEAVE, NULL);
        send_ended(t < 3 ? a : b, t, 1, HY__ENDED__OUTCOME__EXITED, 0);
    }
    assert_int_equal(outcome().state, HY_RUN_DONE);
}

/* The number of occurrences in the driver's log. */
static size_t count_log(const char *word)
{
    hy_cleanup_buf struct hy_buf log;
    char path[128];
    size_t count = 0;

    snprintf(path, sizeof path, "%s/.hopyard/run-1.log", w.project);
    hy_buf_init(&log, 1u << 20); /* fails if the log is larger */
    assert_int_equal(hy_file_read(path, &log), 0);
    for (const char *at = hy_buf_cstr(&log); (at = strstr(at, word)); at++)
        count++;
    return count;
}

HY_TEST_WITH(test_faulty_agent_does_not_flood_the_log, begin, end)
{
    enum { FLOOD = 3000 };
    Hy__Note note = HY__NOTE__INIT;
    struct fake_agent *a;

    start_training(1, 0, 0);
    a = join_run(0, "a", 1);
    expect_start(a, 0, 1, 1);
    note.text = (char *)"something that the user should know";
    for (int i = 0; i < FLOOD; i++) {
        send_to_driver(a, HY__CONTROL__BODY_NOTE, &note);
        send_join(a, 7, 1, 66);                                       /* an unknown rank */
        send_ended(a, 1, 2, HY__ENDED__OUTCOME__EXITED, 0);           /* an unknown attempt */
        if (i % 100 == 0)
            turn();
    }
    send_join(a, 1, 1, 11);
    expect_roster(a, 1, 1);
    send_group(a, 1, 1, HY__GROUP_WORD__BODY_LEAVE, NULL);
    send_ended(a, 1, 1, HY__ENDED__OUTCOME__EXITED, 0);
    assert_int_equal(outcome().state, HY_RUN_DONE);
    while (count_log("left out within") == 0 && !w.timed_out) { /* the last log lines; no event wakes the loop */
        uv_run(&w.loop, UV_RUN_NOWAIT);
        usleep(1000);
    }
    assert_false(w.timed_out);
    assert_in_range(count_log("something that the user should know"), 100, 100 + 2 * HY_LOG_BURST);
    assert_in_range(count_log("ignored a"), 2, 4 * HY_LOG_BURST);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "driver") == 0)
        return hy_driver_main(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "agent") == 0)
        return 1;
    return hy_run_tests(argc > 1 ? argv[1] : NULL, NULL, NULL);
}
