/* SPDX-License-Identifier: Apache-2.0 */
/* `hopyard report accuracy=0.91 step=3`, from inside a trial. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/agent.h"
#include "agent/metric.h"
#include "base/mem.h"
#include "wire/wire.h"

#define EXIT_SHOULD_END 3

static const char usage[] = "usage: hopyard report [--check] NAME=VALUE ... [step=N]\n"
                            "\n"
                            "Reports values of a trial, from inside the trial:\n"
                            "\n"
                            "  hopyard report accuracy=0.91 step=3\n"
                            "\n"
                            "The values appear in the live table at once and are kept in the store. The\n"
                            "last value of the run's metric counts if the trial prints none at its end.\n"
                            "\n"
                            "  --check   exit with status 3 if the trial is to end now, because of --stop:\n"
                            "            save what it needs to $HOPYARD_CHECKPOINT, and exit. 0: continue.\n"
                            "            Values are optional with it. It does not wait for the decision about\n"
                            "            these values: that is known a moment later.\n"
                            "\n"
                            "  hopyard report --check loss=0.2 step=3 || exit 0\n"
                            "\n"
                            "Exit status: 0 reported, 1 an error, 3 with --check: the trial is to end.\n";

static int parse(Hy__TrialReport *r, Hy__Metric *metrics, int argc, char **argv, bool *ret_check, struct hy_err *err)
{
    *ret_check = false;
    for (int i = 1; i < argc; i++) {
        Hy__Metric *m = &metrics[r->n_metrics];
        size_t n;
        double value;

        if (strcmp(argv[i], "--check") == 0) {
            *ret_check = true;
            continue;
        }
        if (hy_metric_parse(argv[i], &n, &value) < 0)
            return hy_err_set(err, -EINVAL, "'%s' is not NAME=VALUE with a number as the value", argv[i]);
        if (n == 4 && memcmp(argv[i], "step", 4) == 0) {
            if (!(value >= 0 && value < 0x1p53))
                return hy_err_set(err, -EINVAL, "step takes a non-negative number, not '%s'", argv[i] + 5);
            r->step = (int64_t)value;
            continue;
        }
        if (r->n_metrics == HY_REPORT_METRICS_MAX)
            return hy_err_set(err, -E2BIG, "at most %d values at once", HY_REPORT_METRICS_MAX);
        hy__metric__init(m);
        m->name = hy_strndup(argv[i], n);
        m->value = value;
        if (!m->name)
            return hy_err_oom(err);
        r->metrics[r->n_metrics++] = m;
    }
    if (r->n_metrics == 0 && !*ret_check)
        return hy_err_set(err, -EINVAL, "nothing to report; try `hopyard report accuracy=0.91 step=3`");
    return 0;
}

int hy_report_main(int argc, char **argv)
{
    Hy__TrialReport r = HY__TRIAL_REPORT__INIT;
    Hy__Metric metrics[HY_REPORT_METRICS_MAX], *pointers[HY_REPORT_METRICS_MAX];
    Hy__Decision__Kind decision = HY__DECISION__KIND__CONTINUE;
    struct hy_err err = {0};
    bool check;
    int rc;

    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    r.metrics = pointers;
    r.step = -1;
    rc = parse(&r, metrics, argc, argv, &check, &err);
    if (rc == 0)
        rc = hy_report_send(&r, &decision, &err);
    for (size_t i = 0; i < r.n_metrics; i++)
        free(metrics[i].name);
    if (rc < 0)
        fprintf(stderr, "hopyard report: %s\n", err.text);
    if (rc < 0)
        return 1;
    return check && decision != HY__DECISION__KIND__CONTINUE ? EXIT_SHOULD_END : 0;
}
