/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/trial.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/core_lease.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

#define CHUNK (64u * 1024)          /* the most that a process hands over at once */
#define DECISION_GRACE_MS 5000      /* from SIGTERM to SIGKILL for a trial that ignores a decision */

struct output_end {
    struct hy_list link;
    Hy__OutputEnd end;
};

/* ---- its result -------------------------------------------------------------- */

static const Hy__Welcome *run_of(const struct trial *t)
{
    return t->agent->welcomed->welcome;
}

int hy_agent_trial_add_output(struct trial *t, uint32_t stream, uint64_t bytes)
{
    struct output_end *o = hy_calloc(1, sizeof *o);

    if (!o)
        return -ENOMEM;
    hy__output_end__init(&o->end);
    o->end.stream = stream;
    o->end.bytes = bytes;
    hy_list_push(&t->outputs, &o->link);
    t->output_count++;
    return 0;
}

static int add_metric(void *arg, const char *name, double value)
{
    struct trial *t = arg;
    Hy__Metric *m = hy_array_grow(t->metrics, t->metric_count) < 0 ? NULL : hy_malloc(sizeof *m);

    if (!m)
        return -ENOMEM;
    hy__metric__init(m);
    m->name = hy_strdup(name);
    m->value = value;
    if (!m->name) {
        free(m);
        return -ENOMEM;
    }
    t->metrics[t->metric_count++] = m;
    return 0;
}

/* The JSON it wrote takes precedence over printed values. */
static void read_result(struct trial *t)
{
    const char *metric = run_of(t)->metric;
    hy_cleanup_buf struct hy_buf text;
    struct hy_err err = {0};
    int rc;

    hy_buf_init(&text, HY_RESULT_LIMIT);
    rc = hy_file_read(t->result, &text);
    if (rc == -ENOENT)
        return;
    if (rc == -ENOBUFS)
        hy_err_set(&err, rc, "it is larger than 1 MB");
    else if (rc < 0)
        hy_err_sys(&err, rc, "it cannot be read");
    else
        rc = hy_result_parse(hy_buf_bytes(&text), text.len, *metric ? metric : "result", add_metric, t, &err);
    if (rc < 0)
        t->metric_error = hy_asprintf("the result in '%s' is ignored: %s", t->result, err.text);
    for (size_t i = 0; i < t->metric_count; i++)
        if (*metric && strcmp(t->metrics[i]->name, metric) == 0) {
            t->ended.has_metric = 1;
            t->ended.metric = t->metrics[i]->value;
        }
}

static void find_metric(struct trial *t)
{
    struct hy_metric_scan *scan = &t->captures[t->latest].scan;

    read_result(t);
    if (!t->ended.has_metric && scan->found) {
        t->ended.has_metric = 1;
        t->ended.metric = scan->value;
    }
}

void hy_agent_trial_finish(struct trial *t)
{
    struct agent *a = t->agent;
    hy_cleanup_free Hy__OutputEnd **outputs = hy_calloc(t->output_count + 1, sizeof *outputs);
    Hy__Control m = HY__CONTROL__INIT;
    size_t n = 0;

    if (!outputs)
        hy_agent_end(a, 1, "out of memory");
    if (hy_agent_is_broken(a)) {
        hy_agent_trial_free(t);
        return;
    }
    hy_list_each(it, &t->outputs)
        outputs[n++] = &hy_container(it, struct output_end, link)->end;
    t->ended.trial = t->number;
    t->ended.attempt = t->attempt;
    t->ended.n_outputs = n;
    t->ended.outputs = outputs;
    t->ended.n_metrics = t->metric_count;
    t->ended.metrics = t->metrics;
    t->ended.message = t->message ? t->message : t->ended.message;
    t->ended.detail = t->detail ? t->detail : t->ended.detail;
    t->ended.metric_error = t->metric_error ? t->metric_error : t->ended.metric_error;
    t->ended.remark = t->remark ? t->remark : t->ended.remark;
    m.body_case = HY__CONTROL__BODY_ENDED;
    m.ended = &t->ended;
    hy_agent_send(a, &m);
    hy_agent_trial_free(t);
}

