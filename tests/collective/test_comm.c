/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators: every collective on both levels, against numbers.h. */
#include "support.h"

#include "comm_world.h"
#include "numbers.h"

#define PERIOD 61u /* of test data; prime, so that displaced data is detected */

/* How much a world tests, which keeps the suite short. */
enum extent { SMALL, LARGE };

/* ThreadSanitizer is slow and finds races only, for which a few types and worlds suffice. */
#if defined(__SANITIZE_THREAD__)
#define BRIEF true
#else
#define BRIEF false
#endif

static bool is_left_out(enum hy_type type)
{
    return BRIEF && type != HY_F32 && type != HY_F16 && type != HY_BOOL;
}

struct matrix {
    enum extent extent;
};

/* ---- data ------------------------------------------------------------------------------ */

/* Small numbers whose sums and products are exact in every type. */
static int small_number(enum hy_reduce op, unsigned rank, size_t i)
{
    unsigned x = (unsigned)(i % PERIOD) * 3 + rank * 7;

    return 1 + (int)(x % (op == HY_PRODUCT ? 2 : 5));
}

/* Repeats the first `n` bytes up to the end. */
static void repeat(char *bytes, size_t n, size_t end)
{
    while (n < end) {
        size_t more = n < end - n ? n : end - n;

        memcpy(bytes + n, bytes, more);
        n += more;
    }
}

static void fill(char *to, enum hy_type type, enum hy_reduce op, unsigned rank, size_t count)
{
    size_t some = count < PERIOD ? count : PERIOD;

    for (size_t i = 0; i < some; i++)
        number_put_small(type, to, i, small_number(op, rank, i));
    repeat(to, some * hy_type_size(type), count * hy_type_size(type));
}

/* The expected reduction; `factor` combines pre, post and average. */
static void fill_expected(char *to, enum hy_type type, enum hy_reduce op, const unsigned *members,
                          unsigned member_count, size_t count, double factor)
{
    char data[WORLD_MAX][PERIOD * 8];
    const void *sources[WORLD_MAX];
    size_t some = count < PERIOD ? count : PERIOD;

    for (unsigned m = 0; m < member_count; m++) {
        fill(data[m], type, op, members[m], PERIOD);
        sources[m] = data[m];
    }
    number_reduce(to, sources, member_count, some, type, op);
    for (size_t i = 0; i < some && factor != 1; i++) {
        struct number n = number_get(type, to, i);

        n.real = type == HY_F32 ? (float)n.real * (float)factor : n.real * factor;
        n.whole = (whole)((double)n.whole * factor + 1e-9); /* all are positive */
        number_put(type, to, i, n);
    }
    repeat(to, some * hy_type_size(type), count * hy_type_size(type));
}

static const unsigned everyone[WORLD_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};

/* ---- allreduce ------------------------------------------------------------------------- */

struct buffers {
    char *in, *out, *expected;
};

static bool buffers_make(struct buffers *b, size_t bytes)
{
    b->in = malloc(bytes + 1);
    b->out = malloc(bytes + 1);
    b->expected = malloc(bytes + 1);
    return b->in && b->out && b->expected;
}

static void buffers_free(struct buffers *b)
{
    free(b->in);
    free(b->out);
    free(b->expected);
}

static void allreduce_one(struct rank *r, struct buffers *b, enum hy_type type, enum hy_reduce op, size_t count,
                          double pre, double post)
{
    bool in_place = count % 2;
    double factor = (op == HY_PRODUCT ? pow(pre, r->size) : pre) * post / (op == HY_AVERAGE ? r->size : 1);
    int rc;

    fill(in_place ? b->out : b->in, type, op, r->rank, count);
    rc = hy_set_allreduce(r->set, in_place ? b->out : b->in, b->out, count, type, op, pre, post);
    expect(r, rc == 0, "allreduce: %s", hy_comm_error(r->comm)->text);
    fill_expected(b->expected, type, op, everyone, r->size, count, factor);
    expect(r, numbers_same(type, b->out, b->expected, count), "%s of %zu %s, pre %g, post %g", hy_reduce_name(op),
           count, hy_type_name(type), pre, post);
}

