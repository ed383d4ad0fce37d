/* SPDX-License-Identifier: Apache-2.0 */
/* `run` and `attach`. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/cli.h"
#include "cli/project.h"
#include "cli/commands.h"
#include "client/client.h"
#include "cli/signals.h"
#include "cli/run_spec.h"
#include "cli/start.h"
#include "cli/tensorboard.h"
#include "cli/watch.h"
#include "driver/driver.h"

/* Short enough to type again. */
static uint64_t random_seed(void)
{
    struct hy_rng rng;
    uint64_t seed;

    if (getrandom(&seed, sizeof seed, 0) != sizeof seed)
        seed = (uint64_t)hy_clock_wall_ms() ^ (uint64_t)getpid() << 32;
    hy_rng_seed(&rng, seed, 0);
    return 1 + hy_rng_below(&rng, 999999999);
}

/* On standard error, because a program may read standard output. */
static void print_notes(const struct hy_args *args, const Hy__RunSpec *spec)
{
    hy_cleanup_out struct hy_out out = {0};
    const char *unused = hy_spec_unused(spec);
    hy_cleanup_free char *name = unused ? hy_strndup(unused, strcspn(unused, "=")) : NULL;
    struct hy_style style;

    hy_style_of(STDERR_FILENO, &style);
    hy_out_init(&out, &style);
    if (name) {
        hy_out_tint(&out, HY_YELLOW, "note: ");
        hy_out_str(&out, "parameter '");
        hy_out_value(&out, name);
        hy_out_str(&out, "' is not used in the command: all of its values give the same trial, unless the command "
                         "reads $HOPYARD_PARAMS\n");
    }
    if (style.terminal && !hy_run_takes_lists(spec) && !hy_args_has(args, "seed"))
        hy_outf(&out, "seed %llu (--seed %llu repeats the same trials)\n", (unsigned long long)spec->seed,
                (unsigned long long)spec->seed);
    if (hy_out_flush(&out, STDERR_FILENO) < 0)
        return;
}

/* A run inside a trial shares the trial's core: waiting for another core, which the trial may hold, could deadlock. */
static void use_trials_core(Hy__RunSpec *spec)
{
    if (!getenv("HOPYARD_AGENT"))
        return;
    spec->oversubscribe = true;
    if (!spec->parallel && !spec->ranks)
        spec->parallel = 1;
}

int hy_run_prepare(const struct hy_args *args, const char *project, Hy__RunSpec *spec, struct hy_err *err)
{
    if (!hy_args_has(args, "seed"))
        spec->seed = random_seed();
    spec->oversubscribe = hy_args_has(args, "oversubscribe");
    if (spec->n_hosts == 0 && !*spec->engine)
        use_trials_core(spec);
    return hy_spec_add_environment(spec, project, err);
}

int hy_run_launch(const struct hy_args *args, const Hy__RunSpec *spec, struct hy_started *ret, struct hy_err *err)
{
    bool owned = args->command->owns && !hy_args_has(args, "detach");
    hy_cleanup_launched struct hy_launched launched = {.owner = -1};
    int rc;

    *ret = (struct hy_started){.owner = -1, .since_ms = hy_clock_wall_ms()};
    /* From here on Ctrl-C must not leave a run whose number was never printed. */
    hy_signals_open();
    rc = hy_driver_launch(spec, owned, &launched, err);
    if (rc == -EINVAL)
        err->code = -ECANCELED; /* the usage was valid: this is a failure of the run */
    ret->run = launched.run;
    ret->owner = hy_take_fd(launched.owner);
    ret->socket = hy_take(launched.socket);
    return rc;
}

void hy_started_done(struct hy_started *s)
{
    free(s->socket);
    s->socket = NULL;
}

int hy_run_start(const struct hy_args *args, const char *project, struct hy_started *ret, struct hy_err *err)
{
    hy_cleanup_spec Hy__RunSpec *spec = NULL;
    int rc = hy_spec_new(args, &spec, err);

    if (rc == 0)
        rc = hy_run_prepare(args, project, spec, err);
    if (rc < 0)
        return rc;
    print_notes(args, spec);
    return hy_run_launch(args, spec, ret, err);
}

int hy_output_format(const struct hy_args *args, enum hy_output *ret, struct hy_err *err)
{
    bool json = hy_args_has(args, "json"), html = hy_args_has(args, "html");

    if (json && html)
        return hy_err_set(err, -EINVAL, "--json and --html exclude each other; choose one");
    *ret = json ? HY_OUTPUT_JSON : html ? HY_OUTPUT_HTML : HY_OUTPUT_TEXT;
    return 0;
}

int hy_run_follow(const struct hy_args *args, const char *project, const struct hy_started *started,
                  enum hy_output form)
{
    int64_t run = started->run;
    struct hy_tensorboard_child child = {.complaints = -1};
    bool detach = hy_args_has(args, "detach");
    struct hy_err err = {0};

    /* A run without TensorBoard is better than no run. */
    if (hy_args_has(args, "tensorboard") && hy_tensorboard_child_start(project, run, detach, &child, &err) < 0)
        hy_print_error(args->command->name, &err);
    if (detach)
        return hy_print_detached(run, form == HY_OUTPUT_JSON, child.address) < 0 ? HY_EXIT_FAILED : HY_EXIT_OK;
    return hy_watch(project, run,
                    &(struct hy_watching){.what = args->command->name,
                                          .form = form,
                                          .aside = child.complaints,
                                          .all_ranks = hy_args_has(args, "verbose"),
                                          .started = true,
                                          .owner = started->owner,
                                          .since_ms = started->since_ms});
}

int hy_cmd_run(const struct hy_args *args)
{
    struct hy_err err = {0};
    hy_cleanup_free char *project = hy_project_made(args, &err);
    hy_cleanup_started struct hy_started started = {0};
    enum hy_output form;

    if (!project || hy_output_format(args, &form, &err) < 0)
        return hy_cmd_failed(args, &err);
    if (hy_run_start(args, project, &started, &err) < 0)
        return hy_cmd_failed(args, &err);
    return hy_run_follow(args, project, &started, form);
}

int hy_cmd_attach(const struct hy_args *args)
{
    struct hy_err err = {0};
    hy_cleanup_free char *project = hy_project(args, &err);
    struct hy_store *store = NULL;
    enum hy_output form;
    int64_t run = 0;
    int rc;

    if (!project || hy_output_format(args, &form, &err) < 0)
        return hy_cmd_failed(args, &err);
    rc = hy_store_open(project, HY_STORE_READ, &store, &err);
    if (rc == 0)
        rc = hy_store_run_find(store, hy_args_word(args, 0), &run, &err);
    hy_store_close(store);
    if (rc < 0)
        return hy_cmd_failed(args, &err);
    return hy_watch(
        project, run,
        &(struct hy_watching){
            .what = "attach", .form = form, .aside = -1, .owner = -1, .no_reason = hy_args_has(args, "no-reason")});
}
