/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/core_lease.h"
#include "agent/trial.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "wire/wire.h"

#define TICK_MS 250
#define GRACE_MS 5000
#define LINGER_MS 2000

/* From the command line. */
struct settings {
    char host[256];
    uint16_t port;
    const char *identity, *name, *key_file, *python, *work;
    bool until_eof, own_environment;
    int hold_fd; /* a lock of the run; -1: none */
    uint64_t companion; /* a PID: we end with it */
    uint64_t container_root, container_limit, container_spare;
    uint64_t slots, open_files;
    char unit[32]; /* names the cgroup, for the supervisor and the reaper */
    char made_identity[32];
    uint8_t key[HY_KEY_SIZE];
};

/* ---- ending --------------------------------------------------------------- */

static void close_walk(uv_handle_t *h, void *arg)
{
    (void)arg;
    if (!uv_is_closing(h))
        uv_close(h, NULL);
}

/* When all trials have ended: sends Bye, so that the driver need not wait for us. */
static void exit_when_idle(struct agent *a)
{
    Hy__Bye bye = HY__BYE__INIT;
    Hy__Control m = HY__CONTROL__INIT;

    if (!a->ending || a->trials.count)
        return;
    if (a->function.server && !hy_agent_standby_is_next(a)) {
        hy_agent_function_end(a);
        return;
    }
    if (!hy_agent_gpus_close(a) || (hy_agent_standby_is_next(a) && hy_agent_standby_enter(a)))
        return;
    if (a->function.server) /* it cannot wait for another run */
        return;
    bye.why = (char *)a->why;
    m.body_case = HY__CONTROL__BODY_BYE;
    m.bye = &bye;
    if (a->peer && hy_peer_send(a->peer, &m) < 0)
        hy_warn("cannot send Bye");
    hy_net_flush(a->net);
    uv_stop(&a->loop);
}

static bool is_waiting(const struct trial *t)
{
    return t->incoming || !hy_list_empty(&t->waiting) || (t->lease && !t->has_gpus) || (t->core && !t->has_core);
}

/* While its process runs only events are uploaded. */
static bool is_uploading(const struct trial *t)
{
    return t->upload && !t->process;
}

/* Frees trials that have no process. */
static void drop_trials(struct agent *a, bool (*which)(const struct trial *))
{
    struct trial *t;

    for (size_t i = 0; (t = hy_map_next(&a->trials, &i));)
        if (which(t)) {
            hy_agent_trial_free(t);
            i = 0; /* the map has moved */
        }
}

void hy_agent_end(struct agent *a, int status, const char *why)
{
    struct trial *t;

    if (a->ending) {
        a->has_other_reason = true;
        return;
    }
    hy_agent_standby_cancel(a);
    hy_log(status ? HY_LOG_ERROR : HY_LOG_INFO, "ending why=\"%s\" trials=%zu", why, a->trials.count);
    a->ending = true;
    a->exit_status = status;
    snprintf(a->why, sizeof a->why, "%s", why);
    for (size_t i = 0; (t = hy_map_next(&a->trials, &i));)
        if (t->process)
            hy_agent_trial_kill(t, GRACE_MS);
    drop_trials(a, is_waiting);
}

void hy_agent_send(struct agent *a, const Hy__Control *m)
{
    int rc = a->peer ? hy_peer_send(a->peer, m) : 0;

    if (rc < 0) {
        hy_error("cannot queue a message error=%s", strerror(-rc));
        hy_agent_end(a, 1, "out of memory for messages");
    }
}

void hy_agent_note(struct agent *a, const char *fmt, ...)
{
    Hy__Note note = HY__NOTE__INIT;
    Hy__Control m = HY__CONTROL__INIT;
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    note.text = text;
    m.body_case = HY__CONTROL__BODY_NOTE;
    m.note = &note;
    hy_agent_send(a, &m);
}

/* ---- messages from the driver --------------------------------------------- */

