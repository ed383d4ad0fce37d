/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/idset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void hy_idset_done(struct hy_idset *s)
{
    free(s->runs);
    *s = (struct hy_idset){0};
}

/* The first range that ends at or after id - 1: it contains id, is extended by it, or follows it. */
static size_t run_at(const struct hy_idset *s, uint32_t id)
{
    size_t low = 0, high = s->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (s->runs[middle].last < id - 1)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool hy_idset_has(const struct hy_idset *s, uint32_t id)
{
    size_t i = run_at(s, id);

    return i < s->count && s->runs[i].first <= id && id <= s->runs[i].last;
}

static int make_room(struct hy_idset *s)
{
    size_t cap = s->cap ? s->cap * 2 : 4;
    struct hy_id_run *bigger;

    if (s->count < s->cap)
        return 0;
    if (s->count >= HY_IDSET_RUNS_MAX)
        return -ENOSPC;
    bigger = hy_reallocarray(s->runs, cap, sizeof *bigger);
    if (!bigger)
        return -ENOMEM;
    s->runs = bigger;
    s->cap = cap;
    return 0;
}

static void remove_run(struct hy_idset *s, size_t i)
{
    s->count--;
    memmove(s->runs + i, s->runs + i + 1, (s->count - i) * sizeof *s->runs);
}

int hy_idset_add(struct hy_idset *s, uint32_t id)
{
    size_t i = run_at(s, id);
    struct hy_id_run *r = i < s->count ? &s->runs[i] : NULL;
    int rc;

    if (r && r->first <= id && id <= r->last)
        return 0;
    if (r && r->last == id - 1) {
        r->last = id;
        if (i + 1 < s->count && r[1].first == id + 1) {
            r->last = r[1].last;
            remove_run(s, i + 1);
        }
        return 0;
    }
    if (r && r->first == id + 1) {
        r->first = id;
        return 0;
    }
    rc = make_room(s);
    if (rc < 0)
        return rc;
    memmove(s->runs + i + 1, s->runs + i, (s->count - i) * sizeof *s->runs);
    s->runs[i] = (struct hy_id_run){id, id};
    s->count++;
    return 0;
}

void hy_idset_close_gap(struct hy_idset *s)
{
    if (s->count < 2)
        return;
    s->runs[0].last = s->runs[1].last;
    remove_run(s, 1);
}
