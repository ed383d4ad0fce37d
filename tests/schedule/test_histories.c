/* SPDX-License-Identifier: Apache-2.0 */
/* The schedule over random histories: compared with a model, and with failing allocations. */
#include "schedule_model.h"

#include <errno.h>

/* ---- random histories ---------------------------------------------------------------- */

HY_TEST(test_random_histories_match_the_model)
{
    struct model m;

    for (uint64_t seed = 0; seed < 12; seed++) {
        model_init(&m, seed);
        for (int step = 0; step < 3000; step++)
            model_step(&m, pool, HY_COUNT(pool), seed % 2 ? 4 : 15);
        model_free(&m);
    }
}

/* With one class a task waits only for room. */
HY_TEST(test_one_class_never_leaves_room_unused)
{
    struct model m;

    for (size_t k = 0; k < HY_COUNT(pool); k++) {
        if (pool[k].role_count > 1)
            continue;
        model_init(&m, k);
        for (int step = 0; step < 400; step++) {
            model_step(&m, &pool[k], 1, 10);
            while (model_next(&m))
                ;
            assert_int_equal(must_be_next(&m), 0);
        }
        model_free(&m);
    }
}

/*
 * From a random moment on, only what ran at that moment ends; what starts from
 * then on runs forever. The oldest possible task is placed by the time
 * the last of those has ended, however many others start before it.
 */
static void check_oldest_is_placed(struct model *m)
{
    const struct model_task *oldest = oldest_waiting(m);
    uint64_t id, ran[TASKS];
    size_t n = 0;

    if (!oldest || !hy_schedule_possible(m->s, oldest->need))
        return;
    id = oldest->id;
    for (size_t i = 0; i < m->count; i++)
        if (m->tasks[i].running)
            ran[n++] = m->tasks[i].id;
    for (; n > 0; n--) {
        size_t k = hy_rng_below(&m->rng, n);

        model_submit(m, &pool[hy_rng_below(&m->rng, HY_COUNT(pool))]);
        model_done(m, (size_t)(task_by_id(m, ran[k]) - m->tasks));
        ran[k] = ran[n - 1];
        while (model_next(m))
            ;
    }
    assert_true(task_by_id(m, id)->running);
}

HY_TEST(test_tasks_that_start_later_never_delay_the_oldest)
{
    struct model m;

    for (uint64_t seed = 100; seed < 400; seed++) {
        model_init(&m, seed);
        for (int round = 0; round < 5; round++) {
            for (int step = 0; step < 60; step++)
                model_step(&m, pool, HY_COUNT(pool), 10);
            for (uint64_t a = 0; a < AGENTS; a++)
                if (m.agents[a].there && !m.agents[a].open)
                    model_agent_toggle(&m, a);
            while (m.count > TASKS / 2)
                model_done(&m, m.count - 1);
            while (model_next(&m))
                ;
            check_oldest_is_placed(&m);
        }
        model_free(&m);
    }
}

/* ---- out of memory --------------------------------------------------------------------- */

/* Fails at most once, and then must not have changed anything visible. */
#define TWICE(s, call)                                                                                                 \
    ({                                                                                                                 \
        struct hy_schedule_stats before_ = stats_of(s);                                                                \
        int rc_ = (call);                                                                                              \
        if (rc_ == -ENOMEM) {                                                                                          \
            struct hy_schedule_stats after_ = stats_of(s);                                                             \
            assert_memory_equal(&before_, &after_, sizeof before_);                                                    \
            rc_ = (call);                                                                                              \
        }                                                                                                              \
        rc_;                                                                                                           \
    })

struct trace {
    uint64_t digest;
    bool known;
};

static void note(uint64_t *digest, uint64_t value)
{
    *digest = (*digest ^ value) * UINT64_C(1099511628211);
}

static void place_all(struct hy_schedule *s, uint64_t *digest, uint64_t *ran, size_t *ran_count)
{
    struct hy_placement p;

    while (TWICE(s, hy_schedule_next(s, &p)) == 1) {
        note(digest, p.task);
        for (size_t i = 0; i < p.count; i++)
            note(digest, p.assignments[i].agent * 1000 + p.assignments[i].gpu_mask);
        ran[(*ran_count)++] = p.task;
    }
}

/* The placements are the same whichever allocation fails. */
static int history_with_faults(void *arg)
{
    struct trace *trace = arg;
    struct hy_policy policy = {0};
    struct hy_schedule *s = hy_schedule_new(&policy);
    uint64_t digest = 7, ran[40];
    size_t ran_count = 0, ended = 0;

    if (!s)
        return -ENOMEM;
    for (uint64_t t = 1; t <= 40; t++) {
        struct hy_capacity has = {.slots = 3, .gpus = t % 2 * 4, .memory = 12};

        if (t <= 4)
            assert_int_equal(TWICE(s, hy_schedule_agent_add(s, t, &has)), 0);
        assert_int_equal(TWICE(s, hy_schedule_submit(s, t, &pool[t * 5 % HY_COUNT(pool)])), 0);
        if (t % 3 == 0)
            place_all(s, &digest, ran, &ran_count);
    }
    for (uint64_t a = 5; a <= 70; a++) { /* past the first size of the indexes */
        struct hy_capacity has = {.slots = 1, .gpus = a == 69, .memory = 1};
        assert_int_equal(TWICE(s, hy_schedule_agent_add(s, a, &has)), 0);
    }
    assert_int_equal(hy_schedule_agent_open(s, 66, 0), 0);
    do
        place_all(s, &digest, ran, &ran_count);
    while (ended < ran_count && hy_schedule_done(s, ran[ended++]) == 0);
    assert_int_equal(ran_count, 40);
    assert_int_equal(stats_of(s).slots_used + stats_of(s).waiting + stats_of(s).running, 0);
    hy_schedule_free(s);
    if (trace->known)
        assert_true(digest == trace->digest);
    *trace = (struct trace){digest, true};
    return 0;
}

HY_TEST(test_out_of_memory_changes_nothing)
{
    struct trace trace = {0};

    hy_each_fault(HY_SEAM_ALLOC, history_with_faults, &trace);
}

static int reservation_with_faults(void *arg)
{
    struct hy_capacity has = {.slots = 1};
    struct hy_policy policy = {0};
    struct hy_need one = gang(1, 0, 0), all = gang(65, 0, 0);
    struct hy_schedule *s = hy_schedule_new(&policy);
    struct hy_placement p;

    (void)arg;
    if (!s)
        return -ENOMEM;
    assert_int_equal(TWICE(s, hy_schedule_submit(s, 1, &one)), 0);
    for (uint64_t a = 1; a <= 65; a++)
        assert_int_equal(TWICE(s, hy_schedule_agent_add(s, a, &has)), 0);
    assert_int_equal(TWICE(s, hy_schedule_next(s, &p)), 1);
    assert_int_equal(TWICE(s, hy_schedule_submit(s, 2, &all)), 0);
    assert_int_equal(TWICE(s, hy_schedule_submit(s, 3, &one)), 0);
    assert_int_equal(TWICE(s, hy_schedule_next(s, &p)), 0);
    assert_int_equal(hy_schedule_done(s, 1), 0);
    assert_int_equal(TWICE(s, hy_schedule_next(s, &p)), 1);
    assert_int_equal(p.task, 2);
    hy_schedule_free(s);
    return 0;
}

HY_TEST(test_out_of_memory_does_not_change_the_reservation)
{
    hy_each_fault(HY_SEAM_ALLOC, reservation_with_faults, NULL);
}
