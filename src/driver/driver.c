/* SPDX-License-Identifier: Apache-2.0 */
#include "driver/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "supervise/supervise.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "driver/params_text.h"
#include "driver/run.h"

#define LEAVE_MS 15000
#define POOL_SIZE "8" /* threads: output to a slow file system must not delay commits */
#define NOTES_MAX 1000
#define NOTES_BYTES_MAX (64u * 1024) /* of the last update */

/* ---- ending the run -------------------------------------------------------------------------- */

/* Clients read notes from the store. */
static void store_note(struct driver *d, const char *text)
{
    struct hy_note_row note = {.time = hy_clock_wall_ms(), .text = text};

    if (!d->run || !d->store || d->commit.is_broken)
        return;
    if (hy_run_check_recorded(d, hy_changes_note_add(&d->commit.recorded, &note)) < 0)
        return;
    d->notes.until++;
    d->changed = true;
    d->notes.bytes += strlen(text);
    if (d->notes.bytes <= NOTES_BYTES_MAX && hy_string_list_add(&d->notes.texts, text) < 0)
        d->notes.bytes = SIZE_MAX / 2; /* clients read them from the store */
}

bool hy_run_has_all_notes(const struct driver *d)
{
    return d->notes.before == 0 && d->notes.bytes <= NOTES_BYTES_MAX;
}

void hy_run_note(struct driver *d, const char *fmt, ...)
{
    char text[700];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (d->notes.until - d->notes.before >= NOTES_MAX) {
        hy_info_limited("%s", text);
        return;
    }
    hy_info("%s", text);
    store_note(d, text);
}

static void set_end(struct driver *d, enum hy_run_state state, const char *message)
{
    char *kept = message ? hy_strdup(message) : NULL;

    hy_info("run has ended run=%lld state=%s message=%s", (long long)d->run, hy_run_state_name(state),
            message ? message : "");
    free(d->end.message);
    d->end.message = kept;
    d->end.state = state;
    d->phase = PHASE_ENDING;
    d->changed = true;
}

void hy_run_finish(struct driver *d, enum hy_run_state state, const char *message)
{
    if (d->phase >= PHASE_ENDING)
        return;
    set_end(d, state, message);
    if (!d->commit.is_broken)
        hy_run_check_recorded(d, hy_changes_run_state(&d->commit.recorded, state, message));
}

/* In the store the run stays without a driver; clients get the failure and its reason. */
void hy_run_interrupt(struct driver *d, const char *why, bool can_resume)
{
    const Hy__Resume resume = can_resume ? hy_run_resume(d->spec) : HY__RESUME__NEVER;
    char text[800], how[100];

    if (d->phase > PHASE_ENDING)
        return;
    snprintf(text, sizeof text, "%s%s", why,
             hy_resume_clause(resume, d->run, " (`", "` continues the run)", how, sizeof how));
    hy_error("%s", text);
    set_end(d, HY_RUN_FAILED, text); /* even if it was done: the store does not have that */
}

void hy_run_fail(struct driver *d, const struct hy_err *err)
{
    hy_error("%s", err->text);
    hy_run_finish(d, HY_RUN_FAILED, err->text);
}

void hy_run_out_of_memory(struct driver *d)
{
    struct hy_err err = {0};
    char how[100];

    hy_err_set(&err, -ENOMEM, "out of memory%s",
               hy_resume_clause(hy_run_resume(d->spec), d->run, "; `", "` continues the run", how, sizeof how));
    hy_run_fail(d, &err);
}

/* Ranks beyond the requested number are started only if machines join. */
int64_t hy_run_total(const struct driver *d)
{
    uint64_t total = hy_is_training(d) ? d->spec->ranks : hy_search_total(d->search);

    return total == UINT64_MAX ? -1 : (int64_t)total;
}

void hy_run_stop(struct driver *d)
{
    if (!d->end.stop_by)
        d->end.stop_by = hy_clock_ms() + STOP_MS; /* also for a run that has ended and waits for its disk */
    if (d->phase != PHASE_RUNNING)
        return;
    hy_info("stopping run=%lld", (long long)d->run);
    d->phase = PHASE_STOPPING;
    hy_trials_stop_all(d);
}

/* The store has the end of the run, or never will: agents and clients are notified now. */
static void leave(struct driver *d)
{
    d->phase = PHASE_LEAVING;
    d->end.leave_by = hy_clock_ms() + LEAVE_MS;
    hy_agents_send_bye(d);
    hy_clients_end(d);
    hy_notify_begin(d);
}

