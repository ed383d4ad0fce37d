/* SPDX-License-Identifier: Apache-2.0 */
/* Every call, against a simple reference implementation. */
#include "base/rng.h"
#include "base/text.h"
#include "collective/shm/shm.h"
#include "mesh_checks.h"

/* Sizes on both sides of every threshold of mesh_choice.h, in elements. */
static const size_t sizes[] = {0, 1, 5, 63, 1025, 4097, 40001, 400003};

/* ---- allreduce and reducescatter ---------------------------------------------------- */

static int body_allreduce(struct rank *r)
{
    int rc = 0;

    for (size_t k = 0; k < HY_COUNT(sizes) && rc == 0; k++)
        for (int type = 0; type < HY_TYPES && rc == 0; type++)
            for (int op = HY_SUM; op <= HY_PRODUCT && rc == 0; op++)
                if (sizes[k] < 5000 || (type == HY_F32 && op == HY_SUM) || (type == HY_I16 && op == HY_MIN))
                    rc = check_allreduce(r, r->world->peers, r->world->size, sizes[k], (enum hy_type)type,
                                         (enum hy_reduce)op);
    return rc;
}

HY_TEST(test_allreduce_of_every_type_and_operation)
{
    for (unsigned size = 1; size <= 6; size++)
        all_ranks(size, body_allreduce, NULL);
}

static uint64_t random_result(struct rank *r, size_t n, enum hy_type type, int *ret_rc)
{
    hy_cleanup_free uint8_t *buf = malloc(n * 8 + 8);
    struct hy_rng rng;

    hy_rng_seed(&rng, n, r->rank);
    numbers_random(&rng, type, buf, n);
    *ret_rc = hy_mesh_allreduce(r->mesh, r->world->peers, r->world->size, buf, n, type, HY_SUM);
    return hy_hash(buf, n * hy_type_size(type));
}

#define RANDOM_RESULTS (3 * 4)

/* arg: the hashes of all ranks, contiguous. */
static int body_random(struct rank *r)
{
    static const enum hy_type types[] = {HY_F16, HY_BF16, HY_F32, HY_F64};
    static const size_t counts[] = {3, 20011, 70001}; /* whole, and in slices */
    uint64_t *results = (uint64_t *)r->world->arg + r->rank * RANDOM_RESULTS;
    int rc = 0;

    for (size_t k = 0; k < HY_COUNT(counts); k++)
        for (int t = 0; t < 4 && rc == 0; t++)
            *results++ = random_result(r, counts[k], types[t], &rc);
    return rc;
}

HY_TEST(test_results_are_the_same_bits_on_every_rank_and_in_every_run)
{
    for (unsigned size = 2; size <= 6; size++) {
        uint64_t runs[2][6 * RANDOM_RESULTS];

        for (int run = 0; run < 2; run++)
            all_ranks(size, body_random, runs[run]);
        for (unsigned i = 1; i < size; i++)
            assert_memory_equal(runs[0] + i * RANDOM_RESULTS, runs[0], RANDOM_RESULTS * sizeof runs[0][0]);
        assert_memory_equal(runs[0], runs[1], size * RANDOM_RESULTS * sizeof runs[0][0]);
    }
}

static int check_reducescatter(struct rank *r, size_t base, enum hy_type type)
{
    struct world *w = r->world;
    size_t counts[WORLD_MAX], total = 0, begin = 0, size = hy_type_size(type);
    hy_cleanup_free uint8_t *buf = NULL, *expected = NULL;
    int rc;

    for (unsigned i = 0; i < w->size; i++) {
        counts[i] = i == 1 ? 0 : base * (i + 1) / 2; /* unequal, one empty */
        begin += i < r->rank ? counts[i] : 0;
        total += counts[i];
    }
    buf = malloc(total * size + 1);
    expected = malloc(total * size + 1);
    fill_small(buf, r->rank, total, type);
    expect_small(expected, w->peers, w->size, total, type, HY_SUM);
    rc = hy_mesh_reducescatter(r->mesh, w->peers, w->size, buf, counts, type, HY_SUM);
    if (rc < 0)
        return rc;
    return memcmp(buf + begin * size, expected + begin * size, counts[r->rank] * size) == 0
               ? 0
               : wrong(r, "reducescatter", base, type);
}

