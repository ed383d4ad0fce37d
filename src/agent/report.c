/* SPDX-License-Identifier: Apache-2.0 */
/* `hopyard report accuracy=0.91 step=3`, from inside a trial. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/agent.h"
#include "agent/metric.h"
#include "base/buf.h"
#include "base/mem.h"
#include "wire/wire.h"

#define METRICS_MAX 64
#define ANSWER_MS 10000

static const char usage[] =
    "usage: hopyard report NAME=VALUE ... [step=N]\n"
    "\n"
    "Tells the run how a trial is doing, from inside the trial:\n"
    "\n"
    "  hopyard report accuracy=0.91 step=3\n"
    "\n"
    "The values appear in the live table at once and are kept in the store. The\n"
    "last value of the run's metric counts if the trial prints none at its end.\n";

static int parse(Hy__TrialReport *r, Hy__Metric *metrics, int argc, char **argv, struct hy_err *err)
{
    for (int i = 1; i < argc; i++) {
        Hy__Metric *m = &metrics[r->n_metrics];
        size_t n;
        double value;

        if (hy_metric_parse(argv[i], &n, &value) < 0)
            return hy_err_set(err, -EINVAL, "'%s' is not NAME=VALUE with a number as the value", argv[i]);
        if (n == 4 && memcmp(argv[i], "step", 4) == 0) {
            if (!(value >= 0 && value < 0x1p53))
                return hy_err_set(err, -EINVAL, "step takes a number from 0 on, not '%s'", argv[i] + 5);
            r->step = (int64_t)value;
            continue;
        }
        if (r->n_metrics == METRICS_MAX)
            return hy_err_set(err, -E2BIG, "at most %d values at once", METRICS_MAX);
        hy__metric__init(m);
        m->name = hy_strndup(argv[i], n);
        m->value = value;
        if (!m->name)
            return hy_err_set(err, -ENOMEM, "out of memory");
        r->metrics[r->n_metrics++] = m;
    }
    if (r->n_metrics == 0)
        return hy_err_set(err, -EINVAL, "nothing to report; try `hopyard report accuracy=0.91 step=3`");
    return 0;
}

static int await_answer(int fd, struct hy_err *err)
{
    hy_cleanup_buf struct hy_buf rest, message;
    Hy__TrialReportAnswer *answer;
    int rc;

    hy_buf_init(&rest, HY_LOCAL_MAX);
    hy_buf_init(&message, HY_LOCAL_MAX);
    rc = hy_local_get(fd, &rest, &message, ANSWER_MS);
    if (rc <= 0)
        return hy_err_set(err, rc < 0 ? rc : -EPIPE, "the agent does not answer");
    answer = hy__trial_report_answer__unpack(NULL, message.len, hy_buf_bytes(&message));
    if (!answer)
        return hy_err_set(err, -EPROTO, "the agent's answer makes no sense; is it of another version?");
    rc = *answer->error ? hy_err_set(err, -ESTALE, "%s", answer->error) : 0;
    hy__trial_report_answer__free_unpacked(answer, NULL);
    return rc;
}

static int deliver(const Hy__TrialReport *r, struct hy_err *err)
{
    const char *path = getenv("HOPYARD_SOCKET");
    size_t size = hy__trial_report__get_packed_size(r);
    hy_cleanup_free uint8_t *bytes = hy_malloc(size);
    hy_cleanup_close int fd = -1;
    int rc;

    if (!bytes)
        return hy_err_set(err, -ENOMEM, "out of memory");
    fd = hy_local_connect(path, err);
    if (fd < 0)
        return fd;
    rc = hy_local_put(fd, bytes, hy__trial_report__pack(r, bytes));
    return rc < 0 ? hy_err_sys(err, rc, "cannot reach the agent") : await_answer(fd, err);
}

int hy_report_main(int argc, char **argv)
{
    const char *tag = getenv("HOPYARD_TAG");
    Hy__TrialReport r = HY__TRIAL_REPORT__INIT;
    Hy__Metric metrics[METRICS_MAX], *pointers[METRICS_MAX];
    struct hy_err err = {0};
    int rc;

    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    r.metrics = pointers;
    r.step = -1;
    rc = parse(&r, metrics, argc, argv, &err);
    if (rc == 0 && (!tag || !getenv("HOPYARD_SOCKET")))
        rc = hy_err_set(&err, -ENXIO, "not inside a trial: HOPYARD_SOCKET is not set; `hopyard run` sets it for what it starts");
    if (rc == 0) {
        r.token.data = (uint8_t *)tag;
        r.token.len = strlen(tag);
        rc = deliver(&r, &err);
    }
    for (size_t i = 0; i < r.n_metrics; i++)
        free(metrics[i].name);
    if (rc < 0)
        fprintf(stderr, "hopyard report: %s\n", err.text);
    return rc < 0 ? 1 : 0;
}
