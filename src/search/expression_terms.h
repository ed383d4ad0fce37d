/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How an expression is represented; private to expression*.c. Terms are in the order of
 * evaluation: operands precede their operators, so that one loop without recursion checks
 * them, and another one evaluates them.
 */
#ifndef HY_SEARCH_EXPRESSION_TERMS_H
#define HY_SEARCH_EXPRESSION_TERMS_H

#include "search/expression.h"

enum hy_term_kind {
    HY_TERM_NUMBER,
    HY_TERM_TEXT, /* in quotes */
    HY_TERM_WORD, /* a text without quotes */
    HY_TERM_DIM,
    HY_TERM_NEGATIVE, /* the unary minus */
    HY_TERM_ADD,
    HY_TERM_SUBTRACT,
    HY_TERM_MULTIPLY,
    HY_TERM_DIVIDE,
    HY_TERM_REMAINDER,
    HY_TERM_LESS, /* this and all below are comparisons, or consist of them */
    HY_TERM_NOT_GREATER,
    HY_TERM_GREATER,
    HY_TERM_NOT_LESS,
    HY_TERM_EQUAL,
    HY_TERM_UNEQUAL,
    HY_TERM_SAME_CHOICE, /* EQUAL and UNEQUAL of texts */
    HY_TERM_OTHER_CHOICE,
    HY_TERM_NOT,
    HY_TERM_AND,
    HY_TERM_OR,
};

struct hy_term {
    enum hy_term_kind kind;
    uint32_t left, right; /* the operands' places; of a unary operator: left */
    uint32_t at, len;     /* NUMBER, TEXT, WORD, DIM: in the text */
    double number;        /* NUMBER */
    size_t dim;           /* DIM */
};

struct hy_expression {
    char *text;
    size_t count; /* the last term is the result */
    struct hy_term terms[];
};

static inline bool hy_term_is_truth(const struct hy_term *n)
{
    return n->kind >= HY_TERM_LESS;
}

/* Reads the text into terms[HY_EXPRESSION_TERMS_MAX]. The number of terms, or -EINVAL with a sentence. */
int hy_expression_parse(const struct hy_space *space, const char *text, struct hy_term *terms, struct hy_err *err);
/* Whether the terms can be evaluated in the space; chooses between EQUAL and SAME_CHOICE. 0, -ENOENT, -EDOM. */
int hy_expression_check(const struct hy_space *space, struct hy_expression *e, struct hy_err *err);

/* The n-th choice of a category as a number; NAN if it is not a finite one. */
double hy_choice_number(const struct hy_dim *dim, size_t n);
/* Whether the n-th choice is this text, but for blanks around it. */
bool hy_choice_is(const struct hy_dim *dim, size_t n, const char *text, size_t len);

#endif
