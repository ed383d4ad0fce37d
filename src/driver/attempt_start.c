/* SPDX-License-Identifier: Apache-2.0 */
/* The start of an attempt: its row in the store, its command and its environment. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "driver/params_text.h"
#include "driver/run.h"

#define RANK_VARS 8
#define NODE_VARS 2
#define VARS_MAX (2 + NODE_VARS + RANK_VARS)

/* ---- the command ----------------------------------------------------------------------------- */

static char **expand_command(struct driver *d, const struct trial *t)
{
    char **argv = hy_calloc(d->spec->n_argv + 1, sizeof *argv);

    for (size_t i = 0; argv && i < d->spec->n_argv; i++) {
        /* A training has no parameters: braces in its command are literal. */
        argv[i] = hy_is_training(d) ? hy_strdup(d->spec->argv[i])
                                    : hy_command_expand(d->spec->argv[i], &d->space, t->values);
        if (!argv[i]) {
            while (i--)
                free(argv[i]);
            free(argv);
            return NULL;
        }
    }
    return argv;
}

static void free_strings(char **vars, size_t n)
{
    for (size_t i = 0; vars && i < n; i++)
        free(vars[i]);
    free(vars);
}

/* ---- the environment ------------------------------------------------------------------------- */

/* Local ranks are counted within an agent; cross ranks across the agents that have the same local rank. */
static int number_ranks(struct driver *d, struct trial **ranks, size_t n)
{
    hy_cleanup_free uint32_t *cross = hy_calloc(n + 1, sizeof *cross);
    struct agent *a;

    if (!cross)
        return -ENOMEM;
    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        a->scratch = 0;
    for (size_t i = 0; i < n; i++) {
        struct rank_numbers *m = &ranks[i]->member.numbers;

        m->rank = (uint32_t)i;
        m->size = (uint32_t)n;
        m->local_rank = ranks[i]->agent->scratch++;
        m->cross_rank = cross[m->local_rank]++;
    }
    for (size_t i = 0; i < n; i++) {
        struct rank_numbers *m = &ranks[i]->member.numbers;

        m->local_size = ranks[i]->agent->scratch;
        m->cross_size = cross[m->local_rank];
    }
    return 0;
}

static int number_running_ranks(struct driver *d)
{
    size_t all, n = 0;
    hy_cleanup_free struct trial **ranks = hy_training_ranks(d, &all);

    if (!ranks)
        return -ENOMEM;
    for (size_t i = 0; i < all; i++)
        if (ranks[i]->phase == TRIAL_RUNNING && hy_node_has_rank(d->spec, ranks[i]->number))
            ranks[n++] = ranks[i];
    if (number_ranks(d, ranks, n) == 0)
        return 0;
    hy_run_out_of_memory(d);
    return -ENOMEM;
}

/* The first rank of those that start together numbers all of them. */
static int rank_env(struct driver *d, struct trial *t, char *vars[RANK_VARS])
{
    const struct rank_numbers *m = &t->member.numbers;
    int rc = m->size ? 0 : number_running_ranks(d);

    if (rc < 0)
        return rc;
    vars[0] = hy_strdup("HOPYARD_GROUP=1");
    vars[1] = hy_asprintf("HOROVOD_RANK=%u", m->rank);
    vars[2] = hy_asprintf("HOROVOD_SIZE=%u", m->size);
    vars[3] = hy_asprintf("HOROVOD_LOCAL_RANK=%u", m->local_rank);
    vars[4] = hy_asprintf("HOROVOD_LOCAL_SIZE=%u", m->local_size);
    vars[5] = hy_asprintf("HOROVOD_CROSS_RANK=%u", m->cross_rank);
    vars[6] = hy_asprintf("HOROVOD_CROSS_SIZE=%u", m->cross_size);
    vars[7] = hy_asprintf("HOROVOD_ELASTIC=%d", hy_is_elastic(d));
    for (size_t i = 0; i < RANK_VARS; i++)
        rc = vars[i] ? rc : -ENOMEM;
    return rc;
}

/* With SO_REUSEPORT, TensorFlow can listen on the port that is reserved for it. */
static int node_env(struct driver *d, const struct trial *t, char *vars[NODE_VARS])
{
    const struct hy_node node = hy_node_of(d->spec, t->number);

    vars[0] = hy_asprintf("HOPYARD_NODE=%s:%u", node.role, node.index);
    vars[1] = hy_strdup("TF_GRPC_REUSE_PORT=true");
    return vars[0] && vars[1] ? 0 : -ENOMEM;
}