static void allreduce_sizes(struct rank *r, struct buffers *b, enum hy_type type, enum hy_reduce op, enum extent extent)
{
    size_t page = 4096 / hy_type_size(type), large = (1ul << 20) / hy_type_size(type);
    const size_t sizes[] = {0, 1, r->size - 1, r->size, r->size + 1, page - 1, page, page + 1, large - 1, large + 1};

    for (size_t i = 0; i < (extent == LARGE ? 10 : 8) && !r->wrong[0]; i++)
        allreduce_one(r, b, type, op, sizes[i], 1, 1);
}

static void allreduce_scenario(struct rank *r)
{
    const struct matrix *m = r->world->shared;
    struct buffers b;

    expect(r, buffers_make(&b, (1ul << 20) + 8), "out of memory");
    for (enum hy_type type = 0; type < HY_TYPES && !r->wrong[0]; type++)
        for (enum hy_reduce op = HY_SUM; op <= HY_PRODUCT && !r->wrong[0]; op++) {
            if (is_left_out(type) || (op == HY_AVERAGE && type == HY_BOOL))
                continue;
            if (m->extent == SMALL && op != HY_SUM && op != 1 + (type + r->size) % HY_PRODUCT)
                continue; /* sums in every world, the others alternate */
            allreduce_sizes(r, &b, type, op, m->extent == LARGE && op == HY_SUM ? LARGE : SMALL);
            if (is_real(type) && !r->wrong[0])
                allreduce_one(r, &b, type, op, 100, 2, 0.5);
        }
    buffers_free(&b);
}

static void for_all_layouts(void (*scenario)(struct rank *r), struct matrix *m)
{
    for (size_t l = 0; l < LAYOUTS; l++)
        for (unsigned size = 1; size <= WORLD_MAX; size += BRIEF ? 2 : 1) {
            m->extent = !BRIEF && (size == 2 || size == 5) ? LARGE : SMALL;
            run_world(size, layouts[l].fn, layouts[l].name, scenario, m);
        }
}

HY_TEST(test_allreduce_of_every_type_and_size)
{
    struct matrix m;

    for_all_layouts(allreduce_scenario, &m);
}

/* Larger than a chunk of the levels. */
static void large_scenario(struct rank *r)
{
    size_t count = *(size_t *)r->world->shared;
    struct buffers b;

    expect(r, buffers_make(&b, 4 * count), "out of memory");
    allreduce_one(r, &b, HY_F32, HY_SUM, count, 1, 1);
    buffers_free(&b);
}

HY_TEST(test_large_messages)
{
    size_t large = (BRIEF ? 1u : 16u) << 20, some = ((BRIEF ? 1u : 5u) << 20) + 777;

    run_world(2, one_host, "one host", large_scenario, &large); /* 64 MiB */
    run_world(4, two_even, "two even hosts", large_scenario, &some);
    run_world(5, two_uneven, "two uneven hosts", large_scenario, &some);
}

/* ---- determinism ------------------------------------------------ */

#define BITS_COUNT 5003u

struct bits {
    float first[WORLD_MAX][BITS_COUNT];
};

static void bits_scenario(struct rank *r)
{
    struct bits *all = r->world->shared;
    float in[BITS_COUNT], again[BITS_COUNT], *out = all->first[r->rank];
    struct hy_rng rng;

    hy_rng_seed(&rng, 7, r->rank);
    for (size_t i = 0; i < BITS_COUNT; i++)
        in[i] = (float)(hy_rng_double(&rng) - 0.5);
    for (int turn = 0; turn < 3; turn++) {
        expect(r, hy_set_allreduce(r->set, in, again, BITS_COUNT, HY_F32, HY_AVERAGE, 0.7, 1.3) == 0, "%s",
               hy_comm_error(r->comm)->text);
        expect(r, !turn || !memcmp(again, out, sizeof again), "another result in turn %d", turn);
        memcpy(out, again, sizeof again);
    }
}

