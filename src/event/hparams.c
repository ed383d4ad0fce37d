/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HParams plugin stores its data in the metadata of a summary; the value is the
 * shortest possible tensor, a float vector of length 0:
 *
 *     Event { step: 0, summary { value {
 *         tag: "_hparams_/session_start_info"
 *         metadata { plugin_data { plugin_name: "hparams", content: HParamsPluginData } }
 *         tensor { dtype: DT_FLOAT, tensor_shape { dim { size: 0 } } } } } }
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "event/encode.h"

static int append_plugin_data(struct hy_buf *b, const char *tag, const Hy__Tb__HParamsPluginData *data, int64_t wall_ms)
{
    size_t n = hy__tb__hparams_plugin_data__get_packed_size(data);
    hy_cleanup_free uint8_t *content = hy_malloc(n + 1);
    Hy__Tb__TensorShape__Dim none = HY__TB__TENSOR_SHAPE__DIM__INIT, *dims[] = {&none};
    Hy__Tb__TensorShape shape = HY__TB__TENSOR_SHAPE__INIT;
    Hy__Tb__Tensor empty = HY__TB__TENSOR__INIT;
    Hy__Tb__SummaryMetadata__PluginData plugin = HY__TB__SUMMARY_METADATA__PLUGIN_DATA__INIT;
    Hy__Tb__SummaryMetadata metadata = HY__TB__SUMMARY_METADATA__INIT;
    Hy__Tb__Summary__Value v = HY__TB__SUMMARY__VALUE__INIT, *values[] = {&v};
    Hy__Tb__Summary summary = HY__TB__SUMMARY__INIT;
    Hy__Tb__Event e = HY__TB__EVENT__INIT;

    if (!content)
        return -ENOMEM;
    hy__tb__hparams_plugin_data__pack(data, content);
    plugin.plugin_name = (char *)"hparams";
    plugin.content = (ProtobufCBinaryData){.len = n, .data = content};
    metadata.plugin_data = &plugin;
    shape.dim = dims;
    shape.n_dim = HY_COUNT(dims);
    empty.dtype = HY__TB__TENSOR__DATA_TYPE__DT_FLOAT;
    empty.tensor_shape = &shape;
    v.tag = (char *)tag;
    v.metadata = &metadata;
    v.value_case = HY__TB__SUMMARY__VALUE__VALUE_TENSOR;
    v.tensor = &empty;
    summary.value = values;
    summary.n_value = HY_COUNT(values);
    e.wall_time = hy_event_seconds(wall_ms);
    e.what_case = HY__TB__EVENT__WHAT_SUMMARY;
    e.summary = &summary;
    return hy_event_append(b, &e);
}

/* ---- hyperparameters ---------------------------------------------------------- */

struct hparam {
    Hy__Tb__SessionStartInfo__Entry entry;
    Hy__Tb__Value value;
    char *name, *text;
};

struct hparams {
    size_t count;
    struct hparam *all;
    Hy__Tb__SessionStartInfo__Entry **entries; /* pointers, for the message */
};

static void hparams_done(struct hparams *h)
{
    for (size_t i = 0; i < h->count; i++) {
        free(h->all[i].name);
        free(h->all[i].text);
    }
    free(h->all);
    free(h->entries);
}

/* JSON text with 15 digits, so that 0.1 is written as 0.1. */
static char *text_of(const json_t *value)
{
    char *dump, *text;

    if (json_is_string(value))
        return hy_event_text(json_string_value(value), json_string_length(value));
    dump = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    text = dump ? hy_event_text(dump, strlen(dump)) : NULL;
    free(dump);
    return text;
}

