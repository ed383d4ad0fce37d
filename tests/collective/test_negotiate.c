/* SPDX-License-Identifier: Apache-2.0 */
/* The negotiator: messages of ranks go in, its answers are recorded as lines. */
#include "support.h"

#include <errno.h>

#include "base/buf.h"
#include "base/mem.h"
#include "collective/group/negotiate.h"

/* A negotiator, and everything that it has sent: "run x -> 0 1\n". */
struct fixture {
    struct hy_negotiator *negotiator;
    char said[16384];
    char warned[4096], failed[1024];
    char last_why[700], first_why[700];
    uint32_t last_id, last_answer, last_missed;
    int64_t table[64];
    size_t table_size;
    int64_t now;
};

static void on_send(void *arg, const unsigned *ranks, unsigned count, const Hy__ToRank *m)
{
    struct fixture *c = arg;
    size_t at = strlen(c->said);
    char who[256] = "";

    for (unsigned i = 0; i < count; i++)
        snprintf(who + strlen(who), sizeof who - strlen(who), " %u", ranks[i]);
    if (m->body_case == HY__TO_RANK__BODY_RUN) {
        c->last_id = m->run->id;
        c->last_answer = m->run->answer;
        c->table_size = m->run->n_table;
        assert_true(m->run->n_table <= 64);
        if (m->run->n_table)
            memcpy(c->table, m->run->table, m->run->n_table * sizeof *c->table);
        snprintf(c->said + at, sizeof c->said - at, "run %s ->%s\n", m->run->ask ? m->run->ask->name : "(known)", who);
    } else if (m->body_case == HY__TO_RANK__BODY_REFUSE) {
        c->last_missed = m->refuse->missed;
        snprintf(c->last_why, sizeof c->last_why, "%s", m->refuse->why);
        if (!*c->first_why)
            snprintf(c->first_why, sizeof c->first_why, "%s", m->refuse->why);
        snprintf(c->said + at, sizeof c->said - at, "refuse %s %d ->%s\n", m->refuse->name, m->refuse->code, who);
    }
}

static void on_warn(void *arg, const char *text)
{
    struct fixture *c = arg;

    snprintf(c->warned + strlen(c->warned), sizeof c->warned - strlen(c->warned), "%s\n", text);
}

static void on_fail(void *arg, const char *text)
{
    struct fixture *c = arg;

    snprintf(c->failed, sizeof c->failed, "%s", text);
}

static void open_fixture(struct fixture *c, unsigned size)
{
    static const struct hy_negotiator_events events = {on_send, on_warn, on_fail};

    memset(c, 0, sizeof *c);
    c->negotiator = hy_negotiator_new(size, &events, c);
    assert_non_null(c->negotiator);
}

/* What was sent since the last call. */
static void expect(struct fixture *c, const char *said)
{
    assert_string_equal(c->said, said);
    c->said[0] = '\0';
}

struct request_spec {
    enum hy_kind kind;
    uint32_t set, type, op, root;
    int64_t dims[4];
    size_t dim_count;
    const int64_t *splits;
    size_t split_count;
    double prescale;
};

static int ask(struct fixture *c, unsigned rank, const char *name, const struct request_spec *w)
{
    Hy__Ask a = HY__ASK__INIT;
    Hy__Shape shape = HY__SHAPE__INIT, *shapes[] = {&shape};
    Hy__FromRank m = HY__FROM_RANK__INIT;
    struct hy_err err = {0};

    shape.dims = (int64_t *)w->dims;
    shape.n_dims = w->dim_count;
    a.name = (char *)name;
    a.kind = w->kind;
    a.set = w->set;
    a.type = w->type;
    a.op = w->op;
    a.root = w->root;
    a.prescale = w->prescale;
    a.postscale = 1;
    a.tensors = shapes;
    a.n_tensors = w->kind <= HY_REDUCESCATTER;
    a.splits = (int64_t *)w->splits;
    a.n_splits = w->split_count;
    m.body_case = HY__FROM_RANK__BODY_ASK;
    m.ask = &a;
    return hy_negotiator_receive(c->negotiator, rank, &m, c->now, &err);
}

