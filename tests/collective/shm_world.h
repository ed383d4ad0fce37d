/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of one agent. In most tests they are threads, each with its own mapping, for ThreadSanitizer; in some they are
 * processes, as in production. A rank reports a failure as a line number, since cmocka's longjmp works in the main
 * thread only.
 */
#ifndef HY_TESTS_SHM_WORLD_H
#define HY_TESTS_SHM_WORLD_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

#include "base/mem.h"
#include "collective/shm/shm.h"

#define EXPECT(what)                                                                                                   \
    do {                                                                                                               \
        if (!(what))                                                                                                   \
            return __LINE__;                                                                                           \
    } while (0)

#define RANKS_MAX HY_LOCAL_MAX_RANKS

struct host {
    int fd;
    unsigned count;
    _Atomic int *failed; /* in shared memory, so that no rank waits for one that has failed */
    int bells[RANKS_MAX];
    char names[RANKS_MAX][HY_BELL_MAX];
};

struct rank {
    const struct host *host;
    unsigned local, count;
    struct hy_waiter waiter;
    struct hy_shm *shm;
    struct hy_shm_set *set; /* of all ranks */
    int (*body)(struct rank *r, void *arg);
    void *arg;
    int line; /* the result of body */
};

/* ---- a host with ranks -------------------------------------------------------------- */

static inline void host_open(struct host *h, unsigned count)
{
    *h = (struct host){.count = count, .fd = memfd_create("shm", MFD_CLOEXEC)};
    h->failed = mmap(NULL, sizeof *h->failed, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(h->fd >= 0 && h->failed != MAP_FAILED);
    assert_int_equal(ftruncate(h->fd, (off_t)hy_shm_size(count)), 0);
    for (unsigned i = 0; i < count; i++) {
        h->bells[i] = hy_bell_open(h->names[i], NULL);
        assert_true(h->bells[i] >= 0);
    }
}

static inline void host_close(struct host *h)
{
    for (unsigned i = 0; i < h->count; i++)
        close(h->bells[i]);
    munmap(h->failed, sizeof *h->failed);
    close(h->fd);
}

static inline int has_failed(void *arg, struct hy_err *err)
{
    const struct host *h = arg;

    return atomic_load(h->failed) ? hy_err_set(err, -ECANCELED, "another rank has failed") : 0;
}

static inline int rank_open(struct rank *r, struct hy_err *err)
{
    const char *names[RANKS_MAX];
    unsigned all[RANKS_MAX];
    int rc;

    r->count = r->host->count;
    r->waiter.bell = r->host->bells[r->local];
    r->waiter.watch_fd = -1;
    r->waiter.check = has_failed;
    r->waiter.arg = (void *)r->host;
    for (unsigned i = 0; i < r->count; i++) {
        names[i] = r->host->names[i];
        all[i] = i;
    }
    rc = hy_shm_open(r->host->fd, r->local, r->count, names, &r->waiter, &r->shm, err);
    return rc < 0 ? rc : hy_shm_set_open(r->shm, 0, all, r->count, &r->set);
}

static inline void rank_close(struct rank *r)
{
    hy_shm_set_close(r->set);
    hy_shm_close(r->shm);
}

static inline void *rank_main(void *arg)
{
    struct rank *r = arg;

    r->line = rank_open(r, NULL);
    if (r->line == 0)
        r->line = r->body(r, r->arg);
    if (r->line)
        atomic_store(r->host->failed, 1);
    rank_close(r);
    return NULL;
}

static inline void as_threads(unsigned count, int (*body)(struct rank *r, void *arg), void *arg)
{
    struct host h;
    struct rank ranks[RANKS_MAX] = {0};
    pthread_t threads[RANKS_MAX];

    host_open(&h, count);
    for (unsigned i = 0; i < count; i++) {
        ranks[i] = (struct rank){.host = &h, .local = i, .body = body, .arg = arg};
        assert_int_equal(pthread_create(&threads[i], NULL, rank_main, &ranks[i]), 0);
    }
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (unsigned i = 0; i < count; i++)
        if (ranks[i].line)
            fail_msg("rank %u of %u: %s %d", i, count, ranks[i].line < 0 ? "error" : "line", abs(ranks[i].line));
    host_close(&h);
}

/* The exit status of a child is 0 or 1, with the failed line on standard error. */
static inline pid_t start_process(struct rank *r)
{
    pid_t pid = fork();

    if (pid == 0) {
        rank_main(r);
        if (r->line)
            fprintf(stderr, "rank %u: line %d\n", r->local, r->line);
        _exit(r->line != 0);
    }
    return pid;
}

static inline void as_processes(unsigned count, int (*body)(struct rank *r, void *arg), void *arg)
{
    struct host h;
    pid_t pids[RANKS_MAX];
    int bad = 0;

    host_open(&h, count);
    for (unsigned i = 0; i < count; i++) {
        struct rank r = {.host = &h, .local = i, .body = body, .arg = arg};

        pids[i] = start_process(&r);
        assert_true(pids[i] > 0);
    }
    for (unsigned i = 0; i < count; i++) {
        int status;

        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        bad += status != 0;
    }
    assert_int_equal(bad, 0);
    host_close(&h);
}

/* ---- bytes -------------------------------------------------------------------------- */

static inline uint8_t byte(unsigned rank, size_t i)
{
    return (uint8_t)(rank * 31 + i * 7 + i / 256);
}

static inline void fill_bytes(uint8_t *p, size_t n, unsigned rank)
{
    for (size_t i = 0; i < n; i++)
        p[i] = byte(rank, i);
}

static inline bool are_bytes(const uint8_t *p, size_t n, unsigned rank, size_t first)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != byte(rank, first + i))
            return false;
    return true;
}

#endif
