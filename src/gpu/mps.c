/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's Multi-Process Service: one daemon for each device and user. It limits
 * the memory and the share of the cores that a client gets.
 *
 * Agents of one user share it, and none of them owns it: the first one that
 * needs it starts it, the last one ends it. Its directory, below the user's runtime
 * directory, has two lock files (flock, so that a killed agent holds none):
 *
 *     door   held while an agent checks whether it runs, starts it or ends it
 *     use    held, shared, by all that use it
 *
 * To leave: lock the door, release `use`, and if no other agent holds it, end the
 * daemon. One that killed agents have left behind is used, and ended, by the next
 * agent, or by `hopyard gc`.
 *
 *     OFF ──► ENTERING ──► STARTING ──► ON ──► LEAVING ──► ENDING ──► OFF
 *                 │            └──► BROKEN (for good)  └──────────────┘
 *                 └── another agent has started it ──► ON
 *
 * ENTERING and LEAVING wait for the door's lock; no call blocks.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "gpu/internal.h"
#include "supervise/supervise.h"

#define CONTROL "nvidia-cuda-mps-control"
#define CONTROL_MS 10000      /* for it to start or end a daemon */
#define DOOR_MS 50            /* between two attempts to lock the door ... */
#define DOOR_PATIENCE_MS 15000 /* ... for at most so long: its holder is done much sooner */
#define LINGER_MS 1000        /* from the last use to the end */
#define RECOVERY_MS 200       /* between two checks of a server that recovers from a fault ... */
#define RECOVERY_PATIENCE_MS 10000 /* ... after which a new client may try anyway */
#define LOG_MAX (1u << 20)    /* of the server's log, its end */

enum state { OFF, ENTERING, STARTING, ON, LEAVING, ENDING, BROKEN };

struct hy_mps {
    uv_loop_t *loop;
    uv_timer_t timer;
    char *uuid, *directory;
    int door, use; /* files, open from the first use on; -1 */
    enum state state;
    unsigned users;
    bool told_to_leave;
    int64_t door_since, fault_since; /* 0: not waiting */
    struct hy_helper *helper;
    void (*changed)(void *arg);
    void *arg;
};

static void step(struct hy_mps *m);

/* ---- its directory ------------------------------------------------------------ */

static int make_folder(struct hy_mps *m, struct hy_err *err)
{
    hy_cleanup_free char *runtime = m->directory ? NULL : hy_runtime_dir(err);
    int rc;

    if (!m->directory && !runtime)
        return err->code;
    if (!m->directory)
        m->directory = hy_asprintf("%s/mps-%016llx", runtime, (unsigned long long)hy_hash(m->uuid, strlen(m->uuid)));
    if (!m->directory)
        return hy_err_oom(err);
    rc = hy_mkdirs(m->directory, 0700);
    return rc < 0 ? hy_err_sys(err, rc, "cannot make the directory '%s'", m->directory) : 0;
}

static int open_lock(const char *directory, const char *name)
{
    hy_cleanup_free char *path = hy_path_join(directory, name);
    int fd = path ? HY_SYS(open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) : -1;

    return fd < 0 ? (path ? -errno : -ENOMEM) : fd;
}

static int open_locks(struct hy_mps *m, struct hy_err *err)
{
    int rc = make_folder(m, err);

    if (rc < 0)
        return rc;
    if (m->door < 0)
        m->door = open_lock(m->directory, "door");
    if (m->use < 0)
        m->use = open_lock(m->directory, "use");
    rc = m->door < 0 ? m->door : m->use < 0 ? m->use : 0;
    return rc < 0 ? hy_err_sys(err, rc, "cannot open the locks in '%s'", m->directory) : 0;
}

static void unlock(int fd)
{
    if (fd >= 0)
        flock(fd, LOCK_UN);
}

/* The PID that the daemon has written, if it is alive. */
static pid_t daemon_of(const char *directory)
{
    hy_cleanup_free char *path = hy_path_join(directory, CONTROL ".pid");
    hy_cleanup_buf struct hy_buf text;
    char mark[4096];
    pid_t pid;

    hy_buf_init(&text, 64);
    if (!path || hy_file_read(path, &text) < 0 || !hy_buf_cstr(&text))
        return 0;
    pid = (pid_t)strtol(hy_buf_cstr(&text), NULL, 10);
    if (pid <= 1 || !hy_proc_is_alive(pid) || hy_proc_env(pid, HY_DAEMON_MARK, mark, sizeof mark) <= 0 ||
        strcmp(mark, directory) != 0)
        return 0; /* the file outlives a killed daemon, and its PID may be another process's by now */
    return pid;
}