static int ask_by_id(struct fixture *c, unsigned rank, uint32_t id)
{
    Hy__Ask a = HY__ASK__INIT;
    Hy__FromRank m = HY__FROM_RANK__INIT;
    struct hy_err err = {0};

    a.id = id;
    m.body_case = HY__FROM_RANK__BODY_ASK;
    m.ask = &a;
    return hy_negotiator_receive(c->negotiator, rank, &m, c->now, &err);
}

static void send_body(struct fixture *c, unsigned rank, Hy__FromRank__BodyCase what)
{
    Hy__FromRank m = HY__FROM_RANK__INIT;
    struct hy_err err = {0};

    m.body_case = what;
    m.waits = true; /* or leaves: both are in the same union */
    assert_int_equal(hy_negotiator_receive(c->negotiator, rank, &m, c->now, &err), 0);
}

static void wait_for(struct fixture *c, unsigned rank)
{
    send_body(c, rank, HY__FROM_RANK__BODY_WAITS);
}

/* Advances the time in small steps, as the group's thread does. */
static void advance_time(struct fixture *c, int64_t ms)
{
    for (int64_t until = c->now + ms; c->now < until; c->now += 100)
        hy_negotiator_tick(c->negotiator, c->now);
}

static const struct request_spec sum = {
    .kind = HY_ALLREDUCE, .type = HY_F32, .op = HY_SUM, .dims = {4, 5}, .dim_count = 2, .prescale = 1};
static const struct request_spec barrier = {.kind = HY_BARRIER, .prescale = 1};
static const struct request_spec join = {.kind = HY_JOIN, .prescale = 1};

HY_TEST(test_requests_run_in_the_same_order_on_all_ranks)
{
    struct fixture c;

    open_fixture(&c, 2);
    assert_int_equal(ask(&c, 0, "a", &sum), 0);
    assert_int_equal(ask(&c, 0, "b", &sum), 0);
    expect(&c, "");
    assert_int_equal(ask(&c, 1, "b", &sum), 0); /* in another order */
    assert_int_equal(ask(&c, 1, "a", &sum), 0);
    expect(&c, "run b -> 0 1\nrun a -> 0 1\n");
    hy_negotiator_free(c.negotiator);
}

HY_TEST(test_a_repeated_request_has_an_id)
{
    struct fixture c;
    uint32_t id;

    open_fixture(&c, 2);
    for (unsigned r = 0; r < 2; r++)
        ask(&c, r, "a", &sum);
    assert_int_equal(c.last_id, 0); /* a request that is seen once gets no id */
    for (unsigned r = 0; r < 2; r++)
        ask(&c, r, "a", &sum);
    expect(&c, "run a -> 0 1\nrun a -> 0 1\n");
    id = c.last_id;
    assert_int_not_equal(id, 0);
    assert_int_equal(ask_by_id(&c, 1, id), 0);
    assert_int_equal(ask_by_id(&c, 0, id), 0);
    expect(&c, "run (known) -> 0 1\n");
    assert_int_equal(ask_by_id(&c, 0, id), 0); /* only one rank uses the id */
    assert_int_equal(ask(&c, 1, "a", &sum), 0);
    expect(&c, "run a -> 0 1\n");
    assert_int_equal(c.last_id, id);
    assert_int_equal(ask_by_id(&c, 0, 4000), -EPROTO);
    hy_negotiator_free(c.negotiator);
}

/* A long training with numbered requests: names that repeat still get ids. */
HY_TEST(test_names_used_once_get_no_id)
{
    struct fixture c;
    char name[32];

    open_fixture(&c, 1);
    for (unsigned i = 0; i < HY_NEGOTIATOR_IDS_MAX + HY_NEGOTIATOR_SEEN_MAX; i++) {
        snprintf(name, sizeof name, "numpy.allreduce.%u", i);
        ask(&c, 0, name, &sum);
        c.said[0] = '\0';
    }
    ask(&c, 0, "grad", &sum);
    ask(&c, 0, "grad", &sum);
    assert_int_not_equal(c.last_id, 0);
    hy_negotiator_free(c.negotiator);
}

