/* SPDX-License-Identifier: Apache-2.0 */
#include "client/supply_lines.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "wire/wire.h"

/* A number of at least 0; a missing one is 0. */
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

static int parse_offer(struct hy_supply_line *w)
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

static int parse_over(struct hy_supply_line *w)
{
    w->why = json_string_value(json_object_get(w->line, "why"));
    w->lives = json_is_true(json_object_get(w->line, "lives"));
    w->died = json_is_true(json_object_get(w->line, "died"));
    return json_object_get(w->line, "over") && w->why && get_number(w->line, "over", INT64_MAX, &w->over) ? 0 : -EPROTO;
}

int hy_supply_parse(const char *text, size_t n, struct hy_supply_line *ret)
{
    int rc;

    *ret = (struct hy_supply_line){.line = hy_json_load(text, n, 0, NULL)};
    rc = json_object_get(ret->line, "offer") ? parse_offer(ret) : parse_over(ret);
    if (rc < 0)
        hy_supply_line_done(ret);
    return rc;
}

void hy_supply_line_done(struct hy_supply_line *w)
{
    json_decref(w->line);
    w->line = NULL;
}

/* ---- orders of the driver ---- */

static json_t *order_json(const Hy__AgentOrder *o)
{
    char key[2 * HY_KEY_SIZE + 1] = "", join[320];
    json_t *line = json_object();
    int rc = 0;

    for (size_t i = 0; i < o->key.len && i < HY_KEY_SIZE; i++)
        snprintf(key + 2 * i, 3, "%02x", o->key.data[i]);
    hy_format_host_port(o->address, (uint16_t)o->port, join, sizeof join);
    rc |= hy_json_set(line, "start", json_integer((json_int_t)o->id));
    rc |= hy_json_set(line, "name", hy_json_text(o->name));
    rc |= hy_json_set(line, "identity", hy_json_text(o->identity));
    rc |= hy_json_set(line, "key", json_string(key));
    rc |= hy_json_set(line, "join", hy_json_text(join));
    explicit_bzero(key, sizeof key);
    if (rc == 0)
        return line;
    json_decref(line);
    return NULL;
}

json_t *hy_supply_order_line(const Hy__ClientAnswer *answer)
{
    json_t *line;

    if (answer->body_case == HY__CLIENT_ANSWER__BODY_START)
        return order_json(answer->start);
    line = json_object();
    if (hy_json_set(line, "stop", json_integer((json_int_t)answer->stop)) == 0)
        return line;
    json_decref(line);
    return NULL;
}
