/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/agent_client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "wire/local.h"

#define READ_AHEAD (64u * 1024) /* bytes after a message that are read with it */

int hy_agent_client_init(struct hy_agent_client *c, const char *tag, struct hy_err *err)
{
    *c = (struct hy_agent_client){.fd = -1, .tag = hy_strdup(tag)};
    hy_buf_init(&c->rest, HY_LOCAL_MAX + READ_AHEAD);
    hy_buf_init(&c->message, HY_LOCAL_MAX);
    return c->tag ? 0 : hy_err_oom(err);
}

void hy_agent_client_done(struct hy_agent_client *c)
{
    hy_close_at(&c->fd);
    hy_buf_done(&c->rest);
    hy_buf_done(&c->message);
    free(hy_take(c->tag));
}

int hy_agent_client_send(const struct hy_agent_client *c, const Hy__TrialReport *report)
{
    Hy__TrialReport tagged = *report;
    hy_cleanup_free uint8_t *bytes = NULL;

    tagged.token = (ProtobufCBinaryData){strlen(c->tag), (uint8_t *)c->tag};
    bytes = hy_malloc(hy__trial_report__get_packed_size(&tagged));
    return bytes ? hy_local_put(c->fd, bytes, hy__trial_report__pack(&tagged, bytes)) : -ENOMEM;
}

int hy_agent_client_send_word(const struct hy_agent_client *c, Hy__GroupWord *word)
{
    Hy__TrialReport report = HY__TRIAL_REPORT__INIT;

    report.step = -1;
    report.group = word;
    return hy_agent_client_send(c, &report);
}

int hy_agent_client_receive(struct hy_agent_client *c, int timeout_ms, Hy__TrialReportAnswer **ret, struct hy_err *err)
{
    int rc = hy_local_get(c->fd, &c->rest, &c->message, timeout_ms);

    if (rc == -EAGAIN)
        return 0;
    if (rc == -EINTR)
        return rc;
    if (rc <= 0)
        return -EPIPE;
    *ret = hy__trial_report_answer__unpack(NULL, c->message.len, hy_buf_bytes(&c->message));
    return *ret ? 1 : hy_err_set(err, -EPROTO, "the agent's answer is invalid; is the agent a different version?");
}
