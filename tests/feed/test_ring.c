/* SPDX-License-Identifier: Apache-2.0 */
/* Rings: between two processes, with either of them killed, and with corrupt memory. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"
#include "feed/feed.h"

#define MESSAGES 300000u
#define SMALL_MESSAGES 100000000u
#define SMALL_MAX 3000u
#define WIDE_MESSAGES 2000u
#define WIDE_MAX (4u << 20)

struct pair {
    struct hy_ring *writer, *reader;
    int memory;
};

static void open_pair(struct pair *p, size_t size)
{
    struct hy_err err = {0};
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    assert_int_equal(hy_ring_new(size, ends[0], &p->writer, &p->memory, &err), 0);
    assert_int_equal(hy_ring_open(p->memory, ends[1], &p->reader, &err), 0);
}

static void close_pair(struct pair *p)
{
    hy_ring_close(p->writer);
    hy_ring_close(p->reader);
    close(p->memory);
}

/* ---- one process ---- */

HY_TEST(test_messages_arrive_unchanged)
{
    struct hy_ring_message m;
    struct pair p;

    open_pair(&p, 1);
    assert_int_equal(hy_ring_next(p.reader, &m), 0);
    for (uint32_t i = 0; i < 100000; i++) { /* many times around the ring */
        char *room = hy_ring_reserve(p.writer, 64);

        assert_non_null(room);
        assert_int_equal((uintptr_t)room % 8, 0);
        snprintf(room, 64, "message %u", i);
        hy_ring_send(p.writer, i, strlen(room) + 1);
        assert_int_equal(hy_ring_next(p.reader, &m), 1);
        assert_int_equal(m.kind, i);
        assert_string_equal(m.bytes, room);
        hy_ring_release(p.reader);
    }
    assert_int_equal(hy_ring_next(p.reader, &m), 0);
    close_pair(&p);
}

HY_TEST(test_full_ring_has_no_space_until_a_release)
{
    struct hy_ring_message m;
    struct pair p;
    unsigned count = 0;

    open_pair(&p, HY_RING_MIN);
    while (hy_ring_reserve(p.writer, 1000)) {
        hy_ring_send(p.writer, count++, 1000);
        assert_true(count < 100);
    }
    assert_int_equal(count, HY_RING_MIN / 1008);
    assert_int_equal(hy_ring_wait_for_space(p.writer, 1000, 20), 0);
    assert_int_equal(hy_ring_next(p.reader, &m), 1);
    hy_ring_release(p.reader);
    assert_int_equal(hy_ring_wait_for_space(p.writer, 1000, 20), 1);
    assert_int_equal(hy_ring_wait_for_space(p.writer, HY_RING_MIN, 20), -EMSGSIZE);
    assert_null(hy_ring_reserve(p.writer, HY_RING_MIN));
    close_pair(&p);
}

HY_TEST(test_pending_messages_outlive_the_writer)
{
    struct hy_ring_message m;
    struct pair p;

    open_pair(&p, HY_RING_MIN);
    assert_non_null(hy_ring_reserve(p.writer, 4));
    hy_ring_send(p.writer, 7, 4);
    hy_ring_close(hy_take(p.writer));
    assert_int_equal(hy_ring_wait_for_message(p.reader, -1), 1);
    assert_int_equal(hy_ring_next(p.reader, &m), 1);
    hy_ring_release(p.reader);
    assert_int_equal(hy_ring_wait_for_message(p.reader, -1), -EPIPE);
    close_pair(&p);
}

/* ---- corrupt memory ---- */

HY_TEST(test_invalid_memory_is_refused)
{
    struct hy_ring *r = NULL;
    struct hy_err err = {0};
    int ends[2], fd = memfd_create("not a ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 128 << 10), 0);
    for (int sealed = 0; sealed < 2; sealed++) { /* size not sealed; sealed, but empty */
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
        assert_int_equal(hy_ring_open(fd, ends[0], &r, &err), -EPROTO);
        assert_string_equal(err.text, "the received memory is not a ring");
        close(ends[1]);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), sealed ? -1 : 0);
    }
    close(fd);
}

/* Whatever a writer puts anywhere, the reader returns -EPROTO or stays within the ring, which ASan and the kernel
 * check. */