/* The run has ended and waits for its files. Those include the snapshot with the logs; the one next to the store is
 * written while the driver leaves. */
static void finish(struct driver *d)
{
    hy_snapshot_begin(d);
    if (!hy_commit_is_done(d)) /* the snapshot has added a note */
        return;
    if ((!hy_store_is_remote(d->store) || hy_snapshot_is_over(d)) && hy_mirror_is_complete(d))
        leave(d);
}

/* ---- the turn -------------------------------------------------------------------------------- */

static void on_turn(uv_prepare_t *h)
{
    struct driver *d = h->data;

    hy_trials_pump(d);
    hy_commit_turn(d);
    if (d->phase == PHASE_ENDING && hy_commit_is_done(d))
        finish(d);
    if (d->phase == PHASE_LEAVING)
        hy_net_flush(d->agents.net);
    else
        hy_net_drain(d->agents.net);
    if (d->phase == PHASE_LEAVING && hy_agents_have_left(d) && hy_snapshot_is_over(d) && hy_notify_is_over(d))
        uv_stop(&d->loop);
}

static void on_tick(uv_timer_t *h)
{
    struct driver *d = h->data;
    int64_t now = hy_clock_ms();

    hy_trials_tick(d, now);
    hy_agents_tick(d, now);
    hy_mirror_tick(d, now);
    hy_commit_tick(d, now);
    hy_log_tick();
    d->clients.update_due = true;
    if (d->phase == PHASE_LEAVING && now > d->end.leave_by && hy_notify_is_over(d)) /* that has a limit of its own */
        uv_stop(&d->loop);
}

static void on_term(uv_signal_t *h, int signal)
{
    (void)signal;
    hy_run_stop(h->data);
}

/* A driver works without its reaper; only after a kill -9 the file of its socket would stay, until `hopyard gc`. */
static void on_reaper_gone(uv_poll_t *h, int status, int events)
{
    (void)status;
    (void)events;
    hy_warn("the reaper has ended");
    uv_poll_stop(h);
}

static int open_loop(struct driver *d, struct hy_err *err)
{
    int rc = uv_loop_init(&d->loop);

    if (rc < 0)
        return hy_err_set(err, rc, "cannot create an event loop: %s", uv_strerror(rc));
    uv_prepare_init(&d->loop, &d->process.turn);
    uv_timer_init(&d->loop, &d->process.tick);
    uv_signal_init(&d->loop, &d->process.term);
    uv_idle_init(&d->loop, &d->outputs.idle);
    d->process.turn.data = d->process.tick.data = d->process.term.data = d->process.reaper.data = d;
    d->outputs.idle.data = d;
    rc = uv_poll_init(&d->loop, &d->process.reaper, hy_reaper_fd());
    if (rc == 0)
        rc = uv_poll_start(&d->process.reaper, UV_READABLE | UV_DISCONNECT, on_reaper_gone);
    if (rc == 0)
        rc = uv_prepare_start(&d->process.turn, on_turn);
    if (rc == 0)
        rc = uv_timer_start(&d->process.tick, on_tick, 0, TICK_MS);
    if (rc == 0)
        rc = uv_signal_start(&d->process.term, on_term, SIGTERM);
    return rc < 0 ? hy_err_set(err, rc, "cannot start the event loop: %s", uv_strerror(rc)) : 0;
}

/* ---- opening a run --------------------------------------------------------------------------- */

static int make_serve(struct driver *d, struct hy_err *err)
{
    const Hy__RunSpec *s = d->spec;

    if (!s->function.len)
        return 0;
    d->serve = hy_calloc(s->n_argv + 2, sizeof *d->serve);
    if (!d->serve)
        return hy_err_oom(err);
    memcpy(d->serve, s->argv, s->n_argv * sizeof *d->serve);
    d->serve[s->n_argv] = (char *)"--serve";
    return 0;
}

static int make_search(struct driver *d, struct hy_err *err)
{
    struct hy_search_settings settings = hy_run_settings(d->spec);
    struct hy_policy policy = {.parallel = hy_is_training(d) ? 0 : d->spec->parallel};
    int rc = make_serve(d, err);

    if (rc == 0)
        rc = hy_run_space(d->spec, &d->space, err);
    if (rc == 0)
        rc = hy_search_new(&d->space, &settings, &d->search, err);
    if (rc == 0)
        rc = hy_early_stop_open(d, err);
    d->schedule = rc == 0 ? hy_schedule_new(&policy) : NULL;
    return rc == 0 && !d->schedule ? hy_err_oom(err) : rc;
}

