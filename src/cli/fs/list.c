/* SPDX-License-Identifier: Apache-2.0 */
/* `hopyard fs ls`, `stat`, `du` and `df`. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/fs/commands.h"
#include "view/view.h"
#include "cli/fs/mode.h"
#include "fs/fs.h"

#define ROWS_AT_ONCE 2000 /* rows that are aligned with each other */

/* Output for standard output: a table, or JSON. */
struct table {
    struct hy_out out;
    struct hy_text_table *grid; /* NULL: JSON */
    struct hy_text_table_layout widths;
    void (*columns)(struct hy_text_table *grid);
    const struct hy_args *args;
    size_t rows, printed;
    bool human, titles;
    int broken; /* -Exxx: standard output cannot be written */
    int status; /* the exit status for errors printed here */
};

static int table_begin(struct table *t, const struct hy_args *args, void (*columns)(struct hy_text_table *grid))
{
    struct hy_style style;

    *t = (struct table){.args = args, .columns = columns, .human = hy_args_has(args, "human")};
    hy_style_of(STDOUT_FILENO, &style);
    style.width = 0; /* never cut paths */
    hy_out_init(&t->out, &style);
    if (hy_args_has(args, "json")) {
        hy_out_str(&t->out, "[");
        return 0;
    }
    t->grid = hy_text_table_new();
    if (!t->grid)
        return -ENOMEM;
    columns(t->grid);
    return 0;
}

/* Prints the rows so far and starts a new table. 0 or -Exxx. */
static int table_print(struct table *t)
{
    int rc = 0;

    if (t->grid && t->rows) {
        hy_text_table_remember(t->grid, &t->widths);
        rc = hy_text_table_render(t->grid, &t->out, t->titles && t->printed == 0);
        hy_text_table_free(t->grid);
        t->grid = hy_text_table_new();
        if (t->grid)
            t->columns(t->grid);
        else
            rc = rc < 0 ? rc : -ENOMEM;
    }
    t->printed += t->rows;
    t->rows = 0;
    return rc < 0 ? rc : hy_out_flush(&t->out, STDOUT_FILENO);
}

/* A row is complete. 1: standard output cannot be written, stop. */
static int table_next(struct table *t)
{
    if (++t->rows >= ROWS_AT_ONCE)
        t->broken = table_print(t);
    return t->broken < 0;
}

/* Takes the object. */
static int table_json(struct table *t, json_t *object)
{
    hy_out_str(&t->out, t->printed + t->rows ? ",\n " : "");
    hy_json_take(&t->out, object);
    return table_next(t);
}

/* An error inside of a directory does not end its listing. */
static int table_complain(struct table *t, struct hy_err *err)
{
    t->status = hy_files_print_error(err);
    *err = (struct hy_err){0};
    return 0;
}

static int table_end(struct table *t, int status)
{
    struct hy_err err = {0};

    if (hy_args_has(t->args, "json"))
        hy_out_str(&t->out, "]\n");
    if (t->broken == 0)
        t->broken = table_print(t);
    hy_text_table_free(t->grid);
    hy_out_done(&t->out);
    if (t->broken < 0 && t->broken != -EPIPE) {
        hy_err_sys(&err, t->broken, "cannot print");
        return hy_files_print_error(&err);
    }
    return status == HY_EXIT_OK ? t->status : status;
}

/* For each word, or for the current directory if there is none. */
static int table_of_words(struct table *t, const struct hy_args *args, hy_files_act *act)
{
    static char here[] = ".";
    char *list[] = {here};
    const struct hy_urls only = {.list = list, .count = 1};

    return args->word_count ? hy_files_each_word(args, 0, act, t) : hy_files_each(&only, act, t);
}

static int run_table(const struct hy_args *args, void (*columns)(struct hy_text_table *grid), bool titles,
                     hy_files_act *act)
{
    struct table t;
    struct hy_err err = {0};
    int status;

    if (table_begin(&t, args, columns) < 0) {
        hy_err_oom(&err);
        hy_out_done(&t.out);
        return hy_files_print_error(&err);
    }
    t.titles = titles;
    status = table_of_words(&t, args, act);
    return table_end(&t, status);
}

/* ---- cells ------------------------------------------------------------------------- */

static void size_cell(struct table *t, uint64_t bytes)
{
    char text[40];

    if (t->human)
        hy_text_table_cell(t->grid, HY_PLAIN, hy_format_size(bytes, text, sizeof text));
    else
        hy_text_table_cellf(t->grid, HY_PLAIN, "%llu", (unsigned long long)bytes);
}

/* Local time, like Hadoop's shell. */
static const char *time_text(int64_t ms, const char *format, char *text, size_t size)
{
    const time_t seconds = (time_t)(ms / 1000);
    struct tm when;

    if (ms == 0 || !localtime_r(&seconds, &when) || strftime(text, size, format, &when) == 0)
        snprintf(text, size, "-");
    return text;
}

