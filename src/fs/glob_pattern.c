/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pattern is parsed into steps: the states of a nondeterministic automaton. A
 * name is read character by character with the set of all states that its prefix
 * can reach, so there is no backtracking.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "fs/fs.h"
#include "fs/glob_pattern.h"

#define NONE ((size_t)-1)

enum kind {
    ONE,   /* this character */
    ANY,   /* any one character */
    STAR,  /* any characters */
    CLASS, /* one of those in `text` */
    OPEN,  /* { */
    NEXT,  /* , inside braces */
    CLOSE, /* } */
    END,
};

struct step {
    enum kind kind;
    uint32_t c;       /* ONE */
    const char *text; /* CLASS: between [ and ] */
    size_t length;
    size_t group; /* OPEN: the enclosing group. NEXT: its group. */
    size_t close; /* OPEN: its CLOSE */
    size_t next;  /* OPEN, NEXT: the following NEXT or CLOSE */
    size_t last;  /* OPEN, while parsing: its last NEXT */
};

struct set { /* of steps, in the order they were added */
    size_t *list, count;
    bool *has;
};

struct hy_glob {
    char *pattern;
    struct step *steps;
    size_t count;
    struct set now, then;
    size_t *stack;
};

/* The character at `s` and its length, n > 0. Bytes that are not UTF-8 map to values above all characters. */
static uint32_t character(const char *s, size_t n, size_t *ret_length)
{
    const size_t length = hy_utf8_len(s, n);
    uint32_t c = (unsigned char)*s;

    *ret_length = length ? length : 1;
    if (length == 0)
        return 0x110000 + c;
    if (length > 1)
        c &= 0xffu >> (length + 1);
    for (size_t i = 1; i < length; i++)
        c = c << 6 | ((unsigned char)s[i] & 0x3f);
    return c;
}

/* The same in a pattern, with an optional backslash before it; a backslash at the end stands for itself. */
static uint32_t escaped(const char *s, size_t n, size_t *ret_length)
{
    uint32_t c;

    if (*s != '\\' || n < 2)
        return character(s, n, ret_length);
    c = character(s + 1, n - 1, ret_length);
    ++*ret_length;
    return c;
}

/* ---- [classes] --------------------------------------------------------------------- */

static bool is_negated(const char *text, size_t n)
{
    return n && (*text == '^' || *text == '!');
}

/* Offset of the ] after the [; n when it is missing. A ] in first position is a character. */
static size_t class_length(const char *text, size_t n)
{
    const size_t first = is_negated(text, n);
    size_t at = first, length;

    while (at < n && (text[at] != ']' || at == first)) {
        escaped(text + at, n - at, &length);
        at += length;
    }
    return at;
}

static bool in_class(const char *text, size_t n, uint32_t c)
{
    const bool negated = is_negated(text, n);
    size_t at = negated, length;

    while (at < n) {
        uint32_t low = escaped(text + at, n - at, &length), high = low;

        at += length;
        if (at + 1 < n && text[at] == '-') {
            high = escaped(text + at + 1, n - at - 1, &length);
            at += 1 + length;
        }
        if (c >= low && c <= high)
            return !negated;
    }
    return negated;
}

/* ---- parsing ------------------------------------------------------------ */

/* A comma or a closing brace of the group `open`. */
static void separate(struct hy_glob *g, size_t open, enum kind kind)
{
    struct step *group = &g->steps[open];

    g->steps[group->last].next = g->count;
    g->steps[g->count].kind = kind;
    g->steps[g->count].group = open;
    group->last = g->count;
    if (kind == CLOSE)
        group->close = g->count;
}

/* Parses one step; *open is the innermost open group. Returns its length, or 0 when a class is not closed. */
static size_t read_step(struct hy_glob *g, const char *s, size_t n, size_t *open)
{
    struct step *step = &g->steps[g->count];
    size_t length = 1;

    if (*s == '*' || *s == '?') {
        step->kind = *s == '*' ? STAR : ANY;
    } else if (*s == '[') {
        *step = (struct step){.kind = CLASS, .text = s + 1, .length = class_length(s + 1, n - 1)};
        length = step->length < n - 1 ? step->length + 2 : 0;
    } else if (*s == '{') {
        *step = (struct step){.kind = OPEN, .group = *open, .last = g->count};
        *open = g->count;
    } else if (*open != NONE && (*s == ',' || *s == '}')) {
        separate(g, *open, *s == ',' ? NEXT : CLOSE);
        *open = *s == '}' ? g->steps[*open].group : *open;
    } else {
        *step = (struct step){.kind = ONE, .c = escaped(s, n, &length)};
    }
    return length;
}

