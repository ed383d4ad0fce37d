/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "supervise/supervise.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "driver/run.h"
#include "wire/wire.h"

#define RESTARTS_MAX 5          /* in a row without a sign of life ... */
#define FIRST_RESTARTS_MAX 3    /* ... of a host that never gave one: a wrong name, a missing key */
#define OUR_STREAMS HY_AGENT_STREAMS_END
#define START_MS 60000          /* to come up, the copying of the program included */
#define RESTART_FIRST_MS 200
#define RESTART_MAX_MS 30000
#define NOTES_OF_AGENT_MAX 100u /* that the run keeps of one agent */
#define ORDERS_MAX 32           /* agents that a client has been asked for, and that have not come yet */
#define JOINED_MAX 10000        /* agents that have joined by themselves, at a time */

/* Whoever has the join key can come and go as often as they like. */
static struct hy_log_limit comings_and_goings = {.burst = 1000, .every_ms = 1000};

/* ---- who there is ------------------------------------------------------------------ */

static struct agent *agent_new(struct driver *d, const char *identity, const char *name, uint32_t slots)
{
    struct agent *a = hy_calloc(1, sizeof *a);

    if (!a)
        return NULL;
    a->id = ++d->agents.last_id;
    a->slots = slots;
    a->next_stream = OUR_STREAMS;
    a->identity = identity ? hy_strdup(identity) : hy_asprintf("agent-%llu", (unsigned long long)a->id);
    a->name = hy_strdup(name);
    hy_list_init(&a->trials);
    if (!a->identity || !a->name || hy_map_put(&d->agents.map, a->id, a) < 0) {
        free(a->identity);
        free(a->name);
        free(a);
        return NULL;
    }
    return a;
}

static void agent_free(struct driver *d, struct agent *a)
{
    hy_list_each(it, &a->trials) /* of a run that ended without them: a trial outlives its agent */
        hy_list_remove(it);
    hy_map_remove(&d->agents.map, a->id);
    hy_map_done(&a->outputs);
    hy_map_done(&a->sending);
    free(a->identity);
    free(a->name);
    free(a->host_spec);
    free(a->host);
    free(a);
}

static struct agent *agent_of_identity(struct driver *d, const char *identity)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (strcmp(a->identity, identity) == 0)
            return a;
    return NULL;
}

int hy_agents_send(struct agent *a, const Hy__Control *m)
{
    return a->peer ? hy_peer_send(a->peer, m) : -EPIPE;
}

/* ---- started, lost, started again -------------------------------------------------------- */

static int order_process(struct driver *d, const struct hy_agent_order *order, struct hy_err *err)
{
    return *d->spec->engine ? hy_supply_start(d, order, err) : hy_engine_start(d->agents.engine, order, err);
}

/* What is not our descendant would outlive us, if we were killed. */
static void keep_adopted(struct driver *d, const struct agent *a)
{
    int pidfd = hy_engine_adopted(d->agents.engine, a->id), rc = pidfd < 0 ? 0 : hy_reaper_adopt(pidfd);

    if (rc < 0)
        hy_warn("the reaper does not know of an agent agent=%s error=%s", a->name, strerror(-rc));
}

static void start_process(struct driver *d, struct agent *a)
{
    struct hy_agent_order order = {.id = a->id, .name = a->name, .host = a->host_spec, .port = d->agents.port,
                                   .ssh_port = d->spec->ssh_port, .ssh_identity = d->spec->ssh_identity, .slots = a->slots, .open_files = d->process.open_files, .hold_fd = a->host_spec ? -1 : d->files.hold_fd,
                                   .client = a->restarts ? "" : d->spec->client, .warm_key = d->spec->warm_key};
    struct hy_err err = {0};
    char identity[64];

    /* A new name, and so a new key, for each process: one that is lost can
     * never speak for the one that follows it. */
    snprintf(identity, sizeof identity, "agent-%llu-%d-%lld", (unsigned long long)a->id, a->restarts, (long long)hy_clock_wall_ms());
    free(a->identity);
    a->identity = hy_strdup(identity);
    order.identity = a->identity;
    a->restart_at = 0;
    a->over[0] = '\0';
    a->died = false;
    a->bye[0] = '\0';
    if (!a->identity || hy_key_derive(d->agents.key, a->identity, order.key) < 0 || order_process(d, &order, &err) < 0) {
        if (*d->spec->engine && err.code && err.code != -ENOMEM) { /* who starts them is just going: another may come */
            a->restart_at = hy_clock_ms() + RESTART_FIRST_MS;
            return;
        }
        if (!err.code)
            hy_err_set(&err, -ENOMEM, "agent %s: out of memory", a->name);
        hy_run_fail(d, &err);
        return;
    }
    keep_adopted(d, a);
    a->process_runs = true;
    a->up_by = *d->spec->engine ? 0 : hy_clock_ms() + START_MS; /* a cluster may be busy for hours */
}

