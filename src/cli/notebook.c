/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `notebook`: JupyterLab for a project. Checks the options, puts them into the
 * environment, from which the kernels read them, and executes the Python program
 * that runs the server (hopyard._jupyter).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/project.h"
#include "cli/spec_internal.h"

enum mode { EXPERIMENTS = 1, TFONSPARK = 2, ALLREDUCE = 4, ANY = EXPERIMENTS | TFONSPARK | ALLREDUCE };

static const char *const mode_names[] = {"experiments", "tfonspark", "allreduce"}; /* of 1 << index */

/* Options with a number; the variables are those of python/hopyard/_spark/session.py. */
static const struct number {
    const char *option, *variable;
    uint32_t least, most;
    int modes;
} numbers[] = {
    {"executors", "HOPYARD_EXECUTORS", 1, 10000, ANY},
    {"parallel", "HOPYARD_PARALLEL", 1, 1u << 20, EXPERIMENTS},
    {"executor-memory", "HOPYARD_EXECUTOR_MEMORY", 1, UINT32_MAX, ANY},
    {"executor-gpus", "HOPYARD_EXECUTOR_GPUS", 0, 64, ANY},
    {"parameter-servers", "HOPYARD_PARAMETER_SERVERS", 0, 10000, TFONSPARK},
};

/* ---- settings of the kernels ------------------------------------------------------------------- */

static int parse_mode(const struct hy_args *args, size_t *ret_index, struct hy_err *err)
{
    const char *text = hy_args_get(args, "mode");

    for (size_t i = 0; i < HY_COUNT(mode_names); i++)
        if (strcmp(text ? text : mode_names[0], mode_names[i]) == 0) {
            *ret_index = i;
            return 0;
        }
    return hy_err_option(err, "mode", "takes experiments, tfonspark or allreduce, not '%s'", text);
}

/* A variable that is not set here must not come from an enclosing notebook. */
static int set_variable(const char *name, const char *value, struct hy_err *err)
{
    int rc = value ? setenv(name, value, 1) : unsetenv(name);

    return rc < 0 ? hy_err_sys(err, -errno, "cannot set the environment variable %s", name) : 0;
}

static int set_number(const struct hy_args *args, const struct number *n, size_t mode, struct hy_err *err)
{
    const char *text = hy_args_get(args, n->option);
    uint32_t value = 0;
    int rc;

    if (text && !(n->modes & 1 << mode))
        return hy_err_option(err, n->option, "has no effect with --mode %s; remove it", mode_names[mode]);
    rc = hy_spec_number(args, n->option, n->least, n->most, &value, err);
    return rc < 0 ? rc : set_variable(n->variable, text, err);
}

static int check_workers(const struct hy_args *args, struct hy_err *err)
{
    uint32_t executors = 1, servers = 0;
    int rc = hy_spec_number(args, "executors", 1, UINT32_MAX, &executors, err);

    if (rc == 0)
        rc = hy_spec_number(args, "parameter-servers", 0, UINT32_MAX, &servers, err);
    if (rc == 0 && servers >= executors)
        return hy_err_option(err, "parameter-servers",
                             "must be less than the number of executors (%u): the others are workers", executors);
    return rc;
}

static int set_settings(const struct hy_args *args, size_t mode, struct hy_err *err)
{
    const char *engine = hy_args_get(args, "engine");
    int rc = 0;

    if (engine && strcmp(engine, "local") != 0 && !hy_is_spark_master(engine))
        return hy_err_option(err, "engine", "takes local, spark://HOST:PORT or yarn, not '%s'", engine);
    for (size_t i = 0; i < HY_COUNT(numbers) && rc == 0; i++)
        rc = set_number(args, &numbers[i], mode, err);
    if (rc == 0)
        rc = check_workers(args, err);
    return rc == 0 ? set_variable("HOPYARD_ENGINE", engine ? engine : "local", err) : rc;
}

/* ---- where the server listens ---------------------------------------------------------------- */

