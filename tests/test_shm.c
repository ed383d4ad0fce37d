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
#include <sys/stat.h>
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

#define RANKS_MAX HY_LOCAL_MAX_RANKS

struct host {
    int fd;
    unsigned count;
    _Atomic int *failed; /* in memory that all ranks share: nobody waits for one that has given up */
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
    h->failed = mmap(NULL, sizeof *h->failed, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(h->fd >= 0 && h->failed != MAP_FAILED);
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
    munmap(h->failed, sizeof *h->failed);
    close(h->fd);
}

static int has_failed(void *arg, struct hy_err *err)
{
    const struct host *h = arg;

    return atomic_load(h->failed) ? hy_err_set(err, -ECANCELED, "another rank has failed") : 0;
}

static int rank_open(struct rank *r, struct hy_err *err)
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
    if (r->line)
        atomic_store(r->host->failed, 1);
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

/* Small whole numbers that every type can hold, and what comes of those of three ranks too. */
static double number(unsigned rank, size_t i, enum hy_type type, enum hy_reduce op)
{
    unsigned n = (unsigned)((rank * 5 + i * 3 + i / 64) % 7);

    if (type == HY_BOOL)
        return n % 2;
    return op == HY_PRODUCT ? 1 + n % 2 : n;
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
    case HY_F32: memcpy((char *)p + i * sizeof f, &f, sizeof f); break; /* out of line, too */
    case HY_F64: ((double *)p)[i] = v; break;
    default: ((uint8_t *)p)[i] = v != 0; break;
    }
}

static double combine(double a, double b, enum hy_type type, enum hy_reduce op)
{
    double all = op == HY_MIN       ? (a < b ? a : b)
                 : op == HY_MAX     ? (a > b ? a : b)
                 : op == HY_PRODUCT ? a * b
                                    : a + b;

    return type == HY_BOOL ? all != 0 : all;
}

static void fill(void *p, size_t count, enum hy_type type, enum hy_reduce op, unsigned rank)
{
    for (size_t i = 0; i < count; i++)
        put(p, i, type, number(rank, i, type, op));
}

/* Whether `count` elements at `p` are what comes of the elements from `first` on of all ranks. */
static bool is_combined(const void *p, size_t count, size_t first, unsigned ranks, enum hy_type type,
                        enum hy_reduce op, double factor)
{
    size_t size = hy_type_size(type), stride = count > 100000 ? 97 : 1;

    for (size_t i = 0; i < count; i += stride) {
        double all = number(0, first + i, type, op);
        uint64_t expected = 0;

        for (unsigned r = 1; r < ranks; r++)
            all = combine(all, number(r, first + i, type, op), type, op);
        put(&expected, 0, type, all * factor);
        if (memcmp((const uint8_t *)p + i * size, &expected, size) != 0)
            return false;
    }
    return true;
}

static uint8_t byte(unsigned rank, size_t i)
{
    return (uint8_t)(rank * 31 + i * 7 + i / 256);
}

static void fill_bytes(uint8_t *p, size_t n, unsigned rank)
{
    for (size_t i = 0; i < n; i++)
        p[i] = byte(rank, i);
}

static bool are_bytes(const uint8_t *p, size_t n, unsigned rank, size_t first)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != byte(rank, first + i))
            return false;
    return true;
}

/* ---- allreduce ---------------------------------------------------------------------- */

struct plan {
    size_t count, shift; /* elements; bytes by which buffers are out of line */
    enum hy_type type;
    enum hy_reduce op;
    const struct hy_choice *choice; /* NULL: the table's */
    double pre, post;               /* 0: 1 */
    bool in_place;
    int rounds;
};

