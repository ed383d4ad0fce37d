/* SPDX-License-Identifier: Apache-2.0 */
/* The schedule: gangs are placed whole, and the oldest task that does not fit has a reservation. */
#include "schedule_words.h"

/* ---- gangs ------------------------------------------------------------------ */

HY_TEST(test_gang_is_placed_whole_or_not_at_all)
{
    struct hy_schedule *s = new_schedule(0);

    add(s, 1, 2, 0, UNCOUNTED);
    add(s, 2, 1, 0, UNCOUNTED);
    submit(s, 1, gang(4, 0, 0));
    assert_none(s);
    assert_int_equal(stats_of(s).slots_used, 0);
    add(s, 3, 1, 0, UNCOUNTED);
    assert_int_equal(next(s).count, 4);
    assert_int_equal(stats_of(s).slots_used, 4);
    done(s, 1);
    assert_int_equal(stats_of(s).slots_used, 0);
    hy_schedule_free(s);
}

HY_TEST(test_assignments_are_ordered_by_role_then_member)
{
    /* The least demanding role is the first; planning starts with the last. */
    struct hy_need need = {.role_count = 3, .roles = {{2, 0, 0, false}, {1, 500, 0, false}, {2, 1000, GB, false}}};
    static const uint32_t roles[] = {0, 0, 1, 2, 2}, members[] = {0, 1, 0, 0, 1};
    static const uint32_t shares[] = {0, 0, 500, 1000, 1000};
    struct hy_schedule *s = new_schedule(0);
    struct hy_placement p;

    add(s, 7, 8, 3, 4 * GB);
    submit(s, 1, need);
    p = next(s);
    assert_int_equal(p.count, 5);
    for (size_t i = 0; i < p.count; i++) {
        assert_int_equal(p.assignments[i].agent, 7);
        assert_int_equal(p.assignments[i].role, roles[i]);
        assert_int_equal(p.assignments[i].member, members[i]);
        assert_int_equal(p.assignments[i].gpu_share, shares[i]);
        assert_int_equal(p.assignments[i].gpu_mask != 0, shares[i] != 0);
    }
    hy_schedule_free(s);
}

/* If the parameter server took the only agent with a GPU, the gang would wait forever. */
HY_TEST(test_roles_of_a_waiting_gang_do_not_block_each_other)
{
    struct hy_need need = {.role_count = 2, .roles = {{1, 0, 0, false}, {1, 1000, 0, false}}};
    struct hy_schedule *s = new_schedule(0);
    struct hy_placement p;

    add(s, 1, 1, 1, UNCOUNTED);
    add(s, 2, 1, 0, UNCOUNTED);
    submit(s, 1, gang(1, 0, 0));
    assert_int_equal(next(s).assignments[0].agent, 2);
    submit(s, 2, need);
    submit(s, 3, gang(1, 0, 0));
    assert_none(s);
    done(s, 1);
    p = next(s);
    assert_int_equal(p.task, 2);
    assert_int_equal(p.assignments[0].agent, 2);
    assert_int_equal(p.assignments[1].agent, 1);
    hy_schedule_free(s);
}

/* With agent 1 busy, the GPU role goes to agent 2 first and the memory role
 * then fits nowhere; the plan for idle agents still finds a way. */
HY_TEST(test_possible_gang_gets_a_reservation_when_first_fit_on_free_agents_fails)
{
    struct hy_need need = {.role_count = 2, .roles = {{1, 1000, 0, false}, {1, 0, 8 * GB, false}}};
    struct hy_schedule *s = new_schedule(0);
    struct hy_placement p;

    add(s, 1, 1, 1, GB);
    add(s, 2, 1, 1, 8 * GB);
    submit(s, 1, gang(1, 1000, 0));
    assert_int_equal(next(s).assignments[0].agent, 1);
    assert_int_equal(hy_schedule_possible(s, &need), 1);
    submit(s, 2, need);
    submit(s, 3, gang(1, 0, 0));
    assert_none(s);
    done(s, 1);
    p = next(s);
    assert_int_equal(p.task, 2);
    assert_int_equal(p.assignments[0].agent, 1);
    assert_int_equal(p.assignments[1].agent, 2);
    hy_schedule_free(s);
}

