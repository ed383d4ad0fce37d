/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The categories of CMA-ES: every categorical dimension has a distribution of its own over
 * its choices, which follows those of the better half of each generation; private to this part.
 *
 * Categories have no order and no distance, so they have no place in a normal
 * distribution. A choice never gets less than a small share (the margin), so that none is lost by
 * chance (R. Hamano et al., "CatCMA", 2024).
 */
#ifndef HY_SEARCH_CMA_CHOICES_H
#define HY_SEARCH_CMA_CHOICES_H

#include <stddef.h>
#include <stdint.h>

#include "search/search.h"

struct hy_cma_choices {
    const struct hy_space *space;
    size_t dims, total; /* categorical dimensions; their choices */
    size_t *first;      /* of every dimension of the space: its first share */
    double *shares;     /* of each dimension, they add up to 1 */
    double *sums, *weights; /* of the generation that is being added: by choice, by dimension */
};

int hy_cma_choices_init(struct hy_cma_choices *c, const struct hy_space *space); /* 0, -ENOMEM */
void hy_cma_choices_done(struct hy_cma_choices *c);
void hy_cma_choices_start(struct hy_cma_choices *c); /* all equally likely */

/* The middle of a choice's part of [0, 1]; `dim` is a category, and u in [0, 1) uniform. */
double hy_cma_choices_at(const struct hy_cma_choices *c, size_t dim, double u);

/* Adds a point (units of the whole space) of the better half; an absent choice is NAN. */
void hy_cma_choices_add(struct hy_cma_choices *c, double weight, const double *units);
void hy_cma_choices_update(struct hy_cma_choices *c);

#endif
