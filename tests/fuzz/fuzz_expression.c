/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expressions over a space of every kind of dimension. The first line is one more dimension, whose name may be used;
 * the rest is an expression. One that is accepted must be decided in the same way as its double negation and as itself
 * with itself, and, where all dimensions have a value, at all.
 */
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "search/expression.h"

#define DIMS 7

#define promise(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            abort();                                                                                                   \
    } while (0)

static const char *const lines[DIMS - 1] = {"opt=sgd,adam, rmsprop", "lr=0.0..1.0",           "n=-9..9",
                                            "batch=32,64,1e2",       "flag=[true, \"1\", 1]", "learning-rate=0.0..1.0"};

/* The number of dimensions. */
static size_t make_space(struct hy_space *space, const char *more)
{
    for (size_t i = 0; i < DIMS - 1; i++)
        promise(hy_space_add(space, lines[i], NULL) == 0);
    (void)hy_space_add(space, more, NULL);
    return space->count;
}

/* Four points: the first and the last values, with values that are absent, and with some that are not in the space. */
static void make_point(const struct hy_space *space, int n, struct hy_value *ret)
{
    for (size_t i = 0; i < space->count; i++) {
        const struct hy_dim *dim = &space->dims[i];
        double last = dim->kind == HY_DIM_CATEGORY ? (double)dim->choice_count - 1 : dim->high;

        ret[i].number = n == 0 ? (dim->kind == HY_DIM_CATEGORY ? 0 : dim->low) : last;
        if (n >= 2 && i % 2 == (size_t)n % 2)
            ret[i].number = i % 3 ? NAN : 1e9;
    }
}

/* The same expression in another form; NULL: it became too long. */
static struct hy_expression *another(const struct hy_space *space, const char *format, const char *text)
{
    hy_cleanup_free char *longer = hy_asprintf(format, text, text);
    struct hy_expression *e = NULL;
    struct hy_err err = {0};
    int rc = hy_expression_new(space, longer, &e, &err);

    promise(rc == 0 || (rc == -EINVAL && (strstr(err.text, "longer than") || strstr(err.text, "too many") ||
                                          strstr(err.text, "too deeply"))));
    return e;
}

static void compare(const struct hy_space *space, const struct hy_expression *e, const char *format, bool is_negated)
{
    struct hy_expression *other = another(space, format, hy_expression_text(e));

    for (int n = 0; n < 4 && other; n++) {
        struct hy_value values[DIMS];
        enum hy_truth is, was;

        make_point(space, n, values);
        was = hy_expression_test(e, space, values);
        is = hy_expression_test(other, space, values);
        promise(n > 1 || was != HY_UNDECIDED);
        if (was != HY_UNDECIDED && is_negated)
            was = was == HY_TRUE ? HY_FALSE : HY_TRUE;
        promise(is == was);
    }
    hy_expression_free(other);
}

/* As a constraint of the space, and of its copy, it forbids the points where it is false. */
static void constrain(struct hy_space *space, const struct hy_expression *e)
{
    struct hy_space copy = {0};

    promise(hy_space_add_constraint(space, hy_expression_text(e), NULL) == 0);
    promise(hy_space_copy(&copy, space, NULL) == 0 && copy.count == space->count);
    for (int n = 0; n < 4; n++) {
        struct hy_value values[DIMS];
        bool allows;

        make_point(space, n, values);
        allows = hy_expression_test(e, space, values) != HY_FALSE;
        promise(hy_space_allows(space, values) == allows && hy_space_allows(&copy, values) == allows);
    }
    hy_space_done(&copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hy_cleanup_free char *input = hy_strndup((const char *)data, size ? strnlen((const char *)data, size) : 0);
    char *text = input, *more = strsep(&text, "\n");
    struct hy_expression *e = NULL;
    struct hy_space space = {0};
    struct hy_err err = {0};
    size_t count = make_space(&space, more);
    int rc = hy_expression_new(&space, text ? text : "", &e, &err);

    promise(count <= DIMS);
    if (rc < 0) {
        promise(rc == -EINVAL || rc == -ENOENT || rc == -EDOM);
        promise(err.code == rc && err.text[0] && !strchr(err.text, '\n'));
        promise(hy_space_add_constraint(&space, text ? text : "", &err) == -EINVAL);
    } else {
        constrain(&space, e);
        compare(&space, e, "not (%s)", true);
        compare(&space, e, "not not (%s)", false);
        compare(&space, e, "(%s) and (%s)", false);
        compare(&space, e, "(%s) or (%s)", false);
    }
    hy_expression_free(e);
    hy_space_done(&space);
    return 0;
}