HY_TEST(test_corrupt_ring_is_refused_or_stays_within_bounds)
{
    struct hy_rng rng;

    hy_rng_seed(&rng, 11, 0);
    for (int i = 0; i < 2000; i++) {
        struct hy_ring_message m;
        struct pair p;
        uint64_t *words;

        open_pair(&p, HY_RING_MIN);
        words = mmap(NULL, 128 << 10, PROT_READ | PROT_WRITE, MAP_SHARED, p.memory, 0);
        assert_true(words != MAP_FAILED);
        words[8] = i % 2 ? hy_rng_next(&rng) : hy_rng_next(&rng) % (80 << 10);
        if (i % 5 == 0) /* the window */
            words[9] = i % 2 ? hy_rng_next(&rng) : 1ull << hy_rng_next(&rng) % 64;
        words[16] = hy_rng_next(&rng);
        words[8192] = i % 3 ? hy_rng_next(&rng) : hy_rng_next(&rng) % (40 << 10);
        for (int k = 0; k < 10 && hy_ring_next(p.reader, &m) > 0; k++) {
            uint8_t sum = 0;

            for (size_t b = 0; b < m.n; b++)
                sum = (uint8_t)(sum + ((const uint8_t *)m.bytes)[b]);
            words[9000] = sum; /* keeps the reads */
            hy_ring_release(p.reader);
        }
        (void)hy_ring_wait_for_message(p.reader, 0);
        (void)hy_ring_wait_for_space(p.writer, 100, 0);
        assert_int_equal(munmap(words, 128 << 10), 0);
        close_pair(&p);
    }
}

/* ---- two processes ---- */

/* Unless 0: one message in 29 is up to this large. */
static size_t wide_max;

static size_t length_of(uint64_t i)
{
    return (size_t)(i * 2654435761u >> 7) % (wide_max && i % 29 == 28 ? wide_max : SMALL_MAX);
}

static void fill(uint8_t *bytes, uint64_t i, size_t n)
{
    for (size_t k = 0; k + 8 <= n; k += 8)
        memcpy(bytes + k, &(uint64_t){i * 31 + k}, 8);
}

static bool is_expected_message(const struct hy_ring_message *m, uint64_t i)
{
    if (m->n != length_of(i) || m->kind != (uint32_t)i)
        return false;
    for (size_t k = 0; k + 8 <= m->n; k += 8)
        if (memcmp((const uint8_t *)m->bytes + k, &(uint64_t){i * 31 + k}, 8) != 0)
            return false;
    return true;
}

/* In the writer's process. Exit status: 0 when all was released, 3 when the reader was gone. */
static void write_all(struct hy_ring *r, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const size_t n = length_of(i);
        uint8_t *room = hy_ring_reserve(r, n);

        if (!room && hy_ring_wait_for_space(r, n, -1) < 0)
            _exit(3);
        room = room ? room : hy_ring_reserve(r, n);
        fill(room, i, n);
        hy_ring_send(r, (uint32_t)i, n);
    }
    _exit(hy_ring_wait_until_empty(r, -1) == 1 ? 0 : 3);
}

static pid_t start_writer(struct pair *p, uint64_t count)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        hy_ring_close(p->reader);
        write_all(p->writer, count);
    }
    hy_ring_close(hy_take(p->writer));
    return pid;
}

