/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the ranks of a group, and their results. */
#include "group_world.h"

#include "base/clock.h"
#include "collective/group/negotiate.h"

/* ---- requests -------------------------------------------------------------------- */

static void add_up(struct rank *r)
{
    float expected = (float)(r->size * (r->size + 1)) / 2;

    for (int i = 0; i < 50; i++)
        assert_true(sum_of(r, "x", (float)r->number + 1) == expected);
}

HY_TEST(test_sums_agree_for_all_group_sizes)
{
    for (unsigned size = 1; size <= 5; size++)
        run_ranks(size, 1, add_up, NULL);
}

HY_TEST(test_sums_agree_between_hosts)
{
    run_ranks(3, 3, add_up, NULL);
}

/* All ranks start the same twenty requests, each in its own order, and wait in another order. */
static void any_order(struct rank *r)
{
    enum { N = 20 };
    float in[N], out[N];
    int64_t tickets[N];
    char name[16];

    for (unsigned i = 0; i < N; i++) {
        unsigned k = (i * 7 + r->number * 3) % N;
        struct hy_tensor t = {.in = &in[k], .out = &out[k]};
        struct hy_request q;

        snprintf(name, sizeof name, "t%u", k);
        in[k] = (float)k;
        q = reduction(name, &t);
        tickets[k] = start(r, &q);
    }
    for (unsigned k = 0; k < N; k++) {
        finish(r, tickets[N - 1 - k]);
        assert_true(out[N - 1 - k] == (float)(N - 1 - k) * (float)r->size);
    }
}

HY_TEST(test_ranks_may_start_requests_in_different_orders)
{
    run_ranks(3, 1, any_order, NULL);
}

/* Requests with waits_next run in the waiting thread or, if the caller does not wait at once, in the group's thread. */
static void wait_next_or_not(struct rank *r)
{
    float in = (float)r->number, out;
    struct hy_tensor t = {.in = &in, .out = &out};
    struct hy_request q = reduction("next", &t);
    int64_t ticket;

    q.waits_next = true;
    for (unsigned i = 0; i < 30; i++) {
        ticket = start(r, &q);
        while (i % 3 == r->number && !hy_group_poll(r->g, ticket))
            usleep(100);
        finish(r, ticket);
        assert_true(out == (float)(r->size * (r->size - 1)) / 2);
    }
}

HY_TEST(test_a_request_with_waits_next_runs_without_a_wait)
{
    run_ranks(2, 1, wait_next_or_not, NULL);
    run_ranks(3, 3, wait_next_or_not, NULL);
}

/* Two ranks start requests in opposite order, and poll for longer than blocked ranks could wait. */
static void poll_crosswise(struct rank *r)
{
    float in = 1, outs[2];
    struct hy_tensor t[] = {{.in = &in, .out = &outs[0]}, {.in = &in, .out = &outs[1]}};
    struct hy_request q[] = {reduction("mine", &t[0]), reduction("yours", &t[1])};
    int64_t tickets[2], until = hy_clock_ms() + 3 * HY_NEGOTIATOR_DEADLOCK_MS;
    unsigned first = r->number;

    tickets[first] = start(r, &q[first]);
    while (hy_clock_ms() < until && !hy_group_poll_for(r->g, tickets[first], 5))
        ; /* until the other rank, whose clock may be ahead, has started it as well */
    tickets[!first] = start(r, &q[!first]);
    for (unsigned i = 0; i < 2; i++) {
        while (!hy_group_poll_for(r->g, tickets[i], 5))
            ;
        finish(r, tickets[i]);
        assert_true(outs[i] == 2);
    }
    assert_int_equal(hy_group_poll_for(r->g, tickets[0], 5), 1); /* it was waited for */
}

HY_TEST(test_polling_ranks_can_still_start_requests)
{
    run_ranks(2, 1, poll_crosswise, NULL);
}

static void grouped(struct rank *r)
{
    float a[3] = {1, 2, 3}, b[5] = {4, 5, 6, 7, 8}, out_a[3], out_b[5];
    struct hy_tensor t[] = {{.in = a, .out = out_a, .dim_count = 1, .dims = {3}},
                            {.dim_count = 1, .dims = {0}},
                            {.in = b, .out = out_b, .dim_count = 1, .dims = {5}}};
    struct hy_request q = reduction("both", t);

    q.tensor_count = 3;
    q.op = HY_AVERAGE;
    q.prescale = 2;
    finish(r, start(r, &q));
    assert_true(out_a[2] == 6 && out_b[0] == 8 && out_b[4] == 16);
}

