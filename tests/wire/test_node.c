/* SPDX-License-Identifier: Apache-2.0 */
/* node: joining a cluster, notifications, and the end, with an agent that is a thread of this process. */
#include "support.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "wire/agent_client.h"
#include "wire/local.h"
#include "wire/node.h"

#define REPORTS_MAX 4

/* The agent accepts one connection and plays its part on it. */
struct agent {
    char dir[64], path[80];
    int listener, fd;
    bool is_over, has_failed; /* after a failure it only closes the connection */
    void (*play)(struct agent *a);
    pthread_t thread;
    struct hy_buf rest, message;
    Hy__TrialReport *reports[REPORTS_MAX]; /* received */
    size_t count;
};

/* ---- what the agent does ------------------------------------------------------------------ */

static void receive_report(struct agent *a)
{
    if (a->has_failed || hy_local_get(a->fd, &a->rest, &a->message, 10000) != 1 || a->count == REPORTS_MAX)
        a->has_failed = true;
    else
        a->reports[a->count++] = hy__trial_report__unpack(NULL, a->message.len, hy_buf_bytes(&a->message));
}

static void answer(struct agent *a, const char *error, Hy__GroupWord *word)
{
    Hy__TrialReportAnswer answer = HY__TRIAL_REPORT_ANSWER__INIT;
    uint8_t bytes[512];

    answer.error = (char *)error;
    answer.group = word;
    if (a->has_failed || hy_local_put(a->fd, bytes, hy__trial_report_answer__pack(&answer, bytes)) < 0)
        a->has_failed = true;
}

static void send_nodes(struct agent *a, uint32_t self)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;
    Hy__Nodes nodes = HY__NODES__INIT;
    Hy__Node chief = HY__NODE__INIT, worker = HY__NODE__INIT;

    chief.role = (char *)"chief";
    worker.role = (char *)"worker";
    worker.port = 4712;
    nodes.self = self;
    nodes.n_nodes = 2;
    nodes.nodes = (Hy__Node *[]){&chief, &worker};
    word.body_case = HY__GROUP_WORD__BODY_NODES;
    word.nodes = &nodes;
    answer(a, "", &word);
}

static void send_flag(struct agent *a, Hy__GroupWord__BodyCase kind)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;

    word.body_case = kind;
    word.fed = true; /* the flags share their place */
    answer(a, "", &word);
}

static void play_life(struct agent *a)
{
    receive_report(a);
    send_flag(a, HY__GROUP_WORD__BODY_FED); /* may come before the list */
    send_nodes(a, 1);
    receive_report(a); /* it serves */
    receive_report(a); /* it is done */
    send_nodes(a, 0);  /* a second list is ignored */
    send_flag(a, HY__GROUP_WORD__BODY_DONE);
}

static void play_refusal(struct agent *a)
{
    receive_report(a);
    answer(a, "the cluster has no room", NULL);
}

static void play_invalid_list(struct agent *a)
{
    receive_report(a);
    send_nodes(a, 2);
}

static void play_garbage(struct agent *a)
{
    receive_report(a);
    hy_local_put(a->fd, (const uint8_t *)"\xff\xff\xff", 3);
}

static void play_death(struct agent *a)
{
    receive_report(a);
}

static void play_silence(struct agent *a)
{
    receive_report(a);
    receive_report(a); /* until the node has left */
}

static void play_death_later(struct agent *a)
{
    receive_report(a);
    send_nodes(a, 0);
    receive_report(a);
}

/* ---- the agent -------------------------------------------------------------------------- */

static void *run_agent(void *arg)
{
    struct agent *a = arg;

    a->fd = accept(a->listener, NULL, NULL);
    if (a->fd < 0)
        return NULL;
    a->play(a);
    close(a->fd);
    return NULL;
}

static void start_agent(struct agent *a, void (*play)(struct agent *a))
{
    struct sockaddr_un where;
    struct hy_err err = {0};

    *a = (struct agent){.dir = "/tmp/hopyard-node-XXXXXX", .play = play};
    assert_non_null(mkdtemp(a->dir));
    snprintf(a->path, sizeof a->path, "%s/socket", a->dir);
    hy_buf_init(&a->rest, SIZE_MAX);
    hy_buf_init(&a->message, SIZE_MAX);
    assert_int_equal(hy_local_address(a->path, &where, &err), 0);
    a->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(a->listener, (struct sockaddr *)&where, sizeof where), 0);
    assert_int_equal(listen(a->listener, 1), 0);
    assert_int_equal(pthread_create(&a->thread, NULL, run_agent, a), 0);
    setenv("HOPYARD_SOCKET", a->path, 1);
    setenv("HOPYARD_TAG", "7.2.1", 1);
    setenv("HOPYARD_NODE", "worker:0", 1);
}

static void await_agent(struct agent *a)
{
    if (!a->is_over)
        pthread_join(a->thread, NULL);
    a->is_over = true;
}