static int reduce_plan(struct rank *r, void *arg)
{
    const struct plan *plan = arg;
    size_t bytes = plan->count * hy_type_size(plan->type) + plan->shift;
    hy_cleanup_free uint8_t *in = malloc(bytes + 1), *out = malloc(bytes + 1);
    uint8_t *from = in + plan->shift, *to = plan->in_place ? from : out + plan->shift;
    double pre = plan->pre ? plan->pre : 1, post = plan->post ? plan->post : 1;

    for (int round = 0; round <= plan->rounds; round++) {
        fill(from, plan->count, plan->type, plan->op, r->local);
        if (plan->choice)
            EXPECT(hy_shm_allreduce_by(r->set, from, to, plan->count, plan->type, plan->op, pre, post, plan->choice) ==
                   0);
        else
            EXPECT(hy_shm_allreduce(r->set, from, to, plan->count, plan->type, plan->op, pre, post) == 0);
        EXPECT(is_combined(to, plan->count, 0, r->count, plan->type, plan->op, pre * post));
    }
    return 0;
}

static void test_allreduce_of_any_count_by_any_number_of_ranks(void **state)
{
    (void)state;
    for (unsigned ranks = 1; ranks <= 8; ranks++) {
        const size_t counts[] = {0, 1, ranks - 1, ranks + 1, 1023, 1024, 1025, (256 << 10) - 1, (256 << 10) + 1};

        for (size_t i = 0; i < HY_COUNT(counts); i++) {
            struct plan plan = {.count = counts[i], .type = HY_F32, .in_place = i % 2, .rounds = i < 7 ? 2 : 0};

            as_threads(ranks, reduce_plan, &plan);
        }
    }
}

static void test_allreduce_of_every_type_by_every_operation(void **state)
{
    const enum hy_reduce ops[] = {HY_SUM, HY_MIN, HY_MAX, HY_PRODUCT, HY_AVERAGE};

    (void)state;
    for (enum hy_type type = 0; type < HY_TYPES; type++)
        for (size_t i = 0; i < HY_COUNT(ops); i++) {
            struct plan plan = {.count = i % 2 ? 4097 : 70001, .type = type, .op = ops[i]};

            as_threads(3, reduce_plan, &plan);
        }
}

static void test_both_ways_give_the_same_whatever_their_steps(void **state)
{
    const size_t segments[] = {64, 4096, 10000, 1 << 20};

    (void)state;
    for (unsigned i = 0; i < 32; i++) {
        struct hy_choice choice = {.way = i % 2 ? HY_SLICES : HY_DIRECT, .segment = segments[i / 2 % 4],
                                   .ahead = i % 5 * 7, .stream_out = i % 3 == 0};
        struct plan plan = {.count = 9001, .shift = i % 4, .type = HY_F32, .choice = &choice, .in_place = i % 7 == 0,
                            .rounds = 2, .pre = i % 3 ? 0 : 0.5, .post = i % 4 ? 0 : 4};

        as_threads(2 + i % 4, reduce_plan, &plan);
    }
}

static int say_readers_are_far(struct rank *r, void *arg)
{
    r->set->pace = (struct hy_pace){.far = true, .next_trial = UINT64_MAX};
    return reduce_plan(r, arg);
}

static void test_slots_may_be_written_past_the_caches(void **state)
{
    (void)state;
    for (unsigned ranks = 2; ranks <= 3; ranks++) {
        struct plan plan = {.count = 200003, .shift = 3, .type = HY_U8, .rounds = 3, .op = HY_MAX};

        as_threads(ranks, say_readers_are_far, &plan);
    }
}

static int try_the_pace(struct rank *r, void *arg)
{
    int line = reduce_plan(r, arg);

    EXPECT(r->set->pace.next_trial > r->set->ring); /* it was tried after the first round */
    return line;
}

static void test_a_member_tries_how_far_its_readers_are(void **state)
{
    struct plan plan = {.count = 4096, .type = HY_F32, .rounds = 40};

    (void)state;
    as_threads(2, try_the_pace, &plan);
}

static void test_ranks_are_processes(void **state)
{
    struct plan small = {.count = 1000, .type = HY_F64, .rounds = 50}, large = {.count = 300001, .type = HY_I32};

    (void)state;
    as_processes(4, reduce_plan, &small);
    as_processes(8, reduce_plan, &large);
}

