/* SPDX-License-Identifier: Apache-2.0 */
/* The search that a run's spec describes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "driver/driver.h"
#include "wire/wire.h"

static enum hy_search_kind kind_of(const Hy__RunSpec *spec)
{
    static const enum hy_search_kind kinds[] = {
        [HY__RUN_SPEC__KIND__GRID] = HY_SEARCH_GRID,     [HY__RUN_SPEC__KIND__RANDOM] = HY_SEARCH_RANDOM,
        [HY__RUN_SPEC__KIND__EVOLVE] = HY_SEARCH_EVOLVE, [HY__RUN_SPEC__KIND__PAIRED] = HY_SEARCH_PAIRED,
        [HY__RUN_SPEC__KIND__TPE] = HY_SEARCH_TPE,       [HY__RUN_SPEC__KIND__CMA] = HY_SEARCH_CMA,
    };

    /* An unknown kind, of a newer hopyard, is rejected by hy_search_new. */
    return (size_t)spec->kind < HY_COUNT(kinds) ? kinds[spec->kind] : (enum hy_search_kind)spec->kind;
}

bool hy_run_takes_lists(const Hy__RunSpec *spec)
{
    return spec->kind == HY__RUN_SPEC__KIND__GRID || spec->kind == HY__RUN_SPEC__KIND__PAIRED;
}

struct hy_search_settings hy_run_settings(const Hy__RunSpec *spec)
{
    return (struct hy_search_settings){
        .kind = kind_of(spec),
        .maximize = spec->maximize,
        .seed = spec->seed,
        .samples = spec->samples,
        .population = spec->population,
        .generations = spec->generations,
        .mutation = spec->mutation,
        .crossover = spec->crossover,
        .strategy = strcmp(spec->strategy, "best1bin") == 0   ? HY_DE_BEST1BIN
                    : strcmp(spec->strategy, "rand1bin") == 0 ? HY_DE_RAND1BIN
                                                              : HY_DE_DEFAULT,
        .asynchronous = spec->asynchronous,
    };
}

/* An unknown kind, of a newer hopyard, is rejected by hy_stopper_new. */
static enum hy_stop_kind stop_kind_of(const Hy__StopRule *rule)
{
    static const enum hy_stop_kind kinds[] = {
        [HY__STOP_RULE__KIND__NONE] = HY_STOP_NONE,         [HY__STOP_RULE__KIND__MEDIAN] = HY_STOP_MEDIAN,
        [HY__STOP_RULE__KIND__PATIENCE] = HY_STOP_PATIENCE, [HY__STOP_RULE__KIND__HALVING] = HY_STOP_HALVING,
        [HY__STOP_RULE__KIND__ASHA] = HY_STOP_ASHA,         [HY__STOP_RULE__KIND__HYPERBAND] = HY_STOP_HYPERBAND,
    };

    return (size_t)rule->kind < HY_COUNT(kinds) ? kinds[rule->kind] : (enum hy_stop_kind)rule->kind;
}

struct hy_stop_settings hy_run_stop_settings(const Hy__RunSpec *spec)
{
    const Hy__StopRule *rule = spec->stop;

    return (struct hy_stop_settings){
        .kind = stop_kind_of(rule),
        .maximize = spec->maximize,
        .min_step = rule->min_step,
        .max_step = rule->max_step,
        .reduction = rule->reduction,
        .trials = rule->trials,
        .min_trials = rule->min_trials,
        .patience = rule->patience,
        .min_delta = rule->min_delta,
        .may_pause = rule->may_pause,
    };
}

static int add_nodes(const Hy__RunSpec *spec, struct hy_space *space, struct hy_err *err)
{
    hy_cleanup_buf struct hy_buf b;
    char name[HY_NODE_NAME_MAX];
    const char *text;
    int rc;

    hy_buf_init(&b, SIZE_MAX / 2);
    rc = hy_buf_printf(&b, "node=");
    for (uint32_t i = 1; i <= spec->ranks && rc >= 0; i++)
        rc = hy_buf_printf(&b, "%s%s", i > 1 ? "," : "", hy_node_name(spec, i, name));
    text = rc < 0 ? NULL : hy_buf_cstr(&b);
    return text ? hy_space_add_grid(space, text, err) : hy_err_oom(err);
}

/* The largest number of ranks that the training may have. */
static int add_ranks(const Hy__RunSpec *spec, struct hy_space *space, struct hy_err *err)
{
    uint32_t most = spec->ranks > spec->ranks_max ? spec->ranks : spec->ranks_max;
    char text[40];

    if (hy_spec_is_cluster(spec))
        return add_nodes(spec, space, err);
    snprintf(text, sizeof text, most > 1 ? "rank=0..%u" : "rank=0", most - 1);
    return hy_space_add_grid(space, text, err);
}

int hy_run_space(const Hy__RunSpec *spec, struct hy_space *space, struct hy_err *err)
{
    int rc = 0;

    if (spec->ranks)
        return add_ranks(spec, space, err);

    for (size_t i = 0; i < spec->n_dims && rc == 0; i++)
        rc = hy_run_takes_lists(spec) ? hy_space_add_grid(space, spec->dims[i]->text, err)
                                      : hy_space_add(space, spec->dims[i]->text, err);
    for (size_t i = 0; i < spec->n_constraints && rc == 0; i++)
        rc = hy_space_add_constraint(space, spec->constraints[i], err);
    return rc;
}
