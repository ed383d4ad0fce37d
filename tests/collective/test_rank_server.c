/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous server in rank 0 of mpirun and srun: groups, losses, and connections that do not belong to a rank. */
#include "support.h"

#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "collective/collective.h"
#include "collective/group/endpoint.h"
#include "collective/group/rank_server.h"
#include "wire/wire.h"

#define RANKS 3
#define WAIT_MS 20000

/* ---- the server, in a process of its own ----------------------------------------------------- */

struct world {
    char dir[64], path[80];
    pid_t server;
    int control; /* the server exits when it is closed */
    struct hy_endpoint endpoint;
};

static __attribute__((noreturn)) void serve(struct world *w, bool is_spread, int control)
{
    struct hy_err err = {0};
    char byte;

    if (hy_rank_server_start(w->path, RANKS, is_spread ? &w->endpoint : NULL, &err) < 0 ||
        hy_rank_server_start(w->path, RANKS, NULL, &err) < 0) /* again: nothing happens */
        exit(1);
    if (write(control, &w->endpoint, sizeof w->endpoint) != (ssize_t)sizeof w->endpoint)
        exit(2);
    exit(read(control, &byte, 1) == 0 ? 0 : 3);
}

static void start_server(struct world *w, bool is_spread)
{
    int pair[2];

    *w = (struct world){.dir = "/tmp/hopyard-ranks-XXXXXX"};
    assert_non_null(mkdtemp(w->dir));
    snprintf(w->path, sizeof w->path, "%s", hy_path_in(w->dir, "socket"));
    setenv("XDG_RUNTIME_DIR", w->dir, 1);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    w->server = fork();
    if (w->server == 0) {
        close(pair[0]);
        serve(w, is_spread, pair[1]);
    }
    close(pair[1]);
    w->control = pair[0];
    assert_int_equal(recv(w->control, &w->endpoint, sizeof w->endpoint, MSG_WAITALL), sizeof w->endpoint);
    if (is_spread) { /* of this machine's addresses, this one always works */
        w->endpoint.address_count = 1;
        snprintf(w->endpoint.addresses[0], sizeof w->endpoint.addresses[0], "127.0.0.1");
    }
}

static void end_server(struct world *w)
{
    char command[100];
    int status;

    close(w->control);
    assert_int_equal(waitpid(w->server, &status, 0), w->server);
    assert_int_equal(status, 0);
    assert_int_equal(access(w->path, F_OK), -1); /* it has removed its socket */
    snprintf(command, sizeof command, "rm -r %s", w->dir);
    assert_int_equal(system(command), 0);
}

/* ---- ranks, played by the test ------------------------------------------------------------------- */

static void connect_as(struct world *w, const char *token, struct hy_agent_client *c)
{
    struct hy_err err = {0};

    assert_int_equal(hy_agent_client_init(c, token, &err), 0);
    c->fd = hy_local_connect(w->path, &err);
    assert_true(c->fd >= 0);
}

static void connect_ranks(struct world *w, struct hy_agent_client *c)
{
    static const char *const tokens[RANKS] = {"0", "1", "2"};

    for (unsigned r = 0; r < RANKS; r++)
        connect_as(w, tokens[r], &c[r]);
}

static void disconnect_ranks(struct hy_agent_client *c)
{
    for (unsigned r = 0; r < RANKS; r++)
        hy_agent_client_done(&c[r]);
}

static void send_join(const struct hy_agent_client *c, const char *host, size_t addresses)
{
    static char *all[100];
    Hy__GroupWord word = HY__GROUP_WORD__INIT;
    Hy__GroupJoin join = HY__GROUP_JOIN__INIT;

    for (size_t i = 0; i < HY_COUNT(all); i++)
        all[i] = (char *)"127.0.0.1";
    join.addresses = all;
    join.n_addresses = addresses;
    join.port = 4711;
    join.bell = (char *)"bell";
    join.host = (char *)host;
    join.shared = c->tag; /* a name to recognize */
    join.process = (uint32_t)getpid();
    word.body_case = HY__GROUP_WORD__BODY_JOIN;
    word.join = &join;
    assert_int_equal(hy_agent_client_send_word(c, &word), 0);
}

static void send_word(const struct hy_agent_client *c, Hy__GroupWord__BodyCase kind, const char *text)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;

    word.body_case = kind;
    if (kind == HY__GROUP_WORD__BODY_NOTE || kind == HY__GROUP_WORD__BODY_FAILED)
        word.note = (char *)text; /* texts share their place */
    else
        word.leave = true; /* as flags do */
    assert_int_equal(hy_agent_client_send_word(c, &word), 0);
}

