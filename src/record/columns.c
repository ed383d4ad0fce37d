/* SPDX-License-Identifier: Apache-2.0 */
#include "record/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#define WIDTH sizeof(int64_t) /* of an offset */

void hy_columns_init(struct hy_columns *c)
{
    *c = (struct hy_columns){0};
}

static void column_done(struct hy_column *c)
{
    free(c->name);
    hy_buf_done(&c->values);
    hy_buf_done(&c->value_ends);
    hy_buf_done(&c->step_ends);
    hy_buf_done(&c->row_ends);
    hy_buf_done(&c->there);
}

void hy_columns_done(struct hy_columns *c)
{
    for (size_t i = 0; i < c->count; i++)
        column_done(&c->list[i]);
    free(c->list);
    *c = (struct hy_columns){0};
}

/* ---- offsets ----------------------------------------------------------------------- */

static int push(struct hy_buf *ends, int64_t end)
{
    uint8_t *to = hy_buf_reserve(ends, WIDTH);

    if (!to)
        return -ENOMEM;
    memcpy(to, &end, WIDTH);
    hy_buf_added(ends, WIDTH);
    return 0;
}

static int64_t end_at(const struct hy_buf *ends, uint64_t i)
{
    return hy_column_ends(ends)[i];
}

/* The number of items that these offsets delimit. */
static int64_t count_of(const struct hy_buf *ends)
{
    return (int64_t)(ends->len / WIDTH) - 1;
}

static size_t width_of(const struct hy_column *c)
{
    return c->kind == HY_KIND_FLOAT ? sizeof(float) : sizeof(int64_t);
}

static int64_t values_of(const struct hy_column *c)
{
    return c->kind == HY_KIND_BYTES ? count_of(&c->value_ends) : (int64_t)(c->values.len / width_of(c));
}

static void truncate_ends(struct hy_buf *ends, int64_t count)
{
    hy_buf_cut(ends, ((size_t)count + 1) * WIDTH);
}

/* Keeps the first rows and their values. */
static void truncate_rows(struct hy_column *c, uint64_t rows)
{
    int64_t values;

    truncate_ends(&c->row_ends, (int64_t)rows);
    hy_buf_cut(&c->there, (size_t)rows);
    values = end_at(&c->row_ends, rows);
    if (c->has_steps) {
        truncate_ends(&c->step_ends, values);
        values = end_at(&c->step_ends, (uint64_t)values);
    }
    if (c->kind == HY_KIND_BYTES) {
        truncate_ends(&c->value_ends, values);
        hy_buf_cut(&c->values, (size_t)end_at(&c->value_ends, (uint64_t)values));
    } else {
        hy_buf_cut(&c->values, (size_t)values * width_of(c));
    }
    c->rows = rows;
}

/* ---- columns ----------------------------------------------------------------------- */

static bool is_named(const struct hy_column *c, const char *name, size_t n, bool has_steps)
{
    return c->name_n == n && c->has_steps == has_steps && memcmp(c->name, name, n) == 0;
}

struct hy_column *hy_columns_find(struct hy_columns *c, const char *name, size_t n, bool has_steps)
{
    for (size_t i = 0, at = c->next; i < c->count; i++, at++) {
        at = at < c->count ? at : 0;
        if (is_named(&c->list[at], name, n, has_steps)) {
            c->next = at + 1;
            return &c->list[at];
        }
    }
    return NULL;
}

struct hy_column *hy_columns_add(struct hy_columns *c, const char *name, size_t n, bool has_steps,
                                 enum hy_column_kind kind)
{
    struct hy_column *made = hy_columns_find(c, name, n, has_steps);

    if (made)
        return made;
    if (c->count >= HY_COLUMNS_MAX || hy_array_grow(c->list, c->count) < 0)
        return NULL;
    made = &c->list[c->count];
    *made = (struct hy_column){.name = hy_malloc(n + 1), .name_n = n, .kind = kind, .has_steps = has_steps};
    hy_buf_init(&made->values, SIZE_MAX / 2);
    hy_buf_init(&made->value_ends, SIZE_MAX / 2);
    hy_buf_init(&made->step_ends, SIZE_MAX / 2);
    hy_buf_init(&made->row_ends, SIZE_MAX / 2);
    hy_buf_init(&made->there, SIZE_MAX / 2);
    if (!made->name || push(&made->value_ends, 0) < 0 || push(&made->step_ends, 0) < 0 ||
        push(&made->row_ends, 0) < 0) {
        column_done(made);
        return NULL;
    }
    memcpy(made->name, name, n);
    made->name[n] = '\0';
    c->next = ++c->count;
    return made;
}

/* ---- a row ------------------------------------------------------------------------- */

/* `end`: the number of steps or values up to here. */
static int end_row(struct hy_column *c, int64_t end, uint8_t is_there)
{
    uint8_t *there = hy_buf_reserve(&c->there, 1);

    if (!there || push(&c->row_ends, end) < 0)
        return -ENOMEM;
    *there = is_there;
    hy_buf_added(&c->there, 1);
    c->rows++;
    return 0;
}

/* Appends empty rows up to `rows`. */
static int fill(struct hy_column *c, uint64_t rows)
{
    const int64_t end = c->rows < rows ? end_at(&c->row_ends, c->rows) : 0;

    while (c->rows < rows)
        if (end_row(c, end, 0) < 0)
            return -ENOMEM;
    return 0;
}

int hy_column_begin(struct hy_column *c, uint64_t row)
{
    if (c->rows > row)
        truncate_rows(c, row);
    return fill(c, row);
}

int hy_column_add_bytes(struct hy_column *c, const void *bytes, size_t n)
{
    return hy_buf_append(&c->values, bytes, n) < 0 || push(&c->value_ends, (int64_t)c->values.len) < 0 ? -ENOMEM : 0;
}

void *hy_column_reserve(struct hy_column *c, size_t count)
{
    return count <= SIZE_MAX / 16 ? hy_buf_reserve(&c->values, count * width_of(c)) : NULL;
}

void hy_column_added(struct hy_column *c, size_t count)
{
    hy_buf_added(&c->values, count * width_of(c));
}

int hy_column_end_step(struct hy_column *c)
{
    return push(&c->step_ends, values_of(c));
}

int hy_column_end(struct hy_column *c)
{
    return end_row(c, c->has_steps ? count_of(&c->step_ends) : values_of(c), 1);
}

void hy_columns_end_row(struct hy_columns *c)
{
    c->rows++;
}

void hy_columns_undo_row(struct hy_columns *c)
{
    for (size_t i = 0; i < c->count; i++)
        truncate_rows(&c->list[i], c->list[i].rows < c->rows ? c->list[i].rows : c->rows);
}

int hy_columns_fill(struct hy_columns *c)
{
    for (size_t i = 0; i < c->count; i++)
        if (fill(&c->list[i], c->rows) < 0)
            return -ENOMEM;
    return 0;
}

void hy_columns_clear(struct hy_columns *c)
{
    for (size_t i = 0; i < c->count; i++)
        truncate_rows(&c->list[i], 0);
    c->rows = 0;
}