static void stop_process(struct driver *d, struct agent *a)
{
    if (*d->spec->engine)
        hy_supply_stop(d, a->id);
    else
        hy_engine_stop(d->agents.engine, a->id);
}

bool hy_agents_may_come(const struct driver *d)
{
    return *d->spec->listen || *d->spec->discovery;
}

static bool somebody_works(struct driver *d)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (a->peer || a->process_runs || a->restart_at)
            return true;
    return hy_agents_may_come(d);
}

static bool may_order(struct driver *d);

/* But for those that are not asked for, since there is nothing to do for them. When none is here, what they have is not
 * known: a session that comes for another finds those of the other one gone, and not called back yet. */
static bool all_are_here(struct driver *d)
{
    bool asks = !*d->spec->engine || may_order(d), somebody_is = false;
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));) {
        if (!a->in_schedule && (a->process_runs || (a->restart_at && asks)))
            return false;
        somebody_is |= a->in_schedule;
    }
    return somebody_is;
}

static void check_possible(struct driver *d)
{
    struct hy_err err = {0};

    if (d->supply.may_grow || !all_are_here(d))
        return;
    if (hy_run_shortage(d, &err) < 0 && hy_agents_may_come(d))
        hy_training_await(d, &err);
    else if (err.code)
        hy_run_fail(d, &err);
    else if (!hy_agents_may_come(d))
        hy_training_fit(d);
}

/* More executors like those that are here could not help a trial that fits on none of them. Ranks may wait for more, or
 * be fewer where they can. */
void hy_agents_judge(struct driver *d)
{
    struct hy_need one = hy_run_need(d, NULL);
    struct hy_err err = {0};

    d->supply.is_checked = true;
    if (hy_run_shortage(d, &err) == 0)
        hy_training_fit(d);
    else if (hy_schedule_possible(d->schedule, &one))
        hy_run_note(d, "it waits for more executors: %s", err.text);
    else
        hy_run_fail(d, &err);
}

static void give_up(struct driver *d, struct agent *a, const char *why)
{
    struct hy_err err = {0};

    hy_run_note(d, "agent %s is given up: %s", a->name, why);
    hy_err_set(&err, -ENOTCONN, "no agent could be started: %s", why);
    if (somebody_works(d))
        check_possible(d);
    else
        hy_run_fail(d, &err);
}

/* A host that was here once may be rebooting: it is tried as long as the run
 * lasts. One that never answered is given up, and so is this machine. */
static void start_again_later(struct driver *d, struct agent *a, const char *why)
{
    int times = a->restarts + a->drops;
    int64_t wait = RESTART_FIRST_MS << (times > 8 ? 8 : times);
    bool host = a->host_spec || *d->spec->engine;

    if (d->phase != PHASE_RUNNING || a->released)
        return;
    a->restarts++;
    if (!(host && a->was_here) && a->restarts > (host ? FIRST_RESTARTS_MAX : RESTARTS_MAX)) {
        give_up(d, a, why);
        return;
    }
    a->restart_at = hy_clock_ms() + (wait > RESTART_MAX_MS ? RESTART_MAX_MS : wait);
    if (a->restarts == 1 && !a->was_here)
        hy_run_note(d, "agent %s could not be started (%s); it is tried again", a->name, why);
    else if (a->restarts == RESTARTS_MAX)
        hy_run_note(d, "agent %s cannot be reached (%s); it is tried again every %d s", a->name, why, RESTART_MAX_MS / 1000);
}

void hy_agents_leaving(struct driver *d, struct agent *a)
{
    if (a->in_schedule)
        hy_schedule_agent_remove(d->schedule, a->id);
    a->in_schedule = false;
}

/* Its trials run elsewhere, its words do not count any more. */
static void agent_lost(struct driver *d, struct agent *a, bool died, const char *why)
{
    hy_agents_leaving(d, a);
    a->peer = NULL;
    a->violation[0] = '\0';
    hy_list_each(it, &a->trials)
        hy_trials_lost(d, hy_container(it, struct trial, on_agent), died, why);
    hy_outputs_agent_gone(a);
    hy_checkpoints_agent_gone(a);
    d->changed = true;
    if (!a->ours)
        agent_free(d, a);
    else if (!a->process_runs)
        start_again_later(d, a, why);
}

