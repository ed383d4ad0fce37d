/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts that a script lists (--host-discovery-script).
 *
 * The script runs once a second. Each line that it prints is a host that may
 * run ranks, "HOST" or "HOST:SLOTS". A host that appears gets an agent, one
 * that disappears loses it, and one whose slots change has more or fewer ranks.
 * If its first run fails the training fails; later failures change nothing.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "driver/run.h"

#define EVERY_MS 1000
#define SLOW_MS 60000           /* a script that runs longer is killed */
#define OUTPUT_MAX (1u << 20)
#define HOST_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@:[]%"

struct discovery {
    uv_process_t process;
    uv_pipe_t out;
    unsigned open_handles; /* of this run of the script */
    bool runs;
    bool known;            /* it has succeeded at least once */
    bool failed;           /* the last time, and it was noted */
    int64_t started_ms, next_at;
    int64_t status;        /* of the last run; < 0: the signal that ended it */
    int spawn_rc;          /* 0, or why it could not be started */
    struct hy_buf text;
    char chunk[4096];
};

bool hy_host_is_here(const char *host)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    char own[256] = "";

    for (size_t i = 0; i < HY_COUNT(names); i++)
        if (strcmp(host, names[i]) == 0)
            return true;
    return gethostname(own, sizeof own - 1) == 0 && strcmp(host, own) == 0;
}

/* ---- parsing --------------------------------------------------------------------------------- */

void hy_discovered_done(struct hy_discovered *hosts)
{
    free(hosts->rows);
    *hosts = (struct hy_discovered){0};
}

static struct hy_discovered_host *find(const struct hy_discovered *hosts, const char *name)
{
    for (size_t i = 0; i < hosts->count; i++)
        if (strcmp(hosts->rows[i].name, name) == 0)
            return &hosts->rows[i];
    return NULL;
}

static int add(struct hy_discovered *hosts, const struct hy_discovered_host *host)
{
    struct hy_discovered_host *known = find(hosts, host->name);

    if (known) { /* the last line counts, as in Horovod */
        *known = *host;
        return 0;
    }
    if (hy_array_grow(hosts->rows, hosts->count) < 0)
        return -ENOMEM;
    hosts->rows[hosts->count++] = *host;
    return 0;
}

/* "a", "a:4", "[fe80::1]:4". */
static int parse_line(const char *line, size_t n, uint32_t slots, struct hy_discovered_host *ret, struct hy_err *err)
{
    const char *close = memchr(line, ']', n), *from = close ? close : line;
    const char *colon = memchr(from, ':', n - (size_t)(from - line));
    size_t length = colon ? (size_t)(colon - line) : n;
    uint64_t number = slots;
    char text[16] = "";

    if (length == 0 || length >= sizeof ret->name || *line == '-' || strspn(line, HOST_CHARS) < length)
        return hy_err_set(err, -EINVAL, "invalid host '%.*s'; print HOST or HOST:SLOTS", (int)(n < 80 ? n : 80), line);
    if (colon && n - length - 1 < sizeof text)
        memcpy(text, colon + 1, n - length - 1);
    if (colon && (hy_parse_u64(text, &number) < 0 || number > HY_SLOTS_LIMIT))
        return hy_err_set(err, -EINVAL, "invalid number of slots in '%.*s'; use a number up to %u",
                          (int)(n < 80 ? n : 80), line, HY_SLOTS_LIMIT);
    if (!colon && !slots)
        return hy_err_set(err, -EINVAL,
                          "host '%.*s' has no number of slots; print HOST:SLOTS, or pass "
                          "--slots-per-host N",
                          (int)(n < 80 ? n : 80), line);
    memcpy(ret->name, line, length);
    ret->name[length] = '\0';
    ret->slots = (uint32_t)number;
    return 0;
}

int hy_discovered_parse(const char *text, uint32_t slots, struct hy_discovered *ret, struct hy_err *err)
{
    struct hy_discovered hosts = {0};
    int rc = 0;

    for (const char *end; rc == 0 && *text; text = *end ? end + 1 : end) {
        struct hy_discovered_host host = {0};
        size_t n;

        end = strchrnul(text, '\n');
        text += strspn(text, " \t\r");
        for (n = end > text ? (size_t)(end - text) : 0; n && strchr(" \t\r", text[n - 1]); n--)
            ;
        if (n == 0)
            continue;
        rc = parse_line(text, n, slots, &host, err);
        if (rc == 0 && host.slots && add(&hosts, &host) < 0)
            rc = hy_err_oom(err);
    }
    if (rc < 0)
        hy_discovered_done(&hosts);
    else
        *ret = hosts;
    return rc;
}

/* ---- applying changes ------------------------------------------------------------------------ */