void hy_agent_trial_free(struct trial *t)
{
    struct agent *a = t->agent;

    hy_map_remove(&a->trials, hy_agent_trial_key(t->number, t->attempt));
    hy_list_remove(&t->waiting);
    hy_agent_files_cancel(t);
    hy_agent_group_forget(t);
    if (!a->shares_files && t->dir && hy_remove_tree(t->dir) < 0) /* its results were sent */
        hy_warn_limited("cannot remove a trial's directory path=%s", t->dir);
    hy_list_each(it, &t->outputs)
        free(hy_container(it, struct output_end, link));
    for (size_t i = 0; i < t->metric_count; i++) {
        free(t->metrics[i]->name);
        free(t->metrics[i]);
    }
    free(t->metrics);
    hy_agent_upload_free(t->upload);
    hy_gpu_lease_free(t->lease);
    hy_core_lease_free(t->core);
    hy__control__free_unpacked(t->start, NULL);
    free(t->dir);
    free(t->result);
    free(t->checkpoint);
    free(t->message);
    free(t->metric_error);
    free(t->sampling);
    free(t->said);
    free(t->detail);
    free(t->remark);
    free(t);
}

/* ---- its output ------------------------------------------------------------------ */

static void announce(struct trial *t, int fd)
{
    static char *const paths[] = {(char *)"stdout", (char *)"stderr"};
    struct agent *a = t->agent;
    Hy__Output output = HY__OUTPUT__INIT;
    Hy__Control m = HY__CONTROL__INIT;

    t->captures[fd - 1].stream = a->next_stream++;
    output.trial = t->number;
    output.attempt = t->attempt;
    output.stream = t->captures[fd - 1].stream;
    output.path = paths[fd - 1];
    m.body_case = HY__CONTROL__BODY_OUTPUT;
    m.output = &output;
    hy_agent_send(a, &m);
}

/* Its pipe is read only while the stream has room for a whole chunk, so a trial that
 * prints faster than the driver writes blocks in write(). */
static void adjust_reading(struct trial *t, int fd)
{
    struct capture *c = &t->captures[fd - 1];
    bool full = t->agent->peer && hy_peer_room(t->agent->peer, c->stream) < CHUNK;

    if (full != c->paused && t->process) {
        c->paused = full;
        hy_process_pause(t->process, fd, full);
    }
}

static void on_output(void *arg, struct hy_process *p, int fd, const uint8_t *bytes, size_t n)
{
    struct trial *t = arg;
    struct capture *c = &t->captures[fd - 1];
    uint64_t seen = c->scan.seen;

    (void)p;
    hy_metric_scan_feed(&c->scan, bytes, n);
    if (c->scan.seen != seen) {
        t->latest = fd - 1;
        t->value_is_new = true;
    }
    if (!t->agent->peer) /* the link is gone */
        return;
    if (!c->stream)
        announce(t, fd);
    if (hy_peer_write(t->agent->peer, c->stream, bytes, n) < 0) {
        hy_agent_end(t->agent, 1, "out of memory");
        return;
    }
    c->bytes += n;
    adjust_reading(t, fd);
}

static struct trial *trial_of_stream(struct agent *a, uint32_t stream, int *ret_fd)
{
    struct trial *t;

    for (size_t i = 0; (t = hy_map_next(&a->trials, &i));)
        for (*ret_fd = 1; *ret_fd <= 2; ++*ret_fd)
            if (t->captures[*ret_fd - 1].stream == stream)
                return t;
    return NULL;
}

void hy_agent_trial_room(struct agent *a, uint32_t stream)
{
    int fd;
    struct trial *t = trial_of_stream(a, stream, &fd);

    if (t) {
        adjust_reading(t, fd);
        return;
    }
    for (size_t i = 0; (t = hy_map_next(&a->trials, &i));)
        if (hy_agent_upload_room(t, stream))
            return;
}

void hy_agent_trials_discard_output(struct agent *a)
{
    struct trial *t;

    for (size_t i = 0; (t = hy_map_next(&a->trials, &i));)
        for (int fd = 1; fd <= 2; fd++)
            adjust_reading(t, fd);
}

