/* SPDX-License-Identifier: Apache-2.0 */
/* Points that cover the unit cube: even in every dimension, in pairs of dimensions, and the same on every machine. */
#include "search_bench.h"

#include "base/mem.h"
#include "base/rng.h"
#include "search/spread.h"

#define DIMS_MAX 200

typedef void (*spread_fn)(uint64_t seed, uint64_t n, uint64_t i, size_t dims, double *ret);

static void sobol(uint64_t seed, uint64_t n, uint64_t i, size_t dims, double *ret)
{
    (void)n;
    hy_sobol_point(seed, i, dims, ret);
}

static void latin(uint64_t seed, uint64_t n, uint64_t i, size_t dims, double *ret)
{
    hy_latin_point(seed, (uint32_t)n, i, dims, ret);
}

static void uniform(uint64_t seed, uint64_t n, uint64_t i, size_t dims, double *ret)
{
    struct hy_rng rng;

    (void)n;
    hy_rng_seed(&rng, seed, i);
    for (size_t d = 0; d < dims; d++)
        ret[d] = hy_rng_double(&rng);
}

/* Asserts that each n-th part of each dimension has one of the n points from `first` on. */
static void assert_one_in_each_part(spread_fn spread, uint64_t seed, uint64_t first, uint64_t n, size_t dims)
{
    unsigned char *seen = hy_calloc(n * dims, 1);
    double x[DIMS_MAX];

    assert_non_null(seen);
    for (uint64_t i = first; i < first + n; i++) {
        spread(seed, n, i, dims, x);
        for (size_t d = 0; d < dims; d++) {
            unsigned char *part = &seen[d * n + (size_t)(x[d] * (double)n)];

            assert_true(x[d] > 0 && x[d] < 1);
            if ((*part)++)
                fail_msg("dimension %zu: two of %u points in a part", d, (unsigned)n);
        }
    }
    free(seen);
}

HY_TEST(test_sobol_is_even_in_each_dimension)
{
    for (uint64_t n = 1; n <= 256; n *= 4)
        for (uint64_t block = 0; block < 3; block++)
            assert_one_in_each_part(sobol, 7 + n, block * n, n, DIMS_MAX);
    assert_one_in_each_part(sobol, 7, (1ULL << 32) + 64, 64, DIMS_MAX);
}

HY_TEST(test_latin_hypercube_has_a_point_in_each_part)
{
    static const uint32_t sizes[] = {1, 2, 3, 7, 10, 64, 1000};

    for (size_t k = 0; k < HY_COUNT(sizes); k++)
        for (uint64_t cube = 0; cube < 3; cube++)
            assert_one_in_each_part(latin, k, cube * sizes[k], sizes[k], 20);
}

HY_TEST(test_huge_latin_hypercubes_stay_in_the_cube)
{
    for (uint64_t i = 0; i < 2000; i++) {
        double x[2];

        hy_latin_point(3, UINT32_MAX, i % 2 ? UINT64_MAX - i : i, 2, x);
        for (int d = 0; d < 2; d++)
            assert_true(x[d] > 0 && x[d] < 1);
    }
}

/* Elementary intervals of a (0, 4, 2)-net: the first two dimensions have one of 16 points in each of 16 boxes. */
HY_TEST(test_sobol_is_a_net_in_its_first_two_dimensions)
{
    for (uint64_t seed = 0; seed < 20; seed++)
        for (unsigned rows = 1; rows <= 16; rows *= 2) {
            unsigned seen = 0;

            for (uint64_t i = 0; i < 16; i++) {
                double x[2];

                hy_sobol_point(seed, i, 2, x);
                seen |= 1u << ((unsigned)(x[0] * rows) * (16 / rows) + (unsigned)(x[1] * (16 / rows)));
            }
            assert_int_equal(seen, 0xffff);
        }
}

/* The centered L2 discrepancy (Hickernell, 1998), squared: how far shares of points are from shares of volume. */
static double discrepancy(spread_fn spread, uint64_t seed, uint64_t n, size_t dims)
{
    double *x = hy_calloc(n * dims, sizeof *x), sum = pow(13.0 / 12, (double)dims);

    assert_non_null(x);
    for (uint64_t i = 0; i < n; i++)
        spread(seed, n, i, dims, &x[i * dims]);
    for (uint64_t i = 0; i < n; i++) {
        double single = 1;

        for (size_t d = 0; d < dims; d++) {
            double a = fabs(x[i * dims + d] - 0.5);

            single *= 1 + a / 2 - a * a / 2;
        }
        sum -= 2.0 / (double)n * single;
        for (uint64_t j = 0; j < n; j++) {
            double pair = 1;

            for (size_t d = 0; d < dims; d++) {
                double a = x[i * dims + d], b = x[j * dims + d];

                pair *= 1 + fabs(a - 0.5) / 2 + fabs(b - 0.5) / 2 - fabs(a - b) / 2;
            }
            sum += pair / (double)(n * n);
        }
    }
    free(x);
    return sum;
}

