/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trials that have arrived at a rung, the best first; private to this part.
 *
 * An order-statistic tree: all operations take O(log n). Entries stay for good, since later arrivals are ranked among
 * all earlier ones. An entry waits until it is settled or withdrawn.
 */
#ifndef HY_SEARCH_RANKING_H
#define HY_SEARCH_RANKING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hy_ranked {
    double cost;    /* not NaN */
    uint64_t trial; /* of equal costs, the lower number is better; unique in a ranking */
};

struct hy_ranking {
    struct hy_ranking_node *nodes; /* private */
    uint32_t root;                 /* private; 0: empty */
    uint32_t count;                /* read-only: all that were added */
};

/* All zero is an empty ranking. */
void hy_ranking_done(struct hy_ranking *r);

/* It waits. 0 or -ENOMEM. */
int hy_ranking_add(struct hy_ranking *r, struct hy_ranked e);

/* The entry is there. How many are better, without withdrawn ones. */
uint32_t hy_ranking_rank(const struct hy_ranking *r, struct hy_ranked e);

/* The entry is there and waits. From now on it does not. */
void hy_ranking_settle(struct hy_ranking *r, struct hy_ranked e);
/* The same, and it does not count in the rank of others. */
void hy_ranking_withdraw(struct hy_ranking *r, struct hy_ranked e);

/* The best and the worst one that wait, and their rank; false: none waits. */
bool hy_ranking_best_waiting(const struct hy_ranking *r, struct hy_ranked *ret, uint32_t *ret_rank);
bool hy_ranking_worst_waiting(const struct hy_ranking *r, struct hy_ranked *ret, uint32_t *ret_rank);

#endif
