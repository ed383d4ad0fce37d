/* SPDX-License-Identifier: Apache-2.0 */
#include "web/api/json_cells.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"

#define CELLS_MAX (16u << 20)

void hy_cells_init(struct hy_cells *c)
{
    *c = (struct hy_cells){0};
    hy_out_init(&c->out, &(struct hy_style){0});
    hy_buf_init(&c->out.buf, CELLS_MAX);
}

void hy_cells_done(struct hy_cells *c)
{
    hy_out_done(&c->out);
}

static void add(struct hy_cells *c, const char *text)
{
    if (c->count++)
        hy_out_bytes(&c->out, ",", 1);
    hy_out_str(&c->out, text);
}

void hy_cells_null(struct hy_cells *c)
{
    add(c, "null");
}

void hy_cells_integer(struct hy_cells *c, int64_t value)
{
    char text[32];

    snprintf(text, sizeof text, "%lld", (long long)value);
    add(c, text);
}

void hy_cells_number(struct hy_cells *c, double value)
{
    char text[40];

    add(c, isfinite(value) ? hy_format_double(value, text, sizeof text) : "null");
}

void hy_cells_seconds(struct hy_cells *c, int64_t ms)
{
    char text[40];

    snprintf(text, sizeof text, "%s%lld.%03lld", ms < 0 ? "-" : "", llabs(ms) / 1000, llabs(ms) % 1000);
    add(c, text);
}

void hy_cells_json(struct hy_cells *c, const char *text, size_t n)
{
    add(c, "");
    hy_out_bytes(&c->out, text, n);
}

void hy_cells_text(struct hy_cells *c, const char *text)
{
    add(c, "");
    hy_json_out_text(&c->out, text);
}

void hy_json_out_text(struct hy_out *out, const char *text)
{
    hy_cleanup_json json_t *value = hy_json_text(text);

    if (out->rc == 0)
        out->rc = value ? hy_json_append_compact(&out->buf, value) : -ENOMEM;
}

void hy_cells_append_as(const struct hy_cells *c, const char *json_name, struct hy_out *out)
{
    if (out->rc == 0)
        out->rc = c->out.rc;
    hy_out_str(out, json_name);
    hy_out_str(out, ":[");
    hy_out_bytes(out, hy_buf_bytes(&c->out.buf), c->out.buf.len);
    hy_out_str(out, "]");
}

void hy_cells_append(const struct hy_cells *c, const char *name, struct hy_out *out)
{
    hy_json_out_text(out, name);
    hy_cells_append_as(c, "", out);
}
