/* SPDX-License-Identifier: Apache-2.0 */
#include "view/run_description.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/text.h"
#include "view/json_values.h"
#include "client/client.h"

static int append_quoted(struct hy_buf *b, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./{}-";
    int rc;

    if (*word && strspn(word, plain) == strlen(word))
        return hy_buf_append_str(b, word);
    rc = hy_buf_append_str(b, "'");
    for (; *word && rc == 0; word++)
        rc = *word == '\'' ? hy_buf_append_str(b, "'\\''") : hy_buf_append(b, word, 1);
    return rc < 0 ? rc : hy_buf_append_str(b, "'");
}

static char *taken(struct hy_buf *b, int rc)
{
    const char *text = rc < 0 ? NULL : hy_buf_cstr(b);

    return text ? hy_strdup(text) : NULL;
}

char *hy_command_text(const char *json)
{
    hy_cleanup_json json_t *words = hy_json_parse(json, JSON_DECODE_ANY);
    hy_cleanup_buf struct hy_buf b;
    int rc = 0;

    hy_buf_init(&b, SIZE_MAX / 2);
    if (json_is_string(words)) /* the title of a Python function */
        rc = hy_buf_append_str(&b, json_string_value(words));
    for (size_t i = 0; i < json_array_size(words) && rc == 0; i++) {
        const char *word = json_string_value(json_array_get(words, i));

        rc = i ? hy_buf_append_str(&b, " ") : 0;
        rc = rc < 0 ? rc : append_quoted(&b, word ? word : "?");
    }
    return taken(&b, rc);
}

char *hy_versions_text(const char *json)
{
    hy_cleanup_json json_t *versions = hy_json_parse(json, 0);
    hy_cleanup_buf struct hy_buf b;
    const char *name;
    json_t *value;
    int rc = 0;

    hy_buf_init(&b, SIZE_MAX / 2);
    json_object_foreach(versions, name, value) if (rc == 0 && json_is_string(value))
        rc = hy_buf_printf(&b, "%s%s %s", b.len ? ", " : "", name, json_string_value(value));
    return taken(&b, rc);
}

char *hy_format_age(int64_t wall_ms, int64_t now_ms, char *out, size_t size)
{
    int64_t seconds = now_ms > wall_ms ? (now_ms - wall_ms) / 1000 : 0;

    if (seconds < 60)
        snprintf(out, size, "%llds ago", (long long)seconds);
    else if (seconds < 3600)
        snprintf(out, size, "%lldm ago", (long long)seconds / 60);
    else if (seconds < 86400)
        snprintf(out, size, "%lldh ago", (long long)seconds / 3600);
    else
        snprintf(out, size, "%lldd ago", (long long)seconds / 86400);
    return out;
}

char *hy_format_time(int64_t wall_ms, char *out, size_t size)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm tm;

    if (!localtime_r(&seconds, &tm) || !strftime(out, size, "%Y-%m-%d %H:%M:%S", &tm))
        snprintf(out, size, "?");
    return out;
}

static json_t *parsed(const char *json)
{
    json_t *value = json ? hy_json_parse(json, JSON_DECODE_ANY) : json_null();

    return value ? value : hy_json_text(json);
}

/* A list of strings, even if an imported store has something else. */
json_t *hy_json_tags(const char *json)
{
    json_t *all = json ? hy_json_parse(json, 0) : NULL, *tag;
    size_t i;

    if (!json_is_array(all)) {
        json_decref(all);
        return json_array();
    }
    json_array_foreach(all, i, tag) if (!json_is_string(tag)) json_array_remove(all, i--);
    return all;
}

static json_t *time_of(int64_t wall_ms)
{
    char text[40];

    if (!wall_ms)
        return json_null();
    hy_clock_iso8601(wall_ms, text, sizeof text);
    return json_string(text);
}

static int set_counts(json_t *o, const struct hy_run_row *row, const struct hy_run_counts *counts)
{
    int rc = 0;

    rc |= hy_json_set(o, "total", row->total >= 0 ? json_integer(row->total) : json_null());
    rc |= hy_json_set(o, "running", json_integer(counts->running));
    rc |= hy_json_set(o, "done", json_integer(counts->done));
    rc |= hy_json_set(o, "failed", json_integer(counts->failed));
    rc |= hy_json_set(o, "stopped", json_integer(counts->stopped));
    rc |= hy_json_set(o, "pruned", json_integer(counts->pruned));
    rc |= hy_json_set(o, "paused", json_integer(counts->paused));
    rc |= hy_json_set(o, "best_trial", counts->best_trial ? json_integer(counts->best_trial) : json_null());
    rc |= hy_json_set(o, "best_value", counts->best_trial ? hy_json_number(counts->best_value) : json_null());
    return rc;
}

json_t *hy_json_run(const struct hy_run_row *row, const struct hy_run_counts *counts, bool alive, const char *logdir,
                    const char *socket)
{
    json_t *o = json_object();
    int rc = 0;

    rc |= hy_json_set(o, "run", json_integer(row->id));
    rc |= hy_json_set(o, "name", hy_json_text(row->name));
    rc |= hy_json_set(o, "state", hy_json_text(hy_run_state_text(row, alive)));
    rc |= hy_json_set(o, "message", hy_json_text(row->message));
    rc |= hy_json_set(o, "command", parsed(row->command));
    rc |= hy_json_set(o, "kind", hy_json_text(row->kind));
    rc |= hy_json_set(o, "engine", hy_json_text(row->engine));
    rc |= hy_json_set(o, "tags", hy_json_tags(row->tags));
    rc |= hy_json_set(o, "note", hy_json_text(row->note));
    rc |= hy_json_set(o, "ranks", row->ranks ? json_integer(row->ranks) : json_null());
    rc |= hy_json_set(o, "metric", hy_json_text(row->metric));
    rc |= hy_json_set(o, "maximize", json_boolean(row->maximize));
    rc |= hy_json_set(o, "seed", json_integer(row->seed));
    rc |= hy_json_set(o, "git", hy_json_text(row->git));
    rc |= hy_json_set(o, "versions", parsed(row->versions));
    rc |= hy_json_set(o, "created", time_of(row->created));
    rc |= hy_json_set(o, "ended", time_of(row->ended));
    rc |= hy_json_set(o, "app_id", hy_json_text(row->app_id));
    rc |= hy_json_set(o, "app_run", json_integer(row->app_run));
    rc |= hy_json_set(o, "logdir", hy_json_text(logdir));
    if (socket)
        rc |= hy_json_set(o, "socket", hy_json_text(socket));
    rc |= set_counts(o, row, counts);
    if (rc < 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}
