/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command that is run when the run has ended (--notify), for example to send a mail or call a webhook. It runs in
 * the user's environment, with the run in HOPYARD_… variables. The end of the run is committed before, and does not
 * depend on it: a failure is only logged.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/string_list.h"
#include "base/text.h"
#include "driver/run.h"
#include "supervise/supervise.h"

#define NOTIFY_MS 30000

static void on_done(void *arg, int status, const char *output)
{
    struct driver *d = arg;

    d->end.notifier = NULL;
    if (status == -ETIMEDOUT)
        hy_warn("the --notify command was killed after %d s", NOTIFY_MS / 1000);
    else if (status != 0)
        hy_warn("the --notify command failed with status %d: %s", status, output);
}

static int add(struct hy_string_list *env, const char *name, const char *value)
{
    return hy_string_list_take(env, hy_asprintf("HOPYARD_%s=%s", name, value ? value : ""));
}

static int make_env(const struct driver *d, struct hy_string_list *env)
{
    char run[32], best[64] = "";
    int rc = 0;

    for (size_t i = 0; i < d->spec->n_env && rc == 0; i++)
        rc = hy_string_list_add(env, d->spec->env[i]);
    snprintf(run, sizeof run, "%lld", (long long)d->run);
    if (d->trials.best.number)
        hy_format_double(d->trials.best.value, best, sizeof best);
    rc = rc < 0 ? rc : add(env, "RUN", run);
    rc = rc < 0 ? rc : add(env, "NAME", d->spec->name);
    rc = rc < 0 ? rc : add(env, "STATE", hy_run_state_name(d->end.state));
    rc = rc < 0 ? rc : add(env, "MESSAGE", d->end.message);
    rc = rc < 0 ? rc : add(env, "METRIC", d->spec->metric);
    rc = rc < 0 ? rc : add(env, "BEST", best);
    return rc < 0 ? rc : add(env, "LOGDIR", d->logdir);
}

void hy_notify_begin(struct driver *d)
{
    char *argv[] = {(char *)"sh", (char *)"-c", d->spec->notify, NULL};
    hy_cleanup_string_list struct hy_string_list env = {0};
    struct hy_err err = {0};
    struct hy_helper_spec spec = {.file = "/bin/sh", .argv = argv, .timeout_ms = NOTIFY_MS};
    int rc = *d->spec->notify ? make_env(d, &env) : 0;

    if (!*d->spec->notify)
        return;
    if (rc == 0)
        rc = hy_array_grow(env.items, env.count); /* for the NULL at its end */
    if (rc == 0) {
        env.items[env.count] = NULL;
        spec.env = env.items;
        rc = hy_helper_start(&d->loop, &spec, on_done, d, &d->end.notifier, &err);
    }
    if (rc < 0)
        hy_warn("cannot run the --notify command: %s", err.text[0] ? err.text : strerror(-rc));
}

bool hy_notify_is_over(const struct driver *d)
{
    return !d->end.notifier;
}
