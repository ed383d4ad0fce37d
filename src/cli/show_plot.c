/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/show_plot.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "driver/driver.h"

#define SCATTERS 2

struct plot {
    struct hy_trial_columns columns;
    double *values; /* of trial i + 1 */
    size_t count;
};

static int add_trial(void *arg, const struct hy_trial_row *row)
{
    struct plot *p = arg;

    for (; row->number > 0 && p->count < (uint64_t)row->number; p->count++) {
        if (hy_array_grow(p->values, p->count) < 0)
            return -ENOMEM;
        p->values[p->count] = NAN;
    }
    if (row->state == HY_TRIAL_DONE && row->has_value)
        p->values[p->count - 1] = row->value;
    return hy_trial_columns_add_row(&p->columns, row);
}

static int read_trials(struct plot *p, struct hy_store *store, int64_t run, struct hy_err *err)
{
    int rc = hy_store_trial_each(store, run, 0, HY_TRIALS_BY_NUMBER, 0, 0, add_trial, p, err);

    if (rc == -E2BIG)
        return hy_err_set(err, rc, "run %lld has more than %d hyperparameters, too many to plot", (long long)run,
                          HY_TRIAL_COLUMNS_MAX);
    if (rc == 0 && hy_trial_columns_finish(&p->columns) < 0)
        return hy_err_oom(err);
    return rc;
}

static bool is_log(const struct hy_space *space, const char *name)
{
    for (size_t i = 0; i < space->count; i++)
        if (strcmp(space->dims[i].name, name) == 0)
            return hy_dim_is_log(&space->dims[i]);
    return false;
}

/* An invalid space, of a newer hopyard, has no names. */
static void space_of(const Hy__RunSpec *spec, struct hy_space *ret)
{
    if (spec && !spec->ranks && hy_run_space(spec, ret, NULL) < 0) {
        hy_space_done(ret);
        *ret = (struct hy_space){0};
    }
}

json_t *hy_json_log_names(const Hy__RunSpec *spec)
{
    struct hy_space space = {0};
    json_t *names = json_array();

    space_of(spec, &space);
    for (size_t i = 0; i < space.count && names; i++)
        if (hy_dim_is_log(&space.dims[i]) && json_array_append_new(names, hy_json_text(space.dims[i].name)) < 0) {
            json_decref(names);
            names = NULL;
        }
    hy_space_done(&space);
    return names;
}

static int plot_params(const struct plot *p, const struct hy_run_info *info, const struct hy_plot_metric *metric,
                       struct hy_out *out)
{
    hy_cleanup_importance struct hy_importance m;
    struct hy_space space = {0};
    int rc = hy_importance_init(&m, &p->columns);

    space_of(info->spec, &space);
    if (rc == 0)
        rc = hy_plot_importance(out, &m, &p->columns);
    for (size_t i = 0; rc == 0 && i < m.count && i < SCATTERS; i++) {
        size_t param = m.params[i].param;

        rc = hy_plot_scatter(out, metric, &p->columns, param, is_log(&space, p->columns.params[param].name));
    }
    hy_space_done(&space);
    return rc;
}

/* Why there is nothing to plot. */
static int check(const struct hy_run_info *info, struct hy_err *err)
{
    long long run = info->row.id;

    if (info->row.ranks)
        return hy_err_set(err, -EINVAL, "run %lld is a training: there are no hyperparameters to plot", run);
    if (!info->row.metric)
        return hy_err_set(err, -EINVAL, "run %lld has no metric to plot; start runs with --max NAME or --min NAME",
                          run);
    if (!info->counts.best_trial)
        return hy_err_set(err, -ENODATA, "no trial of run %lld has a value yet", run);
    return 0;
}

int hy_show_plot(struct hy_store *store, const struct hy_run_info *info, struct hy_out *out, struct hy_err *err)
{
    struct hy_plot_metric metric = {info->row.metric, info->row.maximize};
    struct plot p = {0};
    int rc = check(info, err);

    hy_trial_columns_init(&p.columns);
    if (rc == 0)
        rc = read_trials(&p, store, info->row.id, err);
    if (rc == 0) {
        rc = hy_plot_history(out, &metric, p.values, p.count);
        if (rc == 0)
            rc = plot_params(&p, info, &metric, out);
        if (rc < 0)
            hy_err_sys(err, rc, "cannot plot run %lld", (long long)info->row.id);
    }
    hy_trial_columns_done(&p.columns);
    free(p.values);
    return rc;
}