/* Sends the last printed value, if it is new. */
static void report_printed(struct trial *t)
{
    struct hy_metric_scan *scan = &t->captures[t->latest].scan;
    Hy__Report report = HY__REPORT__INIT;
    Hy__Control m = HY__CONTROL__INIT;
    Hy__Metric metric = HY__METRIC__INIT, *metrics[] = {&metric};

    if (!t->value_is_new)
        return;
    t->value_is_new = false;
    metric.name = run_of(t)->metric;
    metric.value = scan->value;
    report.trial = t->number;
    report.attempt = t->attempt;
    report.step = scan->step;
    report.n_metrics = 1;
    report.metrics = metrics;
    m.body_case = HY__CONTROL__BODY_REPORT;
    m.report = &report;
    hy_agent_send(t->agent, &m);
}

static void end_if_late(struct trial *t, int64_t now)
{
    if (!t->end_by_ms || now < t->end_by_ms)
        return;
    t->end_by_ms = 0;
    hy_agent_trial_kill(t, DECISION_GRACE_MS);
}

void hy_agent_trial_decide(struct trial *t, const Hy__Decision *decision)
{
    t->decision = decision->kind;
    if (t->decision == HY__DECISION__KIND__CONTINUE || t->end_by_ms)
        return;
    t->end_by_ms = hy_clock_ms() + decision->grace_ms;
    end_if_late(t, hy_clock_ms());
}

void hy_agent_trial_tick(struct agent *a)
{
    int64_t now = hy_clock_ms();
    struct trial *t;

    for (size_t i = 0; (t = hy_map_next(&a->trials, &i));)
        if (hy_agent_upload_tick(t))
            i = 0; /* the map has moved */
    for (size_t i = 0; (t = hy_map_next(&a->trials, &i));)
        report_printed(t);
    for (size_t i = 0; (t = hy_map_next(&a->trials, &i));)
        if (t->process) /* its map entry stays until its process has ended */
            end_if_late(t, now);
}

/* ---- its start and end ---------------------------------------------------------- */

static Hy__Ended__Outcome outcome_of(enum hy_process_outcome o)
{
    switch (o) {
    case HY_PROCESS_SIGNALED:
        return HY__ENDED__OUTCOME__SIGNALED;
    case HY_PROCESS_OVER_MEMORY:
    case HY_PROCESS_OVER_CONTAINER_MEMORY:
        return HY__ENDED__OUTCOME__OVER_MEMORY;
    case HY_PROCESS_TIMED_OUT:
        return HY__ENDED__OUTCOME__TIMED_OUT;
    case HY_PROCESS_KILLED:
        return HY__ENDED__OUTCOME__KILLED;
    default:
        return HY__ENDED__OUTCOME__EXITED;
    }
}

#define END_MESSAGE_MAX 320

/* Containers are those of Spark executors: YARN's. */
static const char *message_of(const struct hy_process_end *end, char text[END_MESSAGE_MAX])
{
    char limit[32], used[32], own[32];

    if (end->outcome != HY_PROCESS_OVER_CONTAINER_MEMORY)
        return end->message;
    snprintf(text, END_MESSAGE_MAX,
             "killed: its container may use %s, and %s were in use, %s of it by this trial; raise "
             "spark.executor.memoryOverhead, or run fewer trials at a time",
             hy_format_size(end->container.limit, limit, sizeof limit),
             hy_format_size(end->container.used, used, sizeof used),
             hy_format_size(end->container.used_by_it, own, sizeof own));
    return text;
}