static const char *type_of(const struct hy_fs_info *info)
{
    return info->is_dir ? "folder" : "file";
}

static json_t *info_json(const char *url, const struct hy_fs_info *info)
{
    json_t *o = json_object();
    char mode[8];
    int rc;

    snprintf(mode, sizeof mode, "%04o", info->mode & 07777);
    rc = hy_json_set(o, "path", hy_json_text(url));
    rc |= hy_json_set(o, "type", json_string(type_of(info)));
    rc |= hy_json_set(o, "link", json_boolean(info->is_link));
    rc |= hy_json_set(o, "size", json_integer((json_int_t)info->size));
    rc |= hy_json_set(o, "mode", json_string(mode));
    rc |= hy_json_set(o, "owner", hy_json_text(info->owner));
    rc |= hy_json_set(o, "group", hy_json_text(info->group));
    rc |= hy_json_set(o, "replication", json_integer(info->replication));
    rc |= hy_json_set(o, "block_size", json_integer((json_int_t)info->block_size));
    rc |= hy_json_set(o, "modified_ms", json_integer(info->modified_ms));
    rc |= hy_json_set(o, "accessed_ms", info->accessed_ms ? json_integer(info->accessed_ms) : json_null());
    if (rc == 0)
        return o;
    json_decref(o);
    return NULL;
}

/* ---- ls ---------------------------------------------------------------------------- */

static void ls_columns(struct hy_text_table *g)
{
    static const int flags[] = {0, HY_TABLE_RIGHT, 0, 0, HY_TABLE_RIGHT, 0, 0};

    for (size_t i = 0; i < HY_COUNT(flags); i++)
        hy_text_table_column(g, "", flags[i], 0);
}

static int ls_row(struct table *t, const char *url, const struct hy_fs_info *info)
{
    char rights[HY_RIGHTS_TEXT], when[40];

    if (!t->grid)
        return table_json(t, info_json(url, info));
    hy_rights_text(info->mode, rights);
    hy_text_table_cellf(t->grid, HY_PLAIN, "%c%s", info->is_link ? 'l' : info->is_dir ? 'd' : '-', rights);
    if (info->is_dir)
        hy_text_table_cell(t->grid, HY_PLAIN, "-");
    else
        hy_text_table_cellf(t->grid, HY_PLAIN, "%u", info->replication);
    hy_text_table_cell(t->grid, HY_PLAIN, info->owner);
    hy_text_table_cell(t->grid, HY_PLAIN, info->group);
    size_cell(t, info->size);
    hy_text_table_cell(t->grid, HY_PLAIN, time_text(info->modified_ms, "%Y-%m-%d %H:%M", when, sizeof when));
    hy_text_table_cell(t->grid, HY_PLAIN, url);
    return table_next(t);
}

struct ls_folder {
    struct table *table;
    const char *url; /* NULL: the current directory, whose names have no prefix */
};

/* `path`: relative to the directory. */
static int ls_entry(void *arg, const char *path, struct hy_fs_info *entry, struct hy_err *err)
{
    const struct ls_folder *f = arg;
    hy_cleanup_free char *url = f->url ? hy_fs_join(f->url, path) : hy_strdup(path);

    return url ? ls_row(f->table, url, entry) : hy_err_oom(err);
}

static int ls_child(void *arg, struct hy_fs_info *entry, struct hy_err *err)
{
    return ls_entry(arg, entry->name, entry, err);
}

static int ls_failed(void *arg, struct hy_err *err)
{
    return table_complain(((const struct ls_folder *)arg)->table, err);
}

static int ls_below(struct table *t, const char *url, struct hy_err *err)
{
    const bool is_here = t->args->word_count == 0 && strcmp(url, ".") == 0;
    struct ls_folder f = {.table = t, .url = is_here ? NULL : url};
    const struct hy_fs_walk how = {.visit = ls_entry, .failed = ls_failed, .arg = &f};

    return hy_args_has(t->args, "recursive") ? hy_fs_walk(url, &how, err) : hy_fs_list(url, ls_child, &f, err);
}

static int ls(void *arg, const char *url, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    struct table *t = arg;
    int rc = hy_fs_stat(url, &info, err);

    if (rc < 0)
        return rc;
    return info.is_dir && !hy_args_has(t->args, "directory") ? ls_below(t, url, err) : ls_row(t, url, &info);
}

int hy_files_ls(const struct hy_args *args)
{
    return run_table(args, ls_columns, false, ls);
}

/* ---- stat -------------------------------------------------------------------------- */

static void stat_columns(struct hy_text_table *g)
{
    hy_text_table_column(g, "", 0, 0);
    hy_text_table_column(g, "", 0, 0);
}