/* Logs/TensorFlow/{appId}/{runId}/: the first free runId. Several users may have runs below the appId, so others
 * may write there; the runId's directory belongs to one user. */
static int make_logdir(struct driver *d, struct hy_err *err)
{
    hy_cleanup_free char *app_dir = NULL;
    char stamp[64];
    time_t now = time(NULL);
    struct tm tm;
    int rc;

    localtime_r(&now, &tm);
    strftime(stamp, sizeof stamp, "local-%Y%m%d-%H%M%S", &tm);
    d->files.app_id = hy_strdup(*d->spec->app_id ? d->spec->app_id : stamp);
    app_dir = d->files.app_id ? hy_asprintf("%s/Logs/TensorFlow/%s", d->spec->project, d->files.app_id) : NULL;
    rc = app_dir ? hy_mkdirs(app_dir, 0777) : -ENOMEM;
    while (rc == 0) {
        free(d->logdir);
        d->logdir = hy_asprintf("%s/%lld", app_dir, (long long)++d->files.app_run);
        if (!d->logdir || HY_SYS(mkdir(d->logdir, 0755)) == 0)
            return d->logdir ? 0 : hy_err_oom(err);
        if (errno != EEXIST)
            rc = -errno;
    }
    return hy_err_sys(err, rc,
                      "cannot create the directory '%s' for the logs; choose another project directory "
                      "or HOPYARD_PROJECT",
                      app_dir ? app_dir : "");
}

static char *command_json(const Hy__RunSpec *s);

static const char *kind_name(const Hy__RunSpec *s)
{
    const char *name = hy_search_kind_name(hy_run_settings(s).kind);

    if (s->n_roles)
        return "cluster";
    if (s->ranks)
        return "training";
    return name ? name : "grid";
}

static const char *engine_name(const Hy__RunSpec *s)
{
    if (*s->engine)
        return strncmp(s->master, "yarn", 4) == 0 ? "yarn" : "spark";
    return s->n_hosts ? "hosts" : "local";
}

static int add_run(struct driver *d, const void *spec, size_t spec_len, struct hy_err *err)
{
    const Hy__RunSpec *s = d->spec;
    hy_cleanup_free char *command = command_json(s);
    struct hy_run_row row = {.name = *s->name ? s->name : NULL,
                             .app_id = d->files.app_id,
                             .app_run = d->files.app_run,
                             .logdir = d->logdir,
                             .command = command,
                             .metric = *s->metric ? s->metric : NULL,
                             .maximize = s->maximize,
                             .seed = (int64_t)s->seed,
                             .versions = s->versions,
                             .git = *s->git ? s->git : NULL,
                             .spec = spec,
                             .spec_len = spec_len,
                             .state = HY_RUN_RUNNING,
                             .created = hy_clock_wall_ms(),
                             .total = hy_run_total(d),
                             .ranks = s->ranks,
                             .kind = kind_name(s),
                             .engine = engine_name(s)};
    int rc;

    if (!command)
        return hy_err_oom(err);
    d->created_wall = row.created;
    rc = hy_store_run_add(d->store, &row, &d->run, err);
    if (rc == 0) /* before the run is visible */
        rc = d->files.lock_fd = hy_store_run_lock(d->store, d->run, err);
    return rc < 0 ? rc : hy_store_commit(d->store, err);
}

/* The arguments of a command, or one string for a function. */
static char *command_json(const Hy__RunSpec *s)
{
    hy_cleanup_buf struct hy_buf out;
    int rc;

    hy_buf_init(&out, HY_SPEC_LIMIT);
    rc = *s->title ? hy_append_json_string(&out, s->title) : hy_buf_append_str(&out, "[");
    for (size_t i = 0; !*s->title && i < s->n_argv && rc == 0; i++) {
        rc = i ? hy_buf_append_str(&out, ", ") : 0;
        if (rc == 0)
            rc = hy_append_json_string(&out, s->argv[i]);
    }
    if (rc == 0 && !*s->title)
        rc = hy_buf_append_str(&out, "]");
    return rc == 0 && hy_buf_cstr(&out) ? hy_strdup(hy_buf_cstr(&out)) : NULL;
}

