/* SPDX-License-Identifier: Apache-2.0 */
/* The first rows of a CSV file. Pure functions over text. */
#ifndef HY_WEB_CSV_H
#define HY_WEB_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct hy_string_list;

enum { HY_CSV_CELLS_MAX = 200 };

/* The separator that divides the first lines into the most equal rows: ',', ';', tab or '|'. */
char hy_csv_separator(const char *text, size_t n);
/*
 * Appends the cells of the first row: at most HY_CSV_CELLS_MAX, the rest is dropped. A cell may be in quotes, and then
 * contain separators, line breaks, and quotes twice. Returns the length of the row with its line break; 0 when it is
 * not complete, unless `is_end` (the text is the end of the file); or -ENOMEM.
 */
ssize_t hy_csv_row(const char *text, size_t n, char separator, bool is_end, struct hy_string_list *cells);

#endif
