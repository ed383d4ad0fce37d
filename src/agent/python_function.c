/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trials that are a Python function: receiving the function, and the fork server.
 *
 * The function is sent once, after the driver's Welcome, and kept in a memfd. The
 * first trial starts the server (supervise.h), and trials wait until it is ready. If
 * it refuses (an import has run an op or started threads) or keeps dying, each trial
 * starts a fresh interpreter with the same command.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent/trial.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"

#define SERVERS_MAX 3              /* servers that died in a row without a trial in between */
#define FORKS_MAX (SERVERS_MAX + 1) /* failed forks of one attempt */

/* ---- receiving the function ------------------------------------------------- */

int hy_agent_function_expect(struct agent *a, struct hy_err *err)
{
    const Hy__Welcome *w = a->welcomed->welcome;
    struct function *f = &a->function;

    if (!w->function_size)
        return 0;
    if (w->function_size > HY_FUNCTION_LIMIT)
        return hy_err_set(err, -EFBIG, "the function has %llu bytes", (unsigned long long)w->function_size);
    f->fd = HY_SYS(memfd_create("hopyard-function", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (f->fd < 0)
        return hy_err_sys(err, -errno, "cannot keep the function");
    f->stream = w->function_stream;
    f->left = w->function_size;
    return 1;
}

/* Trials open it by its descriptor number. It is sealed: they cannot change it. */
static int seal(int fd)
{
    int seals = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;

    return HY_SYS(fcntl(fd, F_ADD_SEALS, seals)) < 0 ? -errno : 0;
}

static int check_hash(const struct agent *a)
{
    const Hy__Welcome *w = a->welcomed->welcome;
    void *bytes = mmap(NULL, w->function_size, PROT_READ, MAP_PRIVATE, a->function.fd, 0);
    uint64_t hash;

    if (bytes == MAP_FAILED)
        return -errno;
    hash = hy_hash(bytes, w->function_size);
    munmap(bytes, w->function_size);
    return hash == w->function_hash ? 0 : -EBADMSG;
}

bool hy_agent_function_data(struct agent *a, uint32_t stream, const uint8_t *bytes, size_t n)
{
    struct function *f = &a->function;
    int rc;

    if (f->fd < 0 || stream != f->stream)
        return false;
    rc = n > f->left ? -EBADMSG : hy_write_all(f->fd, bytes, n);
    f->left -= rc == 0 ? n : 0;
    if (rc == 0 && f->left == 0)
        rc = seal(f->fd);
    if (rc == 0 && f->left == 0)
        rc = check_hash(a);
    if (rc < 0) {
        hy_error("the function did not arrive error=%s", strerror(-rc));
        hy_agent_end(a, 1, "the function did not arrive");
    } else if (f->left == 0) {
        hy_peer_forget(a->peer, stream);
        hy_agent_join(a);
    }
    return true;
}

/* ---- the server --------------------------------------------------------------- */

static struct trial *first_of(struct hy_list *waiting)
{
    return hy_list_empty(waiting) ? NULL : hy_container(waiting->next, struct trial, waiting);
}

/* Each once: they may have to wait again, for another server. */
static void start_waiting(struct agent *a)
{
    struct hy_list taken;
    struct trial *t;

    hy_list_init(&taken);
    while ((t = first_of(&a->function.waiting))) {
        hy_list_remove(&t->waiting);
        hy_list_push(&taken, &t->waiting);
    }
    while ((t = first_of(&taken))) {
        hy_list_remove(&t->waiting);
        hy_agent_trial_run(t);
    }
}

/* From now on each trial starts a fresh interpreter, which is slow: sends a note. The
 * server is not used again. */
static void go_cold(struct agent *a, const char *why)
{
    hy_warn("trials are not forked why=\"%s\"", why);
    a->function.cold = true;
    hy_agent_function_end(a);
    hy_agent_note(a, "%s", why);
}

static void on_ready(void *arg, struct hy_fork_server *w)
{
    struct agent *a = arg;

    (void)w;
    a->function.ready = true;
    start_waiting(a);
}

static void on_over(void *arg, struct hy_fork_server *w, int refused, const char *why)
{
    struct agent *a = arg;
    struct function *f = &a->function;

    (void)w;
    f->server = NULL;
    f->ready = false;
    if (a->ending)
        return;
    if (a->standby) {
        hy_agent_end(a, 0, "its fork server has ended");
        return;
    }
    hy_info("the fork server is over why=\"%s\"", why);
    if (!f->cold && (refused || ++f->failures >= SERVERS_MAX))
        go_cold(a, why);
    start_waiting(a); /* starts another one, if a trial waits */
}

/* Its command and environment are those of a trial, without variables of a single
 * trial. It has as long to import everything as a trial has. */
static int start_server(struct agent *a, int64_t timeout_ms, struct hy_err *err)
{
    static const struct hy_fork_server_events events = {on_ready, on_over};
    const Hy__Welcome *w = a->welcomed->welcome;
    hy_cleanup_free char **argv = hy_calloc(w->n_serve + 1, sizeof *argv);
    hy_cleanup_free char **env = hy_calloc(a->env_count + 2, sizeof *env);
    hy_cleanup_free char *path = hy_agent_function_env(a);
    char tag[HY_FORK_SERVER_TAG + 1];
    struct hy_process_spec spec = {.tag = tag,
                                   .argv = argv,
                                   .env = env,
                                   .open_files = a->open_files,
                                   .cwd = access(w->cwd, X_OK) == 0 ? w->cwd : "/"};
    int n = snprintf(tag, sizeof tag, "%lld.server", (long long)w->run);

    if (!argv || !env || !path)
        return hy_err_oom(err);
    memset(tag + n, '_', HY_FORK_SERVER_TAG - (size_t)n);
    tag[HY_FORK_SERVER_TAG] = '\0';
    memcpy(argv, w->serve, w->n_serve * sizeof *argv);
    if (a->python)
        argv[0] = (char *)a->python;
    memcpy(env, a->env, a->env_count * sizeof *env);
    env[a->env_count] = path;
    a->function.ready_by = timeout_ms > 0 ? uv_now(&a->loop) + (uint64_t)timeout_ms : 0;
    return hy_fork_server_start(a->supervisor, &spec, &events, a, &a->function.server, err);
}

/* ---- trials -------------------------------------------------------------------- */

char *hy_agent_function_env(const struct agent *a)
{
    return hy_asprintf("HOPYARD_FUNCTION=/proc/%d/fd/%d", (int)getpid(), a->function.fd);
}

bool hy_agent_function_is_cold(const struct agent *a)
{
    return a->function.fd < 0 || a->function.cold || a->welcomed->welcome->n_serve == 0;
}

struct hy_fork_server *hy_agent_function_server(struct trial *t)
{
    struct function *f = &t->agent->function;
    struct hy_err err = {0};

    if (f->ready && hy_fork_server_is_open(f->server))
        return f->server;
    if (!f->server && start_server(t->agent, t->start->start->timeout_ms, &err) < 0) {
        go_cold(t->agent, err.text);
        return NULL;
    }
    hy_list_push(&f->waiting, &t->waiting);
    return NULL;
}

/* Retries in a fresh interpreter or with the next server, a limited number of times. */
static bool may_be_run(struct trial *t, int code)
{
    return code == -ENOTSUP || ((code == -EAGAIN || code == -ETIMEDOUT) && ++t->forks < FORKS_MAX);
}

void hy_agent_function_not_started(struct trial *t, const struct hy_err *why)
{
    hy_debug("a trial was not forked trial=%llu why=\"%s\"", (unsigned long long)t->number, why->text);
    if (why->code == -ENOTSUP && !t->agent->function.cold)
        go_cold(t->agent, why->text);
    if (why->code == -ETIMEDOUT) /* another server may work */
        hy_agent_function_end(t->agent);
    if (!t->agent->ending && may_be_run(t, why->code))
        hy_agent_trial_run(t);
    else
        hy_agent_trial_fail(t, why);
}

void hy_agent_function_trial_ran(struct agent *a)
{
    a->function.failures = 0;
}

void hy_agent_function_tick(struct agent *a)
{
    const struct function *f = &a->function;

    if (f->server && !f->ready && !f->cold && f->ready_by && uv_now(&a->loop) > f->ready_by)
        go_cold(a, "the function's modules were not imported within a trial's time limit, "
                   "so each trial starts a fresh interpreter");
}

void hy_agent_function_end(struct agent *a)
{
    if (a->function.server)
        hy_fork_server_end(a->function.server);
}

void hy_agent_function_forget(struct agent *a)
{
    struct function *f = &a->function;

    hy_agent_function_done(a);
    f->stream = 0;
    f->left = f->ready_by = 0;
    f->failures = 0;
}

void hy_agent_function_done(struct agent *a)
{
    hy_close_at(&a->function.fd);
    a->function.fd = -1;
}