/* The run's earlier session has ended: it continues with another one. */
static int change_session(struct driver *d)
{
    char *address = d->process.new_address ? hy_strdup(d->process.new_address) : NULL;

    if (!d->process.new_address)
        return 0;
    if (!address)
        return -ENOMEM;
    if (d->spec->address != protobuf_c_empty_string)
        free(d->spec->address);
    d->spec->address = address;
    return 0;
}

static int load_run(void *arg, const struct hy_run_row *row, const struct hy_run_counts *counts)
{
    struct driver *d = arg;

    if (row->state == HY_RUN_DONE && (counts->failed == 0 || row->ranks))
        return -EALREADY;
    if (!row->spec || !row->app_id || !row->logdir)
        return -EUCLEAN;
    d->spec = hy__run_spec__unpack(NULL, row->spec_len, row->spec);
    if (d->spec && d->spec->shared)
        return -EREMOTE;
    d->files.app_id = hy_strdup(row->app_id);
    d->files.app_run = row->app_run;
    d->logdir = hy_strdup(row->logdir);
    d->created_wall = row->created;
    return d->spec && d->files.app_id && d->logdir ? change_session(d) : -EUCLEAN;
}

static int open_resumed(struct driver *d, const char *project, struct hy_err *err)
{
    int rc = hy_store_open(project, HY_STORE_WRITE, &d->store, err);

    if (rc == 0)
        rc = d->files.lock_fd = hy_store_run_lock(d->store, d->run, err);
    if (rc < 0)
        return rc;
    rc = hy_store_run_each(d->store, d->run, load_run, d, err);
    if (rc == -EALREADY)
        return hy_err_set(err, rc, "run %lld is done; there is nothing to resume", (long long)d->run);
    if (rc == -EUCLEAN)
        return hy_err_set(err, rc,
                          "run %lld cannot be resumed: the store does not have its specification; start it "
                          "again",
                          (long long)d->run);
    if (rc == -EREMOTE)
        return hy_err_set(err, rc,
                          "run %lld cannot be resumed: it was imported from the snapshot with its logs, or "
                          "from a file that others could write, and has neither its environment nor its function; "
                          "resume it in the original project, or start it again",
                          (long long)d->run);
    if (rc == 0)
        rc = make_search(d, err);
    if (rc == 0 && hy_mkdirs(d->logdir, 0755) < 0)
        rc = hy_err_set(err, -ENOENT, "run %lld cannot be resumed: cannot create its directory '%s'", (long long)d->run,
                        d->logdir);
    if (rc == 0)
        rc = hy_store_note_newest(d->store, d->run, &d->notes.before, err);
    d->notes.until = d->notes.before;
    if (rc == 0)
        rc = hy_run_restore(d, err);
    if (rc == 0)
        rc = hy_store_run_state(d->store, d->run, HY_RUN_RUNNING, NULL, err);
    return rc == 0 ? hy_store_commit(d->store, err) : rc;
}

static int open_new(struct driver *d, struct hy_err *err)
{
    hy_cleanup_buf struct hy_buf bytes;
    int rc;

    hy_buf_init(&bytes, HY_SPEC_LIMIT);
    rc = hy_read_all(STDIN_FILENO, &bytes);
    d->spec = rc == 0 ? hy__run_spec__unpack(NULL, bytes.len, hy_buf_bytes(&bytes)) : NULL;
    if (!d->spec || d->spec->n_argv == 0)
        return hy_err_set(err, -EINVAL,
                          "cannot read the run's specification; `hopyard driver` is started by "
                          "`hopyard run`");
    rc = make_search(d, err);
    if (rc == 0)
        rc = hy_run_check_gpus(d->spec, err);
    if (rc == 0)
        rc = hy_store_open(d->spec->project, HY_STORE_WRITE, &d->store, err);
    if (rc == 0)
        rc = make_logdir(d, err);
    if (rc == 0)
        rc = add_run(d, hy_buf_bytes(&bytes), bytes.len, err);
    if (rc >= 0 && hy_store_lost_notice(d->store))
        hy_run_note(d, "%s", hy_store_lost_notice(d->store));
    if (rc >= 0 && *d->spec->search_note)
        hy_run_note(d, "%s", d->spec->search_note);
    return rc < 0 ? rc : 0;
}

