/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/rank_output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"

#define NEAR_END 2000 /* bytes of earlier output that a new client shows */
#define LAST 4096     /* bytes searched for the last lines */
#define COARSE_MS 50  /* file times use the kernel's coarse clock, which lags behind */

static const char *const names[] = {"stdout", "stderr"};

static char *path_of(const char *logdir, bool is_node, const char *name, int which)
{
    return hy_asprintf("%s/%s=%s/%s", logdir, is_node ? "node" : "rank", name, names[which]);
}

/* The rank whose output is shown alone: rank 0; in a cluster the chief, or the first worker. */
static uint32_t shown_rank(const Hy__RunSpec *spec)
{
    uint32_t first = 0;

    while (first + 1 < spec->ranks && !hy_node_has_rank(spec, (uint64_t)first + 1))
        first++;
    return first;
}

int hy_rank_output_init(struct hy_rank_output *s, const char *logdir, const Hy__RunSpec *spec, bool all)
{
    uint32_t ranks = !all ? 1 : spec->ranks > spec->ranks_max ? spec->ranks : spec->ranks_max;
    struct hy_style style;

    *s = (struct hy_rank_output){.logdir = hy_strdup(logdir),
                                 .ranks = ranks,
                                 .first = all ? 0 : shown_rank(spec),
                                 .are_nodes = hy_spec_is_cluster(spec)};
    s->names = hy_calloc(ranks, sizeof *s->names);
    for (uint32_t i = 0; s->names && i < ranks; i++)
        hy_node_name(spec, (uint64_t)s->first + i + 1, s->names[i]);
    hy_style_of(STDOUT_FILENO, &style);
    hy_out_init(&s->lines, &style);
    hy_style_of(STDERR_FILENO, &style);
    hy_out_init(&s->errors, &style);
    s->tails = hy_calloc(ranks, sizeof *s->tails);
    s->piece = hy_malloc(HY_TAIL_PIECE);
    return s->logdir && s->names && s->tails && s->piece ? 0 : -ENOMEM;
}

/* A file that cannot be read yet is read from its start later. */
static int seek_all(struct hy_rank_output *s, int64_t since_ms)
{
    for (uint32_t i = 0; i < s->ranks; i++)
        for (int which = 0; which < 2; which++) {
            hy_cleanup_free char *path = path_of(s->logdir, s->are_nodes, s->names[i], which);
            struct hy_tail *tail = &s->tails[i][which];

            if (!path)
                return -ENOMEM;
            if ((since_ms ? hy_tail_skip_before(tail, path, since_ms) : hy_tail_near_end(tail, path, NEAR_END)) < 0)
                *tail = (struct hy_tail){0};
        }
    return 0;
}

int hy_rank_output_near_end(struct hy_rank_output *s)
{
    return seek_all(s, 0);
}

int hy_rank_output_since(struct hy_rank_output *s, int64_t wall_ms)
{
    return seek_all(s, wall_ms - COARSE_MS);
}

void hy_rank_output_done(struct hy_rank_output *s)
{
    free(s->logdir);
    free(s->names);
    free(s->tails);
    free(s->piece);
    hy_out_done(&s->lines);
    hy_out_done(&s->errors);
    *s = (struct hy_rank_output){0};
}

static void keep_current(char *room, const unsigned char *text, size_t n)
{
    while (n && text[n - 1] == '\r')
        n--;
    snprintf(room, HY_RANK_OUTPUT_CURRENT, "%.*s", (int)(n < HY_RANK_OUTPUT_CURRENT ? n : HY_RANK_OUTPUT_CURRENT),
             (const char *)text);
}

const char *hy_rank_output_current(const struct hy_rank_output *s)
{
    return *s->current[1] ? s->current[1] : s->current[0]; /* most progress bars are on standard error */
}

