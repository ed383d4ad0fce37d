/* SPDX-License-Identifier: Apache-2.0 */
/* What a trial tells its agent: `hopyard report` and hopyard.report(). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "wire/local.h"

static int take_answer(const struct hy_buf *message, struct hy_err *err)
{
    Hy__TrialReportAnswer *answer;
    int rc;

    answer = hy__trial_report_answer__unpack(NULL, message->len, hy_buf_bytes(message));
    if (!answer)
        return hy_err_set(err, -EPROTO, "the agent's answer makes no sense; is it of another version?");
    rc = *answer->error ? hy_err_set(err, -ESTALE, "%s", answer->error) : 0;
    hy__trial_report_answer__free_unpacked(answer, NULL);
    return rc;
}

static int await_answer(int fd, struct hy_err *err)
{
    hy_cleanup_buf struct hy_buf rest, message;
    int rc;

    hy_buf_init(&rest, HY_LOCAL_MAX);
    hy_buf_init(&message, HY_LOCAL_MAX);
    do /* for as long as its agent lives: the driver may be behind, or wait for its disk */
        rc = hy_local_get(fd, &rest, &message, -1);
    while (rc == -EINTR); /* a signal of the trial's own */
    if (rc <= 0)
        return hy_err_set(err, rc < 0 ? rc : -EPIPE, "the agent does not answer");
    return take_answer(&message, err);
}

static int deliver(const Hy__TrialReport *report, const char *path, struct hy_err *err)
{
    hy_cleanup_free uint8_t *bytes = hy_malloc(hy__trial_report__get_packed_size(report));
    hy_cleanup_close int fd = -1;
    int rc;

    if (!bytes)
        return hy_err_oom(err);
    fd = hy_local_connect(path, err);
    if (fd < 0)
        return fd;
    rc = hy_local_put(fd, bytes, hy__trial_report__pack(report, bytes));
    return rc < 0 ? hy_err_sys(err, rc, "cannot reach the agent") : await_answer(fd, err);
}

int hy_report_send(const Hy__TrialReport *report, struct hy_err *err)
{
    const char *path = getenv("HOPYARD_SOCKET"), *tag = getenv("HOPYARD_TAG");
    Hy__TrialReport signed_report = *report;

    if (!path || !tag)
        return hy_err_set(err, -ENXIO,
                          "not inside a trial: HOPYARD_SOCKET is not set; "
                          "`hopyard run` sets it for what it starts");
    signed_report.token = (ProtobufCBinaryData){strlen(tag), (uint8_t *)tag};
    return deliver(&signed_report, path, err);
}
