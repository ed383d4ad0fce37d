/* SPDX-License-Identifier: Apache-2.0 */
/* The schedule: first come, first served, and capacities are never exceeded. */
#include "schedule_words.h"

#include <errno.h>

#include "base/rng.h"
#include "schedule/internal.h"

/* ---- order and capacity --------------------------------------------------- */

HY_TEST(test_first_come_first_served)
{
    struct hy_schedule *s = new_schedule(0);

    submit(s, 30, gang(1, 0, 0));
    submit(s, 10, gang(1, 0, GB));
    submit(s, 20, gang(1, 0, 0));
    assert_none(s);
    add(s, 1, 8, 0, 8 * GB);
    assert_next(s, 30);
    assert_next(s, 10);
    assert_next(s, 20);
    assert_none(s);
    hy_schedule_free(s);
}

HY_TEST(test_slots_are_never_exceeded)
{
    struct hy_schedule *s = new_schedule(0);

    add(s, 1, 2, 0, UNCOUNTED);
    for (uint64_t t = 1; t <= 4; t++)
        submit(s, t, gang(1, 0, 0));
    assert_next(s, 1);
    assert_next(s, 2);
    assert_none(s);
    assert_int_equal(stats_of(s).slots_used, 2);
    done(s, 1);
    assert_next(s, 3);
    assert_none(s);
    hy_schedule_free(s);
}

HY_TEST(test_memory_is_never_exceeded)
{
    struct hy_schedule *s = new_schedule(0);

    add(s, 1, 8, 0, 10 * GB);
    submit(s, 1, gang(1, 0, 6 * GB));
    submit(s, 2, gang(1, 0, 6 * GB));
    submit(s, 3, gang(1, 0, 0));
    assert_next(s, 1);
    assert_next(s, 3);
    assert_none(s);
    done(s, 1);
    assert_next(s, 2);
    hy_schedule_free(s);
}

static struct hy_need alone(void)
{
    return (struct hy_need){.role_count = 1, .roles = {{.count = 1, .alone = true}}};
}

HY_TEST(test_a_task_that_runs_alone_has_its_agent_to_itself)
{
    struct hy_schedule *s = new_schedule(4);

    add(s, 1, 4, 0, UNCOUNTED);
    run(s, 1, 3, gang(1, 0, 0));
    submit(s, 4, alone());
    submit(s, 5, alone());
    submit(s, 6, gang(1, 0, 0)); /* a slot is free, but it would delay 4 */
    assert_none(s);
    done(s, 1);
    done(s, 2);
    assert_none(s);
    done(s, 3);
    assert_next(s, 4);
    assert_int_equal(stats_of(s).slots_used, 4);
    assert_none(s);
    done(s, 4);
    assert_next(s, 5);
    done(s, 5);
    assert_next(s, 6);
    submit(s, 7, alone());
    assert_none(s);
    hy_schedule_agent_remove(s, 1);
    done(s, 6);
    add(s, 2, 4, 0, UNCOUNTED);
    assert_next(s, 7);
    hy_schedule_free(s);
}

HY_TEST(test_fits_accounts_for_the_reservation_of_a_task_that_runs_alone)
{
    struct hy_need plain = gang(1, 0, 0), by_itself = alone();
    struct hy_schedule *s = new_schedule(0);

    assert_int_equal(hy_schedule_fits(s, &plain), 0);
    add(s, 1, 2, 0, UNCOUNTED);
    add(s, 2, 2, 0, UNCOUNTED);
    run(s, 1, 3, plain);
    submit(s, 4, by_itself);
    assert_none(s);
    assert_int_equal(hy_schedule_fits(s, &by_itself), 0);
    assert_int_equal(hy_schedule_fits(s, &plain), 1);
    submit(s, 5, plain); /* the second agent is reserved for 4 now */
    assert_none(s);
    assert_int_equal(hy_schedule_fits(s, &plain), 0);
    done(s, 1);
    assert_next(s, 5);
    done(s, 3);
    assert_next(s, 4);
    assert_int_equal(hy_schedule_fits(s, &plain), 0);
    hy_schedule_free(s);
}

HY_TEST(test_unlimited_memory_is_never_short)
{
    struct hy_schedule *s = new_schedule(0);

    add(s, 1, 3, 0, UNCOUNTED);
    run(s, 1, 3, gang(1, 0, UINT64_MAX));
    for (uint64_t t = 1; t <= 3; t++)
        done(s, t);
    assert_int_equal(stats_of(s).slots_used, 0);
    hy_schedule_free(s);
}