HY_TEST(test_demanding_roles_are_placed_first)
{
    struct hy_need need = {.role_count = 2, .roles = {{1, 0, 0, false}, {1, 0, 8 * GB, false}}};
    struct hy_schedule *s = new_schedule(0);
    struct hy_placement p;

    add(s, 1, 1, 0, 8 * GB);
    add(s, 2, 1, 0, 9 * GB);
    submit(s, 1, need);
    p = next(s);
    assert_int_equal(p.assignments[0].agent, 2);
    assert_int_equal(p.assignments[1].agent, 1);
    hy_schedule_free(s);
}

/* The most demanding role first would take the only slot of agent 1. */
HY_TEST(test_gang_is_placed_if_any_order_of_its_roles_fits)
{
    struct hy_need need = {.role_count = 2, .roles = {{1, 600, 1, false}, {2, 400, 3, false}}};
    struct hy_schedule *s = new_schedule(0);
    struct hy_placement p;

    add(s, 1, 1, 1, 16);
    add(s, 2, 4, 3, 4);
    assert_int_equal(hy_schedule_possible(s, &need), 1);
    submit(s, 1, need);
    p = next(s);
    assert_int_equal(p.task, 1);
    assert_int_equal(p.assignments[0].agent, 2);
    hy_schedule_free(s);
}

/* ---- the reservation ---------------------------------------------------------- */

HY_TEST(test_small_tasks_backfill_beside_a_reservation)
{
    struct hy_schedule *s = new_schedule(0);

    add(s, 1, 4, 0, 8 * GB);
    submit(s, 1, gang(1, 0, 5 * GB));
    submit(s, 2, gang(1, 0, 6 * GB)); /* waits for memory: one slot and 6 GB are reserved */
    assert_next(s, 1);
    for (uint64_t t = 3; t <= 6; t++)
        submit(s, t, gang(1, 0, 0));
    submit(s, 7, gang(1, 0, GB));
    assert_next(s, 3);
    assert_next(s, 4);
    assert_none(s); /* the fourth slot and 3 GB are reserved for task 2 */
    done(s, 3);
    assert_next(s, 5);
    assert_none(s);
    done(s, 1);
    assert_next(s, 2);
    hy_schedule_free(s);
}

/* An endless queue of small tasks, always three of them waiting, with `big` among
 * them: how many start before it? The oldest ends when nothing fits anymore. */
static unsigned starts_before(struct hy_schedule *s, struct hy_need big, struct hy_need small)
{
    const uint64_t big_id = 1000000;
    uint64_t last = 0, first = 0, running[64];

    for (unsigned placed = 0, ended = 0; placed < 1000; placed++) {
        struct hy_placement p;

        if (placed == 20)
            submit(s, big_id, big);
        while (stats_of(s).waiting < 4)
            submit(s, placed * 10 + stats_of(s).waiting + 1, small);
        while (!(p = next(s)).task) {
            assert_true(ended++ < 2000 && first < last);
            done(s, running[first++ % 64]);
        }
        if (p.task == big_id)
            return placed - 20;
        running[last++ % 64] = p.task;
        assert_true(last - first <= 64);
    }
    fail_msg("the big task starves");
    return 0;
}

static const struct hy_need smalls[] = {
    {1, {{1, 0, GB, false}}},   {1, {{1, 250, 0, false}}}, {1, {{1, 300, GB, false}}},
    {1, {{1, 1000, 0, false}}}, {1, {{2, 0, GB, false}}},
};
static const struct hy_need bigs[] = {
    {1, {{1, 0, 10 * GB, false}}}, {1, {{2, 0, 10 * GB, false}}},
    {1, {{1, 4000, 0, false}}},    {1, {{2, 4000, GB, false}}},
    {1, {{5, 1000, 0, false}}},    {1, {{16, 0, 0, false}}},
    {1, {{8, 500, 0, false}}},     {2, {{2, 2000, 0, false}, {3, 0, 2 * GB, false}}},
};

