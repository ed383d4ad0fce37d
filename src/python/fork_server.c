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

#define ANSWER_MAX 4096
#define STAT_MAX 4096
#define ENV_START_FIELD 50
#define FLAGS_FIELD 9
#define LEAVING_MS 100
#define PF_EXITING 0x4 /* the kernel's: it will never touch our memory again */

/* ---- /proc -------------------------------------------------------------------- */

/* Two numbers of a stat file, from this field on. The second field is a name
 * with anything in it, in parentheses. 0 or -Exxx. */
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

/* Threads whose end was waited for may be listed for a moment longer. */
static bool is_leaving(int tid)
{
    unsigned long flags = 0, faults;
    char path[64];
    int rc;

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    rc = read_stat(path, FLAGS_FIELD, &flags, &faults);
    return rc == -ENOENT || rc == -ESRCH || flags & PF_EXITING;
}

/* jemalloc's own (pyarrow has one in it, and pandas imports pyarrow): it holds
 * no lock over a fork, and a child that needs one starts it anew. */
static bool is_jemallocs(int tid)
{
    hy_cleanup_buf struct hy_buf name;
    char path[64];

    hy_buf_init(&name, 64);
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", tid);
    return hy_file_read(path, &name) == 0 && name.len >= 11 &&
           memcmp(hy_buf_bytes(&name), "jemalloc_bg", 11) == 0;
}

static void close_folder(DIR **folder)
{
    if (*folder)
        closedir(*folder);
}

/* Threads that go on, this one included, or -Exxx. */
static int count_threads(void)
{
    __attribute__((cleanup(close_folder))) DIR *folder = opendir("/proc/self/task");
    struct dirent *entry;
    int count = 0;

    if (!folder)
        return -errno;
    while ((entry = readdir(folder))) {
        int tid = atoi(entry->d_name); /* 0: "." and ".." */

        count += tid > 0 && !is_leaving(tid) && !is_jemallocs(tid);
    }
    return count;
}

/* A thread is joined, to Python, a moment before it has left the process: those
 * that are about to go get the time for it. */
static int await_threads(void)
{
    int n = count_threads();

    for (int ms = 0; n > 1 && ms < LEAVING_MS; ms++) {
        poll(NULL, 0, 1);
        n = count_threads();
    }
    return n;
}

/* Where HOPYARD_TAG is in the block of the environment that this process was
 * started with. The agent has left room for the tag of any trial. */
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
        return hy_err_set(err, -EINVAL, "HOPYARD_AGENT does not name an agent; only agents start this");
    if (null < 0 || HY_SYS(dup2(null, STDIN_FILENO)) < 0)
        return hy_err_sys(err, -errno, "cannot give trials an empty standard input");
    if (HY_SYS(fcntl(socket, F_SETFD, FD_CLOEXEC)) < 0)
        return hy_err_sys(err, -errno, "HOPYARD_SERVER does not name a socket to the agent");
    rc = find_tag(s);
    return rc < 0 ? hy_err_sys(err, rc, "cannot find HOPYARD_TAG in what /proc/self/environ shows") : 0;
}

/* One message, in one piece. Where nobody listens any more, nobody misses it. */
static int say(int fd, const char *kind, const char *text)
{
    char message[ANSWER_MAX];
    int n = snprintf(message, sizeof message - 1, "%s%s", kind, text);

    n = n < (int)sizeof message - 1 ? n : (int)sizeof message - 2;
    message[n++] = '\n';
    return HY_SYS(send(fd, message, (size_t)n, MSG_NOSIGNAL)) < 0 ? -errno : 0;
}

/* Why there is no trial: it would be refused again, the machine has nothing to
 * give just now, or it is in the wrong itself. */
static int say_failure(int fd, const struct hy_err *err)
{
    bool later = err->code == -EAGAIN || err->code == -ENOMEM || err->code == -EMFILE || err->code == -ENFILE;

    return say(fd, err->code == -ENOTSUP ? "refuse " : later ? "again " : "error ", err->text);
}

static int check_threads(struct hy_err *err)
{
    int n = await_threads();

    if (n < 0)
        return hy_err_sys(err, n, "cannot count the threads of the process that trials are forked from");
    if (n > 1)
        return hy_err_set(err, -ENOTSUP,
                          "the process that trials are forked from has %d threads, "
                          "so this trial starts in a fresh interpreter",
                          n);
    return 0;
}

/* 0 in the trial, 1 in the server, or -Exxx. Python's own handlers for a fork
 * run once on each side; the helper between them is not Python any more. */
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
        say_failure(r->fds[HY_FD_CONTROL], err);
        _exit(1);
    }
    PyOS_AfterFork_Child();
    return 0;
}

/* The agent knows of us and says when to begin; where it does not, we never were. */
static void await_go(int control)
{
    char number[16], go = 0;
    ssize_t n;

    snprintf(number, sizeof number, "%d", (int)getpid());
    if (say(control, "pid ", number) < 0)
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
        say_failure(r->fds[HY_FD_CONTROL], &err);
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

/* 1, 0 at the end, or -1 with an exception set: by a module's handler for a signal. */
static int await_request(const struct hy_py_fork_server *s, struct hy_fork_request *r)
{
    int rc;

    do {
        if (PyErr_CheckSignals() < 0)
            return -1;
        Py_BEGIN_ALLOW_THREADS
        rc = hy_fork_request_receive(r, s->socket);
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
    if (say(s.socket, "ready", "") < 0)
        return Py_NewRef(Py_None);
    for (;;) {
        __attribute__((cleanup(hy_fork_request_done))) struct hy_fork_request r = {0};

        rc = await_request(&s, &r);
        if (rc <= 0)
            return rc < 0 ? NULL : Py_NewRef(Py_None);
        if (serve_one(&s, &r) == 0) {
            await_go(r.fds[HY_FD_CONTROL]);
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
        n = pid < 0 ? -errno : await_threads();
    }
    if (n < 0) {
        struct hy_err err = {0};

        hy_err_sys(&err, n, "cannot find out whether this process may fork");
        return hy_py_raise(PyModule_GetState(module), &err);
    }
    return PyLong_FromLong(n);
}

/* What C libraries have printed and not written yet would be lost. */
PyObject *hy_py_leave(PyObject *module, PyObject *arg)
{
    long status = PyLong_AsLong(arg);

    (void)module;
    if (PyErr_Occurred())
        return NULL;
    fflush(NULL);
    _exit((int)status);
}