static int by_number_downwards(const void *a, const void *b)
{
    const struct trial *x = *(struct trial *const *)a, *y = *(struct trial *const *)b;

    return x->number > y->number ? -1 : x->number < y->number;
}

/* Ends the ranks with the highest numbers until the others fit. */
static void displace_surplus_ranks(struct driver *d, struct agent *a)
{
    hy_cleanup_free struct trial **ranks = hy_calloc(d->trials.map.count + 1, sizeof *ranks);
    size_t n = 0;

    if (!ranks) {
        hy_run_out_of_memory(d);
        return;
    }
    hy_list_each(it, &a->trials) {
        struct trial *t = hy_container(it, struct trial, on_agent);

        if (hy_rank_is_alive(t) && !t->killed)
            ranks[n++] = t;
    }
    qsort(ranks, n, sizeof *ranks, by_number_downwards);
    for (size_t i = 0; n > a->discovered_slots; i++, n--)
        hy_rank_displace(d, ranks[i], "its host has fewer slots now");
}

static void resize(struct driver *d, struct agent *a, uint32_t slots)
{
    bool fewer = slots < a->discovered_slots;

    hy_run_note(d, "host %s has %u slot%s now (before: %u)", a->name, slots, slots == 1 ? "" : "s",
                a->discovered_slots);
    hy_agents_resize(d, a, slots);
    if (fewer)
        displace_surplus_ranks(d, a);
}

/* Removing an agent changes the map, so they are searched one at a time. */
static struct agent *next_to_remove(struct driver *d, const struct hy_discovered *hosts)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (a->discovered_slots && !a->released && !find(hosts, a->name))
            return a;
    return NULL;
}

static struct agent *find_agent(struct driver *d, const char *name)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (a->discovered_slots && strcmp(a->name, name) == 0)
            return a;
    return NULL;
}

static int apply_host(struct driver *d, const struct hy_discovered_host *host)
{
    struct agent *a = find_agent(d, host->name);

    if (a && a->released)
        return 0; /* it is still leaving: added by a later run of the script */
    if (a && a->discovered_slots != host->slots)
        resize(d, a, host->slots);
    if (a)
        return 0;
    hy_run_note(d, "host %s is added with %u slot%s", host->name, host->slots, host->slots == 1 ? "" : "s");
    return hy_agents_add_host(d, host->name, hy_host_is_here(host->name) ? NULL : host->name, host->slots);
}

static void apply_hosts(struct driver *d, const struct hy_discovered *hosts)
{
    struct agent *a;
    int rc = 0;

    while ((a = next_to_remove(d, hosts))) {
        hy_run_note(d, "host %s is not listed any more; its ranks end", a->name);
        hy_agents_remove_host(d, a);
    }
    for (size_t i = 0; i < hosts->count && rc == 0; i++)
        rc = apply_host(d, &hosts->rows[i]);
    if (rc < 0)
        hy_run_out_of_memory(d);
    if (hosts->count == 0 && !d->discovery->known)
        hy_run_note(d, "waiting for machines: the host discovery script has not listed any yet");
    d->discovery->known = true;
}

/* Hosts that have left may be listed again. */
static void remove_departed(struct driver *d)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (a->discovered_slots && a->released && !a->peer && !a->process_runs) {
            hy_agents_remove_host(d, a);
            i = 0; /* the removal has changed the map */
        }
}

/* ---- running the script ---------------------------------------------------------------------- */

static void on_failed(struct driver *d, const char *why)
{
    struct discovery *y = d->discovery;
    struct hy_err err = {0};

    if (!y->known) {
        hy_err_set(&err, -ECHILD, "the host discovery script '%s' %s", d->spec->discovery, why);
        hy_run_fail(d, &err);
    } else if (!y->failed) {
        hy_run_note(d, "the host discovery script '%s' %s; the hosts stay unchanged, and the script is run again",
                    d->spec->discovery, why);
    }
    y->failed = true;
}

static void on_finished(struct driver *d)
{
    struct discovery *y = d->discovery;
    const char *text = hy_buf_cstr(&y->text);
    struct hy_discovered hosts = {0};
    struct hy_err err = {0};
    char why[320];

    if (d->phase != PHASE_RUNNING)
        return;
    if (y->spawn_rc) {
        snprintf(why, sizeof why, "cannot be started: %s", uv_strerror(y->spawn_rc));
        on_failed(d, why);
    } else if (y->status) {
        snprintf(why, sizeof why, y->status < 0 ? "was ended by signal %lld" : "ended with exit status %lld",
                 (long long)(y->status < 0 ? -y->status : y->status));
        on_failed(d, why);
    } else if (!text) {
        hy_run_out_of_memory(d);
    } else if (hy_discovered_parse(text, d->spec->discovery_slots, &hosts, &err) < 0) {
        snprintf(why, sizeof why, "printed an invalid line: %.280s", err.text);
        on_failed(d, why);
    } else {
        y->failed = false;
        apply_hosts(d, &hosts);
    }
    hy_discovered_done(&hosts);
}