/* An agent that nobody has connected to ends as well. */
static void end_agent(struct agent *a)
{
    shutdown(a->listener, SHUT_RDWR);
    await_agent(a);
    close(a->listener);
    unlink(a->path);
    rmdir(a->dir);
    for (size_t i = 0; i < a->count; i++)
        hy__trial_report__free_unpacked(a->reports[i], NULL);
    hy_buf_done(&a->rest);
    hy_buf_done(&a->message);
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static bool at_once(void *arg)
{
    ++*(int *)arg;
    return true;
}

static int join(struct hy_node_link **ret, struct hy_err *err)
{
    static char *addresses[] = {(char *)"10.0.0.2", (char *)"10.1.0.2"};
    const struct hy_node_address address = {addresses, 2, 4711};

    return hy_node_join(&address, never, NULL, ret, err);
}

/* ---- a node's life ------------------------------------------------------------------------- */

HY_TEST(test_a_node_joins_serves_and_finishes)
{
    struct hy_node_link *n = NULL;
    struct hy_err err = {0};
    struct agent a;

    start_agent(&a, play_life);
    assert_int_equal(join(&n, &err), 0);
    assert_true(hy_node_feed_ended(n));
    assert_true(hy_node_socket(n) >= 0);
    assert_int_equal(hy_node_list(n)->n_nodes, 2);
    assert_int_equal(hy_node_list(n)->self, 1);
    assert_string_equal(hy_node_list(n)->nodes[1]->role, "worker");
    assert_int_equal(hy_node_receive(n), 0); /* nothing has arrived */
    assert_int_equal(hy_node_report_serving(n, &err), 0);
    assert_int_equal(hy_node_finish(n, never, NULL, &err), 0);
    assert_int_equal(hy_node_list(n)->self, 1);
    hy_node_leave(n);
    end_agent(&a);
}

HY_TEST(test_the_agent_receives_addresses_and_states_with_the_token)
{
    struct hy_node_link *n = NULL;
    struct hy_err err = {0};
    struct agent a;

    start_agent(&a, play_life);
    assert_int_equal(join(&n, &err), 0);
    assert_int_equal(hy_node_report_serving(n, &err), 0);
    assert_int_equal(hy_node_finish(n, never, NULL, &err), 0);
    hy_node_leave(n);
    await_agent(&a);
    assert_int_equal(a.count, 3);
    for (size_t i = 0; i < a.count; i++)
        assert_memory_equal(a.reports[i]->token.data, "7.2.1", 5);
    assert_int_equal(a.reports[0]->group->body_case, HY__GROUP_WORD__BODY_NODE);
    assert_int_equal(a.reports[0]->group->node->port, 4711);
    assert_int_equal(a.reports[0]->group->node->n_addresses, 2);
    assert_string_equal(a.reports[0]->group->node->addresses[1], "10.1.0.2");
    assert_int_equal(a.reports[1]->group->body_case, HY__GROUP_WORD__BODY_SERVES);
    assert_int_equal(a.reports[2]->group->body_case, HY__GROUP_WORD__BODY_DONE);
    end_agent(&a);
}

/* ---- errors -------------------------------------------------------------------------------- */

static void assert_not_joined(void (*play)(struct agent *a), int code, const char *sentence)
{
    struct hy_node_link *n = NULL;
    struct hy_err err = {0};
    struct agent a;

    start_agent(&a, play);
    assert_int_equal(join(&n, &err), code);
    assert_null(n);
    if (!strstr(err.text, sentence))
        fail_msg("'%s' is not in: %s", sentence, err.text);
    end_agent(&a);
}

HY_TEST(test_invalid_answers_and_the_agents_end_are_errors)
{
    assert_not_joined(play_refusal, -ECONNABORTED, "the cluster has no room");
    assert_not_joined(play_invalid_list, -EPROTO, "list of nodes is invalid");
    assert_not_joined(play_garbage, -EPROTO, "is the agent a different version?");
    assert_not_joined(play_death, -EPIPE, "the agent of this node is gone");
}

HY_TEST(test_an_agent_that_dies_later_is_noticed)
{
    struct hy_node_link *n = NULL;
    struct hy_err err = {0};
    struct agent a;

    start_agent(&a, play_death_later);
    assert_int_equal(join(&n, &err), 0);
    assert_int_equal(hy_node_report_serving(n, &err), 0); /* it closes the connection now */
    await_agent(&a);
    assert_int_equal(hy_node_receive(n), -EPIPE);
    assert_true(hy_node_finish(n, never, NULL, &err) < 0);
    assert_non_null(strstr(err.text, "cannot report the state of this node"));
    hy_node_leave(n);
    end_agent(&a);
}

HY_TEST(test_waiting_can_be_given_up)
{
    const struct hy_node_address address = {NULL, 0, 4711};
    struct hy_node_link *n = NULL;
    struct hy_err err = {0};
    struct agent a;
    int calls = 0;

    start_agent(&a, play_silence);
    assert_int_equal(hy_node_join(&address, at_once, &calls, &n, &err), -EINTR);
    assert_int_equal(calls, 1);
    assert_non_null(strstr(err.text, "interrupted while waiting for the other nodes"));
    end_agent(&a);
}

HY_TEST(test_outside_a_cluster_and_without_an_agent)
{
    struct hy_node_link *n = NULL;
    struct hy_err err = {0};

    unsetenv("HOPYARD_NODE");
    assert_int_equal(join(&n, &err), -ENXIO);
    setenv("HOPYARD_NODE", "worker:0", 1);
    setenv("HOPYARD_TAG", "1.1.1", 1);
    setenv("HOPYARD_SOCKET", "/tmp/hopyard-node-missing", 1);
    assert_int_equal(join(&n, &err), -ENOENT);
    assert_non_null(strstr(err.text, "cannot connect to"));
    hy_node_leave(NULL);
}

static int whole_life(void *arg)
{
    struct hy_node_link *n = NULL;
    struct hy_err err = {0};
    struct agent *a = arg;
    int rc;

    start_agent(a, play_life);
    rc = join(&n, &err);
    if (rc == 0)
        rc = hy_node_report_serving(n, &err);
    if (rc == 0)
        rc = hy_node_finish(n, never, NULL, &err);
    hy_node_leave(n);
    end_agent(a);
    return rc;
}

HY_TEST(test_failures_of_calls_and_allocations_are_errors)
{
    struct agent a;

    hy_each_fault(HY_SEAM_ALLOC, whole_life, &a);
    hy_each_fault(HY_SEAM_SYS, whole_life, &a);
}