static int set_hparam(struct hparam *h, const char *name, const json_t *value)
{
    hy__tb__session_start_info__entry__init(&h->entry);
    hy__tb__value__init(&h->value);
    h->name = hy_event_text(name, strlen(name));
    if (json_is_number(value)) {
        h->value.kind_case = HY__TB__VALUE__KIND_NUMBER_VALUE;
        h->value.number_value = json_number_value(value);
    } else if (json_is_boolean(value)) {
        h->value.kind_case = HY__TB__VALUE__KIND_BOOL_VALUE;
        h->value.bool_value = json_is_true(value);
    } else {
        h->text = text_of(value);
        if (!h->text)
            return -ENOMEM;
        h->value.kind_case = HY__TB__VALUE__KIND_STRING_VALUE;
        h->value.string_value = h->text;
    }
    h->entry.key = h->name;
    h->entry.value = &h->value;
    return h->name ? 0 : -ENOMEM;
}

static int hparams_init(struct hparams *h, json_t *params)
{
    size_t capacity = json_object_size(params) + 1;
    const char *name;
    json_t *value;

    *h = (struct hparams){0};
    h->all = hy_calloc(capacity, sizeof *h->all);
    h->entries = hy_calloc(capacity, sizeof *h->entries);
    if (!h->all || !h->entries)
        return -ENOMEM;
    json_object_foreach(params, name, value)
    {
        h->entries[h->count] = &h->all[h->count].entry;
        if (set_hparam(&h->all[h->count++], name, value) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* An integer beyond 64 bits is read as a real number. */
static int parse_params(const char *text, json_t **ret)
{
    json_error_t why = {0};

    *ret = hy_json_load(text, strlen(text), JSON_ALLOW_NUL, &why);
    if (!*ret && json_error_code(&why) == json_error_numeric_overflow)
        *ret = hy_json_load(text, strlen(text), JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &why);
    if (!*ret)
        return *why.text ? -EINVAL : -ENOMEM; /* without a text it was out of memory */
    if (json_is_object(*ret))
        return 0;
    json_decref(*ret);
    return -EINVAL;
}

int hy_event_session_start(struct hy_buf *b, const char *params, const char *group, int64_t wall_ms)
{
    hy_cleanup_free char *clean = hy_event_text(group, strlen(group));
    Hy__Tb__HParamsPluginData data = HY__TB__HPARAMS_PLUGIN_DATA__INIT;
    Hy__Tb__SessionStartInfo start = HY__TB__SESSION_START_INFO__INIT;
    struct hparams h;
    json_t *root;
    int rc = clean ? parse_params(params, &root) : -ENOMEM;

    if (rc < 0)
        return rc;
    rc = hparams_init(&h, root);
    if (rc == 0) {
        start.hparams = h.entries;
        start.n_hparams = h.count;
        start.group_name = clean;
        start.start_time_secs = hy_event_seconds(wall_ms);
        data.data_case = HY__TB__HPARAMS_PLUGIN_DATA__DATA_SESSION_START_INFO;
        data.session_start_info = &start;
        rc = append_plugin_data(b, "_hparams_/session_start_info", &data, wall_ms);
    }
    hparams_done(&h);
    json_decref(root);
    return rc;
}

int hy_event_session_end(struct hy_buf *b, enum hy_event_status status, int64_t wall_ms)
{
    Hy__Tb__HParamsPluginData data = HY__TB__HPARAMS_PLUGIN_DATA__INIT;
    Hy__Tb__SessionEndInfo end = HY__TB__SESSION_END_INFO__INIT;

    end.status = status == HY_EVENT_SUCCESS   ? HY__TB__SESSION_END_INFO__STATUS__SUCCESS
                 : status == HY_EVENT_FAILURE ? HY__TB__SESSION_END_INFO__STATUS__FAILURE
                                              : HY__TB__SESSION_END_INFO__STATUS__UNKNOWN;
    end.end_time_secs = hy_event_seconds(wall_ms);
    data.data_case = HY__TB__HPARAMS_PLUGIN_DATA__DATA_SESSION_END_INFO;
    data.session_end_info = &end;
    return append_plugin_data(b, "_hparams_/session_end_info", &data, wall_ms);
}