/* In addition to the user's environment. */
static int make_env(struct driver *d, struct trial *t, char *vars[VARS_MAX], size_t *ret_count)
{
    size_t n = 2;
    int rc = 0;

    vars[0] = hy_asprintf("HOPYARD_PARAMS=%s", t->params);
    vars[1] = hy_asprintf("HOPYARD_SEED=%llu", (unsigned long long)(d->spec->seed + t->number));
    if (!vars[0] || !vars[1])
        return -ENOMEM;
    if (hy_is_cluster(d)) {
        rc = node_env(d, t, vars + n);
        n += NODE_VARS;
    }
    if (rc == 0 && hy_is_training(d) && hy_node_has_rank(d->spec, t->number)) {
        rc = rank_env(d, t, vars + n);
        n += RANK_VARS;
    }
    *ret_count = n;
    return rc;
}

/* ---- the attempt ----------------------------------------------------------------------------- */

static int send_start(struct driver *d, struct trial *t, const struct hy_assignment *place)
{
    char **argv = expand_command(d, t), *vars[VARS_MAX] = {0};
    Hy__Start start = HY__START__INIT;
    Hy__Control m = HY__CONTROL__INIT;
    int rc = argv ? make_env(d, t, vars, &start.n_env) : -ENOMEM;

    start.trial = t->number;
    start.attempt = t->attempt;
    start.argv = argv;
    start.n_argv = d->spec->n_argv;
    start.env = vars;
    start.dir = t->dir;
    start.memory = d->spec->memory;
    start.timeout_ms = d->spec->timeout_ms;
    start.gpu_mask = place->gpu_mask;
    start.gpu_share = place->gpu_share;
    start.gpus_said = d->spec->gpus_said || hy_node_is_server(d->spec, t->number);
    m.body_case = HY__CONTROL__BODY_START;
    m.start = &start;
    if (rc == 0 && t->attempt > 1 && !t->agent->shares_files)
        rc = hy_checkpoint_send(d, t->agent, t, &start);
    if (rc == 0)
        rc = hy_agents_send(t->agent, &m);
    hy_checkpoint_free_files(&start);
    free_strings(argv, d->spec->n_argv);
    for (size_t i = 0; i < HY_COUNT(vars); i++)
        free(vars[i]);
    return rc;
}

int hy_attempt_begin(struct driver *d, struct trial *t, const struct hy_assignment *place)
{
    struct agent *a = hy_map_get(&d->agents.map, place->agent);
    struct hy_attempt_row row;
    int rc;

    hy_rank_reset(t);
    t->attempt++;
    t->phase = TRIAL_RUNNING;
    t->agent = a;
    t->has_value = t->killed = false;
    hy_early_stop_begin(d, t);
    free(hy_take(t->lost_file));
    t->step = -1;
    t->started_ms = hy_clock_ms();
    t->started_wall = hy_clock_wall_ms();
    t->gpu_mask = place->gpu_mask;
    t->memory = 0;
    hy_list_push(&a->trials, &t->on_agent);
    d->changed = true;
    row = (struct hy_attempt_row){.trial = (int64_t)t->number,
                                  .number = t->attempt,
                                  .agent = a->name,
                                  .host = a->host,
                                  .state = HY_ATTEMPT_RUNNING,
                                  .queued = t->queued_wall ? t->queued_wall : t->started_wall,
                                  .gpus = t->gpu_mask,
                                  .started = t->started_wall};
    rc = hy_run_check_recorded(d, hy_changes_attempt_add(&d->commit.recorded, &row));
    if (rc == 0)
        hy_events_start(d, t);
    return rc;
}

void hy_attempt_send(struct driver *d, struct trial *t, const struct hy_assignment *place)
{
    int rc = send_start(d, t, place);

    if (rc == -ENOBUFS) { /* the agent reads too slowly: retried later or elsewhere */
        t->agent->is_backlogged = true;
        hy_schedule_agent_open(d->schedule, t->agent->id, 0);
        if (hy_trial_end_attempt(d, t, HY_ATTEMPT_LOST, HY_CHARGE_NONE, "its agent reads messages too slowly") == 0)
            hy_trial_queue(d, t);
    } else if (rc < 0 && rc != -ECANCELED) {
        hy_run_out_of_memory(d);
    }
}
