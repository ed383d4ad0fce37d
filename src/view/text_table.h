/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of text: columns as wide as what is in them, or cut so that a line
 * fits the terminal. Pure: cells in, lines out.
 */
#ifndef HY_VIEW_TEXT_TABLE_H
#define HY_VIEW_TEXT_TABLE_H

#include "view/out.h"

struct hy_grid; /* opaque */

enum { HY_GRID_RIGHT = 1 /* numbers */, HY_GRID_FLEX = 2 /* may be cut */ };

/* NULL only when out of memory. */
struct hy_grid *hy_grid_new(void);
void hy_grid_free(struct hy_grid *g); /* NULL is fine */
void hy_grid_free_at(struct hy_grid **g);
#define hy_cleanup_grid __attribute__((cleanup(hy_grid_free_at)))

/*
 * Adds a column, before the first cell. `drop` says who goes first where even
 * cut columns do not fit: the highest; 0 stays. The title is copied.
 */
void hy_grid_column(struct hy_grid *g, const char *title, int flags, int drop);
/* Fills the rows from left to right, top to bottom. `text` is made printable. */
void hy_grid_cell(struct hy_grid *g, enum hy_tint tint, const char *text);
void hy_grid_cellf(struct hy_grid *g, enum hy_tint tint, const char *fmt, ...) HY_PRINTF(3, 4);

/* How wide the columns have been, so that a table drawn again does not jump. */
#define HY_GRID_COLUMNS 64
struct hy_grid_memory {
    int widths[HY_GRID_COLUMNS]; /* private */
    size_t count;                /* private: it holds for tables of so many columns */
};
/* Columns get no narrower than they were before; call it before rendering. */
void hy_grid_remember(struct hy_grid *g, struct hy_grid_memory *memory);

/* How many columns of the terminal a line takes when those that may be cut get
 * at most `most` of them. */
int hy_grid_width(struct hy_grid *g, int most);
/*
 * Lines, each with a newline (or, where the style says so, an HTML table without
 * any); the titles first, when `titles`. Returns 0 or -Exxx: whatever went
 * wrong since hy_grid_new.
 */
int hy_grid_render(struct hy_grid *g, struct hy_out *out, bool titles);

#endif
