/* SPDX-License-Identifier: Apache-2.0 */
#include "view/plot_canvas.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"

#define INDENT 2
#define WIDTH_MAX 100
#define WIDTH_PIPE 80
#define COLUMNS_MIN 8
#define LABEL 16

/* ---- coordinates -------------------------------------------------------------------------------- */

int hy_plot_width(const struct hy_style *style)
{
    int width = style->width ? style->width : WIDTH_PIPE;

    return width < WIDTH_MAX ? width : WIDTH_MAX;
}

/* From 0 at the low end of an axis to 1 at its high end. Computes with halves, since the difference of two doubles
 * may overflow. */
static double position(const struct hy_plot_axis *a, double value)
{
    if (a->is_log)
        return (log(value) - log(a->low)) / (log(a->high) - log(a->low));
    return (value / 2 - a->low / 2) / (a->high / 2 - a->low / 2);
}

static double value_at(const struct hy_plot_axis *a, double at)
{
    return a->is_log ? exp(log(a->low) * (1 - at) + log(a->high) * at) : a->low * (1 - at) + a->high * at;
}

static int label_of(const struct hy_plot_axis *a, double at, char *ret)
{
    return snprintf(ret, LABEL, "%.4g", value_at(a, at));
}

/* Of the first, the middle and the last row; "" for the others. */
static int label_of_row(const struct hy_plot_axis *y, int row, char *ret)
{
    int middle = HY_CANVAS_ROWS / 2, last = HY_CANVAS_ROWS - 1;

    *ret = '\0';
    if (row != 0 && row != middle && row != last)
        return 0;
    return label_of(y, row == 0 ? 1 : row == last ? 0 : 1 - (middle + 0.5) / HY_CANVAS_ROWS, ret);
}

static int clamped(double at, int count)
{
    double dot = floor(at * (double)count);

    return dot < 0 ? 0 : dot >= (double)count ? count - 1 : (int)dot;
}

/* The dots of an axis; the one of 0 is the leftmost, or the lowest. */
static int dot_x(const struct hy_canvas *c, double x)
{
    return clamped(position(&c->x, x), c->columns * c->dots_x);
}

static int dot_y(const struct hy_canvas *c, double y)
{
    int dots = HY_CANVAS_ROWS * c->dots_y;

    return dots - 1 - clamped(position(&c->y, y), dots);
}

/* ---- drawing ----------------------------------------------------------------------------------------- */

void hy_canvas_init(struct hy_canvas *c, const struct hy_out *out, const struct hy_plot_axis *x,
                    const struct hy_plot_axis *y)
{
    char label[LABEL];

    *c = (struct hy_canvas){
        .x = *x, .y = *y, .dots_x = out->style.unicode ? 2 : 1, .dots_y = out->style.unicode ? 4 : 2};
    for (int row = 0; row < HY_CANVAS_ROWS; row++) {
        int width = label_of_row(y, row, label);

        c->label_width = width > c->label_width ? width : c->label_width;
    }
    c->columns = hy_plot_width(&out->style) - INDENT - c->label_width - 2;
    c->columns = c->columns < COLUMNS_MIN ? COLUMNS_MIN : c->columns;
}

