/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search: which parameters to try next.
 *
 * Ask and tell, nothing else: no clock, no I/O, no threads. The driver asks
 * for a trial, runs it, and tells its value. The same space, settings and seed
 * give the same trials; the asynchronous evolution gives the same trials for
 * the same order of asks and tells, so a run is resumed by replaying them.
 *
 * A search is not thread-safe; one loop owns it.
 */
#ifndef HY_SEARCH_H
#define HY_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "search/importance.h"
#include "search/stop.h"
#include "search/trial_columns.h"

/* ---- the space -------------------------------------------------------- */

enum hy_dim_kind { HY_DIM_FLOAT, HY_DIM_INT, HY_DIM_CATEGORY };

struct hy_expression; /* private */
struct hy_value;      /* below */

struct hy_dim {
    char *name;
    enum hy_dim_kind kind;
    bool log;               /* FLOAT and INT: uniform in the logarithm */
    bool normal;            /* FLOAT and INT: normally distributed instead; with `log` its logarithm is */
    double low, high;       /* FLOAT and INT: low <= high, both included; a normal one may have infinite bounds */
    double step;            /* FLOAT and INT: the values are low, low + step, …, high; 0: all, of INT all integers */
    double mean, deviation; /* normal: of the number, with `log` of its natural logarithm */
    char **choices;         /* CATEGORY: the texts as the user wrote them */
    char **json;            /* CATEGORY: the same choices as JSON; NULL: they are plain texts */
    size_t choice_count;
    char *condition;              /* the dimension is active where this is true; NULL: always */
    struct hy_expression *active; /* private: the condition, parsed */
};

struct hy_space {
    struct hy_dim *dims; /* in the user's order */
    size_t count;
    struct hy_expression **constraints; /* private */
    size_t constraint_count;
};

void hy_space_done(struct hy_space *s); /* all zero is an empty space */

/*
 * Adds one dimension as people write it on the command line:
 *
 *     lr=log:1e-5..1e-1              float, log-scaled (bounds in either order)
 *     layers=1..4                    two integers make an integer dimension
 *     units=log:16..1024             integer, log-scaled
 *     x=-5.12..5.12                  float
 *     dropout=0..0.5 step 0.1        float: 0, 0.1, …, 0.5
 *     units=16..256 step 16          integer, since all three are
 *     x=normal(0, 1)                 float with this mean and standard deviation
 *     lr=lognormal(-7, 1)            float whose natural logarithm has them
 *     x=normal(0, 1) in -2..2        truncated; one of the bounds may be left out
 *     n=normal(10, 3) in 1..20 step 1    integer: steps need both bounds
 *     act=relu,tanh                  category
 *     act=["relu", null]             category: a JSON array of any values
 *     momentum=0.5..0.99 if optimizer == sgd
 *
 * A comma makes a list, so "../a,../b" is a category and not a range. What begins with '['
 * and ends with ']' is JSON.
 *
 * The values of a step are those that the decimal numbers give: 0.3, not
 * 0.30000000000000004. `high` becomes the last of them. Log scales have no steps.
 *
 * After the values may follow " if " and a condition, an expression (expression.h) over
 * dimensions that were added before. Where it is not true, the dimension is inactive: it
 * has no value (NAN). A comparison with an inactive dimension is neither true nor false,
 * so a dimension whose condition depends on it is inactive, too.
 *
 * Where the values are a range of numbers, a distribution or a JSON array, " if " always
 * begins a condition. A list contains any text, so in a list it does only if everything
 * after it, to the end, is an expression with a comparison of an earlier dimension (or of
 * a name that is so similar to one that it must be a mistake, which is an error);
 * otherwise it is part of the last value. A list whose end becomes a condition by a
 * dimension that is added later is an error.
 *
 * A pure parser over a NUL-terminated string. 0, -ENOMEM, or -EINVAL with a
 * sentence (empty name, empty list, bounds that are not finite numbers, log of a
 * bound that is not positive, a duplicate name, invalid JSON and where, an invalid
 * condition and where).
 */
int hy_space_add(struct hy_space *s, const char *text, struct hy_err *err);
/* The same for a grid: every value is a choice ("lr=0.001,0.0005", "lr=[0.1]"). A range of
 * integers ("layers=1..4") stays an integer dimension, every value of which the
 * grid visits in ascending order, and so does a range with steps; any other range is an error. */
int hy_space_add_grid(struct hy_space *s, const char *text, struct hy_err *err);
/* Adds a dimension made by a program (bounds in either order; `condition` may be set). Takes a copy. */
int hy_space_add_dim(struct hy_space *s, const struct hy_dim *dim, struct hy_err *err);

/*
 * Adds a constraint, an expression such as "batch * seq <= 65536" over the dimensions that
 * the space has now: points for which it is false are not proposed. Where it depends on an
 * inactive dimension it is neither true nor false, and allows the point. 0, -ENOMEM, or
 * -EINVAL with a sentence.
 */
int hy_space_add_constraint(struct hy_space *s, const char *text, struct hy_err *err);
/* Whether no constraint is false. */
bool hy_space_allows(const struct hy_space *s, const struct hy_value *values);

