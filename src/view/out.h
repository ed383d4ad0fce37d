/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text on its way to a person: what the terminal can do, colors, and widths
 * in columns rather than bytes. Everything that renders does it into a hy_out
 * and never to a file, so that it can be tested as text.
 */
#ifndef HY_VIEW_OUT_H
#define HY_VIEW_OUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

struct hy_style {
    int width, height; /* of the terminal; width 0: as wide as it needs */
    bool terminal;     /* a person sees it at once; false: a pipe or a file */
    bool color;
    bool unicode; /* symbols beyond ASCII may be used */
    bool html;    /* it goes into a page: values are escaped, tints are spans */
};

enum hy_tint { HY_PLAIN, HY_BOLD, HY_DIM, HY_RED, HY_GREEN, HY_YELLOW, HY_CYAN, HY_BEST };

/* Sets up the character type for widths. Call once, before the rest. */
void hy_style_init(void);
/* What `fd` is: asks the terminal, TERM, NO_COLOR and the locale. */
void hy_style_of(int fd, struct hy_style *ret);

/* How many columns UTF-8 text takes; bytes that are no UTF-8 count as one. */
int hy_columns(const char *text, size_t n);
/* How many bytes of the text fit into `columns`; *ret_columns: what they take. */
size_t hy_fit(const char *text, size_t n, int columns, int *ret_columns);

struct hy_out {
    struct hy_buf buf;     /* what was written so far */
    struct hy_style style; /* read-only */
    int rc;                /* the first failure; what follows it is skipped */
};

void hy_out_init(struct hy_out *o, const struct hy_style *style);
void hy_out_done(struct hy_out *o);
#define hy_cleanup_out __attribute__((cleanup(hy_out_done)))

void hy_out_bytes(struct hy_out *o, const void *bytes, size_t n);
/* Our own words. */
void hy_out_str(struct hy_out *o, const char *text);
void hy_outf(struct hy_out *o, const char *fmt, ...) HY_PRINTF(2, 3);
/* Somebody else's words: made printable, and harmless in a page. NULL is nothing. */
void hy_out_value(struct hy_out *o, const char *text);
/* The same in a color. */
void hy_out_tint(struct hy_out *o, enum hy_tint tint, const char *text);
/* Begins and ends a color; nothing where colors are off. */
void hy_out_tint_on(struct hy_out *o, enum hy_tint tint);
void hy_out_tint_off(struct hy_out *o, enum hy_tint tint);
/* At most `columns` of printable text, cut with an ellipsis. Returns the columns taken. */
int hy_out_cut(struct hy_out *o, const char *text, size_t n, int columns);
void hy_out_repeat(struct hy_out *o, const char *text, int times);

/* Writes everything to `fd` and empties it. 0 or -Exxx (o->rc first). */
int hy_out_flush(struct hy_out *o, int fd);

/* One sentence on standard error, "hopyard WHAT: …"; `what` may be NULL. */
void hy_print_error(const char *what, const struct hy_err *err);
/* One on standard error, "note: …". */
void hy_print_note(const char *text);

#endif
