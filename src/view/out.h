/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Styled text: capabilities of the terminal, colors, and widths in columns
 * rather than bytes. All rendering appends to a hy_out and never writes to a
 * file, so that tests compare strings.
 */
#ifndef HY_VIEW_OUT_H
#define HY_VIEW_OUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

struct hy_style {
    int width, height; /* of the terminal; width 0: unlimited */
    bool terminal;     /* false: a pipe or a file */
    bool color;
    bool unicode; /* symbols beyond ASCII may be used */
    bool html;    /* HTML output: values are escaped, tints are spans */
};

enum hy_tint { HY_PLAIN, HY_BOLD, HY_DIM, HY_RED, HY_GREEN, HY_YELLOW, HY_CYAN, HY_BEST };

/* Sets the locale that character widths need. Call once, before all other functions. */
void hy_style_init(void);
/* The style for `fd`, from the terminal, TERM, NO_COLOR and the locale. */
void hy_style_of(int fd, struct hy_style *ret);

/* The width of UTF-8 text in columns; bytes that are not valid UTF-8 count as one. */
int hy_columns(const char *text, size_t n);
/* The number of bytes of the text that fit into `columns`; *ret_columns: their width. */
size_t hy_fit(const char *text, size_t n, int columns, int *ret_columns);

struct hy_out {
    struct hy_buf buf;     /* the text so far */
    struct hy_style style; /* read-only */
    int rc;                /* the first error; later calls do nothing */
};

void hy_out_init(struct hy_out *o, const struct hy_style *style);
void hy_out_done(struct hy_out *o);
#define hy_cleanup_out __attribute__((cleanup(hy_out_done)))

void hy_out_bytes(struct hy_out *o, const void *bytes, size_t n);
/* Trusted text: appended unchanged. */
void hy_out_str(struct hy_out *o, const char *text);
void hy_outf(struct hy_out *o, const char *fmt, ...) HY_PRINTF(2, 3);
/* Untrusted text: made printable, and escaped for HTML. NULL appends nothing. */
void hy_out_value(struct hy_out *o, const char *text);
/* The same, in a color. */
void hy_out_tint(struct hy_out *o, enum hy_tint tint, const char *text);
/* Starts and ends a color; nothing when colors are off. */
void hy_out_tint_on(struct hy_out *o, enum hy_tint tint);
void hy_out_tint_off(struct hy_out *o, enum hy_tint tint);
/* Appends at most `columns` of printable text, cut with an ellipsis. Returns the columns used. */
int hy_out_cut(struct hy_out *o, const char *text, size_t n, int columns);
void hy_out_repeat(struct hy_out *o, const char *text, int times);

/* Writes everything to `fd` and clears the buffer. 0 or -Exxx (o->rc first). */
int hy_out_flush(struct hy_out *o, int fd);

/* Prints "hopyard WHAT: …" on standard error; `what` may be NULL. */
void hy_print_error(const char *what, const struct hy_err *err);
/* Prints "note: …" on standard error. */
void hy_print_note(const char *text);

#endif
