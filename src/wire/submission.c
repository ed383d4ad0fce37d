/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/submission.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"

#define ANSWER_MAX 65536 /* bytes */

extern char **environ;

/* In a session of its own, so that Ctrl-C reaches only this process. `fd` becomes its standard input and output. */
static int spawn(const char *program, const char *directory, int fd, pid_t *ret)
{
    char *argv[] = {(char *)"hopyard", (char *)"driver", (char *)"--submit", NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, defaults;
    int rc = posix_spawn_file_actions_init(&files);

    if (rc)
        return -rc;
    rc = posix_spawnattr_init(&attributes);
    if (rc == 0) {
        sigemptyset(&none);
        sigemptyset(&defaults);
        sigaddset(&defaults, SIGPIPE); /* Python ignores it */
        sigaddset(&defaults, SIGXFSZ);
        rc = posix_spawnattr_setsigmask(&attributes, &none);
        if (rc == 0)
            rc = posix_spawnattr_setsigdefault(&attributes, &defaults);
        if (rc == 0)
            rc = posix_spawnattr_setflags(&attributes,
                                          POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
        if (rc == 0)
            rc = posix_spawn_file_actions_adddup2(&files, fd, STDIN_FILENO);
        if (rc == 0)
            rc = posix_spawn_file_actions_adddup2(&files, fd, STDOUT_FILENO);
        if (rc == 0)
            rc = posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
        if (rc == 0 && directory)
            rc = posix_spawn_file_actions_addchdir_np(&files, directory);
        if (rc == 0)
            rc = posix_spawn(ret, program, &files, &attributes, argv, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&files);
    return -rc;
}

/* A program that has ended is not an error here: its answer contains the reason. */
static int send_all(int fd, const uint8_t *bytes, size_t n)
{
    while (n) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);

        if (sent < 0 && errno != EINTR)
            return errno == EPIPE || errno == ECONNRESET ? 0 : -errno;
        if (sent > 0) {
            bytes += sent;
            n -= (size_t)sent;
        }
    }
    return shutdown(fd, SHUT_WR) < 0 && errno != ENOTCONN ? -errno : 0;
}

/* Sends the message, and reads the answer to its end. */
static int exchange(const char *program, const char *directory, const uint8_t *bytes, size_t n, struct hy_buf *answer,
                    struct hy_err *err)
{
    int ends[2], rc;
    pid_t pid = -1;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return hy_err_sys(err, -errno, "cannot create a socket");
    rc = spawn(program, directory, ends[1], &pid);
    close(ends[1]);
    if (rc < 0)
        hy_err_sys(err, rc, "cannot start %s", program);
    if (rc == 0) {
        rc = send_all(ends[0], bytes, n);
        if (rc == 0)
            rc = hy_read_all(ends[0], answer);
        if (rc == -ECONNRESET) /* the program has rejected the message before reading all of it; its answer was read */
            rc = 0;
        if (rc < 0)
            hy_err_sys(err, rc, "cannot communicate with %s", program);
    }
    close(ends[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ; /* another thread may have reaped it */
    return rc;
}

int hy_submit(const char *program, const char *directory, const Hy__Submission *submission, Hy__Submitted **ret,
              struct hy_err *err)
{
    hy_cleanup_free uint8_t *bytes = hy_malloc(hy__submission__get_packed_size(submission) + 1);
    hy_cleanup_buf struct hy_buf answer;
    int rc;

    hy_buf_init(&answer, ANSWER_MAX);
    if (!bytes)
        return hy_err_oom(err);
    rc = exchange(program, directory, bytes, hy__submission__pack(submission, bytes), &answer, err);
    if (rc < 0)
        return rc;
    *ret = answer.len ? hy__submitted__unpack(NULL, answer.len, hy_buf_bytes(&answer)) : NULL;
    if (!*ret)
        return hy_err_set(err, -EPROTO, "%s ended without an answer; `hopyard ls` lists the run if it was started",
                          program);
    return 0;
}
