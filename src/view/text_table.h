/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of text: columns as wide as what is in them, or cut so that a line
 * fits the terminal. Pure: cells in, lines out.
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
 * Adds a column, before the first cell. `drop` says who goes first where even
 * cut columns do not fit: the highest; 0 stays. The title is copied.
 */
void hy_text_table_column(struct hy_text_table *g, const char *title, int flags, int drop);
/* Fills the rows from left to right, top to bottom. `text` is made printable. */
void hy_text_table_cell(struct hy_text_table *g, enum hy_tint tint, const char *text);
void hy_text_table_cellf(struct hy_text_table *g, enum hy_tint tint, const char *fmt, ...) HY_PRINTF(3, 4);

/* How wide the columns have been, so that a table drawn again does not jump. */
#define HY_TABLE_COLUMNS 64
struct hy_text_table_layout {
    int widths[HY_TABLE_COLUMNS]; /* private */
    size_t count;                /* private: it holds for tables of so many columns */
};
/* Columns get no narrower than they were before; call it before rendering. */
void hy_text_table_remember(struct hy_text_table *g, struct hy_text_table_layout *memory);

/* How many columns of the terminal a line takes when those that may be cut get
 * at most `most` of them. */
int hy_text_table_width(struct hy_text_table *g, int most);
/*
 * Lines, each with a newline (or, where the style says so, an HTML table without
 * any); the titles first, when `titles`. Returns 0 or -Exxx: whatever went
 * wrong since hy_text_table_new.
 */
int hy_text_table_render(struct hy_text_table *g, struct hy_out *out, bool titles);

#endif