/* ---- its server's log ----------------------------------------------------------- */

static char *log_path(const struct hy_mps *m)
{
    return hy_path_join(m->directory, "server.log");
}

/* Reads the log from an offset on, or its last LOG_MAX bytes; where that begins. */
static uint64_t read_log(const struct hy_mps *m, uint64_t from, struct hy_buf *text)
{
    hy_cleanup_free char *path = log_path(m);
    hy_cleanup_close int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || (uint64_t)st.st_size <= from)
        return from;
    if ((uint64_t)st.st_size - from > LOG_MAX)
        from = (uint64_t)st.st_size - LOG_MAX;
    if (lseek(fd, (off_t)from, SEEK_SET) < 0 || hy_read_all(fd, text) == -ENOMEM)
        hy_buf_clear(text);
    return from;
}

static uint64_t scan_log(const struct hy_mps *m, uint64_t from, struct hy_mps_faults *ret)
{
    hy_cleanup_buf struct hy_buf text;

    hy_buf_init(&text, 2 * LOG_MAX); /* it may grow while it is read */
    from = read_log(m, from, &text);
    hy_mps_log_scan((const char *)hy_buf_bytes(&text), text.len, ret);
    return from;
}

/* A fault that is not over hits new clients as well. */
struct hy_mps_mark hy_mps_mark(const struct hy_mps *m)
{
    hy_cleanup_free char *path = log_path(m);
    struct hy_mps_mark mark = {.daemon = daemon_of(m->directory)};
    struct hy_mps_faults faults;
    struct stat st;

    mark.offset = path && stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
    if (mark.offset) {
        uint64_t from = scan_log(m, 0, &faults);

        mark.offset = faults.any && !faults.over ? from + faults.last : mark.offset;
    }
    return mark;
}

bool hy_mps_had_fault(const struct hy_mps *m, struct hy_mps_mark mark)
{
    struct hy_mps_faults faults;

    scan_log(m, mark.offset, &faults);
    return faults.clients_hit > 1 || daemon_of(m->directory) != mark.daemon;
}

static bool is_recovering(struct hy_mps *m)
{
    struct hy_mps_faults faults;

    scan_log(m, 0, &faults);
    if (!faults.any || faults.over) {
        m->fault_since = 0;
        return false;
    }
    if (!m->fault_since)
        m->fault_since = hy_clock_ms();
    return hy_clock_ms() - m->fault_since < RECOVERY_PATIENCE_MS;
}

/* ---- the control program ---------------------------------------------------------- */

