/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A page of a run's trials in any order.
 *
 * The keys of all trials are read, sorted here, and the rows of the page looked up by number: that takes half the
 * time of SQLite's ORDER BY, which would sort by the same keys for every page too.
 */
#include "store/internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"

#define TEXTS_MAX (256u << 20)

enum kind { NUMBER, TEXT, MISSING };

struct entry {
    int64_t number;
    enum kind kind;
    double key;
    size_t text; /* where it starts in `texts` */
};

struct sorting {
    struct entry *entries;
    size_t count;
    struct hy_buf texts;
    bool descending;
};

static void sorting_done(struct sorting *s)
{
    free(s->entries);
    hy_buf_done(&s->texts);
}

/* ---- keys ---------------------------------------------------------------------- */

#define KEYS(expression) "SELECT number, " expression " FROM trials WHERE run = ?1 AND (?2 = 0 OR state = ?2)"

static const char *const keys[] = {
    [HY_TRIAL_NUMBER] = KEYS("number"),
    [HY_TRIAL_VALUE] = KEYS("score"),
    [HY_TRIAL_STATE] = KEYS("state"),
    [HY_TRIAL_TIME] = KEYS("iif(ended > 0, ended, ?3) - started"),
    [HY_TRIAL_PARAM] = KEYS("iif(json_valid(params), json_extract(params, ?3), NULL)"),
};

/* `$."NAME"`: such a path can name anything that has no quotation marks. */
static char *json_path(const char *name, struct hy_err *err)
{
    char *path;

    if (!name || !*name || strpbrk(name, "\"\\")) {
        hy_err_set(err, -EINVAL, "cannot sort by the hyperparameter '%s'", name ? name : "");
        return NULL;
    }
    path = hy_asprintf("$.\"%s\"", name);
    if (!path)
        hy_err_oom(err);
    return path;
}

static int add_text(struct sorting *s, struct entry *e, const char *text)
{
    e->kind = TEXT;
    e->text = s->texts.len;
    return hy_buf_append(&s->texts, text, strlen(text) + 1);
}

static int add_entry(struct sorting *s, struct hy_query *q, struct hy_err *err)
{
    struct entry e = {.number = hy_column_i64(q, 0), .kind = MISSING};
    int type = sqlite3_column_type(q->stmt, 1), rc = 0;

    if (type == SQLITE_INTEGER || type == SQLITE_FLOAT) {
        e.kind = NUMBER;
        e.key = hy_column_double(q, 1);
    } else if (type == SQLITE_TEXT) {
        const char *text = hy_column_text(q, 1);

        rc = text ? add_text(s, &e, text) : -ENOMEM;
    }
    if (rc < 0 || hy_array_grow(s->entries, s->count) < 0)
        return hy_err_oom(err);
    s->entries[s->count++] = e;
    return 0;
}

static int read_keys(struct hy_store *store, int64_t run, const struct hy_trial_page *page, struct sorting *ret,
                     struct hy_err *err)
{
    hy_cleanup_free char *path = page->key == HY_TRIAL_PARAM ? json_path(page->param, err) : NULL;
    hy_cleanup_query struct hy_query q = {0};
    int rc;

    if (page->key == HY_TRIAL_PARAM && !path)
        return err->code;
    rc = hy_query_open(&q, store, HY_SQL_ONCE, keys[page->key], err);
    if (rc < 0)
        return rc;
    hy_query_i64(&q, run);
    hy_query_i64(&q, page->state);
    if (page->key == HY_TRIAL_TIME)
        hy_query_i64(&q, hy_clock_wall_ms());
    else if (path)
        hy_query_text(&q, path);
    while ((rc = hy_query_step(&q, err)) > 0) {
        rc = add_entry(ret, &q, err);
        if (rc < 0)
            return rc;
    }
    return rc;
}

/* ---- the order ------------------------------------------------------------------- */

static int compare(const void *a, const void *b, void *arg)
{
    const struct entry *x = a, *y = b;
    const struct sorting *s = arg;
    const char *texts = (const char *)hy_buf_bytes(&s->texts);
    int order = 0;

    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1; /* in both directions those without a key are last */
    if (x->kind == NUMBER)
        order = (x->key > y->key) - (x->key < y->key);
    else if (x->kind == TEXT)
        order = strcmp(texts + x->text, texts + y->text);
    if (order)
        return s->descending ? -order : order;
    return (x->number > y->number) - (x->number < y->number);
}

int hy_store_trial_page(struct hy_store *s, int64_t run, const struct hy_trial_page *page, hy_trial_cb cb, void *arg,
                        int64_t *ret_count, struct hy_err *err)
{
    struct hy_err why = {0};
    struct sorting all = {.descending = page->descending};
    int rc;

    hy_buf_init(&all.texts, TEXTS_MAX);
    rc = read_keys(s, run, page, &all, err ? err : &why);
    if (rc == 0 && all.count)
        qsort_r(all.entries, all.count, sizeof *all.entries, compare, &all);
    for (int64_t i = 0; rc == 0 && i < page->limit && i < (int64_t)all.count - page->offset; i++)
        rc = hy_store_trial_each(s, run, all.entries[page->offset + i].number, HY_TRIALS_BY_NUMBER, 0, 0, cb, arg, err);
    *ret_count = (int64_t)all.count;
    sorting_done(&all);
    return rc;
}
