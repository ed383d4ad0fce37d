/* SPDX-License-Identifier: Apache-2.0 */
/* Spaces and searches in a word, for test_space.c, test_search.c and test_evolve.c. */
#ifndef HY_TESTS_SEARCH_BENCH_H
#define HY_TESTS_SEARCH_BENCH_H

#include "support.h"

#include <math.h>

#include "search/search.h"

static inline struct hy_space space_of(const char *const *lines, bool grid)
{
    struct hy_space space = {0};
    struct hy_err err = {0};

    for (; *lines; lines++) {
        int rc = grid ? hy_space_add_grid(&space, *lines, &err) : hy_space_add(&space, *lines, &err);

        if (rc < 0)
            fail_msg("%s: %s", *lines, err.text);
    }
    return space;
}

#define SPACE(...) space_of((const char *const[]){__VA_ARGS__, NULL}, false)
#define GRID(...) space_of((const char *const[]){__VA_ARGS__, NULL}, true)

static inline struct hy_search_settings settings_of(enum hy_search_kind kind, uint64_t seed)
{
    return (struct hy_search_settings){.kind = kind, .seed = seed, .mutation = NAN, .crossover = NAN};
}

/* Takes the space. */
static inline struct hy_search *search_take(struct hy_space *space, struct hy_search_settings settings)
{
    struct hy_search *s = NULL;
    struct hy_err err = {0};

    if (hy_search_new(space, &settings, &s, &err) < 0)
        fail_msg("%s", err.text);
    hy_space_done(space);
    return s;
}

static inline uint64_t ask(struct hy_search *s, struct hy_value *values)
{
    uint64_t number = 0;

    assert_int_equal(hy_search_ask(s, &number, values), 1);
    return number;
}

#endif
