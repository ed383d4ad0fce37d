/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/limits.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "wire/usage.h"

struct excess {
    char *text;
    size_t size;
    bool found; /* only the first one is reported */
};

__attribute__((format(printf, 2, 3))) static void exceeded(struct excess *e, const char *fmt, ...)
{
    va_list args;

    if (e->found)
        return;
    e->found = true;
    va_start(args, fmt);
    vsnprintf(e->text, e->size, fmt, args);
    va_end(args);
}

static void check_text(struct excess *e, const char *what, const char *text, size_t limit)
{
    size_t n = strlen(text);

    if (n > limit)
        exceeded(e, "%s of %zu bytes (the limit is %zu)", what, n, limit);
}

static void check_count(struct excess *e, const char *what, size_t n, size_t limit)
{
    if (n > limit)
        exceeded(e, "%zu %s (the limit is %zu)", n, what, limit);
}

static void check_info(struct excess *e, const Hy__AgentInfo *info)
{
    check_text(e, "an agent's name", info->name, HY_NAME_LIMIT);
    check_text(e, "a host's name", info->host, HY_NAME_LIMIT);
    check_text(e, "a version", info->version, HY_NAME_LIMIT);
    check_count(e, "GPUs", info->n_gpu_uuids, HY_GPU_LIST_LIMIT);
    for (size_t i = 0; i < info->n_gpu_uuids; i++)
        check_text(e, "a GPU's name", info->gpu_uuids[i], HY_NAME_LIMIT);
}

static void check_values(struct excess *e, Hy__Metric *const *metrics, size_t n)
{
    check_count(e, "values in one message", n, HY_VALUES_LIMIT);
    for (size_t i = 0; i < n && !e->found; i++)
        check_text(e, "a metric's name", metrics[i]->name, HY_NAME_LIMIT);
}

static void check_output(struct excess *e, const Hy__Output *o)
{
    const char *wrong = o->mode ? hy_limits_check_path(o->path) : NULL;

    if (wrong)
        exceeded(e, "a file whose path %s", wrong);
    if (!o->mode)
        check_text(e, "the name of an output", o->path, HY_NAME_LIMIT);
    if (o->offset > HY_FILE_SIZE_LIMIT || o->size > HY_FILE_SIZE_LIMIT - o->offset)
        exceeded(e, "a file of %llu bytes from byte %llu on (the limit is %llu)", (unsigned long long)o->size,
                 (unsigned long long)o->offset, (unsigned long long)HY_FILE_SIZE_LIMIT);
    if (o->stream == 0 || o->stream >= HY_AGENT_STREAMS_END)
        exceeded(e, "an output on stream %u, which is not in the range of agents", o->stream);
}

static void check_ended(struct excess *e, const Hy__Ended *ended)
{
    check_text(e, "a trial's message", ended->message, HY_TEXT_LIMIT);
    check_text(e, "a trial's traceback", ended->detail, HY_TEXT_LIMIT);
    check_text(e, "a result's error", ended->metric_error, HY_TEXT_LIMIT);
    check_text(e, "a remark on a result", ended->remark, HY_TEXT_LIMIT);
    check_values(e, ended->metrics, ended->n_metrics);
    check_count(e, "outputs of one attempt", ended->n_outputs, 3);
}

static void check_addresses(struct excess *e, char *const *list, size_t n)
{
    check_count(e, "addresses of one rank", n, HY_RANK_ADDRESSES_LIMIT);
    for (size_t i = 0; i < n && !e->found; i++)
        check_text(e, "a rank's address", list[i], HY_RANK_ADDRESS_LIMIT);
}

static void check_group(struct excess *e, const Hy__GroupWord *word)
{
    switch (word->body_case) {
    case HY__GROUP_WORD__BODY_JOIN:
        check_addresses(e, word->join->addresses, word->join->n_addresses);
        check_text(e, "a rank's bell", word->join->bell, HY_RANK_ADDRESS_LIMIT);
        break;
    case HY__GROUP_WORD__BODY_NODE:
        check_addresses(e, word->node->addresses, word->node->n_addresses);
        break;
    case HY__GROUP_WORD__BODY_NOTE:
        check_text(e, "a rank's note", word->note, HY_TEXT_LIMIT);
        break;
    case HY__GROUP_WORD__BODY_FAILED:
        check_text(e, "a rank's failure", word->failed, HY_TEXT_LIMIT);
        break;
    case HY__GROUP_WORD__BODY_LOST:
        check_text(e, "a rank's end", word->lost->why, HY_TEXT_LIMIT);
        break;
    default:
        break; /* no variable length, or not a message of agents: the driver ignores it */
    }
}

static void check_usage(struct excess *e, const Hy__UsageReport *report)
{
    struct hy_usage usage;

    if (!report->usage || hy_usage_read(report->usage, &usage) < 0)
        exceeded(e, "an invalid series of samples (the limit is %u points)", HY_USAGE_POINTS);
}

static void check_agent_usage(struct excess *e, const Hy__AgentUsage *usage)
{
    size_t n = hy__agent_usage__get_packed_size(usage); /* includes fields of newer versions */

    check_count(e, "GPUs", usage->n_gpus, HY_GPU_LIST_LIMIT);
    for (size_t i = 0; i < usage->n_gpus && !e->found; i++)
        check_text(e, "a GPU's name", usage->gpus[i]->name, HY_NAME_LIMIT);
    if (n > HY_AGENT_USAGE_LIMIT)
        exceeded(e, "a machine usage report of %zu bytes (the limit is %u)", n, HY_AGENT_USAGE_LIMIT);
}

const char *hy_limits_exceeded(const Hy__Control *m, char *text, size_t size)
{
    struct excess e = {.text = text, .size = size};

    switch (m->body_case) {
    case HY__CONTROL__BODY_AGENT_INFO:
        check_info(&e, m->agent_info);
        break;
    case HY__CONTROL__BODY_REPORT:
        check_values(&e, m->report->metrics, m->report->n_metrics);
        break;
    case HY__CONTROL__BODY_OUTPUT:
        check_output(&e, m->output);
        break;
    case HY__CONTROL__BODY_ENDED:
        check_ended(&e, m->ended);
        break;
    case HY__CONTROL__BODY_BYE:
        check_text(&e, "the reason of a Bye", m->bye->why, HY_TEXT_LIMIT);
        break;
    case HY__CONTROL__BODY_HELD:
        check_text(&e, "what a trial waits for", m->held->why, HY_TEXT_LIMIT);
        break;
    case HY__CONTROL__BODY_NOTE:
        check_text(&e, "a note", m->note->text, HY_TEXT_LIMIT);
        break;
    case HY__CONTROL__BODY_GROUP:
        check_group(&e, m->group);
        break;
    case HY__CONTROL__BODY_USAGE:
        check_usage(&e, m->usage);
        break;
    case HY__CONTROL__BODY_AGENT_USAGE:
        check_agent_usage(&e, m->agent_usage);
        break;
    default:
        break;
    }
    return e.found ? text : NULL;
}

const char *hy_limits_check_path(const char *path)
{
    size_t depth = 0;

    if (strlen(path) > HY_PATH_LIMIT)
        return "is too long";
    for (const char *part = path;; part++) {
        size_t n = strcspn(part, "/");

        if (n == 0 || (n == 1 && part[0] == '.') || (n == 2 && part[0] == '.' && part[1] == '.'))
            return "is not below the trial's directory";
        if (n > HY_PATH_PART_LIMIT)
            return "has a part that is too long";
        if (++depth > HY_PATH_DEPTH_LIMIT)
            return "is too deep";
        part += n;
        if (!*part)
            return NULL;
    }
}
