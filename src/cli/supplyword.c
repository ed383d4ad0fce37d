/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/supplyword.h"

#include <errno.h>

/* A number from 0 on; one that is missing is 0. */
static bool get_number(const json_t *line, const char *name, uint64_t max, uint64_t *ret)
{
    const json_t *value = json_object_get(line, name);
    json_int_t number = json_integer_value(value);

    *ret = (uint64_t)number;
    return (!value || json_is_integer(value)) && number >= 0 && (uint64_t)number <= max;
}

static const char *get_text(const json_t *line, const char *name)
{
    const char *text = json_string_value(json_object_get(line, name));

    return text ? text : "";
}

static int parse_offer(struct hy_supply_word *w)
{
    uint64_t agents, parallel;

    if (!get_number(w->line, "offer", UINT32_MAX, &agents) || !get_number(w->line, "parallel", UINT32_MAX, &parallel))
        return -EPROTO;
    w->is_offer = true;
    hy__supply__init(&w->offer);
    w->offer.what = (char *)get_text(w->line, "what");
    w->offer.note = (char *)get_text(w->line, "note");
    w->offer.agents = (uint32_t)agents;
    w->offer.parallel = (uint32_t)parallel;
    w->offer.more = json_is_true(json_object_get(w->line, "more"));
    return 0;
}

static int parse_over(struct hy_supply_word *w)
{
    w->why = json_string_value(json_object_get(w->line, "why"));
    w->lives = json_is_true(json_object_get(w->line, "lives"));
    return json_object_get(w->line, "over") && w->why && get_number(w->line, "over", INT64_MAX, &w->over) ? 0 : -EPROTO;
}

int hy_supply_parse(const char *text, size_t n, struct hy_supply_word *ret)
{
    int rc;

    *ret = (struct hy_supply_word){.line = json_loadb(text, n, 0, NULL)};
    rc = json_object_get(ret->line, "offer") ? parse_offer(ret) : parse_over(ret);
    if (rc < 0)
        hy_supply_word_done(ret);
    return rc;
}

void hy_supply_word_done(struct hy_supply_word *w)
{
    json_decref(w->line);
    w->line = NULL;
}