HY_TEST(test_results_are_bit_identical_on_all_ranks_and_in_all_runs)
{
    static struct bits one, two;

    for (size_t l = 0; l < LAYOUTS; l++)
        for (unsigned size = 3; size <= WORLD_MAX; size += 5) {
            run_world(size, layouts[l].fn, layouts[l].name, bits_scenario, &one);
            run_world(size, layouts[l].fn, layouts[l].name, bits_scenario, &two);
            for (unsigned r = 0; r < size; r++) {
                assert_memory_equal(one.first[r], one.first[0], sizeof one.first[0]);
                assert_memory_equal(two.first[r], one.first[0], sizeof one.first[0]);
            }
        }
}

/* ---- reducescatter ------------------------------------------------------------------------ */

static void reducescatter_one(struct rank *r, struct buffers *b, enum hy_type type, enum hy_reduce op, size_t each)
{
    size_t counts[WORLD_MAX], all = 0, before = 0;

    for (unsigned i = 0; i < r->size; i++) {
        counts[i] = each * ((i + 1) % 3) + i; /* unequal, some almost empty */
        before = i == r->rank ? all : before;
        all += counts[i];
    }
    fill(b->in, type, op, r->rank, all);
    expect(r, hy_set_reducescatter(r->set, b->in, b->out, counts, type, op, 1, 1) == 0, "reducescatter: %s",
           hy_comm_error(r->comm)->text);
    fill_expected(b->expected, type, op, everyone, r->size, all, op == HY_AVERAGE ? 1.0 / r->size : 1);
    expect(r, numbers_same(type, b->out, b->expected + before * hy_type_size(type), counts[r->rank]),
           "%s scattered, %s, %zu each", hy_reduce_name(op), hy_type_name(type), each);
}

static void reducescatter_scenario(struct rank *r)
{
    static const size_t sizes[] = {0, 1, 65, 4097};
    struct buffers b;

    expect(r, buffers_make(&b, 3ul * WORLD_MAX * 4100 * 8), "out of memory");
    for (enum hy_type type = 0; type < HY_TYPES && !r->wrong[0]; type++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && !r->wrong[0] && !is_left_out(type); i++) {
            reducescatter_one(r, &b, type, HY_SUM, sizes[i]);
            if (!r->wrong[0])
                reducescatter_one(r, &b, type, type == HY_BOOL ? HY_MIN : HY_AVERAGE, sizes[i]);
        }
    buffers_free(&b);
}

HY_TEST(test_reducescatter_of_every_type)
{
    struct matrix m;

    for_all_layouts(reducescatter_scenario, &m);
}

/* ---- data movement ------------------------------------------------------------------ */

#define BYTES_PERIOD 1021u

/* Byte i of the data from rank `from` to rank `to`. */
static char byte_of(unsigned from, unsigned to, size_t i)
{
    return (char)(i * 7 + i / 251 + from * 31 + to * 101);
}

static void fill_bytes(char *out, unsigned from, unsigned to, size_t n)
{
    size_t some = n < BYTES_PERIOD ? n : BYTES_PERIOD;

    for (size_t i = 0; i < some; i++)
        out[i] = byte_of(from, to, i);
    repeat(out, some, n);
}

static bool are_bytes(const char *bytes, unsigned from, unsigned to, size_t n)
{
    size_t i = 0, some = n < BYTES_PERIOD ? n : BYTES_PERIOD;

    while (i < some && bytes[i] == byte_of(from, to, i))
        i++;
    return i == n || (i == some && !memcmp(bytes, bytes + some, n - some));
}

static void broadcast_one(struct rank *r, char *bytes, size_t n, unsigned root)
{
    memset(bytes, 0x5a, n + 1);
    if (r->rank == root)
        fill_bytes(bytes, root, 0, n);
    expect(r, hy_set_broadcast(r->set, bytes, n, root) == 0, "broadcast: %s", hy_comm_error(r->comm)->text);
    expect(r, are_bytes(bytes, root, 0, n) && bytes[n] == 0x5a, "%zu bytes from %u", n, root);
}

