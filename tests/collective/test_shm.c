/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of the ranks of one agent through shared memory. */
#include "shm_world.h"

#include "base/rng.h"
#include "collective/shm/shm_set.h"

/* ---- numbers ------------------------------------------------------------------------ */

/* Small integers that every type can represent, also after a reduction over three ranks. */
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
    case HY_U8:
        ((uint8_t *)p)[i] = (uint8_t)v;
        break;
    case HY_I8:
        ((int8_t *)p)[i] = (int8_t)v;
        break;
    case HY_U16:
        ((uint16_t *)p)[i] = (uint16_t)v;
        break;
    case HY_I16:
        ((int16_t *)p)[i] = (int16_t)v;
        break;
    case HY_U32:
        ((uint32_t *)p)[i] = (uint32_t)v;
        break;
    case HY_I32:
        ((int32_t *)p)[i] = (int32_t)v;
        break;
    case HY_U64:
        ((uint64_t *)p)[i] = (uint64_t)v;
        break;
    case HY_I64:
        ((int64_t *)p)[i] = (int64_t)v;
        break;
    case HY_F16:
        ((_Float16 *)p)[i] = (_Float16)v;
        break;
    case HY_BF16:
        memcpy(&bits, &f, sizeof bits);
        ((uint16_t *)p)[i] = (uint16_t)(bits >> 16);
        break;
    case HY_F32:
        memcpy((char *)p + i * sizeof f, &f, sizeof f);
        break; /* may be unaligned */
    case HY_F64:
        ((double *)p)[i] = v;
        break;
    default:
        ((uint8_t *)p)[i] = v != 0;
        break;
    }
}

static double combine(double a, double b, enum hy_type type, enum hy_reduce op)
{
    double all = op == HY_MIN ? (a < b ? a : b) : op == HY_MAX ? (a > b ? a : b) : op == HY_PRODUCT ? a * b : a + b;

    return type == HY_BOOL ? all != 0 : all;
}

static void fill(void *p, size_t count, enum hy_type type, enum hy_reduce op, unsigned rank)
{
    for (size_t i = 0; i < count; i++)
        put(p, i, type, number(rank, i, type, op));
}

/* Whether `count` elements at `p` are the reduction of the elements from `first` on of all ranks. */
static bool is_combined(const void *p, size_t count, size_t first, unsigned ranks, enum hy_type type, enum hy_reduce op,
                        double factor)
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

/* ---- allreduce ---------------------------------------------------------------------- */