static Hy__TrialReportAnswer *next_answer(struct hy_agent_client *c)
{
    Hy__TrialReportAnswer *answer = NULL;
    struct hy_err err = {0};

    assert_int_equal(hy_agent_client_receive(c, WAIT_MS, &answer, &err), 1);
    return answer;
}

/* The next answer is this refusal; "": none. */
static void assert_answer(struct hy_agent_client *c, const char *refusal)
{
    Hy__TrialReportAnswer *answer = next_answer(c);

    assert_null(answer->group);
    if (!*refusal ? *answer->error : !strstr(answer->error, refusal))
        fail_msg("'%s' is not in: '%s'", refusal, answer->error);
    hy__trial_report_answer__free_unpacked(answer, NULL);
}

static void assert_disconnected(struct hy_agent_client *c)
{
    Hy__TrialReportAnswer *answer;
    struct hy_err err = {0};

    assert_int_equal(hy_agent_client_receive(c, WAIT_MS, &answer, &err), -EPIPE);
}

static void assert_lost(struct hy_agent_client *c, unsigned rank, uint64_t generation, const char *why)
{
    Hy__TrialReportAnswer *answer = next_answer(c);

    assert_non_null(answer->group);
    assert_int_equal(answer->group->body_case, HY__GROUP_WORD__BODY_LOST);
    assert_int_equal(answer->group->lost->rank, rank);
    assert_int_equal(answer->group->lost->generation, generation);
    if (!strstr(answer->group->lost->why, why))
        fail_msg("'%s' is not in: %s", why, answer->group->lost->why);
    hy__trial_report_answer__free_unpacked(answer, NULL);
}

static void assert_roster(struct hy_agent_client *c, unsigned rank, uint64_t generation, const char *shared)
{
    Hy__TrialReportAnswer *answer = next_answer(c);
    const Hy__Roster *roster;

    assert_non_null(answer->group);
    assert_int_equal(answer->group->body_case, HY__GROUP_WORD__BODY_ROSTER);
    roster = answer->group->roster;
    assert_int_equal(roster->rank, rank);
    assert_int_equal(roster->generation, generation);
    assert_int_equal(roster->n_members, RANKS);
    assert_int_equal(roster->members[2]->port, 4711);
    assert_int_equal(roster->members[2]->trial, 3);
    assert_string_equal(roster->shared, shared);
    hy__trial_report_answer__free_unpacked(answer, NULL);
}

static void join_all(struct hy_agent_client *c, uint64_t generation)
{
    for (unsigned r = 0; r < RANKS; r++) {
        send_join(&c[r], "here", 1);
        assert_answer(&c[r], "");
    }
    for (unsigned r = 0; r < RANKS; r++)
        assert_roster(&c[r], r, generation, "0");
}

/* ---- groups and losses ------------------------------------------------------------------------------ */

HY_TEST(test_ranks_get_a_roster_when_all_have_joined)
{
    struct hy_agent_client c[RANKS];
    struct world w;

    start_server(&w, false);
    connect_ranks(&w, c);
    join_all(c, 1);
    for (unsigned r = 0; r < RANKS; r++) {
        send_word(&c[r], HY__GROUP_WORD__BODY_NOTE, "a note");
        assert_answer(&c[r], "");
        send_word(&c[r], HY__GROUP_WORD__BODY_LEAVE, NULL);
        assert_answer(&c[r], "");
    }
    disconnect_ranks(c); /* in the next generation each has a new connection */
    connect_ranks(&w, c);
    join_all(c, 2);
    disconnect_ranks(c);
    end_server(&w);
}

HY_TEST(test_a_rank_that_ends_is_lost_to_the_others_and_to_later_ones)
{
    struct hy_agent_client c[RANKS], again;
    struct world w;

    start_server(&w, false);
    connect_ranks(&w, c);
    join_all(c, 1);
    send_word(&c[2], HY__GROUP_WORD__BODY_LEAVE, NULL);
    assert_answer(&c[2], "");
    hy_agent_client_done(&c[1]);
    assert_lost(&c[0], 1, 1, "rank 1 has ended while the others were still training");
    connect_as(&w, "1", &again);
    send_join(&again, "here", 1);
    assert_answer(&again, "");
    assert_lost(&again, 1, 0, "rank 1 has ended");
    hy_agent_client_done(&again);
    disconnect_ranks(c);
    end_server(&w);
}