/* Rank i has each * (i % 3) bytes; in place on every other rank. */
static void allgather_one(struct rank *r, char *in, char *out, size_t each)
{
    size_t sizes[WORLD_MAX], offsets[WORLD_MAX], end = 0;
    char *mine;

    for (unsigned i = 0; i < r->size; i++) {
        sizes[i] = each * (i % 3) + (i == 1);
        offsets[i] = end;
        end += sizes[i];
    }
    memset(out, 0x5a, end + 1);
    mine = r->rank % 2 ? in : out + offsets[r->rank];
    fill_bytes(mine, r->rank, 0, sizes[r->rank]);
    expect(r, hy_set_allgather(r->set, mine, out, sizes, offsets) == 0, "allgather: %s", hy_comm_error(r->comm)->text);
    for (unsigned i = 0; i < r->size; i++)
        expect(r, are_bytes(out + offsets[i], i, 0, sizes[i]), "%zu bytes of %u gathered", sizes[i], i);
    expect(r, out[end] == 0x5a, "wrote behind the end");
}

static void alltoall_one(struct rank *r, char *in, char *out, size_t each)
{
    size_t matrix[WORLD_MAX * WORLD_MAX], at = 0;

    for (unsigned from = 0; from < r->size; from++)
        for (unsigned to = 0; to < r->size; to++)
            matrix[from * r->size + to] = each * ((from + 2 * to) % 3) + (from == to);
    for (unsigned to = 0; to < r->size; at += matrix[r->rank * r->size + to++])
        fill_bytes(in + at, r->rank, to, matrix[r->rank * r->size + to]);
    expect(r, hy_set_alltoall(r->set, in, out, matrix) == 0, "alltoall: %s", hy_comm_error(r->comm)->text);
    at = 0;
    for (unsigned from = 0; from < r->size; at += matrix[from++ * r->size + r->rank])
        expect(r, are_bytes(out + at, from, r->rank, matrix[from * r->size + r->rank]), "%zu bytes from %u to %u",
               matrix[from * r->size + r->rank], from, r->rank);
}

static void moves_scenario(struct rank *r)
{
    const struct matrix *m = r->world->shared;
    const size_t sizes[] = {0, 1, r->size - 1, r->size, r->size + 1, 4095, 4096, 4097, (1u << 20) - 1, (1u << 20) + 1};
    size_t room = (2u << 20) * WORLD_MAX + 100;
    hy_cleanup_free char *in = malloc(room), *out = malloc(room);

    expect(r, in && out, "out of memory");
    for (size_t i = 0; i < (m->extent == LARGE ? 10 : 8); i++) {
        for (unsigned root = 0; root < r->size && !r->wrong[0]; root += i < 8 ? 1 : 2)
            broadcast_one(r, in, sizes[i], root);
        if (!r->wrong[0])
            allgather_one(r, in, out, sizes[i]);
        if (!r->wrong[0])
            alltoall_one(r, in, out, sizes[i]);
    }
}

HY_TEST(test_broadcast_allgather_alltoall_of_every_size)
{
    struct matrix m;

    for_all_layouts(moves_scenario, &m);
}

static void barrier_scenario(struct rank *r)
{
    for (unsigned turn = 1; turn <= 20; turn++) {
        atomic_fetch_add(&r->world->count, 1);
        expect(r, hy_set_barrier(r->set) == 0, "barrier: %s", hy_comm_error(r->comm)->text);
        expect(r, atomic_load(&r->world->count) >= turn * r->size, "passed a barrier too early");
    }
}

HY_TEST(test_no_rank_passes_a_barrier_before_all_reach_it)
{
    struct matrix m;

    for_all_layouts(barrier_scenario, &m);
}

/* ---- process sets --------------------------------------------------------------------------- */

/* Odd and even ranks work in separate sets at the same time, then all together, repeatedly. */
static void sets_scenario(struct rank *r)
{
    unsigned members[WORLD_MAX], count = 0;
    struct hy_err err = {0};
    struct hy_set *set;
    struct buffers b;

    for (unsigned i = r->rank % 2; i < r->size; i += 2)
        members[count++] = i;
    expect(r, buffers_make(&b, 4096 * 4), "out of memory");
    for (unsigned turn = 0; turn < 3 && !r->wrong[0]; turn++) {
        int rc = hy_set_open(r->comm, 1 + r->rank % 2, members, count, &set, &err);

        expect(r, rc == 0 && hy_set_size(set) == count && members[hy_set_index(set)] == r->rank, "%s", err.text);
        fill(b.in, HY_F32, HY_SUM, r->rank, 4001);
        rc = hy_set_allreduce(set, b.in, b.out, 4001, HY_F32, HY_AVERAGE, 1, 1);
        fill_expected(b.expected, HY_F32, HY_SUM, members, count, 4001, 1.0 / count);
        hy_set_close(set);
        expect(r, rc == 0, "a set's allreduce: %s", hy_comm_error(r->comm)->text);
        expect(r, numbers_same(HY_F32, b.out, b.expected, 4001), "a set of %u", count);
        allreduce_one(r, &b, HY_I32, HY_MAX, 1000, 1, 1);
    }
    buffers_free(&b);
}

