/* SPDX-License-Identifier: Apache-2.0 */
/* What a mistyped name was meant to be. */
#ifndef HY_BASE_GUESS_H
#define HY_BASE_GUESS_H

#include <stddef.h>

#define HY_GUESS_MAX 64 /* longer names are never guessed */

/* The number of letters to change, insert, delete or transpose (Damerau-Levenshtein). */
size_t hy_edit_distance(const char *a, const char *b);

/* Guesses a mistyped name: offer all candidates, then read `best` (NULL: none is close). */
struct hy_guess {
    const char *typed;
    const char *best;
    size_t distance; /* private */
};
void hy_guess_init(struct hy_guess *g, const char *typed);
void hy_guess_offer(struct hy_guess *g, const char *candidate);

#endif