/* ---- agents that break the protocol ------------------------------------------------------ */

void hy_agents_condemn(struct agent *a, const char *fmt, ...)
{
    va_list args;

    if (*a->violation)
        return;
    va_start(args, fmt);
    vsnprintf(a->violation, sizeof a->violation, fmt, args);
    va_end(args);
}

/* One of ours is started again, later each time. One that has joined may do so again after a while. */
static void drop(struct driver *d, struct agent *a, const char *address)
{
    char why[sizeof a->violation + 64];

    snprintf(why, sizeof why, "it broke the protocol: %s", a->violation);
    if (a->ours)
        hy_run_note(d, "agent %s at %s is dropped (%s); its trials run elsewhere", a->name, address, why);
    else
        hy_run_note(d, "agent %s at %s is dropped (%s); its trials run elsewhere, and for %d s no agent may join from there",
                    a->name, address, why, hy_banned_add(d, address));
    a->drops++;
    if (a->peer)
        hy_peer_close(a->peer, 0);
    if (a->process_runs)
        stop_process(d, a);
    agent_lost(d, a, false, why);
}

/* After each word of an agent's; false: it is not there any more. */
static bool drop_if_condemned(struct driver *d, struct agent *a)
{
    if (!*a->violation)
        return true;
    if (a->peer) {
        drop(d, a, hy_peer_address(a->peer));
        return false;
    }
    a->violation[0] = '\0'; /* it is lost already */
    return true;
}

/* ---- gone, one way or another ------------------------------------------------------------ */

/* Until its link is gone too the agent lives: ssh broke, or somebody has killed
 * its reaper and it is about to say goodbye. When ssh broke and the link with
 * it, it still lives for its lease, and so do its trials. */
void hy_agents_over(struct driver *d, uint64_t id, enum hy_agent_end end, const char *why)
{
    struct agent *a = hy_map_get(&d->agents.map, id);
    bool over = end != HY_AGENT_UNREACHED;
    const char *last;

    if (!a)
        return;
    hy_info("agent's process is over agent=%s why=%s", a->name, why);
    a->process_runs = false;
    last = *why ? why : *a->bye ? a->bye : "it was stopped";
    snprintf(a->over, sizeof a->over, "%s", over ? last : "");
    a->died = end == HY_AGENT_DIED;
    if (over && *why && *d->spec->engine && a->was_here && !a->released && d->phase == PHASE_RUNNING)
        hy_run_note(d, "agent %s: %s", a->name, why); /* the agent itself cannot know what Spark did to it */
    if (!a->peer)
        start_again_later(d, a, last);
}

static void on_process_exit(void *arg, uint64_t id, enum hy_agent_end end, const char *why)
{
    hy_agents_over(arg, id, end, why);
}

/* Here it is a trial or a person that sends a signal. Elsewhere it may be whoever wants the machine back: a batch
 * system's time limit, a preemption, a shutdown. */
bool hy_agents_goodbye_counts(const struct driver *d, const struct agent *a)
{
    return a->ours && !a->host_spec && !*d->spec->engine && !a->released;
}

static void end_if_over(struct driver *d, struct agent *a)
{
    if (!*a->over || !a->peer || hy_peer_is_linked(a->peer))
        return;
    hy_peer_close(a->peer, 0);
    if (d->phase == PHASE_RUNNING)
        hy_run_note(d, "agent %s is gone (%s); its trials run again", a->name, a->over);
    agent_lost(d, a, a->died, a->over);
}

static void on_gone(void *arg, struct hy_peer *p, const char *why)
{
    struct driver *d = arg;
    struct agent *a = hy_peer_data(p);

    if (!a)
        return;
    if (hy_peer_has_violated(p)) {
        hy_agents_condemn(a, "%s", why);
        a->peer = NULL;
        drop(d, a, hy_peer_address(p));
        return;
    }
    hy_run_note(d, "agent %s is gone (%s); its trials run elsewhere", a->name, why);
    if (a->process_runs) /* it lives but cannot be reached: its exit starts another */
        stop_process(d, a);
    agent_lost(d, a, false, why); /* its machine may be gone */
}

/* ---- what they say ------------------------------------------------------------------------- */

