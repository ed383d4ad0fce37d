/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agents of all active runs, in all projects of this user, as reported by their drivers, and agents on standby.
 *
 * Requests go to all drivers before any answer is read: drivers that do not answer cost one time limit in total.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "view/view.h"
#include "web/api/api.h"
#include "web/api/util.h"

#define RUNS_MAX 64    /* drivers that are queried */
#define CONNECT_MS 100 /* for each driver ... */
#define ANSWERS_MS 1500 /* ... and for all answers together */

/* A driver that was sent a status request. */
struct driver_query {
    const struct hy_project *project;
    int64_t run;
    char *name;
    int fd; /* -Exxx: it cannot be reached */
};

struct cluster {
    struct hy_web *web;
    const struct hy_project *project;
    struct hy_store *store;
    int64_t connect_by;
    json_t *failures; /* error messages about projects that cannot be read */
    struct driver_query list[RUNS_MAX];
    size_t count;
};

/* ---- requests ---------------------------------------------------------------------------------- */

static int query_driver(struct cluster *c, int64_t run)
{
    hy_cleanup_close int fd = -ETIMEDOUT;
    int rc;

    if (hy_clock_ms() < c->connect_by)
        fd = hy_client_connect_within(c->store, run, CONNECT_MS, NULL);
    if (fd < 0)
        return fd;
    rc = hy_client_ask_status(fd);
    return rc < 0 ? rc : hy_take_fd(fd);
}

static int on_run(void *arg, const struct hy_run_row *row, const struct hy_run_counts *counts, bool alive)
{
    struct cluster *c = arg;
    struct driver_query *a = &c->list[c->count];

    (void)counts;
    if (!alive || c->count == RUNS_MAX)
        return 0;
    *a = (struct driver_query){.project = c->project, .run = row->id, .name = row->name ? hy_strdup(row->name) : NULL};
    a->fd = query_driver(c, row->id);
    c->count++;
    return 0;
}

/* A project that cannot be read does not hide the others. 0 or -ENOMEM. */
static int query_project(struct cluster *c)
{
    struct hy_err err = {0};
    int rc = hy_web_store(c->web, c->project, &c->store, &err);

    if (rc == -ENOENT || rc == -ENODATA)
        return 0; /* it has no runs */
    if (rc == 0) {
        rc = hy_runs_each(c->store, on_run, c, &err);
        hy_web_store_back(c->web, c->project, hy_take(c->store));
    }
    return rc < 0 ? hy_json_append(c->failures, hy_json_text(err.text)) : 0;
}

/* ---- answers ----------------------------------------------------------------------------------- */

static const char *server_name(Hy__AgentUsage__Server server)
{
    return server == HY__AGENT_USAGE__SERVER__READY      ? "ready"
           : server == HY__AGENT_USAGE__SERVER__STARTING ? "starting"
                                                         : NULL;
}

static json_t *gpu_json(const Hy__AgentUsage__Gpu *g, uint32_t trials)
{
    return json_pack("{s:o,s:I,s:o,s:o,s:I}", "name", hy_json_text(g->name), "memory_total",
                     (json_int_t)g->memory_total, "memory_used",
                     g->is_measured ? json_integer((json_int_t)g->memory_used) : json_null(), "use",
                     g->is_measured ? json_real(g->use / 1000.0) : json_null(), "trials", (json_int_t)trials);
}

