/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include "schedule/internal.h"
#include "schedule_model.h"

/* ---- order and capacity --------------------------------------------------- */

static void test_first_come_first_served(void **state)
{
    struct hy_schedule *s = new_schedule(0);

    (void)state;
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

static void test_slots_are_never_exceeded(void **state)
{
    struct hy_schedule *s = new_schedule(0);

    (void)state;
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

static void test_memory_is_never_exceeded(void **state)
{
    struct hy_schedule *s = new_schedule(0);

    (void)state;
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

static void test_memory_that_is_not_counted_is_never_short(void **state)
{
    struct hy_schedule *s = new_schedule(0);

    (void)state;
    add(s, 1, 3, 0, UNCOUNTED);
    run(s, 1, 3, gang(1, 0, UINT64_MAX));
    for (uint64_t t = 1; t <= 3; t++)
        done(s, t);
    assert_int_equal(stats_of(s).slots_used, 0);
    hy_schedule_free(s);
}

static void test_shares_of_a_device_add_up_to_at_most_one(void **state)
{
    struct hy_schedule *s = new_schedule(0);
    struct hy_place p;

    (void)state;
    add(s, 1, 8, 1, UNCOUNTED);
    submit(s, 1, gang(1, 600, 0));
    submit(s, 2, gang(1, 400, 0));
    submit(s, 3, gang(1, 1, 0));
    p = next(s);
    assert_int_equal(p.seats[0].gpu_mask, 1);
    assert_int_equal(p.seats[0].gpu_share, 600);
    assert_next(s, 2);
    assert_none(s);
    done(s, 1);
    assert_next(s, 3);
    hy_schedule_free(s);
}

static void test_shares_fill_a_device_before_they_break_another(void **state)
{
    struct hy_schedule *s = new_schedule(0);

    (void)state;
    add(s, 1, 8, 2, UNCOUNTED);
    submit(s, 1, gang(1, 500, 0));
    submit(s, 2, gang(1, 500, 0));
    submit(s, 3, gang(1, 1000, 0));
    assert_int_equal(next(s).seats[0].gpu_mask, 1);
    assert_int_equal(next(s).seats[0].gpu_mask, 1);
    assert_int_equal(next(s).seats[0].gpu_mask, 2);
    hy_schedule_free(s);
}

static void test_whole_devices_are_exclusive(void **state)
{
    struct hy_schedule *s = new_schedule(0);
    struct hy_place p;

    (void)state;
    add(s, 1, 8, 3, UNCOUNTED);
    submit(s, 1, gang(1, 2000, 0));
    submit(s, 2, gang(1, 2000, 0));
    submit(s, 3, gang(1, 100, 0));
    p = next(s);
    assert_int_equal(p.task, 1);
    assert_int_equal(p.seats[0].gpu_mask, 3);
    assert_int_equal(p.seats[0].gpu_share, 1000);
    assert_none(s); /* the third device is set aside for task 2 */
    done(s, 1);
    p = next(s);
    assert_int_equal(p.task, 2);
    assert_int_equal(__builtin_popcountll(p.seats[0].gpu_mask), 2);
    assert_next(s, 3);
    hy_schedule_free(s);
}

static void test_all_64_devices_of_an_agent_can_be_had(void **state)
{
    struct hy_schedule *s = new_schedule(0);

    (void)state;
    add(s, 1, 2, 64, UNCOUNTED);
    submit(s, 1, gang(1, 64000, 0));
    assert_true(next(s).seats[0].gpu_mask == UINT64_MAX);
    hy_schedule_free(s);
}

static void test_tasks_without_gpu_leave_agents_with_gpus_free(void **state)
{
    struct hy_schedule *s = new_schedule(0);

    (void)state;
    add(s, 1, 1, 1, UNCOUNTED);
    add(s, 2, 1, 0, UNCOUNTED);
    submit(s, 1, gang(1, 0, 0));
    submit(s, 2, gang(1, 1000, 0));
    assert_int_equal(next(s).seats[0].agent, 2);
    assert_int_equal(next(s).seats[0].agent, 1);
    hy_schedule_free(s);
}

/* ---- gangs ------------------------------------------------------------------ */

static void test_gang_is_placed_whole_or_not_at_all(void **state)
{
    struct hy_schedule *s = new_schedule(0);

    (void)state;
    add(s, 1, 2, 0, UNCOUNTED);
    add(s, 2, 1, 0, UNCOUNTED);
    submit(s, 1, gang(4, 0, 0));
    assert_none(s);
    assert_int_equal(stats_of(s).slots_used, 0);
    add(s, 3, 1, 0, UNCOUNTED);
    assert_int_equal(next(s).seat_count, 4);
    assert_int_equal(stats_of(s).slots_used, 4);
    done(s, 1);
    assert_int_equal(stats_of(s).slots_used, 0);
    hy_schedule_free(s);
}

static void test_seats_come_by_role_then_member(void **state)
{
    /* The least demanding role is the first; the layout starts with the last. */
    struct hy_need need = {.role_count = 3, .roles = {{2, 0, 0}, {1, 500, 0}, {2, 1000, GB}}};
    static const uint32_t roles[] = {0, 0, 1, 2, 2}, members[] = {0, 1, 0, 0, 1};
    static const uint32_t shares[] = {0, 0, 500, 1000, 1000};
    struct hy_schedule *s = new_schedule(0);
    struct hy_place p;

    (void)state;
    add(s, 7, 8, 3, 4 * GB);
    submit(s, 1, need);
    p = next(s);
    assert_int_equal(p.seat_count, 5);
    for (size_t i = 0; i < p.seat_count; i++) {
        assert_int_equal(p.seats[i].agent, 7);
        assert_int_equal(p.seats[i].role, roles[i]);
        assert_int_equal(p.seats[i].member, members[i]);
        assert_int_equal(p.seats[i].gpu_share, shares[i]);
        assert_int_equal(p.seats[i].gpu_mask != 0, shares[i] != 0);
    }
    hy_schedule_free(s);
}

/* A greedy parameter server on the only agent with a GPU would wait forever. */
static void test_roles_of_a_waiting_gang_do_not_block_each_other(void **state)
{
    struct hy_need need = {.role_count = 2, .roles = {{1, 0, 0}, {1, 1000, 0}}};
    struct hy_schedule *s = new_schedule(0);
    struct hy_place p;

    (void)state;
    add(s, 1, 1, 1, UNCOUNTED);
    add(s, 2, 1, 0, UNCOUNTED);
    submit(s, 1, gang(1, 0, 0));
    assert_int_equal(next(s).seats[0].agent, 2);
    submit(s, 2, need);
    submit(s, 3, gang(1, 0, 0));
    assert_none(s);
    done(s, 1);
    p = next(s);
    assert_int_equal(p.task, 2);
    assert_int_equal(p.seats[0].agent, 2);
    assert_int_equal(p.seats[1].agent, 1);
    hy_schedule_free(s);
}

/* With agent 1 busy, the GPU role goes to agent 2 first and the memory role
 * then fits nowhere, ever; the plan for idle agents still knows a way. */
static void test_possible_gang_gets_a_plan_even_where_the_free_places_mislead(void **state)
{
    struct hy_need need = {.role_count = 2, .roles = {{1, 1000, 0}, {1, 0, 8 * GB}}};
    struct hy_schedule *s = new_schedule(0);
    struct hy_place p;

    (void)state;
    add(s, 1, 1, 1, GB);
    add(s, 2, 1, 1, 8 * GB);
    submit(s, 1, gang(1, 1000, 0));
    assert_int_equal(next(s).seats[0].agent, 1);
    assert_int_equal(hy_schedule_possible(s, &need), 1);
    submit(s, 2, need);
    submit(s, 3, gang(1, 0, 0));
    assert_none(s);
    done(s, 1);
    p = next(s);
    assert_int_equal(p.task, 2);
    assert_int_equal(p.seats[0].agent, 1);
    assert_int_equal(p.seats[1].agent, 2);
    hy_schedule_free(s);
}

static void test_demanding_roles_choose_first(void **state)
{
    struct hy_need need = {.role_count = 2, .roles = {{1, 0, 0}, {1, 0, 8 * GB}}};
    struct hy_schedule *s = new_schedule(0);
    struct hy_place p;

    (void)state;
    add(s, 1, 1, 0, 8 * GB);
    add(s, 2, 1, 0, 9 * GB);
    submit(s, 1, need);
    p = next(s);
    assert_int_equal(p.seats[0].agent, 2);
    assert_int_equal(p.seats[1].agent, 1);
    hy_schedule_free(s);
}

/* The most demanding role first would take the only slot of agent 1. */
static void test_gang_is_placed_if_any_order_of_its_roles_fits(void **state)
{
    struct hy_need need = {.role_count = 2, .roles = {{1, 600, 1}, {2, 400, 3}}};
    struct hy_schedule *s = new_schedule(0);
    struct hy_place p;

    (void)state;
    add(s, 1, 1, 1, 16);
    add(s, 2, 4, 3, 4);
    assert_int_equal(hy_schedule_possible(s, &need), 1);
    submit(s, 1, need);
    p = next(s);
    assert_int_equal(p.task, 1);
    assert_int_equal(p.seats[0].agent, 2);
    hy_schedule_free(s);
}

/* ---- the reservation ---------------------------------------------------------- */

static void test_small_tasks_fill_holes_beside_a_reservation(void **state)
{
    struct hy_schedule *s = new_schedule(0);

    (void)state;
    add(s, 1, 4, 0, 8 * GB);
    submit(s, 1, gang(1, 0, 5 * GB));
    submit(s, 2, gang(1, 0, 6 * GB)); /* waits for memory: one slot and 6 GB are set aside */
    assert_next(s, 1);
    for (uint64_t t = 3; t <= 6; t++)
        submit(s, t, gang(1, 0, 0));
    submit(s, 7, gang(1, 0, GB));
    assert_next(s, 3);
    assert_next(s, 4);
    assert_none(s); /* the fourth slot is task 2's, and so are 3 GB */
    done(s, 3);
    assert_next(s, 5);
    assert_none(s);
    done(s, 1);
    assert_next(s, 2);
    hy_schedule_free(s);
}

/* Small tasks without end, always three of them waiting, and `big` among them:
 * how many start before it does? The oldest ends when nothing fits any more. */
static unsigned starts_before(struct hy_schedule *s, struct hy_need big, struct hy_need small)
{
    const uint64_t big_id = 1000000;
    uint64_t last = 0, first = 0, running[64];

    for (unsigned placed = 0, ended = 0; placed < 1000; placed++) {
        struct hy_place p;

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
    {1, {{1, 0, GB}}}, {1, {{1, 250, 0}}}, {1, {{1, 300, GB}}}, {1, {{1, 1000, 0}}}, {1, {{2, 0, GB}}},
};
static const struct hy_need bigs[] = {
    {1, {{1, 0, 10 * GB}}}, {1, {{2, 0, 10 * GB}}}, {1, {{1, 4000, 0}}}, {1, {{2, 4000, GB}}},
    {1, {{5, 1000, 0}}},    {1, {{16, 0, 0}}},      {1, {{8, 500, 0}}},  {2, {{2, 2000, 0}, {3, 0, 2 * GB}}},
};

static void test_endless_small_tasks_do_not_starve_a_big_one(void **state)
{
    (void)state;
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

/* The small ones that started later never end, and delay the big one not at all. */
static void test_small_tasks_that_start_later_never_delay_a_big_one(void **state)
{
    (void)state;
    for (size_t b = 0; b < HY_COUNT(bigs); b++) {
        for (size_t m = 0; m < HY_COUNT(smalls); m++) {
            struct hy_schedule *s = new_schedule(0);
            struct hy_place p;
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

static void test_slots_gather_for_a_gang_one_by_one(void **state)
{
    struct hy_schedule *s = new_schedule(0);

    (void)state;
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

static void test_what_comes_free_anywhere_goes_to_the_oldest_first(void **state)
{
    (void)state;
    for (uint64_t first = 1; first <= 3; first++) {
        struct hy_schedule *s = new_schedule(0);
        struct hy_place p;

        for (uint64_t a = 1; a <= 3; a++)
            add(s, a, 2, 1, UNCOUNTED);
        for (uint64_t t = 1; t <= 3; t++)
            submit(s, t, gang(1, 1000, 0));
        for (uint64_t t = 1; t <= 3; t++)
            assert_int_equal(next(s).seats[0].agent, t);
        submit(s, 4, gang(1, 1000, 0));
        submit(s, 5, gang(1, 500, 0));
        submit(s, 6, gang(1, 0, 0));
        assert_next(s, 6); /* so task 4 has its reservation, wherever it is */
        done(s, first);
        p = next(s);
        assert_int_equal(p.task, 4);
        assert_int_equal(p.seats[0].agent, first);
        assert_none(s);
        hy_schedule_free(s);
    }
}

/* Free devices 0 and 2 are enough for a member that waits for 0 and 1 while
 * another waits for 2 and 3. */
static void test_waiting_members_exchange_devices(void **state)
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
        assert_next(s, 5); /* ... so that a second agent is all it takes */
        hy_schedule_free(s);
    }
}

/* A member that wants a whole device and one that wants a half of another. */
static void test_waiting_members_with_shares_keep_their_devices(void **state)
{
    struct hy_need need = {.role_count = 2, .roles = {{1, 1000, 0}, {1, 500, 0}}};
    struct hy_schedule *s = new_schedule(0);
    struct hy_place p;

    (void)state;
    add(s, 1, 8, 2, UNCOUNTED);
    run(s, 1, 2, gang(1, 1000, 0));
    submit(s, 3, need);
    submit(s, 4, gang(1, 0, 0));
    submit(s, 5, gang(1, 500, 0));
    assert_next(s, 4);
    done(s, 2);
    assert_next(s, 5); /* half of it is task 3's, and half is anybody's */
    done(s, 1);
    p = next(s);
    assert_int_equal(p.task, 3);
    assert_int_equal(p.seats[0].gpu_mask | p.seats[1].gpu_mask, 3);
    hy_schedule_free(s);
}

static void test_reservation_waits_where_least_is_missing(void **state)
{
    struct hy_schedule *s = new_schedule(0);

    (void)state;
    add(s, 1, 8, 2, UNCOUNTED);
    add(s, 2, 8, 2, UNCOUNTED);
    run(s, 1, 4, gang(1, 1000, 0));
    done(s, 1); /* a device of agent 1 is free, none of agent 2 */
    submit(s, 5, gang(1, 2000, 0));
    submit(s, 6, gang(1, 1000, 0));
    assert_none(s);
    done(s, 3);
    assert_next(s, 6); /* agent 2 is anybody's */
    done(s, 2);
    assert_next(s, 5);
    hy_schedule_free(s);
}

static void test_reservation_waits_for_the_device_that_lacks_least(void **state)
{
    struct hy_schedule *s = new_schedule(0);

    (void)state;
    add(s, 1, 8, 2, UNCOUNTED);
    submit(s, 1, gang(1, 900, 0));
    submit(s, 2, gang(1, 300, 0));
    assert_int_equal(next(s).seats[0].gpu_mask, 1);
    assert_int_equal(next(s).seats[0].gpu_mask, 2);
    submit(s, 3, gang(1, 1000, 0));
    submit(s, 4, gang(1, 500, 0));
    submit(s, 5, gang(1, 100, 0));
    assert_int_equal(next(s).task, 5); /* on the other device; task 4 has to wait */
    assert_none(s);
    done(s, 2);
    assert_int_equal(next(s).seats[0].gpu_mask, 2);
    hy_schedule_free(s);
}

/*
 * Without agent 1, each role that comes first takes agents 2 and 3 and leaves
 * too little for the other, so the task is called impossible. But the
 * reservation made before knows a way, and keeps it.
 */
static void test_reservation_outlives_an_agent_it_does_not_use(void **state)
{
    struct hy_need need = {.role_count = 2, .roles = {{2, 2000, 0}, {2, 0, 8 * GB}}};
    struct hy_schedule *s = new_schedule(0);

    (void)state;
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

static void test_reservation_moves_when_its_agent_vanishes(void **state)
{
    struct hy_schedule *s = new_schedule(0);

    (void)state;
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

static void test_reservation_takes_a_new_agent(void **state)
{
    struct hy_schedule *s = new_schedule(0);

    (void)state;
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

static void test_reservation_leaves_an_agent_that_closes(void **state)
{
    struct hy_schedule *s = new_schedule(0);
    struct hy_place p;

    (void)state;
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
    assert_int_equal(p.seats[0].agent, 1);
    assert_int_equal(p.seats[1].agent, 1);
    hy_schedule_free(s);
}

static void test_reservation_ends_when_its_task_is_taken_back(void **state)
{
    struct hy_schedule *s = new_schedule(0);

    (void)state;
    add(s, 1, 3, 0, UNCOUNTED);
    run(s, 1, 1, gang(1, 0, 0));
    submit(s, 2, gang(3, 0, 0));
    submit(s, 3, gang(2, 0, 0));
    assert_none(s);
    done(s, 2);
    assert_next(s, 3);
    hy_schedule_free(s);
}

static void test_impossible_task_holds_nobody_up(void **state)
{
    struct hy_need need = gang(4, 0, 0);
    struct hy_schedule *s = new_schedule(0);

    (void)state;
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

static void test_task_that_becomes_possible_takes_the_reservation_of_a_younger_one(void **state)
{
    struct hy_schedule *s = new_schedule(0);

    (void)state;
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

/* ---- the limit of all ---------------------------------------------------------- */

static void test_parallel_limits_the_members_that_run(void **state)
{
    struct hy_need need = gang(3, 0, 0), more = gang(4, 0, 0);
    struct hy_schedule *s = new_schedule(3);

    (void)state;
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

static void test_parallel_is_kept_free_for_a_waiting_gang(void **state)
{
    struct hy_schedule *s = new_schedule(4);

    (void)state;
    add(s, 1, 10, 0, UNCOUNTED);
    submit(s, 1, gang(1, 0, 0));
    submit(s, 2, gang(1, 0, 0));
    submit(s, 3, gang(3, 0, 0));
    submit(s, 4, gang(1, 0, 0));
    submit(s, 5, gang(1, 0, 0));
    assert_next(s, 1);
    assert_next(s, 2);
    assert_none(s); /* a third would leave task 3 too few, once one of the two ends */
    done(s, 1);
    assert_next(s, 3);
    assert_none(s);
    hy_schedule_free(s);
}

/* ---- agents come and go ----------------------------------------------------------- */

static void test_closed_agent_gets_no_new_seats(void **state)
{
    struct hy_schedule *s = new_schedule(0);
    struct hy_need need = gang(2, 0, 0);

    (void)state;
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

static void test_seats_of_a_removed_agent_are_gone_with_it(void **state)
{
    struct hy_schedule *s = new_schedule(0);

    (void)state;
    add(s, 1, 2, 0, GB);
    add(s, 2, 1, 0, GB);
    run(s, 1, 1, gang(3, 0, GB / 2));
    assert_int_equal(hy_schedule_agent_remove(s, 1), 0);
    assert_int_equal(stats_of(s).slots, 1);
    assert_int_equal(stats_of(s).slots_used, 1);
    assert_int_equal(stats_of(s).running, 1);
    add(s, 1, 2, 0, GB); /* the same number, another agent: nothing of it is used */
    submit(s, 2, gang(2, 0, GB / 2));
    assert_next(s, 2);
    done(s, 1); /* frees the seat on agent 2 and none on the new agent 1 */
    assert_int_equal(stats_of(s).slots_used, 2);
    submit(s, 3, gang(1, 0, 0));
    assert_int_equal(next(s).seats[0].agent, 2);
    assert_none(s);
    hy_schedule_free(s);
}

static void test_five_thousand_agents_are_all_found(void **state)
{
    static bool seen[5001];
    struct hy_schedule *s = new_schedule(0);

    (void)state;
    memset(seen, 0, sizeof seen);
    submit(s, 1, gang(1, 0, 0)); /* a class that is there before the agents are */
    for (uint64_t a = 1; a <= 5000; a++)
        add(s, a, 1, a % 5 == 0, UNCOUNTED);
    for (uint64_t t = 2; t <= 4000; t++)
        submit(s, t, gang(1, 0, 0));
    submit(s, 4001, gang(1000, 1000, 0));
    submit(s, 4002, gang(1, 0, 0));
    for (uint64_t t = 1; t <= 4001; t++) {
        struct hy_place p = next(s);

        assert_int_equal(p.task, t);
        for (size_t i = 0; i < p.seat_count; i++) {
            assert_false(seen[p.seats[i].agent]);
            seen[p.seats[i].agent] = true;
        }
    }
    assert_none(s);
    hy_schedule_free(s);
}

static void test_classes_that_come_and_go_are_forgotten(void **state)
{
    struct hy_schedule *s = new_schedule(0);
    unsigned classes = 0, shapes = 0;

    (void)state;
    add(s, 1, 2, 1, 500);
    for (uint64_t t = 1; t <= 300; t++) {
        submit(s, t, gang(1, t % 2 ? 0 : (uint32_t)(t % 999 + 1), t));
        assert_next(s, t);
        done(s, t);
    }
    assert_int_equal(stats_of(s).waiting + stats_of(s).running + stats_of(s).slots_used, 0);
    hy_list_each(it, &s->classes)
        classes++;
    hy_list_each(it, &s->shapes)
        shapes++;
    assert_true(classes <= 32 && shapes <= 32);
    hy_schedule_free(s);
}

/* ---- bad input -------------------------------------------------------------------- */

static void test_needs_that_make_no_sense_are_refused(void **state)
{
    const struct hy_need bad[] = {
        {.role_count = 0},
        {.role_count = HY_ROLES_MAX + 1},
        gang(0, 0, 0),
        gang(1, 1500, 0),
        gang(1, 65000, 0),
        gang(HY_MEMBERS_MAX + 1, 0, 0),
        {.role_count = 2, .roles = {{UINT32_MAX, 0, 0}, {1, 0, 0}}},
        {.role_count = 2, .roles = {{1, 0, 0}, {0, 0, 0}}},
    };
    struct hy_schedule *s = new_schedule(0);

    (void)state;
    add(s, 1, UINT32_MAX, 64, UNCOUNTED);
    for (size_t i = 0; i < HY_COUNT(bad); i++) {
        assert_int_equal(hy_schedule_submit(s, 1, &bad[i]), -EINVAL);
        assert_int_equal(hy_schedule_possible(s, &bad[i]), 0);
    }
    assert_int_equal(stats_of(s).waiting, 0);
    submit(s, 1, gang(HY_MEMBERS_MAX, 0, 0));
    assert_int_equal(next(s).seat_count, HY_MEMBERS_MAX);
    hy_schedule_free(s);
}

static void test_agents_that_make_no_sense_are_refused(void **state)
{
    struct hy_capacity none = {.slots = 0}, fine = {.slots = 1};
    struct hy_capacity many = {.slots = 1, .gpus = HY_AGENT_GPUS_MAX + 1};
    struct hy_schedule *s = new_schedule(0);

    (void)state;
    assert_int_equal(hy_schedule_agent_add(s, 1, &none), -EINVAL);
    assert_int_equal(hy_schedule_agent_add(s, 1, &many), -EINVAL);
    assert_int_equal(hy_schedule_agent_add(s, 1, &fine), 0);
    assert_int_equal(hy_schedule_agent_add(s, 1, &fine), -EEXIST);
    assert_int_equal(stats_of(s).agents, 1);
    hy_schedule_free(s);
}

static void test_numbers_are_unique_and_known(void **state)
{
    struct hy_need need = gang(1, 0, 0);
    struct hy_schedule *s = new_schedule(0);

    (void)state;
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

/* ---- the set of numbers ------------------------------------------------------------ */

static void test_bits_find_their_neighbours(void **state)
{
    enum { SIZE = 70000 };
    static bool model[SIZE];
    struct hy_bits bits = {0};
    struct hy_rng rng;

    (void)state;
    memset(model, 0, sizeof model);
    hy_rng_seed(&rng, 1, 0);
    assert_int_equal(hy_bits_next(&bits, 0), HY_BITS_NONE);
    assert_int_equal(hy_bits_prev(&bits, HY_BITS_NONE), HY_BITS_NONE);
    for (uint32_t size = 1; size <= SIZE; size = size < 100 ? size + 1 : size * 3) {
        assert_int_equal(hy_bits_grow(&bits, size), 0);
        for (int k = 0; k < 200; k++) {
            uint32_t i = (uint32_t)hy_rng_below(&rng, size), from = (uint32_t)hy_rng_below(&rng, size), want;

            model[i] = !model[i];
            (model[i] ? hy_bits_set : hy_bits_clear)(&bits, i);
            assert_int_equal(hy_bits_has(&bits, i), model[i]);
            for (want = from; want < size && !model[want];)
                want++;
            assert_int_equal(hy_bits_next(&bits, from), want < size ? want : HY_BITS_NONE);
            for (want = from; want != HY_BITS_NONE && !model[want];)
                want--; /* from 0 to HY_BITS_NONE */
            assert_int_equal(hy_bits_prev(&bits, from), want);
        }
    }
    hy_bits_done(&bits);
}

/* ---- random histories ---------------------------------------------------------------- */

static void test_any_history_keeps_every_promise(void **state)
{
    struct model m;

    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        model_init(&m, seed);
        for (int step = 0; step < 3000; step++)
            model_step(&m, pool, HY_COUNT(pool), seed % 2 ? 4 : 15);
        model_free(&m);
    }
}

/* With one class there is nothing to wait for but room. */
static void test_one_class_never_leaves_room_unused(void **state)
{
    struct model m;

    (void)state;
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
 * then on runs forever. The oldest task that is possible gets its turn by the
 * time the last of those has ended, however many others pass it.
 */
static void oldest_gets_its_turn(struct model *m)
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

static void test_what_starts_later_never_delays_the_oldest(void **state)
{
    struct model m;

    (void)state;
    for (uint64_t seed = 100; seed < 400; seed++) {
        model_init(&m, seed);
        for (int round = 0; round < 5; round++) {
            for (int step = 0; step < 60; step++)
                model_step(&m, pool, HY_COUNT(pool), 10);
            for (uint64_t a = 0; a < AGENTS; a++)
                if (m.agents[a].there && !m.agents[a].open)
                    model_agent_turn(&m, a);
            while (m.count > TASKS / 2)
                model_done(&m, m.count - 1);
            while (model_next(&m))
                ;
            oldest_gets_its_turn(&m);
        }
        model_free(&m);
    }
}

/* ---- out of memory --------------------------------------------------------------------- */

/* Fails at most once, and then must have changed nothing that can be seen. */
#define TWICE(s, call)                                                                                       \
    ({                                                                                                       \
        struct hy_schedule_stats before_ = stats_of(s);                                                      \
        int rc_ = (call);                                                                                    \
        if (rc_ == -ENOMEM) {                                                                                \
            struct hy_schedule_stats after_ = stats_of(s);                                                   \
            assert_memory_equal(&before_, &after_, sizeof before_);                                          \
            rc_ = (call);                                                                                    \
        }                                                                                                    \
        rc_;                                                                                                 \
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
    struct hy_place p;

    while (TWICE(s, hy_schedule_next(s, &p)) == 1) {
        note(digest, p.task);
        for (size_t i = 0; i < p.seat_count; i++)
            note(digest, p.seats[i].agent * 1000 + p.seats[i].gpu_mask);
        ran[(*ran_count)++] = p.task;
    }
}

/* The same placements as when nothing failed, whatever allocation did. */
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

static void test_out_of_memory_changes_nothing(void **state)
{
    struct trace trace = {0};

    (void)state;
    hy_each_fault(HY_SEAM_ALLOC, history_with_faults, &trace);
}

static int reservation_with_faults(void *arg)
{
    struct hy_capacity has = {.slots = 1};
    struct hy_policy policy = {0};
    struct hy_need one = gang(1, 0, 0), all = gang(65, 0, 0);
    struct hy_schedule *s = hy_schedule_new(&policy);
    struct hy_place p;

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

static void test_out_of_memory_leaves_the_reservation_alone(void **state)
{
    (void)state;
    hy_each_fault(HY_SEAM_ALLOC, reservation_with_faults, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_come_first_served),
        cmocka_unit_test(test_slots_are_never_exceeded),
        cmocka_unit_test(test_memory_is_never_exceeded),
        cmocka_unit_test(test_memory_that_is_not_counted_is_never_short),
        cmocka_unit_test(test_shares_of_a_device_add_up_to_at_most_one),
        cmocka_unit_test(test_shares_fill_a_device_before_they_break_another),
        cmocka_unit_test(test_whole_devices_are_exclusive),
        cmocka_unit_test(test_all_64_devices_of_an_agent_can_be_had),
        cmocka_unit_test(test_tasks_without_gpu_leave_agents_with_gpus_free),
        cmocka_unit_test(test_gang_is_placed_whole_or_not_at_all),
        cmocka_unit_test(test_seats_come_by_role_then_member),
        cmocka_unit_test(test_roles_of_a_waiting_gang_do_not_block_each_other),
        cmocka_unit_test(test_possible_gang_gets_a_plan_even_where_the_free_places_mislead),
        cmocka_unit_test(test_demanding_roles_choose_first),
        cmocka_unit_test(test_gang_is_placed_if_any_order_of_its_roles_fits),
        cmocka_unit_test(test_small_tasks_fill_holes_beside_a_reservation),
        cmocka_unit_test(test_endless_small_tasks_do_not_starve_a_big_one),
        cmocka_unit_test(test_small_tasks_that_start_later_never_delay_a_big_one),
        cmocka_unit_test(test_slots_gather_for_a_gang_one_by_one),
        cmocka_unit_test(test_what_comes_free_anywhere_goes_to_the_oldest_first),
        cmocka_unit_test(test_waiting_members_exchange_devices),
        cmocka_unit_test(test_waiting_members_with_shares_keep_their_devices),
        cmocka_unit_test(test_reservation_waits_where_least_is_missing),
        cmocka_unit_test(test_reservation_waits_for_the_device_that_lacks_least),
        cmocka_unit_test(test_reservation_outlives_an_agent_it_does_not_use),
        cmocka_unit_test(test_reservation_moves_when_its_agent_vanishes),
        cmocka_unit_test(test_reservation_takes_a_new_agent),
        cmocka_unit_test(test_reservation_leaves_an_agent_that_closes),
        cmocka_unit_test(test_reservation_ends_when_its_task_is_taken_back),
        cmocka_unit_test(test_impossible_task_holds_nobody_up),
        cmocka_unit_test(test_task_that_becomes_possible_takes_the_reservation_of_a_younger_one),
        cmocka_unit_test(test_parallel_limits_the_members_that_run),
        cmocka_unit_test(test_parallel_is_kept_free_for_a_waiting_gang),
        cmocka_unit_test(test_closed_agent_gets_no_new_seats),
        cmocka_unit_test(test_seats_of_a_removed_agent_are_gone_with_it),
        cmocka_unit_test(test_five_thousand_agents_are_all_found),
        cmocka_unit_test(test_classes_that_come_and_go_are_forgotten),
        cmocka_unit_test(test_needs_that_make_no_sense_are_refused),
        cmocka_unit_test(test_agents_that_make_no_sense_are_refused),
        cmocka_unit_test(test_numbers_are_unique_and_known),
        cmocka_unit_test(test_bits_find_their_neighbours),
        cmocka_unit_test(test_any_history_keeps_every_promise),
        cmocka_unit_test(test_one_class_never_leaves_room_unused),
        cmocka_unit_test(test_what_starts_later_never_delays_the_oldest),
        cmocka_unit_test(test_out_of_memory_changes_nothing),
        cmocka_unit_test(test_out_of_memory_leaves_the_reservation_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