HY_TEST(test_shares_of_a_device_add_up_to_at_most_one)
{
    struct hy_schedule *s = new_schedule(0);
    struct hy_placement p;

    add(s, 1, 8, 1, UNCOUNTED);
    submit(s, 1, gang(1, 600, 0));
    submit(s, 2, gang(1, 400, 0));
    submit(s, 3, gang(1, 1, 0));
    p = next(s);
    assert_int_equal(p.assignments[0].gpu_mask, 1);
    assert_int_equal(p.assignments[0].gpu_share, 600);
    assert_next(s, 2);
    assert_none(s);
    done(s, 1);
    assert_next(s, 3);
    hy_schedule_free(s);
}

HY_TEST(test_shares_fill_a_device_before_they_break_another)
{
    struct hy_schedule *s = new_schedule(0);

    add(s, 1, 8, 2, UNCOUNTED);
    submit(s, 1, gang(1, 500, 0));
    submit(s, 2, gang(1, 500, 0));
    submit(s, 3, gang(1, 1000, 0));
    assert_int_equal(next(s).assignments[0].gpu_mask, 1);
    assert_int_equal(next(s).assignments[0].gpu_mask, 1);
    assert_int_equal(next(s).assignments[0].gpu_mask, 2);
    hy_schedule_free(s);
}

HY_TEST(test_whole_devices_are_exclusive)
{
    struct hy_schedule *s = new_schedule(0);
    struct hy_placement p;

    add(s, 1, 8, 3, UNCOUNTED);
    submit(s, 1, gang(1, 2000, 0));
    submit(s, 2, gang(1, 2000, 0));
    submit(s, 3, gang(1, 100, 0));
    p = next(s);
    assert_int_equal(p.task, 1);
    assert_int_equal(p.assignments[0].gpu_mask, 3);
    assert_int_equal(p.assignments[0].gpu_share, 1000);
    assert_none(s); /* the third device is reserved for task 2 */
    done(s, 1);
    p = next(s);
    assert_int_equal(p.task, 2);
    assert_int_equal(__builtin_popcountll(p.assignments[0].gpu_mask), 2);
    assert_next(s, 3);
    hy_schedule_free(s);
}

HY_TEST(test_one_task_can_have_all_64_devices_of_an_agent)
{
    struct hy_schedule *s = new_schedule(0);

    add(s, 1, 2, 64, UNCOUNTED);
    submit(s, 1, gang(1, 64000, 0));
    assert_true(next(s).assignments[0].gpu_mask == UINT64_MAX);
    hy_schedule_free(s);
}

HY_TEST(test_tasks_without_gpu_leave_agents_with_gpus_free)
{
    struct hy_schedule *s = new_schedule(0);

    add(s, 1, 1, 1, UNCOUNTED);
    add(s, 2, 1, 0, UNCOUNTED);
    submit(s, 1, gang(1, 0, 0));
    submit(s, 2, gang(1, 1000, 0));
    assert_int_equal(next(s).assignments[0].agent, 2);
    assert_int_equal(next(s).assignments[0].agent, 1);
    hy_schedule_free(s);
}

/* ---- the limit over all agents ---------------------------------------------------------- */

HY_TEST(test_parallel_limits_the_members_that_run)
{
    struct hy_need need = gang(3, 0, 0), more = gang(4, 0, 0);
    struct hy_schedule *s = new_schedule(3);

    add(s, 1, 10, 0, UNCOUNTED);
    assert_int_equal(hy_schedule_possible(s, &need), 1);
    assert_int_equal(hy_schedule_possible(s, &more), 0);
    submit(s, 1, more);
    submit(s, 2, gang(2, 0, 0));
    submit(s, 3, gang(1, 0, 0));
    submit(s, 4, gang(1, 0, 0));
    assert_next(s, 2);
    assert_next(s, 3);
    assert_none(s);
    done(s, 3);
    assert_next(s, 4);
    assert_none(s);
    hy_schedule_free(s);
}

HY_TEST(test_parallel_is_kept_free_for_a_waiting_gang)
{
    struct hy_schedule *s = new_schedule(4);

    add(s, 1, 10, 0, UNCOUNTED);
    submit(s, 1, gang(1, 0, 0));
    submit(s, 2, gang(1, 0, 0));
    submit(s, 3, gang(3, 0, 0));
    submit(s, 4, gang(1, 0, 0));
    submit(s, 5, gang(1, 0, 0));
    assert_next(s, 1);
    assert_next(s, 2);
    assert_none(s); /* a third would delay task 3 */
    done(s, 1);
    assert_next(s, 3);
    assert_none(s);
    hy_schedule_free(s);
}

/* ---- agents are added, removed, closed and resized ----------------------------------------------------------- */