static void test_64_mib(void **state)
{
    struct plan plan = {.count = 16 << 20, .type = HY_F32, .post = 0.5};

    (void)state;
    as_threads(2, reduce_plan, &plan);
}

static void test_as_many_ranks_as_there_may_be(void **state)
{
    struct plan plan = {.count = 5000, .type = HY_F64};

    (void)state;
    as_threads(HY_LOCAL_MAX_RANKS, reduce_plan, &plan);
}

/* ---- the same bits ------------------------------------------------------------------ */

#define BITS_COUNT 20000

struct bits {
    float in[4][BITS_COUNT], expected[BITS_COUNT];
};

static int reduce_bits(struct rank *r, void *arg)
{
    const struct bits *bits = arg;
    static const struct hy_choice choices[] = {{.way = HY_DIRECT, .segment = 4096, .ahead = 1},
                                               {.way = HY_SLICES, .segment = 8192, .ahead = 1},
                                               {.way = HY_SLICES, .segment = 65536, .stream_out = true}};
    hy_cleanup_free float *out = malloc(sizeof bits->expected);

    for (size_t i = 0; i < HY_COUNT(choices); i++) {
        EXPECT(hy_shm_allreduce_by(r->set, bits->in[r->local], out, BITS_COUNT, HY_F32, HY_SUM, 1, 1,
                                   &choices[i]) == 0);
        EXPECT(memcmp(out, bits->expected, sizeof bits->expected) == 0);
    }
    return 0;
}

/* Sums of such numbers depend on their order. */
static void test_the_order_is_that_of_members_whoever_comes_first(void **state)
{
    struct bits *bits = malloc(sizeof *bits);
    struct hy_rng rng;

    (void)state;
    hy_rng_seed(&rng, 5, 0);
    for (size_t i = 0; i < BITS_COUNT; i++)
        for (int r = 0; r < 4; r++)
            bits->in[r][i] = (float)((hy_rng_double(&rng) - 0.5) * (double)(1 << hy_rng_below(&rng, 30)));
    for (size_t i = 0; i < BITS_COUNT; i++)
        bits->expected[i] = ((bits->in[0][i] + bits->in[1][i]) + bits->in[2][i]) + bits->in[3][i];
    for (int round = 0; round < 3; round++)
        as_threads(4, reduce_bits, bits);
    free(bits);
}

/* ---- what moves bytes --------------------------------------------------------------- */

static int broadcast_all(struct rank *r, void *arg)
{
    const size_t sizes[] = {0, 1, 4095, 65537, 3000001};
    hy_cleanup_free uint8_t *bytes = malloc(3000001);

    (void)arg;
    for (size_t i = 0; i < HY_COUNT(sizes); i++)
        for (unsigned root = 0; root < r->count; root++) {
            memset(bytes, 0, sizes[i]);
            if (r->local == root)
                fill_bytes(bytes, sizes[i], root);
            EXPECT(hy_shm_broadcast(r->set, bytes, sizes[i], root) == 0);
            EXPECT(are_bytes(bytes, sizes[i], root, 0));
        }
    return 0;
}

static void test_broadcast_from_every_root(void **state)
{
    (void)state;
    for (unsigned ranks = 1; ranks <= 5; ranks += 2)
        as_threads(ranks, broadcast_all, NULL);
}

static int broadcast_much(struct rank *r, void *arg)
{
    const size_t n = 13 << 20; /* too large for the caches */
    hy_cleanup_free uint8_t *bytes = calloc(n, 1);

    (void)arg;
    if (r->local == 0)
        fill_bytes(bytes, n, 0);
    EXPECT(hy_shm_broadcast(r->set, bytes, n, 0) == 0);
    EXPECT(are_bytes(bytes, n, 0, 0));
    return 0;
}

static void test_broadcast_of_much(void **state)
{
    (void)state;
    as_threads(2, broadcast_much, NULL);
}

/* Member i has a size of its own; one has nothing. */
static size_t size_of(unsigned member, size_t scale)
{
    return member == 1 ? 0 : scale * (member + 1) + member;
}

