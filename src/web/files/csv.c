/* SPDX-License-Identifier: Apache-2.0 */
#include "web/files/csv.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/string_list.h"

#define SNIFFED_ROWS 20

struct cursor {
    const char *text;
    size_t n, at;
};

static int peek(const struct cursor *c)
{
    return c->at < c->n ? (unsigned char)c->text[c->at] : -1;
}

static int append(struct hy_buf *cell, int byte)
{
    const char c = (char)byte;

    return cell && hy_buf_append(cell, &c, 1) < 0 ? -ENOMEM : 0;
}

/* After the opening quote, up to and including the closing one, or the end of the text. */
static int take_quoted(struct cursor *c, struct hy_buf *cell)
{
    int byte, rc = 0;

    while (rc == 0 && (byte = peek(c)) >= 0) {
        c->at++;
        if (byte == '"' && peek(c) != '"')
            return 0;
        c->at += byte == '"'; /* twice: one quote */
        rc = append(cell, byte);
    }
    return rc;
}

/* Up to the separator, line break or end. `cell` may be NULL. */
static int take_cell(struct cursor *c, char separator, struct hy_buf *cell)
{
    int byte, rc = 0;

    if (peek(c) == '"') {
        c->at++;
        rc = take_quoted(c, cell);
    }
    while (rc == 0 && (byte = peek(c)) >= 0 && byte != separator && byte != '\n' && byte != '\r') {
        rc = append(cell, byte);
        c->at++;
    }
    return rc;
}

static void skip_line_break(struct cursor *c)
{
    if (peek(c) == '\r')
        c->at++;
    if (peek(c) == '\n')
        c->at++;
}

static int keep_cell(struct hy_string_list *cells, struct hy_buf *cell)
{
    const char *text = hy_buf_cstr(cell);

    return !text ? -ENOMEM : cells->count < HY_CSV_CELLS_MAX ? hy_string_list_add(cells, text) : 0;
}

/* Counts the cells; `cells` may be NULL. */
static ssize_t take_row(struct cursor *c, char separator, struct hy_string_list *cells, size_t *ret_count)
{
    hy_cleanup_buf struct hy_buf cell;
    int rc = 0;

    hy_buf_init(&cell, SIZE_MAX);
    *ret_count = 0;
    for (;;) {
        hy_buf_clear(&cell);
        rc = take_cell(c, separator, cells ? &cell : NULL);
        if (rc == 0 && cells)
            rc = keep_cell(cells, &cell);
        ++*ret_count;
        if (rc < 0 || peek(c) != separator)
            return rc;
        c->at++;
    }
}

ssize_t hy_csv_row(const char *text, size_t n, char separator, bool is_end, struct hy_string_list *cells)
{
    hy_cleanup_string_list struct hy_string_list found = {0};
    struct cursor c = {text, n, 0};
    size_t count;
    ssize_t rc = n ? take_row(&c, separator, &found, &count) : 0;

    if (rc < 0 || n == 0)
        return rc;
    if (c.at == n && !is_end) /* a line break may follow, or the rest of the cell */
        return 0;
    skip_line_break(&c);
    for (size_t i = 0; i < found.count; i++) {
        rc = hy_string_list_take(cells, hy_take(found.items[i]));
        if (rc < 0)
            return rc;
    }
    return (ssize_t)c.at;
}

/* How many of the first rows have as many cells as the first one; 0 if that has one only. */
static size_t count_equal(const char *text, size_t n, char separator, size_t *ret_cells)
{
    struct cursor c = {text, n, 0};
    size_t equal = 0;

    *ret_cells = 0;
    for (int i = 0; i < SNIFFED_ROWS && c.at < n; i++) {
        size_t cells = 0;

        (void)take_row(&c, separator, NULL, &cells);
        skip_line_break(&c);
        if (i > 0 && c.at == n && text[n - 1] != '\n') /* may be cut */
            break;
        *ret_cells = i == 0 ? cells : *ret_cells;
        equal += cells == *ret_cells && cells > 1;
    }
    return equal;
}

char hy_csv_separator(const char *text, size_t n)
{
    static const char all[] = {',', ';', '\t', '|'};
    size_t best_equal = 0, best_cells = 0;
    char best = ',';

    for (size_t i = 0; i < sizeof all; i++) {
        size_t cells, equal = count_equal(text, n, all[i], &cells);

        if (equal > best_equal || (equal == best_equal && equal && cells > best_cells)) {
            best = all[i];
            best_equal = equal;
            best_cells = cells;
        }
    }
    return best;
}