static int body_reducescatter(struct rank *r)
{
    int rc = 0;

    for (size_t k = 0; k < HY_COUNT(sizes) && rc == 0; k++)
        rc = check_reducescatter(r, sizes[k], (enum hy_type)((k * 5 + 2) % HY_TYPES));
    return rc;
}

HY_TEST(test_reducescatter_of_unequal_shares)
{
    for (unsigned size = 2; size <= 6; size++)
        all_ranks(size, body_reducescatter, NULL);
}

/* ---- data movement ---------------------------------------------------------------- */

static int body_broadcast(struct rank *r)
{
    struct world *w = r->world;

    for (size_t k = 0; k < HY_COUNT(sizes); k++)
        for (unsigned root = 0; root < w->size; root++) {
            size_t n = sizes[k] * 4;
            hy_cleanup_free uint8_t *bytes = calloc(1, n + 1);
            int rc;

            if (r->rank == root)
                fill_bytes(bytes, n, root, 0);
            rc = hy_mesh_broadcast(r->mesh, w->peers, w->size, bytes, n, root);
            if (rc < 0)
                return rc;
            if (!are_bytes(bytes, n, root, 0) || bytes[n])
                return wrong(r, "broadcast", n, (int)root);
        }
    return 0;
}

HY_TEST(test_broadcast_from_every_root)
{
    for (unsigned size = 1; size <= 6; size++)
        all_ranks(size, body_broadcast, NULL);
}

static int body_allgather(struct rank *r)
{
    int rc = 0;

    for (size_t k = 0; k < HY_COUNT(sizes) && rc == 0; k++)
        rc = check_allgather(r, sizes[k]);
    return rc;
}

HY_TEST(test_allgather_of_unequal_parts)
{
    for (unsigned size = 1; size <= 6; size++)
        all_ranks(size, body_allgather, NULL);
}

#define MESSAGES 3u /* to each rank, including itself */

/* The size of message k from one rank to another: some are empty, some use several streams. */
static size_t message_size(unsigned from, unsigned to, unsigned k)
{
    return k == 1 ? (from + to) % 2 * 700001 : (from * 5 + to * 3 + k) * 1000;
}

static int body_exchange(struct rank *r)
{
    struct world *w = r->world;
    struct hy_transfer sends[WORLD_MAX * MESSAGES], receives[WORLD_MAX * MESSAGES];
    unsigned count = 0, bad = 0;
    int rc;

    for (unsigned k = 0; k < MESSAGES; k++)
        for (unsigned i = 0; i < w->size; i++, count++) {
            size_t out = message_size(r->rank, i, k), in = message_size(i, r->rank, k);

            sends[count] = (struct hy_transfer){.peer = i, .bytes = malloc(out + 1), .n = out};
            receives[count] = (struct hy_transfer){.peer = i, .bytes = calloc(1, in + 1), .n = in};
            fill_bytes(sends[count].bytes, out, r->rank, i + k);
        }
    rc = hy_mesh_exchange(r->mesh, sends, count, receives, count);
    for (unsigned i = 0; i < count; i++) {
        bad += !are_bytes(receives[i].bytes, receives[i].n, i % w->size, r->rank + i / w->size);
        free(sends[i].bytes);
        free(receives[i].bytes);
    }
    return rc == 0 && bad ? wrong(r, "exchange", count, (int)bad) : rc;
}

HY_TEST(test_exchange_keeps_the_order_of_each_pair)
{
    for (unsigned size = 1; size <= 6; size++)
        all_ranks(size, body_exchange, NULL);
}

static int body_barrier(struct rank *r)
{
    unsigned *arrived = r->world->arg;

    for (unsigned round = 1; round <= 20; round++) {
        int rc;

        __atomic_add_fetch(arrived, 1, __ATOMIC_SEQ_CST);
        rc = hy_mesh_barrier(r->mesh, r->world->peers, r->world->size);
        if (rc < 0)
            return rc;
        if (__atomic_load_n(arrived, __ATOMIC_SEQ_CST) < round * r->world->size)
            return wrong(r, "barrier", round, 0);
    }
    return 0;
}

