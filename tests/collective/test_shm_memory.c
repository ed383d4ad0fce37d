/* SPDX-License-Identifier: Apache-2.0 */
/* The memory shared by the ranks of one agent, apart from collectives: sets, pipes, bells, failed waits, errors. */
#include "shm_world.h"

#include <signal.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "collective/shm/shm_set.h"

/* ---- sets --------------------------------------------------------------------------- */

static int use_set(struct rank *r, unsigned slot, const unsigned *members, unsigned count)
{
    struct hy_shm_set *set;
    float in = (float)(r->local + 1), out = 0, expected = 0;

    for (unsigned i = 0; i < count; i++)
        expected += (float)(members[i] + 1);
    EXPECT(hy_shm_set_open(r->shm, slot, members, count, &set) == 0);
    for (int i = 0; i < 100; i++) {
        EXPECT(hy_shm_allreduce(set, &in, &out, 1, HY_F32, HY_SUM, 1, 1) == 0);
        EXPECT(out == expected);
    }
    hy_shm_set_close(set);
    return 0;
}

static int use_sets(struct rank *r, void *arg)
{
    const unsigned even[] = {0, 2}, odd[] = {1, 3}, all[] = {0, 1, 2, 3};
    int line = 0;

    (void)arg;
    for (int i = 0; line == 0 && i < 5; i++) { /* reuses the same slots at once */
        line = use_set(r, r->local % 2 ? 2 : 1, r->local % 2 ? odd : even, 2);
        if (line == 0)
            line = use_set(r, HY_SETS_MAX - 1, all, 4);
    }
    return line;
}

HY_TEST(test_sets_coexist_and_their_slots_are_reused)
{
    as_threads(4, use_sets, NULL);
    as_processes(4, use_sets, NULL);
}

static int pages_come_and_go(struct rank *r, void *arg)
{
    const unsigned both[] = {0, 1};
    const size_t n = 4 << 20;
    hy_cleanup_free uint8_t *in = calloc(n, 1), *out = malloc(n);
    struct hy_shm_set *set;
    struct stat before, during, after;

    (void)arg;
    EXPECT(hy_shm_barrier(r->set) == 0 && fstat(r->host->fd, &before) == 0);
    EXPECT(hy_shm_set_open(r->shm, 7, both, 2, &set) == 0);
    EXPECT(hy_shm_allreduce(set, in, out, n, HY_U8, HY_SUM, 1, 1) == 0);
    EXPECT(hy_shm_barrier(r->set) == 0 && fstat(r->host->fd, &during) == 0 && hy_shm_barrier(r->set) == 0);
    hy_shm_set_close(set);
    EXPECT(hy_shm_barrier(r->set) == 0 && fstat(r->host->fd, &after) == 0);
    EXPECT(during.st_blocks - before.st_blocks > 256 << 10 >> 9);       /* it was used ... */
    EXPECT(during.st_blocks - before.st_blocks < 6 << 20 >> 9);         /* ... within bounds ... */
    EXPECT(after.st_blocks - before.st_blocks < 128 << 10 >> 9);        /* ... and freed */
    return 0;
}

HY_TEST(test_memory_of_a_set_is_bounded_and_freed)
{
    as_threads(2, pages_come_and_go, NULL);
    for (unsigned count = 1; count <= HY_LOCAL_MAX_RANKS; count++)
        assert_in_range(hy_shm_size(count) / HY_SETS_MAX, 1, 36 << 20);
}

static int open_invalid_sets(struct rank *r, void *arg)
{
    const unsigned all[] = {0, 1};
    struct hy_shm_set *set = NULL;

    (void)arg;
    EXPECT(hy_shm_set_open(r->shm, HY_SETS_MAX, all, 2, &set) == -EINVAL);
    EXPECT(hy_shm_set_open(r->shm, 1, all, 0, &set) == -EINVAL);
    EXPECT(hy_shm_set_open(r->shm, 1, all, 3, &set) == -EINVAL);
    EXPECT(hy_shm_set_open(r->shm, 1, &all[1 - r->local], 1, &set) == -EINVAL); /* not a member */
    EXPECT(hy_shm_set_open(r->shm, 1, (const unsigned[]){1, 0}, 2, &set) == -EINVAL);
    EXPECT(hy_shm_set_open(r->shm, 1, (const unsigned[]){r->local, 2}, 2, &set) == -EINVAL); /* not on this host */
    EXPECT(set == NULL);
    return 0;
}

