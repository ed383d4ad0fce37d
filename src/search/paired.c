/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paired lists: the first values together, then the second ones, and so on.
 *
 * With conditions or constraints some rows are left out: those that violate a constraint,
 * and those with an inactive dimension that equal an earlier one without it.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/text.h"
#include "search/discrete.h"
#include "search/internal.h"
#include "search/scale.h"

static int check_lists(struct hy_search *s, struct hy_err *err)
{
    const struct hy_dim *first = s->space.dims;

    s->total = 1; /* of an empty space, as in a grid */
    for (size_t i = 0; i < s->space.count; i++) {
        const struct hy_dim *dim = &s->space.dims[i];
        int rc = hy_discrete_check(dim, "a paired list", err);

        if (rc < 0)
            return rc;
        if (i == 0)
            s->total = hy_discrete_width(dim);
        if (hy_discrete_width(dim) != s->total)
            return hy_err_set(
                err, -EINVAL, "paired lists must be equally long, but '%.80s' has %llu values and '%.80s' has %llu",
                first->name, (unsigned long long)s->total, dim->name, (unsigned long long)hy_discrete_width(dim));
    }
    return 0;
}

/* ---- rows --------------------------------------------------------------- */

static void row_values(const struct hy_space *space, uint64_t row, struct hy_value *values)
{
    for (size_t i = 0; i < space->count; i++)
        values[i] = hy_space_is_active(space, i, values) ? hy_discrete_at(&space->dims[i], row)
                                                         : (struct hy_value){NAN};
}

struct rows {
    const struct hy_space *space;
    uint64_t *kept; /* the rows that are trials */
    uint64_t count;
    struct hy_map
        seen; /* hash -> 1 + the place in `kept`, of rows with inactive dimensions; equal hashes have successive keys */
    struct hy_value *row, *earlier;
};

/* Two choices of a list may have the same text. */
static bool is_same(const struct hy_dim *dim, struct hy_value a, struct hy_value b)
{
    char room[2][32];

    if (isnan(a.number) || isnan(b.number))
        return isnan(a.number) && isnan(b.number);
    if (dim->kind != HY_DIM_CATEGORY)
        return a.number == b.number;
    if (dim->json)
        return strcmp(hy_value_json(dim, a), hy_value_json(dim, b)) == 0;
    return strcmp(hy_value_text(dim, a, room[0], sizeof room[0]), hy_value_text(dim, b, room[1], sizeof room[1])) == 0;
}

static bool are_equal(const struct rows *r)
{
    size_t i = 0;

    while (i < r->space->count && is_same(&r->space->dims[i], r->row[i], r->earlier[i]))
        i++;
    return i == r->space->count;
}

/* Equal rows have the same hash. *ret_is_whole: no dimension is inactive. */
static uint64_t hash_row(const struct rows *r, bool *ret_is_whole)
{
    uint64_t hash = 0;
    char room[32];

    *ret_is_whole = true;
    for (size_t i = 0; i < r->space->count; i++) {
        const char *text = hy_value_text(&r->space->dims[i], r->row[i], room, sizeof room);

        hash = hash * 31 + hy_hash(text, strlen(text));
        *ret_is_whole &= !isnan(r->row[i].number);
    }
    return hash;
}

/* Keeps the row if it is a new point, or no dimension is inactive: then it was meant to be repeated. */
static int keep(struct rows *r, uint64_t row)
{
    bool is_whole;
    uint64_t key;
    uintptr_t place;

    row_values(r->space, row, r->row);
    if (!hy_space_allows(r->space, r->row))
        return 0;
    key = hash_row(r, &is_whole);
    for (; !is_whole && (place = (uintptr_t)hy_map_get(&r->seen, key)); key++) {
        row_values(r->space, r->kept[place - 1], r->earlier);
        if (are_equal(r))
            return 0;
    }
    if (hy_array_grow(r->kept, r->count) < 0)
        return -ENOMEM;
    r->kept[r->count++] = row;
    return is_whole ? 0 : hy_map_put(&r->seen, key, (void *)(uintptr_t)r->count);
}

static int keep_all(struct rows *r, uint64_t total)
{
    int rc = 0;

    r->row = hy_calloc(r->space->count, sizeof *r->row);
    r->earlier = hy_calloc(r->space->count, sizeof *r->earlier);
    if (!r->row || !r->earlier)
        return -ENOMEM;
    for (uint64_t i = 0; i < total && rc == 0; i++)
        rc = keep(r, i);
    return rc;
}

/* Replaces the total by the number of rows that are kept. */
static int leave_rows_out(struct hy_search *s, struct hy_err *err)
{
    struct rows r = {.space = &s->space};
    int rc;

    if (s->total > HY_VISITED_MAX)
        return hy_search_too_many(err);
    rc = keep_all(&r, s->total);
    s->total = r.count;
    s->state = r.kept;
    hy_map_done(&r.seen);
    free(r.row);
    free(r.earlier);
    if (rc < 0)
        return hy_err_set(err, -ENOMEM, "out of memory for paired lists");
    return r.count > 0 ? 0 : hy_search_unsatisfied(&s->space, "row of the paired lists", err);
}

/* ---- the search --------------------------------------------------------- */

static int paired_init(struct hy_search *s, struct hy_err *err)
{
    int rc = check_lists(s, err);

    return rc == 0 && hy_space_has_rules(&s->space) ? leave_rows_out(s, err) : rc;
}

static void paired_done(struct hy_search *s)
{
    free(s->state);
}

static int paired_ask(struct hy_search *s, uint64_t number, struct hy_value *values, void **ret_ticket)
{
    const uint64_t *kept = s->state;

    row_values(&s->space, kept ? kept[number - 1] : number - 1, values);
    *ret_ticket = &hy_stateless_ticket;
    return 1;
}

const struct hy_search_ops hy_paired_ops = {
    .init = paired_init,
    .done = paired_done,
    .ask = paired_ask,
    .tell = hy_stateless_tell,
    .drop = hy_stateless_drop,
};