static int gather_scaled(struct rank *r, size_t scale, bool in_place)
{
    size_t sizes[RANKS_MAX], offsets[RANKS_MAX], end = 0;
    hy_cleanup_free uint8_t *in = malloc(size_of(r->local, scale) + 1), *out = NULL;

    for (unsigned i = 0; i < r->count; i++) {
        sizes[i] = size_of(i, scale);
        offsets[i] = end + 5; /* with gaps */
        end = offsets[i] + sizes[i];
    }
    out = calloc(end + 1, 1);
    fill_bytes(in_place ? out + offsets[r->local] : in, sizes[r->local], r->local);
    EXPECT(hy_shm_allgather(r->set, in_place ? out + offsets[r->local] : in, out, sizes, offsets) == 0);
    for (unsigned i = 0; i < r->count; i++) {
        EXPECT(are_bytes(out + offsets[i], sizes[i], i, 0));
        EXPECT(memcmp(out + offsets[i] - 5, "\0\0\0\0", 5) == 0);
    }
    return 0;
}

static int gather(struct rank *r, void *arg)
{
    int line = 0;

    (void)arg;
    for (size_t scale = 0; line == 0 && scale < 2000000; scale = scale * 37 + 1)
        line = gather_scaled(r, scale, scale % 2);
    return line;
}

static void test_allgather_of_unequal_shares(void **state)
{
    (void)state;
    for (unsigned ranks = 1; ranks <= 5; ranks += 2)
        as_threads(ranks, gather, NULL);
}

static int exchange_scaled(struct rank *r, size_t scale)
{
    size_t matrix[64], sent = 0, received = 0;
    hy_cleanup_free uint8_t *in = NULL, *out = NULL;

    for (unsigned i = 0; i < r->count * r->count; i++)
        matrix[i] = i % 5 == 2 ? 0 : scale + i * 3;
    for (unsigned i = 0; i < r->count; i++) {
        sent += matrix[r->local * r->count + i];
        received += matrix[i * r->count + r->local];
    }
    in = malloc(sent + 1);
    out = malloc(received + 1);
    fill_bytes(in, sent, r->local);
    EXPECT(hy_shm_alltoall(r->set, in, out, matrix) == 0);
    received = 0;
    for (unsigned i = 0; i < r->count; i++) {
        size_t before = 0;

        for (unsigned j = 0; j < r->local; j++)
            before += matrix[i * r->count + j];
        EXPECT(are_bytes(out + received, matrix[i * r->count + r->local], i, before));
        received += matrix[i * r->count + r->local];
    }
    return 0;
}

static int exchange(struct rank *r, void *arg)
{
    int line = 0;

    (void)arg;
    for (size_t scale = 0; line == 0 && scale < 400000; scale = scale * 29 + 1)
        line = exchange_scaled(r, scale);
    return line;
}

static void test_alltoall_with_splits(void **state)
{
    (void)state;
    for (unsigned ranks = 1; ranks <= 5; ranks += 2)
        as_threads(ranks, exchange, NULL);
}

static int scatter_scaled(struct rank *r, size_t scale)
{
    size_t counts[RANKS_MAX] = {0}, total = 0, before = 0;
    hy_cleanup_free float *in = NULL, *out = NULL;

    for (unsigned i = 0; i < r->count; i++) {
        counts[i] = size_of(i, scale);
        before += i < r->local ? counts[i] : 0;
        total += counts[i];
    }
    in = malloc(total * sizeof *in + 1);
    out = malloc(counts[r->local] * sizeof *out + 1);
    fill(in, total, HY_F32, HY_SUM, r->local);
    EXPECT(hy_shm_reducescatter(r->set, in, out, counts, HY_F32, HY_SUM, 0.5, 8) == 0);
    EXPECT(is_combined(out, counts[r->local], before, r->count, HY_F32, HY_SUM, 4));
    return 0;
}

