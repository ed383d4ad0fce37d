/* SPDX-License-Identifier: Apache-2.0 */
/* Options for runs on Spark: the cluster, its executors, and the address at which they reach this machine. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "client/client.h"
#include "cli/run_spec.h"
#include "cli/spec_internal.h"
#include "schedule/schedule.h"

#define EXECUTORS_MAX 10000
#define ELSEWHERE "203.0.113.1" /* reserved for documentation (RFC 5737); nothing is sent there */

/* The first host of "spark://a:7077,b:7077"; otherwise the name of this machine. */
static char *master_host(const char *master)
{
    const char *host = strncmp(master, "spark://", 8) == 0 ? master + 8 : NULL;
    char name[256] = "localhost";

    if (host)
        return hy_strndup(host, strcspn(host, ":,"));
    gethostname(name, sizeof name - 1);
    return hy_strdup(name);
}

/* The local address of the route to a host. Connects a datagram socket, which sends nothing. */
static int local_address(const char *host, char *ret, size_t size)
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *found = NULL;
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    hy_cleanup_close int fd = -1;
    int rc = getaddrinfo(host, "7077", &hints, &found) == 0 ? 0 : -EHOSTUNREACH;

    if (rc == 0) {
        fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        rc = fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen) < 0 ||
                     getsockname(fd, (struct sockaddr *)&own, &length) < 0
                 ? -errno
                 : 0;
        freeaddrinfo(found);
    }
    return rc == 0 && getnameinfo((struct sockaddr *)&own, length, ret, (socklen_t)size, NULL, 0, NI_NUMERICHOST)
               ? -EHOSTUNREACH
               : rc;
}

static bool is_loopback(const char *text)
{
    return strncmp(text, "127.", 4) == 0 || strcmp(text, "::1") == 0;
}

/* Debian resolves a machine's own name to 127.0.1.1, which other machines cannot use: takes the address of the default
 * route instead. Without a route the cluster must be on this machine. */
static int replace_loopback(const char *master, char *address, size_t size)
{
    char other[NI_MAXHOST] = "";

    if (strncmp(master, "spark://", 8) == 0 || !is_loopback(address) ||
        local_address(ELSEWHERE, other, sizeof other) < 0)
        return 0;
    return snprintf(address, size, "%s", other) < (int)size ? 0 : -ENAMETOOLONG;
}

static int address(const struct hy_args *args, const char *master, Hy__RunSpec *spec, struct hy_err *err)
{
    const char *given = hy_args_get(args, "address");
    hy_cleanup_free char *host = given ? NULL : master_host(master);
    char found[NI_MAXHOST] = "";

    if (given)
        return hy_spec_set_text(&spec->address, hy_strdup(given), err);
    if (!host)
        return hy_err_oom(err);
    if (local_address(host, found, sizeof found) < 0 || replace_loopback(master, found, sizeof found) < 0)
        return hy_err_set(err, -EINVAL,
                          "cannot resolve '%s'; set the address at which executors reach this machine with --address",
                          host);
    return hy_spec_set_text(&spec->address, hy_strdup(found), err);
}

static int python(Hy__RunSpec *spec, struct hy_err *err)
{
    const char *chosen = getenv("HOPYARD_PYTHON");
    char *path = NULL;
    int rc = hy_find_program(chosen ? chosen : "python3", "/", getenv("PATH"), &path, err);

    if (rc == -ENOMEM)
        return rc;
    if (rc < 0)
        return hy_err_set(err, -EINVAL,
                          "a Spark session needs a Python with hopyard and pyspark; set $HOPYARD_PYTHON to its path");
    return hy_spec_set_text(&spec->python, path, err);
}

bool hy_is_spark_master(const char *text)
{
    return strncmp(text, "spark://", 8) == 0 || strcmp(text, "yarn") == 0 || strncmp(text, "k8s://", 6) == 0;
}

/* Refuses options that require --engine. */
static int check_no_engine_options(const struct hy_args *args, struct hy_err *err)
{
    static const char *const options[] = {"executors", "executor-memory", "executor-gpus", "address"};

    for (size_t i = 0; i < HY_COUNT(options); i++)
        if (hy_args_has(args, options[i]))
            return hy_err_option(err, options[i], "requires --engine spark://HOST:PORT or yarn");
    return 0;
}

static int executors(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    int rc = hy_spec_number(args, "executors", 1, EXECUTORS_MAX, &spec->agents, err);

    if (rc == 0)
        rc = hy_spec_number(args, "executor-memory", 1, UINT32_MAX, &spec->executor_memory, err);
    return rc == 0 ? hy_spec_number(args, "executor-gpus", 1, HY_AGENT_GPUS_MAX, &spec->executor_gpus, err) : rc;
}

int hy_spec_engine(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    const char *master = hy_args_get(args, "engine");
    int rc;

    if (*spec->engine) /* submitted: the client has a SparkSession and supplies agents */
        return spec->n_hosts ? hy_err_option(err, "hosts", "cannot be used with a SparkSession; remove one of them")
                             : 0;
    if (!master)
        return check_no_engine_options(args, err);
    if (!hy_is_spark_master(master))
        return hy_err_option(err, "engine", "takes spark://HOST:PORT or yarn, not '%s'", master);
    if (spec->n_hosts || spec->listen[0])
        return hy_err_set(err, -EINVAL, "--engine cannot be used with --hosts or --listen; remove them");
    rc = executors(args, spec, err);
    if (rc == 0)
        rc = address(args, master, spec, err);
    if (rc == 0)
        rc = python(spec, err);
    if (rc == 0)
        rc = hy_spec_set_text(&spec->master, hy_strdup(master), err);
    return rc == 0 ? hy_spec_set_text(&spec->engine, hy_strdup("spark"), err) : rc;
}
