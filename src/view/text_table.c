/* SPDX-License-Identifier: Apache-2.0 */
#include "view/text_table.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

#define GAP 2         /* spaces between columns */
#define FLEX_LEAST 6  /* columns are never cut below this width ... */
#define CELL_MAX 1000 /* ... and never wider than this */
#define TEXT_MAX (256u * 1024 * 1024)

struct column {
    int flags, drop;
    int natural; /* the widest cell so far */
    int width;   /* assigned by the layout; 0: dropped */
    size_t title, title_len;
};

struct cell {
    size_t text, len; /* in `texts` */
    int columns;
    enum hy_tint tint;
};

struct hy_text_table {
    struct column columns[HY_TABLE_COLUMNS];
    size_t column_count;
    struct cell *cells;
    size_t cell_count;
    struct hy_buf titles, texts;
    int rc;
};

struct hy_text_table *hy_text_table_new(void)
{
    struct hy_text_table *g = hy_calloc(1, sizeof *g);

    if (!g)
        return NULL;
    hy_buf_init(&g->titles, TEXT_MAX);
    hy_buf_init(&g->texts, TEXT_MAX);
    return g;
}

void hy_text_table_free(struct hy_text_table *g)
{
    if (!g)
        return;
    hy_buf_done(&g->titles);
    hy_buf_done(&g->texts);
    free(g->cells);
    free(g);
}

void hy_text_table_free_at(struct hy_text_table **g)
{
    hy_text_table_free(*g);
}

static const char *text_at(const struct hy_buf *b, size_t at)
{
    return b->len ? (const char *)hy_buf_bytes(b) + at : "";
}

static int columns_from(const struct hy_buf *b, size_t from)
{
    int columns = hy_columns(text_at(b, from), b->len - from);

    return columns < CELL_MAX ? columns : CELL_MAX;
}

void hy_text_table_column(struct hy_text_table *g, const char *title, int flags, int drop)
{
    struct column *c = &g->columns[g->column_count];

    if (g->rc < 0)
        return;
    if (g->column_count == HY_TABLE_COLUMNS) {
        g->rc = -E2BIG;
        return;
    }
    *c = (struct column){.flags = flags, .drop = drop, .title = g->titles.len};
    g->rc = hy_append_printable(&g->titles, title, strlen(title));
    if (g->rc < 0)
        return;
    c->title_len = g->titles.len - c->title;
    c->natural = c->title_len ? columns_from(&g->titles, c->title) : 0;
    g->column_count++;
}

void hy_text_table_cell(struct hy_text_table *g, enum hy_tint tint, const char *text)
{
    struct cell cell = {.text = g->texts.len, .tint = tint};
    struct column *column;

    if (g->rc < 0)
        return;
    g->rc = hy_array_grow(g->cells, g->cell_count);
    if (g->rc < 0)
        return;
    if (text && *text) {
        g->rc = hy_append_printable(&g->texts, text, strlen(text));
        if (g->rc < 0)
            return;
        cell.len = g->texts.len - cell.text;
        cell.columns = columns_from(&g->texts, cell.text);
    }
    column = &g->columns[g->cell_count % g->column_count];
    if (cell.columns > column->natural)
        column->natural = cell.columns;
    g->cells[g->cell_count++] = cell;
}

void hy_text_table_cellf(struct hy_text_table *g, enum hy_tint tint, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    hy_text_table_cell(g, tint, text);
}

static int line_width(const struct hy_text_table *g)
{
    int total = 0;

    for (size_t i = 0; i < g->column_count; i++) {
        int width = g->columns[i].width;

        total += width ? width + (total ? GAP : 0) : 0;
    }
    return total;
}

void hy_text_table_remember(struct hy_text_table *g, struct hy_text_table_layout *layout)
{
    if (layout->count != g->column_count)
        *layout = (struct hy_text_table_layout){.count = g->column_count};
    for (size_t i = 0; i < g->column_count; i++) {
        if (layout->widths[i] < g->columns[i].natural)
            layout->widths[i] = g->columns[i].natural;
        g->columns[i].natural = layout->widths[i];
    }
}

int hy_text_table_width(struct hy_text_table *g, int most)
{
    for (size_t i = 0; i < g->column_count; i++) {
        struct column *c = &g->columns[i];

        c->width = c->flags & HY_TABLE_FLEX && c->natural > most ? most : c->natural;
    }
    return line_width(g);
}

/* Cuts the widest flexible column, at most down to the second widest, so that wide columns shrink before narrow
 * ones. 0: no column can be cut further. */
static int cut_widest(struct hy_text_table *g, int excess)
{
    struct column *widest = NULL;
    int second = FLEX_LEAST, target;

    for (size_t i = 0; i < g->column_count; i++) {
        struct column *c = &g->columns[i];

        if (!(c->flags & HY_TABLE_FLEX) || c->width <= FLEX_LEAST)
            continue;
        if (!widest || c->width > widest->width) {
            second = widest ? widest->width : second;
            widest = c;
        } else if (c->width > second) {
            second = c->width;
        }
    }
    if (!widest)
        return 0;
    target = widest->width - excess;
    if (target < second)
        target = second < widest->width ? second : widest->width - 1;
    widest->width = target;
    return 1;
}

