/* SPDX-License-Identifier: Apache-2.0 */
/* Stoppers in a word, for test_stop.c and test_rungs.c. */
#ifndef HY_TESTS_STOP_BENCH_H
#define HY_TESTS_STOP_BENCH_H

#include "support.h"

#include <errno.h>
#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "search/stop.h"

#define GO HY_DECISION_CONTINUE
#define STOP HY_DECISION_STOP
#define PAUSE HY_DECISION_PAUSE

static inline struct hy_stopper *stopper_of(struct hy_stop_settings settings)
{
    struct hy_stopper *s = NULL;
    struct hy_err err = {0};

    if (hy_stopper_new(&settings, &s, &err) < 0)
        fail_msg("%s", hy_sentence_of(&err));
    return s;
}

#define STOPPER(...) stopper_of((struct hy_stop_settings){__VA_ARGS__})

static inline void add_trials(struct hy_stopper *s, uint64_t first, uint64_t last)
{
    for (uint64_t i = first; i <= last; i++)
        assert_int_equal(hy_stopper_add(s, i), 0);
}

#endif
