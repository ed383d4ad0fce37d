/* SPDX-License-Identifier: Apache-2.0 */
/* The importance of the hyperparameters of a run. */
#include <errno.h>
#include <stdio.h>

#include "search/search.h"
#include "view/view.h"
#include "web/api/api.h"
#include "web/api/util.h"

static int add_trial(void *arg, const struct hy_trial_row *row)
{
    return hy_trial_columns_add_row(arg, row);
}

static int compute(struct hy_store *store, const struct hy_run_info *r, struct hy_trial_columns *c,
                   struct hy_importance *m, struct hy_err *err)
{
    int rc = 0;

    if (r->row.ranks) {
        snprintf(m->why, sizeof m->why, "the ranks of a training have no hyperparameters");
        return 0;
    }
    rc = hy_store_trial_each(store, r->row.id, 0, HY_TRIALS_BY_NUMBER, 0, 0, add_trial, c, err);
    if (rc == 0)
        rc = hy_trial_columns_finish(c);
    return rc == 0 ? hy_importance_init(m, c) : rc;
}

void hy_api_importance(struct hy_exchange *x)
{
    hy_cleanup_store_use struct hy_store_use u = {.web = x->web};
    hy_cleanup_run_info struct hy_run_info r = {0};
    hy_cleanup_trial_columns struct hy_trial_columns c;
    hy_cleanup_importance struct hy_importance m = {0};
    struct hy_err err = {0};
    int rc;

    hy_trial_columns_init(&c);
    if (hy_api_find_run(x, &u, &r) < 0)
        return;
    rc = compute(u.store, &r, &c, &m, &err);
    if (rc == 0)
        hy_reply_json(x, hy_json_importance(&m, &c));
    else if (rc == -E2BIG)
        hy_reply_error(x, 413, "run %lld has more than %d hyperparameters", (long long)r.row.id, HY_TRIAL_COLUMNS_MAX);
    else if (err.code)
        hy_reply_failure(x, &err);
    else
        hy_reply_error(x, 503, "out of memory");
}