static int drop_one(struct hy_text_table *g)
{
    struct column *first = NULL;

    for (size_t i = 0; i < g->column_count; i++) {
        struct column *c = &g->columns[i];

        if (c->width && c->drop && (!first || c->drop > first->drop))
            first = c;
    }
    if (!first)
        return 0;
    first->width = 0;
    return 1;
}

static void lay_out(struct hy_text_table *g, int width)
{
    int needed = hy_text_table_width(g, CELL_MAX);

    while (width > 0 && needed > width && (cut_widest(g, needed - width) || drop_one(g)))
        needed = line_width(g);
}

struct place {
    int at;      /* the current column of the line */
    int pending; /* spaces that are written only before more text */
    int width;   /* of the terminal; 0: no limit */
};

static void put(struct hy_out *out, struct place *p, const struct column *c, const char *text, const struct cell *cell)
{
    int room = c->width, blanks;

    if (p->at + p->pending)
        p->pending += GAP;
    if (p->width && room > p->width - p->at - p->pending)
        room = p->width - p->at - p->pending;
    if (room <= 0)
        return;
    blanks = cell->columns < room ? room - cell->columns : 0;
    if (cell->len == 0) {
        p->pending += room;
        return;
    }
    if (c->flags & HY_TABLE_RIGHT)
        p->pending += blanks;
    hy_out_repeat(out, " ", p->pending);
    hy_out_tint_on(out, cell->tint);
    p->at += p->pending + hy_out_cut(out, text, cell->len, room);
    hy_out_tint_off(out, cell->tint);
    p->pending = c->flags & HY_TABLE_RIGHT ? 0 : blanks;
}

static void put_titles(struct hy_text_table *g, struct hy_out *out)
{
    struct place p = {.width = out->style.width};

    for (size_t i = 0; i < g->column_count; i++) {
        const struct column *c = &g->columns[i];
        const char *text = text_at(&g->titles, c->title);
        struct cell cell = {.len = c->title_len, .tint = HY_DIM};

        if (!c->width)
            continue;
        cell.columns = c->title_len ? hy_columns(text, c->title_len) : 0;
        put(out, &p, c, text, &cell);
    }
    hy_out_str(out, "\n");
}

static void put_row(struct hy_text_table *g, struct hy_out *out, const struct cell *cells)
{
    struct place p = {.width = out->style.width};

    for (size_t i = 0; i < g->column_count; i++)
        if (g->columns[i].width)
            put(out, &p, &g->columns[i], text_at(&g->texts, cells[i].text), &cells[i]);
    hy_out_str(out, "\n");
}

static void put_lines(struct hy_text_table *g, struct hy_out *out, bool titles)
{
    if (titles)
        put_titles(g, out);
    for (size_t i = 0; i + g->column_count <= g->cell_count; i += g->column_count)
        put_row(g, out, g->cells + i);
}

/* ---- HTML: notebooks style tables themselves, so each cell sets its complete style ---- */

static void put_html_cell(struct hy_out *out, const char *tag, const struct column *c, const char *text,
                          const struct cell *cell)
{
    /* A column without a title contains sentences, which are too loud in bold. */
    enum hy_tint tint = c->title_len ? cell->tint : HY_DIM;

    hy_outf(out, "<%s style=\"text-align:%s;padding:0 1em 0 0;border:0;font-weight:normal\">", tag,
            c->flags & HY_TABLE_RIGHT ? "right" : "left");
    hy_out_tint_on(out, tint);
    hy_out_cut(out, text, cell->len, c->width);
    hy_out_tint_off(out, tint);
    hy_outf(out, "</%s>", tag);
}

static void put_html_titles(struct hy_text_table *g, struct hy_out *out)
{
    hy_out_str(out, "<tr style=\"background:none\">");
    for (size_t i = 0; i < g->column_count; i++) {
        const struct column *c = &g->columns[i];
        struct cell cell = {.len = c->title_len, .tint = HY_DIM};

        if (c->width)
            put_html_cell(out, "th", c, text_at(&g->titles, c->title), &cell);
    }
    hy_out_str(out, "</tr>");
}

static void put_html_row(struct hy_text_table *g, struct hy_out *out, const struct cell *cells)
{
    hy_out_str(out, "<tr style=\"background:none\">");
    for (size_t i = 0; i < g->column_count; i++)
        if (g->columns[i].width)
            put_html_cell(out, "td", &g->columns[i], text_at(&g->texts, cells[i].text), &cells[i]);
    hy_out_str(out, "</tr>");
}

static void put_html(struct hy_text_table *g, struct hy_out *out, bool titles)
{
    hy_out_str(out, "<table style=\"border-collapse:collapse;border:0;margin:0;color:inherit;"
                    "font-size:inherit;white-space:nowrap\">");
    if (titles)
        put_html_titles(g, out);
    for (size_t i = 0; i + g->column_count <= g->cell_count; i += g->column_count)
        put_html_row(g, out, g->cells + i);
    hy_out_str(out, "</table>");
}

int hy_text_table_render(struct hy_text_table *g, struct hy_out *out, bool titles)
{
    if (g->rc < 0)
        return g->rc;
    lay_out(g, out->style.width);
    if (out->style.html)
        put_html(g, out, titles);
    else
        put_lines(g, out, titles);
    return out->rc;
}