static int open_own_file(struct driver *d, const char *suffix, int flags, struct hy_err *err)
{
    char name[40];

    snprintf(name, sizeof name, "run-%lld.%s", (long long)d->run, suffix);
    return hy_store_file(d->store, name, flags | O_CREAT, err);
}

/* The log, the token by which agents detect shared files, and the lock that local agents hold. */
static int open_files(struct driver *d, struct hy_err *err)
{
    hy_cleanup_free char *token = NULL;
    hy_cleanup_close int log_fd = -1;
    int rc;

    d->files.token_file = hy_strdup(".token");
    token = hy_path_join(d->logdir, ".token");
    if (!d->files.token_file || !token || hy_key_random(d->files.token) < 0)
        return hy_err_oom(err);
    rc = log_fd = open_own_file(d, "log", O_WRONLY | O_APPEND, err);
    if (rc >= 0)
        rc = d->files.hold_fd = open_own_file(d, "hold", O_RDWR, err);
    if (rc >= 0 && dup2(log_fd, 2) < 0)
        rc = hy_err_sys(err, -errno, "cannot write to the directory '%s'", hy_store_dir_path(d->store));
    if (rc < 0)
        return rc;
    rc = hy_file_write(token, d->files.token, sizeof d->files.token, 0600);
    return rc < 0 ? hy_err_sys(err, rc, "cannot write to the directory '%s'", d->logdir) : 0;
}

/* The run is in the store, but it cannot start: the store gets the reason. */
static void store_failure(struct driver *d, const struct hy_err *why)
{
    struct hy_err err = {0};

    if (hy_store_run_state(d->store, d->run, HY_RUN_FAILED, why->text, &err) < 0 ||
        hy_store_commit(d->store, &err) < 0 || hy_store_backup_run(d->store, d->run, &err) < 0)
        hy_error("%s", err.text);
}

static int open_services(struct driver *d, struct hy_err *err)
{
    int rc = open_files(d, err);

    if (rc == 0)
        rc = hy_clients_open(d, err);
    if (rc == 0 && hy_reaper_file(d->clients.socket_path) < 0)
        rc = hy_err_set(err, -EPIPE, "the reaper has ended");
    if (rc == 0)
        rc = hy_mirror_open(d, err);
    if (rc == 0)
        rc = hy_agents_open(d, err);
    return rc;
}

static int driver_open(struct driver *d, const char *project, struct hy_err *err)
{
    int rc = open_loop(d, err);

    if (rc == 0)
        rc = project ? open_resumed(d, project, err) : open_new(d, err);
    if (rc == 0) {
        rc = open_services(d, err);
        if (rc < 0)
            store_failure(d, err);
    }
    d->process.begun_ms = hy_clock_ms();
    d->commit.committed = hy_run_progress(d);
    return rc;
}

