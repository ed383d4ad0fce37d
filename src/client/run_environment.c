/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a new run: directory, variables, versions, commit. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "client/provenance.h"
#include "client/spec_fields.h"
#include "store/store.h"

#define PROVENANCE_TIMEOUT_MS 2000 /* for git and python3 together */

/* Variables of an enclosing trial or rank: inherited, they would connect this run's trials to the wrong agent. */
static bool is_private(const char *entry)
{
    static const char *const places[] = {"HOROVOD_RANK=", "HOROVOD_SIZE=", "HOROVOD_LOCAL_", "HOROVOD_CROSS_"};

    for (size_t i = 0; i < HY_COUNT(places); i++)
        if (strncmp(entry, places[i], strlen(places[i])) == 0)
            return true;
    return strncmp(entry, "HOPYARD_", 8) == 0 && strncmp(entry, "HOPYARD_PROJECT=", 16) != 0 &&
           strncmp(entry, "HOPYARD_LOG=", 12) != 0;
}

/* Spark executors keep the environment of their cluster; only the variables of our parts are sent to them. */
static bool is_sent(const Hy__RunSpec *spec, const char *entry)
{
    static const char *const names[] = {"HOPYARD_", "HOROVOD_", "TF_", "KERAS_"};

    for (size_t i = 0; i < HY_COUNT(names); i++)
        if (strncmp(entry, names[i], strlen(names[i])) == 0)
            return true;
    return !*spec->engine;
}

/* Trials get the URL of a project on HDFS, however the project was named. */
static int environment(Hy__RunSpec *spec, const char *project, struct hy_err *err)
{
    hy_cleanup_free char *url = NULL, *named = NULL;
    int rc = hy_store_url_of_local_dir(project, &url, err);

    if (rc == 0 && url && !(named = hy_asprintf("HOPYARD_PROJECT=%s", url)))
        rc = hy_err_oom(err);

    for (char **entry = environ; *entry && rc == 0; entry++)
        if (!is_private(*entry) && is_sent(spec, *entry) && !(named && strncmp(*entry, "HOPYARD_PROJECT=", 16) == 0))
            rc = hy_spec_add_text(&spec->env, &spec->n_env, *entry, err);
    return rc == 0 && named ? hy_spec_add_text(&spec->env, &spec->n_env, named, err) : rc;
}

/* Only for a run on this machine; otherwise, or if the name has a placeholder, agents look for the program. */
static int program(const Hy__RunSpec *spec, char **ret_path, struct hy_err *err)
{
    int rc;

    if (spec->n_hosts || spec->listen[0] || *spec->engine || *spec->discovery || strchr(spec->argv[0], '{'))
        return 0;
    rc = hy_find_program(spec->argv[0], spec->cwd, getenv("PATH"), ret_path, err);
    return rc == -ENOMEM ? rc : rc < 0 ? (err->code = -EINVAL) : 0;
}

int hy_spec_add_environment(Hy__RunSpec *spec, const char *project, struct hy_err *err)
{
    int64_t deadline = hy_clock_ms() + PROVENANCE_TIMEOUT_MS;
    hy_cleanup_free char *path = NULL;
    char *cwd = getcwd(NULL, 0), *git;
    int rc;

    if (!cwd)
        return hy_err_sys(err, -errno, "cannot determine the current directory");
    rc = hy_spec_set_text(&spec->cwd, cwd, err);
    if (rc == 0)
        rc = hy_spec_set_text(&spec->project, hy_strdup(project), err);
    if (rc == 0)
        rc = program(spec, &path, err);
    if (rc == 0)
        rc = environment(spec, project, err);
    if (rc < 0)
        return rc;
    git = hy_git_commit(spec->cwd, deadline);
    if (git)
        hy_spec_set_text(&spec->git, git, err);
    return hy_spec_set_text(&spec->versions, hy_versions(path, spec->function.data, spec->function.len, deadline), err);
}