static int read_steps(struct hy_glob *g, size_t n)
{
    size_t open = NONE;

    for (size_t at = 0, length; at < n; at += length, g->count++) {
        length = read_step(g, g->pattern + at, n - at, &open);
        if (length == 0)
            return -EINVAL;
    }
    g->steps[g->count++].kind = END;
    return open == NONE ? 0 : -EINVAL;
}

static bool set_init(struct set *s, size_t n)
{
    s->list = hy_calloc(n, sizeof *s->list);
    s->has = hy_calloc(n, sizeof *s->has);
    return s->list && s->has;
}

int hy_glob_new(const char *pattern, size_t n, struct hy_glob **ret)
{
    hy_cleanup_glob struct hy_glob *g = NULL;
    int rc;

    if (n > HY_GLOB_LENGTH_MAX)
        return -ENAMETOOLONG;
    g = hy_calloc(1, sizeof *g);
    if (!g)
        return -ENOMEM;
    g->pattern = hy_strndup(pattern, n);
    g->steps = hy_calloc(n + 1, sizeof *g->steps);
    if (!g->pattern || !g->steps)
        return -ENOMEM;
    rc = read_steps(g, strlen(g->pattern));
    if (rc < 0)
        return rc;
    /* Each step is pushed at most twice: for itself and by its predecessor. */
    g->stack = hy_calloc(2 * g->count + 1, sizeof *g->stack);
    if (!g->stack || !set_init(&g->now, g->count) || !set_init(&g->then, g->count))
        return -ENOMEM;
    *ret = hy_take(g);
    return 0;
}

void hy_glob_free(struct hy_glob *g)
{
    if (!g)
        return;
    free(g->pattern);
    free(g->steps);
    free(g->now.list);
    free(g->now.has);
    free(g->then.list);
    free(g->then.has);
    free(g->stack);
    free(g);
}

void hy_glob_free_at(struct hy_glob **g)
{
    hy_glob_free(*g);
}

/* ---- matching ------------------------------------------------------ */

/* Pushes the steps reachable from this one without consuming a character. */
static size_t push_followers(const struct hy_glob *g, size_t at, size_t depth)
{
    const struct step *step = &g->steps[at];

    switch (step->kind) {
    case STAR:
        g->stack[depth++] = at + 1;
        break;
    case OPEN:
        g->stack[depth++] = at + 1;
        for (size_t i = step->next; g->steps[i].kind == NEXT; i = g->steps[i].next)
            g->stack[depth++] = i + 1;
        break;
    case NEXT: /* the end of an alternative */
        g->stack[depth++] = g->steps[step->group].close + 1;
        break;
    case CLOSE:
        g->stack[depth++] = at + 1;
        break;
    default:
        break;
    }
    return depth;
}

static void set_add(const struct hy_glob *g, struct set *s, size_t at)
{
    size_t depth = 0;

    g->stack[depth++] = at;
    while (depth) {
        at = g->stack[--depth];
        if (s->has[at])
            continue;
        s->has[at] = true;
        s->list[s->count++] = at;
        depth = push_followers(g, at, depth);
    }
}

static void set_clear(struct set *s)
{
    while (s->count)
        s->has[s->list[--s->count]] = false;
}

static void read_character(struct hy_glob *g, uint32_t c)
{
    const struct set before = g->now;

    for (size_t i = 0; i < before.count; i++) {
        const size_t at = before.list[i];
        const struct step *step = &g->steps[at];

        if (step->kind == STAR)
            set_add(g, &g->then, at);
        else if (step->kind == ANY || (step->kind == ONE && step->c == c) ||
                 (step->kind == CLASS && in_class(step->text, step->length, c)))
            set_add(g, &g->then, at + 1);
    }
    set_clear(&g->now);
    g->now = g->then;
    g->then = (struct set){.list = before.list, .has = before.has};
}