static json_t *agent_json(const Hy__AgentStatus *a)
{
    const Hy__AgentUsage *u = a->usage;
    json_t *gpus = json_array(), *o = json_object();
    int rc = gpus ? 0 : -ENOMEM;

    for (size_t i = 0; u && i < u->n_gpus && rc == 0; i++)
        rc = hy_json_append(gpus, gpu_json(u->gpus[i], i < a->n_gpu_trials ? a->gpu_trials[i] : 0));
    rc |= hy_json_set(o, "gpus", gpus);
    rc |= hy_json_set(o, "name", hy_json_text(a->name));
    rc |= hy_json_set(o, "host", hy_json_text(a->host));
    rc |= hy_json_set(o, "connected", json_boolean(a->connected));
    rc |= hy_json_set(o, "slots", json_integer(a->slots));
    rc |= hy_json_set(o, "running", json_integer(a->running));
    rc |= hy_json_set(o, "held", json_integer(a->held));
    rc |= hy_json_set(o, "held_why", hy_json_text(*a->held_why ? a->held_why : NULL));
    rc |= hy_json_set(o, "memory", a->memory ? json_integer((json_int_t)a->memory) : json_null());
    rc |= hy_json_set(o, "trials_memory", json_integer((json_int_t)a->trials_memory));
    rc |= hy_json_set(o, "machine_memory", u ? json_integer((json_int_t)u->memory_total) : json_null());
    rc |= hy_json_set(o, "machine_memory_used", u ? json_integer((json_int_t)u->memory_used) : json_null());
    rc |= hy_json_set(o, "fork_server", hy_json_text(u ? server_name(u->server) : NULL));
    if (rc < 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}

static int set_status(json_t *o, const Hy__Status *s)
{
    json_t *agents = json_array();
    int rc = agents ? 0 : -ENOMEM;

    for (size_t i = 0; i < s->n_agents && rc == 0; i++)
        rc = hy_json_append(agents, agent_json(s->agents[i]));
    rc |= hy_json_set(o, "agents", agents);
    rc |= hy_json_set(o, "agents_total", json_integer(s->agents_total));
    rc |= hy_json_set(o, "running", json_integer((json_int_t)s->running));
    rc |= hy_json_set(o, "queued", json_integer((json_int_t)s->queued));
    rc |= hy_json_set(o, "slots", json_integer((json_int_t)s->slots));
    rc |= hy_json_set(o, "slots_used", json_integer((json_int_t)s->slots_used));
    return rc;
}

/* The next Status that a driver sends; NULL: none in time. */
static Hy__ClientAnswer *read_status(int fd, int64_t until)
{
    hy_cleanup_buf struct hy_buf rest, message;
    Hy__ClientAnswer *answer = NULL;
    int64_t left;
    int rc = 1;

    hy_buf_init(&rest, HY_LOCAL_MAX + 4096);
    hy_buf_init(&message, HY_LOCAL_MAX);
    while (fd >= 0 && rc == 1 && (left = until - hy_clock_ms()) > 0) {
        hy_buf_clear(&message);
        rc = hy_client_next(fd, &rest, &message, (int)left, &answer);
        if (rc == 1 && answer->body_case == HY__CLIENT_ANSWER__BODY_STATUS)
            return answer;
        if (rc == 1)
            hy__client_answer__free_unpacked(hy_take(answer), &hy_proto_memory);
    }
    return NULL;
}

static json_t *run_json(const struct driver_query *a, int64_t until)
{
    Hy__ClientAnswer *answer = read_status(a->fd, until);
    json_t *o = json_object();
    int rc = 0;

    rc |= hy_json_set(o, "project", hy_json_text(a->project->id));
    rc |= hy_json_set(o, "run", json_integer(a->run));
    rc |= hy_json_set(o, "name", hy_json_text(a->name));
    rc |= hy_json_set(o, "answers", json_boolean(answer != NULL));
    if (answer)
        rc |= set_status(o, answer->status);
    if (answer)
        hy__client_answer__free_unpacked(answer, &hy_proto_memory);
    if (rc < 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}

/* ---- GET /cluster ------------------------------------------------------------------------------ */

struct standby {
    json_t *array;
    int rc;
};

static void on_standby(void *arg, const struct hy_standby *s)
{
    struct standby *all = arg;

    if (all->rc == 0)
        all->rc = hy_json_append(
            all->array, json_pack("{s:I,s:I}", "pid", (json_int_t)s->agent, "client_pid", (json_int_t)s->client));
}

static int reply(struct hy_exchange *x, struct cluster *c)
{
    int64_t until = hy_clock_ms() + ANSWERS_MS;
    json_t *runs = json_array();
    struct standby standby = {.array = json_array()};
    int rc = runs && standby.array ? 0 : -ENOMEM;

    for (size_t i = 0; i < c->count && rc == 0; i++)
        rc = hy_json_append(runs, run_json(&c->list[i], until));
    if (rc == 0 && hy_standby_each(on_standby, &standby) < 0)
        rc = -EIO;
    rc = rc < 0 ? rc : standby.rc;
    if (rc == 0) {
        hy_reply_json(x, json_pack("{s:o,s:o,s:O}", "runs", runs, "standby", standby.array, "failures", c->failures));
        return 0;
    }
    json_decref(runs);
    json_decref(standby.array);
    return rc;
}

void hy_api_cluster(struct hy_exchange *x)
{
    hy_cleanup_free struct cluster *c = hy_calloc(1, sizeof *c);
    struct hy_err err = {0};
    int rc = c ? hy_web_projects_update(x->web, &err) : hy_err_oom(&err);

    if (c) {
        c->web = x->web;
        c->connect_by = hy_clock_ms() + 5 * CONNECT_MS;
        c->failures = json_array();
    }
    while (rc == 0 && (c->project = hy_web_next_project(x->web, c->project)))
        rc = query_project(c);
    if (rc == 0)
        rc = reply(x, c);
    if (rc < 0 && !err.code)
        hy_err_sys(&err, rc, "cannot list agents");
    json_decref(c ? c->failures : NULL);
    for (size_t i = 0; c && i < c->count; i++) {
        free(c->list[i].name);
        if (c->list[i].fd >= 0)
            hy_close_at(&c->list[i].fd);
    }
    if (rc < 0)
        hy_reply_failure(x, &err);
}