/* Variables that belong to the host, not to the user's session. */
static bool is_host_variable(const char *entry)
{
    static const char *const names[] = {
        "HOME=",           "USER=",           "LOGNAME=", "SHELL=", "TMPDIR=", "HOSTNAME=", "MAIL=", "XDG_RUNTIME_DIR=",
        "XDG_CACHE_HOME=", "XDG_STATE_HOME=", "SSH_"};

    for (size_t i = 0; i < HY_COUNT(names); i++)
        if (strncmp(entry, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

/* So that trials find `hopyard report` on hosts that only have the copy of this
 * program that was sent there. The user's PATH takes precedence. */
static char *extend_path(const char *entry)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;

    if (n <= 0)
        return hy_strdup(entry);
    self[n] = '\0';
    slash = strrchr(self, '/');
    if (!slash || strcmp(slash, "/hopyard") != 0)
        return hy_strdup(entry);
    *slash = '\0';
    return hy_asprintf("%s:%s", entry, self);
}

static bool is_set_in(const Hy__Welcome *w, const char *entry)
{
    size_t n = strcspn(entry, "=") + 1;

    for (size_t i = 0; i < w->n_env; i++)
        if (strncmp(w->env[i], entry, n) == 0)
            return true;
    return false;
}

static int add_entry(struct agent *a, char *entry)
{
    if (!a->path && strncmp(entry, "PATH=", 5) == 0) {
        entry = a->path = extend_path(entry);
        if (!entry)
            return -ENOMEM;
    }
    a->env[a->env_count++] = entry;
    return 0;
}

/* The user's environment with this host's variables; on an executor its own, with those of the run. */
static int take_environment(struct agent *a, const Hy__Welcome *w, bool same_host)
{
    bool own = a->own_environment;
    size_t here = 0;
    int rc = 0;

    while (environ[here])
        here++;
    a->env = hy_calloc(w->n_env + here + 1, sizeof *a->env);
    if (!a->env)
        return -ENOMEM;
    for (size_t i = 0; i < w->n_env && rc == 0; i++)
        if (own || same_host || !is_host_variable(w->env[i]))
            rc = add_entry(a, w->env[i]);
    for (size_t i = 0; i < here && rc == 0; i++)
        if (own ? !is_set_in(w, environ[i]) : !same_host && is_host_variable(environ[i]))
            rc = add_entry(a, environ[i]);
    return rc;
}

/* The driver's directory is shared with us if it contains the driver's token. */
static bool can_see_token(const Hy__Welcome *w)
{
    hy_cleanup_free char *path = hy_path_join(w->logdir, w->token_file);
    hy_cleanup_buf struct hy_buf text;

    hy_buf_init(&text, 256);
    return path && w->token.len && hy_file_read(path, &text) == 0 && text.len == w->token.len &&
           memcmp(hy_buf_bytes(&text), w->token.data, text.len) == 0;
}

/* All of this machine's, unless an engine has set a limit. */
static uint64_t memory_for_trials(const struct agent *a)
{
    return a->memory ? a->memory : (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

void hy_agent_detach(struct agent *a)
{
    static const char word[] = "leaves\n";
    hy_cleanup_close int nowhere = -1;

    if (a->companion_fd < 0 || a->is_detached)
        return;
    a->is_detached = true;
    nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (write(STDOUT_FILENO, word, sizeof word - 1) < 0)
        hy_warn("cannot report that the agent detaches error=%s", strerror(errno));
    for (int fd = STDIN_FILENO; nowhere >= 0 && fd <= STDERR_FILENO; fd++)
        if (dup2(nowhere, fd) < 0)
            hy_warn("cannot redirect a descriptor to /dev/null fd=%d error=%s", fd, strerror(errno));
}

void hy_agent_join(struct agent *a)
{
    Hy__AgentInfo info = HY__AGENT_INFO__INIT;
    Hy__Control reply = HY__CONTROL__INIT;
    char host[256] = "", *uuids[HY_GPUS_MAX];

    a->may_join = true;
    if (!a->gpus_found)
        return; /* called again when they are */
    gethostname(host, sizeof host - 1);
    hy_agent_gpus_describe(a, &info, uuids);
    info.name = (char *)a->name;
    info.host = host;
    info.pid = getpid();
    info.version = (char *)HY_VERSION;
    info.slots = a->slots;
    info.memory = memory_for_trials(a);
    info.shares_files = a->shares_files;
    reply.body_case = HY__CONTROL__BODY_AGENT_INFO;
    reply.agent_info = &info;
    hy_agent_send(a, &reply);
    hy_info("joined run=%lld shares_files=%d limits=%s gpus=%u", (long long)a->welcomed->welcome->run, a->shares_files,
            hy_supervisor_limit_method(a->supervisor), info.gpus);
}

static void on_welcome(struct agent *a, const Hy__Control *m)
{
    const Hy__Welcome *w = m->welcome;
    struct hy_err err = {0};
    char host[256] = "";
    int rc;

    if (a->welcomed)
        return;
    gethostname(host, sizeof host - 1);
    a->welcomed = hy_control_copy(m);
    if (!a->welcomed || take_environment(a, a->welcomed->welcome, strcmp(w->host, host) == 0) < 0) {
        hy_agent_end(a, 1, "out of memory");
        return;
    }
    a->shares_files = can_see_token(w);
    a->root = a->shares_files ? hy_strdup(w->logdir) : hy_agent_files_root(a, host, &err);
    if (!a->root) {
        hy_error("%s", err.text);
        hy_agent_end(a, 1, "no directory for the trials");
        return;
    }
    hy_agent_cores_open(a, w);
    rc = hy_agent_function_expect(a, &err);
    if (rc < 0) {
        hy_error("%s", err.text);
        hy_agent_end(a, 1, "the function cannot be received");
    } else if (rc == 0) {
        hy_agent_join(a);
    }
}

static void on_start(struct agent *a, const Hy__Control *m)
{
    Hy__Control *copy;

    if (a->ending || !a->root)
        return;
    copy = hy_control_copy(m);
    if (copy)
        hy_agent_trial_start(a, copy);
    else
        hy_agent_end(a, 1, "out of memory");
}

static void on_kill(struct agent *a, const Hy__Kill *kill)
{
    struct trial *t = hy_map_get(&a->trials, hy_agent_trial_key(kill->trial, kill->attempt));

    if (t)
        hy_agent_trial_kill(t, GRACE_MS);
}

static void on_decision(struct agent *a, const Hy__Decision *decision)
{
    struct trial *t = hy_map_get(&a->trials, hy_agent_trial_key(decision->trial, decision->attempt));

    if (t && t->process)
        hy_agent_trial_decide(t, decision);
}

static void on_message(void *arg, struct hy_peer *p, const Hy__Control *m)
{
    struct agent *a = arg;

    (void)p;
    switch (m->body_case) {
    case HY__CONTROL__BODY_WELCOME:
        on_welcome(a, m);
        break;
    case HY__CONTROL__BODY_START:
        on_start(a, m);
        break;
    case HY__CONTROL__BODY_KILL:
        on_kill(a, m->kill);
        break;
    case HY__CONTROL__BODY_DECISION:
        on_decision(a, m->decision);
        break;
    case HY__CONTROL__BODY_GROUP:
        hy_agent_group_deliver(a, m->group);
        break;
    case HY__CONTROL__BODY_BYE:
        hy_agent_standby_offer(a, m->bye);
        hy_agent_end(a, 0, "the driver ended the run");
        break;
    default:
        break; /* from a newer driver */
    }
}

static void on_data(void *arg, struct hy_peer *p, uint32_t stream, const uint8_t *bytes, size_t n)
{
    hy_peer_consumed(p, stream, n);
    if (!hy_agent_function_data(arg, stream, bytes, n))
        hy_agent_files_data(arg, stream, bytes, n);
}

static void on_room(void *arg, struct hy_peer *p, uint32_t stream)
{
    (void)p;
    hy_agent_trial_room(arg, stream);
}

static void on_gone(void *arg, struct hy_peer *p, const char *why)
{
    struct agent *a = arg;

    (void)p;
    a->peer = NULL;
    drop_trials(a, is_uploading); /* their files have no receiver */
    hy_agent_trials_discard_output(a);
    hy_agent_end(a, 1, why);
}

static void on_up(void *arg, struct hy_peer *p)
{
    (void)arg;
    hy_debug("link is up address=%s", hy_peer_address(p));
}

/* ---- the loop ----------------------------------------------------------------- */

static void on_turn(uv_prepare_t *h)
{
    struct agent *a = h->data;

    hy_net_flush(a->net);
    hy_agent_report_socket_resume(a);
    exit_when_idle(a);
}

static void on_tick(uv_timer_t *h)
{
    hy_agent_trial_tick(h->data);
    hy_agent_function_tick(h->data);
    hy_agent_usage_tick(h->data);
    hy_log_tick();
}

static void on_term(uv_signal_t *h, int signal)
{
    struct agent *a = h->data;

    (void)signal;
    hy_agent_end(a, 0, "ended by a signal");
}

static void on_reaper_gone(uv_poll_t *h, int status, int events)
{
    struct agent *a = h->data;

    (void)status;
    (void)events;
    uv_poll_stop(h);
    hy_agent_end(a, 1, "the reaper is gone");
}

static int open_loop(struct agent *a, const char *unit, struct hy_err *err)
{
    static const struct hy_net_settings settings = {.silence_ms = HY_AGENT_LEASE_MS, .ping_ms = HY_PING_MS};
    static const struct hy_net_events events = {on_up, on_message, on_data, on_room, on_gone};
    int rc = uv_loop_init(&a->loop);

    if (rc < 0)
        return hy_err_set(err, rc, "cannot make an event loop: %s", uv_strerror(rc));
    rc = hy_supervisor_new(&a->loop, unit, &a->supervisor, err);
    if (rc < 0)
        return rc;
    a->net = hy_net_new(&a->loop, &settings, &events, a);
    if (!a->net || hy_agent_gpus_open(a) < 0)
        return hy_err_oom(err);
    uv_prepare_init(&a->loop, &a->turn);
    uv_timer_init(&a->loop, &a->tick);
    uv_signal_init(&a->loop, &a->term);
    uv_signal_init(&a->loop, &a->interrupt);
    a->turn.data = a->tick.data = a->term.data = a->interrupt.data = a->reaper.data = a;
    rc = uv_poll_init(&a->loop, &a->reaper, hy_reaper_fd());
    if (rc == 0)
        rc = uv_poll_start(&a->reaper, UV_READABLE | UV_DISCONNECT, on_reaper_gone);
    if (rc == 0)
        rc = uv_prepare_start(&a->turn, on_turn);
    if (rc == 0)
        rc = uv_timer_start(&a->tick, on_tick, TICK_MS, TICK_MS);
    if (rc == 0)
        rc = uv_signal_start(&a->term, on_term, SIGTERM);
    if (rc == 0) /* Ctrl-C, for an agent on a terminal */
        rc = uv_signal_start(&a->interrupt, on_term, SIGINT);
    if (rc < 0)
        return hy_err_set(err, rc, "cannot start the event loop: %s", uv_strerror(rc));
    return hy_agent_report_socket_open(a, err);
}

static void on_input(uv_poll_t *h, int status, int events)
{
    struct agent *a = h->data;
    char rest[256];
    ssize_t n = read(STDIN_FILENO, rest, sizeof rest);

    (void)status;
    (void)events;
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    uv_poll_stop(h);
    hy_agent_end(a, 0, "the process that started it is gone");
}

static void on_companion(uv_poll_t *h, int status, int events)
{
    (void)status;
    (void)events;
    uv_poll_stop(h);
    hy_agent_end(h->data, 0, "its companion process is gone");
}

static int watch_companion(struct agent *a, pid_t pid, struct hy_err *err)
{
    int rc;

    a->companion_fd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (a->companion_fd < 0)
        return hy_err_sys(err, -errno, "cannot watch the process %d", (int)pid);
    rc = uv_poll_init(&a->loop, &a->companion, a->companion_fd);
    a->companion.data = a;
    if (rc == 0)
        rc = uv_poll_start(&a->companion, UV_READABLE, on_companion);
    return rc < 0 ? hy_err_set(err, rc, "cannot watch the process %d: %s", (int)pid, uv_strerror(rc)) : 0;
}

static int watch_input(struct agent *a, struct hy_err *err)
{
    int rc = uv_poll_init(&a->loop, &a->input, STDIN_FILENO);

    a->input.data = a;
    if (rc == 0)
        rc = uv_poll_start(&a->input, UV_READABLE | UV_DISCONNECT, on_input);
    return rc < 0 ? hy_err_set(err, rc, "cannot watch standard input: %s", uv_strerror(rc)) : 0;
}

/* Waits a moment until results and Bye are sent. */
static void close_peer(struct agent *a)
{
    uv_prepare_stop(&a->turn);
    if (a->peer)
        hy_peer_close(a->peer, LINGER_MS);
    while (hy_net_lingering(a->net))
        uv_run(&a->loop, UV_RUN_ONCE);
}

static void close_loop(struct agent *a)
{
    if (a->reports)
        hy_local_close(a->reports);
    if (a->net)
        close_peer(a);
    hy_net_free(a->net);
    hy_cores_free(a->cores);
    hy_gpus_free(a->gpus);
    hy_supervisor_free(a->supervisor);
    uv_walk(&a->loop, close_walk, NULL);
    uv_run(&a->loop, UV_RUN_DEFAULT);
    uv_loop_close(&a->loop);
    if (a->companion_fd >= 0)
        close(a->companion_fd);
    if (a->root && !a->shares_files && hy_remove_tree(a->root) < 0)
        hy_warn("cannot remove the scratch directory path=%s", a->root);
    if (a->welcomed)
        hy__control__free_unpacked(a->welcomed, NULL);
    hy_map_done(&a->trials);
    hy_map_done(&a->incoming);
    hy_agent_function_done(a);
    hy_agent_group_done(a);
    free(a->env);
    free(a->path);
    free(a->root);
    free(a->report_path);
    free(a->given_name);
    free(a->client);
    free(a->warm_key);
    hy_close_at(&a->hold_fd);
}

/* ---- the command line ------------------------------------------------------------ */

static const char usage[] = "usage: hopyard agent --join HOST:PORT --key-file FILE [--slots N] [--name NAME]\n"
                            "\n"
                            "Lends this machine to a run. The run must have been started with --listen;\n"
                            "`hopyard run` then prints the address, and where the key file is.\n"
                            "\n"
                            "  --join HOST:PORT   the run's driver ([HOST]:PORT for IPv6)\n"
                            "  --key-file FILE    the run's key, copied from there (mode 0600); - reads it\n"
                            "                     from standard input\n"
                            "  --slots N          how many trials at a time (default: the number of cores)\n"
                            "  --name NAME        the agent's name in the run (default: the host's name)\n"
                            "\n"
                            "The agent ends with the run, or after 15 seconds without a message from it.\n";

static int parse_join(struct settings *s, const char *text, struct hy_err *err)
{
    if (hy_parse_host_port(text, s->host, sizeof s->host, &s->port) < 0 || s->port == 0)
        return hy_err_set(err, -EINVAL, "--join takes HOST:PORT, not '%s'", text);
    return 0;
}

/* "1234:2147483648:1073741824": the root process of the container, its memory limit, and the part of it for trials. */
static int parse_container(struct settings *s, const char *text)
{
    uint64_t *parts[] = {&s->container_root, &s->container_limit, &s->container_spare};

    for (size_t i = 0; i < HY_COUNT(parts); i++) {
        size_t n = strcspn(text, ":");
        hy_cleanup_free char *part = hy_strndup(text, n);

        if (!part || hy_parse_u64(part, parts[i]) < 0 || (text[n] == ':') != (i + 1 < HY_COUNT(parts)))
            return -EINVAL;
        text += n + 1;
    }
    return s->container_root == 0 || s->container_root > INT_MAX ? -EINVAL : 0;
}

static int parse_slots(struct settings *s, const char *text, struct hy_err *err)
{
    if (hy_parse_u64(text, &s->slots) < 0 || s->slots == 0 || s->slots > 100000)
        return hy_err_set(err, -EINVAL, "--slots takes a positive number, not '%s'", text);
    return 0;
}

/* A lock that is held as long as we work for the run; trials must not inherit it. */
static int hold(struct settings *s, const char *fd, struct hy_err *err)
{
    s->hold_fd = atoi(fd);
    return fcntl(s->hold_fd, F_SETFD, FD_CLOEXEC) < 0 ? hy_err_set(err, -EBADF, "--hold-fd %s is not open", fd) : 0;
}

/* Options for engines. 0, or -Exxx: unknown or invalid. */
static int set_engine_option(struct settings *s, int option, const char *value, struct hy_err *err)
{
    switch (option) {
    case 'i':
        s->identity = value;
        return 0;
    case 'f':
        return hold(s, value, err);
    case 'o':
        return hy_parse_u64(value, &s->open_files) < 0
                   ? hy_err_set(err, -EINVAL, "--open-files takes a number, not '%s'", value)
                   : 0;
    case 'p': /* of this machine, for functions */
        s->python = value;
        return 0;
    case 'c':
        return parse_container(s, value) < 0
                   ? hy_err_set(err, -EINVAL, "--container takes PID:BYTES:BYTES, not '%s'", value)
                   : 0;
    case 'd': /* a directory for the files of trials, if the project is not shared */
        s->work = value;
        return 0;
    case 'e': /* standard input: its end means that the process that started us is gone */
        s->until_eof = true;
        return 0;
    case 'w':
        s->own_environment = true;
        return 0;
    case 'l': /* to end with, once it is detached: hy_agent_detach */
        return hy_parse_u64(value, &s->companion) < 0 || s->companion == 0 || s->companion > INT_MAX
                   ? hy_err_set(err, -EINVAL, "--companion takes a process, not '%s'", value)
                   : 0;
    default:
        return hy_err_set(err, -EINVAL, "see `hopyard agent --help`");
    }
}

/* 1: --help was printed. */
static int set(struct settings *s, int option, const char *value, struct hy_err *err)
{
    switch (option) {
    case 'j':
        return parse_join(s, value, err);
    case 'k':
        s->key_file = value;
        return 0;
    case 's':
        return parse_slots(s, value, err);
    case 'n':
        s->name = value;
        return strlen(value) <= HY_NAME_LIMIT
                   ? 0
                   : hy_err_set(err, -EINVAL, "--name takes at most %u bytes", HY_NAME_LIMIT);
    case 'h':
        fputs(usage, stdout);
        return 1;
    default:
        return set_engine_option(s, option, value, err);
    }
}

static int parse_settings(struct settings *s, int argc, char **argv, struct hy_err *err)
{
    static const struct option options[] = {{"join", required_argument, NULL, 'j'},
                                            {"key-file", required_argument, NULL, 'k'},
                                            {"slots", required_argument, NULL, 's'},
                                            {"name", required_argument, NULL, 'n'},
                                            {"help", no_argument, NULL, 'h'},
                                            {"identity", required_argument, NULL, 'i'},
                                            {"hold-fd", required_argument, NULL, 'f'},
                                            {"open-files", required_argument, NULL, 'o'},
                                            {"python", required_argument, NULL, 'p'},
                                            {"container", required_argument, NULL, 'c'},
                                            {"until-eof", no_argument, NULL, 'e'},
                                            {"own-environment", no_argument, NULL, 'w'},
                                            {"work", required_argument, NULL, 'd'},
                                            {"companion", required_argument, NULL, 'l'},
                                            {0}};
    int option, rc;

    while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
        rc = set(s, option, optarg, err);
        if (rc != 0)
            return rc;
    }
    if (!s->port || !s->key_file)
        return hy_err_set(err, -EINVAL,
                          "an agent needs --join HOST:PORT and --key-file FILE; see `hopyard agent --help`");
    return 0;
}

/* An agent that an engine started has its own key; one that joins with the run's key
 * file chooses a random identity and derives its key from both. */
static int prove_identity(struct settings *s, struct hy_err *err)
{
    uint8_t joint[HY_KEY_SIZE], nonce[HY_KEY_SIZE];
    int rc = hy_key_read(s->key_file, s->identity ? s->key : joint, err);

    if (rc < 0 || s->identity)
        return rc;
    if (hy_key_random(nonce) < 0)
        return hy_err_set(err, -EIO, "cannot get random bytes");
    snprintf(s->made_identity, sizeof s->made_identity, "join-%02x%02x%02x%02x%02x%02x", nonce[0], nonce[1], nonce[2],
             nonce[3], nonce[4], nonce[5]);
    s->identity = s->made_identity;
    rc = hy_key_derive(joint, s->identity, s->key);
    explicit_bzero(joint, sizeof joint);
    return rc < 0 ? hy_err_set(err, rc, "cannot derive the agent's key") : 0;
}

static int serve(const struct settings *s, struct hy_err *err)
{
    char host[256] = "agent";
    struct agent a = {.next_stream = 1,
                      .slots = (uint32_t)s->slots,
                      .name = s->name,
                      .python = s->python,
                      .own_environment = s->own_environment,
                      .memory = s->container_spare,
                      .work = s->work,
                      .open_files = s->open_files,
                      .hold_fd = s->hold_fd,
                      .function.fd = -1,
                      .shared.fd = -1,
                      .companion_fd = -1};
    int rc;

    hy_list_init(&a.function.waiting);
    hy_list_init(&a.deferred);
    gethostname(host, sizeof host - 1);
    if (!a.name)
        a.name = host;
    rc = open_loop(&a, s->unit, err);
    if (rc == 0 && s->until_eof)
        rc = watch_input(&a, err);
    if (rc == 0 && s->companion)
        rc = watch_companion(&a, (pid_t)s->companion, err);
    if (rc == 0 && s->container_limit)
        hy_supervisor_set_container(a.supervisor, (pid_t)s->container_root, s->container_limit);
    if (rc == 0)
        rc = hy_net_dial(a.net, s->host, s->port, s->identity, s->key, &a.peer, err);
    if (rc == 0) {
        uv_run(&a.loop, UV_RUN_DEFAULT);
        rc = a.exit_status;
    }
    close_loop(&a);
    return rc;
}

/* Each trial needs a few descriptors here, but starts with the user's limit: a driver
 * has raised its own limit and passes the original. */
static void raise_file_limit(struct settings *s)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return;
    if (!s->open_files)
        s->open_files = files.rlim_cur;
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) < 0)
        hy_warn("cannot raise the limit of open files error=%s", strerror(errno));
}

