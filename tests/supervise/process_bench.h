/* SPDX-License-Identifier: Apache-2.0 */
/* A supervisor on a loop, and trials on it, for test_process.c, test_limits.c and test_reaper.c. */
#ifndef HY_TESTS_PROCESS_BENCH_H
#define HY_TESTS_PROCESS_BENCH_H

#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervise/internal.h"
#include "base/mem.h"
#include "process_helpers.h"

#define WATCHDOG_S 240

extern char **environ;

struct bench {
    uv_loop_t loop;
    struct hy_supervisor *s;
};

struct trial {
    struct bench *bench;
    struct hy_process *p;
    int ended;
    struct hy_process_end end;
    char message[200];
    size_t total[3];
    uint8_t first[3][4096]; /* the beginning of each stream, NUL-terminated */
    int paused, wrong;
    size_t pause_every, next_pause;
    uv_timer_t resume;
};

static inline int count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static inline int is_there(pid_t pid)
{
    struct hy_proc proc;

    return hy_proc_read(pid, &proc) == 0 && !proc.dead;
}

static inline int has_children(void)
{
    return waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD;
}

static inline int open_bench(struct bench *b, struct hy_err *err)
{
    int rc;

    assert_int_equal(uv_loop_init(&b->loop), 0);
    rc = hy_supervisor_new(&b->loop, "test", &b->s, err);
    if (rc < 0) {
        uv_run(&b->loop, UV_RUN_DEFAULT);
        assert_int_equal(uv_loop_close(&b->loop), 0);
    }
    return rc;
}

static inline void close_bench(struct bench *b)
{
    hy_supervisor_free(b->s);
    uv_run(&b->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&b->loop), 0);
}

static inline void on_output(void *arg, struct hy_process *p, int fd, const uint8_t *bytes, size_t n)
{
    struct trial *t = arg;
    size_t room = sizeof t->first[fd] - 1;

    t->wrong |= n == 0 || n > 65536 || (t->paused && fd == 1);
    if (t->total[fd] < room)
        memcpy(t->first[fd] + t->total[fd], bytes, n < room - t->total[fd] ? n : room - t->total[fd]);
    for (size_t i = 0; t->pause_every && i < n; i++)
        t->wrong |= bytes[i] != (uint8_t)((t->total[fd] + i) * 2654435761u >> 11);
    t->total[fd] += n;
    if (t->pause_every && t->total[fd] >= t->next_pause) {
        t->next_pause += t->pause_every;
        t->paused = 1;
        hy_process_pause(p, 1, 1);
    }
}

static inline void on_end(void *arg, struct hy_process *p, const struct hy_process_end *end)
{
    struct trial *t = arg;

    assert_ptr_equal(p, t->p);
    t->ended++;
    t->end = *end;
    snprintf(t->message, sizeof t->message, "%s", end->message);
}

static const struct hy_process_events events = {.on_output = on_output, .on_end = on_end};

static inline int start_spec(struct bench *b, struct trial *t, const struct hy_process_spec *spec, struct hy_err *err)
{
    memset(t, 0, sizeof *t);
    t->bench = b;
    return hy_process_start(b->s, spec, &events, t, &t->p, err);
}

#define ARGV(...) ((char **)(const char *[]){__VA_ARGS__, NULL})

#define START(b, t, limit, ...)                                                                                        \
    do {                                                                                                               \
        struct hy_process_spec spec_ = {                                                                               \
            .tag = #t, .argv = ARGV(__VA_ARGS__), .env = environ, .cwd = "/", .memory = (limit)};                      \
        struct hy_err err_ = {0};                                                                                      \
        if (start_spec((b), (t), &spec_, &err_) < 0)                                                                   \
            fail_msg("%s", err_.text);                                                                                 \
    } while (0)

#define HELPER(...) self_path, "helper", __VA_ARGS__

static inline void run_to_end(struct trial *t)
{
    while (!t->ended)
        uv_run(&t->bench->loop, UV_RUN_ONCE);
    assert_int_equal(t->ended, 1);
    assert_false(t->wrong);
}

static inline int count_text(const char *text, const char *what)
{
    int n = 0;

    for (; (text = strstr(text, what)); text++)
        n++;
    return n;
}

/* Until `count` processes (or whatever `what` is) were printed. */
static inline void run_to_text(struct trial *t, const char *what, int count)
{
    while (count_text((char *)t->first[1], what) < count) {
        assert_false(t->ended);
        uv_run(&t->bench->loop, UV_RUN_ONCE);
    }
}

/* How many of the processes that were printed are still there. */
static inline int still_there(const struct trial *t)
{
    const char *text = (const char *)t->first[1];
    int n = 0;

    for (; (text = strstr(text, "pid ")); text++)
        n += is_there((pid_t)atoi(text + 4));
    return n;
}

static int fds_before;

/* libuv opens a pipe of its own the first time that it handles signals. */
static inline int warm_up(void **state)
{
    struct bench b;
    int rc = open_bench(&b, NULL);

    (void)state;
    if (rc == 0)
        close_bench(&b);
    return rc;
}

static inline int set_up(void **state)
{
    struct bench *b = calloc(1, sizeof *b);
    struct hy_err err = {0};

    alarm(WATCHDOG_S);
    fds_before = count_fds();
    *state = b;
    return open_bench(b, &err);
}

static inline int set_up_watch(void **state)
{
    setenv("HOPYARD_TEST_LIMITS", "watch", 1);
    return set_up(state);
}

/* Whatever a test did: no process, no zombie, no file is left of it. */
static inline int tear_down(void **state)
{
    struct bench *b = *state;

    if (b->s->count) { /* it has failed */
        return -1;
    }
    close_bench(b);
    free(b);
    unsetenv("HOPYARD_TEST_LIMITS");
    assert_false(has_children());
    assert_int_equal(count_fds(), fds_before);
    alarm(0);
    return 0;
}

static inline void write_file(const char *path, const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    fchmod(fd, mode);
    close(fd);
}

/* The test runs twice, in a cgroup and with the memory watch. */
#define BOTH(f)                                                                                                        \
    static void f(void **state);                                                                                       \
    HY_REGISTER(f##_by_watch, f, #f "_by_watch", set_up_watch, tear_down)                                              \
    HY_TEST_WITH(f, set_up, tear_down)

/* The end of each suite's main: this program is also what its trials run. */
static inline int run_suite(int argc, char **argv)
{
    if (readlink("/proc/self/exe", self_path, sizeof self_path - 1) < 0)
        return 2;
    if (argc > 2 && strcmp(argv[1], "helper") == 0)
        return run_helper(argv + 2);
    return hy_run_tests(argc > 1 ? argv[1] : NULL, warm_up, NULL);
}

#endif
