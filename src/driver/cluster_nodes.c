/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes of a cluster: parameter servers, chief, workers, evaluator.
 *
 * Each node sends its address before it starts, and gets the list of all nodes
 * when it is complete, since TensorFlow needs all addresses from the start.
 * When chief and workers are done, servers are killed, since they never end by
 * themselves; evaluators may finish with the last checkpoint of the chief. A
 * worker that has joined its TensorFlow server counts as a server: a
 * coordinator controls it. A worker that is done but has such a server stays
 * until all are done, since a session of another worker starts by connecting to
 * all servers.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "driver/run.h"

#define EVALUATOR_GRACE_MS 60000
#define NODES_IN_NOTE 8 /* a note has at most 700 bytes */

/* ---- addresses ------------------------------------------------------------------------------- */

/* As far as their agents report. */
static bool are_on_one_host(struct trial **nodes, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        const struct agent *a = nodes[0]->agent, *b = nodes[i]->agent;

        if (a != b && (!a->host || !b->host || strcmp(a->host, b->host) != 0))
            return false;
    }
    return true;
}

static void fill_node(const struct driver *d, const struct trial *t, bool is_local, Hy__Node *ret)
{
    const struct hy_node node = hy_node_of(d->spec, t->number);
    const Hy__NodeJoin *join = t->member.node->group->node;

    hy__node__init(ret);
    ret->role = (char *)node.role;
    ret->index = node.index;
    ret->address = is_local || join->n_addresses == 0 ? (char *)"127.0.0.1" : join->addresses[0];
    ret->port = join->port;
    ret->host = t->agent->host ? t->agent->host : t->agent->name;
}

/* "nodes: chief-0 at 10.0.0.3:41234, …": clients find the addresses of nodes only here. */
static void note_addresses(struct driver *d, const Hy__Node *nodes, size_t n)
{
    char text[600] = "";
    size_t used = 0;

    for (size_t i = 0; i < n; i++) {
        const bool is_last = (i + 1) % NODES_IN_NOTE == 0 || i + 1 == n;
        int more = snprintf(text + used, sizeof text - used, "%s%s-%u at %s:%u", used ? ", " : "", nodes[i].role,
                            nodes[i].index, nodes[i].address, nodes[i].port);

        used += more > 0 ? (size_t)more : 0;
        if (is_last || used >= sizeof text) {
            hy_run_note(d, "nodes: %s", text);
            used = 0;
        }
    }
}

static void send_list(struct driver *d, struct trial **nodes, size_t n)
{
    hy_cleanup_free Hy__Node *rows = hy_calloc(n, sizeof *rows);
    hy_cleanup_free Hy__Node **list = hy_calloc(n, sizeof *list);
    const bool is_local = are_on_one_host(nodes, n);
    Hy__GroupWord word = HY__GROUP_WORD__INIT;
    Hy__Nodes body = HY__NODES__INIT;

    if (!rows || !list) {
        hy_run_out_of_memory(d);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        fill_node(d, nodes[i], is_local, &rows[i]);
        list[i] = &rows[i];
    }
    body.nodes = list;
    body.n_nodes = n;
    word.body_case = HY__GROUP_WORD__BODY_NODES;
    word.nodes = &body;
    for (size_t i = 0; i < n && d->phase == PHASE_RUNNING; i++) {
        body.self = (uint32_t)i;
        hy_rank_send(d, nodes[i], &word);
    }
    note_addresses(d, rows, n);
    hy_run_note(d, "all nodes have joined");
    d->cluster.has_joined = true;
}

static void send_fed(struct driver *d, struct trial *t)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;

    word.body_case = HY__GROUP_WORD__BODY_FED;
    word.fed = true;
    hy_rank_send(d, t, &word);
}

static void send_done(struct driver *d, struct trial *t)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;

    word.body_case = HY__GROUP_WORD__BODY_DONE;
    word.done = true;
    hy_rank_send(d, t, &word);
}