/* May the agent wait for the next run of this run's client? */
static bool may_stand_by(const struct driver *d, const struct agent *a)
{
    return d->phase == PHASE_LEAVING && a->ours && !a->host_spec && !*d->spec->engine && *d->spec->client &&
           hy_mark_alive(d->spec->client) > 0;
}

static void say_bye(const struct driver *d, struct agent *a)
{
    Hy__Bye bye = HY__BYE__INIT;
    Hy__Control m = HY__CONTROL__INIT;

    if (may_stand_by(d, a)) {
        bye.client = d->spec->client;
        bye.warm_key = d->spec->warm_key;
    }
    m.body_case = HY__CONTROL__BODY_BYE;
    m.bye = &bye;
    if (a->peer && hy_agents_send(a, &m) < 0)
        hy_warn("an agent cannot be told goodbye agent=%s", a->name);
}

/* ---- a Python function goes to each agent once, behind the welcome ---- */

static void announce_function(struct driver *d, struct agent *a, Hy__Welcome *w)
{
    w->function_size = d->spec->function.len;
    if (!w->function_size)
        return;
    a->function_stream = w->function_stream = a->next_stream++;
    w->function_hash = hy_hash(d->spec->function.data, d->spec->function.len);
    w->serve = d->serve;
    w->n_serve = d->spec->n_argv + 1;
}

/* As much as there is room for; on_room goes on. Until it is all there the agent
 * says nothing, and by a slow network that may take long: it is not late as long
 * as it takes something. */
static void send_function(struct driver *d, struct agent *a)
{
    const ProtobufCBinaryData *f = &d->spec->function;
    struct hy_err err = {0};

    while (a->function_sent < f->len) {
        size_t room = hy_peer_room(a->peer, a->function_stream), left = f->len - a->function_sent;
        size_t n = left < room ? left : room;

        if (n == 0)
            return;
        if (hy_peer_write(a->peer, a->function_stream, f->data + a->function_sent, n) < 0) {
            hy_err_set(&err, -ENOMEM, "out of memory for the function");
            hy_run_fail(d, &err);
            return;
        }
        a->function_sent += n;
        a->up_by = hy_clock_ms() + START_MS;
    }
}

/* An agent that joins by itself. NULL: it may not, or there is no memory for it. */
static struct agent *newcomer(struct driver *d, struct hy_peer *p)
{
    struct agent *a;
    size_t joined = 0;

    if (hy_banned_has(d, hy_peer_address(p)))
        return NULL;
    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        joined += !a->ours;
    return joined < JOINED_MAX ? agent_new(d, hy_peer_identity(p), hy_peer_address(p), 0) : NULL;
}

/* On this machine cores are shared with other runs. Who asks for more trials than there are cores has several on each. */
static void lend_cores(const struct driver *d, Hy__Welcome *w, char *holder)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t slots = hy_run_slots_here(d), all = cores > 0 ? (uint32_t)cores : 1;

    w->per_core = (slots + all - 1) / all;
    w->gang = hy_is_training(d) ? slots : 0;
    w->holder = holder;
}

static void on_up(void *arg, struct hy_peer *p)
{
    struct driver *d = arg;
    struct agent *a = agent_of_identity(d, hy_peer_identity(p));
    Hy__Welcome w = HY__WELCOME__INIT;
    Hy__Control m = HY__CONTROL__INIT;
    char host[256] = "", holder[256];

    if (!a)
        a = newcomer(d, p);
    if (!a) {
        hy_peer_close(p, 0);
        return;
    }
    a->peer = p;
    a->next_stream = OUR_STREAMS;
    a->function_sent = 0;
    a->has_told = false;
    hy_peer_set_data(p, a);
    if (d->phase >= PHASE_ENDING) { /* it comes too late */
        say_bye(d, a);
        return;
    }
    gethostname(host, sizeof host - 1);
    snprintf(holder, sizeof holder, "run %lld in '%.180s'", (long long)d->run, d->spec->project);
    if (a->ours && !a->host_spec && !*d->spec->engine && !d->spec->oversubscribe)
        lend_cores(d, &w, holder);
    w.run = d->run;
    w.logdir = d->logdir;
    w.token_file = d->files.token_file;
    w.token.data = d->files.token;
    w.token.len = sizeof d->files.token;
    w.env = d->spec->env;
    w.n_env = d->spec->n_env;
    w.cwd = d->spec->cwd;
    w.host = host;
    w.url = (char *)(d->remote ? hy_remote_logdir(d) : "");
    w.metric = d->spec->metric;
    w.max_transfer = hy_bounds_transfer(d->spec->max_transfer);
    m.body_case = HY__CONTROL__BODY_WELCOME;
    m.welcome = &w;
    announce_function(d, a, &w);
    if (hy_agents_send(a, &m) < 0) {
        a->peer = NULL;
        hy_peer_close(p, 0);
        return;
    }
    send_function(d, a);
}