static int scatter(struct rank *r, void *arg)
{
    int line = 0;

    (void)arg;
    for (size_t scale = 0; line == 0 && scale < 200000; scale = scale * 31 + 1)
        line = scatter_scaled(r, scale);
    return line;
}

static void test_reducescatter_of_unequal_parts(void **state)
{
    (void)state;
    for (unsigned ranks = 1; ranks <= 5; ranks += 2)
        as_threads(ranks, scatter, NULL);
}

static int halves(struct rank *r, void *arg)
{
    const size_t counts[] = {0, 1, 63, 65, 50001};
    hy_cleanup_free float *buf = malloc(50001 * sizeof *buf);

    (void)arg;
    for (size_t i = 0; i < HY_COUNT(counts); i++)
        for (unsigned lanes = 1; lanes <= r->count; lanes++) {
            size_t begin, own = r->local < lanes ? hy_slice(counts[i], lanes, r->local, &begin) : 0;

            fill(buf, counts[i], HY_F32, HY_SUM, r->local);
            EXPECT(hy_shm_reduce_slices(r->set, buf, buf, counts[i], HY_F32, HY_SUM, 2, lanes) == 0);
            if (own)
                EXPECT(is_combined(buf + begin, own, begin, r->count, HY_F32, HY_SUM, 2));
            EXPECT(hy_shm_share_slices(r->set, buf, counts[i], HY_F32, 2, lanes) == 0);
            EXPECT(is_combined(buf, counts[i], 0, r->count, HY_F32, HY_SUM, 4));
        }
    return 0;
}

static void test_the_halves_of_an_allreduce_make_a_whole(void **state)
{
    (void)state;
    for (unsigned ranks = 1; ranks <= 4; ranks++)
        as_threads(ranks, halves, NULL);
}

static int pass_barriers(struct rank *r, void *arg)
{
    _Atomic unsigned *come = arg;

    for (unsigned round = 1; round <= 100; round++) {
        atomic_fetch_add(come, 1);
        EXPECT(hy_shm_barrier(r->set) == 0);
        EXPECT(atomic_load(come) >= round * r->count);
    }
    return 0;
}

static void test_nobody_passes_a_barrier_before_all_have_come(void **state)
{
    _Atomic unsigned come = 0;

    (void)state;
    as_threads(4, pass_barriers, &come);
}

/* ---- in any order ------------------------------------------------------------------- */

/* All draw the same numbers, so all do the same things. */
static int anything(struct rank *r, void *arg)
{
    struct hy_rng rng;
    int line = 0;

    (void)arg;
    hy_rng_seed(&rng, 11, 0);
    for (int i = 0; line == 0 && i < 120; i++) {
        size_t n = (size_t)1 << hy_rng_below(&rng, 17);
        struct plan plan = {.count = n, .type = HY_F32, .in_place = n % 2};

        n += hy_rng_below(&rng, 100);
        switch (hy_rng_below(&rng, 6)) {
        case 0: line = reduce_plan(r, &plan); break;
        case 1: line = gather_scaled(r, n, n % 2); break;
        case 2: line = exchange_scaled(r, n); break;
        case 3: line = scatter_scaled(r, n); break;
        case 4: line = hy_shm_barrier(r->set); break;
        default:
            for (unsigned root = 0; line == 0 && root < r->count; root++) {
                hy_cleanup_free uint8_t *bytes = calloc(n, 1);

                if (r->local == root)
                    fill_bytes(bytes, n, root);
                line = hy_shm_broadcast(r->set, bytes, n, root);
                EXPECT(are_bytes(bytes, n, root, 0));
            }
        }
    }
    return line;
}

static void test_operations_may_follow_each_other_in_any_order(void **state)
{
    (void)state;
    as_threads(2, anything, NULL);
    as_threads(5, anything, NULL);
}

/* The same with ranks that sleep at once: everybody must be woken. */
static int anything_sleepily(struct rank *r, void *arg)
{
    r->waiter.spins = r->waiter.yields = 1;
    return anything(r, arg);
}