struct plan {
    size_t count, shift; /* elements; misalignment of the buffers in bytes */
    enum hy_type type;
    enum hy_reduce op;
    const struct hy_choice *choice; /* NULL: from the table */
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

HY_TEST(test_allreduce_of_any_count_by_any_number_of_ranks)
{
    for (unsigned ranks = 1; ranks <= 8; ranks++) {
        const size_t counts[] = {0, 1, ranks - 1, ranks + 1, 1023, 1024, 1025, (256 << 10) - 1, (256 << 10) + 1};

        for (size_t i = 0; i < HY_COUNT(counts); i++) {
            struct plan plan = {.count = counts[i], .type = HY_F32, .in_place = i % 2, .rounds = i < 7 ? 2 : 0};

            as_threads(ranks, reduce_plan, &plan);
        }
    }
}

HY_TEST(test_allreduce_of_every_type_by_every_operation)
{
    const enum hy_reduce ops[] = {HY_SUM, HY_MIN, HY_MAX, HY_PRODUCT, HY_AVERAGE};

    for (enum hy_type type = 0; type < HY_TYPES; type++)
        for (size_t i = 0; i < HY_COUNT(ops); i++) {
            struct plan plan = {.count = i % 2 ? 4097 : 70001, .type = type, .op = ops[i]};

            as_threads(3, reduce_plan, &plan);
        }
}

HY_TEST(test_direct_and_sliced_allreduce_agree_for_any_segment_size)
{
    const size_t segments[] = {64, 4096, 10000, 1 << 20};

    for (unsigned i = 0; i < 32; i++) {
        struct hy_choice choice = {.way = i % 2 ? HY_SLICES : HY_DIRECT,
                                   .segment = segments[i / 2 % 4],
                                   .ahead = i % 5 * 7,
                                   .stream_out = i % 3 == 0};
        struct plan plan = {.count = 9001,
                            .shift = i % 4,
                            .type = HY_F32,
                            .choice = &choice,
                            .in_place = i % 7 == 0,
                            .rounds = 2,
                            .pre = i % 3 ? 0 : 0.5,
                            .post = i % 4 ? 0 : 4};

        as_threads(2 + i % 4, reduce_plan, &plan);
    }
}

static int reduce_with_a_ring(struct rank *r, void *arg)
{
    r->set->swaps = arg != NULL;
    r->set->ring = hy_ring_slots(2, arg ? HY_RING_SWAPPED : HY_RING_LONG);
    for (size_t count = 1; count < 1 << 20; count = count * 5 + 3) {
        struct plan plan = {.count = count, .type = HY_F32, .in_place = count % 2, .rounds = count < 1 << 16 ? 20 : 1};
        int line = reduce_plan(r, &plan);

        if (line)
            return line;
    }
    return 0;
}

HY_TEST(test_two_members_reduce_with_either_kind_of_ring)
{
    as_threads(2, reduce_with_a_ring, NULL);
    as_threads(2, reduce_with_a_ring, (void *)1);
}

HY_TEST(test_the_kind_of_ring_depends_on_the_cache_of_a_core)
{
    assert_int_equal(hy_ring_kind(2, 2 << 20), HY_RING_SWAPPED);
    assert_int_equal(hy_ring_kind(2, 1 << 20), HY_RING_LONG);
    assert_int_equal(hy_ring_kind(2, 0), HY_RING_LONG);
    assert_int_equal(hy_ring_kind(2, -1), HY_RING_LONG);
    assert_int_equal(hy_ring_kind(3, 2 << 20), HY_RING_LONG);
    assert_true(hy_stream_from(2, 0) == hy_stream_from(2, -1));
    assert_true(hy_stream_from(2, 260 << 20) > hy_stream_from(2, 32 << 20));
    for (unsigned members = 1; members <= HY_LOCAL_MAX_RANKS; members++)
        assert_true(hy_ring_slots(members, HY_RING_SWAPPED) <= hy_ring(members));
}

#define SPANS_MAX 40

/* Every rank cuts its elements in another way. */
static int reduce_spans(struct rank *r, void *arg)
{
    const struct plan *plan = arg;
    size_t size = hy_type_size(plan->type), bytes = plan->count * size, at = 0, n = 0;
    hy_cleanup_free uint8_t *in = malloc(bytes + 1), *out = malloc(bytes + 1), *whole = malloc(bytes + 1);
    struct hy_span spans[SPANS_MAX];
    struct hy_rng rng;

    hy_rng_seed(&rng, 100 + r->local, 0);
    fill(in, plan->count, plan->type, plan->op, r->local);
    while (at < plan->count && n < SPANS_MAX - 2) {
        size_t count = n % 5 == 2 ? 0 : hy_smaller(1 + hy_rng_below(&rng, 1 + plan->count / 8), plan->count - at);

        spans[n++] = count ? (struct hy_span){in + at * size, out + at * size, count} : (struct hy_span){0};
        at += count;
    }
    spans[n++] = (struct hy_span){in + at * size, out + at * size, plan->count - at};
    spans[n++] = (struct hy_span){0};
    EXPECT(hy_shm_allreduce_spans(r->set, spans, n, plan->type, plan->op, 1, plan->post) == 0);
    EXPECT(hy_shm_allreduce(r->set, in, whole, plan->count, plan->type, plan->op, 1, plan->post) == 0);
    EXPECT(memcmp(out, whole, bytes) == 0);
    return 0;
}

HY_TEST(test_spans_are_reduced_as_one_array)
{
    const size_t counts[] = {0, 1, 7, 3000, 70001, 400003};

    for (unsigned ranks = 1; ranks <= 4; ranks++)
        for (size_t i = 0; i < HY_COUNT(counts); i++) {
            struct plan plan = {.count = counts[i], .type = i % 2 ? HY_F32 : HY_BF16, .post = i == 3 ? 0.5 : 1};

            as_threads(ranks, reduce_spans, &plan);
        }
}

static int force_non_temporal_stores(struct rank *r, void *arg)
{
    r->set->pace = (struct hy_pace){.far = true, .next_probe = UINT64_MAX};
    return reduce_plan(r, arg);
}

HY_TEST(test_slots_can_be_written_with_non_temporal_stores)
{
    for (unsigned ranks = 2; ranks <= 3; ranks++) {
        struct plan plan = {.count = 200003, .shift = 3, .type = HY_U8, .rounds = 3, .op = HY_MAX};

        as_threads(ranks, force_non_temporal_stores, &plan);
    }
}

static int measure_pace(struct rank *r, void *arg)
{
    int line = reduce_plan(r, arg);

    EXPECT(r->set->pace.next_probe > r->set->ring); /* measured after the first round */
    return line;
}

HY_TEST(test_a_member_measures_the_cost_of_its_stores)
{
    struct plan plan = {.count = 4096, .type = HY_F32, .rounds = 40};

    as_threads(2, measure_pace, &plan);
}

HY_TEST(test_ranks_can_be_processes)
{
    struct plan small = {.count = 1000, .type = HY_F64, .rounds = 50}, large = {.count = 300001, .type = HY_I32};

    as_processes(4, reduce_plan, &small);
    as_processes(8, reduce_plan, &large);
}

/* ThreadSanitizer takes five seconds for 64 MiB, and has seen each slot of a ring used often after 8 MiB. */
#ifdef __SANITIZE_THREAD__
#define LARGE_COUNT (2 << 20)
#else
#define LARGE_COUNT (16 << 20)
#endif

HY_TEST(test_allreduce_of_64_mib)
{
    struct plan plan = {.count = LARGE_COUNT, .type = HY_F32, .post = 0.5};

    as_threads(2, reduce_plan, &plan);
}

HY_TEST(test_allreduce_with_the_maximum_number_of_ranks)
{
    struct plan plan = {.count = 5000, .type = HY_F64};

    as_threads(HY_LOCAL_MAX_RANKS, reduce_plan, &plan);
}

/* ---- determinism ------------------------------------------------------------------ */

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
        EXPECT(hy_shm_allreduce_by(r->set, bits->in[r->local], out, BITS_COUNT, HY_F32, HY_SUM, 1, 1, &choices[i]) ==
               0);
        EXPECT(memcmp(out, bits->expected, sizeof bits->expected) == 0);
    }
    return 0;
}

