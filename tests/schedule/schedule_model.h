/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reference model of the schedule, for test_histories.c, that recounts
 * everything at each step. It is written from the specification alone. It makes
 * the same calls to two schedules and checks that
 *
 *     - capacities hold: slots, memory, devices, shares; a task that runs alone is alone
 *     - gangs are placed whole, on open agents, in the order of roles
 *     - tasks of a class are placed first come, first served
 *     - the oldest possible task that fits is next
 *     - the same history gives the same placements
 */
#ifndef HY_TESTS_SCHEDULE_MODEL_H
#define HY_TESTS_SCHEDULE_MODEL_H

#include "schedule_words.h"

#include "base/rng.h"

#define AGENTS 7u
#define TASKS 64u
#define MEMBERS_MAX 8u

struct model_agent {
    struct hy_capacity has;
    bool there, open;
    unsigned birth; /* distinguishes it from earlier agents with its ID */
};

struct model_task {
    uint64_t id;
    const struct hy_need *need;
    bool running;
    size_t count;
    struct hy_assignment assignments[MEMBERS_MAX];
    unsigned births[MEMBERS_MAX];
};

struct model {
    struct hy_schedule *s, *twin; /* the twin gets the same calls */
    struct hy_rng rng;
    uint32_t parallel;
    struct model_agent agents[AGENTS]; /* agent i has the ID i */
    struct model_task tasks[TASKS];    /* by age */
    size_t count;
    uint64_t last_id;
};

struct usage {
    uint64_t slots, memory;
    uint32_t share[HY_AGENT_GPUS_MAX];
};

static const struct hy_need pool[] = {
    {1, {{1, 0, 0, false}}},
    {1, {{1, 0, 2, false}}},
    {1, {{1, 0, 7, false}}},
    {1, {{1, 300, 0, false}}},
    {1, {{1, 500, 3, false}}},
    {1, {{1, 1000, 0, false}}},
    {1, {{1, 3000, 1, false}}},
    {1, {{3, 0, 0, false}}},
    {1, {{8, 0, 1, false}}},
    {1, {{3, 2000, 0, false}}},
    {1, {{4, 400, 2, false}}},
    {2, {{1, 0, 4, false}, {2, 1000, 0, false}}},
    {3, {{2, 0, 0, false}, {1, 600, 1, false}, {2, 400, 3, false}}},
    {2, {{1, 2000, 5, false}, {4, 0, 1, false}}},
    {1, {{1, 0, 0, true}}},
    {1, {{2, 500, 2, true}}},
    {2, {{2, 0, 1, false}, {1, 0, 0, true}}},
};

static uint32_t members_of(const struct hy_need *need)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < need->role_count; r++)
        n += need->roles[r].count;
    return n;
}

static uint32_t running_members(const struct model *m)
{
    uint32_t n = 0;

    for (size_t i = 0; i < m->count; i++)
        n += m->tasks[i].running ? members_of(m->tasks[i].need) : 0;
    return n;
}

/* What the running tasks use of an agent, from their assignments. */
static struct usage usage_of(const struct model *m, uint64_t agent)
{
    struct usage u = {0};

    for (size_t i = 0; i < m->count; i++) {
        const struct model_task *t = &m->tasks[i];

        for (size_t k = 0; t->running && k < t->count; k++) {
            const struct hy_assignment *assignment = &t->assignments[k];

            if (assignment->agent != agent || t->births[k] != m->agents[agent].birth)
                continue;
            u.slots += t->need->roles[assignment->role].alone ? m->agents[agent].has.slots : 1;
            u.memory += t->need->roles[assignment->role].memory;
            for (uint32_t d = 0; d < HY_AGENT_GPUS_MAX; d++)
                u.share[d] += assignment->gpu_mask >> d & 1 ? assignment->gpu_share : 0;
        }
    }
    return u;
}

/* Adds a member wherever it fits: devices in order, as any order does. */
static bool squeeze_in(const struct hy_capacity *has, const struct hy_role_need *need, struct usage *u)
{
    uint32_t each = need->gpu_share < 1000 ? need->gpu_share : 1000, left = need->gpu_share;
    uint32_t slots = need->alone ? has->slots : 1;

    if (u->slots + slots > has->slots || (has->memory != UNCOUNTED && u->memory + need->memory > has->memory))
        return false;
    for (uint32_t d = 0; d < has->gpus && left; d++) {
        if (u->share[d] + each <= 1000) {
            u->share[d] += each;
            left -= each;
        }
    }
    u->slots += slots;
    u->memory += need->memory;
    return left == 0;
}