static void on_agent_info(struct driver *d, struct agent *a, const Hy__AgentInfo *info)
{
    struct hy_capacity has = {.slots = info->slots < HY_SLOTS_LIMIT ? info->slots : HY_SLOTS_LIMIT,
                              .gpus = info->gpus < HY_AGENT_GPUS_MAX ? info->gpus : HY_AGENT_GPUS_MAX,
                              .memory = info->memory ? info->memory : UINT64_MAX};

    if (a->has_told)
        return;
    a->has_told = true;
    if (a->listed)
        has.slots = a->listed; /* perhaps they have changed since it was started */
    if (strcmp(info->version, HY_VERSION) != 0)
        hy_run_note(d, "agent %s is hopyard %s, this is %s", a->name, info->version, HY_VERSION);
    if ((!a->ours || *d->spec->engine) && *info->name) {
        char *name = hy_strdup(info->name);

        free(a->name ? a->name : NULL);
        a->name = name ? name : hy_strdup("agent");
    }
    free(a->host);
    a->host = hy_strdup(info->host);
    a->slots = has.slots;
    a->gpus = has.gpus;
    a->memory = has.memory;
    a->shares_files = info->shares_files;
    if (hy_schedule_agent_add(d->schedule, a->id, &has) < 0) {
        hy_warn_limited("an agent cannot be used agent=%s slots=%u", a->name, info->slots);
        say_bye(d, a); /* the next one, perhaps */
        return;
    }
    a->in_schedule = true;
    if (a->cool_at)
        hy_schedule_agent_open(d->schedule, a->id, 0);
    a->up_by = 0;
    a->full = false;
    a->was_here = true;
    a->restarts = 0;
    d->supply.last_agent_ms = hy_clock_ms();
    d->supply.is_checked = false;
    d->changed = true;
    hy_log_within(&comings_and_goings, HY_LOG_INFO, "agent is here agent=%s host=%s pid=%lld slots=%u shares_files=%d",
                  a->name, info->host, (long long)info->pid, info->slots, info->shares_files);
    if (!a->ours)
        hy_run_note(d, "agent %s has joined with %u slots", a->name, a->slots);
    hy_run_note_gpus(d, a);
    check_possible(d);
}

/* It outlives us, and is not ours any more. */
static void let_stand_by(struct driver *d, struct agent *a)
{
    pid_t pid = hy_engine_release(d->agents.engine, a->id);
    int rc = pid ? hy_reaper_spare(pid) : hy_reaper_adopt(-1);

    if (rc < 0)
        hy_warn("an agent on standby ends with its driver agent=%s error=%s", a->name, strerror(-rc));
    a->process_runs = false;
}

/* It ends by its own decision; what it had to say came before. */
static void on_bye(struct driver *d, struct agent *a, const Hy__Bye *bye)
{
    hy_log_within(&comings_and_goings, HY_LOG_INFO, "agent says goodbye agent=%s why=%s", a->name, bye->why);
    snprintf(a->bye, sizeof a->bye, "%s", bye->why);
    if (d->phase == PHASE_RUNNING && !a->released)
        hy_run_note(d, "agent %s has left (%s); its trials run elsewhere", a->name, bye->why);
    hy_peer_close(a->peer, 0);
    if (bye->on_standby && a->process_runs && may_stand_by(d, a))
        let_stand_by(d, a);
    /* Spark may wait with it for another executor. */
    if (*d->spec->engine && d->phase == PHASE_RUNNING && a->process_runs && !a->released)
        stop_process(d, a);
    agent_lost(d, a, hy_agents_goodbye_counts(d, a), bye->why);
}

/* The run keeps a limited number of notes, and an agent that has gone wrong shall not use them up. */
static void on_note(struct driver *d, struct agent *a, const Hy__Note *note)
{
    if (a->notes++ < NOTES_OF_AGENT_MAX)
        hy_run_note(d, "agent %s: %s", a->name, note->text);
    else
        hy_info_limited("agent %s: %s", a->name, note->text);
}

