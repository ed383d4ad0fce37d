/* SPDX-License-Identifier: Apache-2.0 */
/* An attempt begins: its row in the store, and what its agent is told. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "driver/params_text.h"
#include "driver/run.h"

#define RANK_WORDS 8
#define NODE_WORDS 2
#define WORDS_MAX (2 + NODE_WORDS + RANK_WORDS)

/* ---- its command ------------------------------------------------------------------------------ */

static char **expand_command(struct driver *d, const struct trial *t)
{
    char **argv = hy_calloc(d->spec->n_argv + 1, sizeof *argv);

    for (size_t i = 0; argv && i < d->spec->n_argv; i++) {
        /* A training has no parameters: braces of its command are the user's own. */
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

static void free_words(char **words, size_t n)
{
    for (size_t i = 0; words && i < n; i++)
        free(words[i]);
    free(words);
}

/* ---- its environment ---------------------------------------------------------------------- */

/* Local ranks count within an agent; of equal local rank on several, the cross rank counts. */
static int number_ranks(struct driver *d, struct trial **ranks, size_t n)
{
    hy_cleanup_free uint32_t *cross = hy_calloc(n + 1, sizeof *cross);
    struct agent *a;

    if (!cross)
        return -ENOMEM;
    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        a->mark = 0;
    for (size_t i = 0; i < n; i++) {
        struct numbers *m = &ranks[i]->member.numbers;

        m->rank = (uint32_t)i;
        m->size = (uint32_t)n;
        m->local_rank = ranks[i]->agent->mark++;
        m->cross_rank = cross[m->local_rank]++;
    }
    for (size_t i = 0; i < n; i++) {
        struct numbers *m = &ranks[i]->member.numbers;

        m->local_size = ranks[i]->agent->mark;
        m->cross_size = cross[m->local_rank];
    }
    return 0;
}

static int count_off(struct driver *d)
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

/* The first of those that start together counts for all of them. */
static int rank_words(struct driver *d, struct trial *t, char *words[RANK_WORDS])
{
    const struct numbers *m = &t->member.numbers;
    int rc = m->size ? 0 : count_off(d);

    if (rc < 0)
        return rc;
    words[0] = hy_strdup("HOPYARD_GROUP=1");
    words[1] = hy_asprintf("HOROVOD_RANK=%u", m->rank);
    words[2] = hy_asprintf("HOROVOD_SIZE=%u", m->size);
    words[3] = hy_asprintf("HOROVOD_LOCAL_RANK=%u", m->local_rank);
    words[4] = hy_asprintf("HOROVOD_LOCAL_SIZE=%u", m->local_size);
    words[5] = hy_asprintf("HOROVOD_CROSS_RANK=%u", m->cross_rank);
    words[6] = hy_asprintf("HOROVOD_CROSS_SIZE=%u", m->cross_size);
    words[7] = hy_asprintf("HOROVOD_ELASTIC=%d", hy_is_elastic(d));
    for (size_t i = 0; i < RANK_WORDS; i++)
        rc = words[i] ? rc : -ENOMEM;
    return rc;
}

/* TensorFlow may listen where the port is held for it. */
static int node_words(struct driver *d, const struct trial *t, char *words[NODE_WORDS])
{
    const struct hy_node node = hy_node_of(d->spec, t->number);

    words[0] = hy_asprintf("HOPYARD_NODE=%s:%u", node.role, node.index);
    words[1] = hy_strdup("TF_GRPC_REUSE_PORT=true");
    return words[0] && words[1] ? 0 : -ENOMEM;
}

/* What it has beyond the user's. */
static int make_words(struct driver *d, struct trial *t, char *words[WORDS_MAX], size_t *ret_count)
{
    size_t n = 2;
    int rc = 0;

    words[0] = hy_asprintf("HOPYARD_PARAMS=%s", t->params);
    words[1] = hy_asprintf("HOPYARD_SEED=%llu", (unsigned long long)(d->spec->seed + t->number));
    if (!words[0] || !words[1])
        return -ENOMEM;
    if (hy_is_cluster(d)) {
        rc = node_words(d, t, words + n);
        n += NODE_WORDS;
    }
    if (rc == 0 && hy_is_training(d) && hy_node_has_rank(d->spec, t->number)) {
        rc = rank_words(d, t, words + n);
        n += RANK_WORDS;
    }
    *ret_count = n;
    return rc;
}

/* ---- the attempt ----------------------------------------------------------------------------- */

static int send_start(struct driver *d, struct trial *t, const struct hy_assignment *seat)
{
    char **argv = expand_command(d, t), *words[WORDS_MAX] = {0};
    Hy__Start start = HY__START__INIT;
    Hy__Control m = HY__CONTROL__INIT;
    int rc = argv ? make_words(d, t, words, &start.n_env) : -ENOMEM;

    start.trial = t->number;
    start.attempt = t->attempt;
    start.argv = argv;
    start.n_argv = d->spec->n_argv;
    start.env = words;
    start.dir = t->dir;
    start.memory = d->spec->memory;
    start.timeout_ms = d->spec->timeout_ms;
    start.gpu_mask = seat->gpu_mask;
    start.gpu_share = seat->gpu_share;
    start.gpus_said = d->spec->gpus_said || hy_node_is_server(d->spec, t->number);
    m.body_case = HY__CONTROL__BODY_START;
    m.start = &start;
    if (rc == 0 && t->attempt > 1 && !t->agent->shares_files)
        rc = hy_checkpoint_send(d, t->agent, t, &start);
    if (rc == 0)
        rc = hy_agents_send(t->agent, &m);
    hy_checkpoint_sent(&start);
    free_words(argv, d->spec->n_argv);
    for (size_t i = 0; i < HY_COUNT(words); i++)
        free(words[i]);
    return rc;
}

int hy_attempt_seat(struct driver *d, struct trial *t, const struct hy_assignment *seat)
{
    struct agent *a = hy_map_get(&d->agents.map, seat->agent);
    struct hy_attempt_row row;
    int rc;

    hy_ranks_forget(t);
    t->attempt++;
    t->phase = TRIAL_RUNNING;
    t->agent = a;
    t->has_value = t->killed = false;
    free(hy_take(t->spoiled));
    t->step = -1;
    t->started_ms = hy_clock_ms();
    t->started_wall = hy_clock_wall_ms();
    hy_list_push(&a->trials, &t->on_agent);
    d->changed = true;
    row = (struct hy_attempt_row){.trial = (int64_t)t->number, .number = t->attempt, .agent = a->name,
                                  .host = a->host, .state = HY_ATTEMPT_RUNNING, .started = t->started_wall};
    rc = hy_run_recorded(d, hy_changes_attempt_add(&d->commit.recorded, &row));
    if (rc == 0)
        hy_events_start(d, t);
    return rc;
}

void hy_attempt_send(struct driver *d, struct trial *t, const struct hy_assignment *seat)
{
    int rc = send_start(d, t, seat);

    if (rc == -ENOBUFS) { /* the agent is behind: later, and meanwhile elsewhere */
        t->agent->full = true;
        hy_schedule_agent_open(d->schedule, t->agent->id, 0);
        if (hy_trial_end_attempt(d, t, HY_ATTEMPT_LOST, HY_CHARGE_NONE, "its agent had not taken what was sent before") == 0)
            hy_trial_queue(d, t);
    } else if (rc < 0 && rc != -ECANCELED) {
        hy_run_out_of_memory(d);
    }
}
