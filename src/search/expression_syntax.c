/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The syntax of expressions, by recursive descent. Only parentheses recurse, up to a
 * limit; chains of operators are loops.
 */
#include "search/expression_terms.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "search/shown.h"

#define NUMBER_MAX 64 /* bytes */
#define BLANKS " \t\r\n"

struct parser {
    const struct hy_space *space;
    const char *text, *at;
    struct hy_term *terms;
    uint32_t count;
    int nesting;
    const char *fault; /* what is wrong at `at`, as a clause */
};

static int parse_or(struct parser *p);

static int fail(struct parser *p, const char *at, const char *fault)
{
    p->at = at;
    p->fault = fault;
    return -EINVAL;
}

/* ---- tokens ------------------------------------------------------------- */

static bool begins_word(char c)
{
    return isalpha((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

static bool is_of_word(char c)
{
    return begins_word(c) || isdigit((unsigned char)c) || c == '.';
}

static const char *skip(struct parser *p)
{
    p->at += strspn(p->at, BLANKS);
    return p->at;
}

static bool is_word(const char *at, const char *word)
{
    size_t n = strlen(word);

    return strncmp(at, word, n) == 0 && !is_of_word(at[n]);
}

static bool take_word(struct parser *p, const char *word)
{
    if (!is_word(skip(p), word))
        return false;
    p->at += strlen(word);
    return true;
}

static bool take(struct parser *p, const char *sign)
{
    size_t n = strlen(sign);

    if (strncmp(skip(p), sign, n) != 0)
        return false;
    p->at += n;
    return true;
}

static bool is_reserved(const char *at)
{
    return is_word(at, "and") || is_word(at, "or") || is_word(at, "not") || is_word(at, "in");
}

/* ---- terms -------------------------------------------------------------- */

/* Returns its place. */
static int add_term(struct parser *p, struct hy_term term)
{
    if (p->count == HY_EXPRESSION_TERMS_MAX)
        return fail(p, p->at, "there are too many operands");
    p->terms[p->count] = term;
    return (int)p->count++;
}

static int add_operand(struct parser *p, struct hy_term term, size_t len)
{
    int place;

    term.at = (uint32_t)(p->at - p->text);
    term.len = (uint32_t)len;
    place = add_term(p, term);
    p->at += place < 0 ? 0 : len;
    return place;
}

/* `at`: of the operator, for messages. */
static int add_operator(struct parser *p, enum hy_term_kind kind, const char *at, int left, int right)
{
    struct hy_term term = {.kind = kind, .left = (uint32_t)left, .right = (uint32_t)right};
    bool of_truths = kind >= HY_TERM_NOT;

    if (hy_term_is_truth(&p->terms[left]) != of_truths || hy_term_is_truth(&p->terms[right]) != of_truths)
        return fail(p, at,
                    of_truths ? "'and', 'or' and 'not' need comparisons"
                              : "comparisons cannot be chained or computed with; use 'and'");
    return add_term(p, term);
}

/* ---- operands ----------------------------------------------------------- */

static size_t number_len(const char *s)
{
    size_t n = strspn(s, "0123456789"), e;

    n += s[n] == '.';
    n += strspn(s + n, "0123456789");
    if (s[n] != 'e' && s[n] != 'E')
        return n;
    e = n + 1;
    e += s[e] == '+' || s[e] == '-';
    return isdigit((unsigned char)s[e]) ? e + strspn(s + e, "0123456789") : n;
}

static int parse_number(struct parser *p)
{
    size_t n = number_len(p->at);
    struct hy_term term = {.kind = HY_TERM_NUMBER};
    char text[NUMBER_MAX];

    if (n >= sizeof text)
        return fail(p, p->at, "a number is too long");
    memcpy(text, p->at, n);
    text[n] = '\0';
    if (is_of_word(p->at[n]) || hy_parse_double(text, &term.number) < 0)
        return fail(p, p->at, "a number is invalid or too large (texts need quotes)");
    return add_operand(p, term, n);
}

static int parse_text(struct parser *p)
{
    const char *end = strchr(p->at + 1, *p->at);
    struct hy_term term = {.kind = HY_TERM_TEXT};
    int place;

    if (!end)
        return fail(p, p->at, "a text is not terminated");
    p->at++;
    place = add_operand(p, term, (size_t)(end - p->at));
    p->at += place >= 0; /* the quote */
    return place;
}

static int parse_word(struct parser *p)
{
    struct hy_term term = {.kind = HY_TERM_WORD};
    size_t len = 0;

    for (size_t i = 0; i < p->space->count; i++) {
        const char *name = p->space->dims[i].name;
        size_t n = strlen(name);

        if (n > len && strncmp(p->at, name, n) == 0 && !is_of_word(p->at[n])) {
            term = (struct hy_term){.kind = HY_TERM_DIM, .dim = i};
            len = n;
        }
    }
    while (term.kind == HY_TERM_WORD && is_of_word(p->at[len]))
        len++;
    return add_operand(p, term, len);
}

static int parse_parentheses(struct parser *p)
{
    int place;

    if (p->nesting == HY_EXPRESSION_NESTING_MAX)
        return fail(p, p->at, "parentheses are nested too deeply");
    p->at++;
    p->nesting++;
    place = parse_or(p);
    p->nesting--;
    if (place >= 0 && !take(p, ")"))
        return fail(p, p->at, "a ')' or an operator is missing");
    return place;
}

static int parse_operand(struct parser *p)
{
    char c = *skip(p);

    if (c == '(')
        return parse_parentheses(p);
    if (c == '"' || c == '\'')
        return parse_text(p);
    if (isdigit((unsigned char)c) || (c == '.' && isdigit((unsigned char)p->at[1])))
        return parse_number(p);
    if (begins_word(c) && !is_reserved(p->at))
        return parse_word(p);
    return fail(p, p->at, "a value is missing");
}

static int parse_signed(struct parser *p)
{
    bool is_negative = false;
    const char *at = skip(p);
    int place;

    while (*skip(p) == '-' || *p->at == '+')
        is_negative ^= *p->at++ == '-';
    place = parse_operand(p);
    if (place < 0 || !is_negative)
        return place;
    if (p->terms[place].kind != HY_TERM_NUMBER)
        return add_operator(p, HY_TERM_NEGATIVE, at, place, place);
    p->terms[place].number = -p->terms[place].number; /* stays a constant, which may be a choice of a category */
    return place;
}

/* ---- operators ---------------------------------------------------------- */

struct operator
{
    const char *sign;
    enum hy_term_kind kind;
};

/* The kind of the operator that follows, or -1. Signs that begin with a shorter one precede it in the table. */
static int take_operator(struct parser *p, const struct operator* table)
{
    for (; table->sign; table++)
        if (isalpha((unsigned char)table->sign[0]) ? take_word(p, table->sign) : take(p, table->sign))
            return (int)table->kind;
    return -1;
}

/* Operands with operators of one precedence between them. */
static int parse_chain(struct parser *p, int (*operand)(struct parser *), const struct operator* table)
{
    int left = operand(p), kind, right;

    while (left >= 0) {
        const char *at = skip(p);

        kind = take_operator(p, table);
        if (kind < 0)
            break;
        right = operand(p);
        left = right < 0 ? right : add_operator(p, (enum hy_term_kind)kind, at, left, right);
    }
    return left;
}

static int parse_product(struct parser *p)
{
    static const struct operator table[] = {
        {"*", HY_TERM_MULTIPLY},
        {"/", HY_TERM_DIVIDE},
        {"%", HY_TERM_REMAINDER},
        {NULL, HY_TERM_NUMBER}
    };

    return parse_chain(p, parse_signed, table);
}

static int parse_sum(struct parser *p)
{
    static const struct operator table[] = { {"+", HY_TERM_ADD}, {"-", HY_TERM_SUBTRACT}, {NULL, HY_TERM_NUMBER} };

    return parse_chain(p, parse_product, table);
}

/* (A, B, …) after `in`: equal to A, or to B, or … */
static int parse_members(struct parser *p, const char *at, int left)
{
    int any = -1;

    if (!take(p, "("))
        return fail(p, p->at, "a '(' is missing: in (A, B)");
    do {
        int right = parse_sum(p), is_it = right < 0 ? right : add_operator(p, HY_TERM_EQUAL, at, left, right);

        any = is_it < 0 || any < 0 ? is_it : add_operator(p, HY_TERM_OR, at, any, is_it);
    } while (any >= 0 && take(p, ","));
    if (any >= 0 && !take(p, ")"))
        return fail(p, p->at, "a ',' or ')' is missing");
    return any;
}

static int parse_comparison(struct parser *p)
{
    static const struct operator table[] = {
        {"==", HY_TERM_EQUAL},
        {"!=", HY_TERM_UNEQUAL},
        {"<=", HY_TERM_NOT_GREATER},
        {">=", HY_TERM_NOT_LESS},
        {"<", HY_TERM_LESS},
        {">", HY_TERM_GREATER},
        {NULL, HY_TERM_NUMBER}
    };
    int left = parse_chain(p, parse_sum, table), place;
    const char *at;
    bool is_not;

    if (left < 0)
        return left;
    at = skip(p);
    is_not = is_word(at, "not") && is_word(at + 3 + strspn(at + 3, BLANKS), "in") && take_word(p, "not");
    if (take_word(p, "in")) {
        place = parse_members(p, at, left);
        return place < 0 || !is_not ? place : add_operator(p, HY_TERM_NOT, at, place, place);
    }
    return *p->at == '=' ? fail(p, p->at, "write '==' to compare") : left;
}

static int parse_not(struct parser *p)
{
    const char *at = skip(p);
    bool is_not = false, some = false;
    int place;

    while (take_word(p, "not")) {
        is_not = !is_not;
        some = true;
    }
    place = parse_comparison(p);
    if (place >= 0 && some && !hy_term_is_truth(&p->terms[place]))
        return fail(p, at, "'and', 'or' and 'not' need comparisons");
    return place >= 0 && is_not ? add_operator(p, HY_TERM_NOT, at, place, place) : place;
}

static int parse_and(struct parser *p)
{
    static const struct operator table[] = { {"and", HY_TERM_AND}, {NULL, HY_TERM_NUMBER} };

    return parse_chain(p, parse_not, table);
}

static int parse_or(struct parser *p)
{
    static const struct operator table[] = { {"or", HY_TERM_OR}, {NULL, HY_TERM_NUMBER} };

    return parse_chain(p, parse_and, table);
}

static int parse_all(struct parser *p)
{
    int place = parse_or(p);

    if (place < 0)
        return place;
    if (*skip(p))
        return fail(p, p->at, "an operator is missing");
    return hy_term_is_truth(&p->terms[place]) ? 0 : fail(p, p->at, "a comparison is missing, such as '== 1'");
}

int hy_expression_parse(const struct hy_space *space, const char *text, struct hy_term *terms, struct hy_err *err)
{
    struct parser p = {.space = space, .text = text, .at = text, .terms = terms};

    if (strlen(text) > HY_EXPRESSION_MAX)
        return hy_err_set(err, -EINVAL, "'%s' is longer than %d bytes", hy_show(text).text, HY_EXPRESSION_MAX);
    if (parse_all(&p) == 0)
        return (int)p.count;
    if (*p.at == '\0')
        return hy_err_set(err, -EINVAL, "'%s' is not a valid expression: at its end %s", hy_show(text).text, p.fault);
    return hy_err_set(err, -EINVAL, "'%s' is not a valid expression: at byte %zu, before '%s', %s", hy_show(text).text,
                      (size_t)(p.at - text) + 1, hy_show(p.at).text, p.fault);
}