HY_TEST(test_no_rank_leaves_a_barrier_before_all_reach_it)
{
    for (unsigned size = 1; size <= 6; size++) {
        unsigned arrived = 0;

        all_ranks(size, body_barrier, &arrived);
    }
}

/* ---- overlapping sets -------------------------------------------------------------- */

static int body_sets(struct rank *r)
{
    static const struct {
        unsigned count, members[4];
    } sets[] = {{2, {0, 5}}, {3, {1, 2, 4}}, {4, {0, 2, 3, 5}}, {2, {4, 5}}, {1, {3}}, {3, {3, 4, 5}}};

    for (size_t s = 0; s < HY_COUNT(sets); s++)
        for (unsigned i = 0; i < sets[s].count; i++) {
            int rc = 0;

            if (sets[s].members[i] == r->rank)
                for (size_t k = 0; k < HY_COUNT(sizes) && rc == 0; k++)
                    rc = check_allreduce(r, sets[s].members, sets[s].count, sizes[k], HY_F32, HY_SUM);
            if (rc < 0)
                return rc;
        }
    return 0;
}

HY_TEST(test_sets_of_ranks_may_overlap)
{
    all_ranks(6, body_sets, NULL);
}

/* ---- pipes -------------------------------------------------------------------------- */

#define PIPE_BYTES 300000u

struct piped {
    unsigned peer;
    size_t written, read;
    uint8_t *out, *in;
};

static int pump(struct rank *r, struct piped *p)
{
    ssize_t n = hy_mesh_pipe_write(r->mesh, p->peer, p->out + p->written, PIPE_BYTES - p->written);

    if (n < 0)
        return (int)n;
    p->written += (size_t)n;
    n = hy_mesh_pipe_read(r->mesh, p->peer, p->in + p->read, PIPE_BYTES - p->read);
    if (n < 0)
        return (int)n;
    p->read += (size_t)n;
    return p->written == PIPE_BYTES && p->read == PIPE_BYTES;
}

static int pump_all(struct rank *r, struct piped *pipes, unsigned count)
{
    struct pollfd fds[2];

    for (;;) {
        unsigned done = 0;
        int rc;

        for (unsigned i = 0; i < count; i++) {
            rc = pump(r, &pipes[i]);
            if (rc < 0)
                return rc;
            done += rc > 0;
        }
        if (done == count)
            return 0;
        rc = hy_waiter_sleep(&r->waiter, fds, hy_mesh_pipe_fds(r->mesh, fds, 2), -1);
        if (rc < 0)
            return rc;
    }
}

/* Both directions at the same time, with transfers on other streams in between. */
static int body_pipes(struct rank *r)
{
    struct world *w = r->world;
    unsigned count = r->rank == 0 ? w->size - 1 : 1;
    struct piped pipes[WORLD_MAX];
    int rc, bad = 0;

    for (unsigned i = 0; i < count; i++) {
        pipes[i] = (struct piped){.peer = r->rank ? 0 : i + 1, .out = malloc(PIPE_BYTES), .in = malloc(PIPE_BYTES)};
        fill_bytes(pipes[i].out, PIPE_BYTES, r->rank, pipes[i].peer);
    }
    rc = pump_all(r, pipes, count);
    if (rc == 0)
        rc = hy_mesh_barrier(r->mesh, w->peers, w->size);
    for (unsigned i = 0; i < count; i++) {
        bad += !are_bytes(pipes[i].in, PIPE_BYTES, pipes[i].peer, r->rank);
        free(pipes[i].out);
        free(pipes[i].in);
    }
    return rc == 0 && bad ? wrong(r, "pipe", PIPE_BYTES, bad) : rc;
}

HY_TEST(test_pipes_carry_bytes_between_rank_0_and_the_others)
{
    for (unsigned size = 2; size <= 6; size++)
        all_ranks(size, body_pipes, NULL);
}
