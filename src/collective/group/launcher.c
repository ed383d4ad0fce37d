/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/group/launcher.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/private.h"
#include "base/text.h"
#include "collective/comm/comm.h"
#include "collective/group/pmi.h"

#define ENVIRONMENT_MAX (4u << 20)
#define ANCESTORS_MAX 64

/*
 * Open MPI, MVAPICH, launchers with PMI (MPICH, Intel MPI, Cray), Slurm. mpirun within a Slurm job sets both kinds of
 * variables, so it comes first. Slurm's step takes precedence over its job, in which a batch script is also a task.
 */
static const struct kind {
    const char *name, *rank, *sizes[3], *locals[2], *hosts[2];
} kinds[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", {"OMPI_COMM_WORLD_SIZE"}, {"OMPI_COMM_WORLD_LOCAL_SIZE"}, {NULL}},
    {"mpirun", "MV2_COMM_WORLD_RANK", {"MV2_COMM_WORLD_SIZE"}, {"MV2_COMM_WORLD_LOCAL_SIZE"}, {NULL}},
    {"mpirun", "PMI_RANK", {"PMI_SIZE"}, {"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}, {NULL}},
    {"srun",
     "SLURM_PROCID",
     {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
     {NULL},
     {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"}},
};

/* ---- numbers ---------------------------------------------------------------------------- */

static const char *variable(const char *name)
{
    const char *text = name ? getenv(name) : NULL;

    return text && *text ? text : NULL;
}

/* The first name that is set; NULL: none. */
static const char *first_of(const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (variable(names[i]))
            return names[i];
    return NULL;
}

static int number(const char *name, unsigned *ret, struct hy_err *err)
{
    uint64_t value;

    if (hy_parse_u64(getenv(name), &value) < 0 || value > HY_RANKS_MAX)
        return hy_err_set(err, -EINVAL,
                          "%s=%s is not a number of ranks from 0 to %u; unset it, or start the ranks by "
                          "`hopyard train`",
                          name, getenv(name), HY_RANKS_MAX);
    *ret = (unsigned)value;
    return 0;
}

/* ---- identification of a start ------------------------------------------------------------------------------ */

/* Whether that process has the variable; a process whose environment is not readable is not a rank of this user. */
static bool is_rank(int pid, const char *name)
{
    hy_cleanup_buf struct hy_buf b;
    char path[64];
    size_t n = strlen(name);

    hy_buf_init(&b, ENVIRONMENT_MAX);
    snprintf(path, sizeof path, "/proc/%d/environ", pid);
    if (hy_file_read(path, &b) < 0 || !hy_buf_cstr(&b))
        return false;
    for (const char *at = hy_buf_cstr(&b), *end = at + b.len; at < end; at += strlen(at) + 1)
        if (strncmp(at, name, n) == 0 && at[n] == '=')
            return true;
    return false;
}

/* The process ID of the parent, and the start time of the process; 0: it has exited. */
static int parent_of(int pid, unsigned long long *ret_started)
{
    hy_cleanup_buf struct hy_buf b;
    const char *text, *after;
    char path[64];
    int parent = 0;

    hy_buf_init(&b, 64u * 1024);
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    text = hy_file_read(path, &b) < 0 ? NULL : hy_buf_cstr(&b);
    after = text ? strrchr(text, ')') : NULL; /* the name may contain anything */
    if (!after || sscanf(after, ") %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                         &parent, ret_started) != 2)
        return 0;
    return parent;
}

/* The nearest ancestor that is not a rank has started all ranks: mpirun, its daemon, slurmstepd, a shell. */
static void name_by_ancestor(const char *rank_variable, char *job, size_t size)
{
    unsigned long long started = 0;
    int pid = getppid();

    for (int i = 0; i < ANCESTORS_MAX && pid > 1 && is_rank(pid, rank_variable); i++)
        pid = parent_of(pid, &started);
    if (pid <= 1 || !parent_of(pid, &started))
        started = 0;
    snprintf(job, size, "%s.%d.%llu", rank_variable, pid, started);
}

static void name_job(const struct kind *k, char *job, size_t size)
{
    const char *space = variable("PMIX_NAMESPACE"), *id = variable("SLURM_JOB_ID"), *step = variable("SLURM_STEP_ID");

    if (strcmp(k->rank, "OMPI_COMM_WORLD_RANK") == 0 && space)
        snprintf(job, size, "pmix.%s", space);
    else if (strcmp(k->name, "srun") == 0 && id && step)
        snprintf(job, size, "slurm.%s.%s", id, step);
    else
        name_by_ancestor(k->rank, job, size);
}

/* ---- several machines --------------------------------------------------------------------------- */

int hy_launcher_refuse(const struct hy_launcher *l, const char *why, struct hy_err *err)
{
    unsigned each = l->local ? l->local : l->hosts ? (l->size + l->hosts - 1) / l->hosts : 1;
    const char *open = why ? " (" : "", *close = why ? ")" : "";

    why = why ? why : "";
    if (strcmp(l->name, "srun") == 0)
        return hy_err_set(err, -ENOTSUP,
                          "srun has started %u ranks on several machines, and offers neither PMIx nor PMI-2 "
                          "by which they could find each other%s%s%s; use `srun --mpi=pmix` or `--mpi=pmi2`, "
                          "or let hopyard start them: horovodrun -np %u "
                          "-H \"$(scontrol show hostnames | sed 's/$/:%u/' | paste -sd,)\" python …",
                          l->size, open, why, close, l->size, each);
    return hy_err_set(err, -ENOTSUP,
                      "%s has started %u ranks on several machines (%u here), and offers neither PMIx nor PMI-2 "
                      "by which they could find each other%s%s%s; let hopyard start them, by ssh: "
                      "horovodrun -np %u -H HOST1:%u,HOST2:%u python …",
                      l->name, l->size, each, open, why, close, l->size, each, each);
}

static int check_hosts(const struct kind *k, struct hy_launcher *l, struct hy_err *err)
{
    const char *local = first_of(k->locals, HY_COUNT(k->locals)), *name = first_of(k->hosts, HY_COUNT(k->hosts));
    int rc = local ? number(local, &l->local, err) : 0;

    if (rc == 0 && name)
        rc = number(name, &l->hosts, err);
    if (rc < 0)
        return rc;
    l->is_spread = l->hosts > 1 || (l->local && l->local < l->size);
    return l->is_spread && !hy_pmi_is_offered() ? hy_launcher_refuse(l, NULL, err) : 0;
}

/* ---- interface --------------------------------------------------------------------------------------- */

static int read_kind(const struct kind *k, struct hy_launcher *l, struct hy_err *err)
{
    const char *size = first_of(k->sizes, HY_COUNT(k->sizes));
    int rc;

    if (!size && strcmp(k->name, "srun") == 0)
        return 0; /* a batch script without tasks */
    if (!size)
        return hy_err_set(err, -EINVAL, "%s is set, but %s is not; set both, or start the ranks by `hopyard train`",
                          k->rank, k->sizes[0]);
    rc = number(k->rank, &l->rank, err);
    if (rc == 0)
        rc = number(size, &l->size, err);
    if (rc < 0 || l->size <= 1)
        return rc;
    if (l->rank >= l->size)
        return hy_err_set(err, -EINVAL,
                          "%s=%u and %s=%u: there is no such rank; unset them, or start the ranks by "
                          "`hopyard train`",
                          k->rank, l->rank, size, l->size);
    rc = check_hosts(k, l, err);
    return rc < 0 ? rc : 1;
}

int hy_launcher_find(struct hy_launcher *ret, struct hy_err *err)
{
    for (size_t i = 0; i < HY_COUNT(kinds); i++) {
        struct hy_launcher l = {.name = kinds[i].name};
        int rc;

        if (!variable(kinds[i].rank))
            continue;
        rc = read_kind(&kinds[i], &l, err);
        if (rc <= 0)
            return rc;
        name_job(&kinds[i], l.job, sizeof l.job);
        *ret = l;
        return 1;
    }
    if (variable("PMIX_RANK"))
        return hy_err_set(err, -EINVAL,
                          "PMIX_RANK is set, but no variable has the number of ranks; start them by "
                          "`hopyard train -np N python …`, or set PMI_RANK and PMI_SIZE");
    return 0;
}

/* A batch job may have inherited an $XDG_RUNTIME_DIR that was removed when its user logged out. */
static char *socket_directory(struct hy_err *err)
{
    const char *base = getenv("XDG_RUNTIME_DIR");
    hy_cleanup_free char *path = NULL;
    hy_cleanup_close int dir = -1;

    if (!base || *base != '/' || access(base, F_OK) == 0)
        return hy_runtime_dir(err);
    path = hy_asprintf("/tmp/hopyard-%u", (unsigned)getuid());
    if (!path)
        hy_err_oom(err);
    dir = path ? hy_private_make_dir(path, HY_OWNER_SELF, err) : -1;
    return dir < 0 ? NULL : hy_take(path);
}

char *hy_launcher_socket(const struct hy_launcher *l, struct hy_err *err)
{
    hy_cleanup_free char *directory = socket_directory(err);
    char *path;

    if (!directory)
        return NULL;
    path = hy_asprintf("%s/job-%016llx.sock", directory, (unsigned long long)hy_hash(l->job, strlen(l->job)));
    if (!path)
        hy_err_oom(err);
    return path;
}