static void close_walk(uv_handle_t *h, void *arg)
{
    (void)arg;
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

static void driver_close(struct driver *d)
{
    struct trial *t;
    size_t i;

    if (d->clients.local)
        hy_local_close(d->clients.local);
    hy_agents_free(d);
    if (d->agents.net)
        hy_net_free(hy_take(d->agents.net));
    hy_engine_free(d->agents.engine);
    hy_discovery_stop(d);
    hy_mirror_stop(d);
    uv_prepare_stop(&d->process.turn);
    uv_timer_stop(&d->process.tick);
    uv_idle_stop(&d->outputs.idle);
    uv_run(&d->loop, UV_RUN_NOWAIT);
    uv_walk(&d->loop, close_walk, NULL);
    uv_run(&d->loop, UV_RUN_DEFAULT);
    uv_loop_close(&d->loop);
    hy_mirror_free(d);
    hy_discovery_free(d);
    hy_events_discard(d);
    hy_snapshot_free(d);
    while ((i = 0, t = hy_map_next(&d->trials.map, &i)))
        hy_trial_free(d, t);
    hy_map_done(&d->trials.map);
    hy_schedule_free(d->schedule);
    hy_search_free(d->search);
    hy_early_stop_free(d);
    hy_space_done(&d->space);
    hy_store_close(d->store);
    hy_changes_clear(&d->commit.recorded);
    hy_changes_clear(&d->commit.sealed);
    hy_string_list_done(&d->notes.texts);
    hy_map_done(&d->trials.dirs);
    free(d->clients.update);
    free(d->stalls.notice);
    hy_close_at(&d->files.lock_fd);
    hy_close_at(&d->files.hold_fd);
    hy_close_at(&d->clients.owner_fd);
    if (d->spec)
        hy__run_spec__free_unpacked(d->spec, NULL);
    free(d->serve);
    free(d->trials.best.params);
    free(d->trials.best.dir);
    free(d->logdir);
    free(d->files.app_id);
    free(d->files.token_file);
    free(d->clients.socket_path);
    free(d->end.message);
    free(d->training.abort_reason);
    explicit_bzero(d->agents.key, sizeof d->agents.key);
    explicit_bzero(d->agents.join_key, sizeof d->agents.join_key);
}

/* ---- the process ----------------------------------------------------------------------------- */

static int parse(struct driver *d, int argc, char **argv, const char **ret_project, struct hy_err *err)
{
    static const struct option options[] = {{"resume", required_argument, NULL, 'r'},
                                            {"project", required_argument, NULL, 'p'},
                                            {"address", required_argument, NULL, 'a'},
                                            {"owner-fd", required_argument, NULL, 'o'},
                                            {0}};
    uint64_t run = 0, fd = 0;
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 'r' && hy_parse_u64(optarg, &run) == 0)
            d->run = (int64_t)run;
        else if (c == 'p')
            *ret_project = optarg;
        else if (c == 'a')
            d->process.new_address = optarg;
        else if (c == 'o' && hy_parse_u64(optarg, &fd) == 0 && fd < INT_MAX && fcntl((int)fd, F_SETFD, FD_CLOEXEC) == 0)
            d->clients.owner_fd = (int)fd;
        else
            return hy_err_set(err, -EINVAL, "`hopyard driver` is started by `hopyard run` and `hopyard resume`");
    }
    return !d->run == !*ret_project ? 0 : hy_err_set(err, -EINVAL, "--resume requires --project");
}

/* Standard output is a pipe to the process that started the driver: one line, then it is closed. */
static void report_status(int fd, const struct driver *d, const struct hy_err *err)
{
    char line[700];
    int n = err->code ? snprintf(line, sizeof line, "error %s\n", err->text)
                      : snprintf(line, sizeof line, "ok %lld %s\n", (long long)d->run, d->clients.socket_path);

    if (hy_write_all(fd, line, (size_t)n) < 0)
        hy_warn("the process that started this run has ended");
}

static int detach_stdout(void)
{
    int fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    hy_cleanup_close int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    if (null < 0 || dup2(null, STDOUT_FILENO) < 0)
        return -errno;
    return fd;
}

static void raise_file_limit(struct driver *d)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return;
    d->process.open_files = files.rlim_cur;
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) < 0)
        hy_warn("cannot raise the limit on open files error=%s", strerror(errno));
}

int hy_driver_main(int argc, char **argv)
{
    struct driver d = {.files = {.lock_fd = -1, .hold_fd = -1}, .clients.owner_fd = -1};
    const char *project = NULL;
    struct hy_err err = {0};
    hy_cleanup_close int status = -1;
    int rc;

    hy_log_init("driver");
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error of that write */
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN); /* from a terminal: the client handles it */
    raise_file_limit(&d);
    setenv("UV_THREADPOOL_SIZE", POOL_SIZE, 0); /* before the pool is created */
    hy_list_init(&d.clients.list);
    hy_list_init(&d.trials.waiting);
    hy_list_init(&d.events.due);
    hy_list_init(&d.events.sealed);
    hy_list_init(&d.outputs.stalled);
    hy_list_init(&d.events.stalled);
    hy_list_init(&d.outputs.continued);
    hy_changes_init(&d.commit.recorded);
    hy_changes_init(&d.commit.sealed);
    rc = parse(&d, argc, argv, &project, &err);
    if (rc == 0)
        rc = hy_reaper_fork(NULL, -1);
    if (rc < 0) {
        fprintf(stderr, "hopyard driver: %s\n", err.code ? err.text : strerror(-rc));
        return 2;
    }
    prctl(PR_SET_NAME, "hopyard-driver");
    status = detach_stdout();
    rc = driver_open(&d, project, &err);
    report_status(status, &d, &err);
    hy_close_at(&status);
    status = -1;
    if (rc == 0)
        uv_run(&d.loop, UV_RUN_DEFAULT);
    driver_close(&d);
    hy_log_flush();
    return rc == 0 && d.end.state != HY_RUN_FAILED ? 0 : 1;
}
