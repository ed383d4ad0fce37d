/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The space syntax: lines, each passed to hy_space_add and to hy_space_add_grid. An accepted space must satisfy the
 * invariants of search.h, and must be searchable. JSON lists are compared with those that jansson parses. Conditions
 * are fuzzed by fuzz_expression.c, too.
 */
#include <jansson.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "search/discrete.h"
#include "search/scale.h"
#include "search/search.h"

#define DIMS_MAX 16
#define POINTS_MAX 3000 /* of a grid with conditions, which visits them all */

#define promise(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            abort();                                                                                                   \
    } while (0)

static void check_range(const struct hy_dim *dim)
{
    promise(dim->low <= dim->high);
    promise(dim->normal || (isfinite(dim->low) && isfinite(dim->high)));
    promise(!dim->log || dim->low > 0 || (dim->normal && dim->low == 0));
    promise(!dim->normal || (isfinite(dim->mean) && dim->deviation > 0));
    promise(dim->kind != HY_DIM_INT || (fabs(dim->low) <= 0x1p53 && dim->high == floor(dim->high)));
    promise(dim->step >= 0 && (dim->step == 0 || !dim->log));
    if (dim->step > 0) {
        uint64_t width = hy_discrete_width(dim);

        promise(hy_discrete_at(dim, 0).number == dim->low && hy_discrete_at(dim, width - 1).number == dim->high);
        promise(hy_discrete_index(dim, (struct hy_value){dim->high}) == width - 1);
    }
}

static void check_dim(const struct hy_dim *dim)
{
    promise(dim->name[0] && !strpbrk(dim->name, "={}\n"));
    promise(!dim->condition == !dim->active);
    if (dim->kind != HY_DIM_CATEGORY) {
        check_range(dim);
        return;
    }
    promise(dim->choice_count > 0);
    for (size_t i = 0; i < dim->choice_count; i++)
        promise(dim->json || dim->choices[i][0]);
}

static void check_value(const struct hy_dim *dim, struct hy_value v)
{
    char out[32];
    const char *text = hy_value_text(dim, v, out, sizeof out);
    double back;

    if (isnan(v.number)) {
        promise(dim->condition && !*text && !hy_value_json(dim, v));
        return;
    }
    if (dim->kind == HY_DIM_CATEGORY) {
        promise(text == dim->choices[(size_t)v.number]);
        return;
    }
    promise(isfinite(v.number) && v.number >= dim->low && v.number <= dim->high);
    promise(hy_parse_double(text, &back) == 0 && back == v.number);
    back = hy_dim_unit(dim, v);
    promise(back >= 0 && back <= 1);
}

/* ---- JSON --------------------------------------------------------------- */

static size_t depth_of(const char *text)
{
    size_t depth = 0, most = 0;

    for (; *text; text++) { /* also those in strings: such inputs are not compared */
        depth += *text == '[' || *text == '{';
        depth -= depth && (*text == ']' || *text == '}');
        most = depth > most ? depth : most;
    }
    return most;
}

static void check_choice(const struct hy_dim *dim, size_t i, const json_t *want)
{
    json_t *got = json_loads(dim->json[i], JSON_DECODE_ANY, NULL);

    promise(got && json_equal(got, want));
    if (json_is_string(want))
        promise(strcmp(dim->choices[i], json_string_value(want)) == 0);
    else
        promise(strcmp(dim->choices[i], dim->json[i]) == 0);
    json_decref(got);
}

/* `dim` is the parsed list, NULL if it was refused; the name is valid. */
static void compare(const char *list, const struct hy_dim *dim)
{
    json_t *want = json_loads(list, 0, NULL);

    if (dim) {
        promise(want && json_array_size(want) == dim->choice_count);
        for (size_t i = 0; i < dim->choice_count; i++)
            check_choice(dim, i, json_array_get(want, i));
    } else {
        promise(!want || json_array_size(want) == 0 || depth_of(list) > 150);
    }
    json_decref(want);
}

static void check_json(const char *list)
{
    hy_cleanup_free char *line = hy_asprintf("x=%s", list);
    struct hy_space space = {0};
    struct hy_err err = {0};

    if (list[0] == '[' && list[strlen(list) - 1] == ']')
        compare(list, hy_space_add(&space, line, &err) == 0 ? &space.dims[0] : NULL);
    hy_space_done(&space);
}

static bool is_quick(const struct hy_space *space, enum hy_search_kind kind)
{
    double points = 1;

    if (kind == HY_SEARCH_RANDOM || kind == HY_SEARCH_EVOLVE || !hy_space_has_rules(space))
        return true;
    for (size_t i = 0; i < space->count; i++)
        points *= (double)hy_discrete_width(&space->dims[i]);
    return points <= POINTS_MAX;
}

static void try_search(const struct hy_space *space, enum hy_search_kind kind)
{
    struct hy_search_settings settings = {.kind = kind, .seed = 1, .mutation = NAN, .crossover = NAN};
    struct hy_search *s = NULL;
    struct hy_err err = {0};
    struct hy_value v[DIMS_MAX];
    uint64_t number;

    settings.population = 4;
    if (!is_quick(space, kind))
        return;
    if (hy_search_new(space, &settings, &s, &err) < 0) {
        promise(err.text[0] && !strchr(err.text, '\n'));
        return;
    }
    for (int i = 0; i < 12 && hy_search_ask(s, &number, v) == 1; i++) {
        for (size_t j = 0; j < space->count; j++)
            check_value(&space->dims[j], v[j]);
        for (size_t j = 0; j < space->count; j++)
            promise(hy_space_is_active(hy_search_space(s), j, v) == !isnan(v[j].number));
        promise(hy_search_tell(s, number, i % 3 ? v[0].number : NAN) == 0);
    }
    hy_search_free(s);
}

static void add(struct hy_space *space, const char *line, int (*how)(struct hy_space *, const char *, struct hy_err *))
{
    struct hy_err err = {0};

    if (space->count == DIMS_MAX)
        return;
    if (how(space, line, &err) < 0)
        promise(err.code < 0 && err.text[0] && !strchr(err.text, '\n'));
    else
        check_dim(&space->dims[space->count - 1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hy_cleanup_free char *text = hy_strndup((const char *)data, size ? strnlen((const char *)data, size) : 0);
    struct hy_space space = {0}, grid = {0};
    char *rest = text, *line;

    check_json(text);
    while (rest && (line = strsep(&rest, "\n"))) {
        check_json(strchr(line, '=') ? strchr(line, '=') + 1 : line);
        add(&space, line, hy_space_add);
        add(&grid, line, hy_space_add_grid);
    }
    for (int kind = HY_SEARCH_GRID; space.count > 0 && kind <= HY_SEARCH_PAIRED; kind++)
        try_search(&space, (enum hy_search_kind)kind);
    for (int kind = HY_SEARCH_GRID; grid.count > 0 && kind <= HY_SEARCH_PAIRED; kind++)
        try_search(&grid, (enum hy_search_kind)kind);
    hy_space_done(&space);
    hy_space_done(&grid);
    return 0;
}