HY_TEST(test_points_are_more_even_than_random_ones)
{
    static const struct {
        uint64_t n;
        size_t dims;
        double latin, sobol; /* at most this share of the discrepancy of random points */
    } cases[] = {{32, 2, 0.15, 0.06}, {100, 5, 0.35, 0.15}, {256, 10, 0.65, 0.3}};

    for (size_t k = 0; k < HY_COUNT(cases); k++) {
        double sum[3] = {0};

        for (uint64_t seed = 0; seed < 10; seed++) {
            sum[0] += discrepancy(uniform, seed, cases[k].n, cases[k].dims);
            sum[1] += discrepancy(latin, seed, cases[k].n, cases[k].dims);
            sum[2] += discrepancy(sobol, seed, cases[k].n, cases[k].dims);
        }
        if (sum[1] > sum[0] * cases[k].latin || sum[2] > sum[0] * cases[k].sobol)
            fail_msg("%u points: latin %g, sobol %g of random", (unsigned)cases[k].n, sum[1] / sum[0], sum[2] / sum[0]);
    }
}

/* Over the seeds, every coordinate of every point is uniform, and two of them are independent. */
static void assert_uniform_over_seeds(spread_fn spread, uint64_t n, size_t dim_a, size_t dim_b)
{
    enum { SEEDS = 2000, PARTS = 4 };
    int cells[PARTS][PARTS] = {{0}};

    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        double x[DIMS_MAX];

        spread(seed, n, seed % n, dim_b + 1, x);
        cells[(int)(x[dim_a] * PARTS)][(int)(x[dim_b] * PARTS)]++;
    }
    for (int a = 0; a < PARTS; a++)
        for (int b = 0; b < PARTS; b++)
            assert_in_range(cells[a][b], 70, 185); /* 125, and 5 standard deviations to either side */
}

HY_TEST(test_points_are_uniform_over_the_seeds)
{
    assert_uniform_over_seeds(sobol, 5, 0, 1);
    assert_uniform_over_seeds(sobol, 5, 3, 67);
    assert_uniform_over_seeds(latin, 5, 0, 1);
    assert_uniform_over_seeds(latin, 2, 3, 67);
}

/* Without a random order, the second block would be on a few diagonals of the first. */
HY_TEST(test_blocks_of_sobol_dimensions_are_independent)
{
    for (size_t d = 0; d < 4; d++) {
        double sum = 0;

        for (uint64_t i = 0; i < 1024; i++) {
            double x[HY_SOBOL_DIMS + 4];

            hy_sobol_point(1, i, HY_COUNT(x), x);
            sum += (x[d] - 0.5) * (x[HY_SOBOL_DIMS + d] - 0.5) * 12 / 1024;
        }
        assert_true(fabs(sum) < 0.15);
    }
}

HY_TEST(test_points_do_not_depend_on_the_number_of_dimensions)
{
    for (uint64_t i = 0; i < 20; i++) {
        double few[3], many[DIMS_MAX];

        hy_sobol_point(5, i, 3, few);
        hy_sobol_point(5, i, DIMS_MAX, many);
        assert_memory_equal(few, many, sizeof few);
        hy_latin_point(5, 20, i, 3, few);
        hy_latin_point(5, 20, i, DIMS_MAX, many);
        assert_memory_equal(few, many, sizeof few);
    }
}

HY_TEST(test_other_seeds_give_other_points)
{
    double a[2], b[2];

    hy_sobol_point(1, 0, 2, a);
    hy_sobol_point(2, 0, 2, b);
    assert_true(a[0] != b[0] && a[1] != b[1] && a[0] != a[1]);
    hy_latin_point(1, 9, 0, 2, a);
    hy_latin_point(2, 9, 0, 2, b);
    assert_true(a[0] != b[0] && a[1] != b[1] && a[0] != a[1]);
}

HY_TEST(test_points_are_the_same_on_every_machine)
{
    static const double want[2][3] = {{0x1.1c846b4de7a41p-1, 0x1.6baef1c835b43p-1, 0x1.4807fd0328853p-1},
                                      {0x1.131b12fd44b87p-2, 0x1.ecfd4556cb30bp-1, 0x1.165680cfcb28bp-3}};
    double x[DIMS_MAX];

    hy_sobol_point(42, 1000003, DIMS_MAX, x);
    for (int k = 0; k < 3; k++)
        if (x[k * 63] != want[0][k])
            fail_msg("sobol, dimension %d: %a", k * 63, x[k * 63]);
    hy_latin_point(42, 1000, 17, DIMS_MAX, x);
    for (int k = 0; k < 3; k++)
        if (x[k * 63] != want[1][k])
            fail_msg("latin, dimension %d: %a", k * 63, x[k * 63]);
}