HY_TEST(test_sets_work_concurrently)
{
    struct matrix m;

    for_all_layouts(sets_scenario, &m);
}

static void bad_sets_scenario(struct rank *r)
{
    static const struct {
        unsigned members[2], count;
        const char *says;
    } bad[] = {
        {{0, 0}, 0, "a process set has no members"},
        {{0, 9}, 2, "a process set has rank 9, but there are only 2 ranks"},
        {{1, 0}, 2, "a process set's ranks are not in order: 1, 0"},
    };
    struct hy_err err = {0};
    struct hy_set *set = NULL;

    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        expect(r, hy_set_open(r->comm, 1, bad[i].members, bad[i].count, &set, &err) == -EINVAL, "set %zu", i);
        expect(r, !strcmp(err.text, bad[i].says), "'%s' instead of '%s'", err.text, bad[i].says);
    }
    expect(r, hy_set_open(r->comm, 1, (unsigned[]){!r->rank}, 1, &set, &err) == -EINVAL, "a set without us");
    expect(r, strstr(err.text, "is not a member of the process set"), "'%s'", err.text);
}

HY_TEST(test_an_invalid_set_is_refused)
{
    run_world(2, one_host, "one host", bad_sets_scenario, NULL);
}

/* ---- local and cross ranks ------------------------------------------------------------------------- */

static void places_scenario(struct rank *r)
{
    static const unsigned local_ranks[] = {0, 0, 1, 1, 0, 2, 2, 1}, local_sizes[] = {3, 3, 3, 3, 2, 3, 3, 2};
    static const unsigned cross_ranks[] = {0, 1, 1, 0, 2, 0, 1, 2}, cross_sizes[] = {3, 3, 3, 3, 3, 2, 2, 3};

    expect(r, hy_comm_rank(r->comm) == r->rank && hy_comm_size(r->comm) == r->size, "rank and size");
    expect(r, hy_comm_local_rank(r->comm) == local_ranks[r->rank], "local rank");
    expect(r, hy_comm_local_size(r->comm) == local_sizes[r->rank], "local size");
    expect(r, hy_comm_cross_rank(r->comm) == cross_ranks[r->rank], "cross rank");
    expect(r, hy_comm_cross_size(r->comm) == cross_sizes[r->rank], "cross size");
    expect(r, !hy_comm_is_homogeneous(r->comm), "3, 3 and 2 are not the same");
}

static void homogeneous_scenario(struct rank *r)
{
    expect(r, hy_comm_is_homogeneous(r->comm), "as many on each host");
}

HY_TEST(test_local_and_cross_ranks_follow_the_hosts)
{
    run_world(8, scattered, "scattered", places_scenario, NULL);
    run_world(8, two_even, "two even hosts", homogeneous_scenario, NULL);
    run_world(3, each_alone, "one rank on each host", homogeneous_scenario, NULL);
}

/* ---- control channels ------------------------------------------------------------------------------------ */

#define CHANNEL_BYTES (300u << 10) /* more than a pipe holds */

/* Receives `n` bytes from `from`, and sleeps in between. */
static int receive_all(struct rank *r, unsigned from, struct hy_buf *into, size_t n)
{
    int rc = hy_comm_receive(r->comm, from, into);

    while (rc == 0 && into->len < n) {
        rc = hy_comm_sleep(r->comm, -1, -1);
        if (rc == 0)
            rc = hy_comm_receive(r->comm, from, into);
    }
    return rc;
}

