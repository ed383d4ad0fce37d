/* SPDX-License-Identifier: Apache-2.0 */
/* `train`: a run whose trials are the ranks of one training. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/project.h"
#include "cli/commands.h"
#include "cli/config_file.h"
#include "client/client.h"
#include "cli/scaling.h"
#include "cli/run_spec.h"
#include "cli/start.h"

/* ---- notes before the start ----------------------------------------------------------- */

static void note(struct hy_out *out, const char *text)
{
    hy_out_tint(out, HY_YELLOW, "note: ");
    hy_out_value(out, text);
}

/* "note: --mpi, --tcp: no effect; …": one line for all options with the same reason. */
static void note_unused_options(struct hy_out *out, const struct hy_args *args, size_t first)
{
    const char *why = args->given[first].option->nothing;

    for (size_t i = 0; i < first; i++)
        if (args->given[i].option->nothing == why)
            return; /* listed with that option */
    note(out, "");
    for (size_t i = first; i < args->given_count; i++)
        if (args->given[i].option->nothing == why)
            hy_outf(out, "%s--%s", i == first ? "" : ", ", args->given[i].option->name);
    hy_outf(out, ": no effect; %s\n", why);
}

/* Horovod's variables that have an effect here, or ask for the default. */
static bool is_used(const char *entry)
{
    static const char *const names[] = {"TIMELINE=",
                                        "TIMELINE_MARK_CYCLES=",
                                        "GLOO_IFACE=",
                                        "STALL_CHECK_DISABLE=",
                                        "STALL_CHECK_TIME_SECONDS=",
                                        "STALL_SHUTDOWN_TIME_SECONDS=",
                                        "ELASTIC_TIMEOUT=",
                                        "ELASTIC=",
                                        "DYNAMIC_PROCESS_SETS=",
                                        "CONTROLLER=gloo",
                                        "CPU_OPERATIONS=gloo"};

    for (size_t i = 0; i < HY_COUNT(names); i++)
        if (strncasecmp(entry, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* "note: HOROVOD_CYCLE_TIME, HOROVOD_FUSION_THRESHOLD: …": one line for all variables without effect. */
static void note_unused_variables(struct hy_out *out, const Hy__RunSpec *spec)
{
    static const char prefix[] = "HOROVOD_";
    int count = 0;

    for (size_t i = 0; i < spec->n_env; i++) {
        const char *entry = spec->env[i];

        if (strncmp(entry, prefix, sizeof prefix - 1) != 0 || is_used(entry + sizeof prefix - 1))
            continue;
        if (count++ == 0)
            note(out, "");
        hy_outf(out, "%s%.*s", count == 1 ? "" : ", ", (int)strcspn(entry, "="), entry);
    }
    if (count)
        hy_outf(out, ": set in the environment, but without effect (docs/horovod.md lists the supported variables)\n");
}

static void note_shared_cores(struct hy_out *out, const Hy__RunSpec *spec)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    if (spec->n_hosts || spec->listen[0] || *spec->discovery || cores < 1 || spec->ranks <= (unsigned long)cores)
        return;
    note(out, "");
    hy_outf(out, "%u ranks share this machine's %ld core%s\n", spec->ranks, cores, cores == 1 ? "" : "s");
}

/* On standard error, because standard output has the output of the ranks. */
static void print_notes(const struct hy_args *args, const Hy__RunSpec *spec)
{
    hy_cleanup_out struct hy_out out = {0};
    struct hy_style style;

    hy_style_of(STDERR_FILENO, &style);
    hy_out_init(&out, &style);
    for (size_t i = 0; i < args->given_count; i++)
        if (args->given[i].option->nothing)
            note_unused_options(&out, args, i);
    note_unused_variables(&out, spec);
    note_shared_cores(&out, spec);
    if (hy_out_flush(&out, STDERR_FILENO) < 0)
        errno = 0; /* standard error is closed */
}

/* ---- --output-filename ------------------------------------------------------------------ */

static int get_logdir(void *arg, const struct hy_run_row *row, const struct hy_run_counts *counts)
{
    char **logdir = arg;

    (void)counts;
    *logdir = hy_strdup(row->logdir);
    return *logdir ? 0 : -ENOMEM;
}

static char *logdir_of(const char *project, int64_t run, struct hy_err *err)
{
    hy_cleanup_store struct hy_store *s = NULL;
    char *logdir = NULL;

    if (hy_store_open(project, HY_STORE_READ, &s, err) == 0)
        hy_store_run_each(s, run, get_logdir, &logdir, err);
    return logdir;
}

/* Replaces the link of an earlier training; other files belong to the user and stay. */
static int link_rank(const char *directory, const char *logdir, int digits, uint32_t rank)
{
    hy_cleanup_free char *from = hy_asprintf("%s/rank.%0*u", directory, digits, rank);
    hy_cleanup_free char *to = hy_asprintf("%s/rank=%u", logdir, rank);
    struct stat st;

    if (!from || !to)
        return -ENOMEM;
    if (lstat(from, &st) == 0 && S_ISLNK(st.st_mode) && unlink(from) < 0)
        return -errno;
    return symlink(to, from) < 0 ? -errno : 0;
}

/* horovodrun writes DIR/rank.N/{stdout,stderr}; here DIR/rank.N is a link to the log directory of the rank. */
static void link_outputs(const char *directory, const char *project, int64_t run, uint32_t ranks)
{
    struct hy_err err = {0};
    hy_cleanup_free char *logdir = logdir_of(project, run, &err);
    int digits = snprintf(NULL, 0, "%u", ranks - 1), rc = logdir ? hy_mkdirs(directory, 0777) : 0;

    for (uint32_t i = 0; i < ranks && logdir && rc == 0; i++)
        rc = link_rank(directory, logdir, digits, i);
    if (rc < 0)
        hy_err_sys(&err, rc, "cannot link the output to '%s'; it is in %s", directory, logdir);
    if (err.code)
        hy_print_error("train", &err);
}

/* ---- the command ------------------------------------------------------------------------ */

/* Consistent with hvd.gloo_built() and the other functions, because programs parse either. */
static const char built_in[] = "hopyard v" HY_VERSION ", compatible with Horovod:\n"
                               "\n"
                               "Available Frameworks:\n"
                               "    [X] TensorFlow (2.12 or later)\n"
                               "    [X] NumPy\n"
                               "    [ ] PyTorch\n"
                               "    [ ] MXNet\n"
                               "\n"
                               "Available Controllers:\n"
                               "    [ ] MPI\n"
                               "    [X] Gloo (replaced by hopyard's controller)\n"
                               "\n"
                               "Available Tensor Operations:\n"
                               "    [ ] NCCL\n"
                               "    [ ] DDL\n"
                               "    [ ] CCL\n"
                               "    [ ] MPI\n"
                               "    [X] Gloo (replaced by hopyard's shared memory and TCP)\n";

static int print(const char *text)
{
    return fputs(text, stdout) < 0 || fflush(stdout) ? HY_EXIT_FAILED : HY_EXIT_OK;
}

/* True for the tf.data service, which ends after the trainings that it serves. */
static bool serves_data(const Hy__RunSpec *spec)
{
    for (size_t i = 0; i < spec->n_argv; i++)
        if (strcmp(spec->argv[i], "horovod.tensorflow.data.compute_worker") == 0)
            return true;
    return false;
}

static int prepare(const struct hy_args *args, const char *project, Hy__RunSpec **ret, struct hy_err *err)
{
    int rc = hy_spec_training(args, ret, err);

    if (rc == 0)
        rc = hy_run_prepare(args, project, *ret, err);
    if (rc == 0 && serves_data(*ret)) /* the trainings that it serves must not wait for its cores */
        (*ret)->oversubscribe = true;
    return rc == 0 ? hy_spec_training_environment(args, *ret, err) : rc;
}

static int launch(const struct hy_args *args, const char *project, const Hy__RunSpec *spec, struct hy_started *ret,
                  struct hy_err *err)
{
    const char *outputs = hy_args_get(args, "output-filename");
    int rc = hy_run_launch(args, spec, ret, err);

    if (rc == 0 && outputs)
        link_outputs(outputs, project, ret->run, spec->ranks);
    return rc;
}

int hy_train_start(const struct hy_args *args, const char *project, struct hy_started *ret, struct hy_err *err)
{
    hy_cleanup_spec Hy__RunSpec *spec = NULL;
    int rc = prepare(args, project, &spec, err);

    return rc < 0 ? rc : launch(args, project, spec, ret, err);
}

static int train(const struct hy_args *args, const char *project, const Hy__RunSpec *spec, enum hy_output form)
{
    hy_cleanup_started struct hy_started started = {0};
    struct hy_err err = {0};

    if (launch(args, project, spec, &started, &err) < 0)
        return hy_cmd_failed(args, &err);
    return hy_run_follow(args, project, &started, form);
}

int hy_cmd_train(const struct hy_args *line)
{
    struct hy_err err = {0};
    hy_cleanup_config struct hy_config config = {0};
    hy_cleanup_free char *project = NULL;
    hy_cleanup_spec Hy__RunSpec *spec = NULL;
    const struct hy_args *args = &config.args;
    enum hy_output form;

    if (hy_args_has(line, "version"))
        return hy_cmd_version(line);
    if (hy_args_has(line, "check-build"))
        return print(built_in);
    if (hy_config_read(line, &config, &err) < 0)
        return hy_cmd_failed(line, &err);
    project = hy_project_made(args, &err);
    if (!project || hy_output_format(args, &form, &err) < 0 || prepare(args, project, &spec, &err) < 0)
        return hy_cmd_failed(args, &err);
    print_notes(args, spec);
    return hy_args_has(args, "scaling") ? hy_scaling(args, project, spec, form) : train(args, project, spec, form);
}