HY_TEST(test_endless_small_tasks_do_not_starve_a_big_one)
{
    for (size_t b = 0; b < HY_COUNT(bigs); b++) {
        for (size_t m = 0; m < HY_COUNT(smalls); m++) {
            struct hy_schedule *s = new_schedule(0);

            add(s, 1, 8, 4, 10 * GB);
            add(s, 2, 8, 4, 10 * GB);
            assert_true(starts_before(s, bigs[b], smalls[m]) <= 40); /* of those, 4 are older */
            hy_schedule_free(s);
        }
    }
}

/* Small tasks that started later never end, and do not delay the big one. */
HY_TEST(test_small_tasks_that_start_later_never_delay_a_big_one)
{
    for (size_t b = 0; b < HY_COUNT(bigs); b++) {
        for (size_t m = 0; m < HY_COUNT(smalls); m++) {
            struct hy_schedule *s = new_schedule(0);
            struct hy_placement p;
            bool placed = false;

            add(s, 1, 8, 4, 10 * GB);
            add(s, 2, 8, 4, 10 * GB);
            for (uint64_t t = 1; t <= 16; t++)
                submit(s, t, smalls[m]);
            while (next(s).task)
                ;
            submit(s, 99, bigs[b]);
            for (uint64_t t = 1; t <= 16; t++) {
                submit(s, 100 + t, smalls[m]);
                done(s, t);
                while ((p = next(s)).task)
                    placed |= p.task == 99;
            }
            assert_true(placed);
            hy_schedule_free(s);
        }
    }
}

HY_TEST(test_released_slots_accumulate_for_a_gang)
{
    struct hy_schedule *s = new_schedule(0);

    for (uint64_t a = 1; a <= 4; a++)
        add(s, a, 3, 0, UNCOUNTED);
    run(s, 1, 12, gang(1, 0, 0));
    submit(s, 99, gang(12, 0, 0));
    submit(s, 100, gang(1, 0, 0));
    for (uint64_t t = 1; t <= 11; t++) {
        done(s, t);
        assert_none(s);
    }
    done(s, 12);
    assert_next(s, 99);
    assert_none(s);
    hy_schedule_free(s);
}

HY_TEST(test_released_resources_go_to_the_oldest_task_first)
{
    for (uint64_t first = 1; first <= 3; first++) {
        struct hy_schedule *s = new_schedule(0);
        struct hy_placement p;

        for (uint64_t a = 1; a <= 3; a++)
            add(s, a, 2, 1, UNCOUNTED);
        for (uint64_t t = 1; t <= 3; t++)
            submit(s, t, gang(1, 1000, 0));
        for (uint64_t t = 1; t <= 3; t++)
            assert_int_equal(next(s).assignments[0].agent, t);
        submit(s, 4, gang(1, 1000, 0));
        submit(s, 5, gang(1, 500, 0));
        submit(s, 6, gang(1, 0, 0));
        assert_next(s, 6); /* so task 4 has a reservation */
        done(s, first);
        p = next(s);
        assert_int_equal(p.task, 4);
        assert_int_equal(p.assignments[0].agent, first);
        assert_none(s);
        hy_schedule_free(s);
    }
}

/* Free devices 0 and 2 are enough for a member that waits for 0 and 1 while
 * another waits for 2 and 3. */
HY_TEST(test_pending_members_swap_devices)
{
    for (uint64_t other = 2; other <= 4; other++) {
        struct hy_schedule *s = new_schedule(0);

        (void)state;
        add(s, 1, 8, 4, UNCOUNTED);
        run(s, 1, 4, gang(1, 1000, 0));
        add(s, 2, 1, 2, UNCOUNTED);
        submit(s, 5, gang(3, 2000, 0)); /* one member on agent 2, two wait on agent 1 */
        submit(s, 6, gang(1, 0, 0));
        submit(s, 7, gang(1, 1000, 0));
        assert_next(s, 6);
        assert_none(s);
        done(s, 1);
        done(s, other); /* a pair that is secured at once ... */
        add(s, 3, 1, 2, UNCOUNTED);
        assert_next(s, 5); /* ... so that one more agent suffices */
        hy_schedule_free(s);
    }
}

