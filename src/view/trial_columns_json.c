/* SPDX-License-Identifier: Apache-2.0 */
#include "view/trial_columns_json.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "view/json_values.h"

static int set_json(struct hy_trial_columns *c, const char *name, const json_t *value)
{
    hy_cleanup_buf struct hy_buf text;
    int rc;

    hy_buf_init(&text, SIZE_MAX / 2);
    rc = hy_json_append_compact(&text, value);
    if (rc == 0 && !hy_buf_cstr(&text))
        rc = -ENOMEM;
    return rc == 0 ? hy_trial_columns_set_text(c, name, hy_buf_cstr(&text)) : rc;
}

static int set_param(struct hy_trial_columns *c, const char *name, const json_t *value)
{
    if (json_is_number(value))
        return hy_trial_columns_set_number(c, name, json_number_value(value));
    if (json_is_string(value))
        return hy_trial_columns_set_text(c, name, json_string_value(value));
    return set_json(c, name, value);
}

static int set_params(struct hy_trial_columns *c, const char *text)
{
    json_error_t where;
    hy_cleanup_json json_t *params = hy_json_load(text, strlen(text), 0, &where);
    const char *name;
    json_t *value;
    int rc = 0;

    if (!params && !where.text[0])
        return -ENOMEM;
    json_object_foreach(params, name, value)
    {
        rc = set_param(c, name, value);
        if (rc < 0)
            break;
    }
    return rc;
}

int hy_trial_columns_add_row(struct hy_trial_columns *c, const struct hy_trial_row *row)
{
    bool is_result = row->state == HY_TRIAL_DONE && row->has_value;
    int rc = is_result ? hy_trial_columns_add(c, row->value) : 0;

    return rc == 1 ? set_params(c, row->params ? row->params : "{}") : rc;
}

static json_t *shares_of(const struct hy_importance *m, const struct hy_trial_columns *c)
{
    json_t *array = json_array();

    for (size_t i = 0; i < m->count; i++) {
        json_t *share = json_pack("{s:o,s:f}", "name", hy_json_text(c->params[m->params[i].param].name), "share",
                                  m->params[i].share);

        if (!share || json_array_append_new(array, share) < 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *pairs_of(const struct hy_importance *m, const struct hy_trial_columns *c)
{
    json_t *array = json_array();

    for (size_t i = 0; i < m->pair_count; i++) {
        const struct hy_pair_share *p = &m->pairs[i];
        json_t *share = json_pack("{s:[o,o],s:f}", "names", hy_json_text(c->params[p->first].name),
                                  hy_json_text(c->params[p->second].name), "share", p->share);

        if (!share || json_array_append_new(array, share) < 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

json_t *hy_json_importance(const struct hy_importance *m, const struct hy_trial_columns *c)
{
    json_t *o = json_object();
    int rc = 0;

    rc |= hy_json_set(o, "method", json_string(HY_IMPORTANCE_METHOD));
    rc |= hy_json_set(o, "trials", json_integer((json_int_t)c->seen));
    rc |= hy_json_set(o, "used", json_integer((json_int_t)c->rows));
    rc |= hy_json_set(o, "importance", shares_of(m, c));
    rc |= hy_json_set(o, "pairs", pairs_of(m, c));
    rc |= hy_json_set(o, "why", hy_json_text(m->why[0] ? m->why : NULL));
    if (rc == 0)
        return o;
    json_decref(o);
    return NULL;
}