HY_TEST(test_an_invalid_set_is_refused)
{
    as_threads(2, open_invalid_sets, NULL);
}

/* ---- pipes -------------------------------------------------------------------------- */

#define TRANSFER_BYTES 300000u

/* Both directions at the same time, in pieces of odd sizes; sleeps when no byte can be transferred. */
static int transfer(struct rank *r, unsigned peer)
{
    size_t sent = 0, received = 0;
    hy_cleanup_free uint8_t *out = malloc(TRANSFER_BYTES), *in = malloc(TRANSFER_BYTES);

    fill_bytes(out, TRANSFER_BYTES, r->local);
    while (sent < TRANSFER_BYTES || received < TRANSFER_BYTES) {
        size_t w = hy_shm_pipe_write(r->shm, peer, out + sent, hy_smaller(TRANSFER_BYTES - sent, 7777));
        size_t h = hy_shm_pipe_read(r->shm, peer, in + received, hy_smaller(TRANSFER_BYTES - received, 5555));

        sent += w;
        received += h;
        if (w || h)
            continue;
        hy_shm_set_sleeping(r->shm, true);
        w = hy_shm_pipe_write(r->shm, peer, out + sent, hy_smaller(TRANSFER_BYTES - sent, 1));
        h = hy_shm_pipe_read(r->shm, peer, in + received, hy_smaller(TRANSFER_BYTES - received, 1));
        if (!w && !h)
            EXPECT(hy_waiter_sleep(&r->waiter, NULL, 0, -1) == 0);
        hy_shm_set_sleeping(r->shm, false);
        sent += w;
        received += h;
    }
    EXPECT(are_bytes(in, TRANSFER_BYTES, peer, 0));
    return 0;
}

static int transfer_with_all(struct rank *r, void *arg)
{
    int line = 0;

    (void)arg;
    if (r->local)
        return transfer(r, 0);
    for (unsigned peer = 1; line == 0 && peer < r->count; peer++)
        line = transfer(r, peer);
    return line;
}

HY_TEST(test_pipes_carry_bytes_both_ways)
{
    as_threads(3, transfer_with_all, NULL);
    as_processes(3, transfer_with_all, NULL);
}

static int use_invalid_counters(struct rank *r, void *arg)
{
    uint8_t bytes[16];

    (void)arg;
    EXPECT(hy_shm_pipe_read(r->shm, 1, bytes, sizeof bytes) == 0);
    atomic_store(&r->shm->head->pipes[1][1].written, UINT64_MAX / 2);
    EXPECT(hy_shm_pipe_read(r->shm, 1, bytes, sizeof bytes) == 0);
    atomic_store(&r->shm->head->pipes[1][0].read, 1); /* more than was written */
    EXPECT(hy_shm_pipe_write(r->shm, 1, bytes, sizeof bytes) == 0);
    return 0;
}

static int as_first_only(struct rank *r, void *arg)
{
    return r->local ? 0 : use_invalid_counters(r, arg);
}

HY_TEST(test_invalid_pipe_counters_transfer_nothing)
{
    as_threads(2, as_first_only, NULL);
}

/* ---- failed waits ----------------------------------------------------------- */

static int fail_third(void *arg, struct hy_err *err)
{
    unsigned *calls = arg;

    return ++*calls < 3 ? 0 : hy_err_set(err, -ECONNABORTED, "rank 1 is lost");
}

/* Waits for the share of a rank, for room in a ring, for the shares of a slice. */
static int wait_for(struct rank *r, int what)
{
    const size_t large = 4 << 20;
    hy_cleanup_free float *in = calloc(1, large), *out = calloc(1, large);

    if (what == 0)
        return hy_shm_allreduce(r->set, in, out, 1, HY_F32, HY_SUM, 1, 1);
    if (what == 1)
        return hy_shm_broadcast(r->set, in, large, r->local);
    return hy_shm_allreduce(r->set, in, out, large / sizeof *in, HY_F32, HY_SUM, 1, 1);
}

