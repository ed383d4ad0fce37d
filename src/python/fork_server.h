/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that trials are forked from. src/supervise/fork_server.c is the other end,
 * and has the picture of what the two say to each other.
 *
 *     warm.c     the server: it waits, counts its threads, answers
 *     request.c  what the agent sends
 *     birth.c    how a process becomes a trial
 *
 * The server has one thread. All sentences are for the user, through the agent.
 */
#ifndef HY_PYTHON_FORK_SERVER_H
#define HY_PYTHON_FORK_SERVER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

struct hy_py_fork_server {
    int socket;      /* to the agent */
    pid_t agent;     /* whose children the trials become */
    char *tag;       /* the value of HOPYARD_TAG, where /proc/PID/environ shows it ... */
    size_t tag_room; /* ... and how many bytes it has */
};

/* ---- request.c ---- */

enum { HY_FD_PAYLOAD, HY_FD_STDOUT, HY_FD_STDERR, HY_FD_CONTROL, HY_FD_CGROUP, HY_FD_KEPT };

#define HY_KEPT_FDS_MAX 200
#define HY_FORK_REQUEST_FDS_MAX 254 /* the kernel sends 253 at once, and the room for them is rounded up */

struct hy_fork_request {
    int fds[HY_FORK_REQUEST_FDS_MAX]; /* owned; -1: none */
    size_t fd_count;
    char word[16];
    int truncated;         /* bytes or fds of it are lost */
    struct hy_buf payload; /* what the rest points into */
    const char *cwd;
    uint64_t open_files;   /* soft limit; 0: as it is */
    const char *env;       /* the first word; each ends with a NUL */
    size_t env_count;
    const char *tag;
};

/* Waits for the next one. 1, 0 when the agent has closed its end, or -Exxx. */
int hy_fork_request_receive(struct hy_fork_request *r, int socket);
/* Checks it and reads its payload. 0 or -Exxx. */
int hy_fork_request_read(struct hy_fork_request *r, struct hy_err *err);
void hy_fork_request_done(struct hy_fork_request *r);

/* The texts of a payload, checked; pure. 0 or -EINVAL. */
int hy_fork_request_parse(struct hy_fork_request *r, const char *bytes, size_t n);

/* ---- birth.c ---- */

/*
 * Forks off a process that becomes the child of whoever is the subreaper above
 * us. Returns 0 in it, with *ret_helper a pidfd that it must wait for; 1 here,
 * or -Exxx.
 */
int hy_py_fork_trial(int *ret_helper, struct hy_err *err);

/* In the new process: turns it into what the request asks for. Consumes the
 * request's fds but for control, and `helper`. 0 or -Exxx. */
int hy_py_become_trial(const struct hy_py_fork_server *s, struct hy_fork_request *r, int helper, struct hy_err *err);

#endif