static void listen_and_answer(struct rank *r)
{
    hy_cleanup_buf struct hy_buf heard;

    hy_buf_init(&heard, 1u << 20);
    for (unsigned turn = 0; turn < 10; turn++) {
        size_t n = turn ? turn * 100 : CHANNEL_BYTES;

        hy_buf_clear(&heard);
        expect(r, receive_all(r, 0, &heard, n) == 0, "hear: %s", hy_comm_error(r->comm)->text);
        expect(r, heard.len == n && are_bytes((const char *)hy_buf_bytes(&heard), 0, r->rank, n), "data of rank 0");
        expect(r, hy_comm_send(r->comm, 0, hy_buf_bytes(&heard), n) == 0, "tell");
    }
    expect(r, receive_all(r, 0, &heard, heard.len + 1) == 0, "the last word, before which nobody leaves");
}

static void send_and_receive(struct rank *r, char *words, struct hy_buf *heard)
{
    for (unsigned turn = 0; turn < 10; turn++) {
        size_t n = turn ? turn * 100 : CHANNEL_BYTES;

        for (unsigned i = 1; i < r->size; i++) {
            fill_bytes(words, 0, i, n);
            expect(r, hy_comm_send(r->comm, i, words, n) == 0, "tell: %s", hy_comm_error(r->comm)->text);
        }
        for (unsigned i = 1; i < r->size; i++) {
            hy_buf_clear(heard);
            expect(r, receive_all(r, i, heard, n) == 0, "hear: %s", hy_comm_error(r->comm)->text);
            expect(r, heard->len == n && are_bytes((const char *)hy_buf_bytes(heard), 0, i, n), "the answer of %u", i);
        }
    }
    for (unsigned i = 1; i < r->size; i++)
        expect(r, hy_comm_send(r->comm, i, "", 1) == 0, "tell: %s", hy_comm_error(r->comm)->text);
}

static void channels_scenario(struct rank *r)
{
    hy_cleanup_free char *words = malloc(CHANNEL_BYTES);
    hy_cleanup_buf struct hy_buf heard;

    hy_buf_init(&heard, 1u << 20);
    expect(r, words, "out of memory");
    expect(r, hy_comm_send(r->comm, r->rank, "", 1) == -EINVAL, "talks to itself");
    if (r->rank)
        listen_and_answer(r);
    else
        send_and_receive(r, words, &heard);
    if (!r->wrong[0])
        expect(r, hy_set_barrier(r->set) == 0, "barrier: %s", hy_comm_error(r->comm)->text);
}

HY_TEST(test_control_channels_carry_messages_both_ways)
{
    struct matrix m;

    for_all_layouts(channels_scenario, &m);
}

/* A descriptor of the caller ends a sleep as well. */
static void fd_scenario(struct rank *r)
{
    int pipes[2];
    char byte;

    expect(r, pipe2(pipes, O_CLOEXEC) == 0, "pipe");
    expect(r, write(pipes[1], "x", 1) == 1, "write");
    expect(r, hy_comm_sleep(r->comm, pipes[0], -1) == 0, "sleep: %s", hy_comm_error(r->comm)->text);
    expect(r, read(pipes[0], &byte, 1) == 1 && byte == 'x', "read");
    close(pipes[0]);
    close(pipes[1]);
    expect(r, hy_set_barrier(r->set) == 0, "barrier: %s", hy_comm_error(r->comm)->text);
}

HY_TEST(test_a_readable_descriptor_ends_a_sleep)
{
    run_world(1, one_host, "one host", fd_scenario, NULL);
    run_world(3, two_uneven, "two uneven hosts", fd_scenario, NULL);
}

/* ---- failed waits ----------------------------------------------------------------------- */

