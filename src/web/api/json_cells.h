/* SPDX-License-Identifier: Apache-2.0 */
/* The elements of a JSON array, as text: many values without a JSON object for each. */
#ifndef HY_WEB_JSON_CELLS_H
#define HY_WEB_JSON_CELLS_H

#include <stddef.h>
#include <stdint.h>

#include "view/view.h"

struct hy_cells {
    struct hy_out out; /* private; out.rc is the first error, after which nothing is added (-ENOBUFS: too long) */
    size_t count;      /* read-only */
};

void hy_cells_init(struct hy_cells *c);
void hy_cells_done(struct hy_cells *c);

void hy_cells_null(struct hy_cells *c);
void hy_cells_integer(struct hy_cells *c, int64_t value);
void hy_cells_number(struct hy_cells *c, double value); /* null for NaN and infinities */
void hy_cells_seconds(struct hy_cells *c, int64_t ms);  /* 1.25 */
void hy_cells_json(struct hy_cells *c, const char *text, size_t n); /* valid JSON */
void hy_cells_text(struct hy_cells *c, const char *text);

/* Appends `"name":[…]`; their error, if there was one, becomes that of `out`. */
void hy_cells_append_as(const struct hy_cells *c, const char *json_name, struct hy_out *out); /* "\"name\"" */
void hy_cells_append(const struct hy_cells *c, const char *name, struct hy_out *out);
/* Appends a text as JSON. */
void hy_json_out_text(struct hy_out *out, const char *text);

#endif
