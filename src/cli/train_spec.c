/* SPDX-License-Identifier: Apache-2.0 */
/* `hopyard train …` as a RunSpec: a grid over the single dimension `rank`, all of it in parallel. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "wire/wire.h"
#include "cli/run_spec.h"
#include "cli/spec_internal.h"
#include "driver/driver.h"

#define RANKS_MAX 1024              /* of a group ... */
#define HERE_MAX 128                /* ... and of one machine */
#define SPEED "examples_per_second" /* reported by the callbacks of hvd */

/* ---- how many, and where ------------------------------------------------------------ */

int hy_spec_set_ranks(Hy__RunSpec *spec, uint32_t ranks, struct hy_err *err)
{
    char *text = ranks == 1 ? hy_strdup("rank=0") : hy_asprintf("rank=0..%u", ranks - 1);

    spec->ranks = ranks;
    /* Sets the slots of this machine, whatever its number of cores. */
    spec->parallel = ranks > spec->ranks_max ? ranks : spec->ranks_max;
    return spec->n_dims ? hy_spec_set_text(&spec->dims[0]->text, text, err) : hy_spec_add_dim(spec, text, err);
}

/* "-H localhost:4" is this machine and needs no ssh. */
static void drop_local_host(Hy__RunSpec *spec)
{
    if (spec->n_hosts != 1 || !hy_host_is_here(spec->hosts[0]->host))
        return;
    hy__host_spec__free_unpacked(spec->hosts[0], &hy_proto_memory);
    spec->n_hosts = 0;
}

static int hosts(const struct hy_args *args, Hy__RunSpec *spec, uint32_t *ret_slots, struct hy_err *err)
{
    const char *file = hy_args_get(args, "hostfile");
    int rc = 0;

    if (!!file + hy_args_has(args, "hosts") + hy_args_has(args, "host-discovery-script") > 1)
        return hy_err_set(err, -EINVAL,
                          "--hosts, --hostfile and --host-discovery-script exclude each other; choose one");
    if (file)
        rc = hy_spec_hostfile(spec, file, err);
    *ret_slots = hy_spec_slots(spec);
    drop_local_host(spec);
    return rc;
}

/* The default of --scaling is the number of cores of this machine. */
static uint32_t default_ranks(const struct hy_args *args, uint32_t slots)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    if (slots || !hy_args_has(args, "scaling"))
        return slots < RANKS_MAX ? slots : RANKS_MAX;
    return cores > 1 ? (uint32_t)cores : 2;
}

static int elastic(const struct hy_args *args, Hy__RunSpec *spec, uint32_t ranks, uint32_t slots, struct hy_err *err)
{
    uint32_t most = *spec->discovery ? RANKS_MAX : ranks > slots ? ranks : slots;
    int rc;

    if (!hy_args_has(args, "min-np") && !hy_args_has(args, "max-np") && !*spec->discovery)
        return 0;
    spec->ranks_min = ranks;
    spec->ranks_max = most < RANKS_MAX ? most : RANKS_MAX;
    rc = hy_spec_number(args, "min-np", 1, RANKS_MAX, &spec->ranks_min, err);
    if (rc == 0)
        rc = hy_spec_number(args, "max-np", 1, RANKS_MAX, &spec->ranks_max, err);
    if (rc == 0 && spec->ranks_min > ranks)
        return hy_err_option(err, "min-np", "must be at most the number of ranks, %u, not %u", ranks, spec->ranks_min);
    if (rc == 0 && spec->ranks_max < ranks)
        return hy_err_option(err, "max-np", "must be at least the number of ranks, %u, not %u", ranks, spec->ranks_max);
    if (rc == 0 && hy_args_has(args, "scaling"))
        return hy_err_set(err, -EINVAL, "--scaling cannot be used with --min-np or --max-np; remove them");
    return rc;
}