HY_TEST(test_a_rank_that_cannot_continue_is_reported_to_the_others)
{
    struct hy_agent_client c[RANKS];
    struct world w;

    start_server(&w, false);
    connect_ranks(&w, c);
    join_all(c, 1);
    send_word(&c[2], HY__GROUP_WORD__BODY_FAILED, "its disk is full");
    assert_answer(&c[2], "");
    assert_lost(&c[0], 2, 1, "rank 2 cannot continue: its disk is full");
    assert_lost(&c[1], 2, 1, "rank 2 cannot continue: its disk is full");
    disconnect_ranks(c);
    end_server(&w);
}

HY_TEST(test_a_rank_that_joins_again_has_given_up_its_place)
{
    struct hy_agent_client c[RANKS], again;
    struct world w;

    start_server(&w, false);
    connect_ranks(&w, c);
    join_all(c, 1);
    connect_as(&w, "1", &again); /* by the same process */
    send_join(&again, "here", 1);
    assert_lost(&c[0], 1, 1, "rank 1 has joined again");
    assert_disconnected(&c[1]);
    hy_agent_client_done(&again);
    disconnect_ranks(c);
    end_server(&w);
}

HY_TEST(test_a_second_process_of_a_rank_is_refused)
{
    struct hy_agent_client c[RANKS];
    struct world w;
    int status;
    pid_t pid;

    start_server(&w, false);
    connect_ranks(&w, c);
    join_all(c, 1);
    pid = fork();
    if (pid == 0) {
        struct hy_agent_client again;

        connect_as(&w, "1", &again);
        send_join(&again, "here", 1);
        assert_answer(&again, "another process of this rank is in the group already");
        hy_agent_client_done(&again);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    disconnect_ranks(c);
    end_server(&w);
}

/* ---- invalid messages ------------------------------------------------------------------------------- */

HY_TEST(test_invalid_requests_are_refused_or_end_the_connection)
{
    static const char *const tokens[] = {"3", "x", "", "12345678901234567890"};
    struct hy_agent_client c;
    struct world w;

    start_server(&w, false);
    connect_as(&w, "1", &c);
    send_word(&c, HY__GROUP_WORD__BODY_LEAVE, NULL);
    assert_answer(&c, "the rank has not joined");
    send_join(&c, "here", 100);
    assert_answer(&c, "invalid request to join a group");
    send_join(&c, "here", 1);
    assert_answer(&c, "");
    send_word(&c, HY__GROUP_WORD__BODY_FED, NULL);
    assert_answer(&c, "unexpected message");
    hy_agent_client_done(&c);
    for (size_t i = 0; i < HY_COUNT(tokens); i++) {
        connect_as(&w, tokens[i], &c);
        send_join(&c, "here", 1);
        assert_disconnected(&c);
        hy_agent_client_done(&c);
    }
    connect_as(&w, "1", &c);
    assert_int_equal(hy_local_put(c.fd, (const uint8_t *)"\xff\xff", 2), 0);
    assert_disconnected(&c);
    hy_agent_client_done(&c);
    connect_as(&w, "1", &c);
    assert_int_equal(send(c.fd, "\xff\xff\xff\xff\xff\xff", 6, MSG_NOSIGNAL), 6); /* longer than any message */
    assert_disconnected(&c);
    hy_agent_client_done(&c);
    end_server(&w);
}

/* ---- ranks on other machines -------------------------------------------------------------------------- */

static void dial_as(struct world *w, unsigned rank, struct hy_agent_client *c)
{
    struct hy_err err = {0};
    char token[16];

    snprintf(token, sizeof token, "%u", rank);
    assert_int_equal(hy_agent_client_init(c, token, &err), 0);
    c->fd = hy_endpoint_dial(&w->endpoint, rank, RANKS, &err);
    if (c->fd < 0)
        fail_msg("%s", err.text);
}

HY_TEST(test_ranks_of_one_machine_share_memory_and_others_do_not)
{
    struct hy_agent_client c[RANKS];
    struct world w;

    start_server(&w, true);
    connect_as(&w, "0", &c[0]);
    dial_as(&w, 1, &c[1]);
    dial_as(&w, 2, &c[2]);
    for (unsigned r = 0; r < RANKS; r++) {
        send_join(&c[r], r == 0 ? "a/1" : "b/1", 2);
        assert_answer(&c[r], "");
    }
    assert_roster(&c[0], 0, 1, ""); /* the only one there */
    assert_roster(&c[1], 1, 1, "1");
    assert_roster(&c[2], 2, 1, "1");
    hy_agent_client_done(&c[2]);
    assert_lost(&c[0], 2, 1, "rank 2 on b has ended, or its machine cannot be reached");
    disconnect_ranks(c);
    end_server(&w);
}

HY_TEST(test_other_machines_have_to_prove_the_key_and_their_rank)
{
    struct hy_agent_client c;
    struct hy_endpoint wrong;
    struct hy_err err = {0};
    struct world w;

    start_server(&w, true);
    wrong = w.endpoint;
    wrong.key[0] ^= 1;
    assert_int_equal(hy_endpoint_dial(&wrong, 1, RANKS, &err), -EACCES);
    dial_as(&w, 1, &c);
    c.tag[0] = '2'; /* it is rank 1 */
    send_join(&c, "b", 1);
    assert_disconnected(&c);
    hy_agent_client_done(&c);
    end_server(&w);
}

HY_TEST(test_silent_connections_do_not_keep_ranks_out)
{
    struct sockaddr_in where = {.sin_family = AF_INET};
    int silent[200];
    struct hy_agent_client c;
    struct world w;

    start_server(&w, true);
    where.sin_port = htons(w.endpoint.port);
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (size_t i = 0; i < HY_COUNT(silent); i++) {
        silent[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(silent[i], (struct sockaddr *)&where, sizeof where), 0);
    }
    dial_as(&w, 2, &c);
    send_join(&c, "b", 1);
    assert_answer(&c, "");
    hy_agent_client_done(&c);
    for (size_t i = 0; i < HY_COUNT(silent); i++)
        close(silent[i]);
    end_server(&w);
}

/* ---- whole groups --------------------------------------------------------------------------------------- */

static int sum_of(struct hy_group *g, float value, float *ret, struct hy_err *err)
{
    struct hy_tensor t = {.in = &value, .out = ret};
    struct hy_request request = {.kind = HY_ALLREDUCE,
                                 .name = "x",
                                 .type = HY_F32,
                                 .op = HY_SUM,
                                 .prescale = 1,
                                 .postscale = 1,
                                 .tensor_count = 1,
                                 .tensors = &t};
    int64_t ticket = hy_group_start(g, &request, err);

    return ticket < 0 ? (int)ticket : hy_group_wait(g, ticket, err);
}

/* As srun starts it. Rank 2 dies before its last sum if `dies`. The status is 0 if all is as expected. */
static __attribute__((noreturn)) void be_rank(unsigned rank, bool dies)
{
    struct hy_group *g;
    struct hy_err err = {0};
    char text[16];
    float sum = 0;

    snprintf(text, sizeof text, "%u", rank);
    setenv("SLURM_PROCID", text, 1);
    setenv("SLURM_NTASKS", "3", 1);
    setenv("SLURM_JOB_ID", "7", 1);
    setenv("SLURM_STEP_ID", "0", 1);
    if (hy_group_join(&g, &err) < 0 || hy_group_rank(g) != rank || hy_group_size(g) != RANKS)
        exit(1);
    for (int i = 0; i < 10; i++)
        if (sum_of(g, (float)rank, &sum, &err) < 0 || sum != 3)
            exit(2);
    if (dies && rank == 2)
        raise(SIGKILL);
    if (dies && (sum_of(g, 1, &sum, &err) == 0 || !strstr(err.text, "rank 2")))
        exit(3);
    hy_group_leave(g);
    exit(0);
}

static void run_ranks(bool dies)
{
    char dir[] = "/tmp/hopyard-ranks-XXXXXX", command[64];
    pid_t pids[RANKS];

    assert_non_null(mkdtemp(dir));
    setenv("XDG_RUNTIME_DIR", dir, 1);
    for (unsigned r = 0; r < RANKS; r++) {
        pids[r] = fork();
        if (pids[r] == 0)
            be_rank(r, dies);
    }
    for (unsigned r = 0; r < RANKS; r++) {
        int status;

        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        if (status != (dies && r == 2 ? SIGKILL : 0))
            fail_msg("rank %u ended with status %#x", r, (unsigned)status);
    }
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
}

HY_TEST(test_processes_of_a_launcher_form_a_group)
{
    run_ranks(false);
}

HY_TEST(test_the_death_of_a_process_of_a_launcher_is_reported)
{
    run_ranks(true);
}
