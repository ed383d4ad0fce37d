/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of a group: ranks that disagree, leave, die, or cannot execute a request. */
#include "group_world.h"

#include "collective/group/group.h"

#include "base/clock.h"

/* ---- ranks that disagree -------------------------------------------------------------- */

static void other_shapes(struct rank *r)
{
    float in[4] = {0}, out[4];
    struct hy_tensor t = {.in = in, .out = out, .dim_count = 1, .dims = {r->number == 1 ? 4 : 3}};
    struct hy_request q = reduction("grad", &t);
    struct hy_err err = {0};

    assert_int_equal(hy_group_wait(r->g, start(r, &q), &err), -EBADMSG);
    assert_non_null(strstr(err.text, "'grad'"));
    assert_non_null(strstr(err.text, "rank 1 has [4]"));
    assert_true(sum_of(r, "after", 1) == 2); /* the group continues */
}

HY_TEST(test_a_shape_mismatch_is_an_error_and_the_group_continues)
{
    run_ranks(2, 1, other_shapes, NULL);
}

static void another_name(struct rank *r)
{
    float in = 0, out;
    struct hy_tensor t = {.in = &in, .out = &out};
    struct hy_request q = reduction(r->number ? "b" : "a", &t);
    struct hy_err err = {0};
    int64_t began = hy_clock_ms();

    assert_int_equal(hy_group_wait(r->g, start(r, &q), &err), -EDEADLK);
    assert_true(hy_clock_ms() - began < 60000); /* it terminates */
    assert_non_null(strstr(err.text, r->number ? "'a' (allreduce)" : "'b' (allreduce)"));
}

HY_TEST(test_a_missing_request_is_a_deadlock_error)
{
    run_ranks(2, 1, another_name, NULL);
}

/* ---- ranks that leave -------------------------------------------------------------------- */

/* Before or after the request is started. */
static int64_t try(struct rank *r, const struct hy_request *request, struct hy_err *err)
{
    int64_t ticket = hy_group_start(r->g, request, err);

    return ticket < 0 ? ticket : hy_group_wait(r->g, ticket, err);
}

static void one_leaves(struct rank *r)
{
    float in = 0, out;
    struct hy_tensor t = {.in = &in, .out = &out};
    struct hy_request q = reduction("x", &t);
    struct hy_err err = {0};

    if (r->number == *(unsigned *)r->arg)
        return;
    assert_int_equal(try(r, &q, &err), -ECONNABORTED);
    assert_non_null(strstr(err.text, "has left the group"));
}

HY_TEST(test_requests_fail_when_a_member_has_left)
{
    unsigned who = 1;

    run_ranks(3, 1, one_leaves, &who);
    who = 0;
    run_ranks(3, 1, one_leaves, &who);
}

static pthread_barrier_t all_there;

/* Rank 1 stops responding, and the agent reports that it is dead. */
static void one_dies(struct rank *r)
{
    float in[1000] = {0}, out[1000];
    struct hy_tensor t = {.in = in, .out = out, .dim_count = 1, .dims = {1000}};
    struct hy_request q = reduction("x", &t);
    struct hy_err err = {0};
    int64_t ticket, rc = 0;

    for (int i = 0; i < 3; i++)
        finish(r, start(r, &q));
    pthread_barrier_wait(&all_there);
    if (r->number == 1) {
        report_loss(r->agent, 1, "rank 1 on b was ended by signal 9");
        pthread_barrier_wait(&all_there);
        return;
    }
    while (rc >= 0) {
        ticket = hy_group_start(r->g, &q, &err);
        rc = ticket < 0 ? ticket : hy_group_wait(r->g, ticket, &err);
    }
    assert_int_equal(rc, -ECONNABORTED);
    assert_string_equal(err.text, "rank 1 on b was ended by signal 9");
    pthread_barrier_wait(&all_there);
}

HY_TEST(test_a_lost_rank_is_reported_to_all_others)
{
    pthread_barrier_init(&all_there, NULL, 3);
    run_ranks(3, 1, one_dies, NULL);
    run_ranks(3, 3, one_dies, NULL);
    pthread_barrier_destroy(&all_there);
}