static void on_closed(uv_handle_t *h)
{
    struct driver *d = h->data;
    struct discovery *y = d->discovery;

    if (--y->open_handles)
        return;
    y->runs = false;
    y->next_at = hy_clock_ms() + EVERY_MS;
    on_finished(d);
}

static void on_script_exit(uv_process_t *h, int64_t status, int signal)
{
    struct driver *d = h->data;

    d->discovery->status = signal ? -signal : status;
    uv_close((uv_handle_t *)h, on_closed);
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct driver *d = h->data;

    (void)suggested;
    *buf = uv_buf_init(d->discovery->chunk, sizeof d->discovery->chunk);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct driver *d = stream->data;

    if (n > 0 && hy_buf_append(&d->discovery->text, buf->base, (size_t)n) < 0)
        hy_warn_limited("the output of the host discovery script is too long");
    if (n < 0 && !uv_is_closing((uv_handle_t *)stream))
        uv_close((uv_handle_t *)stream, on_closed);
}

static int spawn(struct driver *d)
{
    struct discovery *y = d->discovery;
    char *argv[] = {(char *)"sh", (char *)"-c", d->spec->discovery, NULL};
    hy_cleanup_free char **env = hy_calloc(d->spec->n_env + 1, sizeof *env);
    uv_stdio_container_t io[] = {{.flags = UV_IGNORE},
                                 {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&y->out},
                                 {.flags = UV_INHERIT_FD, .data.fd = 2}};
    uv_process_options_t options = {.file = "/bin/sh",
                                    .args = argv,
                                    .env = env,
                                    .stdio = io,
                                    .stdio_count = 3,
                                    .cwd = d->spec->cwd,
                                    .exit_cb = on_script_exit,
                                    .flags = UV_PROCESS_DETACHED};
    int rc;

    if (!env)
        return -ENOMEM;
    if (d->spec->n_env)
        memcpy(env, d->spec->env, d->spec->n_env * sizeof *env);
    rc = uv_spawn(&d->loop, &y->process, &options);
    if (rc == 0 && uv_read_start((uv_stream_t *)&y->out, on_alloc, on_read) < 0)
        uv_close((uv_handle_t *)&y->out, on_closed);
    return rc;
}

static void start(struct driver *d, int64_t now)
{
    struct discovery *y = d->discovery;

    hy_buf_clear(&y->text);
    uv_pipe_init(&d->loop, &y->out, 0);
    y->process.data = y->out.data = d;
    y->open_handles = 2;
    y->runs = true;
    y->started_ms = now;
    y->spawn_rc = spawn(d);
    if (y->spawn_rc == 0)
        return;
    uv_close((uv_handle_t *)&y->out, on_closed);
    uv_close((uv_handle_t *)&y->process, on_closed);
}

int hy_discovery_open(struct driver *d, struct hy_err *err)
{
    if (!*d->spec->discovery)
        return 0;
    d->discovery = hy_calloc(1, sizeof *d->discovery);
    if (!d->discovery)
        return hy_err_oom(err);
    hy_buf_init(&d->discovery->text, OUTPUT_MAX);
    return 0;
}

static void kill_script(const struct discovery *y)
{
    if (y->runs && !uv_is_closing((const uv_handle_t *)&y->process) && kill(-y->process.pid, SIGKILL) < 0)
        hy_warn("cannot kill the host discovery script error=%s", strerror(errno));
}

/* The exit of the script is reported by libuv; its descendants may keep its standard output open. */
static void kill_slow_script(struct discovery *y)
{
    kill_script(y);
    if (!uv_is_closing((uv_handle_t *)&y->out))
        uv_close((uv_handle_t *)&y->out, on_closed);
}

void hy_discovery_tick(struct driver *d, int64_t now)
{
    struct discovery *y = d->discovery;

    if (!y)
        return;
    remove_departed(d);
    if (!y->runs && now >= y->next_at)
        start(d, now);
    else if (y->runs && now - y->started_ms > SLOW_MS)
        kill_slow_script(y);
}

void hy_discovery_stop(struct driver *d)
{
    if (d->discovery)
        kill_script(d->discovery);
}

void hy_discovery_free(struct driver *d)
{
    if (!d->discovery)
        return;
    hy_buf_done(&d->discovery->text);
    free(hy_take(d->discovery));
}