/* Large enough for several steps, and a tensor that is listed twice. */
static void grouped_in_place(struct rank *r)
{
    static const size_t large = 100003;
    hy_cleanup_free float *a = malloc(large * sizeof *a), *out = malloc(large * sizeof *out);
    float b[2] = {1, (float)r->number};
    struct hy_tensor t[] = {{.in = a, .out = out, .dim_count = 1, .dims = {(int64_t)large}},
                            {.in = b, .out = b, .dim_count = 1, .dims = {2}},
                            {.in = b, .out = b, .dim_count = 1, .dims = {2}}};
    struct hy_request q = reduction("in place", t);

    for (size_t i = 0; i < large; i++)
        a[i] = (float)(i % 100 + r->number);
    q.tensor_count = 3;
    finish(r, start(r, &q));
    for (size_t i = 0; i < large; i++)
        assert_true(out[i] == (float)(2 * (i % 100) + 1));
    assert_true(b[0] == 2 && b[1] == 1);
}

HY_TEST(test_tensors_of_a_grouped_request_are_reduced_together)
{
    run_ranks(2, 1, grouped, NULL);
    run_ranks(2, 1, grouped_in_place, NULL);
    run_ranks(2, 2, grouped, NULL);
}

static void *allocate(void *arg, size_t tensor, const int64_t *dims, uint32_t dim_count, size_t bytes)
{
    void **outs = arg;

    (void)dims;
    (void)dim_count;
    outs[tensor] = calloc(1, bytes + 1);
    return outs[tensor];
}

/* Rank r has r rows of two elements with the value r. */
static void gather(struct rank *r)
{
    int32_t rows[2 * RANKS_MAX], *outs[2] = {0};
    struct hy_tensor t = {.in = rows, .dim_count = 2, .dims = {r->number, 2}};
    struct hy_request q = {.kind = HY_ALLGATHER,
                           .name = "rows",
                           .type = HY_I32,
                           .prescale = 1,
                           .postscale = 1,
                           .tensor_count = 1,
                           .tensors = &t,
                           .allocate = allocate,
                           .arg = outs};
    size_t at = 0;

    for (unsigned i = 0; i < 2 * r->number; i++)
        rows[i] = (int32_t)r->number;
    finish(r, start(r, &q));
    for (unsigned from = 0; from < r->size; from++)
        for (unsigned i = 0; i < 2 * from; i++)
            assert_int_equal(outs[0][at++], from);
    free(outs[0]);
}

/* Rank r sends j + 1 rows with the value 10 r + j to rank j. */
static void exchange(struct rank *r)
{
    int64_t splits[RANKS_MAX], sum = 0;
    int16_t in[64];
    void *outs[2] = {0};
    struct hy_tensor t = {.in = in, .dim_count = 1};
    struct hy_request q = {.kind = HY_ALLTOALL,
                           .name = "rows",
                           .type = HY_I16,
                           .prescale = 1,
                           .postscale = 1,
                           .tensor_count = 1,
                           .tensors = &t,
                           .splits = splits,
                           .split_count = r->size,
                           .allocate = allocate,
                           .arg = outs};
    const int16_t *got;

    for (unsigned j = 0; j < r->size; j++) {
        splits[j] = j + 1;
        for (unsigned i = 0; i <= j; i++)
            in[sum++] = (int16_t)(10 * r->number + j);
    }
    t.dims[0] = sum;
    finish(r, start(r, &q));
    got = outs[0];
    for (unsigned from = 0; from < r->size; from++) {
        assert_int_equal(((int32_t *)outs[1])[from], r->number + 1);
        for (unsigned i = 0; i <= r->number; i++)
            assert_int_equal(*got++, 10 * from + r->number);
    }
    free(outs[0]);
    free(outs[1]);
}

static void scatter(struct rank *r)
{
    float in[7] = {1, 2, 3, 4, 5, 6, 7};
    void *outs[2] = {0};
    struct hy_tensor t = {.in = in, .dim_count = 1, .dims = {7}};
    struct hy_request q = reduction("s", &t);
    unsigned rows = 7 / r->size + (r->number < 7 % r->size), first = 0;

    q.kind = HY_REDUCESCATTER;
    q.allocate = allocate;
    q.arg = outs;
    finish(r, start(r, &q));
    for (unsigned i = 0; i < r->number; i++)
        first += 7 / r->size + (i < 7 % r->size);
    for (unsigned i = 0; i < rows; i++)
        assert_true(((float *)outs[0])[i] == (float)(first + i + 1) * (float)r->size);
    free(outs[0]);
}

static void cast(struct rank *r)
{
    double in = r->number + 0.5, out = 0;
    struct hy_tensor t = {.in = &in, .out = &out};
    struct hy_request q = {.kind = HY_BROADCAST,
                           .name = "w",
                           .type = HY_F64,
                           .root = 1,
                           .prescale = 1,
                           .postscale = 1,
                           .tensor_count = 1,
                           .tensors = &t};
    struct hy_request b = {.kind = HY_BARRIER, .name = "b", .prescale = 1, .postscale = 1};

    finish(r, start(r, &q));
    assert_true(out == 1.5);
    finish(r, start(r, &b));
}