bool hy_glob_matches(struct hy_glob *g, const char *name, size_t n)
{
    bool matches;

    set_add(g, &g->now, 0);
    for (size_t at = 0, length; at < n && g->now.count; at += length)
        read_character(g, character(name + at, n - at, &length));
    matches = g->now.has[g->count - 1];
    set_clear(&g->now);
    return matches;
}

bool hy_fs_glob_matches(const char *pattern, const char *name)
{
    hy_cleanup_glob struct hy_glob *g = NULL;

    return hy_glob_new(pattern, strlen(pattern), &g) == 0 && hy_glob_matches(g, name, strlen(name));
}

/* ---- escapes -------------------------------------------------------------------------- */

bool hy_glob_is_pattern(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\\')
            i++;
        else if (text[i] && strchr("*?[{", text[i]))
            return true;
    }
    return false;
}

char *hy_glob_unescape(const char *text, size_t n)
{
    char *plain = hy_malloc(n + 1), *to = plain;

    for (size_t i = 0; plain && i < n; i++) {
        if (text[i] == '\\' && i + 1 < n)
            i++;
        *to++ = text[i];
    }
    if (plain)
        *to = '\0';
    return plain;
}

/* ---- braces that span components --------------------------------------------------- */

#define STEPS_MAX 2000 /* patterns, including those that still have braces to expand */
#define DEPTH_MAX 64   /* consecutive or nested groups: each is a recursive call of expand */

struct expansion {
    int (*take)(void *arg, const char *one);
    void *arg;
    size_t count;
};

/* Length of the token at `s`. Escaped characters and classes are one token; a slash cannot be escaped. 0: a class is
 * not closed within its component. */
static size_t skip(const char *s)
{
    size_t n, length;

    if (s[0] == '\\' && s[1] && s[1] != '/')
        return 2;
    if (s[0] != '[')
        return 1;
    n = strcspn(s, "/") - 1;
    length = class_length(s + 1, n);
    return length < n ? length + 2 : 0;
}

/* The functions below rely on closed classes and braces. */
static bool is_closed(const char *pattern)
{
    size_t depth = 0;

    for (size_t n; *pattern; pattern += n) {
        n = skip(pattern);
        if (n == 0)
            return false;
        depth += *pattern == '{';
        depth -= *pattern == '}' && depth;
    }
    return depth == 0;
}

/* The } of the { at `s`, and whether there is a slash in between. */
static const char *closing(const char *s, bool *ret_slash)
{
    size_t depth = 0;

    *ret_slash = false;
    for (;; s += skip(s)) {
        depth += *s == '{';
        *ret_slash |= *s == '/';
        if (*s == '}' && --depth == 0)
            return s;
    }
}

/* The first outermost brace that contains a slash, or NULL. */
static const char *slashed_brace(const char *s, const char **ret_close)
{
    while (*s) {
        bool slash;

        if (*s != '{') {
            s += skip(s);
            continue;
        }
        *ret_close = closing(s, &slash);
        if (slash)
            return s;
        s = *ret_close + 1;
    }
    return NULL;
}

/* The end of the alternative that begins at `s`: its comma, or `close`. */
static const char *alternative_end(const char *s, const char *close)
{
    size_t depth = 0;

    while (s < close && (*s != ',' || depth)) {
        depth += *s == '{';
        depth -= *s == '}';
        s += skip(s);
    }
    return s;
}

static int expand(struct expansion *x, const char *pattern, int depth)
{
    const char *close, *open = slashed_brace(pattern, &close);
    int rc = 0;

    if (++x->count > STEPS_MAX || depth > DEPTH_MAX)
        return -E2BIG;
    if (!open)
        return x->take(x->arg, pattern);
    for (const char *s = open, *end; s < close && rc == 0; s = end) {
        hy_cleanup_free char *one = NULL;

        end = alternative_end(s + 1, close);
        one = hy_asprintf("%.*s%.*s%s", (int)(open - pattern), pattern, (int)(end - s - 1), s + 1, close + 1);
        rc = one ? expand(x, one, depth + 1) : -ENOMEM;
    }
    return rc;
}

int hy_glob_expand(const char *pattern, int (*take)(void *arg, const char *one), void *arg)
{
    struct expansion x = {.take = take, .arg = arg};

    if (strlen(pattern) > HY_GLOB_LENGTH_MAX)
        return -ENAMETOOLONG;
    return is_closed(pattern) ? expand(&x, pattern, 0) : -EINVAL;
}