/* As in Horovod, the script is a command that a shell runs. */
static int discovery(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    const char *script = hy_args_get(args, "host-discovery-script");

    if (!script && hy_args_has(args, "slots-per-host"))
        return hy_err_option(err, "slots-per-host",
                             "requires --host-discovery-script; otherwise write the slots after each "
                             "host, for example -H a:2,b:2");
    if (!script)
        return 0;
    if (hy_args_has(args, "engine") || hy_args_has(args, "scaling"))
        return hy_err_set(err, -EINVAL, "--host-discovery-script cannot be used with --%s",
                          hy_args_has(args, "engine") ? "engine" : "scaling");
    if (hy_spec_set_text(&spec->discovery, hy_strdup(script), err) < 0)
        return err->code;
    return hy_spec_number(args, "slots-per-host", 1, 65536, &spec->discovery_slots, err);
}

/* Timeout and blacklist of an elastic training. Horovod's variable $HOROVOD_ELASTIC_TIMEOUT sets the timeout, too. */
static int elastic_limits(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    const char *first = hy_args_get(args, "blacklist-cooldown-range"), *last;
    const char *limit = hy_args_get(args, "elastic-timeout"), *variable = getenv("HOROVOD_ELASTIC_TIMEOUT");
    uint64_t seconds = 0, from = 0, to = 0;

    if ((first || limit) && !spec->ranks_max)
        return hy_err_set(err, -EINVAL, "--%s requires an elastic training; add --min-np or --max-np",
                          first ? "blacklist-cooldown-range" : "elastic-timeout");
    if (!limit && variable && *variable && spec->ranks_max)
        limit = variable;
    if (limit && (hy_parse_u64(limit, &seconds) < 0 || seconds < 1 || seconds > INT32_MAX))
        return hy_err_set(err, -EINVAL,
                          "--elastic-timeout (or $HOROVOD_ELASTIC_TIMEOUT) takes a number of seconds, not '%s'", limit);
    spec->elastic_timeout_ms = (int64_t)seconds * 1000;
    if (!first)
        return 0;
    last = hy_args_second(args, "blacklist-cooldown-range");
    if (!last || hy_parse_u64(first, &from) < 0 || hy_parse_u64(last, &to) < 0 || from < 1 || to < from || to > 1000000)
        return hy_err_option(err, "blacklist-cooldown-range",
                             "takes two numbers of seconds such as 10 100, not '%s %s'", first, last ? last : "");
    spec->cooldown_first_s = (uint32_t)from;
    spec->cooldown_last_s = (uint32_t)to;
    return 0;
}

/* ---- the roles of a cluster ---------------------------------------------------------- */

static bool is_role(const char *name)
{
    static const char *const known[] = {"ps", "chief", "master", "evaluator", "worker"};

    for (size_t i = 0; i < HY_COUNT(known); i++)
        if (strcmp(known[i], name) == 0)
            return true;
    return false;
}

/* A submitted cluster. The nodes are numbered in the order of the roles. */
static int roles(Hy__RunSpec *spec, struct hy_err *err)
{
    spec->ranks = 0;
    for (size_t i = 0; i < spec->n_roles; i++) {
        const Hy__RoleSpec *role = spec->roles[i];

        if (!is_role(role->name) || role->count < 1 || role->count > RANKS_MAX || spec->ranks > RANKS_MAX)
            return hy_err_set(err, -EINVAL,
                              "a cluster has the roles ps, chief or master, evaluator and worker, with up to %d nodes; "
                              "%u of '%s' is invalid",
                              RANKS_MAX, role->count, role->name);
        spec->ranks += role->count;
    }
    return hy_spec_ranks(spec) == 0 ? hy_err_set(err, -EINVAL, "a cluster needs a chief or a worker") : 0;
}

static int ranks(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    uint32_t slots = 0, count;
    int rc = hosts(args, spec, &slots, err);

    if (rc == 0)
        rc = discovery(args, spec, err);
    if (rc < 0)
        return rc;
    count = default_ranks(args, slots);
    rc = hy_spec_number(args, "num-proc", 1, RANKS_MAX, &count, err);
    if (rc == 0 && spec->n_roles) {
        rc = roles(spec, err);
        count = spec->ranks;
    }
    if (rc == 0 && count == 0)
        return hy_err_set(err, -EINVAL, "missing number of ranks; usage: hopyard train -np 4 …");
    if (rc == 0 && slots && slots < count && !spec->listen[0])
        return hy_err_set(err, -EINVAL, "the hosts have %u slots, too few for %u ranks; add slots, for example a:%u",
                          slots, count, count);
    if (rc == 0 && count > HERE_MAX && spec->n_hosts == 0 && !spec->listen[0] && !*spec->engine && !*spec->discovery)
        return hy_err_set(err, -EINVAL, "one machine can run at most %d ranks; distribute them with -H a:%d,b:%d",
                          HERE_MAX, HERE_MAX, HERE_MAX);
    if (rc == 0)
        rc = elastic(args, spec, count, slots, err);
    if (rc == 0)
        rc = elastic_limits(args, spec, err);
    return rc < 0 ? rc : hy_spec_set_ranks(spec, count, err);
}

