/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A text table: columns as wide as their content, or cut so that lines fit the
 * terminal. Pure: cells in, lines out.
 */
#ifndef HY_VIEW_TEXT_TABLE_H
#define HY_VIEW_TEXT_TABLE_H

#include "view/out.h"

struct hy_text_table; /* opaque */

enum { HY_TABLE_RIGHT = 1 /* numbers */, HY_TABLE_FLEX = 2 /* may be cut */ };

/* NULL only when out of memory. */
struct hy_text_table *hy_text_table_new(void);
void hy_text_table_free(struct hy_text_table *g); /* NULL is fine */
void hy_text_table_free_at(struct hy_text_table **g);
#define hy_cleanup_text_table __attribute__((cleanup(hy_text_table_free_at)))

/*
 * Adds a column; call it before the first cell. If even cut columns do not fit,
 * the column with the highest `drop` is dropped first; 0: never. Copies the title.
 */
void hy_text_table_column(struct hy_text_table *g, const char *title, int flags, int drop);
/* Adds a cell: rows are filled from left to right, top to bottom. `text` is made printable. */
void hy_text_table_cell(struct hy_text_table *g, enum hy_tint tint, const char *text);
void hy_text_table_cellf(struct hy_text_table *g, enum hy_tint tint, const char *fmt, ...) HY_PRINTF(3, 4);

/* The column widths of the last rendering, so that a redrawn table does not jump. */
#define HY_TABLE_COLUMNS 64
struct hy_text_table_layout {
    int widths[HY_TABLE_COLUMNS]; /* private */
    size_t count;                /* private: valid for tables with this number of columns */
};
/* Keeps columns from getting narrower than before; call it before rendering. */
void hy_text_table_remember(struct hy_text_table *g, struct hy_text_table_layout *layout);

/* The width of a line when each flexible column gets at most `most` columns of the terminal. */
int hy_text_table_width(struct hy_text_table *g, int most);
/*
 * Appends lines that end in a newline, or an HTML table on one line if the style
 * is HTML; with `titles` the titles first. Returns 0, or the first error since
 * hy_text_table_new.
 */
int hy_text_table_render(struct hy_text_table *g, struct hy_out *out, bool titles);

#endif