static void on_end(void *arg, struct hy_process *p, const struct hy_process_end *end)
{
    struct trial *t = arg;
    char text[END_MESSAGE_MAX];
    const char *message = message_of(end, text);

    (void)p;
    t->process = NULL;
    if (end->outcome == HY_PROCESS_NOT_STARTED) {
        struct hy_err why = {0};

        hy_err_set(&why, end->code, "%s", end->message);
        hy_agent_function_not_started(t, &why);
        return;
    }
    hy_agent_function_trial_ran(t->agent);
    if (rmdir(t->checkpoint) < 0 && errno != ENOTEMPTY && errno != ENOENT)
        hy_debug("cannot remove an empty directory path=%s", t->checkpoint);
    t->ended.outcome = outcome_of(end->outcome);
    t->ended.code = end->code;
    t->ended.peak_memory = end->peak_memory;
    t->ended.cpu_ms = end->cpu_ms;
    t->ended.gpu_mask = hy_gpu_lease_devices(t->lease);
    hy_agent_usage_end(t, end);
    hy_agent_release_leases(t, end->outcome == HY_PROCESS_SIGNALED ||
                                   (end->outcome == HY_PROCESS_EXITED && end->code != 0));
    t->message = message && *message ? hy_strdup(message) : NULL;
    if (!t->message && (end->outcome == HY_PROCESS_EXITED && end->code != 0))
        t->message = hy_take(t->said);
    for (int i = 0; i < 2; i++) {
        uint64_t seen = t->captures[i].scan.seen;

        hy_metric_scan_end(&t->captures[i].scan);
        if (t->captures[i].scan.seen != seen) {
            t->latest = i;
            t->value_is_new = true;
        }
        if (t->captures[i].stream && hy_agent_trial_add_output(t, t->captures[i].stream, t->captures[i].bytes) < 0)
            hy_agent_end(t->agent, 1, "out of memory");
    }
    find_metric(t);
    report_printed(t);
    if (!t->agent->peer) /* the driver is gone */
        hy_agent_trial_free(t);
    else if (t->agent->shares_files)
        hy_agent_trial_finish(t);
    else
        hy_agent_upload_all(t);
}

static void on_death(void *arg, struct hy_process *p, const struct hy_process_end *end)
{
    char text[END_MESSAGE_MAX];
    struct hy_process_end described = *end;

    (void)p;
    described.message = message_of(end, text);
    hy_agent_group_died(arg, &described);
}

/* The environment: the user's, the driver's for this trial, and ours; only ours are
 * owned strings. */
#define OUR_ENTRIES_MAX 16

struct env_list {
    char **list; /* ends in NULL */
    size_t count, first_owned;
    bool complete;  /* no allocation failed */
};

static void add_env(struct env_list *w, char *word)
{
    w->complete = w->complete && word;
    if (word)
        w->list[w->count++] = word;
}

static void add_our_env(const struct trial *t, struct env_list *w)
{
    const struct agent *a = t->agent;

    add_env(w, hy_asprintf("HOPYARD_RUN=%lld", (long long)run_of(t)->run));
    add_env(w, hy_asprintf("HOPYARD_TRIAL=%llu", (unsigned long long)t->number));
    add_env(w, hy_asprintf("HOPYARD_ATTEMPT=%u", t->attempt));
    add_env(w, hy_asprintf("HOPYARD_TRIAL_DIR=%s", t->dir));
    add_env(w, hy_asprintf("HOPYARD_RESULT=%s", t->result));
    add_env(w, hy_asprintf("HOPYARD_CHECKPOINT=%s", t->checkpoint));
    add_env(w, hy_asprintf("HOPYARD_SOCKET=%s", a->report_path));
    if (a->function.fd >= 0)
        add_env(w, hy_agent_function_env(a));
}

/* The value of `name` ("NAME="), or NULL. */
static const char *env_value(char *const *list, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(list[i], name, strlen(name)) == 0)
            return list[i] + strlen(name);
    return NULL;
}

static bool env_number(const struct env_list *w, const char *name, uint64_t *ret)
{
    const char *text = env_value(w->list, w->count, name);

    return text && hy_parse_u64(text, ret) == 0;
}

/* Ranks of a training share this machine's cores, while TensorFlow would start as
 * many threads as there are cores in each of them. A setting of the user's is kept.
 * Nodes of a cluster wait for each other inside of ops: with few threads they would
 * deadlock. */
static void limit_threads(struct env_list *w)
{
    uint64_t here;
    cpu_set_t cores;

    if (env_value(w->list, w->count, "HOPYARD_NODE=") || !env_number(w, "HOROVOD_LOCAL_SIZE=", &here) || here == 0 ||
        sched_getaffinity(0, sizeof cores, &cores) < 0 || env_value(w->list, w->count, "TF_NUM_INTRAOP_THREADS=") ||
        env_value(w->list, w->count, "OMP_NUM_THREADS="))
        return;
    here = (uint64_t)CPU_COUNT(&cores) / here;
    add_env(w, hy_asprintf("TF_NUM_INTRAOP_THREADS=%llu", (unsigned long long)(here ? here : 1)));
    if (!env_value(w->list, w->count, "TF_NUM_INTEROP_THREADS="))
        add_env(w, hy_asprintf("TF_NUM_INTEROP_THREADS=%llu", (unsigned long long)(here ? here : 1)));
}