/* How many members of a single role the open agents could take, now or idle. */
static uint32_t room_for(const struct model *m, const struct hy_role_need *need, bool idle)
{
    uint32_t n = 0;

    for (uint64_t a = 0; a < AGENTS; a++) {
        struct usage u = {0};

        if (!m->agents[a].there || !m->agents[a].open)
            continue;
        if (!idle)
            u = usage_of(m, a);
        while (n < 100 && squeeze_in(&m->agents[a].has, need, &u))
            n++;
    }
    return n;
}

static bool is_certainly_impossible(const struct model *m, const struct hy_need *need)
{
    if (m->parallel && members_of(need) > m->parallel)
        return true;
    for (uint32_t r = 0; r < need->role_count; r++)
        if (room_for(m, &need->roles[r], true) < need->roles[r].count)
            return true;
    return false;
}

static struct model_task *oldest_waiting(struct model *m)
{
    for (size_t i = 0; i < m->count; i++)
        if (!m->tasks[i].running && !is_certainly_impossible(m, m->tasks[i].need))
            return &m->tasks[i];
    return NULL;
}

/* The task that must be next, if the model can determine it. */
static uint64_t must_be_next(struct model *m)
{
    const struct model_task *t = oldest_waiting(m);

    if (!t || t->need->role_count > 1 || room_for(m, &t->need->roles[0], false) < t->need->roles[0].count)
        return 0;
    if (m->parallel && running_members(m) + members_of(t->need) > m->parallel)
        return 0;
    return t->id;
}

static struct model_task *task_by_id(struct model *m, uint64_t id)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->tasks[i].id == id)
            return &m->tasks[i];
    fail_msg("the schedule returned an unknown task");
    return NULL;
}

static void check_assignments(const struct model *m, const struct hy_need *need, const struct hy_placement *p)
{
    size_t i = 0;

    assert_int_equal(p->count, members_of(need));
    for (uint32_t r = 0; r < need->role_count; r++) {
        uint32_t share = need->roles[r].gpu_share;
        int devices = share < 1000 ? share > 0 : (int)(share / 1000);

        for (uint32_t k = 0; k < need->roles[r].count; k++, i++) {
            const struct hy_assignment *assignment = &p->assignments[i];

            assert_int_equal(assignment->role, r);
            assert_int_equal(assignment->member, k);
            assert_true(assignment->agent < AGENTS);
            assert_true(m->agents[assignment->agent].there && m->agents[assignment->agent].open);
            assert_int_equal(__builtin_popcountll(assignment->gpu_mask), devices);
            assert_true(assignment->gpu_mask >> m->agents[assignment->agent].has.gpus == 0);
            assert_int_equal(assignment->gpu_share, share < 1000 ? share : 1000);
        }
    }
}

static void check_equal(const struct hy_placement *a, const struct hy_placement *b)
{
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        assert_int_equal(a->assignments[i].agent, b->assignments[i].agent);
        assert_int_equal(a->assignments[i].gpu_mask, b->assignments[i].gpu_mask);
    }
}

static void check_everything(const struct model *m)
{
    struct hy_schedule_stats want = {0}, got = stats_of(m->s);

    for (uint64_t a = 0; a < AGENTS; a++) {
        const struct hy_capacity *has = &m->agents[a].has;
        struct usage u = usage_of(m, a);

        if (!m->agents[a].there)
            continue;
        want.agents++;
        want.slots += has->slots;
        want.slots_used += u.slots;
        assert_true(u.slots <= has->slots);
        assert_true(has->memory == UNCOUNTED || u.memory <= has->memory);
        for (uint32_t d = 0; d < HY_AGENT_GPUS_MAX; d++)
            assert_true(u.share[d] <= (d < has->gpus ? 1000 : 0));
    }
    for (size_t i = 0; i < m->count; i++)
        *(m->tasks[i].running ? &want.running : &want.waiting) += 1;
    assert_memory_equal(&want, &got, sizeof want);
    assert_true(!m->parallel || running_members(m) <= m->parallel);
}