int hy_agent_main(int argc, char **argv)
{
    struct settings s = {.slots = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN), .hold_fd = -1};
    struct hy_err err = {0};
    int rc;

    hy_log_init("agent");
    if (argc > 1 && strcmp(argv[1], "--list-gpus") == 0)
        return hy_gpus_list_main();
    if (argc == 5 && strcmp(argv[1], "--mirror") == 0)
        return hy_agent_mirror_main(argv[2], argv[3], argv[4]);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file over its size limit is an error of that file */
    signal(SIGHUP, SIG_IGN); /* a broken ssh does not end us: the lease does */
    rc = parse_settings(&s, argc, argv, &err);
    if (rc == 0)
        rc = prove_identity(&s, &err);
    if (rc != 0) {
        if (rc < 0)
            fprintf(stderr, "hopyard agent: %s\n", err.text);
        return rc < 0 ? 2 : 0;
    }
    raise_file_limit(&s);
    snprintf(s.unit, sizeof s.unit, "agent-%d", (int)getpid());
    rc = hy_reaper_fork(s.unit, s.hold_fd);
    if (rc < 0) {
        fprintf(stderr, "hopyard agent: cannot start: %s\n", strerror(-rc));
        return 1;
    }
    prctl(PR_SET_NAME, "hopyard-agent");
    rc = serve(&s, &err);
    explicit_bzero(s.key, sizeof s.key);
    if (rc < 0)
        hy_error("%s", err.text);
    hy_log_flush();
    return rc == 0 ? 0 : 1;
}