static void all_the_others(struct rank *r)
{
    gather(r);
    exchange(r);
    scatter(r);
    if (r->size > 1)
        cast(r);
}

HY_TEST(test_every_kind_of_request_gives_its_result)
{
    for (unsigned size = 1; size <= 4; size++)
        run_ranks(size, 1, all_the_others, NULL);
    run_ranks(3, 3, all_the_others, NULL);
}

/* Thousands of tensors: the order is larger than the pipe of a rank. */
static void many_tensors(struct rank *r)
{
    enum { N = 30000 };
    float in = 1, *out = calloc(N, sizeof *out);
    struct hy_tensor *t = calloc(N, sizeof *t);
    struct hy_request q = reduction("many", t);

    for (size_t i = 0; i < N; i++)
        t[i] = (struct hy_tensor){.in = &in, .out = &out[i], .dim_count = 3, .dims = {1, 1, 1}};
    q.tensor_count = N;
    for (int i = 0; i < 3; i++)
        finish(r, start(r, &q));
    assert_true(out[0] == (float)r->size && out[N - 1] == (float)r->size);
    free(t);
    free(out);
}

HY_TEST(test_orders_may_be_larger_than_a_pipe)
{
    run_ranks(3, 1, many_tensors, NULL);
    run_ranks(2, 2, many_tensors, NULL);
}

/* ---- waiting ------------------------------------------------------------------------ */

struct waiter {
    struct rank *r;
    int64_t ticket, result;
    struct hy_err err;
};

static void *wait_for_it(void *arg)
{
    struct waiter *w = arg;

    w->result = hy_group_wait(w->r->g, w->ticket, &w->err);
    return NULL;
}

static void two_wait(struct rank *r)
{
    float in = 1, out = 0;
    struct hy_tensor t = {.in = &in, .out = &out};
    struct hy_request q = reduction("x", &t);
    struct waiter both[2] = {{.r = r}, {.r = r}};
    pthread_t threads[2];

    if (r->number == 1)
        usleep(50000); /* so that the threads of the others wait */
    both[0].ticket = both[1].ticket = start(r, &q);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_it, &both[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(both[0].result + both[1].result, -EINVAL);
    assert_true(out == 2);
}

HY_TEST(test_a_ticket_can_be_waited_for_once)
{
    run_ranks(2, 1, two_wait, NULL);
}

static pthread_barrier_t all_there;

/* A wait with a timeout returns, so that the caller can do other work. */
static void wait_a_while(struct rank *r)
{
    float in = 1, out = 0;
    struct hy_tensor t = {.in = &in, .out = &out};
    struct hy_request q = reduction("x", &t);
    struct hy_err err = {0};
    int64_t ticket;

    if (r->number == 1) {
        pthread_barrier_wait(&all_there);
        sum_of(r, "x", 1);
        return;
    }
    ticket = start(r, &q);
    assert_int_equal(hy_group_await(r->g, ticket, 10), 0);
    pthread_barrier_wait(&all_there);
    while (!hy_group_await(r->g, ticket, 10))
        ;
    assert_int_equal(hy_group_wait(r->g, ticket, &err), 0);
    assert_int_equal(hy_group_await(r->g, ticket, 10), 1); /* no such ticket any more */
}

HY_TEST(test_a_wait_can_have_a_timeout)
{
    pthread_barrier_init(&all_there, NULL, 2);
    run_ranks(2, 1, wait_a_while, NULL);
    pthread_barrier_destroy(&all_there);
}

/* ---- sets and joins ------------------------------------------------------------------- */

static void with_sets(struct rank *r)
{
    static const unsigned even[] = {0, 2};
    struct hy_err err = {0};
    unsigned members[4];
    float in = (float)r->number, out = -1;
    struct hy_tensor t = {.in = &in, .out = &out};
    struct hy_request q = reduction("e", &t);

    q.set = (uint32_t)hy_group_set_add(r->g, even, 2, &err);
    assert_int_equal(q.set, 1);
    assert_int_equal(hy_group_set_members(r->g, 1, members, 4), 2);
    assert_int_equal(members[1], 2);
    if (r->number % 2 == 0) {
        finish(r, start(r, &q));
        assert_true(out == 2);
    } else {
        assert_int_equal(hy_group_start(r->g, &q, &err), -EINVAL);
    }
    assert_int_equal(hy_group_set_remove(r->g, 1, &err), 0);
    assert_int_equal(hy_group_set_members(r->g, 1, members, 4), -ENOENT);
    assert_true(sum_of(r, "all", 1) == 4);
}

HY_TEST(test_process_sets_can_be_added_and_removed)
{
    run_ranks(4, 1, with_sets, NULL);
}

/* Rank r has r + 1 batches; then it joins. */
static void uneven(struct rank *r)
{
    struct hy_request q = {.kind = HY_JOIN, .name = "join", .prescale = 1, .postscale = 1};
    struct hy_err err = {0};

    for (unsigned i = 0; i <= r->number; i++)
        assert_true(sum_of(r, "grad", 1) == (float)(r->size - i));
    assert_int_equal(hy_group_wait(r->g, start(r, &q), &err), r->size - 1);
    assert_true(sum_of(r, "grad", 1) == (float)r->size);
}

HY_TEST(test_joined_ranks_contribute_zeros)
{
    run_ranks(3, 1, uneven, NULL);
}

/* Many threads per rank. */
static void *hammer(void *arg)
{
    struct rank *r = arg;
    char name[32];

    for (unsigned i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "t%lu.%u", (unsigned long)(uintptr_t)r->arg, i);
        assert_true(sum_of(r, name, 1) == (float)r->size);
    }
    return NULL;
}

