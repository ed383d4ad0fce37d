/* SPDX-License-Identifier: Apache-2.0 */
#include "search/expression.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "search/expression_terms.h"

/* The value of a term. */
struct result {
    double number;      /* of a comparison: 0 or 1 */
    bool is_undecided;  /* it depends on an inactive dimension */
};

int hy_expression_new(const struct hy_space *space, const char *text, struct hy_expression **ret, struct hy_err *err)
{
    hy_cleanup_free struct hy_term *terms = hy_calloc(HY_EXPRESSION_TERMS_MAX, sizeof *terms);
    struct hy_expression *e;
    int count = terms ? hy_expression_parse(space, text, terms, err) : hy_err_oom(err), rc;

    if (count < 0)
        return count;
    e = hy_malloc(sizeof *e + (size_t)count * sizeof *terms);
    if (!e)
        return hy_err_oom(err);
    e->count = (size_t)count;
    memcpy(e->terms, terms, e->count * sizeof *terms);
    e->text = hy_strdup(text);
    rc = e->text ? hy_expression_check(space, e, err) : hy_err_oom(err);
    if (rc < 0)
        hy_expression_free(e);
    else
        *ret = e;
    return rc;
}

void hy_expression_free(struct hy_expression *e)
{
    if (!e)
        return;
    free(e->text);
    free(e);
}

const char *hy_expression_text(const struct hy_expression *e)
{
    return e->text;
}

bool hy_expression_uses(const struct hy_expression *e, size_t dim)
{
    for (size_t i = 0; i < e->count; i++)
        if (e->terms[i].kind == HY_TERM_DIM && e->terms[i].dim == dim)
            return true;
    return false;
}

/* ---- evaluation --------------------------------------------------------- */

struct evaluation {
    const struct hy_expression *e;
    const struct hy_space *space;
    const struct hy_value *values;
    struct result *results; /* of the terms before this one */
};

static struct result value_of(const struct evaluation *v, size_t dim)
{
    const struct hy_dim *d = &v->space->dims[dim];
    double number = v->values[dim].number;

    if (isnan(number))
        return (struct result){.is_undecided = true};
    if (d->kind != HY_DIM_CATEGORY)
        return (struct result){.number = number};
    if (!(number >= 0 && number < (double)d->choice_count)) /* a value of another space */
        return (struct result){.is_undecided = true};
    return (struct result){.number = hy_choice_number(d, (size_t)number)};
}

/* One of the two terms is a category, the other one, too, or a text. */
static bool is_same_choice(const struct evaluation *v, const struct hy_term *a, const struct hy_term *b)
{
    const struct hy_dim *dim;
    const char *text;

    if (a->kind != HY_TERM_DIM)
        return is_same_choice(v, b, a);
    dim = &v->space->dims[a->dim];
    if (b->kind != HY_TERM_DIM)
        return hy_choice_is(dim, (size_t)v->values[a->dim].number, v->e->text + b->at, b->len);
    text = v->space->dims[b->dim].choices[(size_t)v->values[b->dim].number];
    return hy_choice_is(dim, (size_t)v->values[a->dim].number, text, strlen(text)) ||
           hy_choice_number(dim, (size_t)v->values[a->dim].number) ==
               hy_choice_number(&v->space->dims[b->dim], (size_t)v->values[b->dim].number);
}

/* Exact for integers below 2^53. */
static double remainder_of(double a, double b)
{
    return a - floor(a / b) * b;
}

static double of_numbers(enum hy_term_kind kind, double a, double b)
{
    switch (kind) {
    case HY_TERM_NEGATIVE:
        return -a;
    case HY_TERM_ADD:
        return a + b;
    case HY_TERM_SUBTRACT:
        return a - b;
    case HY_TERM_MULTIPLY:
        return a * b;
    case HY_TERM_DIVIDE:
        return a / b;
    case HY_TERM_REMAINDER:
        return remainder_of(a, b);
    case HY_TERM_LESS:
        return a < b;
    case HY_TERM_NOT_GREATER:
        return a <= b;
    case HY_TERM_GREATER:
        return a > b;
    case HY_TERM_NOT_LESS:
        return a >= b;
    case HY_TERM_EQUAL:
        return a == b;
    default:
        return a != b; /* UNEQUAL */
    }
}

/* and, or, not: `decisive` is the truth with which one operand decides the result. */
static struct result of_truths(enum hy_term_kind kind, struct result a, struct result b)
{
    bool decisive = kind == HY_TERM_OR, a_decides = !a.is_undecided && (a.number != 0) == decisive,
         b_decides = !b.is_undecided && (b.number != 0) == decisive;

    if (kind == HY_TERM_NOT)
        return (struct result){.number = a.number == 0, .is_undecided = a.is_undecided};
    if (a_decides || b_decides)
        return (struct result){.number = decisive};
    return (struct result){.number = !decisive, .is_undecided = a.is_undecided || b.is_undecided};
}

static struct result of_operator(const struct evaluation *v, const struct hy_term *n)
{
    struct result a = v->results[n->left], b = v->results[n->right];
    struct result r = {.is_undecided = a.is_undecided || b.is_undecided};

    if (n->kind >= HY_TERM_NOT)
        return of_truths(n->kind, a, b);
    if (n->kind < HY_TERM_SAME_CHOICE)
        r.number = of_numbers(n->kind, a.number, b.number);
    else if (!r.is_undecided)
        r.number = is_same_choice(v, &v->e->terms[n->left], &v->e->terms[n->right]) == (n->kind == HY_TERM_SAME_CHOICE);
    return r;
}

enum hy_truth hy_expression_test(const struct hy_expression *e, const struct hy_space *space,
                                 const struct hy_value *values)
{
    struct result results[HY_EXPRESSION_TERMS_MAX], *last = &results[e->count - 1];
    struct evaluation v = {e, space, values, results};

    for (size_t i = 0; i < e->count; i++) {
        const struct hy_term *n = &e->terms[i];

        if (n->kind == HY_TERM_DIM)
            results[i] = value_of(&v, n->dim);
        else if (n->kind < HY_TERM_DIM)
            results[i] = (struct result){.number = n->number};
        else
            results[i] = of_operator(&v, n);
    }
    if (last->is_undecided)
        return HY_UNDECIDED;
    return last->number != 0 ? HY_TRUE : HY_FALSE;
}
