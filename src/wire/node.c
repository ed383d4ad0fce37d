/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "wire/local.h"

#define LOOK_UP_MS 100

static int say(int fd, const char *tag, Hy__GroupWord *word, struct hy_err *err)
{
    Hy__TrialReport report = HY__TRIAL_REPORT__INIT;
    hy_cleanup_free uint8_t *bytes = NULL;
    int rc;

    report.token = (ProtobufCBinaryData){strlen(tag), (uint8_t *)tag};
    report.step = -1;
    report.group = word;
    bytes = hy_malloc(hy__trial_report__get_packed_size(&report));
    rc = bytes ? hy_local_put(fd, bytes, hy__trial_report__pack(&report, bytes)) : -ENOMEM;
    return rc < 0 ? hy_err_sys(err, rc, "cannot tell the agent how this node does") : 0;
}

static int say_join(int fd, const char *tag, const struct hy_presence *where, struct hy_err *err)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;
    Hy__NodeJoin join = HY__NODE_JOIN__INIT;

    join.addresses = where->addresses;
    join.n_addresses = where->address_count;
    join.port = where->port;
    word.body_case = HY__GROUP_WORD__BODY_NODE;
    word.node = &join;
    return say(fd, tag, &word, err);
}

int hy_node_serves(int fd, struct hy_err *err)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;
    const char *tag = getenv("HOPYARD_TAG");

    if (!tag)
        return hy_err_set(err, -ENXIO, "not inside a node of a cluster: HOPYARD_TAG is not set");
    word.body_case = HY__GROUP_WORD__BODY_SERVES;
    word.serves = true;
    return say(fd, tag, &word, err);
}

static bool is_whole(const Hy__Nodes *nodes)
{
    return nodes->self < nodes->n_nodes;
}

/* 1: *ret is the list; 0: it was something else. */
static int take(const struct hy_buf *message, Hy__TrialReportAnswer **ret, struct hy_err *err)
{
    Hy__TrialReportAnswer *answer = hy__trial_report_answer__unpack(NULL, message->len, hy_buf_bytes(message));
    const Hy__GroupWord *word = answer ? answer->group : NULL;
    int rc = 0;

    if (!answer)
        return hy_err_set(err, -EPROTO, "the agent's answer makes no sense; is it of another version?");
    if (*answer->error)
        rc = hy_err_set(err, -ECONNABORTED, "%s", answer->error);
    else if (word && word->body_case == HY__GROUP_WORD__BODY_NODES)
        rc = is_whole(word->nodes) ? 1 : hy_err_set(err, -EPROTO, "the driver's list of nodes makes no sense");
    if (rc == 1)
        *ret = answer;
    else
        hy__trial_report_answer__free_unpacked(answer, NULL);
    return rc;
}

static int await(int fd, bool (*give_up)(void *arg), void *arg, Hy__TrialReportAnswer **ret, struct hy_err *err)
{
    hy_cleanup_buf struct hy_buf rest, message;
    int rc = 0;

    hy_buf_init(&rest, HY_LOCAL_MAX + 64u * 1024);
    hy_buf_init(&message, HY_LOCAL_MAX);
    while (rc == 0) {
        rc = hy_local_get(fd, &rest, &message, LOOK_UP_MS);
        if (rc > 0)
            rc = take(&message, ret, err);
        else if (rc == -EAGAIN || rc == -EINTR)
            rc = give_up(arg) ? hy_err_set(err, -EINTR, "interrupted while waiting for the other nodes") : 0;
        else
            rc = hy_err_set(err, -ECONNABORTED, "the agent of this node is gone, and the cluster with it");
    }
    return rc < 0 ? rc : 0;
}

int hy_node_join(const struct hy_presence *where, bool (*give_up)(void *arg), void *arg, Hy__TrialReportAnswer **ret,
                 struct hy_err *err)
{
    const char *path = getenv("HOPYARD_SOCKET"), *tag = getenv("HOPYARD_TAG");
    hy_cleanup_close int fd = -1;
    int rc;

    if (!path || !tag || !getenv("HOPYARD_NODE"))
        return hy_err_set(err, -ENXIO, "not inside a node of a cluster: HOPYARD_NODE is not set");
    fd = rc = hy_local_connect(path, err);
    if (rc >= 0)
        rc = say_join(fd, tag, where, err);
    if (rc >= 0)
        rc = await(fd, give_up, arg, ret, err);
    return rc < 0 ? rc : hy_take_fd(fd);
}