static void many_threads(struct rank *r)
{
    struct rank copies[4];
    pthread_t threads[4];

    for (uintptr_t i = 0; i < 4; i++) {
        copies[i] = *r;
        copies[i].arg = (void *)i;
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, &copies[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

HY_TEST(test_any_thread_may_start_requests)
{
    run_ranks(1, 1, many_threads, NULL);
    run_ranks(2, 1, many_threads, NULL);
}

/* ---- the timeline --------------------------------------------------------------------- */

/* The trace of a rank, which must end with the bracket, without a comma before it. */
static void expect_end(const char *path, unsigned rank)
{
    char own[96], text[8192];
    FILE *f;
    size_t n;

    snprintf(own, sizeof own, rank ? "%.*s.rank-%u.json" : "%.*s.json", (int)(strlen(path) - 5), path, rank);
    f = fopen(own, "r");
    assert_non_null(f);
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    assert_true(n > 4);
    assert_memory_equal(text + n - 4, "}\n]\n", 4);
}

static void with_timeline(struct rank *r)
{
    struct hy_err err = {0};
    char name[400] = "";

    assert_int_equal(hy_group_timeline_start(r->g, r->arg, true, &err), 0);
    assert_int_equal(hy_group_timeline_start(r->g, r->arg, true, &err), -EALREADY);
    sum_of(r, "loss \"x\"", 1);
    expect_end(r->arg, r->number);
    for (size_t i = 0; i + 3 < sizeof name; i += 2)
        memcpy(name + i, "\u00e9", 3);
    sum_of(r, name, 1);
    assert_int_equal(hy_group_timeline_stop(r->g, &err), 0);
}

static void expect_trace(const char *path)
{
    char text[8192];
    FILE *f = fopen(path, "r");
    size_t n;

    assert_non_null(f);
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    assert_non_null(strstr(text, "\"NEGOTIATE_ALLREDUCE\""));
    assert_non_null(strstr(text, "\"ALLREDUCE\""));
    assert_non_null(strstr(text, "loss \\\"x\\\""));
    assert_non_null(strstr(text, "\"CYCLE_START\""));
    assert_non_null(strstr(text, "\u00e9\"}"));
    assert_null(strstr(text, "\xc3\"")); /* an incomplete character */
    assert_non_null(strstr(text, "\n]\n"));
    unlink(path);
}

HY_TEST(test_the_timeline_has_every_request_of_each_rank)
{
    char path[64], other[64];

    snprintf(path, sizeof path, "/tmp/hopyard-test-trace-%d.json", (int)getpid());
    snprintf(other, sizeof other, "/tmp/hopyard-test-trace-%d.rank-1.json", (int)getpid());
    run_ranks(2, 1, with_timeline, path);
    expect_trace(path);
    expect_trace(other);
}

/* ---- a group of one ---------------------------------------------------------------------------- */

HY_TEST(test_outside_a_run_a_group_has_one_member)
{
    struct rank r = {.size = 1};
    struct hy_err err = {0};

    assert_int_equal(hy_group_join(&r.g, &err), 0);
    assert_int_equal(hy_group_size(r.g), 1);
    assert_int_equal(hy_group_local_size(r.g), 1);
    assert_int_equal(hy_group_cross_size(r.g), 1);
    assert_true(hy_group_is_homogeneous(r.g));
    assert_true(sum_of(&r, "x", 3) == 3);
    all_the_others(&r);
    hy_group_leave(r.g);
}
