/* SPDX-License-Identifier: Apache-2.0 */
/* Short helpers for test_schedule.c, test_gangs.c and schedule_model.h. */
#ifndef HY_TESTS_SCHEDULE_WORDS_H
#define HY_TESTS_SCHEDULE_WORDS_H

#include "support.h"

#include <stdbool.h>

#include "base/mem.h"
#include "schedule/schedule.h"

#define GB UINT64_C(1000000000)
#define UNCOUNTED UINT64_MAX

static inline struct hy_need gang(uint32_t count, uint32_t gpu_share, uint64_t memory)
{
    return (struct hy_need){.role_count = 1, .roles = {{count, gpu_share, memory, false}}};
}

static inline struct hy_schedule *new_schedule(uint32_t parallel)
{
    struct hy_policy policy = {.parallel = parallel};
    struct hy_schedule *s = hy_schedule_new(&policy);

    assert_non_null(s);
    return s;
}

static inline void add(struct hy_schedule *s, uint64_t agent, uint32_t slots, uint32_t gpus, uint64_t memory)
{
    struct hy_capacity has = {.slots = slots, .gpus = gpus, .memory = memory};

    assert_int_equal(hy_schedule_agent_add(s, agent, &has), 0);
}

static inline void submit(struct hy_schedule *s, uint64_t task, struct hy_need need)
{
    assert_int_equal(hy_schedule_submit(s, task, &need), 0);
}

static inline void done(struct hy_schedule *s, uint64_t task)
{
    assert_int_equal(hy_schedule_done(s, task), 0);
}

/* The next placement; its task is 0 when nothing fits. */
static inline struct hy_placement next(struct hy_schedule *s)
{
    struct hy_placement p = {0};
    int rc = hy_schedule_next(s, &p);

    assert_true(rc == 0 || (rc == 1 && p.task != 0));
    return p;
}

#define assert_next(s, id) assert_int_equal(next(s).task, id)
#define assert_none(s) assert_int_equal(next(s).task, 0)

/* Submits the tasks first .. last, all of which are placed at once. */
static inline void run(struct hy_schedule *s, uint64_t first, uint64_t last, struct hy_need need)
{
    for (uint64_t t = first; t <= last; t++)
        submit(s, t, need);
    for (uint64_t t = first; t <= last; t++)
        assert_next(s, t);
}

static inline struct hy_schedule_stats stats_of(const struct hy_schedule *s)
{
    struct hy_schedule_stats stats;

    hy_schedule_stats(s, &stats);
    return stats;
}

#endif