static void test_sleepers_are_woken(void **state)
{
    (void)state;
    as_threads(3, anything_sleepily, NULL);
    as_processes(3, anything_sleepily, NULL);
}

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
    for (int i = 0; line == 0 && i < 5; i++) { /* the same slots again, at once */
        line = use_set(r, r->local % 2 ? 2 : 1, r->local % 2 ? odd : even, 2);
        if (line == 0)
            line = use_set(r, HY_SETS_MAX - 1, all, 4);
    }
    return line;
}

static void test_sets_live_beside_each_other_and_their_slots_are_used_again(void **state)
{
    (void)state;
    as_threads(4, use_sets, NULL);
    as_processes(4, use_sets, NULL);
}

static int pages_come_and_go(struct rank *r, void *arg)
{
    const unsigned both[] = {0, 1};
    struct plan plan = {.count = 4 << 20, .type = HY_U8};
    struct hy_shm_set *set, *own = r->set;
    struct stat before, during, after;
    int line;

    (void)arg;
    EXPECT(hy_shm_barrier(r->set) == 0 && fstat(r->host->fd, &before) == 0);
    EXPECT(hy_shm_set_open(r->shm, 7, both, 2, &set) == 0);
    r->set = set;
    line = reduce_plan(r, &plan);
    r->set = own;
    EXPECT(hy_shm_barrier(r->set) == 0 && fstat(r->host->fd, &during) == 0 && hy_shm_barrier(r->set) == 0);
    hy_shm_set_close(set);
    EXPECT(hy_shm_barrier(r->set) == 0 && fstat(r->host->fd, &after) == 0);
    EXPECT(during.st_blocks - before.st_blocks > 1 << 20 >> 9);         /* it was used, */
    EXPECT(during.st_blocks - before.st_blocks < 6 << 20 >> 9);         /* modestly, */
    EXPECT(after.st_blocks - before.st_blocks < 128 << 10 >> 9);        /* and given back */
    return line;
}

static void test_a_sets_memory_is_modest_and_given_back(void **state)
{
    (void)state;
    as_threads(2, pages_come_and_go, NULL);
    for (unsigned count = 1; count <= HY_LOCAL_MAX_RANKS; count++)
        assert_in_range(hy_shm_size(count) / HY_SETS_MAX, 1, 36 << 20);
}

static int open_badly(struct rank *r, void *arg)
{
    const unsigned all[] = {0, 1};
    struct hy_shm_set *set = NULL;

    (void)arg;
    EXPECT(hy_shm_set_open(r->shm, HY_SETS_MAX, all, 2, &set) == -EINVAL);
    EXPECT(hy_shm_set_open(r->shm, 1, all, 0, &set) == -EINVAL);
    EXPECT(hy_shm_set_open(r->shm, 1, all, 3, &set) == -EINVAL);
    EXPECT(hy_shm_set_open(r->shm, 1, &all[1 - r->local], 1, &set) == -EINVAL); /* not a member */
    EXPECT(hy_shm_set_open(r->shm, 1, (const unsigned[]){1, 0}, 2, &set) == -EINVAL);
    EXPECT(hy_shm_set_open(r->shm, 1, (const unsigned[]){r->local, 2}, 2, &set) == -EINVAL); /* not of this host */
    EXPECT(set == NULL);
    return 0;
}

static void test_a_set_that_cannot_be_is_refused(void **state)
{
    (void)state;
    as_threads(2, open_badly, NULL);
}

/* ---- pipes -------------------------------------------------------------------------- */

#define TALK_BYTES 300000u

