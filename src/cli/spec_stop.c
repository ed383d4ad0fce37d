/* SPDX-License-Identifier: Apache-2.0 */
/* Options for early stopping: --stop and those that belong to it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/guess.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/run_spec.h"
#include "cli/spec_internal.h"
#include "driver/driver.h"
#include "search/search.h"

static const struct {
    const char *name;
    Hy__StopRule__Kind kind;
} rules[] = {
    {"median", HY__STOP_RULE__KIND__MEDIAN},       {"patience", HY__STOP_RULE__KIND__PATIENCE},
    {"halving", HY__STOP_RULE__KIND__HALVING},     {"asha", HY__STOP_RULE__KIND__ASHA},
    {"hyperband", HY__STOP_RULE__KIND__HYPERBAND}, {"none", HY__STOP_RULE__KIND__NONE},
};

/* The rules that have this option, as bits. */
#define HAS(kind) (1u << HY__STOP_RULE__KIND__##kind)
#define RUNGS (HAS(HALVING) | HAS(ASHA) | HAS(HYPERBAND))
static const struct {
    const char *name, *rules;
    unsigned has;
} parts[] = {
    {"stop-min", "median, patience, halving, asha or hyperband", RUNGS | HAS(MEDIAN) | HAS(PATIENCE)},
    {"stop-max", "halving, asha or hyperband", RUNGS},
    {"reduction", "halving, asha or hyperband", RUNGS},
    {"patience", "patience", HAS(PATIENCE)},
    {"min-delta", "patience", HAS(PATIENCE)},
    {"stop-pause", "asha", HAS(ASHA)},
};

const char *hy_stop_rule_name(Hy__StopRule__Kind kind)
{
    for (size_t i = 0; i < HY_COUNT(rules); i++)
        if (rules[i].kind == kind)
            return rules[i].name;
    return "unknown";
}

static int find_rule(const char *text, Hy__StopRule__Kind *ret, struct hy_err *err)
{
    struct hy_guess guess;

    hy_guess_init(&guess, text);
    for (size_t i = 0; i < HY_COUNT(rules); i++) {
        if (strcmp(text, rules[i].name) == 0) {
            *ret = rules[i].kind;
            return 0;
        }
        hy_guess_offer(&guess, rules[i].name);
    }
    if (guess.best)
        return hy_err_option(err, "stop", "'%s' is unknown; did you mean %s?", text, guess.best);
    return hy_err_option(err, "stop", "'%s' is unknown; choose median, halving, asha, hyperband, patience or none",
                         text);
}

/* Options of another rule would have no effect. */
static int check_parts(const struct hy_args *args, const Hy__StopRule *rule, struct hy_err *err)
{
    for (size_t i = 0; i < HY_COUNT(parts); i++)
        if (hy_args_has(args, parts[i].name) && !(parts[i].has & 1u << rule->kind))
            return hy_err_option(err, parts[i].name, "requires --stop %s", parts[i].rules);
    if (rule->kind == HY__STOP_RULE__KIND__PATIENCE && !hy_args_has(args, "patience"))
        return hy_err_option(err, "stop", "patience requires --patience N, the number of steps without improvement");
    return 0;
}

static int steps(const struct hy_args *args, const char *name, int64_t *ret, struct hy_err *err)
{
    const char *text = hy_args_get(args, name);
    uint64_t value;

    if (!text)
        return 0;
    if (hy_parse_u64(text, &value) < 0 || value == 0 || value > INT32_MAX)
        return hy_err_option(err, name, "takes a number of steps from 1 to %d, not '%s'", INT32_MAX, text);
    *ret = (int64_t)value;
    return 0;
}

static int improvement(const struct hy_args *args, double *ret, struct hy_err *err)
{
    const char *text = hy_args_get(args, "min-delta");

    if (text && (hy_parse_double(text, ret) < 0 || !(*ret >= 0)))
        return hy_err_option(err, "min-delta", "takes a number from 0, not '%s'", text);
    return 0;
}

static int grace(const struct hy_args *args, int64_t *ret_ms, struct hy_err *err)
{
    const char *text = hy_args_get(args, "stop-grace");

    if (text && (hy_parse_duration(text, ret_ms) < 0 || *ret_ms <= 0))
        return hy_err_option(err, "stop-grace", "takes a duration such as 30s or 5m, not '%s'", text);
    return 0;
}

static int fill(const struct hy_args *args, Hy__StopRule *rule, struct hy_err *err)
{
    int rc = steps(args, "stop-min", &rule->min_step, err);

    if (rc == 0)
        rc = steps(args, "stop-max", &rule->max_step, err);
    if (rc == 0)
        rc = hy_spec_number(args, "reduction", 2, 1000, &rule->reduction, err);
    if (rc == 0)
        rc = steps(args, "patience", &rule->patience, err);
    if (rc == 0)
        rc = improvement(args, &rule->min_delta, err);
    if (rc == 0)
        rc = grace(args, &rule->grace_ms, err);
    rule->may_pause = hy_args_has(args, "stop-pause");
    return rc == 0 ? check_parts(args, rule, err) : rc;
}

/* Creates the stopper that the driver will create, to report its errors now. */
static int try_stopper(const Hy__RunSpec *spec, struct hy_err *err)
{
    struct hy_stop_settings settings = hy_run_stop_settings(spec);
    struct hy_stopper *s = NULL;
    int rc = hy_stopper_new(&settings, &s, err);

    hy_stopper_free(s);
    return rc;
}

static int check_rule_is_given(const struct hy_args *args, struct hy_err *err)
{
    for (size_t i = 0; i < HY_COUNT(parts); i++)
        if (hy_args_has(args, parts[i].name))
            return hy_err_option(err, parts[i].name, "requires --stop %s", parts[i].rules);
    if (hy_args_has(args, "stop-grace"))
        return hy_err_option(err, "stop-grace", "requires --stop RULE");
    return 0;
}

int hy_spec_stop(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err)
{
    const char *text = hy_args_get(args, "stop");
    Hy__StopRule__Kind kind = HY__STOP_RULE__KIND__NONE;
    int rc;

    if (!text)
        return check_rule_is_given(args, err);
    rc = find_rule(text, &kind, err);
    if (rc < 0)
        return rc;
    if (!*spec->metric)
        return hy_err_option(err, "stop", "requires a metric: --max NAME or --min NAME");
    spec->stop = hy_malloc(sizeof *spec->stop);
    if (!spec->stop)
        return hy_err_oom(err);
    hy__stop_rule__init(spec->stop);
    spec->stop->kind = kind;
    rc = fill(args, spec->stop, err);
    return rc == 0 ? try_stopper(spec, err) : rc;
}