/* ---- the whole ------------------------------------------------------------------------ */

static int metric(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    const char *speed = hy_args_get(args, "metric");
    int rc = hy_spec_metric(args, spec, err);

    spec->metric_optional = 1; /* often only rank 0 reports one */
    if (speed && !hy_args_has(args, "scaling"))
        return hy_err_option(err, "metric",
                             "requires --scaling; set the metric of a training with --max NAME or --min NAME");
    if (rc < 0 || spec->metric[0] || !hy_args_has(args, "scaling"))
        return rc;
    spec->maximize = 1;
    return hy_spec_set_text(&spec->metric, hy_strdup(speed ? speed : SPEED), err);
}

int hy_spec_training(const struct hy_args *args, Hy__RunSpec **ret, struct hy_err *err)
{
    hy_cleanup_spec Hy__RunSpec *spec = NULL;
    int rc = hy_spec_begin(args, &spec, err);

    if (rc == 0)
        rc = hy_spec_common(args, spec, err);
    if (rc == 0)
        rc = metric(args, spec, err);
    if (rc == 0)
        rc = ranks(args, spec, err);
    if (rc < 0)
        return rc;
    *ret = hy_take(spec);
    return 0;
}

/* ---- their environment ------------------------------------------------------------------ */

static char **find(const Hy__RunSpec *spec, const char *name, size_t n)
{
    for (size_t i = 0; i < spec->n_env; i++)
        if (strncmp(spec->env[i], name, n) == 0 && spec->env[i][n] == '=')
            return &spec->env[i];
    return NULL;
}

/* Takes "NAME=VALUE", which may be NULL (out of memory). */
static int set_take(Hy__RunSpec *spec, char *entry, struct hy_err *err)
{
    hy_cleanup_free char *owned = entry;
    char **before = entry ? find(spec, entry, strcspn(entry, "=")) : NULL;

    if (before)
        return hy_spec_set_text(before, hy_take(owned), err);
    return owned ? hy_spec_add_text(&spec->env, &spec->n_env, owned, err) : hy_err_oom(err);
}

/* -x NAME without a value, as in mpirun, has no effect: the whole environment is sent. */
static int given_variables(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    const char *text;
    size_t cursor = 0;
    int rc = 0;

    while (rc == 0 && (text = hy_args_next(args, "env", &cursor))) {
        size_t n = strcspn(text, "=");

        if (n == 0 || (!text[n] && !find(spec, text, n)))
            return hy_err_set(err, -EINVAL,
                              "-x takes NAME=VALUE, or the name of an environment variable that is set, not '%s'",
                              text);
        if (text[n])
            rc = set_take(spec, hy_strdup(text), err);
    }
    return rc;
}

static int interfaces(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    hy_cleanup_free char *all = NULL;
    const char *text;
    size_t cursor = 0;

    while ((text = hy_args_next(args, "network-interfaces", &cursor))) {
        char *more = all ? hy_asprintf("%s,%s", all, text) : hy_strdup(text);

        if (!more)
            return hy_err_oom(err);
        free(all);
        all = more;
    }
    return all ? set_take(spec, hy_asprintf("HOPYARD_INTERFACES=%s", all), err) : 0;
}

/* A relative path is relative to the user's directory, not to that of a rank. */
static int timeline(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    const char *file = hy_args_get(args, "timeline-filename");
    int rc = 0;

    if (file && *file == '/')
        rc = set_take(spec, hy_asprintf("HOROVOD_TIMELINE=%s", file), err);
    else if (file)
        rc = set_take(spec, hy_asprintf("HOROVOD_TIMELINE=%s/%s", spec->cwd, file), err);
    else if (hy_args_has(args, "timeline-mark-cycles") && !find(spec, "HOROVOD_TIMELINE", 16))
        return hy_err_option(err, "timeline-mark-cycles", "requires --timeline-filename FILE");
    return rc == 0 && hy_args_has(args, "timeline-mark-cycles")
               ? set_take(spec, hy_strdup("HOROVOD_TIMELINE_MARK_CYCLES=1"), err)
               : rc;
}