/* The last rank never makes the call: every kind of wait for it fails, and all later calls fail as well. */
static void abort_scenario(struct rank *r)
{
    float in[4000] = {0}, out[4000];
    int rc;

    if (r->rank == r->size - 1) {
        while (atomic_load(&r->world->count) < r->size - 1)
            sched_yield();
        atomic_store(&r->world->ended, true);
        return;
    }
    atomic_fetch_add(&r->world->count, 1);
    rc = hy_set_allreduce(r->set, in, out, 4000, HY_F32, HY_SUM, 1, 1);
    if (rc == 0) /* without a rank on another host, sending may have sufficed */
        rc = hy_set_barrier(r->set);
    expect(r, rc == -ECONNABORTED, "answered %d", rc);
    expect(r, strstr(hy_comm_error(r->comm)->text, "the world has ended"), "'%s'", hy_comm_error(r->comm)->text);
    expect(r, hy_set_barrier(r->set) == -ECONNABORTED, "a barrier after the end");
    expect(r, hy_comm_sleep(r->comm, -1, -1) == -ECONNABORTED, "a sleep after the end");
    expect(r, hy_set_broadcast(r->set, in, 4, 0) == -ECONNABORTED, "a broadcast after the end");
}

HY_TEST(test_a_failed_check_ends_every_wait)
{
    for (size_t l = 0; l < LAYOUTS; l++)
        for (unsigned size = 2; size <= WORLD_MAX; size += 3)
            run_world(size, layouts[l].fn, layouts[l].name, abort_scenario, NULL);
}

/* ---- Adasum --------------------------------------------------------------------------------------- */

#define ADASUM_COUNT 700u

static void adasum_of_two(double *a, const double *b, size_t n)
{
    double ab = 0, aa = 0, bb = 0;

    for (size_t i = 0; i < n; i++) {
        ab += a[i] * b[i];
        aa += a[i] * a[i];
        bb += b[i] * b[i];
    }
    for (size_t i = 0; i < n; i++)
        a[i] = a[i] * (aa > 0 ? 1 - ab / (2 * aa) : 1) + b[i] * (bb > 0 ? 1 - ab / (2 * bb) : 1);
}

/* One tensor of all ranks: the extra pairs first, then a tree over neighbors. The result is in all[0].
 */
static void adasum_of_all(double all[WORLD_MAX][ADASUM_COUNT], unsigned size, size_t begin, size_t n)
{
    unsigned nodes = 1, order[WORLD_MAX], extra;

    while (2 * nodes <= size)
        nodes *= 2;
    extra = size - nodes;
    for (unsigned i = 0; i < extra; i++)
        adasum_of_two(all[2 * i] + begin, all[2 * i + 1] + begin, n);
    for (unsigned i = 0; i < nodes; i++)
        order[i] = i < extra ? 2 * i : i + extra;
    for (unsigned step = 1; step < nodes; step *= 2)
        for (unsigned i = 0; i < nodes; i += 2 * step)
            adasum_of_two(all[order[i]] + begin, all[order[i + step]] + begin, n);
}

/* Correlated gradients; the second tensor of rank 1 is zero. */
static double gradient(unsigned rank, size_t i)
{
    struct hy_rng rng;

    hy_rng_seed(&rng, i, rank);
    return rank == 1 && i >= 3 && i < 400 ? 0 : sin((double)i) + hy_rng_double(&rng) - 0.5;
}

static void adasum_type(struct rank *r, enum hy_type type, double tolerance)
{
    static const size_t tensors[] = {3, 397, 0, 300};
    double all[WORLD_MAX][ADASUM_COUNT], buf[ADASUM_COUNT];
    char(*results)[sizeof buf] = r->world->shared;

    for (unsigned rank = 0; rank < r->size; rank++)
        for (size_t i = 0; i < ADASUM_COUNT; i++) {
            number_put(type, buf, 0, (struct number){.real = gradient(rank, i)});
            all[rank][i] = 2 * number_get(type, buf, 0).real;
        }
    for (size_t i = 0; i < ADASUM_COUNT; i++)
        number_put(type, buf, i, (struct number){.real = gradient(r->rank, i)});
    for (size_t t = 0, begin = 0; t < 4; begin += tensors[t++])
        adasum_of_all(all, r->size, begin, tensors[t]);
    expect(r, hy_set_adasum(r->set, buf, tensors, 4, type, 2, 0.5) == 0, "adasum: %s", hy_comm_error(r->comm)->text);
    for (size_t i = 0; i < ADASUM_COUNT; i++)
        expect(r, fabs(number_get(type, buf, i).real - all[0][i] / 2) <= tolerance, "element %zu of %s is %g, not %g",
               i, hy_type_name(type), number_get(type, buf, i).real, all[0][i] / 2);
    memcpy(results[r->rank], buf, ADASUM_COUNT * hy_type_size(type));
    expect(r, hy_set_barrier(r->set) == 0, "barrier");
    expect(r, !memcmp(results[r->rank], results[0], ADASUM_COUNT * hy_type_size(type)), "not the same bits");
    expect(r, hy_set_barrier(r->set) == 0, "barrier");
}