static int wait_in_vain(struct rank *r, void *arg)
{
    unsigned calls = 0;
    float in = 1;

    if (r->local == 1)
        return 0; /* never makes the call */
    r->waiter.check = fail_third;
    r->waiter.arg = &calls;
    EXPECT(wait_for(r, *(int *)arg) == -ECONNABORTED);
    EXPECT(strcmp(r->waiter.failed.text, "rank 1 is lost") == 0);
    EXPECT(hy_shm_barrier(r->set) == -ECONNABORTED && hy_shm_broadcast(r->set, &in, 4, 1) == -ECONNABORTED);
    EXPECT(hy_waiter_sleep(&r->waiter, NULL, 0, -1) == -ECONNABORTED);
    EXPECT(calls == 3);
    return 0;
}

HY_TEST(test_a_wait_fails_with_the_message_of_its_check)
{
    for (int what = 0; what < 3; what++)
        as_threads(3, wait_in_vain, &what);
}

static int no_words(void *arg, struct hy_err *err)
{
    (void)arg;
    (void)err;
    return -EPIPE;
}

HY_TEST(test_a_check_without_a_message_gets_one)
{
    int ends[2];
    struct hy_waiter w = {.bell = -1, .check = no_words};

    assert_int_equal(pipe(ends), 0);
    close(ends[1]); /* readable, at the end of the stream */
    w.watch_fd = ends[0];
    w.checked_ms = hy_clock_ms() + 1000000;
    assert_int_equal(hy_waiter_sleep(&w, NULL, 0, -1), -EPIPE);
    assert_non_null(strstr(w.failed.text, "failed"));
    close(ends[0]);
}

struct doom {
    int ends[2]; /* the victim holds the write end, so that its death is readable */
};

static int is_dead(void *arg, struct hy_err *err)
{
    struct pollfd end = {.fd = ((struct doom *)arg)->ends[0], .events = POLLIN};

    return poll(&end, 1, 0) > 0 ? hy_err_set(err, -ECONNABORTED, "rank 2 is dead") : 0;
}

static int work_until_death(struct rank *r, void *arg)
{
    struct doom *doom = arg;
    size_t count = 100000;
    hy_cleanup_free float *buf = calloc(count, sizeof *buf);
    int rc = 0;

    if (r->local != 2)
        close(doom->ends[1]);
    r->waiter.check = is_dead;
    r->waiter.arg = doom;
    r->waiter.watch_fd = doom->ends[0];
    for (int i = 0; rc == 0; i++) {
        if (r->local == 2 && i == 10)
            raise(SIGKILL);
        rc = hy_shm_allreduce(r->set, buf, buf, count, HY_F32, HY_SUM, 1, 1);
    }
    EXPECT(rc == -ECONNABORTED);
    return 0;
}

HY_TEST(test_a_killed_rank_ends_the_waits_of_others)
{
    struct host h;
    struct doom doom;
    pid_t pids[4];

    host_open(&h, 4);
    assert_int_equal(pipe(doom.ends), 0);
    for (unsigned i = 0; i < 4; i++) {
        struct rank r = {.host = &h, .local = i, .body = work_until_death, .arg = &doom};

        pids[i] = start_process(&r);
        assert_true(pids[i] > 0);
    }
    close(doom.ends[1]);
    for (unsigned i = 0; i < 4; i++) {
        int status;

        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(WIFSIGNALED(status) ? WTERMSIG(status) : status, i == 2 ? SIGKILL : 0);
    }
    close(doom.ends[0]);
    host_close(&h);
}

/* ---- bells -------------------------------------------------------------------------- */

HY_TEST(test_a_bell_wakes_and_ringing_never_blocks)
{
    char name[HY_BELL_MAX], other[HY_BELL_MAX];
    int bell = hy_bell_open(name, NULL), from = hy_bell_open(other, NULL);
    struct hy_waiter w = {.bell = bell, .watch_fd = -1};
    struct pollfd look = {.fd = bell, .events = POLLIN};

    assert_true(bell >= 0 && from >= 0 && strcmp(name, other) != 0);
    for (int i = 0; i < 10000; i++)
        hy_bell_ring(from, name);
    assert_int_equal(poll(&look, 1, 0), 1);
    assert_int_equal(hy_waiter_sleep(&w, NULL, 0, -1), 0);
    assert_int_equal(poll(&look, 1, 0), 0); /* drained */
    close(bell);
    hy_bell_ring(from, name); /* closed */
    close(from);
}