static int status_of(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void transfer(size_t size, uint64_t count)
{
    struct pair p;
    pid_t pid;

    open_pair(&p, size);
    pid = start_writer(&p, count);
    for (uint64_t i = 0; i < count; i++) {
        struct hy_ring_message m;

        assert_int_equal(hy_ring_wait_for_message(p.reader, -1), 1);
        assert_int_equal(hy_ring_next(p.reader, &m), 1);
        assert_true(is_expected_message(&m, i));
        hy_ring_release(p.reader);
    }
    assert_int_equal(hy_ring_wait_for_message(p.reader, -1), -EPIPE);
    assert_int_equal(status_of(pid), 0);
    close_pair(&p);
}

HY_TEST(test_no_message_is_lost_torn_or_duplicated)
{
    transfer(256 << 10, MESSAGES);
}

HY_TEST(test_window_grows_for_large_messages_among_small_ones)
{
    wide_max = WIDE_MAX;
    transfer(8 << 20, WIDE_MESSAGES);
    wide_max = 0;
}

HY_TEST(test_small_messages_use_a_small_window)
{
    struct hy_ring_message m;
    struct stat st;
    struct pair p;

    open_pair(&p, 64 << 20);
    for (unsigned i = 0; i < 1000; i++) {
        void *room = hy_ring_reserve(p.writer, 100000);

        assert_non_null(room);
        memset(room, 1, 100000);
        hy_ring_send(p.writer, i, 100000);
        assert_int_equal(hy_ring_next(p.reader, &m), 1);
        hy_ring_release(p.reader);
    }
    assert_int_equal(fstat(p.memory, &st), 0);
    assert_in_range(st.st_blocks * 512, 1 << 20, 6 << 20);
    close_pair(&p);
}

/* The smallest messages, so that writer and reader meet at every offset of the ring. */
static void write_numbers(struct hy_ring *r)
{
    for (uint64_t i = 0; i < SMALL_MESSAGES; i++) {
        void *room = hy_ring_reserve(r, sizeof i);

        if (!room && hy_ring_wait_for_space(r, sizeof i, -1) < 0)
            _exit(3);
        memcpy(room ? room : hy_ring_reserve(r, sizeof i), &i, sizeof i);
        hy_ring_send(r, 0, sizeof i);
    }
    _exit(hy_ring_wait_until_empty(r, -1) == 1 ? 0 : 3);
}

HY_TEST(test_a_hundred_million_messages_stay_in_order)
{
    struct pair p;
    pid_t pid;

    open_pair(&p, 1 << 20);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        hy_ring_close(p.reader);
        write_numbers(p.writer);
    }
    hy_ring_close(hy_take(p.writer));
    for (uint64_t i = 0; i < SMALL_MESSAGES; i++) {
        struct hy_ring_message m;
        int rc;

        while ((rc = hy_ring_next(p.reader, &m)) == 0)
            assert_int_equal(hy_ring_wait_for_message(p.reader, -1), 1);
        if (rc != 1 || m.n != sizeof i || memcmp(m.bytes, &i, sizeof i) != 0)
            fail_msg("message %llu", (unsigned long long)i);
        hy_ring_release(p.reader);
    }
    assert_int_equal(hy_ring_wait_for_message(p.reader, -1), -EPIPE);
    assert_int_equal(status_of(pid), 0);
    close_pair(&p);
}

HY_TEST(test_killed_writer_leaves_only_complete_messages)
{
    for (unsigned round = 0; round < 30; round++) {
        struct hy_ring_message m;
        struct pair p;
        uint64_t i = 0;
        pid_t pid;
        int rc;

        open_pair(&p, HY_RING_MIN);
        pid = start_writer(&p, UINT64_MAX);
        while ((rc = hy_ring_wait_for_message(p.reader, -1)) == 1) {
            assert_int_equal(hy_ring_next(p.reader, &m), 1);
            assert_true(is_expected_message(&m, i));
            hy_ring_release(p.reader);
            if (++i == 100 + 37 * round)
                assert_int_equal(kill(pid, SIGKILL), 0);
        }
        assert_int_equal(rc, -EPIPE);
        assert_int_equal(status_of(pid), 128 + SIGKILL);
        close_pair(&p);
    }
}

HY_TEST(test_writer_does_not_wait_for_a_closed_reader)
{
    for (unsigned round = 0; round < 30; round++) {
        struct hy_ring_message m;
        struct pair p;
        pid_t pid;

        open_pair(&p, HY_RING_MIN);
        pid = start_writer(&p, UINT64_MAX);
        for (unsigned i = 0; i < 11 * round; i++) {
            assert_int_equal(hy_ring_wait_for_message(p.reader, -1), 1);
            assert_int_equal(hy_ring_next(p.reader, &m), 1);
            hy_ring_release(p.reader);
        }
        hy_ring_close(hy_take(p.reader));
        assert_int_equal(status_of(pid), 3);
        close_pair(&p);
    }
}

/* ---- faults ---- */

static int make_and_use(void *arg)
{
    struct hy_ring *writer = NULL, *reader = NULL;
    struct hy_err err = {0};
    int ends[2], memory = -1, rc;

    (void)arg;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    rc = hy_ring_new(1, ends[0], &writer, &memory, &err);
    if (rc < 0) {
        close(ends[1]);
        return rc;
    }
    rc = hy_ring_open(memory, ends[1], &reader, &err);
    hy_ring_close(writer);
    hy_ring_close(reader);
    close(memory);
    return rc;
}

HY_TEST(test_failures_leak_nothing)
{
    hy_each_fault(HY_SEAM_ALLOC, make_and_use, NULL);
    hy_each_fault(HY_SEAM_SYS, make_and_use, NULL);
}