/* Binds a rank to its share of the cores; not in an elastic training, which may get more ranks, nor in a cluster, which
 * has other nodes too. True: *ret is set. */
static bool bind_to_cores(struct env_list *w, cpu_set_t *ret)
{
    const char *to = env_value(w->list, w->count, "HOPYARD_BIND_TO=");
    uint64_t rank, ranks, elastic;
    size_t own;

    if ((to && strcmp(to, "none") == 0) || env_value(w->list, w->count, "HOPYARD_NODE=") ||
        !env_number(w, "HOROVOD_LOCAL_RANK=", &rank) || !env_number(w, "HOROVOD_LOCAL_SIZE=", &ranks) ||
        !env_number(w, "HOROVOD_ELASTIC=", &elastic) || elastic || ranks < 2)
        return false;
    own = hy_cpu_share_for_rank(rank, ranks, ret);
    if (own)
        add_env(w, hy_asprintf("HOPYARD_CORES=%zu", own));
    return own;
}

static struct env_list make_environment(const struct trial *t)
{
    const Hy__Start *s = t->start->start;
    const struct agent *a = t->agent;
    size_t max = a->env_count + s->n_env + HY_GPU_ENV_MAX + OUR_ENTRIES_MAX;
    struct env_list w = {.list = hy_calloc(max + 1, sizeof *w.list)};

    if (!w.list)
        return w;
    memcpy(w.list, a->env, a->env_count * sizeof *w.list);
    if (s->n_env)
        memcpy(w.list + a->env_count, s->env, s->n_env * sizeof *w.list);
    w.count = a->env_count + s->n_env;
    if (s->gpus_said)
        w.count = hy_gpu_environment(t->lease, w.list, w.count);
    w.first_owned = w.count;
    w.complete = true;
    add_our_env(t, &w);
    limit_threads(&w);
    return w;
}

static void env_list_done(struct env_list *w)
{
    for (size_t i = w->first_owned; i < w->count; i++)
        free(w->list[i]);
    free(w->list);
}

/* The user's working directory; or, on a host without it, the trial's, from which
 * files are uploaded. */
static const char *cwd_of(const struct trial *t)
{
    const char *cwd = run_of(t)->cwd;

    return t->agent->shares_files || access(cwd, X_OK) == 0 ? cwd : t->dir;
}

static int start_process(struct trial *t, struct hy_fork_server *server, struct hy_err *err)
{
    static const struct hy_process_events events = {on_output, on_end, on_death};
    const Hy__Start *s = t->start->start;
    __attribute__((cleanup(env_list_done))) struct env_list env = make_environment(t);
    hy_cleanup_free char **argv = hy_calloc(s->n_argv + 1, sizeof *argv); /* ends in NULL */
    struct hy_process_spec spec = {.tag = t->tag,
                                   .argv = argv,
                                   .env = env.list,
                                   .cwd = cwd_of(t),
                                   .memory = s->memory,
                                   .timeout_ms = s->timeout_ms,
                                   .open_files = t->agent->open_files,
                                   .fork_server = server};
    cpu_set_t cores;
    int rc;

    if (!t->agent->own_environment && bind_to_cores(&env, &cores)) /* an executor shares the machine with others */
        spec.cores = &cores;

    if (t->lease)
        spec.inherit = hy_gpu_lease_fds(t->lease, &spec.inherit_count);
    for (size_t i = 0; argv && i < s->n_argv; i++)
        argv[i] = s->argv[i];
    if (argv && t->agent->python && t->agent->function.fd >= 0)
        argv[0] = (char *)t->agent->python;
    rc = env.complete && argv ? hy_process_start(t->agent->supervisor, &spec, &events, t, &t->process, err)
                              : hy_err_oom(err);
    if (rc == 0)
        t->begun_ms = hy_clock_ms();
    if (rc == -ENOENT && spec.cwd == t->dir) {
        struct hy_err own = *err;

        hy_err_set(err, rc, "%s; this host does not have the directory '%s'", own.text, run_of(t)->cwd);
    }
    return rc;
}