static void expect_mismatch(const struct request_spec *other, const char *why)
{
    struct fixture c;

    open_fixture(&c, 2);
    ask(&c, 0, "grad", &sum);
    assert_int_equal(ask(&c, 1, "grad", other), 0);
    assert_string_equal(c.said, "refuse grad 74 -> 0\nrefuse grad 74 -> 1\n");
    if (!strstr(c.last_why, why))
        fail_msg("'%s' is not in '%s'", why, c.last_why);
    c.said[0] = '\0';
    ask(&c, 0, "grad", &sum); /* the refused request was removed, so this is a new one */
    ask(&c, 1, "grad", &sum);
    expect(&c, "run grad -> 0 1\n");
    hy_negotiator_free(c.negotiator);
}

HY_TEST(test_a_mismatch_names_the_tensor_the_ranks_and_their_values)
{
    struct request_spec w;

    assert_int_equal(EBADMSG, 74);
    w = sum, w.type = HY_F64;
    expect_mismatch(&w, "tensor 'grad': ranks disagree on its type: rank 0 has float32, rank 1 has float64");
    w = sum, w.dims[1] = 6;
    expect_mismatch(&w, "tensor 'grad': ranks disagree on its shape: rank 0 has [4, 5], rank 1 has [4, 6]");
    w = sum, w.dim_count = 1;
    expect_mismatch(&w, "rank 1 has [4]");
    w = sum, w.op = HY_MAX;
    expect_mismatch(&w, "rank 0 has sum, rank 1 has max");
    w = sum, w.kind = HY_BROADCAST;
    expect_mismatch(&w, "rank 0 has allreduce, rank 1 has broadcast");
    w = sum, w.prescale = 2;
    expect_mismatch(&w, "scale");
    w = sum, w.root = 1;
    expect_mismatch(&w, "root");
}

HY_TEST(test_a_mismatch_is_reported_to_later_ranks)
{
    struct request_spec w = sum;
    struct fixture c;

    w.type = HY_I32;
    open_fixture(&c, 3);
    ask(&c, 0, "x", &sum);
    ask(&c, 1, "x", &w);
    expect(&c, "refuse x 74 -> 0\nrefuse x 74 -> 1\n");
    ask(&c, 2, "x", &sum);
    expect(&c, "refuse x 74 -> 2\n");
    assert_int_equal(hy_negotiator_tick(c.negotiator, 0), -1); /* nothing is pending */
    hy_negotiator_free(c.negotiator);
}

HY_TEST(test_rows_of_gathered_tensors_may_differ)
{
    struct request_spec few = {.kind = HY_ALLGATHER, .type = HY_I64, .dims = {2, 3}, .dim_count = 2, .prescale = 1},
                        many = few;
    struct fixture c;

    many.dims[0] = 7;
    open_fixture(&c, 2);
    ask(&c, 1, "g", &many);
    ask(&c, 0, "g", &few);
    expect(&c, "run g -> 0 1\n");
    assert_int_equal(c.table_size, 2);
    assert_int_equal(c.table[0], 2);
    assert_int_equal(c.table[1], 7);
    assert_int_equal(c.last_id, 0); /* it may differ the next time */
    hy_negotiator_free(c.negotiator);
}

HY_TEST(test_splits_of_an_alltoall_reach_all_ranks)
{
    static const int64_t a[] = {1, 2}, b[] = {3, 0};
    struct request_spec one = {
        .kind = HY_ALLTOALL, .dims = {3}, .dim_count = 1, .splits = a, .split_count = 2, .prescale = 1};
    struct request_spec two = one;
    struct fixture c;

    two.splits = b;
    open_fixture(&c, 2);
    ask(&c, 0, "t", &one);
    ask(&c, 1, "t", &two);
    assert_int_equal(c.table_size, 4);
    assert_int_equal(c.table[1], 2);
    assert_int_equal(c.table[2], 3);
    hy_negotiator_free(c.negotiator);
}

HY_TEST(test_a_deadlock_is_refused_on_all_ranks)
{
    struct fixture c;

    open_fixture(&c, 2);
    ask(&c, 0, "a", &sum);
    ask(&c, 1, "b", &sum);
    wait_for(&c, 0);
    advance_time(&c, 2000);
    expect(&c, ""); /* rank 1 may still request it */
    wait_for(&c, 1);
    advance_time(&c, 1000);
    expect(&c, "refuse a 35 -> 0\nrefuse b 35 -> 1\n");
    assert_int_equal(EDEADLK, 35);
    hy_negotiator_free(c.negotiator);
}

