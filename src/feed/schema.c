/* SPDX-License-Identifier: Apache-2.0 */
#include "feed/feed.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

#define FIRST_NODES 16
#define KEY_MAX 60000u

struct text {
    const char *at, *end;
};

static bool is_value(char kind)
{
    return kind && strchr("fibsy", kind);
}

static bool is_keyed(char kind)
{
    return kind == '{' || kind == '<';
}

static char closing_of(char kind)
{
    return kind == '(' ? ')' : kind == '[' ? ']' : kind == '{' ? '}' : kind == '<' ? '>' : '\0';
}

void hy_feed_schema_done(struct hy_feed_schema *s)
{
    free(s->nodes);
    *s = (struct hy_feed_schema){0};
}

struct hy_feed_schema_node *hy_feed_schema_add(struct hy_feed_schema *s, char kind)
{
    if (s->count == s->room) {
        const size_t room = s->room ? 2 * s->room : FIRST_NODES;
        struct hy_feed_schema_node *nodes = NULL;

        if (room <= HY_FEED_SCHEMA_NODES_MAX)
            nodes = hy_reallocarray(s->nodes, room, sizeof *nodes);
        if (!nodes)
            return NULL;
        s->nodes = nodes;
        s->room = room;
    }
    s->nodes[s->count] = (struct hy_feed_schema_node){.kind = kind, .column = closing_of(kind) ? 0 : s->columns};
    s->columns += !closing_of(kind);
    return &s->nodes[s->count++];
}

/* ---- writing ----------------------------------------------------------------------- */

static int write_node(const struct hy_feed_schema *s, size_t *at, struct hy_buf *b)
{
    const struct hy_feed_schema_node *n = &s->nodes[(*at)++];
    const char ends = closing_of(n->kind);
    int rc = hy_buf_append(b, &n->kind, 1);

    if (rc == 0 && n->kind == 'l')
        rc = hy_buf_append(b, &n->element, 1);
    for (uint32_t i = 0; i < n->count && rc == 0; i++) {
        const struct hy_feed_schema_node *child = &s->nodes[*at];

        if (is_keyed(n->kind)) {
            rc = hy_buf_printf(b, "%zu:", child->key_n);
            if (rc == 0)
                rc = hy_buf_append(b, child->key, child->key_n);
        }
        if (rc == 0)
            rc = write_node(s, at, b);
    }
    return rc == 0 && ends ? hy_buf_append(b, &ends, 1) : rc;
}

int hy_feed_schema_write(const struct hy_feed_schema *s, struct hy_buf *b)
{
    size_t at = 0;

    return write_node(s, &at, b);
}

/* ---- parsing ----------------------------------------------------------------------- */

/* The next character that is not a space, or NUL at the end. */
static char next_char(struct text *t)
{
    while (t->at < t->end && *t->at == ' ')
        t->at++;
    return t->at < t->end ? *t->at : '\0';
}

static int parse_key(struct text *t, const char **ret, size_t *ret_n)
{
    size_t n = 0;
    bool has_digits = false;

    next_char(t);
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9' && n < KEY_MAX; t->at++, has_digits = true)
        n = 10 * n + (size_t)(*t->at - '0');
    if (!has_digits || t->at == t->end || *t->at != ':' || n > (size_t)(t->end - t->at - 1))
        return -EBADMSG;
    *ret = t->at + 1;
    *ret_n = n;
    t->at += 1 + n;
    return 0;
}

static int parse_node(struct text *t, struct hy_feed_schema *s, const char *key, size_t key_n, unsigned depth);

static int parse_inside(struct text *t, struct hy_feed_schema *s, size_t self, unsigned depth)
{
    const char kind = s->nodes[self].kind;
    char c;

    while ((c = next_char(t)) != closing_of(kind)) {
        const char *key = NULL;
        size_t key_n = 0;
        int rc = c == '\0' ? -EBADMSG : is_keyed(kind) ? parse_key(t, &key, &key_n) : 0;

        if (rc == 0)
            rc = parse_node(t, s, key, key_n, depth + 1);
        if (rc < 0)
            return rc;
        s->nodes[self].count++;
    }
    t->at++;
    return 0;
}

static int parse_node(struct text *t, struct hy_feed_schema *s, const char *key, size_t key_n, unsigned depth)
{
    const char kind = next_char(t);
    struct hy_feed_schema_node *n;

    if (depth > HY_FEED_SCHEMA_DEPTH_MAX ||
        (!is_value(kind) && !closing_of(kind) && kind != 'l' && kind != 'a' && kind != '*') ||
        (kind == '*' && depth > 0))
        return -EBADMSG;
    t->at++;
    n = hy_feed_schema_add(s, kind);
    if (!n)
        return s->count >= HY_FEED_SCHEMA_NODES_MAX ? -EBADMSG : -ENOMEM;
    n->key = key;
    n->key_n = key_n;
    if (kind == 'l') {
        n->element = t->at < t->end ? *t->at++ : '\0';
        return is_value(n->element) ? 0 : -EBADMSG;
    }
    return closing_of(kind) ? parse_inside(t, s, s->count - 1, depth) : 0;
}

int hy_feed_schema_parse(const char *text, size_t n, struct hy_feed_schema *s)
{
    struct text t = {text, text + n};
    int rc;

    s->count = 0;
    s->columns = 0;
    rc = parse_node(&t, s, NULL, 0, 0);
    return rc < 0 ? rc : next_char(&t) == '\0' && t.at == t.end ? 0 : -EBADMSG;
}

/* ---- matching columns -------------------------------------------------------------- */

static bool has_dtype(char value, enum hy_dtype dtype)
{
    return value == 'f'   ? dtype == HY_DTYPE_FLOAT64
           : value == 'i' ? dtype == HY_DTYPE_INT64
           : value == 'b' ? dtype == HY_DTYPE_BOOL
           : value == 's' ? dtype == HY_DTYPE_STR
                          : dtype == HY_DTYPE_BYTES;
}

/* A list object is created for every element of the outer dimensions. With no dimension of 0 they cannot outnumber the
 * values, so that a small message cannot make a reader create many objects. */
static bool is_list(const struct hy_batch_column *c)
{
    for (unsigned i = 0; i < c->dims; i++)
        if (c->shape[i] == 0)
            return false;
    return c->dims > 0 || c->is_ragged;
}

static bool fits_column(const struct hy_feed_schema_node *n, const struct hy_batch_column *c)
{
    if (n->kind == 'l')
        return has_dtype(n->element, c->dtype) && is_list(c);
    if (n->kind == 'a')
        return hy_dtype_size(c->dtype) > 0;
    if (n->kind == '*')
        return c->dtype == HY_DTYPE_PICKLE;
    return has_dtype(n->kind, c->dtype) && c->dims == 0 && !c->is_ragged;
}

int hy_feed_schema_check(const struct hy_feed_schema *s, const struct hy_batch *b)
{
    if (s->columns != b->count)
        return -EBADMSG;
    for (size_t i = 0; i < s->count; i++)
        if (!closing_of(s->nodes[i].kind) && !fits_column(&s->nodes[i], &b->columns[s->nodes[i].column]))
            return -EBADMSG;
    return 0;
}
