/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fork server: a Python process with imported modules that forks trials.
 * src/supervise/fork_server.c is the agent's end and documents the protocol.
 *
 *     fork_server.c   waits for requests, counts its threads, replies
 *     fork_request.c  parses a request of the agent
 *     fork_trial.c    forks a process and turns it into a trial
 *
 * The server has one thread. Error messages reach the user through the agent.
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
    pid_t agent;     /* becomes the parent of the trials */
    char *tag;       /* the value of HOPYARD_TAG in the memory behind /proc/PID/environ ... */
    size_t tag_room; /* ... and its size */
};

/* ---- fork_request.c ---- */

enum { HY_FD_PAYLOAD, HY_FD_STDOUT, HY_FD_STDERR, HY_FD_CONTROL, HY_FD_CGROUP, HY_FD_KEPT };

#define HY_KEPT_FDS_MAX 200
#define HY_FORK_REQUEST_FDS_MAX 254 /* the kernel limit is 253; the control buffer is rounded up */

struct hy_fork_request {
    int fds[HY_FORK_REQUEST_FDS_MAX]; /* owned; -1: closed or taken */
    size_t fd_count;
    char word[16];
    int truncated;         /* bytes or descriptors were lost */
    struct hy_buf payload; /* the rest points into it */
    const char *cwd;
    uint64_t open_files;   /* soft limit; 0: unchanged */
    const char *env;       /* NUL-terminated entries in a row */
    size_t env_count;
    const char *tag;
};

/* Waits for the next request. 1, 0 when the agent has closed its end, or -Exxx. */
int hy_fork_request_receive(struct hy_fork_request *r, int socket);
/* Checks the request and reads its payload. 0 or -Exxx. */
int hy_fork_request_read(struct hy_fork_request *r, struct hy_err *err);
void hy_fork_request_done(struct hy_fork_request *r);

/* Parses a payload; a pure function. 0 or -EINVAL. */
int hy_fork_request_parse(struct hy_fork_request *r, const char *bytes, size_t n);

/* ---- fork_trial.c ---- */

/*
 * Forks a process that becomes a child of the nearest subreaper above this one.
 * Returns 0 in the new process, with *ret_helper a pidfd that it must wait for;
 * 1 in the server, or -Exxx.
 */
int hy_py_fork_trial(int *ret_helper, struct hy_err *err);

/* In the new process: turns it into the requested trial. Consumes the request's
 * descriptors except for the control socket, and `helper`. 0 or -Exxx. */
int hy_py_become_trial(const struct hy_py_fork_server *s, struct hy_fork_request *r, int helper, struct hy_err *err);

#endif