static int read_stream(struct hy_rank_output *s, uint32_t rank, int which, bool last, struct hy_out *out)
{
    hy_cleanup_free char *path = path_of(s->logdir, s->are_nodes, s->names[rank], which);
    struct hy_tail *tail = &s->tails[rank][which];
    size_t done;
    bool full;
    ssize_t n;

    if (!path)
        return -ENOMEM;
    n = hy_tail_read(tail, path, s->piece);
    if (n <= 0)
        return 0;
    full = n == HY_TAIL_PIECE;
    s->text.name = s->are_nodes ? s->names[rank] : NULL;
    done = hy_log_format_append(&s->text, out, rank, which == 1, s->piece, (size_t)n, last && !full, full);
    s->text.name = NULL;
    tail->offset += (off_t)done;
    if (rank == 0)
        keep_current(s->current[which], s->piece + done, (size_t)n - done);
    return out->rc < 0 ? out->rc : full;
}

int hy_rank_output_read(struct hy_rank_output *s, bool last, struct hy_out *out, struct hy_out *err)
{
    int rc = 0, more = 0;

    for (uint32_t i = 0; i < s->ranks && rc >= 0; i++)
        for (int which = 0; which < 2 && rc >= 0; which++) {
            rc = read_stream(s, i, which, last, which ? err : out);
            more |= rc > 0;
        }
    return rc < 0 ? rc : more;
}

static int write_lines(struct hy_rank_output *s)
{
    int rc;

    if (s->above && s->above->open) {
        bool some = s->lines.buf.len > 0;

        rc = some ? hy_screen_above(s->above, &s->lines) : 0;
        hy_buf_clear(&s->lines.buf);
        return rc < 0 ? rc : some;
    }
    rc = hy_out_flush(&s->lines, STDOUT_FILENO);
    return rc < 0 ? rc : hy_out_flush(&s->errors, STDERR_FILENO);
}

int hy_rank_output_show(struct hy_rank_output *s, bool last)
{
    int more = s->ranks ? 1 : 0, rc = 0, some = 0;

    while (more > 0 && rc >= 0) {
        more = hy_rank_output_read(s, last, &s->lines, s->above ? &s->lines : &s->errors);
        rc = more < 0 ? more : write_lines(s);
        some |= rc > 0;
    }
    return rc < 0 ? rc : some;
}

/* ---- last lines ----------------------------------------------------------------------- */

/* The offset of the last `lines` lines. */
static size_t beginning(const unsigned char *text, size_t n, size_t lines)
{
    size_t at = n;

    for (; at > 0; at--)
        if (text[at - 1] == '\n' && at < n && lines-- <= 1)
            break;
    return at;
}

static int append_last(struct hy_buf *b, const char *path, uint64_t number, size_t lines)
{
    hy_cleanup_free unsigned char *piece = hy_malloc(HY_TAIL_PIECE);
    struct hy_log_format text = {.escape = true};
    struct hy_tail tail = {0};
    struct hy_out out;
    size_t from;
    ssize_t n;

    if (!path || !piece)
        return -ENOMEM;
    if (hy_tail_near_end(&tail, path, LAST) < 0 || (n = hy_tail_read(&tail, path, piece)) <= 0)
        return 0;
    from = beginning(piece, (size_t)n, lines);
    out = (struct hy_out){.buf = *b};
    hy_log_format_append(&text, &out, (int64_t)number - 1, false, piece + from, (size_t)n - from, true, false);
    *b = out.buf;
    return out.rc;
}

char *hy_last_lines(const char *logdir, const Hy__RunSpec *spec, uint64_t number, size_t lines)
{
    const bool is_node = hy_spec_is_cluster(spec);
    char name[HY_NODE_NAME_MAX];
    const char *node = hy_node_name(spec, number, name);
    hy_cleanup_free char *out = path_of(logdir, is_node, node, 0), *error = path_of(logdir, is_node, node, 1);
    hy_cleanup_buf struct hy_buf b;
    const char *text;
    int rc;

    hy_buf_init(&b, 8 * LAST);
    rc = append_last(&b, error, number, lines);
    if (rc == 0 && b.len == 0)
        rc = append_last(&b, out, number, lines);
    text = rc < 0 ? NULL : hy_buf_cstr(&b);
    return text ? hy_strdup(text) : NULL;
}