/* One rank cannot allocate the output of an allgather, which the other ranks cannot see. */
static void *give_memory(void *arg, size_t tensor, const int64_t *dims, uint32_t dim_count, size_t bytes)
{
    (void)tensor, (void)dims, (void)dim_count, (void)bytes;
    return arg;
}

static void without_memory(struct rank *r)
{
    float in[2] = {1, 2}, out[6];
    struct hy_tensor t = {.in = in, .dim_count = 1, .dims = {2}};
    struct hy_request q = reduction("rows", &t);
    struct hy_err err = {0};

    q.kind = HY_ALLGATHER;
    q.allocate = give_memory;
    q.arg = r->number == 1 ? NULL : out;
    assert_int_equal(hy_group_wait(r->g, start(r, &q), &err), r->number == 1 ? -ENOMEM : -ECONNABORTED);
    assert_non_null(strstr(err.text, "'rows': no memory for a result of 24 bytes"));
    assert_int_equal(hy_group_start(r->g, &q, &err), -ECONNABORTED); /* the group has failed on all ranks */
    pthread_barrier_wait(&all_there);
}

HY_TEST(test_a_rank_that_fails_locally_is_reported_to_the_others)
{
    struct agent a;

    pthread_barrier_init(&all_there, NULL, 3);
    for (unsigned hosts = 1; hosts <= 3; hosts += 2) {
        open_agent(&a, 3, hosts);
        run_ranks_on(&a, 3, without_memory, NULL);
        assert_int_equal(atomic_load(&a.failures), 1); /* a rank that was notified does not report it again */
        close_agent(&a);
    }
    pthread_barrier_destroy(&all_there);
}

static atomic_bool is_held, may_go_on;

/* The group's thread of one rank is held during a request. */
static void *give_memory_late(void *arg, size_t tensor, const int64_t *dims, uint32_t dim_count, size_t bytes)
{
    (void)arg, (void)tensor, (void)dims, (void)dim_count, (void)bytes;
    atomic_store(&is_held, true);
    while (!atomic_load(&may_go_on))
        usleep(1000);
    return NULL; /* the other ranks have already failed */
}

static void leave_during_request(struct rank *r)
{
    float in[2] = {1, 2}, out[6];
    struct hy_tensor t = {.in = in, .dim_count = 1, .dims = {2}};
    struct hy_request q = reduction("rows", &t);
    struct hy_err err = {0};
    int64_t ticket;

    q.kind = HY_ALLGATHER;
    q.allocate = r->number == 2 ? give_memory_late : give_memory;
    q.arg = out;
    ticket = start(r, &q);
    if (r->number == 2) {
        assert_int_equal(hy_group_wait(r->g, ticket, &err), -ENOMEM);
        return;
    }
    if (r->number == 1) {
        while (!atomic_load(&is_held))
            usleep(1000);
        hy_group_stop(r->g);
        assert_int_equal(hy_group_wait(r->g, ticket, &err), -ECONNABORTED);
        return;
    }
    assert_int_equal(hy_group_wait(r->g, ticket, &err), -ECONNABORTED);
    assert_non_null(strstr(err.text, "left the group during a collective"));
    atomic_store(&may_go_on, true);
}

HY_TEST(test_leaving_during_a_collective_is_reported)
{
    run_ranks(3, 1, leave_during_request, NULL);
}

/* Rank 1 leaves without waiting for its request, which may be ordered at that moment. */
static void leave_at_once(struct rank *r)
{
    float in = 1, out = 0;
    struct hy_tensor t = {.in = &in, .out = &out};
    struct hy_request q = reduction("x", &t);
    struct hy_err err = {0};
    int64_t ticket, rc;

    if (r->number == 1) {
        ticket = hy_group_start(r->g, &q, &err);
        hy_group_stop(r->g);
        rc = ticket < 0 ? ticket : hy_group_wait(r->g, ticket, &err);
    } else {
        rc = try(r, &q, &err);
    }
    if (rc == 0)
        assert_true(out == 3);
    else
        assert_int_equal(rc, -ECONNABORTED);
}