static void on_message(void *arg, struct hy_peer *p, const Hy__Control *m)
{
    struct driver *d = arg;
    struct agent *a = hy_peer_data(p);
    char excess[160];

    if (!a)
        return;
    if (hy_bounds_exceeded(m, excess, sizeof excess))
        hy_agents_condemn(a, "%s", excess);
    if (!drop_if_condemned(d, a))
        return;
    if (m->body_case == HY__CONTROL__BODY_BYE) {
        on_bye(d, a, m->bye);
        return;
    }
    switch (m->body_case) {
    case HY__CONTROL__BODY_AGENT_INFO:
        on_agent_info(d, a, m->agent_info);
        break;
    case HY__CONTROL__BODY_REPORT:
        hy_trials_report(d, a, m->report);
        break;
    case HY__CONTROL__BODY_OUTPUT:
        hy_outputs_open(d, a, m->output);
        break;
    case HY__CONTROL__BODY_ENDED:
        hy_trials_ended(d, a, m);
        break;
    case HY__CONTROL__BODY_HELD:
        hy_trials_held(d, a, m->held);
        break;
    case HY__CONTROL__BODY_GROUP:
        hy_ranks_word(d, a, m);
        break;
    case HY__CONTROL__BODY_NOTE:
        on_note(d, a, m->note);
        break;
    default:
        break; /* a newer agent's word that we do not know */
    }
    drop_if_condemned(d, a);
}

static void on_data(void *arg, struct hy_peer *p, uint32_t stream, const uint8_t *bytes, size_t n)
{
    struct agent *a = hy_peer_data(p);

    if (!a)
        return;
    hy_outputs_data(arg, a, stream, bytes, n);
    drop_if_condemned(arg, a);
}

static void on_room(void *arg, struct hy_peer *p, uint32_t stream)
{
    struct agent *a = hy_peer_data(p);

    if (a && a->function_stream == stream)
        send_function(arg, a);
    else if (a)
        hy_checkpoint_room(a, stream);
}

/* ---- opening and closing -------------------------------------------------------------------- */

static int key_of(void *arg, const char *identity, uint8_t key[HY_KEY_SIZE])
{
    struct driver *d = arg;

    if (strncmp(identity, "join-", 5) == 0)
        return d->spec->listen && *d->spec->listen ? hy_key_derive(d->agents.join_key, identity, key) : -ENOENT;
    return agent_of_identity(d, identity) ? hy_key_derive(d->agents.key, identity, key) : -ENOENT;
}

/* "[::1]:4711", "192.0.2.1:4711", "4711" */
static int parse_listen(const char *text, char *address, size_t size, uint64_t *ret_port)
{
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;

    if (hy_parse_u64(colon ? colon + 1 : text, ret_port) < 0 || *ret_port > 65535 || n >= size)
        return -EINVAL;
    if (n > 2 && text[0] == '[' && text[n - 1] == ']') {
        text++;
        n -= 2;
    }
    memcpy(address, text, n);
    address[n] = '\0';
    return 0;
}

/* Hosts come from where ssh reached them, by IPv6 as well: "::" takes both. */
static int listen_for_agents(struct driver *d, struct hy_err *err)
{
    const char *text = d->spec->listen ? d->spec->listen : "";
    char address[256] = "";
    uint64_t port = 0;

    if (*d->spec->engine)
        return hy_net_listen(d->agents.net, d->spec->address, 0, key_of, d, &d->agents.port, err);
    if (!*text && !d->spec->n_hosts && !*d->spec->discovery)
        text = "127.0.0.1:0";
    if (*text && parse_listen(text, address, sizeof address, &port) < 0)
        return hy_err_set(err, -EINVAL, "--listen takes [ADDRESS:]PORT, not '%s'", text);
    if (*address)
        return hy_net_listen(d->agents.net, address, (uint16_t)port, key_of, d, &d->agents.port, err);
    if (hy_net_listen(d->agents.net, "::", (uint16_t)port, key_of, d, &d->agents.port, NULL) == 0)
        return 0;
    return hy_net_listen(d->agents.net, "0.0.0.0", (uint16_t)port, key_of, d, &d->agents.port, err);
}

static int write_join_key(struct driver *d, struct hy_err *err)
{
    hy_cleanup_free char *path = NULL;
    int rc;

    if (!d->spec->listen || !*d->spec->listen)
        return 0;
    path = hy_asprintf("%s/run-%lld.key", hy_store_folder(d->store), (long long)d->run);
    if (!path || hy_key_derive(d->agents.key, "join", d->agents.join_key) < 0)
        return hy_err_oom(err);
    rc = hy_key_write(hy_store_dir(d->store), path, d->agents.join_key, err);
    if (rc == 0)
        hy_run_note(d, "agents join by: hopyard agent --join HOST:%u --key-file %s", d->agents.port, path);
    return rc;
}