/* A member that needs a whole device and one that needs half of another. */
HY_TEST(test_pending_members_with_shares_keep_their_devices)
{
    struct hy_need need = {.role_count = 2, .roles = {{1, 1000, 0, false}, {1, 500, 0, false}}};
    struct hy_schedule *s = new_schedule(0);
    struct hy_placement p;

    add(s, 1, 8, 2, UNCOUNTED);
    run(s, 1, 2, gang(1, 1000, 0));
    submit(s, 3, need);
    submit(s, 4, gang(1, 0, 0));
    submit(s, 5, gang(1, 500, 0));
    assert_next(s, 4);
    done(s, 2);
    assert_next(s, 5); /* half of it is reserved for task 3, half is free */
    done(s, 1);
    p = next(s);
    assert_int_equal(p.task, 3);
    assert_int_equal(p.assignments[0].gpu_mask | p.assignments[1].gpu_mask, 3);
    hy_schedule_free(s);
}

HY_TEST(test_reservation_is_made_where_the_shortfall_is_least)
{
    struct hy_schedule *s = new_schedule(0);

    add(s, 1, 8, 2, UNCOUNTED);
    add(s, 2, 8, 2, UNCOUNTED);
    run(s, 1, 4, gang(1, 1000, 0));
    done(s, 1); /* a device of agent 1 is free, none of agent 2 */
    submit(s, 5, gang(1, 2000, 0));
    submit(s, 6, gang(1, 1000, 0));
    assert_none(s);
    done(s, 3);
    assert_next(s, 6); /* agent 2 is not reserved */
    done(s, 2);
    assert_next(s, 5);
    hy_schedule_free(s);
}

HY_TEST(test_reservation_is_made_on_the_device_with_the_least_load)
{
    struct hy_schedule *s = new_schedule(0);

    add(s, 1, 8, 2, UNCOUNTED);
    submit(s, 1, gang(1, 900, 0));
    submit(s, 2, gang(1, 300, 0));
    assert_int_equal(next(s).assignments[0].gpu_mask, 1);
    assert_int_equal(next(s).assignments[0].gpu_mask, 2);
    submit(s, 3, gang(1, 1000, 0));
    submit(s, 4, gang(1, 500, 0));
    submit(s, 5, gang(1, 100, 0));
    assert_int_equal(next(s).task, 5); /* on the other device; task 4 has to wait */
    assert_none(s);
    done(s, 2);
    assert_int_equal(next(s).assignments[0].gpu_mask, 2);
    hy_schedule_free(s);
}

/*
 * Without agent 1, each role that comes first takes agents 2 and 3 and leaves
 * too little for the other, so the task is called impossible. But the
 * reservation that was made before remains valid.
 */
HY_TEST(test_reservation_outlives_an_agent_it_does_not_use)
{
    struct hy_need need = {.role_count = 2, .roles = {{2, 2000, 0, false}, {2, 0, 8 * GB, false}}};
    struct hy_schedule *s = new_schedule(0);

    add(s, 1, 1, 2, GB);
    add(s, 2, 1, 2, 8 * GB);
    add(s, 3, 1, 2, 8 * GB);
    add(s, 4, 1, 2, GB);
    add(s, 5, 1, 1, 8 * GB);
    add(s, 6, 1, 0, 0);
    run(s, 1, 3, gang(1, 1000, 0));
    run(s, 4, 4, gang(1, 1000, 8 * GB));
    done(s, 2);         /* agents 1, 3 and 5 are in use */
    submit(s, 5, need); /* on agents 2 and 4, and in the end on 3 and 5 */
    submit(s, 6, gang(1, 0, 8 * GB));
    submit(s, 7, gang(1, 0, 0));
    assert_next(s, 7);
    assert_int_equal(hy_schedule_agent_remove(s, 1), 0);
    done(s, 1);
    assert_int_equal(hy_schedule_possible(s, &need), 0);
    submit(s, 8, gang(1, 0, 0));
    done(s, 7);
    assert_next(s, 8);
    done(s, 3);
    assert_none(s);
    done(s, 4);
    assert_next(s, 5);
    hy_schedule_free(s);
}