/* Sums of these numbers depend on the order. */
HY_TEST(test_reduction_order_does_not_depend_on_arrival)
{
    struct bits *bits = malloc(sizeof *bits);
    struct hy_rng rng;

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

/* ---- data movement --------------------------------------------------------------- */

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

HY_TEST(test_broadcast_from_every_root)
{
    for (unsigned ranks = 1; ranks <= 5; ranks += 2)
        as_threads(ranks, broadcast_all, NULL);
}

static int large_broadcast(struct rank *r, void *arg)
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

HY_TEST(test_large_broadcast)
{
    as_threads(2, large_broadcast, NULL);
}

/* Members have different sizes; one is empty. */
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

HY_TEST(test_allgather_of_unequal_shares)
{
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

HY_TEST(test_alltoall_with_splits)
{
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

HY_TEST(test_reducescatter_of_unequal_parts)
{
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

HY_TEST(test_reduce_and_share_slices_equal_an_allreduce)
{
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

HY_TEST(test_no_rank_passes_a_barrier_before_all_reach_it)
{
    _Atomic unsigned come = 0;

    as_threads(4, pass_barriers, &come);
}

/* ---- random sequences ------------------------------------------------------------------- */

/* All ranks draw the same random numbers, so they make the same calls. */
static int random_calls(struct rank *r, void *arg)
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
        case 0:
            line = reduce_plan(r, &plan);
            break;
        case 1:
            line = gather_scaled(r, n, n % 2);
            break;
        case 2:
            line = exchange_scaled(r, n);
            break;
        case 3:
            line = scatter_scaled(r, n);
            break;
        case 4:
            line = hy_shm_barrier(r->set);
            break;
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

HY_TEST(test_operations_can_be_mixed_in_any_order)
{
    as_threads(2, random_calls, NULL);
    as_threads(5, random_calls, NULL);
}

/* The same with ranks that sleep without spinning: all of them must be woken. */
static int random_calls_without_spinning(struct rank *r, void *arg)
{
    r->waiter.spins = r->waiter.yields = 1;
    return random_calls(r, arg);
}

HY_TEST(test_sleeping_ranks_are_woken)
{
    as_threads(3, random_calls_without_spinning, NULL);
    as_processes(3, random_calls_without_spinning, NULL);
}