HY_TEST(test_closed_agent_gets_no_new_members)
{
    struct hy_schedule *s = new_schedule(0);
    struct hy_need need = gang(2, 0, 0);

    add(s, 1, 2, 0, UNCOUNTED);
    submit(s, 1, gang(1, 0, 0));
    submit(s, 2, gang(1, 0, 0));
    assert_next(s, 1);
    assert_int_equal(hy_schedule_agent_open(s, 1, 0), 0);
    assert_none(s);
    done(s, 1);
    assert_none(s);
    assert_int_equal(hy_schedule_possible(s, &need), 1); /* it may open again */
    assert_int_equal(hy_schedule_agent_open(s, 1, 1), 0);
    assert_next(s, 2);
    hy_schedule_free(s);
}

HY_TEST(test_an_agent_can_be_resized)
{
    struct hy_schedule *s = new_schedule(0);
    struct hy_schedule_stats stats;

    add(s, 1, 1, 0, UNCOUNTED);
    for (uint64_t task = 1; task <= 4; task++)
        submit(s, task, gang(1, 0, 0));
    assert_next(s, 1);
    assert_none(s);
    assert_int_equal(hy_schedule_agent_resize(s, 1, 2), 0);
    assert_next(s, 2);
    assert_none(s);
    assert_int_equal(hy_schedule_agent_resize(s, 1, 1), 0);
    hy_schedule_stats(s, &stats);
    assert_int_equal(stats.slots, 1);
    assert_int_equal(stats.slots_used, 2); /* until one is done */
    done(s, 1);
    assert_none(s);
    done(s, 2);
    assert_next(s, 3);
    assert_none(s);
    assert_int_equal(hy_schedule_agent_resize(s, 1, 0), -EINVAL);
    assert_int_equal(hy_schedule_agent_resize(s, 7, 1), -ENOENT);
    hy_schedule_free(s);
}

HY_TEST(test_removing_an_agent_removes_its_assignments)
{
    struct hy_schedule *s = new_schedule(0);

    add(s, 1, 2, 0, GB);
    add(s, 2, 1, 0, GB);
    run(s, 1, 1, gang(3, 0, GB / 2));
    assert_int_equal(hy_schedule_agent_remove(s, 1), 0);
    assert_int_equal(stats_of(s).slots, 1);
    assert_int_equal(stats_of(s).slots_used, 1);
    assert_int_equal(stats_of(s).running, 1);
    add(s, 1, 2, 0, GB); /* the same ID, but a new agent with nothing allocated */
    submit(s, 2, gang(2, 0, GB / 2));
    assert_next(s, 2);
    done(s, 1); /* releases the slot on agent 2 and none on the new agent 1 */
    assert_int_equal(stats_of(s).slots_used, 2);
    submit(s, 3, gang(1, 0, 0));
    assert_int_equal(next(s).assignments[0].agent, 2);
    assert_none(s);
    hy_schedule_free(s);
}

HY_TEST(test_five_thousand_agents_are_all_found)
{
    static bool seen[5001];
    struct hy_schedule *s = new_schedule(0);

    memset(seen, 0, sizeof seen);
    submit(s, 1, gang(1, 0, 0)); /* a class that exists before the agents */
    for (uint64_t a = 1; a <= 5000; a++)
        add(s, a, 1, a % 5 == 0, UNCOUNTED);
    for (uint64_t t = 2; t <= 4000; t++)
        submit(s, t, gang(1, 0, 0));
    submit(s, 4001, gang(1000, 1000, 0));
    submit(s, 4002, gang(1, 0, 0));
    for (uint64_t t = 1; t <= 4001; t++) {
        struct hy_placement p = next(s);

        assert_int_equal(p.task, t);
        for (size_t i = 0; i < p.count; i++) {
            assert_false(seen[p.assignments[i].agent]);
            seen[p.assignments[i].agent] = true;
        }
    }
    assert_none(s);
    hy_schedule_free(s);
}

HY_TEST(test_unused_classes_are_freed)
{
    struct hy_schedule *s = new_schedule(0);
    unsigned classes = 0, shapes = 0;

    add(s, 1, 2, 1, 500);
    for (uint64_t t = 1; t <= 300; t++) {
        submit(s, t, gang(1, t % 2 ? 0 : (uint32_t)(t % 999 + 1), t));
        assert_next(s, t);
        done(s, t);
    }
    assert_int_equal(stats_of(s).waiting + stats_of(s).running + stats_of(s).slots_used, 0);
    hy_list_each(it, &s->classes)
        classes++;
    hy_list_each(it, &s->fit_indexes)
        shapes++;
    assert_true(classes <= 32 && shapes <= 32);
    hy_schedule_free(s);
}

