/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The normal distribution from which CMA-ES draws, and how it learns from a ranked
 * generation: mean, step size and covariance (N. Hansen, "The CMA evolution strategy: a
 * tutorial", arXiv:1604.00772, with the negative weights of its 2023 version); private to this part.
 *
 * The covariance C is factorized as L L' (Cholesky) instead of by eigenvectors: a tenth of
 * the time, and L z is distributed as C^(1/2) z. The step size's path is whitened by
 * L^-1; its length, which is all that counts, was as good a guide in every
 * measurement (O. Krause, D. Arbones, C. Igel, "CMA-ES with optimal covariance update and
 * storage complexity", 2016).
 *
 * Nothing here allocates after init, and every operation has one order: the same points
 * give the same distribution on every machine.
 */
#ifndef HY_SEARCH_CMA_NORMAL_H
#define HY_SEARCH_CMA_NORMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hy_cma_rates {
    double step_path, damping; /* of the step size */
    double path, one, mu;      /* of the covariance: its path, rank one, rank mu */
};

struct hy_cma_normal {
    size_t count;  /* dimensions; may be 0 */
    uint32_t size; /* points of a generation, at least 2 */
    double *mean;
    double sigma;
    double *covariance, *factor; /* count * count; of the factor, the lower triangle */
    double *path, *step_path;
    uint64_t generation; /* since the last start */
    /* private, from `size` */
    struct hy_cma_rates rates;
    double effective, positive, negative; /* see weight() */
    /* private, of the generation that is being added */
    double *sum, *step, *y, *white;
    double weights, squares, total;
    bool is_growing;
};

int hy_cma_normal_init(struct hy_cma_normal *d, size_t count); /* 0, -ENOMEM */
void hy_cma_normal_done(struct hy_cma_normal *d);
/* Forgets all: generations of `size` points from now on, around a mean, with one standard deviation. */
void hy_cma_normal_start(struct hy_cma_normal *d, uint32_t size, const double *mean, double sigma);

/*
 * Of a rank in a generation, from 0: the positive ones belong to the better half and add up
 * to 1, the others are negative.
 */
double hy_cma_normal_weight(const struct hy_cma_normal *d, uint32_t rank);

/* The point at z, which is standard normal. */
void hy_cma_normal_at(const struct hy_cma_normal *d, const double *z, double *ret);
double hy_cma_normal_deviation(const struct hy_cma_normal *d, size_t dim); /* of one coordinate */

/*
 * Adds the next point of a generation, the best first, until there are `size`. A failed one
 * counts as bad, wherever it is ranked. */
void hy_cma_normal_add(struct hy_cma_normal *d, uint32_t rank, bool failed, const double *x);
/* Learns from the points added. False: the covariance has degenerated; start again. */
bool hy_cma_normal_update(struct hy_cma_normal *d);

#endif