HY_TEST(test_reservation_moves_when_its_agent_is_removed)
{
    struct hy_schedule *s = new_schedule(0);

    add(s, 1, 2, 0, UNCOUNTED);
    add(s, 2, 2, 0, UNCOUNTED);
    run(s, 1, 4, gang(1, 0, 0));
    submit(s, 5, gang(2, 0, 0));
    submit(s, 6, gang(1, 0, 0));
    done(s, 4);
    assert_none(s); /* one slot of agent 2 is secured */
    assert_int_equal(hy_schedule_agent_remove(s, 2), 0);
    done(s, 3);
    assert_none(s);
    done(s, 1);
    assert_none(s);
    done(s, 2);
    assert_next(s, 5);
    done(s, 5);
    assert_next(s, 6);
    hy_schedule_free(s);
}

HY_TEST(test_reservation_uses_a_new_agent)
{
    struct hy_schedule *s = new_schedule(0);

    add(s, 1, 2, 0, UNCOUNTED);
    run(s, 1, 1, gang(1, 0, 0));
    submit(s, 2, gang(2, 0, 0));
    submit(s, 3, gang(1, 0, 0));
    assert_none(s);
    add(s, 2, 1, 0, UNCOUNTED);
    assert_next(s, 2);
    assert_none(s);
    hy_schedule_free(s);
}

HY_TEST(test_reservation_leaves_an_agent_that_closes)
{
    struct hy_schedule *s = new_schedule(0);
    struct hy_placement p;

    add(s, 1, 2, 0, UNCOUNTED);
    add(s, 2, 2, 0, UNCOUNTED);
    run(s, 1, 3, gang(1, 0, 0));
    submit(s, 4, gang(2, 0, 0));
    submit(s, 5, gang(1, 0, 0));
    assert_none(s);
    assert_int_equal(hy_schedule_agent_open(s, 2, 0), 0);
    done(s, 3);
    assert_none(s);
    done(s, 1);
    assert_none(s); /* one of two on agent 1, and agent 2 gives nothing */
    done(s, 2);
    p = next(s);
    assert_int_equal(p.task, 4);
    assert_int_equal(p.assignments[0].agent, 1);
    assert_int_equal(p.assignments[1].agent, 1);
    hy_schedule_free(s);
}

HY_TEST(test_reservation_ends_with_its_task)
{
    struct hy_schedule *s = new_schedule(0);

    add(s, 1, 3, 0, UNCOUNTED);
    run(s, 1, 1, gang(1, 0, 0));
    submit(s, 2, gang(3, 0, 0));
    submit(s, 3, gang(2, 0, 0));
    assert_none(s);
    done(s, 2);
    assert_next(s, 3);
    hy_schedule_free(s);
}

HY_TEST(test_impossible_task_delays_no_other_task)
{
    struct hy_need need = gang(4, 0, 0);
    struct hy_schedule *s = new_schedule(0);

    add(s, 1, 2, 0, UNCOUNTED);
    submit(s, 1, need);
    for (uint64_t t = 2; t <= 6; t++)
        submit(s, t, gang(1, 0, 0));
    assert_int_equal(hy_schedule_possible(s, &need), 0);
    assert_next(s, 2);
    assert_next(s, 3);
    assert_none(s);
    add(s, 2, 2, 0, UNCOUNTED); /* now it is possible, and the oldest */
    assert_int_equal(hy_schedule_possible(s, &need), 1);
    assert_none(s);
    done(s, 2);
    assert_none(s);
    done(s, 3);
    assert_next(s, 1);
    hy_schedule_free(s);
}

HY_TEST(test_task_that_becomes_possible_takes_the_reservation_of_a_younger_one)
{
    struct hy_schedule *s = new_schedule(0);

    add(s, 1, 3, 0, UNCOUNTED);
    run(s, 1, 1, gang(1, 0, 0));
    submit(s, 2, gang(4, 0, 0)); /* impossible as yet */
    submit(s, 3, gang(3, 0, 0));
    submit(s, 4, gang(1, 0, 0));
    assert_none(s); /* two slots are secured for task 3 */
    add(s, 2, 1, 0, UNCOUNTED);
    assert_none(s);
    done(s, 1);
    assert_next(s, 2);
    done(s, 2);
    assert_next(s, 3);
    assert_next(s, 4);
    hy_schedule_free(s);
}