/* Both ways at once, in odd pieces, with a sleep where nothing goes. */
static int talk(struct rank *r, unsigned peer)
{
    size_t sent = 0, heard = 0;
    hy_cleanup_free uint8_t *out = malloc(TALK_BYTES), *in = malloc(TALK_BYTES);

    fill_bytes(out, TALK_BYTES, r->local);
    while (sent < TALK_BYTES || heard < TALK_BYTES) {
        size_t w = hy_shm_pipe_write(r->shm, peer, out + sent, hy_smaller(TALK_BYTES - sent, 7777));
        size_t h = hy_shm_pipe_read(r->shm, peer, in + heard, hy_smaller(TALK_BYTES - heard, 5555));

        sent += w;
        heard += h;
        if (w || h)
            continue;
        hy_shm_asleep(r->shm, true);
        w = hy_shm_pipe_write(r->shm, peer, out + sent, hy_smaller(TALK_BYTES - sent, 1));
        h = hy_shm_pipe_read(r->shm, peer, in + heard, hy_smaller(TALK_BYTES - heard, 1));
        if (!w && !h)
            EXPECT(hy_waiter_sleep(&r->waiter, NULL, 0, -1) == 0);
        hy_shm_asleep(r->shm, false);
        sent += w;
        heard += h;
    }
    EXPECT(are_bytes(in, TALK_BYTES, peer, 0));
    return 0;
}

static int talk_to_all(struct rank *r, void *arg)
{
    int line = 0;

    (void)arg;
    if (r->local)
        return talk(r, 0);
    for (unsigned peer = 1; line == 0 && peer < r->count; peer++)
        line = talk(r, peer);
    return line;
}

static void test_pipes_carry_bytes_both_ways(void **state)
{
    (void)state;
    as_threads(3, talk_to_all, NULL);
    as_processes(3, talk_to_all, NULL);
}

static int read_nonsense(struct rank *r, void *arg)
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
    return r->local ? 0 : read_nonsense(r, arg);
}

static void test_counters_that_cannot_be_move_nothing(void **state)
{
    (void)state;
    as_threads(2, as_first_only, NULL);
}

/* ---- the end of the world ----------------------------------------------------------- */

static int fail_third(void *arg, struct hy_err *err)
{
    unsigned *calls = arg;

    return ++*calls < 3 ? 0 : hy_err_set(err, -ECONNABORTED, "rank 1 is lost");
}

/* In vain for another's share, for others to make room, for shares to reduce a slice of. */
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
        return 0; /* does not come */
    r->waiter.check = fail_third;
    r->waiter.arg = &calls;
    EXPECT(wait_for(r, *(int *)arg) == -ECONNABORTED);
    EXPECT(strcmp(r->waiter.failed.text, "rank 1 is lost") == 0);
    EXPECT(hy_shm_barrier(r->set) == -ECONNABORTED && hy_shm_broadcast(r->set, &in, 4, 1) == -ECONNABORTED);
    EXPECT(hy_waiter_sleep(&r->waiter, NULL, 0, -1) == -ECONNABORTED);
    EXPECT(calls == 3);
    return 0;
}

static void test_a_wait_ends_with_the_sentence_of_its_check(void **state)
{
    (void)state;
    for (int what = 0; what < 3; what++)
        as_threads(3, wait_in_vain, &what);
}

static int no_words(void *arg, struct hy_err *err)
{
    (void)arg;
    (void)err;
    return -EPIPE;
}

static void test_a_check_without_a_sentence_gets_one(void **state)
{
    int ends[2];
    struct hy_waiter w = {.bell = -1, .check = no_words};

    (void)state;
    assert_int_equal(pipe(ends), 0);
    close(ends[1]); /* readable: at its end */
    w.watch_fd = ends[0];
    w.checked_ms = hy_clock_ms() + 1000000;
    assert_int_equal(hy_waiter_sleep(&w, NULL, 0, -1), -EPIPE);
    assert_non_null(strstr(w.failed.text, "end"));
    close(ends[0]);
}