static void fact(struct table *t, const char *name, const char *value)
{
    hy_text_table_cell(t->grid, HY_DIM, name);
    hy_text_table_cell(t->grid, HY_PLAIN, value);
}

static void file_facts(struct table *t, const struct hy_fs_info *info)
{
    char text[40], size[64];

    snprintf(text, sizeof text, "%llu bytes", (unsigned long long)info->size);
    fact(t, "size", text);
    snprintf(text, sizeof text, "%u", info->replication);
    fact(t, "replicas", text);
    snprintf(size, sizeof size, "%llu bytes", (unsigned long long)info->block_size);
    fact(t, "block size", size);
}

static void facts(struct table *t, const char *url, const struct hy_fs_info *info)
{
    char rights[HY_RIGHTS_TEXT], text[64];

    if (t->rows + t->printed)
        fact(t, "", "");
    fact(t, "path", url);
    snprintf(text, sizeof text, "%s%s", type_of(info), info->is_link ? ", through a link" : "");
    fact(t, "type", text);
    if (!info->is_dir)
        file_facts(t, info);
    hy_rights_text(info->mode, rights);
    snprintf(text, sizeof text, "%s (%04o)", rights, info->mode & 07777);
    fact(t, "rights", text);
    fact(t, "owner", info->owner);
    fact(t, "group", info->group);
    fact(t, "modified", time_text(info->modified_ms, "%Y-%m-%d %H:%M:%S %z", text, sizeof text));
    fact(t, "accessed", time_text(info->accessed_ms, "%Y-%m-%d %H:%M:%S %z", text, sizeof text));
}

static int stat_one(void *arg, const char *url, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    struct table *t = arg;
    int rc = hy_fs_stat(url, &info, err);

    if (rc < 0)
        return rc;
    if (!t->grid)
        return table_json(t, info_json(url, &info));
    facts(t, url, &info);
    return table_next(t);
}

int hy_files_stat(const struct hy_args *args)
{
    return run_table(args, stat_columns, false, stat_one);
}

/* ---- du ---------------------------------------------------------------------------- */

static void du_columns(struct hy_text_table *g)
{
    hy_text_table_column(g, "", HY_TABLE_RIGHT, 0);
    hy_text_table_column(g, "", HY_TABLE_RIGHT, 0);
    hy_text_table_column(g, "", 0, 0);
}

static int du_row(struct table *t, const char *url, struct hy_err *err)
{
    struct hy_fs_usage usage;
    int rc = hy_fs_usage(url, &usage, err);

    if (rc < 0)
        return rc;
    size_cell(t, usage.bytes);
    size_cell(t, usage.stored);
    hy_text_table_cell(t->grid, HY_PLAIN, url);
    return table_next(t);
}

static int du_entry(void *arg, struct hy_fs_info *entry, struct hy_err *err)
{
    const struct ls_folder *f = arg;
    hy_cleanup_free char *url = hy_fs_join(f->url, entry->name);
    int rc = url ? du_row(f->table, url, err) : hy_err_oom(err);

    return rc < 0 ? table_complain(f->table, err) : rc;
}

static int du(void *arg, const char *url, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    struct ls_folder f = {.table = arg, .url = url};
    int rc = hy_args_has(f.table->args, "summarize") ? 0 : hy_fs_stat(url, &info, err);

    if (rc < 0)
        return rc;
    return info.is_dir ? hy_fs_list(url, du_entry, &f, err) : du_row(arg, url, err);
}

int hy_files_du(const struct hy_args *args)
{
    return run_table(args, du_columns, false, du);
}

/* ---- df ---------------------------------------------------------------------------- */

static void df_columns(struct hy_text_table *g)
{
    hy_text_table_column(g, "path", 0, 0);
    hy_text_table_column(g, "size", HY_TABLE_RIGHT, 0);
    hy_text_table_column(g, "used", HY_TABLE_RIGHT, 0);
    hy_text_table_column(g, "free", HY_TABLE_RIGHT, 0);
    hy_text_table_column(g, "use", HY_TABLE_RIGHT, 0);
}

static int df(void *arg, const char *url, struct hy_err *err)
{
    struct table *t = arg;
    struct hy_fs_space room;
    int rc = hy_fs_space(url, &room, err);

    if (rc < 0)
        return rc;
    hy_text_table_cell(t->grid, HY_PLAIN, url);
    size_cell(t, room.capacity);
    size_cell(t, room.used);
    size_cell(t, room.free);
    if (room.capacity)
        hy_text_table_cellf(t->grid, HY_PLAIN, "%.0f%%", 100 * (double)room.used / (double)room.capacity);
    else
        hy_text_table_cell(t->grid, HY_PLAIN, "-");
    return table_next(t);
}

int hy_files_df(const struct hy_args *args)
{
    return run_table(args, df_columns, true, df);
}
