/* SPDX-License-Identifier: Apache-2.0 */
/* The types of an expression: names, and which operands may be compared with each other. */
#include "search/expression_terms.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/guess.h"
#include "base/mem.h"
#include "base/text.h"
#include "search/shown.h"

#define CHOICES_SHOWN 300  /* bytes of a list of choices in a message */
#define NAME_LEN_GUESSED 3

struct check {
    const struct hy_space *space;
    struct hy_expression *e;
    struct hy_err *err;
};

/* ---- choices ------------------------------------------------------------ */

/* Without the blanks around it. */
static const char *trimmed(const char *text, size_t *ret_len)
{
    size_t n;

    text += strspn(text, " \t");
    n = strlen(text);
    while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\t'))
        n--;
    *ret_len = n;
    return text;
}

double hy_choice_number(const struct hy_dim *dim, size_t n)
{
    char room[64];
    double number;
    size_t len;
    const char *text = trimmed(dim->choices[n], &len);

    if (len >= sizeof room)
        return NAN;
    memcpy(room, text, len);
    room[len] = '\0';
    return hy_parse_double(room, &number) == 0 && isfinite(number) ? number : NAN;
}

bool hy_choice_is(const struct hy_dim *dim, size_t n, const char *text, size_t len)
{
    size_t choice_len = strlen(dim->choices[n]);
    const char *choice = dim->choices[n];

    if (choice_len != len)
        choice = trimmed(choice, &choice_len);
    return choice_len == len && memcmp(choice, text, len) == 0;
}

/* "relu, tanh, ..." */
static void list_choices(const struct hy_dim *dim, struct hy_buf *b)
{
    for (size_t i = 0; i < dim->choice_count; i++) {
        if (b->len > CHOICES_SHOWN) {
            hy_buf_append_str(b, ", ...");
            return;
        }
        hy_buf_printf(b, "%s%s", i ? ", " : "", hy_show(dim->choices[i]).text);
    }
}

static int not_a_choice(struct check *c, const struct hy_term *n, const struct hy_dim *dim)
{
    hy_cleanup_buf struct hy_buf list;
    char number[32];
    struct hy_shown shown = n->kind == HY_TERM_NUMBER ? hy_show(hy_format_double(n->number, number, sizeof number))
                                                      : hy_show_n(c->e->text + n->at, n->len);

    hy_buf_init(&list, CHOICES_SHOWN + 2 * HY_SHOWN_MAX);
    list_choices(dim, &list);
    return hy_err_set(c->err, -EDOM, "'%s' is not a choice of '%s' (choices: %s)", shown.text, hy_show(dim->name).text,
                      hy_buf_cstr(&list) ? hy_buf_cstr(&list) : "");
}

/* ---- names -------------------------------------------------------------- */

static bool uses_any(const struct hy_expression *e)
{
    for (size_t i = 0; i < e->count; i++)
        if (e->terms[i].kind == HY_TERM_DIM)
            return true;
    return false;
}

/* The name that it must be a mistake for; NULL: there is none. Names of one or two letters are all similar. */
static const char *similar_name(const struct hy_space *space, const char *name)
{
    struct hy_guess guess;

    hy_guess_init(&guess, name);
    for (size_t i = 0; i < space->count; i++)
        if (strlen(name) >= NAME_LEN_GUESSED || strlen(space->dims[i].name) >= NAME_LEN_GUESSED)
            hy_guess_offer(&guess, space->dims[i].name);
    return guess.best;
}

static int unknown_name(struct check *c, const struct hy_term *n)
{
    struct hy_shown name = hy_show_n(c->e->text + n->at, n->len);
    const char *similar = similar_name(c->space, name.text);

    if (similar)
        return hy_err_set(c->err, -EDOM, "'%s' is not a dimension that is declared before; did you mean '%s'?",
                          name.text, similar);
    return hy_err_set(c->err, uses_any(c->e) ? -EDOM : -ENOENT,
                      "'%s' is not a dimension that is declared before (text that is not one word needs quotes)",
                      name.text);
}

/* ---- types -------------------------------------------------------------- */

static const struct hy_dim *dim_of(const struct check *c, const struct hy_term *n)
{
    return &c->space->dims[n->dim];
}

static bool is_category(const struct check *c, const struct hy_term *n)
{
    return n->kind == HY_TERM_DIM && dim_of(c, n)->kind == HY_DIM_CATEGORY;
}

static bool is_text(const struct hy_term *n)
{
    return n->kind == HY_TERM_TEXT || n->kind == HY_TERM_WORD;
}

static int check_number(struct check *c, const struct hy_term *n)
{
    if (n->kind == HY_TERM_WORD)
        return unknown_name(c, n);
    if (n->kind == HY_TERM_TEXT)
        return hy_err_set(c->err, uses_any(c->e) ? -EDOM : -ENOENT, "the text '%s' is used as a number",
                          hy_show_n(c->e->text + n->at, n->len).text);
    for (size_t i = 0; is_category(c, n) && i < dim_of(c, n)->choice_count; i++)
        if (isnan(hy_choice_number(dim_of(c, n), i)))
            return hy_err_set(c->err, -EDOM, "'%s' is used as a number, but its choice '%s' is not one",
                              hy_show(dim_of(c, n)->name).text, hy_show(dim_of(c, n)->choices[i]).text);
    return 0;
}

static int check_choice(struct check *c, const struct hy_term *category, const struct hy_term *constant)
{
    const struct hy_dim *dim = dim_of(c, category);

    for (size_t i = 0; i < dim->choice_count; i++)
        if (is_text(constant) ? hy_choice_is(dim, i, c->e->text + constant->at, constant->len)
                              : hy_choice_number(dim, i) == constant->number)
            return 0;
    return not_a_choice(c, constant, dim);
}

/* == and != with a category, which are of texts unless its number is needed. 0 or -EDOM; 1: both sides are numbers. */
static int check_equality(struct check *c, struct hy_term *n)
{
    const struct hy_term *a = &c->e->terms[n->left], *b = &c->e->terms[n->right];

    if (!is_category(c, a)) {
        a = &c->e->terms[n->right];
        b = &c->e->terms[n->left];
    }
    if (!is_category(c, a))
        return 1;
    if (is_text(b) || is_category(c, b))
        n->kind = n->kind == HY_TERM_EQUAL ? HY_TERM_SAME_CHOICE : HY_TERM_OTHER_CHOICE;
    if (is_text(b) || b->kind == HY_TERM_NUMBER)
        return check_choice(c, a, b);
    return is_category(c, b) ? 0 : 1;
}

static int check_term(struct check *c, struct hy_term *n)
{
    int rc = 1;

    if (n->kind < HY_TERM_NEGATIVE || n->kind > HY_TERM_UNEQUAL)
        return 0;
    if (n->kind >= HY_TERM_EQUAL)
        rc = check_equality(c, n);
    if (rc != 1)
        return rc;
    rc = check_number(c, &c->e->terms[n->left]);
    return rc == 0 ? check_number(c, &c->e->terms[n->right]) : rc;
}

int hy_expression_check(const struct hy_space *space, struct hy_expression *e, struct hy_err *err)
{
    struct check c = {space, e, err};
    int rc = 0;

    for (size_t i = 0; i < e->count && rc == 0; i++)
        rc = check_term(&c, &e->terms[i]);
    if (rc == 0 && !uses_any(e))
        rc = hy_err_set(err, -ENOENT, "'%s' depends on no dimension", hy_show(e->text).text);
    return rc;
}