static int add_agent(struct driver *d, const char *name, const char *host, uint32_t slots)
{
    struct agent *a = agent_new(d, NULL, name, slots);

    if (!a)
        return -ENOMEM;
    a->ours = true;
    a->host_spec = host ? hy_strdup(host) : NULL;
    a->restart_at = 1; /* the first tick starts it */
    return host && !a->host_spec ? -ENOMEM : 0;
}

int hy_agents_open(struct driver *d, struct hy_err *err)
{
    static const struct hy_net_settings settings = {.silence_ms = HY_AGENT_SILENCE_MS, .ping_ms = HY_PING_MS};
    static const struct hy_net_events events = {on_up, on_message, on_data, on_room, on_gone};
    static const struct hy_engine_events engine_events = {on_process_exit};
    int rc = 0;

    d->agents.net = hy_net_new(&d->loop, &settings, &events, d);
    d->agents.engine = hy_engine_new(&d->loop, &engine_events, d);
    if (!d->agents.net || !d->agents.engine)
        return hy_err_oom(err);
    if (hy_key_random(d->agents.key) < 0)
        return hy_err_set(err, -EIO, "this machine has no random numbers");
    rc = listen_for_agents(d, err);
    if (rc == 0)
        rc = write_join_key(d, err);
    if (rc == 0)
        rc = hy_supply_open(d, err);
    if (rc == 0)
        rc = hy_discovery_open(d, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < d->spec->n_hosts && rc == 0; i++)
        rc = add_agent(d, d->spec->hosts[i]->host, d->spec->hosts[i]->host, d->spec->hosts[i]->slots);
    if (rc == 0 && d->spec->n_hosts == 0 && !*d->spec->engine && !*d->spec->discovery)
        rc = add_agent(d, "local", NULL, hy_run_slots_here(d));
    return rc < 0 ? hy_err_set(err, rc, "out of memory") : 0;
}

void hy_agents_want(struct driver *d, uint32_t count)
{
    int rc = 0;

    while (d->phase == PHASE_RUNNING && d->agents.map.count < count && rc == 0)
        rc = add_agent(d, "executor", NULL, 0);
    if (rc < 0)
        hy_run_out_of_memory(d);
    else if (d->phase == PHASE_RUNNING && count)
        check_possible(d);
}

/* ---- hosts that come and go -------------------------------------------------------------- */

int hy_agents_add_host(struct driver *d, const char *name, const char *host, uint32_t slots)
{
    int rc = add_agent(d, name, host, slots);
    struct agent *a = rc < 0 ? NULL : hy_map_get(&d->agents.map, d->agents.last_id);

    if (a)
        a->listed = slots;
    return rc;
}

void hy_agents_resize(struct driver *d, struct agent *a, uint32_t slots)
{
    a->listed = a->slots = slots;
    if (a->in_schedule)
        hy_schedule_agent_resize(d->schedule, a->id, slots);
    d->changed = true;
}

void hy_agents_retire(struct driver *d, struct agent *a)
{
    a->released = true;
    a->restart_at = 0;
    hy_agents_leaving(d, a);
    if (a->peer)
        say_bye(d, a);
    else if (a->process_runs)
        stop_process(d, a);
    else
        agent_free(d, a);
}

void hy_agents_cool_down(struct driver *d, struct agent *a)
{
    int64_t seconds = (int64_t)d->spec->cooldown_first_s << (a->cooldowns < 20 ? a->cooldowns : 20);

    if (!d->spec->cooldown_first_s)
        return;
    if (seconds > d->spec->cooldown_last_s)
        seconds = d->spec->cooldown_last_s;
    a->cooldowns++;
    a->cool_at = hy_clock_ms() + seconds * 1000;
    if (a->in_schedule)
        hy_schedule_agent_open(d->schedule, a->id, 0);
    hy_run_note(d, "no rank is started on %s for %lld s, because one has failed there", a->name, (long long)seconds);
}

/* Local agents of an earlier driver of this run hold its lock as long as any
 * of their trials lives; until then nothing new is started beside them. */
static bool earlier_agents_are_gone(struct driver *d)
{
    return d->files.hold_fd < 0 || flock(d->files.hold_fd, LOCK_EX | LOCK_NB) == 0;
}