struct doom {
    int ends[2]; /* the victim holds the writing end: its death can be read */
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

static void test_a_killed_rank_ends_what_the_others_wait_for(void **state)
{
    struct host h;
    struct doom doom;
    pid_t pids[4];

    (void)state;
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

static void test_a_bell_wakes_and_never_blocks_who_rings(void **state)
{
    char name[HY_BELL_MAX], other[HY_BELL_MAX];
    int bell = hy_bell_open(name, NULL), from = hy_bell_open(other, NULL);
    struct hy_waiter w = {.bell = bell, .watch_fd = -1};
    struct pollfd look = {.fd = bell, .events = POLLIN};

    (void)state;
    assert_true(bell >= 0 && from >= 0 && strcmp(name, other) != 0);
    for (int i = 0; i < 10000; i++)
        hy_bell_ring(from, name);
    assert_int_equal(poll(&look, 1, 0), 1);
    assert_int_equal(hy_waiter_sleep(&w, NULL, 0, -1), 0);
    assert_int_equal(poll(&look, 1, 0), 0); /* it is empty again */
    close(bell);
    hy_bell_ring(from, name); /* nobody there */
    close(from);
}

static void test_a_sleep_watches_what_else_it_is_given(void **state)
{
    int ends[2];
    struct hy_waiter w = {.bell = -1, .watch_fd = -1};
    struct pollfd more[100];

    (void)state;
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

/* ---- what cannot be opened ---------------------------------------------------------- */

static void test_memory_of_the_wrong_size_is_refused(void **state)
{
    const char *names[HY_LOCAL_MAX_RANKS + 1] = {"a", "b"};
    struct hy_waiter w = {.bell = -1, .watch_fd = -1};
    struct hy_shm *shm = NULL;
    struct hy_err err = {0};
    int fd = memfd_create("small", MFD_CLOEXEC);

    (void)state;
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

/* One rank alone goes through everything that may fail. */
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

static void test_what_the_system_refuses_is_an_error_and_leaves_nothing(void **state)
{
    struct host h;

    (void)state;
    host_open(&h, 1);
    hy_each_fault(HY_SEAM_ALLOC, open_and_close, &h);
    hy_each_fault(HY_SEAM_SYS, open_and_close, &h);
    host_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allreduce_of_any_count_by_any_number_of_ranks),
        cmocka_unit_test(test_allreduce_of_every_type_by_every_operation),
        cmocka_unit_test(test_both_ways_give_the_same_whatever_their_steps),
        cmocka_unit_test(test_slots_may_be_written_past_the_caches),
        cmocka_unit_test(test_a_member_tries_how_far_its_readers_are),
        cmocka_unit_test(test_ranks_are_processes),
        cmocka_unit_test(test_64_mib),
        cmocka_unit_test(test_as_many_ranks_as_there_may_be),
        cmocka_unit_test(test_the_order_is_that_of_members_whoever_comes_first),
        cmocka_unit_test(test_broadcast_from_every_root),
        cmocka_unit_test(test_broadcast_of_much),
        cmocka_unit_test(test_allgather_of_unequal_shares),
        cmocka_unit_test(test_alltoall_with_splits),
        cmocka_unit_test(test_reducescatter_of_unequal_parts),
        cmocka_unit_test(test_the_halves_of_an_allreduce_make_a_whole),
        cmocka_unit_test(test_nobody_passes_a_barrier_before_all_have_come),
        cmocka_unit_test(test_operations_may_follow_each_other_in_any_order),
        cmocka_unit_test(test_sleepers_are_woken),
        cmocka_unit_test(test_sets_live_beside_each_other_and_their_slots_are_used_again),
        cmocka_unit_test(test_a_sets_memory_is_modest_and_given_back),
        cmocka_unit_test(test_a_set_that_cannot_be_is_refused),
        cmocka_unit_test(test_pipes_carry_bytes_both_ways),
        cmocka_unit_test(test_counters_that_cannot_be_move_nothing),
        cmocka_unit_test(test_a_wait_ends_with_the_sentence_of_its_check),
        cmocka_unit_test(test_a_check_without_a_sentence_gets_one),
        cmocka_unit_test(test_a_killed_rank_ends_what_the_others_wait_for),
        cmocka_unit_test(test_a_bell_wakes_and_never_blocks_who_rings),
        cmocka_unit_test(test_a_sleep_watches_what_else_it_is_given),
        cmocka_unit_test(test_memory_of_the_wrong_size_is_refused),
        cmocka_unit_test(test_what_the_system_refuses_is_an_error_and_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
