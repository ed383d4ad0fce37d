/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "wire/local.h"

#define LOOK_UP_MS 100

struct hy_node_link {
    int fd;
    char *tag;
    struct hy_buf rest, message;
    Hy__TrialReportAnswer *list; /* NULL: not all are there */
    bool is_fed, may_go;
};

static int say(struct hy_node_link *n, Hy__GroupWord *word, struct hy_err *err)
{
    Hy__TrialReport report = HY__TRIAL_REPORT__INIT;
    hy_cleanup_free uint8_t *bytes = NULL;
    int rc;

    report.token = (ProtobufCBinaryData){strlen(n->tag), (uint8_t *)n->tag};
    report.step = -1;
    report.group = word;
    bytes = hy_malloc(hy__trial_report__get_packed_size(&report));
    rc = bytes ? hy_local_put(n->fd, bytes, hy__trial_report__pack(&report, bytes)) : -ENOMEM;
    return rc < 0 ? hy_err_sys(err, rc, "cannot tell the agent how this node does") : 0;
}

static int say_join(struct hy_node_link *n, const struct hy_presence *where, struct hy_err *err)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;
    Hy__NodeJoin join = HY__NODE_JOIN__INIT;

    join.addresses = where->addresses;
    join.n_addresses = where->address_count;
    join.port = where->port;
    word.body_case = HY__GROUP_WORD__BODY_NODE;
    word.node = &join;
    return say(n, &word, err);
}

int hy_node_serves(struct hy_node_link *n, struct hy_err *err)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;

    word.body_case = HY__GROUP_WORD__BODY_SERVES;
    word.serves = true;
    return say(n, &word, err);
}

/* ---- what the agent says --------------------------------------------------------------- */

static bool is_whole(const Hy__Nodes *nodes)
{
    return nodes->self < nodes->n_nodes;
}

static int take(struct hy_node_link *n, struct hy_err *err)
{
    Hy__TrialReportAnswer *answer = hy__trial_report_answer__unpack(NULL, n->message.len, hy_buf_bytes(&n->message));
    const Hy__GroupWord *word = answer ? answer->group : NULL;
    int rc = 0;

    if (!answer)
        return hy_err_set(err, -EPROTO, "the agent's answer makes no sense; is it of another version?");
    if (*answer->error && !n->list)
        rc = hy_err_set(err, -ECONNABORTED, "%s", answer->error);
    else if (word && word->body_case == HY__GROUP_WORD__BODY_FED)
        n->is_fed = true;
    else if (word && word->body_case == HY__GROUP_WORD__BODY_DONE)
        n->may_go = true;
    else if (word && word->body_case == HY__GROUP_WORD__BODY_NODES && !n->list) {
        if (is_whole(word->nodes)) {
            n->list = answer;
            return 0;
        }
        rc = hy_err_set(err, -EPROTO, "the driver's list of nodes makes no sense");
    }
    hy__trial_report_answer__free_unpacked(answer, NULL);
    return rc;
}

/* One word: 1, 0 when there was none, or -Exxx. */
static int next(struct hy_node_link *n, int timeout_ms, struct hy_err *err)
{
    int rc = hy_local_get(n->fd, &n->rest, &n->message, timeout_ms);

    if (rc == -EAGAIN || rc == -EINTR)
        return 0;
    if (rc <= 0)
        return hy_err_set(err, -EPIPE, "the agent of this node is gone, and the cluster with it");
    rc = take(n, err);
    return rc < 0 ? rc : 1;
}

/* For another word of the driver's. */
static int await(struct hy_node_link *n, bool (*give_up)(void *arg), void *arg, struct hy_err *err)
{
    int rc = next(n, LOOK_UP_MS, err);

    if (rc == 0 && give_up(arg))
        return hy_err_set(err, -EINTR, "interrupted while waiting for the other nodes");
    return rc < 0 ? rc : 0;
}

int hy_node_stay(struct hy_node_link *n, bool (*give_up)(void *arg), void *arg, struct hy_err *err)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;
    int rc;

    word.body_case = HY__GROUP_WORD__BODY_DONE;
    word.done = true;
    rc = say(n, &word, err);
    while (rc == 0 && !n->may_go)
        rc = await(n, give_up, arg, err);
    return rc;
}

int hy_node_hear(struct hy_node_link *n)
{
    struct hy_err err;
    int rc;

    do
        rc = next(n, 0, &err);
    while (rc > 0);
    return rc;
}

/* ---- life ------------------------------------------------------------------------------- */

void hy_node_leave(struct hy_node_link *n)
{
    if (!n)
        return;
    if (n->fd >= 0)
        close(n->fd);
    if (n->list)
        hy__trial_report_answer__free_unpacked(n->list, NULL);
    hy_buf_done(&n->rest);
    hy_buf_done(&n->message);
    free(n->tag);
    free(n);
}

static int join(struct hy_node_link *n, const char *path, const struct hy_presence *where, struct hy_err *err)
{
    if (!n->tag)
        return hy_err_oom(err);
    n->fd = hy_local_connect(path, err);
    return n->fd < 0 ? n->fd : say_join(n, where, err);
}

int hy_node_join(const struct hy_presence *where, bool (*give_up)(void *arg), void *arg, struct hy_node_link **ret,
                 struct hy_err *err)
{
    const char *path = getenv("HOPYARD_SOCKET"), *tag = getenv("HOPYARD_TAG");
    struct hy_node_link *n;
    int rc;

    if (!path || !tag || !getenv("HOPYARD_NODE"))
        return hy_err_set(err, -ENXIO, "not inside a node of a cluster: HOPYARD_NODE is not set");
    n = hy_calloc(1, sizeof *n);
    if (!n)
        return hy_err_oom(err);
    n->fd = -1;
    n->tag = hy_strdup(tag);
    hy_buf_init(&n->rest, HY_LOCAL_MAX + 64u * 1024);
    hy_buf_init(&n->message, HY_LOCAL_MAX);
    rc = join(n, path, where, err);
    while (rc == 0 && !n->list)
        rc = await(n, give_up, arg, err);
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
    return n->fd;
}

bool hy_node_is_fed(const struct hy_node_link *n)
{
    return n->is_fed;
}