HY_TEST(test_after_a_deadlock_requests_start_fresh)
{
    struct fixture c;

    open_fixture(&c, 2);
    ask(&c, 0, "a", &sum);
    ask(&c, 1, "b", &sum);
    wait_for(&c, 0);
    wait_for(&c, 1);
    advance_time(&c, 1000);
    expect(&c, "refuse a 35 -> 0\nrefuse b 35 -> 1\n");
    ask(&c, 1, "a", &sum); /* first the rank that did not request it */
    expect(&c, "");
    ask(&c, 0, "a", &sum);
    expect(&c, "run a -> 0 1\n");
    hy_negotiator_free(c.negotiator);
}

HY_TEST(test_a_deadlock_message_names_ranks_and_requests)
{
    struct fixture c;

    open_fixture(&c, 3);
    ask(&c, 0, "a", &sum);
    ask(&c, 2, "a", &sum);
    ask(&c, 1, "end", &barrier);
    for (unsigned r = 0; r < 3; r++)
        wait_for(&c, r);
    advance_time(&c, 1000);
    assert_non_null(strstr(c.said, "refuse a 35 -> 0\nrefuse a 35 -> 2\n"));
    assert_string_equal(c.last_why, "deadlock: tensor 'end' (barrier): rank 1 requested it, but rank 0 cannot: "
                                    "it waits for "
                                    "'a' (allreduce)");
    hy_negotiator_free(c.negotiator);
}

HY_TEST(test_a_deadlocked_request_can_be_retried)
{
    struct fixture c;

    open_fixture(&c, 3);
    ask(&c, 0, "a", &sum);
    ask(&c, 2, "a", &sum);
    ask(&c, 1, "b", &sum);
    for (unsigned r = 0; r < 3; r++)
        wait_for(&c, r);
    advance_time(&c, 1000);
    expect(&c, "refuse a 35 -> 0\nrefuse a 35 -> 2\nrefuse b 35 -> 1\n");
    for (unsigned r = 0; r < 3; r++)
        assert_int_equal(ask(&c, r, "a", &sum), 0);
    expect(&c, "run a -> 0 1 2\n");
    hy_negotiator_free(c.negotiator);
}

HY_TEST(test_stalls_are_reported_and_fail_after_the_limit)
{
    static const struct hy_stall_limits ends = {.warn_ms = 2000, .fail_ms = 3000}, silent = {0};
    struct fixture c;

    open_fixture(&c, 2);
    hy_negotiator_set_stall_limits(c.negotiator, &ends);
    ask(&c, 0, "loss", &sum);
    advance_time(&c, 1900);
    assert_string_equal(c.warned, "");
    advance_time(&c, 300);
    assert_non_null(strstr(c.warned, "rank 1: no request for 'loss' (allreduce) for 2 s"));
    assert_string_equal(c.failed, "");
    advance_time(&c, 1000);
    assert_non_null(strstr(c.failed, "rank 1: no request for 'loss' (allreduce) for 3 s; rank 0 waits for it; "
                                     "the training ends"));
    hy_negotiator_free(c.negotiator);
    open_fixture(&c, 2);
    hy_negotiator_set_stall_limits(c.negotiator, &silent);
    ask(&c, 0, "loss", &sum);
    advance_time(&c, 100000);
    assert_string_equal(c.warned, "");
    assert_string_equal(c.failed, "");
    hy_negotiator_free(c.negotiator);
}

HY_TEST(test_a_late_rank_only_causes_warnings)
{
    struct fixture c;

    open_fixture(&c, 3);
    ask(&c, 0, "loss", &sum);
    ask(&c, 2, "loss", &sum);
    wait_for(&c, 0);
    wait_for(&c, 2);
    advance_time(&c, 4900);
    assert_string_equal(c.warned, "");
    advance_time(&c, 300);
    assert_string_equal(c.warned, "rank 1: no request for 'loss' (allreduce) for 5 s; ranks 0 and 2 wait for it\n");
    advance_time(&c, 9000);
    assert_null(strstr(c.warned + 1, "for 14")); /* the interval has doubled */
    advance_time(&c, 2000);
    assert_non_null(strstr(c.warned, "for 15 s"));
    expect(&c, "");
    ask(&c, 1, "loss", &sum);
    expect(&c, "run loss -> 0 1 2\n");
    hy_negotiator_free(c.negotiator);
}