HY_TEST(test_a_sleep_polls_additional_descriptors)
{
    int ends[2];
    struct hy_waiter w = {.bell = -1, .watch_fd = -1};
    struct pollfd more[100];

    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    for (int i = 0; i < 100; i++)
        more[i] = (struct pollfd){.fd = i == 99 ? ends[0] : -1, .events = POLLIN, .revents = POLLERR};
    assert_int_equal(hy_waiter_sleep(&w, more, 100, -1), 0); /* more than fit on the stack */
    assert_int_equal(more[99].revents, POLLIN);
    assert_int_equal(more[0].revents, 0);
    assert_int_equal(hy_waiter_sleep(&w, more + 98, 2, -1), 0);
    assert_int_equal(hy_waiter_sleep(&w, NULL, 0, 1), 0);
    close(ends[0]);
    close(ends[1]);
}

/* ---- errors of open ---------------------------------------------------------- */

HY_TEST(test_memory_is_reserved_once_and_cannot_shrink)
{
    int fd = memfd_create("empty", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct hy_err err = {0};

    assert_int_equal(hy_shm_reserve(fd, 2, &err), 0);
    assert_int_equal(hy_shm_reserve(fd, 2, &err), 0); /* the second rank */
    assert_int_equal(lseek(fd, 0, SEEK_END), hy_shm_size(2));
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_int_equal(hy_shm_reserve(fd, 3, &err), -EPERM);
    assert_non_null(strstr(err.text, "3 ranks"));
    close(fd);
    fd = memfd_create("unsealed", MFD_CLOEXEC);
    assert_int_equal(hy_shm_reserve(fd, 2, &err), -EPERM); /* another process could shrink it */
    close(fd);
    assert_int_equal(hy_shm_reserve(-1, 2, &err), -EBADF);
}

HY_TEST(test_memory_of_the_wrong_size_is_refused)
{
    const char *names[HY_LOCAL_MAX_RANKS + 1] = {"a", "b"};
    struct hy_waiter w = {.bell = -1, .watch_fd = -1};
    struct hy_shm *shm = NULL;
    struct hy_err err = {0};
    int fd = memfd_create("small", MFD_CLOEXEC);

    assert_int_equal(ftruncate(fd, (off_t)hy_shm_size(2) - 1), 0);
    assert_int_equal(hy_shm_open(fd, 0, 2, names, &w, &shm, &err), -EINVAL);
    assert_non_null(strstr(err.text, "2 ranks"));
    assert_int_equal(hy_shm_open(fd, 2, 2, names, &w, &shm, &err), -EINVAL);
    assert_int_equal(hy_shm_open(fd, 0, HY_LOCAL_MAX_RANKS + 1, names, &w, &shm, &err), -EINVAL);
    assert_int_equal(hy_shm_open(-1, 0, 2, names, &w, &shm, &err), -EINVAL);
    assert_null(shm);
    hy_shm_close(NULL);
    hy_shm_set_close(NULL);
    close(fd);
}

/* A single rank makes every call that can fail. */
static int open_and_close(void *arg)
{
    struct rank r = {.host = arg};
    char name[HY_BELL_MAX];
    struct pollfd more[100];
    struct hy_err err = {0};
    int bell = hy_bell_open(name, &err), rc = bell < 0 ? bell : 0;

    if (rc == 0)
        rc = rank_open(&r, &err);
    for (int i = 0; i < 100; i++)
        more[i] = (struct pollfd){.fd = -1};
    if (rc == 0)
        rc = hy_waiter_sleep(&r.waiter, more, 100, 0);
    rank_close(&r);
    if (bell >= 0)
        close(bell);
    return rc;
}

HY_TEST(test_system_errors_are_reported_and_leak_nothing)
{
    struct host h;

    host_open(&h, 1);
    hy_each_fault(HY_SEAM_ALLOC, open_and_close, &h);
    hy_each_fault(HY_SEAM_SYS, open_and_close, &h);
    host_close(&h);
}