void hy_nodes_end_feed(struct driver *d)
{
    struct trial *t;

    d->cluster.feed_ended = true;
    for (size_t i = 0; (t = hy_map_next(&d->trials.map, &i));)
        if (hy_rank_is_alive(t) && t->member.node)
            send_fed(d, t);
}

void hy_nodes_feeder_lost(struct driver *d)
{
    if (!d->spec->fed || d->cluster.feed_ended || d->phase != PHASE_RUNNING)
        return;
    hy_run_note(d, "the program that fed the nodes has disconnected: they get no more rows");
    hy_nodes_end_feed(d);
}

static bool is_valid_join(const Hy__NodeJoin *join)
{
    return join->port > 0 && join->port <= UINT16_MAX && hy_are_valid_addresses(join->addresses, join->n_addresses);
}

void hy_nodes_join(struct driver *d, struct trial *t, const Hy__Control *m)
{
    hy_cleanup_free struct trial **nodes = NULL;
    size_t n = 0;

    if (!hy_is_cluster(d) || t->member.node || !is_valid_join(m->group->node) || d->training.abort_reason)
        return;
    t->member.node = hy_control_copy(m);
    if (!t->member.node) {
        hy_run_out_of_memory(d);
        return;
    }
    if (d->cluster.feed_ended)
        send_fed(d, t);
    nodes = hy_training_ranks(d, &n);
    for (size_t i = 0; nodes && i < n; i++)
        if (!hy_rank_is_alive(nodes[i]) || !nodes[i]->member.node)
            return;
    if (nodes && n == d->spec->ranks)
        send_list(d, nodes, n);
}

/* ---- dismissal ------------------------------------------------------------------------------- */

static bool is_server(const struct driver *d, const struct trial *t)
{
    return t->member.is_server || hy_node_is_server(d->spec, t->number);
}

/* A node that is done ends by itself, and its exit status counts. */
static void release_node(struct driver *d, struct trial *t)
{
    if (t->member.is_done) {
        t->member.is_done = false;
        send_done(d, t);
        return;
    }
    t->member.dismissed = true;
    hy_trial_kill(d, t);
}

static void dismiss(struct driver *d, bool servers_only)
{
    struct trial *t;

    for (size_t i = 0; (t = hy_map_next(&d->trials.map, &i));)
        if (hy_rank_is_alive(t) && !t->member.dismissed && (!servers_only || is_server(d, t) || t->member.is_done))
            release_node(d, t);
}

void hy_nodes_set_server(struct driver *d, struct trial *t)
{
    t->member.is_server = true;
    hy_nodes_check_done(d);
}

void hy_nodes_set_done(struct driver *d, struct trial *t)
{
    t->member.is_done = true;
    hy_nodes_check_done(d);
}

/* Whether all nodes that compute are done, and there is at least one. */
static bool are_workers_done(const struct driver *d)
{
    bool is_done = d->training.has_finished_rank;
    const struct trial *t;

    for (size_t i = 0; (t = hy_map_next(&d->trials.map, &i));) {
        if (!hy_node_has_rank(d->spec, t->number) || t->member.is_server)
            continue;
        if (!t->member.is_done && t->phase != TRIAL_ENDED)
            return false;
        is_done |= t->member.is_done;
    }
    return is_done;
}

void hy_nodes_check_done(struct driver *d)
{
    if (!hy_is_cluster(d) || d->training.abort_reason || !are_workers_done(d))
        return;
    dismiss(d, true);
    if (!d->cluster.dismiss_at)
        d->cluster.dismiss_at = hy_clock_ms() + EVALUATOR_GRACE_MS;
}

void hy_nodes_tick(struct driver *d, int64_t now)
{
    if (!d->cluster.dismiss_at || now < d->cluster.dismiss_at || d->training.abort_reason)
        return;
    dismiss(d, false);
}