/* 0 waits for 1, 1 waits for 2, and 2 computes: not a deadlock. */
HY_TEST(test_a_chain_of_waits_with_a_running_end_is_not_a_deadlock)
{
    static const int64_t first[] = {0, 1}, second[] = {1, 2};
    struct request_spec set = {.kind = HY_SET_ADD, .splits = first, .split_count = 2, .prescale = 1}, in_set = sum;
    struct fixture c;

    open_fixture(&c, 3);
    for (unsigned r = 0; r < 3; r++)
        ask(&c, r, "s", &set);
    assert_int_equal(c.last_answer, 1);
    set.splits = second;
    for (unsigned r = 0; r < 3; r++)
        ask(&c, r, "s", &set);
    assert_int_equal(c.last_answer, 2);
    c.said[0] = '\0';
    in_set.set = 1;
    ask(&c, 0, "x", &in_set);
    in_set.set = 2;
    ask(&c, 1, "y", &in_set);
    wait_for(&c, 0);
    wait_for(&c, 1);
    advance_time(&c, 3000);
    expect(&c, "");
    ask(&c, 2, "y", &in_set);
    expect(&c, "run y -> 1 2\n");
    in_set.set = 1;
    ask(&c, 1, "x", &in_set);
    expect(&c, "run x -> 0 1\n");
    hy_negotiator_free(c.negotiator);
}

HY_TEST(test_joined_ranks_take_part_in_sums_until_all_have_joined)
{
    struct fixture c;

    open_fixture(&c, 3);
    ask(&c, 1, "join", &join);
    ask(&c, 0, "a", &sum);
    expect(&c, "");
    ask(&c, 2, "a", &sum);
    expect(&c, "run a -> 0 1 2\n");
    ask(&c, 0, "a", &sum);
    ask(&c, 2, "a", &sum);
    expect(&c, "run a -> 0 1 2\n");
    ask_by_id(&c, 0, c.last_id);
    ask_by_id(&c, 2, c.last_id);
    expect(&c, "run a -> 0 1 2\n"); /* with the description, which rank 1 does not have */
    ask(&c, 0, "b", &sum);
    ask(&c, 2, "join", &join); /* completes the sum of rank 0 */
    expect(&c, "run b -> 0 1 2\n");
    ask(&c, 0, "join", &join);
    expect(&c, "run join -> 0 1 2\n");
    assert_int_equal(c.last_answer, 0);
    ask(&c, 0, "a", &sum);
    expect(&c, "");
    hy_negotiator_free(c.negotiator);
}

/* The join of rank 0 is refused since rank 2 leaves: then rank 0 is needed for requests again. */
HY_TEST(test_a_refused_join_is_undone)
{
    static const int64_t two[] = {0, 1};
    const struct request_spec add = {.kind = HY_SET_ADD, .prescale = 1, .splits = two, .split_count = 2};
    struct request_spec of_two = sum;
    struct fixture c;

    open_fixture(&c, 3);
    for (unsigned r = 0; r < 3; r++)
        ask(&c, r, "add", &add);
    of_two.set = c.last_answer;
    ask(&c, 0, "join", &join);
    c.said[0] = '\0';
    send_body(&c, 2, HY__FROM_RANK__BODY_LEAVES);
    expect(&c, "refuse join 103 -> 0\n");
    ask(&c, 1, "x", &of_two);
    expect(&c, "");
    ask(&c, 0, "x", &of_two);
    expect(&c, "run x -> 0 1\n");
    hy_negotiator_free(c.negotiator);
}

HY_TEST(test_a_request_refused_during_a_join_can_be_retried)
{
    struct request_spec broadcast = sum;
    struct fixture c;

    broadcast.kind = HY_BROADCAST;
    open_fixture(&c, 2);
    ask(&c, 1, "join", &join);
    ask(&c, 0, "b", &broadcast);
    expect(&c, "refuse b 74 -> 0\n");
    ask(&c, 0, "join", &join);
    expect(&c, "run join -> 0 1\n");
    ask(&c, 0, "b", &broadcast);
    ask(&c, 1, "b", &broadcast);
    expect(&c, "run b -> 0 1\n");
    hy_negotiator_free(c.negotiator);
}

