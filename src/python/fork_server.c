/* SPDX-License-Identifier: Apache-2.0 */
#include "fork_server.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "module.h"

#define MESSAGE_MAX 4096
#define STAT_MAX 4096
#define ENV_START_FIELD 50
#define FLAGS_FIELD 9
#define THREAD_EXIT_MS 100
#define PF_EXITING 0x4 /* of the kernel: the thread does not access memory any more */

/* ---- /proc -------------------------------------------------------------------- */

/* Two consecutive numbers of a stat file. The second field is a name in
 * parentheses that may contain anything. 0 or -Exxx. */
static int read_stat(const char *path, int field, unsigned long *first, unsigned long *second)
{
    hy_cleanup_buf struct hy_buf b;
    const char *at;
    int rc;

    hy_buf_init(&b, STAT_MAX);
    rc = hy_file_read(path, &b);
    if (rc < 0)
        return rc;
    at = hy_buf_cstr(&b);
    if (!at)
        return -ENOMEM;
    at = strrchr(at, ')');
    for (int i = 2; at && i < field; i++)
        at = strchr(at + 1, ' ');
    return at && sscanf(at, "%lu %lu", first, second) == 2 ? 0 : -EPROTO;
}

/* A joined thread may be listed for a moment longer. */
static bool is_exiting(int tid)
{
    unsigned long flags = 0, faults;
    char path[64];
    int rc;

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    rc = read_stat(path, FLAGS_FIELD, &flags, &faults);
    return rc == -ENOENT || rc == -ESRCH || flags & PF_EXITING;
}

/* jemalloc's background thread (pyarrow contains jemalloc, and pandas imports
 * pyarrow) holds no lock during a fork, and is restarted in the child on demand. */
static bool is_jemalloc_thread(int tid)
{
    hy_cleanup_buf struct hy_buf name;
    char path[64];

    hy_buf_init(&name, 64);
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", tid);
    return hy_file_read(path, &name) == 0 && name.len >= 11 && memcmp(hy_buf_bytes(&name), "jemalloc_bg", 11) == 0;
}

static void close_directory(DIR **directory)
{
    if (*directory)
        closedir(*directory);
}

/* Threads that are not exiting, including this one, or -Exxx. */
static int count_threads(void)
{
    __attribute__((cleanup(close_directory))) DIR *directory = opendir("/proc/self/task");
    struct dirent *entry;
    int count = 0;

    if (!directory)
        return -errno;
    while ((entry = readdir(directory))) {
        int tid = atoi(entry->d_name); /* 0: "." and ".." */

        count += tid > 0 && !is_exiting(tid) && !is_jemalloc_thread(tid);
    }
    return count;
}

/* Python considers a thread joined a moment before it has left the process, so
 * give exiting threads some time. */
static int count_remaining_threads(void)
{
    int n = count_threads();

    for (int ms = 0; n > 1 && ms < THREAD_EXIT_MS; ms++) {
        poll(NULL, 0, 1);
        n = count_threads();
    }
    return n;
}

/* Finds HOPYARD_TAG in the initial environment block of this process. The agent
 * has padded the value to the size of the longest tag. */
static int find_tag(struct hy_py_fork_server *s)
{
    unsigned long start, end;
    int rc = read_stat("/proc/self/stat", ENV_START_FIELD, &start, &end);

    if (rc < 0)
        return rc;
    for (char *word = (char *)start; word < (char *)end; word += strlen(word) + 1)
        if (strncmp(word, "HOPYARD_TAG=", 12) == 0) {
            s->tag = word + 12;
            s->tag_room = strlen(s->tag);
            return 0;
        }
    return -ENOENT;
}

/* ---- the server -------------------------------------------------------------- */

static int open_server(struct hy_py_fork_server *s, int socket, struct hy_err *err)
{
    const char *agent = getenv("HOPYARD_AGENT");
    hy_cleanup_close int null = HY_SYS(open("/dev/null", O_RDWR | O_CLOEXEC));
    int rc;

    *s = (struct hy_py_fork_server){.socket = socket, .agent = agent ? atoi(agent) : 0};
    if (s->agent <= 1)
        return hy_err_set(err, -EINVAL,
                          "HOPYARD_AGENT is not the process id of an agent; only agents start fork "
                          "servers");
    if (null < 0 || HY_SYS(dup2(null, STDIN_FILENO)) < 0)
        return hy_err_sys(err, -errno, "cannot redirect standard input to /dev/null");
    if (HY_SYS(fcntl(socket, F_SETFD, FD_CLOEXEC)) < 0)
        return hy_err_sys(err, -errno, "HOPYARD_SERVER is not the descriptor of a socket");
    rc = find_tag(s);
    return rc < 0 ? hy_err_sys(err, rc, "cannot find HOPYARD_TAG in the initial environment") : 0;
}

/* One message in one packet. Failure means that the peer is gone, which callers may ignore. */
static int send_message(int fd, const char *kind, const char *text)
{
    char message[MESSAGE_MAX];
    int n = snprintf(message, sizeof message - 1, "%s%s", kind, text);

    n = n < (int)sizeof message - 1 ? n : (int)sizeof message - 2;
    message[n++] = '\n';
    return HY_SYS(send(fd, message, (size_t)n, MSG_NOSIGNAL)) < 0 ? -errno : 0;
}