static bool is_replaced(const char *entry)
{
    static const char *const names[] = {"CUDA_VISIBLE_DEVICES=", "CUDA_MPS_", "HOPYARD_"};

    for (size_t i = 0; i < HY_COUNT(names); i++)
        if (strncmp(entry, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

#define OWN_WORDS 4

/* Our environment with the daemon's own variables first. */
static char **make_environment(const struct hy_mps *m)
{
    size_t n = OWN_WORDS, here = 0;
    char **env;

    while (environ[here])
        here++;
    env = hy_calloc(here + OWN_WORDS + 1, sizeof *env);
    if (!env)
        return NULL;
    env[0] = hy_asprintf("CUDA_MPS_PIPE_DIRECTORY=%s", m->directory);
    env[1] = hy_asprintf("CUDA_MPS_LOG_DIRECTORY=%s", m->directory);
    env[2] = hy_asprintf("CUDA_VISIBLE_DEVICES=%s", m->uuid);
    env[3] = hy_asprintf(HY_DAEMON_MARK "=%s", m->directory);
    for (size_t i = 0; i < here; i++)
        if (!is_replaced(environ[i]))
            env[n++] = environ[i];
    return env;
}

static void free_environment(char **env)
{
    for (size_t i = 0; env && i < OWN_WORDS; i++)
        free(env[i]);
    free(env);
}

static int control(struct hy_mps *m, const char *option, const char *input, hy_helper_cb done, struct hy_err *err)
{
    char *argv[] = {(char *)CONTROL, (char *)option, NULL};
    char **env = make_environment(m);
    struct hy_helper_spec spec = {.file = CONTROL, .argv = argv, .env = env, .input = input, .timeout_ms = CONTROL_MS};
    int rc = env && env[0] && env[1] && env[2] && env[3] ? hy_helper_start(m->loop, &spec, done, m, &m->helper, err)
                                                         : hy_err_oom(err);

    free_environment(env);
    return rc;
}

/* ---- on --------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer)
{
    step(timer->data);
}

static void again_in(struct hy_mps *m, uint64_t ms)
{
    uv_timer_start(&m->timer, on_timer, ms, 0);
}

/* Another trial may start. */
static void linger(struct hy_mps *m)
{
    again_in(m, m->told_to_leave ? 0 : LINGER_MS);
}

static void is_on(struct hy_mps *m)
{
    m->state = ON;
    unlock(m->door);
    if (m->users)
        m->changed(m->arg);
    else
        linger(m);
}

static void is_broken(struct hy_mps *m, const char *why)
{
    hy_warn("no MPS: shares of a GPU are requested of trials, not enforced gpu=%s why=\"%s\"", m->uuid, why);
    m->state = BROKEN;
    unlock(m->use);
    unlock(m->door);
    m->changed(m->arg);
}

static void on_started(void *arg, int status, const char *said)
{
    struct hy_mps *m = arg;
    char why[200];

    m->helper = NULL;
    if (daemon_of(m->directory)) { /* by us, or by the helper of an agent that was killed meanwhile */
        is_on(m);
        return;
    }
    snprintf(why, sizeof why, "%.*s", (int)strcspn(said, "\n"), said);
    if (!*why)
        snprintf(why, sizeof why, CONTROL " ended with status %d", status);
    is_broken(m, why);
}

static void start_daemon(struct hy_mps *m)
{
    hy_cleanup_free char *path = log_path(m);
    struct hy_err err = {0};

    if (path && unlink(path) < 0 && errno != ENOENT)
        hy_debug("cannot remove an old log path=%s", path);
    m->state = STARTING;
    if (control(m, "-d", NULL, on_started, &err) < 0)
        is_broken(m, err.text);
}

/* 1: the door is locked by us; 0: not yet; -1: another agent has held it for too long. */
static int open_door(struct hy_mps *m)
{
    if (HY_SYS(flock(m->door, LOCK_EX | LOCK_NB)) == 0) {
        m->door_since = 0;
        return 1;
    }
    if (!m->door_since)
        m->door_since = hy_clock_ms();
    if (hy_clock_ms() - m->door_since > DOOR_PATIENCE_MS)
        return -1;
    again_in(m, DOOR_MS);
    return 0;
}

static void enter(struct hy_mps *m)
{
    struct hy_err err = {0};
    int rc = open_locks(m, &err);

    m->state = ENTERING;
    if (rc < 0) {
        is_broken(m, err.text);
        return;
    }
    rc = open_door(m);
    if (rc < 0)
        is_broken(m, "another agent has held its lock for too long");
    if (rc <= 0)
        return;
    if (HY_SYS(flock(m->use, LOCK_SH | LOCK_NB)) < 0)
        is_broken(m, strerror(errno));
    else if (daemon_of(m->directory))
        is_on(m);
    else
        start_daemon(m);
}

/* ---- off -------------------------------------------------------------------------- */

static void is_off(struct hy_mps *m)
{
    m->state = OFF;
    m->fault_since = 0;
    unlock(m->use);
    unlock(m->door);
    if (m->users)
        again_in(m, 0);
    else
        m->changed(m->arg);
}

/* The daemon waits for its clients before it ends; none are ours, and clients of
 * others do not keep it running. */
static void on_ended(void *arg, int status, const char *said)
{
    struct hy_mps *m = arg;
    pid_t pid = daemon_of(m->directory);

    (void)said;
    m->helper = NULL;
    if (pid && status != 0) {
        hy_warn("the MPS daemon does not end by itself and is killed gpu=%s pid=%d status=%d", m->uuid, (int)pid,
                status);
        kill(pid, SIGKILL);
    }
    is_off(m);
}

static void leave(struct hy_mps *m)
{
    struct hy_err err = {0};
    int rc;

    m->state = LEAVING;
    rc = open_door(m);
    if (rc == 0)
        return;
    /* flock releases the shared lock first: then another agent may be the last, or this one. */
    if (rc < 0 || flock(m->use, LOCK_EX | LOCK_NB) < 0 || !daemon_of(m->directory)) {
        is_off(m);
        return;
    }
    m->state = ENDING;
    if (control(m, NULL, "quit -t 2\n", on_ended, &err) < 0) {
        hy_warn("the MPS daemon cannot be ended gpu=%s error=%s", m->uuid, err.text);
        is_off(m);
    }
}

/* ---- both --------------------------------------------------------------------------- */

static void step(struct hy_mps *m)
{
    switch (m->state) {
    case OFF:
    case ENTERING:
        if (m->users)
            enter(m);
        else
            is_off(m);
        break;
    case ON:
    case LEAVING:
        if (!m->users)
            leave(m);
        else
            is_on(m);
        break;
    default:
        break; /* a helper is at work; or there is nothing to do */
    }
}

int hy_mps_ready(struct hy_mps *m)
{
    if (m->state == BROKEN)
        return -ENOTSUP;
    if (m->state != ON)
        return 0;
    if (is_recovering(m)) {
        again_in(m, RECOVERY_MS);
        return 0;
    }
    return 1;
}

void hy_mps_use(struct hy_mps *m)
{
    m->users++;
    if (m->state == ON && !daemon_of(m->directory)) /* it was killed */
        m->state = OFF;
    if (m->state == ON)
        uv_timer_stop(&m->timer);
    else if (m->state == OFF)
        again_in(m, 0);
}

void hy_mps_drop(struct hy_mps *m)
{
    if (--m->users == 0 && m->state == ON)
        linger(m);
}

void hy_mps_leave(struct hy_mps *m)
{
    m->told_to_leave = true;
    if (m->state == ON && !m->users)
        again_in(m, 0);
}

bool hy_mps_is_idle(const struct hy_mps *m)
{
    return m->state == OFF || m->state == BROKEN;
}

const char *hy_mps_folder(const struct hy_mps *m)
{
    return m->directory;
}

struct hy_mps *hy_mps_new(uv_loop_t *loop, const char *uuid, void (*changed)(void *arg), void *arg)
{
    struct hy_mps *m = hy_calloc(1, sizeof *m);

    if (!m)
        return NULL;
    *m = (struct hy_mps){.loop = loop, .door = -1, .use = -1, .changed = changed, .arg = arg};
    m->uuid = hy_strdup(uuid);
    if (!m->uuid) {
        free(m);
        return NULL;
    }
    uv_timer_init(loop, &m->timer);
    m->timer.data = m;
    return m;
}

static void on_closed(uv_handle_t *handle)
{
    struct hy_mps *m = handle->data;

    free(m->uuid);
    free(m->directory);
    free(m);
}

void hy_mps_free(struct hy_mps *m)
{
    if (!m)
        return;
    hy_helper_cancel(m->helper);
    hy_close_at(&m->door);
    hy_close_at(&m->use);
    uv_close((uv_handle_t *)&m->timer, on_closed);
}

/* ---- what was left behind --------------------------------------------------------------- */

static void ignore(void *arg)
{
    (void)arg;
}

static void close_dir(DIR **dir)
{
    if (*dir)
        closedir(*dir);
}

/* Whether it is unused, and could be ended now. */
static bool is_unused(const struct hy_mps *m)
{
    bool is = flock(m->use, LOCK_EX | LOCK_NB) == 0;

    unlock(m->use);
    return is;
}

/* Leaves it as its last user would: 1 when that has ended a daemon, or would with `dry`. */
static int sweep_one(uv_loop_t *loop, char *directory, bool dry)
{
    struct hy_mps *m = hy_mps_new(loop, "", ignore, NULL);
    struct hy_err err = {0};
    pid_t pid = daemon_of(directory);
    int rc = m ? 0 : -ENOMEM;

    if (m)
        m->directory = hy_strdup(directory);
    if (rc == 0)
        rc = m->directory ? open_locks(m, &err) : -ENOMEM;
    if (rc == 0 && dry)
        rc = pid && is_unused(m);
    else if (rc == 0 && pid) {
        m->state = ON;
        hy_mps_leave(m);
        uv_run(loop, UV_RUN_DEFAULT);
    }
    hy_mps_free(m);
    uv_run(loop, UV_RUN_DEFAULT);
    return rc != 0 || dry ? rc : pid && !daemon_of(directory);
}

static int sweep_folder(uv_loop_t *loop, const char *runtime, bool dry)
{
    __attribute__((cleanup(close_dir))) DIR *dir = opendir(runtime);
    struct dirent *entry;
    int count = 0, rc = dir ? 0 : -errno;

    while (rc >= 0 && (entry = readdir(dir))) {
        hy_cleanup_free char *path = NULL;

        if (strncmp(entry->d_name, "mps-", 4) != 0)
            continue;
        path = hy_path_join(runtime, entry->d_name);
        rc = path ? sweep_one(loop, path, dry) : -ENOMEM;
        count += rc > 0;
    }
    return rc < 0 ? rc : count;
}

int hy_gpu_sweep(bool dry)
{
    struct hy_err err = {0};
    hy_cleanup_free char *runtime = hy_runtime_dir(&err);
    uv_loop_t loop;
    int rc;

    if (!runtime)
        return err.code;
    rc = uv_loop_init(&loop);
    if (rc < 0)
        return rc;
    rc = sweep_folder(&loop, runtime, dry);
    uv_loop_close(&loop);
    return rc;
}