/* The report that a rank waits and the order for which it waited have crossed each other. */
HY_TEST(test_a_rank_can_retract_that_it_waits)
{
    Hy__FromRank m = HY__FROM_RANK__INIT;
    struct hy_err err = {0};
    struct fixture c;

    open_fixture(&c, 2);
    wait_for(&c, 1);
    m.body_case = HY__FROM_RANK__BODY_WAITS;
    m.waits = false;
    assert_int_equal(hy_negotiator_receive(c.negotiator, 1, &m, c.now, &err), 0);
    ask(&c, 0, "x", &sum);
    wait_for(&c, 0);
    advance_time(&c, 3000);
    expect(&c, ""); /* rank 1 computes */
    wait_for(&c, 1);
    advance_time(&c, 3000);
    expect(&c, "refuse x 35 -> 0\n");
    hy_negotiator_free(c.negotiator);
}

/* Rank 1 may still request it; rank 2 waits for another request. */
HY_TEST(test_a_deadlock_message_names_the_waiting_rank)
{
    static const int64_t two[] = {0, 2};
    const struct request_spec add = {.kind = HY_SET_ADD, .prescale = 1, .splits = two, .split_count = 2};
    struct request_spec of_two = sum;
    struct fixture c;

    open_fixture(&c, 3);
    for (unsigned r = 0; r < 3; r++)
        ask(&c, r, "add", &add);
    of_two.set = c.last_answer;
    ask(&c, 0, "x", &sum);
    ask(&c, 2, "y", &of_two);
    wait_for(&c, 0);
    wait_for(&c, 2);
    c.said[0] = c.last_why[0] = '\0';
    while (!*c.said && c.now < 5000)
        advance_time(&c, 100);
    assert_non_null(strstr(c.said, "refuse x 35 -> 0\n"));
    assert_null(strstr(c.first_why, "rank 1 cannot"));
    hy_negotiator_free(c.negotiator);
}

HY_TEST(test_a_set_with_a_refused_request_can_be_removed)
{
    static const int64_t two[] = {0, 1}, number[] = {1};
    const struct request_spec add = {.kind = HY_SET_ADD, .prescale = 1, .splits = two, .split_count = 2};
    const struct request_spec out = {.kind = HY_SET_REMOVE, .prescale = 1, .splits = number, .split_count = 1};
    struct request_spec of_two = sum;
    struct fixture c;

    open_fixture(&c, 3);
    for (unsigned r = 0; r < 3; r++)
        ask(&c, r, "add", &add);
    of_two.set = c.last_answer;
    ask(&c, 0, "x", &of_two);
    ask(&c, 1, "y", &sum);
    wait_for(&c, 0);
    wait_for(&c, 1);
    c.said[0] = '\0';
    ask(&c, 2, "z", &sum);
    wait_for(&c, 2);
    advance_time(&c, 1000);
    assert_non_null(strstr(c.said, "refuse x 35 -> 0\n"));
    c.said[0] = '\0';
    for (unsigned r = 0; r < 3; r++)
        ask(&c, r, "out", &out);
    expect(&c, "run out -> 0 1 2\n");
    hy_negotiator_free(c.negotiator);
}

HY_TEST(test_a_broadcast_from_ranks_that_have_joined_is_refused)
{
    struct request_spec w = sum;
    struct fixture c;

    w.kind = HY_BROADCAST;
    open_fixture(&c, 2);
    ask(&c, 1, "join", &join);
    ask(&c, 0, "w", &w);
    expect(&c, "refuse w 74 -> 0\n");
    assert_non_null(strstr(c.last_why, "while rank 1 has joined"));
    w = sum, w.op = HY_PRODUCT; /* with zeros the product would be zero */
    ask(&c, 0, "p", &w);
    expect(&c, "refuse p 74 -> 0\n");
    assert_non_null(strstr(c.last_why, "allreduce by product"));
    hy_negotiator_free(c.negotiator);
}

