/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts a driver process in a new session. The driver writes one status line to
 * a pipe: "ok RUN SOCKET" once the run is in the store and its socket is open, or
 * "error MESSAGE".
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "client/client.h"
#include "driver/driver.h"

/* The driver's ends of the pipes; -1: not used. */
struct ends {
    int spec, status, owner;
};

/* Runs in the grandchild: executes the driver, or writes an error status. */
static void become_driver(const struct ends *ends, char **argv)
{
    static const char failure[] = "error cannot start the driver process\n";
    int null = open("/dev/null", O_RDWR), spec = ends->spec >= 0 ? ends->spec : null;

    if (setsid() >= 0 && null >= 0 && dup2(spec, 0) >= 0 && dup2(ends->status, 1) >= 0 && dup2(null, 2) >= 0 &&
        (ends->owner < 0 || fcntl(ends->owner, F_SETFD, 0) == 0))
        execv("/proc/self/exe", argv);
    if (write(ends->status, failure, sizeof failure - 1) < 0)
        _exit(126);
    _exit(127);
}

/* Forks twice, so that init reaps the driver and not the client, which may live long (a notebook). */
static int fork_driver(const struct ends *ends, char **argv)
{
    pid_t pid = HY_SYS(fork());
    int how;

    if (pid < 0)
        return -errno;
    if (pid == 0) {
        pid = fork();
        if (pid == 0)
            become_driver(ends, argv);
        _exit(pid < 0);
    }
    while (waitpid(pid, &how, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return WIFEXITED(how) && WEXITSTATUS(how) == 0 ? 0 : -EAGAIN;
}

/* "ok 3 /tmp/hopyard-0/3.sock", or "error …". */
static int parse_status(const char *line, struct hy_launched *ret, struct hy_err *err)
{
    long long run;
    int n = 0;

    if (sscanf(line, "ok %lld %n", &run, &n) < 1 || !n)
        return hy_err_set(err, -ECANCELED, "%s", strncmp(line, "error ", 6) == 0 ? line + 6 : line);
    ret->run = run;
    ret->socket = hy_strdup(line + n);
    return ret->socket ? 0 : hy_err_oom(err);
}

static int read_status(int fd, struct hy_launched *ret, struct hy_err *err)
{
    hy_cleanup_buf struct hy_buf text;
    const char *line;
    char *newline;

    hy_buf_init(&text, 8192);
    for (;;) {
        char chunk[512];
        ssize_t n = read(fd, chunk, sizeof chunk);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || hy_buf_append(&text, chunk, (size_t)n) < 0 || memchr(chunk, '\n', (size_t)n))
            break;
    }
    line = hy_buf_cstr(&text);
    if (!line)
        return hy_err_oom(err);
    newline = strchr(line, '\n');
    if (!newline)
        return hy_err_set(err, -EPIPE, "the driver process exited before it reported the run");
    *newline = '\0';
    return parse_status(line, ret, err);
}

static int start_driver(char **argv, const uint8_t *spec, size_t spec_len, int owner, struct hy_launched *ret,
                        struct hy_err *err)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    int rc = 0;

    if (HY_SYS(pipe2(out, O_CLOEXEC)) < 0 || (spec && HY_SYS(pipe2(in, O_CLOEXEC)) < 0))
        rc = hy_err_sys(err, -errno, "cannot create a pipe");
    if (rc == 0)
        rc = fork_driver(&(struct ends){in[0], out[1], owner}, argv);
    if (rc < 0 && !err->code)
        hy_err_sys(err, rc, "cannot start the driver process");
    hy_close_at(&in[0]);
    hy_close_at(&out[1]);
    if (rc == 0 && spec)
        rc = hy_write_all(in[1], spec, spec_len);
    hy_close_at(&in[1]);
    if (rc == 0 || rc == -EPIPE) /* a driver that does not read its spec reports why */
        rc = read_status(out[0], ret, err);
    hy_close_at(&out[0]);
    return rc;
}

/* The owner pipe carries no data: the driver sees EOF when this process exits, even if it is killed. */
int hy_driver_launch(const Hy__RunSpec *spec, bool owned, struct hy_launched *ret, struct hy_err *err)
{
    char number[16];
    char *argv[] = {(char *)"hopyard", (char *)"driver", owned ? (char *)"--owner-fd" : NULL, number, NULL};
    hy_cleanup_free uint8_t *bytes = hy_malloc(hy__run_spec__get_packed_size(spec));
    int owner[2] = {-1, -1}, rc;

    *ret = (struct hy_launched){.owner = -1};
    if (!bytes)
        return hy_err_oom(err);
    if (owned && HY_SYS(pipe2(owner, O_CLOEXEC)) < 0)
        return hy_err_sys(err, -errno, "cannot create a pipe");
    snprintf(number, sizeof number, "%d", owner[0]);
    rc = start_driver(argv, bytes, hy__run_spec__pack(spec, bytes), owner[0], ret, err);
    hy_close_at(&owner[0]);
    if (rc == 0)
        ret->owner = owner[1];
    else
        hy_close_at(&owner[1]);
    return rc;
}

int hy_driver_disown(int owner)
{
    return hy_write_all(owner, "", 1);
}

void hy_launched_done(struct hy_launched *l)
{
    hy_close_at(&l->owner);
    free(l->socket);
    l->socket = NULL;
}

int hy_driver_resume(const char *project, int64_t run, const char *address, struct hy_launched *ret, struct hy_err *err)
{
    char number[32];
    char *argv[] = {(char *)"hopyard",
                    (char *)"driver",
                    (char *)"--resume",
                    number,
                    (char *)"--project",
                    (char *)project,
                    address ? (char *)"--address" : NULL,
                    (char *)address,
                    NULL};

    *ret = (struct hy_launched){.owner = -1};
    snprintf(number, sizeof number, "%lld", (long long)run);
    return start_driver(argv, NULL, 0, -1, ret, err);
}