void hy_agent_trial_fail(struct trial *t, const struct hy_err *err)
{
    t->ended.outcome = HY__ENDED__OUTCOME__NOT_STARTED;
    t->ended.code = err->code;
    t->message = hy_strdup(err->text);
    hy_agent_trial_finish(t);
}

void hy_agent_trial_run(struct trial *t)
{
    struct hy_err err = {0};
    struct hy_fork_server *server;
    int rc = hy_agent_acquire_leases(t, &err);

    if (rc < 0)
        hy_agent_trial_fail(t, &err);
    if (rc != 0)
        return;
    server = hy_agent_function_is_cold(t->agent) ? NULL : hy_agent_function_server(t);
    if (!server && !hy_agent_function_is_cold(t->agent))
        return; /* it waits for the server */
    if (unlink(t->result) < 0 && errno != ENOENT) /* of an earlier attempt, or of another user */
        hy_warn_limited("cannot remove an old result path=%s", t->result);
    if (start_process(t, server, &err) == 0)
        return;
    if (server)
        hy_agent_function_not_started(t, &err);
    else
        hy_agent_trial_fail(t, &err);
}

static int make_directories(struct trial *t, struct hy_err *err)
{
    hy_cleanup_close int dir = -1;
    struct stat st;

    t->dir = hy_path_join(t->agent->root, t->start->start->dir);
    t->result = t->dir ? hy_path_join(t->dir, "result.json") : NULL;
    t->checkpoint = t->dir ? hy_path_join(t->dir, "checkpoint") : NULL;
    if (!t->result || !t->checkpoint)
        return hy_err_oom(err);
    dir = hy_open_own_dir(t->agent->root, t->start->start->dir, err);
    if (dir < 0)
        return dir;
    if (HY_SYS(mkdirat(dir, "checkpoint", 0755)) == 0)
        return 0;
    if (errno == EEXIST && fstatat(dir, "checkpoint", &st, 0) == 0)
        return S_ISDIR(st.st_mode) ? 0 : hy_err_set(err, -ENOTDIR, "'%s' is not a directory; remove it", t->checkpoint);
    return hy_err_sys(err, -errno, "cannot make the trial's directory '%s'", t->checkpoint);
}

void hy_agent_trial_start(struct agent *a, Hy__Control *start)
{
    const Hy__Start *s = start->start;
    struct trial *t = hy_calloc(1, sizeof *t);
    struct hy_err err = {0};
    int rc;

    if (!t || hy_map_get(&a->trials, hy_agent_trial_key(s->trial, s->attempt)) ||
        hy_map_put(&a->trials, hy_agent_trial_key(s->trial, s->attempt), t) < 0) {
        free(t);
        hy__control__free_unpacked(start, NULL);
        hy_agent_end(a, 1, "cannot start a trial");
        return;
    }
    t->agent = a;
    t->start = start;
    t->number = s->trial;
    t->attempt = s->attempt;
    hy_list_init(&t->outputs);
    hy_list_init(&t->waiting);
    hy__ended__init(&t->ended);
    snprintf(t->tag, sizeof t->tag, "%lld.%llu.%u", (long long)run_of(t)->run, (unsigned long long)t->number,
             t->attempt);
    hy_metric_scan_init(&t->captures[0].scan, run_of(t)->metric);
    hy_metric_scan_init(&t->captures[1].scan, run_of(t)->metric);
    rc = s->n_argv ? make_directories(t, &err) : hy_err_set(&err, -EINVAL, "there is no command");
    if (rc == 0)
        rc = hy_agent_files_expect(t, &err);
    if (rc < 0)
        hy_agent_trial_fail(t, &err);
    else if (rc == 0)
        hy_agent_trial_run(t);
}

void hy_agent_trial_kill(struct trial *t, int64_t grace_ms)
{
    if (t->process) {
        hy_process_kill(t->process, grace_ms);
    } else if (!t->upload) { /* it waits for files or for the fork server */
        t->ended.outcome = HY__ENDED__OUTCOME__KILLED;
        hy_agent_trial_finish(t);
    }
}
