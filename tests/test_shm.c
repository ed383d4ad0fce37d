/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of one agent. Most tests have them as threads, each with its own
 * mapping, so that ThreadSanitizer can follow; some as processes, as they are
 * in life. What a rank finds wrong is a line number: cmocka's jumps are for the
 * thread that runs the test alone.
 */
#include "support.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "collective/shm.h"
#include "collective/shm_set.h"

#define EXPECT(what)                                                                                                   \
    do {                                                                                                               \
        if (!(what))                                                                                                   \
            return __LINE__;                                                                                           \
    } while (0)

#define RANKS_MAX 16u

struct host {
    int fd;
    unsigned count;
    int bells[RANKS_MAX];
    char names[RANKS_MAX][HY_BELL_MAX];
};

struct rank {
    const struct host *host;
    unsigned local, count;
    struct hy_waiter waiter;
    struct hy_shm *shm;
    struct hy_shm_set *set; /* of all */
    int (*body)(struct rank *r, void *arg);
    void *arg;
    int line; /* what it answered */
};

/* ---- a host with ranks -------------------------------------------------------------- */

static void host_open(struct host *h, unsigned count)
{
    *h = (struct host){.count = count, .fd = memfd_create("shm", MFD_CLOEXEC)};
    assert_true(h->fd >= 0);
    assert_int_equal(ftruncate(h->fd, (off_t)hy_shm_size(count)), 0);
    for (unsigned i = 0; i < count; i++) {
        h->bells[i] = hy_bell_open(h->names[i], NULL);
        assert_true(h->bells[i] >= 0);
    }
}

static void host_close(struct host *h)
{
    for (unsigned i = 0; i < h->count; i++)
        close(h->bells[i]);
    close(h->fd);
}

static int rank_open(struct rank *r, struct hy_err *err)
{
    const char *names[RANKS_MAX];
    unsigned all[RANKS_MAX];
    int rc;

    r->count = r->host->count;
    r->waiter.bell = r->host->bells[r->local];
    r->waiter.watch_fd = -1;
    for (unsigned i = 0; i < r->count; i++) {
        names[i] = r->host->names[i];
        all[i] = i;
    }
    rc = hy_shm_open(r->host->fd, r->local, r->count, names, &r->waiter, &r->shm, err);
    return rc < 0 ? rc : hy_shm_set_open(r->shm, 0, all, r->count, &r->set);
}

static void rank_close(struct rank *r)
{
    hy_shm_set_close(r->set);
    hy_shm_close(r->shm);
}

static void *rank_main(void *arg)
{
    struct rank *r = arg;

    r->line = rank_open(r, NULL);
    if (r->line == 0)
        r->line = r->body(r, r->arg);
    rank_close(r);
    return NULL;
}

static void as_threads(unsigned count, int (*body)(struct rank *r, void *arg), void *arg)
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

/* A child says what it found by its exit status: 0 or 1, with the line on standard error. */
static pid_t start_process(struct rank *r)
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

static void as_processes(unsigned count, int (*body)(struct rank *r, void *arg), void *arg)
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

/* ---- numbers ------------------------------------------------------------------------ */

/* Small whole numbers, that every type can hold, and sums of which too. */
static double number(unsigned rank, size_t i)
{
    return (double)((rank * 5 + i * 3 + i / 64) % 7);
}

static void put(void *p, size_t i, enum hy_type type, double v)
{
    uint32_t bits;
    float f = (float)v;

    switch (type) {
    case HY_U8: ((uint8_t *)p)[i] = (uint8_t)v; break;
    case HY_I8: ((int8_t *)p)[i] = (int8_t)v; break;
    case HY_U16: ((uint16_t *)p)[i] = (uint16_t)v; break;
    case HY_I16: ((int16_t *)p)[i] = (int16_t)v; break;
    case HY_U32: ((uint32_t *)p)[i] = (uint32_t)v; break;
    case HY_I32: ((int32_t *)p)[i] = (int32_t)v; break;
    case HY_U64: ((uint64_t *)p)[i] = (uint64_t)v; break;
    case HY_I64: ((int64_t *)p)[i] = (int64_t)v; break;
    case HY_F16: ((_Float16 *)p)[i] = (_Float16)v; break;
    case HY_BF16:
        memcpy(&bits, &f, sizeof bits);
        ((uint16_t *)p)[i] = (uint16_t)(bits >> 16);
        break;
    case HY_F32: ((float *)p)[i] = f; break;
    case HY_F64: ((double *)p)[i] = v; break;
    default: ((uint8_t *)p)[i] = v != 0; break;
    }
}

static double combined(unsigned count, size_t i, enum hy_type type, enum hy_reduce op)
{
    double all = type == HY_BOOL ? number(0, i) != 0 : number(0, i);

    for (unsigned r = 1; r < count; r++) {
        double v = type == HY_BOOL ? number(r, i) != 0 : number(r, i);

        all = op == HY_MIN ? (v < all ? v : all) : op == HY_MAX ? (v > all ? v : all) : all + v;
    }
    return all;
}

static void fill(void *p, size_t count, enum hy_type type, unsigned rank)
{
    for (size_t i = 0; i < count; i++)
        put(p, i, type, number(rank, i));
}

static bool is_combined(const void *p, size_t begin, size_t count, size_t first, unsigned ranks, enum hy_type type,
                        enum hy_reduce op)
{
    size_t size = hy_type_size(type);

    for (size_t i = 0; i < count; i++) {
        uint64_t expected = 0;

        put(&expected, 0, type, combined(ranks, first + i, type, op));
        if (memcmp((const uint8_t *)p + (begin + i) * size, &expected, size) != 0)
            return false;
    }
    return true;
}

/* ---- allreduce ---------------------------------------------------------------------- */

struct plan {
    size_t count, shift; /* elements; bytes by which buffers are out of line */
    enum hy_type type;
    enum hy_reduce op;
    const struct hy_choice *choice;
    bool in_place;
};

static int reduce_plan(struct rank *r, void *arg)
{
    const struct plan *plan = arg;
    size_t bytes = plan->count * hy_type_size(plan->type) + plan->shift;
    hy_cleanup_free uint8_t *in = malloc(bytes + 1), *out = malloc(bytes + 1);
    uint8_t *from = in + plan->shift, *to = plan->in_place ? from : out + plan->shift;

    for (int round = 0; round < 3; round++) {
        fill(from, plan->count, plan->type, r->local);
        if (plan->choice)
            EXPECT(hy_shm_allreduce_by(r->set, from, to, plan->count, plan->type, plan->op, 1, 1, plan->choice) == 0);
        else
            EXPECT(hy_shm_allreduce(r->set, from, to, plan->count, plan->type, plan->op, 1, 1) == 0);
        EXPECT(is_combined(to, 0, plan->count, 0, r->count, plan->type, plan->op));
    }
    return 0;
}

static void test_allreduce_of_any_count_by_any_number_of_ranks(void **state)
{
    const size_t bytes[] = {0, 1, 4095, 4096, 4097, (1 << 20) - 1, 1 << 20, (1 << 20) + 1};

    (void)state;
    for (unsigned ranks = 1; ranks <= 8; ranks++)
        for (size_t i = 0; i < HY_COUNT(bytes); i++) {
            struct plan plan = {.count = (bytes[i] + 3) / 4 + (bytes[i] & 1), .type = HY_F32, .op = HY_SUM,
                                .in_place = i % 2};

            as_threads(ranks, reduce_plan, &plan);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allreduce_of_any_count_by_any_number_of_ranks),
    };

    (void)as_processes;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
