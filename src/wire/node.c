/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/node.h"

#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"
#include "wire/agent_client.h"
#include "wire/local.h"

#define POLL_INTERVAL_MS 100

struct hy_node_link {
    struct hy_agent_client agent;
    Hy__TrialReportAnswer *list; /* NULL: not all nodes have joined */
    bool feed_ended, may_exit;
};

/* ---- to the agent ----------------------------------------------------------------------- */

static int send_word(struct hy_node_link *n, Hy__GroupWord *word, struct hy_err *err)
{
    int rc = hy_agent_client_send_word(&n->agent, word);

    return rc < 0 ? hy_err_sys(err, rc, "cannot report the state of this node to its agent") : 0;
}

static int send_join(struct hy_node_link *n, const struct hy_node_address *address, struct hy_err *err)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;
    Hy__NodeJoin join = HY__NODE_JOIN__INIT;

    join.addresses = address->addresses;
    join.n_addresses = address->address_count;
    join.port = address->port;
    word.body_case = HY__GROUP_WORD__BODY_NODE;
    word.node = &join;
    return send_word(n, &word, err);
}

int hy_node_report_serving(struct hy_node_link *n, struct hy_err *err)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;

    word.body_case = HY__GROUP_WORD__BODY_SERVES;
    word.serves = true;
    return send_word(n, &word, err);
}

/* ---- from the agent ----------------------------------------------------------------------- */

static bool is_valid(const Hy__Nodes *nodes)
{
    return nodes->self < nodes->n_nodes;
}

/* Frees the answer, or keeps it as the list. */
static int take_answer(struct hy_node_link *n, Hy__TrialReportAnswer *answer, struct hy_err *err)
{
    const Hy__GroupWord *word = answer->group;
    int rc = 0;

    if (*answer->error && !n->list)
        rc = hy_err_set(err, -ECONNABORTED, "%s", answer->error);
    else if (word && word->body_case == HY__GROUP_WORD__BODY_FED)
        n->feed_ended = true;
    else if (word && word->body_case == HY__GROUP_WORD__BODY_DONE)
        n->may_exit = true;
    else if (word && word->body_case == HY__GROUP_WORD__BODY_NODES && !n->list) {
        if (is_valid(word->nodes)) {
            n->list = answer;
            return 0;
        }
        rc = hy_err_set(err, -EPROTO, "the driver's list of nodes is invalid");
    }
    hy__trial_report_answer__free_unpacked(answer, NULL);
    return rc;
}

/* One notification: 1, 0 after timeout_ms, or -Exxx. */
static int receive(struct hy_node_link *n, int timeout_ms, struct hy_err *err)
{
    Hy__TrialReportAnswer *answer;
    int rc = hy_agent_client_receive(&n->agent, timeout_ms, &answer, err);

    if (rc == -EINTR)
        return 0;
    if (rc == -EPIPE)
        return hy_err_set(err, rc, "the agent of this node is gone, and the cluster with it");
    if (rc <= 0)
        return rc;
    rc = take_answer(n, answer, err);
    return rc < 0 ? rc : 1;
}

static int wait_for_word(struct hy_node_link *n, bool (*give_up)(void *arg), void *arg, struct hy_err *err)
{
    int rc = receive(n, POLL_INTERVAL_MS, err);

    if (rc == 0 && give_up(arg))
        return hy_err_set(err, -EINTR, "interrupted while waiting for the other nodes");
    return rc < 0 ? rc : 0;
}

int hy_node_finish(struct hy_node_link *n, bool (*give_up)(void *arg), void *arg, struct hy_err *err)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;
    int rc;

    word.body_case = HY__GROUP_WORD__BODY_DONE;
    word.done = true;
    rc = send_word(n, &word, err);
    while (rc == 0 && !n->may_exit)
        rc = wait_for_word(n, give_up, arg, err);
    return rc;
}

int hy_node_receive(struct hy_node_link *n)
{
    struct hy_err err;
    int rc;

    do
        rc = receive(n, 0, &err);
    while (rc > 0);
    return rc;
}

/* ---- joining and leaving ------------------------------------------------------------------ */

void hy_node_leave(struct hy_node_link *n)
{
    if (!n)
        return;
    if (n->list)
        hy__trial_report_answer__free_unpacked(n->list, NULL);
    hy_agent_client_done(&n->agent);
    free(n);
}

static int join(struct hy_node_link *n, const char *path, const char *tag, const struct hy_node_address *address,
                struct hy_err *err)
{
    int rc = hy_agent_client_init(&n->agent, tag, err);

    if (rc == 0)
        rc = n->agent.fd = hy_local_connect(path, err);
    return rc < 0 ? rc : send_join(n, address, err);
}

int hy_node_join(const struct hy_node_address *address, bool (*give_up)(void *arg), void *arg,
                 struct hy_node_link **ret, struct hy_err *err)
{
    const char *path = getenv("HOPYARD_SOCKET"), *tag = getenv("HOPYARD_TAG");
    struct hy_node_link *n;
    int rc;

    if (!path || !tag || !getenv("HOPYARD_NODE"))
        return hy_err_set(err, -ENXIO, "not inside a node of a cluster: HOPYARD_NODE is not set");
    n = hy_calloc(1, sizeof *n);
    if (!n)
        return hy_err_oom(err);
    rc = join(n, path, tag, address, err);
    while (rc == 0 && !n->list)
        rc = wait_for_word(n, give_up, arg, err);
    if (rc < 0) {
        hy_node_leave(n);
        return rc;
    }
    *ret = n;
    return 0;
}

const Hy__Nodes *hy_node_list(const struct hy_node_link *n)
{
    return n->list->group->nodes;
}

int hy_node_socket(const struct hy_node_link *n)
{
    return n->agent.fd;
}

bool hy_node_feed_ended(const struct hy_node_link *n)
{
    return n->feed_ended;
}
