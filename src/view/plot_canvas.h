/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plot of dots with axes, as text; private to this part. A character has 2 x 4 dots (Braille), or without Unicode
 * 1 x 2 dots (' . :).
 */
#ifndef HY_VIEW_PLOT_CANVAS_H
#define HY_VIEW_PLOT_CANVAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "view/out.h"

#define HY_CANVAS_ROWS 10
#define HY_CANVAS_COLUMNS_MAX 120

struct hy_plot_axis {
    const char *title;           /* of numbers on the x axis; otherwise not shown */
    double low, high;            /* low < high; of a category: 0 and the number of choices */
    bool is_log;                 /* both are positive */
    const char *const *choices;  /* of a category; NULL: numbers */
    size_t choice_count;
};

enum hy_canvas_layer { HY_CANVAS_BACK, HY_CANVAS_FRONT, HY_CANVAS_LAYERS };

struct hy_canvas {
    struct hy_plot_axis x, y;
    enum hy_tint tints[HY_CANVAS_LAYERS];
    int columns;        /* private, as the rest: of characters */
    int dots_x, dots_y; /* of one character */
    int label_width;
    uint8_t cells[HY_CANVAS_LAYERS][HY_CANVAS_ROWS][HY_CANVAS_COLUMNS_MAX];
};

/* The width that plots use: that of the terminal, at most 100 columns; 80 without a terminal. */
int hy_plot_width(const struct hy_style *style);

/* Its size is that of the output's style. */
void hy_canvas_init(struct hy_canvas *c, const struct hy_out *out, const struct hy_plot_axis *x,
                    const struct hy_plot_axis *y);
/* Draws a dot; nothing where it is outside. */
void hy_canvas_point(struct hy_canvas *c, enum hy_canvas_layer layer, double x, double y);
/* Draws a horizontal line at y from x to `to`, and a vertical one there to `y_next`; values above or below the range
 * are drawn at the edge. */
void hy_canvas_step(struct hy_canvas *c, enum hy_canvas_layer layer, double x, double to, double y, double y_next);
/* Appends the plot with its axes. */
void hy_canvas_render(const struct hy_canvas *c, struct hy_out *out);

/* The text with control characters escaped; free it. NULL when out of memory. */
char *hy_printable(const char *text);

#endif