/* Adds the dimensions and constraints of `from` to the empty space `to`. 0, -ENOMEM. */
int hy_space_copy(struct hy_space *to, const struct hy_space *from, struct hy_err *err);

/* ---- values ------------------------------------------------------------ */

struct hy_value {
    double number; /* FLOAT, INT: the value; CATEGORY: the choice's index; NAN: the dimension is inactive */
};

/*
 * "0.001", "3", "relu", "[64,64]": as it is written into the command; a JSON string
 * without its quotes. Fills `out` and returns it; for a category returns the choice
 * itself, which is valid as long as `dim` and never truncated. 32 bytes hold any
 * number. "" for an inactive one.
 */
const char *hy_value_text(const struct hy_dim *dim, struct hy_value v, char *out, size_t size);

/*
 * The value as JSON where the user wrote JSON: [64,64], "1", null; without
 * whitespace, numbers as written. NULL where the value is a number or a plain text, or
 * the dimension is inactive. Valid as long as `dim`.
 */
const char *hy_value_json(const struct hy_dim *dim, struct hy_value v);

/* ---- the search -------------------------------------------------------- */

enum hy_search_kind {
    HY_SEARCH_GRID,
    HY_SEARCH_RANDOM,
    HY_SEARCH_EVOLVE,
    HY_SEARCH_PAIRED,
    HY_SEARCH_TPE, /* tree-structured Parzen estimator */
    HY_SEARCH_CMA, /* CMA-ES: covariance matrix adaptation */
};
/* "grid", "random", "evolve", "paired", "tpe", "cma"; NULL: an unknown kind, of a newer hopyard. */
const char *hy_search_kind_name(enum hy_search_kind kind);

enum hy_de_strategy { HY_DE_DEFAULT, HY_DE_BEST1BIN, HY_DE_RAND1BIN };

struct hy_search_settings {
    enum hy_search_kind kind;
    bool maximize;
    uint64_t seed;
    uint64_t samples;           /* RANDOM, EVOLVE, TPE, CMA: how many trials; 0: unlimited */
    uint32_t population;        /* EVOLVE, CMA: 0 takes the default; EVOLVE: 4 + 5/4 per dimension */
    uint32_t generations;       /* EVOLVE: 0: unlimited */
    double mutation, crossover; /* EVOLVE: NAN takes the strategy's default (docs/search.md) */
    enum hy_de_strategy strategy;
    bool asynchronous; /* EVOLVE, CMA: does not wait for a whole generation */
};

struct hy_search_choice {
    enum hy_search_kind kind;
    bool asynchronous;
    char why[200]; /* a sentence for users */
};
/*
 * Chooses for a space, a number of trials (0: unlimited) and how many run at a time (0: unknown, several). Whether
 * some parameters are categories or conditional, and how many trials each dimension has, decides (docs/search.md).
 */
struct hy_search_choice hy_search_choose(const struct hy_space *space, uint64_t trials, uint32_t parallel);

struct hy_search; /* opaque */

/*
 * Takes a copy of the space. -EINVAL with a sentence, or -ENOMEM. A space whose constraints
 * no point satisfies is invalid, which grids and paired lists find out for certain, other
 * kinds by trying 10,000 random points. Grids and paired lists with conditions or
 * constraints must not have more than 1,000,000 points; they leave out points that violate
 * a constraint, and those that differ from an earlier one only in inactive dimensions.
 */
int hy_search_new(const struct hy_space *space, const struct hy_search_settings *settings, struct hy_search **ret,
                  struct hy_err *err);
void hy_search_free(struct hy_search *s); /* NULL is fine */

/* EVOLVE: how many trials a generation has: trial n is of generation (n - 1) / population. 0 for other kinds. */
uint32_t hy_search_population(const struct hy_search_settings *settings, size_t dims);

/* How many trials there will be (EVOLVE: population * generations, or samples if they are fewer),
 * UINT64_MAX when unlimited. */
uint64_t hy_search_total(const struct hy_search *s);

/*
 * Asks for the next trial. Fills values[space.count] (NAN: inactive) and *ret_number
 * (trials are numbered from 1). Returns 1; 0 when there is none now (a synchronous
 * generation waits for results: tell first); -ENODATA when the search is over;
 * -ENOMEM, after which the same ask may be tried again.
 */
int hy_search_ask(struct hy_search *s, uint64_t *ret_number, struct hy_value *values);

/*
 * Instead of an ask, in a search that is made anew for a run: the next trial of the run had these values. With the
 * tells in the order of the run, the search is then in the same state. 0; -EUCLEAN: this search would have chosen
 * other values (grids, and others that choose without learning, compare); -ENODATA, -ENOMEM.
 */
int hy_search_restore(struct hy_search *s, const struct hy_value *values);
/* Whether hy_search_restore takes any values: it need not ask again, which takes longer. */
bool hy_search_takes_values(const struct hy_search *s);

/*
 * Tells the result of a trial. A NaN or infinite value, or a trial that failed,
 * counts as the worst possible. -ENOENT when the trial was never asked for or was
 * told already. Grid and random searches forget trials once told.
 */
int hy_search_tell(struct hy_search *s, uint64_t number, double value);

const struct hy_space *hy_search_space(const struct hy_search *s);

#endif