/* An ssh that hangs would be waited for without end. */
static void stop_the_late(struct driver *d, int64_t now)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));) {
        if (!a->process_runs || a->in_schedule || !a->up_by || now < a->up_by)
            continue;
        if (d->stalls.count) { /* its Welcome may wait for a commit */
            a->up_by = now + START_MS;
            continue;
        }
        hy_run_note(d, "agent %s has not come up for %d s", a->name, START_MS / 1000);
        a->up_by = 0;
        stop_process(d, a);
    }
}

/* Some at a time: each is a thread and a job where it is started. And no more than have something to do, as far as can
 * be told from the slots of those that are here. */
static bool may_order(struct driver *d)
{
    uint64_t waits = 0, here = 0, slots = 0, left;
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));) {
        here += a->in_schedule;
        slots += a->in_schedule ? a->slots : 0;
        waits += a->process_runs && !a->in_schedule;
    }
    left = hy_run_total(d) < 0 ? UINT64_MAX : (uint64_t)hy_run_total(d) - (d->trials.done + d->trials.failed + d->trials.stopped);
    if (hy_is_training(d) || !here)
        return waits < ORDERS_MAX;
    return waits < ORDERS_MAX && slots + waits * (slots / here) < left;
}

static bool may_start(struct driver *d, const struct agent *a)
{
    if (*d->spec->engine)
        return d->supply.supplier && may_order(d);
    return a->host_spec || a->restarts || earlier_agents_are_gone(d);
}

/* Nothing more will come for those who have nothing to do: their executors are of use to others. */
static void release_the_idle(struct driver *d)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));) {
        if (a->released || !hy_list_empty(&a->trials))
            continue;
        a->released = true;
        a->restart_at = 0;
        if (!a->in_schedule && a->process_runs) /* it has not come up yet */
            stop_process(d, a);
        hy_agents_leaving(d, a);
        say_bye(d, a);
    }
}

/* All that had something to do are lost, and it is to be done again. */
static void call_back(struct driver *d)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (a->in_schedule || (!a->released && (a->process_runs || a->restart_at)))
            return;
    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (a->released && !a->peer && !a->process_runs) {
            a->released = false;
            a->restart_at = 1;
        }
}

static void lend_only_what_is_used(struct driver *d)
{
    struct hy_schedule_stats s;

    if (!*d->spec->engine || hy_is_training(d))
        return;
    hy_schedule_stats(d->schedule, &s);
    if (s.waiting || !hy_list_empty(&d->trials.waiting))
        call_back(d);
    else if (d->trials.search_over)
        release_the_idle(d);
}

/* Those of which it turned out when something else happened. */
static void drop_the_condemned(struct driver *d)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (!drop_if_condemned(d, a))
            i = 0; /* the map has moved */
}

/* It has had time to take what was sent, or to recover from what made a rank fail. */
static void open_again(struct driver *d, struct agent *a, int64_t now)
{
    bool is_cool = a->cool_at && now >= a->cool_at;

    if (is_cool)
        a->cool_at = 0;
    if ((a->full || is_cool) && !a->cool_at && a->in_schedule)
        hy_schedule_agent_open(d->schedule, a->id, 1);
    a->full = false;
}

void hy_agents_tick(struct driver *d, int64_t now)
{
    struct agent *a;

    hy_engine_tick(d->agents.engine, now);
    drop_the_condemned(d);
    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        end_if_over(d, a);
    if (d->phase != PHASE_RUNNING)
        return;
    stop_the_late(d, now);
    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        open_again(d, a, now);
    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (a->restart_at && a->restart_at <= now && may_start(d, a))
            start_process(d, a);
    lend_only_what_is_used(d);
    hy_supply_tick(d, now);
    hy_discovery_tick(d, now);
}

void hy_agents_bye(struct driver *d)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));) {
        if (a->peer)
            say_bye(d, a);
        else if (a->process_runs) /* it has not come up: nobody waits for it */
            stop_process(d, a);
    }
}

bool hy_agents_gone(struct driver *d)
{
    struct agent *a;

    for (size_t i = 0; (a = hy_map_next(&d->agents.map, &i));)
        if (a->peer || a->process_runs)
            return false;
    return true;
}

void hy_agents_free(struct driver *d)
{
    struct agent *a;
    size_t i = 0;

    while ((i = 0, a = hy_map_next(&d->agents.map, &i))) {
        hy_outputs_agent_gone(a);
        hy_checkpoints_agent_gone(a);
        if (a->peer)
            hy_peer_close(a->peer, 0);
        agent_free(d, a);
    }
    hy_map_done(&d->agents.map);
}
