/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which search suits a space and a number of trials. The rules follow from the tables of docs/search.md: with many
 * trials for each dimension, CMA-ES is ahead of the others on real numbers, except where there are one or two; TPE
 * needs fewer trials, and models categories and conditions.
 */
#include <inttypes.h>
#include <stdio.h>

#include "search/search.h"

#define MANY_PER_DIM 20 /* trials for each dimension */
#define DIMS_MIN 3      /* for CMA-ES */

static size_t count_unordered(const struct hy_space *space)
{
    size_t n = 0;

    for (size_t i = 0; i < space->count; i++)
        n += space->dims[i].kind == HY_DIM_CATEGORY || space->dims[i].condition;
    return n;
}

struct hy_search_choice hy_search_choose(const struct hy_space *space, uint64_t trials, uint32_t parallel)
{
    size_t unordered = count_unordered(space);
    bool many = trials == 0 || trials >= MANY_PER_DIM * (uint64_t)space->count;
    bool adapts = many && unordered == 0 && space->count >= DIMS_MIN;
    struct hy_search_choice c = {.kind = adapts ? HY_SEARCH_CMA : HY_SEARCH_TPE,
                                 .asynchronous = adapts && parallel != 1};
    char budget[40] = "an unlimited number of";

    if (trials)
        snprintf(budget, sizeof budget, "%" PRIu64, trials);
    snprintf(c.why, sizeof c.why,
             "chose the algorithm %s for %zu hyperparameter%s (%zu categorical or conditional) and %s trials",
             hy_search_kind_name(c.kind), space->count, space->count == 1 ? "" : "s", unordered, budget);
    return c;
}