static void adasum_scenario(struct rank *r)
{
    static const struct {
        enum hy_type type;
        double tolerance;
    } types[] = {{HY_F64, 1e-12}, {HY_F32, 1e-5}, {HY_F16, 4e-3}, {HY_BF16, 4e-2}};

    for (size_t t = 0; t < 4 && !r->wrong[0]; t++)
        adasum_type(r, types[t].type, types[t].tolerance);
    if (!r->wrong[0])
        expect(r, hy_set_adasum(r->set, &(int){1}, &(size_t){1}, 1, HY_I32, 1, 1) == -EINVAL, "of integers");
}

HY_TEST(test_adasum_matches_its_formula)
{
    static char results[WORLD_MAX][ADASUM_COUNT * 8];

    for (size_t l = 0; l < LAYOUTS; l++)
        for (unsigned size = 1; size <= WORLD_MAX; size += BRIEF ? 3 : 1)
            run_world(size, layouts[l].fn, layouts[l].name, adasum_scenario, results);
}

/* Orthogonal gradients are added, equal ones averaged. */
static void adasum_meaning_scenario(struct rank *r)
{
    float orthogonal[2] = {r->rank == 0, r->rank == 1}, equal[2] = {3, 4};

    expect(r, hy_set_allreduce(r->set, orthogonal, orthogonal, 2, HY_F32, HY_ADASUM, 1, 1) == 0, "adasum");
    expect(r, orthogonal[0] == 1 && orthogonal[1] == 1, "orthogonal: %g %g", orthogonal[0], orthogonal[1]);
    expect(r, hy_set_allreduce(r->set, equal, equal, 2, HY_F32, HY_ADASUM, 1, 1) == 0, "adasum");
    expect(r, equal[0] == 3 && equal[1] == 4, "equal: %g %g", equal[0], equal[1]);
}

HY_TEST(test_adasum_adds_orthogonal_and_averages_equal_vectors)
{
    run_world(2, one_host, "one host", adasum_meaning_scenario, NULL);
    run_world(2, each_alone, "one rank on each host", adasum_meaning_scenario, NULL);
}

/* ---- out of memory ------------------------------------------------------------------------------------ */

static int use_all_of_it(void *arg)
{
    static const struct hy_comm_member me = {.bell = ""};
    const struct hy_comm_spec spec = {
        .size = 1, .members = &me, .shm_fd = -1, .listen_fd = -1, .waiter = {.bell = -1, .watch_fd = -1}};
    struct hy_comm *comm = NULL;
    struct hy_set *set = NULL;
    struct hy_err err = {0};
    float in = 1, out = 0;
    size_t four = 4, zero = 0, one = 1;
    int rc = hy_comm_open(&spec, &comm, &err);

    (void)arg;
    if (rc == 0)
        rc = hy_set_open(comm, 0, &spec.rank, 1, &set, &err);
    if (rc == 0)
        rc = hy_set_adasum(set, &in, &one, 1, HY_F32, 1, 1);
    if (rc == 0)
        rc = hy_set_alltoall(set, &in, &out, &four);
    if (rc == 0)
        rc = hy_set_allgather(set, &in, &out, &four, &zero);
    if (rc == 0)
        rc = hy_set_reducescatter(set, &in, &out, &one, HY_F32, HY_SUM, 1, 1);
    assert_true(rc == 0 || err.code < 0 || hy_comm_error(comm)->code == rc);
    hy_set_close(set);
    hy_comm_close(comm);
    return rc;
}

HY_TEST(test_out_of_memory_is_reported)
{
    hy_each_fault(HY_SEAM_ALLOC, use_all_of_it, NULL);
}