HY_TEST(test_requests_fail_when_a_member_has_left)
{
    struct fixture c;

    open_fixture(&c, 3);
    ask(&c, 0, "a", &sum);
    send_body(&c, 1, HY__FROM_RANK__BODY_LEAVES);
    expect(&c, "refuse a 103 -> 0\n");
    assert_int_equal(ECONNABORTED, 103);
    assert_non_null(strstr(c.last_why, "rank 1 has left"));
    assert_int_equal(c.last_missed, 1 + 1);
    ask(&c, 2, "b", &sum);
    expect(&c, "refuse b 103 -> 2\n");
    hy_negotiator_free(c.negotiator);
}

HY_TEST(test_sets_are_validated_numbered_and_reused)
{
    static const int64_t some[] = {0, 2}, odd[] = {2, 0}, all[] = {0, 1, 2}, one = 1;
    struct request_spec add = {.kind = HY_SET_ADD, .splits = some, .split_count = 2, .prescale = 1};
    struct request_spec drop = {.kind = HY_SET_REMOVE, .splits = &one, .split_count = 1, .prescale = 1}, in_set = sum;
    struct fixture c;

    open_fixture(&c, 3);
    for (unsigned r = 0; r < 3; r++)
        ask(&c, r, "s", &add);
    assert_int_equal(c.last_answer, 1);
    in_set.set = 1;
    c.said[0] = '\0';
    ask(&c, 1, "x", &in_set);
    expect(&c, "refuse x 22 -> 1\n"); /* not a member */
    for (unsigned r = 0; r < 3; r++)
        ask(&c, r, "s", &add);
    assert_non_null(strstr(c.last_why, "the same ranks already: number 1"));
    add.splits = odd;
    for (unsigned r = 0; r < 3; r++)
        ask(&c, r, "s", &add);
    assert_non_null(strstr(c.last_why, "ascending"));
    add.splits = all, add.split_count = 3;
    for (unsigned r = 0; r < 3; r++)
        ask(&c, r, "s", &add);
    assert_non_null(strstr(c.last_why, "number 0")); /* the world has the same ranks */
    c.said[0] = '\0';
    for (unsigned r = 0; r < 3; r++)
        ask(&c, r, "d", &drop);
    expect(&c, "run d -> 0 1 2\n");
    ask(&c, 0, "x", &in_set);
    expect(&c, "refuse x 22 -> 0\n");
    hy_negotiator_free(c.negotiator);
}

HY_TEST(test_invalid_messages_are_rejected)
{
    struct request_spec w;
    struct fixture c;

    open_fixture(&c, 2);
    w = sum, w.kind = HY_KINDS;
    assert_int_equal(ask(&c, 0, "a", &w), -EPROTO);
    w = sum, w.type = HY_TYPES;
    assert_int_equal(ask(&c, 0, "a", &w), -EPROTO);
    w = sum, w.dims[0] = -1;
    assert_int_equal(ask(&c, 0, "a", &w), -EPROTO);
    w = sum, w.set = 1000;
    assert_int_equal(ask(&c, 0, "a", &w), -EPROTO);
    assert_int_equal(ask(&c, 2, "a", &sum), -EPROTO);
    assert_int_equal(ask(&c, 0, "a", &sum), 0);
    assert_int_equal(ask(&c, 0, "a", &sum), -EPROTO); /* twice */
    hy_negotiator_free(c.negotiator);
}

static int some_talk(void *arg)
{
    static const struct hy_negotiator_events events = {on_send, on_warn, on_fail};
    struct fixture c = {0};
    struct hy_err err = {0};
    int rc = 0;

    (void)arg;
    c.negotiator = hy_negotiator_new(2, &events, &c);
    if (!c.negotiator)
        return -ENOMEM;
    for (unsigned round = 0; rc == 0 && round < 2; round++)
        for (unsigned r = 0; rc == 0 && r < 2; r++)
            rc = ask(&c, r, "a", &sum);
    (void)err;
    hy_negotiator_free(c.negotiator);
    return rc;
}

HY_TEST(test_out_of_memory_is_reported)
{
    hy_each_fault(HY_SEAM_ALLOC, some_talk, NULL);
}