/* ---- invalid input -------------------------------------------------------------------- */

HY_TEST(test_invalid_needs_are_rejected)
{
    const struct hy_need bad[] = {
        {.role_count = 0},
        {.role_count = HY_ROLES_MAX + 1},
        gang(0, 0, 0),
        gang(1, 1500, 0),
        gang(1, 65000, 0),
        gang(HY_MEMBERS_MAX + 1, 0, 0),
        {.role_count = 2, .roles = {{UINT32_MAX, 0, 0, false}, {1, 0, 0, false}}},
        {.role_count = 2, .roles = {{1, 0, 0, false}, {0, 0, 0, false}}},
    };
    struct hy_schedule *s = new_schedule(0);

    add(s, 1, UINT32_MAX, 64, UNCOUNTED);
    for (size_t i = 0; i < HY_COUNT(bad); i++) {
        assert_int_equal(hy_schedule_submit(s, 1, &bad[i]), -EINVAL);
        assert_int_equal(hy_schedule_possible(s, &bad[i]), 0);
    }
    assert_int_equal(stats_of(s).waiting, 0);
    submit(s, 1, gang(HY_MEMBERS_MAX, 0, 0));
    assert_int_equal(next(s).count, HY_MEMBERS_MAX);
    hy_schedule_free(s);
}

HY_TEST(test_invalid_agents_are_rejected)
{
    struct hy_capacity none = {.slots = 0}, fine = {.slots = 1};
    struct hy_capacity many = {.slots = 1, .gpus = HY_AGENT_GPUS_MAX + 1};
    struct hy_schedule *s = new_schedule(0);

    assert_int_equal(hy_schedule_agent_add(s, 1, &none), -EINVAL);
    assert_int_equal(hy_schedule_agent_add(s, 1, &many), -EINVAL);
    assert_int_equal(hy_schedule_agent_add(s, 1, &fine), 0);
    assert_int_equal(hy_schedule_agent_add(s, 1, &fine), -EEXIST);
    assert_int_equal(stats_of(s).agents, 1);
    hy_schedule_free(s);
}

HY_TEST(test_ids_are_unique_and_unknown_ids_are_errors)
{
    struct hy_need need = gang(1, 0, 0);
    struct hy_schedule *s = new_schedule(0);

    assert_int_equal(hy_schedule_agent_remove(s, 1), -ENOENT);
    assert_int_equal(hy_schedule_agent_open(s, 1, 1), -ENOENT);
    assert_int_equal(hy_schedule_done(s, 1), -ENOENT);
    submit(s, 1, need);
    assert_int_equal(hy_schedule_submit(s, 1, &need), -EEXIST);
    add(s, 1, 1, 0, 0);
    assert_next(s, 1);
    assert_int_equal(hy_schedule_submit(s, 1, &need), -EEXIST);
    done(s, 1);
    assert_int_equal(hy_schedule_done(s, 1), -ENOENT);
    submit(s, 1, need);
    assert_next(s, 1);
    hy_schedule_free(s);
    hy_schedule_free(NULL);
}

/* ---- the bitmap ------------------------------------------------------------ */

HY_TEST(test_bitmap_finds_next_and_previous_members)
{
    enum { SIZE = 70000 };
    static bool model[SIZE];
    struct hy_bitmap bits = {0};
    struct hy_rng rng;

    memset(model, 0, sizeof model);
    hy_rng_seed(&rng, 1, 0);
    assert_int_equal(hy_bitmap_next(&bits, 0), HY_BITMAP_NONE);
    assert_int_equal(hy_bitmap_prev(&bits, HY_BITMAP_NONE), HY_BITMAP_NONE);
    for (uint32_t size = 1; size <= SIZE; size = size < 100 ? size + 1 : size * 3) {
        assert_int_equal(hy_bitmap_grow(&bits, size), 0);
        for (int k = 0; k < 200; k++) {
            uint32_t i = (uint32_t)hy_rng_below(&rng, size), from = (uint32_t)hy_rng_below(&rng, size), want;

            model[i] = !model[i];
            (model[i] ? hy_bitmap_set : hy_bitmap_clear)(&bits, i);
            assert_int_equal(hy_bitmap_has(&bits, i), model[i]);
            for (want = from; want < size && !model[want];)
                want++;
            assert_int_equal(hy_bitmap_next(&bits, from), want < size ? want : HY_BITMAP_NONE);
            for (want = from; want != HY_BITMAP_NONE && !model[want];)
                want--; /* from 0 to HY_BITMAP_NONE */
            assert_int_equal(hy_bitmap_prev(&bits, from), want);
        }
    }
    hy_bitmap_done(&bits);
}
