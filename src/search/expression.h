/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expressions over the dimensions of a space, of which conditions and constraints
 * consist; private to this part.
 *
 *     optimizer == sgd and (layers > 2 or width * layers <= 512)
 *     activation in (relu, 'leaky relu') and not 2 * layers >= depth
 *
 * Operators, with the lowest precedence first, as in Python:
 *
 *     or
 *     and
 *     not
 *     ==  !=  <  <=  >  >=  in (A, B)  not in (A, B)     not chained
 *     +  -
 *     *  /  %                                            a % b has the sign of b
 *     -x
 *
 * Operands are numbers, 'texts' and "texts" (without escapes), names of dimensions, and
 * words: letters, digits, '_', '.' and all above ASCII. Of the names that begin where a
 * word begins, the longest is taken: "learning-rate" if there is one, else a difference
 * of two. Any other word is a text. A name that does not begin with a letter or '_', or
 * that begins with one of the words and, or, not, in, cannot be used.
 *
 * A category is compared with a text by the texts of its choices, without the blanks
 * around them, and with a number by those that are numbers. Everywhere else it is a
 * number, which all of its choices must be.
 *
 * An inactive dimension has no value (NAN), and a comparison with it is neither true nor
 * false: "true or" it is true, "false and" it is false, everything else is undecided.
 */
#ifndef HY_SEARCH_EXPRESSION_H
#define HY_SEARCH_EXPRESSION_H

#include "search/search.h"

#define HY_EXPRESSION_MAX 2000       /* bytes */
#define HY_EXPRESSION_TERMS_MAX 400  /* operands and operators; a member of a list counts three times */
#define HY_EXPRESSION_NESTING_MAX 32 /* parentheses */

struct hy_expression;

enum hy_truth { HY_FALSE, HY_TRUE, HY_UNDECIDED };

/*
 * Parses an expression over the dimensions that the space has now; their order must not
 * change afterwards. A pure function of the text and the dimensions. 0, or -ENOMEM, or
 * with a sentence
 *   -EINVAL: the text is not a comparison, or several;
 *   -ENOENT: it is one, but of no dimension of the space;
 *   -EDOM: it is one that is wrong: a name is mistyped, a text is not a choice of the
 *          category that it is compared with, a text is used as a number.
 */
int hy_expression_new(const struct hy_space *space, const char *text, struct hy_expression **ret, struct hy_err *err);
void hy_expression_free(struct hy_expression *e); /* NULL is fine */

/* `space` has the dimensions that it was parsed for, and maybe more. */
enum hy_truth hy_expression_test(const struct hy_expression *e, const struct hy_space *space,
                                 const struct hy_value *values);

const char *hy_expression_text(const struct hy_expression *e);
/* Whether it depends on the dimension. */
bool hy_expression_uses(const struct hy_expression *e, size_t dim);

#endif