/* The same variables as horovodrun sets; a rank reads them when it joins. */
static int stall_check(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    static const struct {
        const char *option, *variable;
    } times[] = {{"stall-check-warning-time-seconds", "HOROVOD_STALL_CHECK_TIME_SECONDS"},
                 {"stall-check-shutdown-time-seconds", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"}};
    int rc = 0;

    for (size_t i = 0; i < HY_COUNT(times) && rc == 0; i++) {
        uint32_t seconds = 0;

        rc = hy_spec_number(args, times[i].option, 0, INT32_MAX, &seconds, err);
        if (rc == 0 && hy_args_has(args, times[i].option))
            rc = set_take(spec, hy_asprintf("%s=%u", times[i].variable, seconds), err);
    }
    if (rc == 0 && (hy_args_has(args, "no-stall-check") || hy_args_has(args, "stall-check")))
        rc = set_take(spec, hy_asprintf("HOROVOD_STALL_CHECK_DISABLE=%d", hy_args_has(args, "no-stall-check")), err);
    return rc;
}

/* The driver may run in another directory when the training is resumed. */
static int ssh(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    const char *file = hy_args_get(args, "ssh-identity-file");
    int rc = hy_spec_number(args, "ssh-port", 1, UINT16_MAX, &spec->ssh_port, err);

    if (rc < 0 || !file)
        return rc;
    if (access(file, R_OK) < 0) {
        hy_err_sys(err, -errno, "--ssh-identity-file: cannot read '%s'", file);
        return err->code = -EINVAL;
    }
    return hy_spec_set_text(&spec->ssh_identity, *file == '/' ? hy_strdup(file) : hy_asprintf("%s/%s", spec->cwd, file),
                            err);
}

/* With --scaling, a single rank gets as many threads as each of the full number of ranks, for a fair comparison. */
static int threads(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    static const char *const variables[] = {"TF_NUM_INTRAOP_THREADS", "OMP_NUM_THREADS"};
    long each = sysconf(_SC_NPROCESSORS_ONLN) / (long)spec->ranks;

    if (!hy_args_has(args, "scaling") || spec->n_hosts || spec->listen[0])
        return 0;
    for (size_t i = 0; i < HY_COUNT(variables); i++)
        if (find(spec, variables[i], strlen(variables[i])))
            return 0;
    return set_take(spec, hy_asprintf("TF_NUM_INTRAOP_THREADS=%ld", each > 1 ? each : 1), err);
}

/* The ranks enforce the limit themselves. */
static int reset_limit(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    uint32_t limit = 0;
    int rc = hy_spec_number(args, "reset-limit", 1, 1000000, &limit, err);

    if (rc < 0 || limit == 0)
        return rc;
    if (!spec->ranks_max)
        return hy_err_option(err, "reset-limit", "requires an elastic training; add --min-np or --max-np");
    return set_take(spec, hy_asprintf("HOPYARD_RESET_LIMIT=%u", limit), err);
}

static int binding(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    const char *to = hy_args_get(args, "bind-to");

    if (!to)
        return 0;
    if (strcmp(to, "share") != 0 && strcmp(to, "none") != 0)
        return hy_err_option(err, "bind-to", "takes 'share' or 'none', not '%s'", to);
    return set_take(spec, hy_asprintf("HOPYARD_BIND_TO=%s", to), err);
}

int hy_spec_training_environment(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    int rc = given_variables(args, spec, err);

    if (rc == 0)
        rc = interfaces(args, spec, err);
    if (rc == 0)
        rc = reset_limit(args, spec, err);
    if (rc == 0)
        rc = binding(args, spec, err);
    if (rc == 0)
        rc = stall_check(args, spec, err);
    if (rc == 0)
        rc = ssh(args, spec, err);
    if (rc == 0)
        rc = threads(args, spec, err);
    return rc == 0 ? timeline(args, spec, err) : rc;
}