HY_TEST(test_a_rank_that_leaves_at_once_blocks_no_other)
{
    for (int i = 0; i < 30; i++)
        run_ranks(3, 1, leave_at_once, NULL);
}

/* Rank 2 leaves in order, which does not affect the set of the other two. */
static void one_leaves_early(struct rank *r)
{
    static const unsigned two[] = {0, 1};
    struct hy_err err = {0};
    float in = 1, out = 0;
    struct hy_tensor t = {.in = &in, .out = &out};
    struct hy_request q = reduction("pair", &t);

    q.set = (uint32_t)hy_group_set_add(r->g, two, 2, &err);
    if (r->number == 2)
        return;
    while (atomic_load(&r->agent->leaves) == 0)
        usleep(1000);
    for (int i = 0; i < 20; i++) {
        finish(r, start(r, &q));
        assert_true(out == 2);
        usleep(1000);
    }
}

HY_TEST(test_an_orderly_leave_does_not_affect_sets_without_the_rank)
{
    struct agent a;

    for (unsigned hosts = 1; hosts <= 3; hosts += 2) {
        open_agent(&a, 3, hosts);
        run_ranks_on(&a, 3, one_leaves_early, NULL);
        assert_int_equal(atomic_load(&a.failures), 0);
        close_agent(&a);
    }
}

/* The last rank stays until it has noticed. */
static void join_and_leave(struct rank *r)
{
    bool noticed = r->number < r->size - 1;

    while (!noticed) {
        usleep(1000);
        pthread_mutex_lock(&r->g->lock);
        noticed = r->g->broken.code;
        pthread_mutex_unlock(&r->g->lock);
    }
}

/* Rank 0 exits before the last rank could connect to it; that rank has no request. */
HY_TEST(test_ranks_that_only_join_and_leave_do_not_fail)
{
    struct agent a;

    for (unsigned hosts = 2; hosts <= 4; hosts += 2) {
        open_agent(&a, hosts, hosts);
        atomic_store(&a.late, true);
        run_ranks_on(&a, hosts, join_and_leave, NULL);
        assert_int_equal(atomic_load(&a.failures), 0);
        close_agent(&a);
    }
}

/* ---- invalid requests --------------------------------------------------------- */

static void bad_requests(struct rank *r)
{
    float in[6] = {0}, out[6];
    struct hy_tensor t = {.in = in, .out = out, .dim_count = 1, .dims = {5}};
    struct hy_request q = reduction("x", &t);
    struct hy_err err = {0};

    q.set = 9;
    assert_int_equal(hy_group_start(r->g, &q, &err), -EINVAL);
    q.set = 0, q.op = HY_ADASUM, q.type = HY_I32;
    assert_int_equal(hy_group_start(r->g, &q, &err), -EINVAL);
    q.op = HY_AVERAGE, q.type = HY_BOOL;
    assert_int_equal(hy_group_start(r->g, &q, &err), -EINVAL);
    q = reduction("x", &t);
    q.kind = HY_ALLTOALL;
    assert_int_equal(hy_group_start(r->g, &q, &err), -EINVAL); /* 5 rows for 2 ranks */
    t.dims[0] = -1;
    q = reduction("x", &t);
    assert_int_equal(hy_group_start(r->g, &q, &err), -EINVAL);
    t.dims[0] = 1;
    q = (struct hy_request){.kind = HY_JOIN, .name = "join", .set = 1, .prescale = 1, .postscale = 1};
    assert_int_equal(hy_group_start(r->g, &q, &err), -EINVAL);
    assert_int_equal(hy_group_set_add(r->g, (unsigned[2000]){0}, 2000, &err), -EINVAL);
    assert_true(sum_of(r, "fine", 1) == 2);
    assert_int_equal(hy_group_wait(r->g, 12345678, &err), -EINVAL);
}

HY_TEST(test_invalid_requests_are_refused_at_once)
{
    run_ranks(2, 1, bad_requests, NULL);
}