static int check_listening(const struct hy_args *args, struct hy_err *err)
{
    const char *sock = hy_args_get(args, "sock"), *prefix = hy_args_get(args, "prefix");
    uint32_t port = 0;
    int rc = hy_spec_number(args, "port", 0, UINT16_MAX, &port, err);

    if (rc < 0)
        return rc;
    if (sock && hy_args_has(args, "port"))
        return hy_err_option(err, "port", "cannot be used with --sock; remove one of them");
    if (sock && strlen(sock) >= sizeof((struct sockaddr_un *)0)->sun_path)
        return hy_err_option(err, "sock", "takes a path of at most %zu bytes",
                             sizeof((struct sockaddr_un *)0)->sun_path - 1);
    if (prefix && !sock)
        return hy_err_option(err, "prefix", "requires --sock");
    if (prefix && (prefix[0] != '/' || prefix[strlen(prefix) - 1] != '/'))
        return hy_err_option(err, "prefix", "must start and end with '/', as in /jupyter/");
    return 0;
}

/* Sockets and files of kernels are in this user's private directory; those of killed kernels are removed. */
static int set_runtime_dir(struct hy_err *err)
{
    hy_cleanup_free char *dir = hy_runtime_dir(err);

    if (!dir)
        return err->code;
    (void)hy_runtime_sweep("kernel-", "");
    return set_variable("JUPYTER_RUNTIME_DIR", dir, err);
}

/* ---- the program ------------------------------------------------------------------------------- */

/* The Python of the environment in which this program is installed: bin/python3 next to bin/hopyard. */
static char *adjacent_python(void)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash, *path;

    if (n < 0)
        return NULL;
    self[n] = '\0';
    slash = strrchr(self, '/');
    *slash = '\0';
    path = hy_path_join(self, "python3");
    if (path && access(path, X_OK) == 0)
        return path;
    free(path);
    return NULL;
}

static int find_python(char **ret, struct hy_err *err)
{
    const char *chosen = getenv("HOPYARD_PYTHON");
    int rc;

    if (!chosen && (*ret = adjacent_python()))
        return 0;
    rc = hy_find_program(chosen ? chosen : "python3", "/", getenv("PATH"), ret, err);
    return rc < 0 ? hy_err_wrap(err, "JupyterLab needs a Python with hopyard; set $HOPYARD_PYTHON to its path") : 0;
}

static int find_project(const struct hy_args *args, char **ret, struct hy_err *err)
{
    hy_cleanup_free char *project = hy_project_made(args, err), *url = NULL;
    int rc = project ? hy_store_url_of_local_dir(project, &url, err) : err->code;

    if (rc < 0)
        return rc;
    if (url)
        return hy_err_set(err, -EINVAL,
                          "JupyterLab needs a directory on this machine, and the project is %s; use "
                          "--project DIRECTORY",
                          url);
    *ret = hy_take(project);
    return 0;
}

static bool opens_browser(const struct hy_args *args)
{
    return !hy_args_has(args, "no-browser") && !hy_args_has(args, "sock") &&
           (getenv("DISPLAY") || getenv("WAYLAND_DISPLAY"));
}

static int execute(const struct hy_args *args, size_t mode, struct hy_err *err)
{
    const char *port = hy_args_get(args, "port"), *sock = hy_args_get(args, "sock");
    const char *prefix = hy_args_get(args, "prefix");
    hy_cleanup_free char *project = NULL, *python = NULL;
    int rc = find_project(args, &project, err);

    if (rc == 0)
        rc = find_python(&python, err);
    if (rc < 0)
        return rc;
    /* -P: not from the current directory */
    execl(python, python, "-P", "-m", "hopyard._jupyter", project, mode_names[mode], port ? port : "",
          opens_browser(args) ? "1" : "0", sock, prefix, NULL);
    return hy_err_sys(err, -errno, "cannot run %s", python);
}

int hy_cmd_notebook(const struct hy_args *args)
{
    struct hy_err err = {0};
    size_t mode = 0;
    int rc = parse_mode(args, &mode, &err);

    if (rc == 0)
        rc = set_settings(args, mode, &err);
    if (rc == 0)
        rc = check_listening(args, &err);
    if (rc == 0)
        rc = set_runtime_dir(&err);
    if (rc == 0)
        rc = execute(args, mode, &err);
    return hy_cmd_failed(args, &err);
}
