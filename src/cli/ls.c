/* SPDX-License-Identifier: Apache-2.0 */
/* `ls`: the project's runs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/project.h"
#include "cli/commands.h"
#include "view/view.h"
#include "client/client.h"

struct listing {
    struct hy_store *store;
    struct hy_text_table *grid; /* NULL: JSON */
    struct hy_out out;
    size_t count;
    int64_t now;
};

#define OTHERS_MAX 160

/* " (3 failed, 1 stopped)" */
static void write_others(char others[OTHERS_MAX], const struct hy_run_counts *c)
{
    const struct {
        int64_t count;
        const char *state;
    } parts[] = {{c->failed, "failed"}, {c->pruned, "pruned"}, {c->stopped, "stopped"}, {c->paused, "paused"}};
    size_t n = 0;

    others[0] = '\0';
    for (size_t i = 0; i < HY_COUNT(parts); i++)
        if (parts[i].count)
            n += (size_t)snprintf(others + n, OTHERS_MAX - n, "%s%lld %s", n ? ", " : " (", (long long)parts[i].count,
                                  parts[i].state);
    if (n)
        snprintf(others + n, OTHERS_MAX - n, ")");
}

/* "17/20 (3 failed)": 17 of 20 are done. */
static void trials_cell(struct hy_text_table *g, const struct hy_run_row *row, const struct hy_run_counts *c)
{
    char others[OTHERS_MAX];

    write_others(others, c);
    if (row->ranks)
        hy_text_table_cellf(g, HY_PLAIN, "%lld rank%s%s", (long long)row->ranks, row->ranks == 1 ? "" : "s", others);
    else if (row->total >= 0)
        hy_text_table_cellf(g, HY_PLAIN, "%lld/%lld%s", (long long)c->done, (long long)row->total, others);
    else
        hy_text_table_cellf(g, HY_PLAIN, "%lld%s", (long long)c->done, others);
}

static void best_cell(struct hy_text_table *g, const struct hy_run_row *row, const struct hy_run_counts *c)
{
    char value[40];

    if (row->metric && c->best_trial)
        hy_text_table_cellf(g, HY_GREEN, "%s=%s", row->metric, hy_format_metric(c->best_value, value, sizeof value));
    else
        hy_text_table_cell(g, HY_PLAIN, row->metric ? row->metric : "");
}

static int add_row(struct listing *l, const struct hy_run_row *row, const struct hy_run_counts *counts, bool alive)
{
    const char *state = hy_run_state_text(row, alive);
    hy_cleanup_free char *command = hy_command_text(row->command);
    char text[64];

    if (!command)
        return -ENOMEM;
    hy_text_table_cellf(l->grid, HY_BOLD, "%lld", (long long)row->id);
    hy_text_table_cell(l->grid, HY_PLAIN, row->name);
    hy_state_text(&l->out.style, state, 0, text, sizeof text);
    hy_text_table_cell(l->grid, hy_state_tint(state), text);
    trials_cell(l->grid, row, counts);
    best_cell(l->grid, row, counts);
    hy_text_table_cell(l->grid, HY_DIM, hy_format_age(row->created, l->now, text, sizeof text));
    hy_text_table_cell(l->grid, HY_DIM, command);
    return 0;
}

static int on_run(void *arg, const struct hy_run_row *row, const struct hy_run_counts *counts, bool alive)
{
    struct listing *l = arg;
    hy_cleanup_free char *shown = NULL;

    if (l->grid) {
        l->count++;
        return add_row(l, row, counts, alive);
    }
    shown = row->logdir ? hy_store_display_path(l->store, row->logdir) : NULL;
    hy_out_str(&l->out, l->count++ ? ",\n " : "");
    hy_json_take(&l->out, hy_json_run(row, counts, alive, shown, NULL));
    return l->out.rc;
}

static struct hy_text_table *new_grid(void)
{
    struct hy_text_table *g = hy_text_table_new();

    if (!g)
        return NULL;
    hy_text_table_column(g, "run", HY_TABLE_RIGHT, 0);
    hy_text_table_column(g, "name", HY_TABLE_FLEX, 2);
    hy_text_table_column(g, "state", 0, 0);
    hy_text_table_column(g, "trials", HY_TABLE_FLEX, 1);
    hy_text_table_column(g, "best", HY_TABLE_FLEX, 3);
    hy_text_table_column(g, "started", 0, 4);
    hy_text_table_column(g, "command", HY_TABLE_FLEX, 5);
    return g;
}

static int list(struct listing *l, struct hy_err *err)
{
    int rc = 0;

    if (!l->grid)
        hy_out_str(&l->out, "[");
    if (l->store)
        rc = hy_runs_each(l->store, on_run, l, err);
    if (rc < 0)
        return rc;
    if (!l->grid)
        hy_out_str(&l->out, "]\n");
    else if (l->count)
        rc = hy_text_table_render(l->grid, &l->out, true);
    else
        hy_out_str(&l->out, "This project has no runs yet; `hopyard run --help` shows how to start one.\n");
    return rc < 0 ? rc : hy_out_flush(&l->out, STDOUT_FILENO);
}

int hy_cmd_ls(const struct hy_args *args)
{
    bool json = hy_args_has(args, "json");
    struct listing l = {.now = hy_clock_wall_ms()};
    struct hy_err err = {0};
    struct hy_style style;
    int rc = hy_project_store(args, HY_STORE_READ, &l.store, &err);

    if (rc < 0 && rc != -ENOENT) /* a project without a store has no runs */
        return hy_cmd_failed(args, &err);
    hy_style_of(STDOUT_FILENO, &style);
    hy_out_init(&l.out, &style);
    l.grid = json ? NULL : new_grid();
    err = (struct hy_err){0};
    rc = json || l.grid ? list(&l, &err) : -ENOMEM;
    hy_text_table_free(l.grid);
    hy_out_done(&l.out);
    hy_store_close(l.store);
    if (rc < 0 && !err.code)
        hy_err_sys(&err, rc, "cannot print the list of runs");
    return rc == -EPIPE ? HY_EXIT_OK : rc < 0 ? hy_cmd_failed(args, &err) : HY_EXIT_OK;
}