static void set_dot(struct hy_canvas *c, enum hy_canvas_layer layer, int x, int y)
{
    static const uint8_t braille[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    uint8_t bit = c->dots_x == 2 ? braille[y % 4][x % 2] : (uint8_t)(1 << y % 2);

    c->cells[layer][y / c->dots_y][x / c->dots_x] |= bit;
}

void hy_canvas_point(struct hy_canvas *c, enum hy_canvas_layer layer, double x, double y)
{
    double at_x = position(&c->x, x), at_y = position(&c->y, y);

    if (at_x >= 0 && at_x <= 1 && at_y >= 0 && at_y <= 1)
        set_dot(c, layer, dot_x(c, x), dot_y(c, y));
}

void hy_canvas_step(struct hy_canvas *c, enum hy_canvas_layer layer, double x, double to, double y, double y_next)
{
    int end = dot_x(c, to), row = dot_y(c, y), next = dot_y(c, y_next);

    for (int i = dot_x(c, x); i <= end; i++)
        set_dot(c, layer, i, row);
    for (; row != next; row += row < next ? 1 : -1)
        set_dot(c, layer, end, row);
}

/* ---- text --------------------------------------------------------------------------------------------- */

static void render_cell(const struct hy_canvas *c, struct hy_out *out, uint8_t dots)
{
    static const char *const ascii[] = {" ", "'", ".", ":"};
    char braille[4] = {(char)0xe2, (char)(0xa0 | dots >> 6), (char)(0x80 | (dots & 0x3f)), '\0'}; /* U+2800 + dots */

    hy_out_str(out, !dots ? " " : c->dots_x == 2 ? braille : ascii[dots & 3]);
}

static enum hy_canvas_layer layer_at(const struct hy_canvas *c, int row, int column)
{
    return c->cells[HY_CANVAS_FRONT][row][column] ? HY_CANVAS_FRONT : HY_CANVAS_BACK;
}

/* Neighbors of one layer share a color; blanks at the end of a line are left out. */
static void render_row(const struct hy_canvas *c, struct hy_out *out, int row)
{
    int end = c->columns;

    while (end && !c->cells[layer_at(c, row, end - 1)][row][end - 1])
        end--;
    for (int i = 0; i < end;) {
        enum hy_canvas_layer layer = layer_at(c, row, i);

        hy_out_tint_on(out, c->tints[layer]);
        for (; i < end && layer_at(c, row, i) == layer; i++)
            render_cell(c, out, c->cells[layer][row][i]);
        hy_out_tint_off(out, c->tints[layer]);
    }
}

static void render_y_label(const struct hy_canvas *c, struct hy_out *out, int row)
{
    bool unicode = out->style.unicode;
    char label[LABEL];

    label_of_row(&c->y, row, label);
    hy_outf(out, "%*s%*s ", INDENT, "", c->label_width, label);
    hy_out_str(out, *label ? (unicode ? "┤" : "+") : (unicode ? "│" : "|"));
}

/* Writes text at a column of a blank line; text that does not fit is truncated. */
static int put_at(struct hy_out *out, int at, int column, const char *text, int room)
{
    if (room <= 0)
        return at;
    hy_out_repeat(out, " ", column - at);
    return column + hy_out_cut(out, text, strlen(text), room);
}

char *hy_printable(const char *text)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, SIZE_MAX / 2);
    return hy_append_printable(&b, text, strlen(text)) < 0 || !hy_buf_cstr(&b) ? NULL : hy_strdup(hy_buf_cstr(&b));
}

/* Every choice below its dots, or the first and the last if there are too many. */
static void render_choices(const struct hy_canvas *c, struct hy_out *out)
{
    size_t n = c->x.choice_count;
    int room = c->columns / (int)n, at = 0;
    size_t step = room < 4 ? (n > 1 ? n - 1 : 1) : 1;

    room = room < 4 ? c->columns / 2 : room;
    for (size_t i = 0; i < n && out->rc == 0; i += step) {
        hy_cleanup_free char *choice = hy_printable(c->x.choices[i]);
        int width = choice ? hy_columns(choice, strlen(choice)) : 0, from;
        int middle = (int)(((double)i + 0.5) * c->columns / (double)n);

        out->rc = choice ? 0 : -ENOMEM;
        width = width < room - 1 ? width : room - 1;
        from = middle - width / 2;
        from = from < at + (at > 0) ? at + (at > 0) : from;
        from = from + width > c->columns ? c->columns - width : from;
        if (choice)
            at = put_at(out, at, from, choice, width);
    }
}

/* The ends of the axis, and its title between them if it fits. */
static void render_numbers(const struct hy_canvas *c, struct hy_out *out)
{
    hy_cleanup_free char *title = hy_printable(c->x.title);
    char low[LABEL], high[LABEL];
    int high_width = label_of(&c->x, 1, high), title_width, at, from;

    if (!title) {
        out->rc = out->rc ? out->rc : -ENOMEM;
        return;
    }
    label_of(&c->x, 0, low);
    at = put_at(out, 0, 0, low, c->columns);
    title_width = hy_columns(title, strlen(title));
    from = (c->columns - title_width) / 2;
    if (from > at && from + title_width < c->columns - high_width)
        at = put_at(out, at, from, title, title_width);
    if (c->columns - high_width > at)
        put_at(out, at, c->columns - high_width, high, high_width);
}

static void render_x_axis(const struct hy_canvas *c, struct hy_out *out)
{
    bool unicode = out->style.unicode;
    int left = INDENT + c->label_width + 1;

    hy_out_repeat(out, " ", left);
    hy_out_str(out, unicode ? "└" : "+");
    hy_out_repeat(out, unicode ? "─" : "-", c->columns);
    hy_outf(out, "\n%*s", left + 1, "");
    if (c->x.choices)
        render_choices(c, out);
    else
        render_numbers(c, out);
    hy_out_str(out, "\n");
}

void hy_canvas_render(const struct hy_canvas *c, struct hy_out *out)
{
    for (int row = 0; row < HY_CANVAS_ROWS; row++) {
        hy_out_tint_on(out, HY_DIM);
        render_y_label(c, out, row);
        hy_out_tint_off(out, HY_DIM);
        render_row(c, out, row);
        hy_out_str(out, "\n");
    }
    hy_out_tint_on(out, HY_DIM);
    render_x_axis(c, out);
    hy_out_tint_off(out, HY_DIM);
}
