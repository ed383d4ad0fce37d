/* SPDX-License-Identifier: Apache-2.0 */
/* A trial's reports to its agent: `hopyard report` and hopyard.report(). */
#include <errno.h>
#include <stdlib.h>

#include "base/err.h"
#include "wire/agent_client.h"
#include "wire/local.h"

/* Without a timeout: the driver may be slow, or wait for its disk. */
static int await_answer(struct hy_agent_client *c, Hy__Decision__Kind *ret_decision, struct hy_err *err)
{
    Hy__TrialReportAnswer *answer;
    int rc;

    do
        rc = hy_agent_client_receive(c, -1, &answer, err);
    while (rc == -EINTR); /* a signal for the trial */
    if (rc == -EPIPE)
        return hy_err_set(err, rc, "the agent does not answer");
    if (rc < 0)
        return rc;
    rc = *answer->error ? hy_err_set(err, -ESTALE, "%s", answer->error) : 0;
    if (rc == 0 && ret_decision)
        *ret_decision = answer->decision;
    hy__trial_report_answer__free_unpacked(answer, NULL);
    return rc;
}

static int deliver(struct hy_agent_client *c, const char *path, const Hy__TrialReport *report,
                   Hy__Decision__Kind *ret_decision, struct hy_err *err)
{
    int rc = c->fd = hy_local_connect(path, err);

    if (rc < 0)
        return rc;
    rc = hy_agent_client_send(c, report);
    return rc < 0 ? hy_err_sys(err, rc, "cannot reach the agent") : await_answer(c, ret_decision, err);
}

int hy_report_send(const Hy__TrialReport *report, Hy__Decision__Kind *ret_decision, struct hy_err *err)
{
    const char *path = getenv("HOPYARD_SOCKET"), *tag = getenv("HOPYARD_TAG");
    struct hy_agent_client client;
    int rc;

    if (!path || !tag)
        return hy_err_set(err, -ENXIO,
                          "not inside a trial: HOPYARD_SOCKET is not set; "
                          "`hopyard run` sets it for the programs that it starts");
    rc = hy_agent_client_init(&client, tag, err);
    if (rc == 0)
        rc = deliver(&client, path, report, ret_decision, err);
    hy_agent_client_done(&client);
    return rc;
}