/* Takes the next placement and checks it. */
static uint64_t model_next(struct model *m)
{
    uint64_t must = must_be_next(m);
    struct hy_placement p = next(m->s), twin = next(m->twin);
    struct model_task *t;

    assert_int_equal(p.task, twin.task);
    if (must)
        assert_int_equal(p.task, must);
    if (!p.task)
        return 0;
    check_equal(&p, &twin);
    t = task_by_id(m, p.task);
    assert_false(t->running);
    for (struct model_task *older = m->tasks; older < t; older++)
        assert_true(older->running || older->need != t->need);
    check_assignments(m, t->need, &p);
    t->running = true;
    t->count = p.count;
    memcpy(t->assignments, p.assignments, p.count * sizeof p.assignments[0]);
    for (size_t i = 0; i < p.count; i++)
        t->births[i] = m->agents[p.assignments[i].agent].birth;
    check_everything(m);
    return p.task;
}

static void model_submit(struct model *m, const struct hy_need *need)
{
    struct model_task *t;

    if (m->count == TASKS)
        return;
    t = &m->tasks[m->count++];
    *t = (struct model_task){.id = ++m->last_id, .need = need};
    submit(m->s, t->id, *need);
    submit(m->twin, t->id, *need);
}

static void model_done(struct model *m, size_t i)
{
    done(m->s, m->tasks[i].id);
    done(m->twin, m->tasks[i].id);
    memmove(&m->tasks[i], &m->tasks[i + 1], (m->count - i - 1) * sizeof m->tasks[0]);
    m->count--;
}

static void model_agent_add(struct model *m, uint64_t a)
{
    struct hy_capacity has = {.slots = 1 + (uint32_t)hy_rng_below(&m->rng, 6),
                              .gpus = (uint32_t)hy_rng_below(&m->rng, 8),
                              .memory = 1 + hy_rng_below(&m->rng, 16)};

    has.gpus = has.gpus > 4 ? 0 : has.gpus;
    if (has.memory == 1)
        has.memory = UNCOUNTED;
    m->agents[a] = (struct model_agent){has, true, true, m->agents[a].birth + 1};
    add(m->s, a, has.slots, has.gpus, has.memory);
    add(m->twin, a, has.slots, has.gpus, has.memory);
}

static void model_agent_remove(struct model *m, uint64_t a)
{
    assert_int_equal(hy_schedule_agent_remove(m->s, a), 0);
    assert_int_equal(hy_schedule_agent_remove(m->twin, a), 0);
    m->agents[a].there = false;
    m->agents[a].birth++;
}

static void model_agent_toggle(struct model *m, uint64_t a)
{
    m->agents[a].open = !m->agents[a].open;
    assert_int_equal(hy_schedule_agent_open(m->s, a, m->agents[a].open), 0);
    assert_int_equal(hy_schedule_agent_open(m->twin, a, m->agents[a].open), 0);
}

/* One random event; `churn` percent of them concern agents. */
static void model_step(struct model *m, const struct hy_need *needs, size_t need_count, unsigned churn)
{
    uint64_t a = hy_rng_below(&m->rng, AGENTS);

    if (hy_rng_below(&m->rng, 100) < churn) {
        if (!m->agents[a].there)
            model_agent_add(m, a);
        else if (hy_rng_below(&m->rng, 3) == 0)
            model_agent_remove(m, a);
        else
            model_agent_toggle(m, a);
    } else if (hy_rng_below(&m->rng, 100) < 50) {
        model_submit(m, &needs[hy_rng_below(&m->rng, need_count)]);
    } else if (m->count) {
        model_done(m, hy_rng_below(&m->rng, m->count));
    }
    check_everything(m);
    if (hy_rng_below(&m->rng, 3))
        while (model_next(m))
            ;
}

static void model_init(struct model *m, uint64_t seed)
{
    *m = (struct model){.parallel = seed % 3 == 2 ? 7 : 0};
    hy_rng_seed(&m->rng, seed, 0);
    m->s = new_schedule(m->parallel);
    m->twin = new_schedule(m->parallel);
}

static void model_free(struct model *m)
{
    hy_schedule_free(m->s);
    hy_schedule_free(m->twin);
}

#endif
