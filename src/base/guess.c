/* SPDX-License-Identifier: Apache-2.0 */
#include "base/guess.h"

#include <stdint.h>
#include <string.h>

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t hy_edit_distance(const char *a, const char *b)
{
    size_t rows[3][HY_GUESS_MAX + 1], n = strlen(a), m = strlen(b);
    size_t *before = rows[0], *last = rows[1], *now = rows[2];

    if (n > HY_GUESS_MAX || m > HY_GUESS_MAX)
        return HY_GUESS_MAX;
    for (size_t j = 0; j <= m; j++)
        last[j] = before[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *spare = before;

        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            now[j] = least(least(last[j], now[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
        before = last;
        last = now;
        now = spare;
    }
    return last[m];
}

void hy_guess_init(struct hy_guess *g, const char *typed)
{
    *g = (struct hy_guess){.typed = typed, .distance = SIZE_MAX};
}

void hy_guess_offer(struct hy_guess *g, const char *candidate)
{
    size_t distance = hy_edit_distance(g->typed, candidate);
    size_t typed = strlen(g->typed), room = least(typed, strlen(candidate)) / 4; /* "export" is not "import" */

    /* A prefix ("--pop" for "--population") is as good as a typo. */
    if (typed >= 3 && strncmp(g->typed, candidate, typed) == 0)
        distance = least(distance, 1);
    if (distance > (room ? room : 1) || distance >= g->distance)
        return;
    g->distance = distance;
    g->best = candidate;
}