/* Reports why no trial was started: "refuse" for good, "again" for a shortage of
 * resources, "error" for an invalid request. */
static int send_failure(int fd, const struct hy_err *err)
{
    bool later = err->code == -EAGAIN || err->code == -ENOMEM || err->code == -EMFILE || err->code == -ENFILE;

    return send_message(fd, err->code == -ENOTSUP ? "refuse " : later ? "again " : "error ", err->text);
}

static int check_threads(struct hy_err *err)
{
    int n = count_remaining_threads();

    if (n < 0)
        return hy_err_sys(err, n, "cannot count the threads of the fork server");
    if (n > 1)
        return hy_err_set(err, -ENOTSUP, "the fork server has %d threads, so this trial starts in a new interpreter",
                          n);
    return 0;
}

/* 0 in the trial, 1 in the server, or -Exxx. Python's fork handlers run once in
 * each; the helper in between runs no Python code. */
static int fork_trial(const struct hy_py_fork_server *s, struct hy_fork_request *r, struct hy_err *err)
{
    int helper = -1, rc;

    PyOS_BeforeFork();
    rc = hy_py_fork_trial(&helper, err);
    if (rc != 0) {
        PyOS_AfterFork_Parent();
        return rc;
    }
    rc = hy_py_become_trial(s, r, helper, err);
    if (rc < 0) {
        send_failure(r->fds[HY_FD_CONTROL], err);
        _exit(1);
    }
    PyOS_AfterFork_Child();
    return 0;
}

/* Reports the process id and waits until the agent has adopted the trial; exits when it does not. */
static void wait_for_start(int control)
{
    char number[16], go = 0;
    ssize_t n;

    snprintf(number, sizeof number, "%d", (int)getpid());
    if (send_message(control, "pid ", number) < 0)
        _exit(0);
    do
        n = HY_SYS(read(control, &go, 1));
    while (n < 0 && errno == EINTR);
    if (n != 1 || go != 'g')
        _exit(0);
}

/* 0 in the trial, 1 in the server. */
static int serve_one(const struct hy_py_fork_server *s, struct hy_fork_request *r)
{
    struct hy_err err = {0};
    int rc = hy_fork_request_read(r, &err);

    rc = rc < 0 ? rc : check_threads(&err);
    rc = rc < 0 ? rc : fork_trial(s, r, &err);
    if (rc < 0 && r->fd_count > HY_FD_CONTROL)
        send_failure(r->fds[HY_FD_CONTROL], &err);
    return rc != 0;
}

/* ---- for Python ---------------------------------------------------------------- */

static PyObject *list_env(const struct hy_fork_request *r)
{
    PyObject *list = PyList_New((Py_ssize_t)r->env_count);
    const char *word = r->env;

    for (size_t i = 0; list && i < r->env_count; i++, word += strlen(word) + 1) {
        PyObject *bytes = PyBytes_FromString(word);

        if (!bytes || PyList_SetItem(list, (Py_ssize_t)i, bytes) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* 1, 0 at end of file, or -1 with an exception set, which a signal handler may have raised. */
static int wait_for_request(const struct hy_py_fork_server *s, struct hy_fork_request *r)
{
    int rc;

    do {
        if (PyErr_CheckSignals() < 0)
            return -1;
        Py_BEGIN_ALLOW_THREADS rc = hy_fork_request_receive(r, s->socket);
        Py_END_ALLOW_THREADS
    } while (rc == -EINTR);
    if (rc < 0) {
        errno = -rc;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    return rc;
}

PyObject *hy_py_serve(PyObject *module, PyObject *arg)
{
    long socket = PyLong_AsLong(arg);
    struct hy_py_fork_server s;
    struct hy_err err = {0};
    int rc;

    if (PyErr_Occurred())
        return NULL;
    if (open_server(&s, (int)socket, &err) < 0)
        return hy_py_raise(PyModule_GetState(module), &err);
    if (send_message(s.socket, "ready", "") < 0)
        return Py_NewRef(Py_None);
    for (;;) {
        __attribute__((cleanup(hy_fork_request_done))) struct hy_fork_request r = {0};

        rc = wait_for_request(&s, &r);
        if (rc <= 0)
            return rc < 0 ? NULL : Py_NewRef(Py_None);
        if (serve_one(&s, &r) == 0) {
            wait_for_start(r.fds[HY_FD_CONTROL]);
            return list_env(&r);
        }
    }
}

PyObject *hy_py_settle(PyObject *module, PyObject *ignored)
{
    int n = count_threads();

    (void)ignored;
    if (n > 1) {
        pid_t pid = HY_SYS(fork());

        if (pid == 0)
            _exit(0);
        while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        n = pid < 0 ? -errno : count_remaining_threads();
    }
    if (n < 0) {
        struct hy_err err = {0};

        hy_err_sys(&err, n, "cannot count the threads of this process");
        return hy_py_raise(PyModule_GetState(module), &err);
    }
    return PyLong_FromLong(n);
}

/* Flushes the buffered output of C libraries, which _exit would lose. */
PyObject *hy_py_leave(PyObject *module, PyObject *arg)
{
    long status = PyLong_AsLong(arg);

    (void)module;
    if (PyErr_Occurred())
        return NULL;
    fflush(NULL);
    _exit((int)status);
}
