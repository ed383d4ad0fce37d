/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which search suits a space and a number of trials. The rules follow from the tables of docs/search.md: where a
 * Gaussian process can be afforded it needs the fewest trials; categories and conditions are modeled best by TPE; with
 * many trials for each dimension, evolution of numbers is ahead of both.
 */
#include <inttypes.h>
#include <stdio.h>

#include "search/search.h"

#define FEW_TRIALS 100         /* a Gaussian process: its cost grows with the cube of their number */
#define FEW_DIMS 20
#define MANY_PER_DIM 20        /* trials for each dimension from which evolution is ahead of TPE */

static size_t count_categories(const struct hy_space *space)
{
    size_t n = 0;

    for (size_t i = 0; i < space->count; i++)
        n += space->dims[i].kind == HY_DIM_CATEGORY;
    return n;
}

static enum hy_search_kind kind_for(const struct hy_space *space, size_t categories, uint64_t trials)
{
    if (trials && trials <= FEW_TRIALS && space->count <= FEW_DIMS)
        return HY_SEARCH_GP;
    if (categories * 2 > space->count || (trials && trials < MANY_PER_DIM * space->count))
        return HY_SEARCH_TPE;
    return HY_SEARCH_EVOLVE;
}

struct hy_search_choice hy_search_choose(const struct hy_space *space, uint64_t trials, uint32_t parallel)
{
    size_t categories = count_categories(space);
    struct hy_search_choice c = {.kind = kind_for(space, categories, trials), .asynchronous = parallel != 1};
    char budget[40] = "an unlimited number of";

    if (trials)
        snprintf(budget, sizeof budget, "%" PRIu64, trials);
    snprintf(c.why, sizeof c.why, "chose the algorithm %s for %zu hyperparameters (%zu without order) and %s trials",
             hy_search_kind_name(c.kind), space->count, categories, budget);
    return c;
}
