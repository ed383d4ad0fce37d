/* SPDX-License-Identifier: Apache-2.0 */
/* One trial: its attempts, reported values, and output. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/json.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/text.h"
#include "view/view.h"
#include "web/api.h"
#include "web/api_util.h"
#include "web/server.h"

/* ---- the trial ------------------------------------------------------------------------------- */

struct found {
    const char *metric;
    json_t *json;
    char *dir;
    bool is_over;
};

static int take_trial(void *arg, const struct hy_trial_row *row)
{
    struct found *f = arg;
    Hy__TrialView view;

    hy_trial_view(row, &view);
    f->is_over = row->state != HY_TRIAL_RUNNING;
    f->dir = hy_strdup(row->dir);
    f->json = hy_json_trial(&view, f->metric);
    return f->dir && f->json ? 0 : -ENOMEM;
}

static void found_done(struct found *f)
{
    json_decref(f->json);
    free(f->dir);
}

/* The trial that the path names in its second open segment; otherwise -Exxx, and the reply is set. */
static int find_trial(struct hy_exchange *x, struct hy_store *s, const struct hy_run_info *r, struct found *ret,
                      int64_t *ret_number)
{
    struct hy_err err = {0};
    uint64_t number;
    int rc;

    if (hy_parse_u64(x->segments[1], &number) < 0 || number == 0 || number > INT64_MAX) {
        hy_reply_error(x, 404, "'%s' is not the number of a trial", x->segments[1]);
        return -ENOENT;
    }
    *ret = (struct found){.metric = r->row.metric};
    rc = hy_store_trial_each(s, r->row.id, (int64_t)number, HY_TRIALS_BY_NUMBER, 0, 0, take_trial, ret, &err);
    if (rc < 0) {
        found_done(ret);
        if (!err.code)
            hy_err_oom(&err);
        hy_reply_failure(x, &err);
        return rc;
    }
    *ret_number = (int64_t)number;
    return 0;
}

/* ---- GET /runs/RUN/trials/TRIAL ---------------------------------------------------------------- */

static int add_attempt(void *arg, const struct hy_attempt_row *a)
{
    json_t *o = json_object();
    int rc = 0;

    rc |= hy_json_set(o, "attempt", json_integer(a->number));
    rc |= hy_json_set(o, "state", hy_json_text(hy_attempt_state_name(a->state)));
    rc |= hy_json_set(o, "agent", hy_json_text(a->agent));
    rc |= hy_json_set(o, "host", hy_json_text(a->host));
    rc |= hy_json_set(o, "exit_code", json_integer(a->exit_code));
    rc |= hy_json_set(o, "message", hy_json_text(a->message));
    rc |= hy_json_set(o, "detail", hy_json_text(a->detail));
    rc |= hy_json_set(o, "started", json_integer(a->started));
    rc |= hy_json_set(o, "ended", json_integer(a->ended));
    rc |= hy_json_set(o, "cpu_ms", json_integer(a->cpu_ms));
    rc |= hy_json_set(o, "peak_memory", json_integer(a->peak_memory));
    if (rc < 0) {
        json_decref(o);
        return -ENOMEM;
    }
    return hy_json_append(arg, o);
}

/* {"accuracy": {"step": […], "value": […], "time": […]}, …}, of all attempts in order */
static int add_metric(void *arg, const struct hy_metric_row *m)
{
    json_t *all = arg, *one = json_object_get(all, m->name);

    if (!one) {
        one = json_pack("{s:[],s:[],s:[],s:[]}", "attempt", "step", "value", "time");
        if (!one || json_object_set_new(all, m->name, one) < 0)
            return -ENOMEM;
    }
    if (hy_json_append(json_object_get(one, "attempt"), json_integer(m->attempt)) < 0 ||
        hy_json_append(json_object_get(one, "step"), m->step >= 0 ? json_integer(m->step) : json_null()) < 0 ||
        hy_json_append(json_object_get(one, "value"), hy_json_number(m->value)) < 0 ||
        hy_json_append(json_object_get(one, "time"), json_integer(m->time)) < 0)
        return -ENOMEM;
    return 0;
}

static int add_details(struct hy_store *s, int64_t run, int64_t number, json_t *trial, struct hy_err *err)
{
    json_t *attempts = json_array(), *metrics = json_object();
    int rc = json_object_set_new(trial, "attempts", attempts) | json_object_set_new(trial, "metrics", metrics);

    rc = rc < 0 ? hy_err_oom(err) : hy_store_attempt_each(s, run, number, add_attempt, attempts, err);
    if (rc == 0)
        rc = hy_store_metric_each(s, run, number, add_metric, metrics, err);
    return rc < 0 && !err->code ? hy_err_oom(err) : rc;
}

void hy_api_trial(struct hy_exchange *x)
{
    hy_cleanup_store_use struct hy_store_use u = {.web = x->web};
    hy_cleanup_run_info struct hy_run_info r = {0};
    struct hy_err err = {0};
    struct found f;
    int64_t number;

    if (hy_api_find_run(x, &u, &r) < 0 || find_trial(x, u.store, &r, &f, &number) < 0)
        return;
    if (add_details(u.store, r.row.id, number, f.json, &err) < 0)
        hy_reply_failure(x, &err);
    else
        hy_reply_json(x, json_incref(f.json));
    found_done(&f);
}

/* ---- GET /runs/RUN/trials/TRIAL/output/stdout ------------------------------------------------------ */

#define CHUNK (256u << 10)
#define FOLLOW_MS 250

/* Opens a file by its path below a directory, component by component: no link is followed, wherever it is. */
static int open_below(const char *directory, const char *path)
{
    hy_cleanup_close int fd = HY_SYS(open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC));
    hy_cleanup_free char *copy = hy_strdup(path);
    char *rest = copy, *name;

    if (!copy)
        return -ENOMEM;
    while (fd >= 0 && (name = strsep(&rest, "/"))) {
        int flags = O_NOFOLLOW | O_CLOEXEC | (rest ? O_PATH | O_DIRECTORY : O_RDONLY | O_NONBLOCK | O_NOCTTY);
        int next;

        if (strcmp(name, "..") == 0) /* of a run that was imported: its texts are not ours */
            return -EPERM;
        next = *name ? HY_SYS(openat(fd, name, flags)) : hy_take_fd(fd);
        if (next < 0)
            return -errno;
        hy_close_at(&fd);
        fd = next;
    }
    return fd < 0 ? -errno : hy_take_fd(fd);
}

static int open_regular(const char *directory, const char *path)
{
    hy_cleanup_close int fd = open_below(directory, path);
    struct stat st;

    if (fd < 0)
        return fd;
    if (HY_SYS(fstat(fd, &st)) < 0)
        return -errno;
    return S_ISREG(st.st_mode) ? hy_take_fd(fd) : -EPERM;
}

/* Bytes of a file from an offset on; with `follow` until the trial is over. */
struct output {
    struct hy_reply_source source;
    struct hy_web *web;
    int fd; /* -1: the trial has printed nothing yet */
    char *logdir, *path;
    uint64_t offset;
    int64_t run, trial;
    bool follow;
};

static int is_over(void *arg, const struct hy_trial_row *row)
{
    *(bool *)arg = row->state != HY_TRIAL_RUNNING;
    return 0;
}

/* Whether the trial writes nothing more; its state is committed when its output is complete. */
static bool trial_is_over(const struct output *o)
{
    hy_cleanup_store_use struct hy_store_use u = {.web = o->web};
    bool over = false;
    int rc = hy_web_store(o->web, &u.store, NULL);

    if (rc == 0)
        rc = hy_store_trial_each(u.store, o->run, o->trial, HY_TRIALS_BY_NUMBER, 0, 0, is_over, &over, NULL);
    return over || rc == -ENOENT;
}

static int read_output(struct hy_reply_source *s, struct hy_buf *out)
{
    struct output *o = hy_container(s, struct output, source);
    bool over = !o->follow || trial_is_over(o); /* before the read, which then gets the rest */
    uint8_t *room;
    ssize_t n;

    if (o->fd < 0)
        o->fd = open_regular(o->logdir, o->path);
    if (o->fd == -ENOENT)
        return over ? 0 : -EAGAIN;
    if (o->fd < 0)
        return o->fd;
    room = hy_buf_reserve(out, CHUNK);
    n = room ? HY_SYS(pread(o->fd, room, CHUNK, (off_t)o->offset)) : (errno = ENOMEM, -1);

    if (n < 0)
        return -errno;
    hy_buf_added(out, (size_t)n);
    o->offset += (uint64_t)n;
    if (n > 0)
        return 1;
    return over ? 0 : -EAGAIN;
}

static void output_done(struct output *o)
{
    hy_close_at(&o->fd);
    free(o->logdir);
    free(o->path);
}

static void close_output(struct hy_reply_source *s)
{
    struct output *o = hy_container(s, struct output, source);

    output_done(o);
    free(o);
}

static bool is_stream(const char *name)
{
    return strcmp(name, "stdout") == 0 || strcmp(name, "stderr") == 0;
}

/* Sets the reply; the caller keeps what `what` points to if that fails. */
static void reply_output(struct hy_exchange *x, const struct output *what)
{
    struct output *o = hy_calloc(1, sizeof *o);

    if (!o) {
        hy_reply_error(x, 503, "out of memory");
        return;
    }
    *o = *what;
    o->source = (struct hy_reply_source){.read = read_output, .close = close_output, .size = -1, .wait_ms = FOLLOW_MS};
    x->source = &o->source; /* from here on the exchange closes it */
    hy_reply_bytes(x, 200, "text/plain; charset=utf-8", "", 0);
}

void hy_api_output(struct hy_exchange *x)
{
    hy_cleanup_store_use struct hy_store_use u = {.web = x->web};
    hy_cleanup_run_info struct hy_run_info r = {0};
    hy_cleanup_free char *follow = hy_http_parameter(x->request.query, "follow");
    uint64_t offset = 0;
    struct output o;
    struct found f;
    int64_t number;

    if (!is_stream(x->segments[2])) {
        hy_reply_error(x, 404, "the output of a trial is stdout or stderr, not '%s'", x->segments[2]);
        return;
    }
    if (hy_api_number(x, "offset", INT64_MAX, &offset) < 0 || hy_api_find_run(x, &u, &r) < 0 ||
        find_trial(x, u.store, &r, &f, &number) < 0)
        return;
    o = (struct output){.web = x->web,
                        .logdir = hy_strdup(r.row.logdir ? r.row.logdir : ""),
                        .path = hy_asprintf("%s/%s", f.dir, x->segments[2]),
                        .offset = offset,
                        .run = r.row.id,
                        .trial = number,
                        .follow = follow && !f.is_over};
    o.fd = o.logdir && o.path ? open_regular(o.logdir, o.path) : -ENOMEM;
    if (o.fd >= 0 || (o.fd == -ENOENT && !f.is_over)) /* or it has printed nothing yet */
        reply_output(x, &o);
    else
        hy_reply_error(x, o.fd == -ENOENT ? 404 : 403, "cannot open '%s' in '%s': %s", o.path ? o.path : "",
                       o.logdir ? o.logdir : "", strerror(-o.fd));
    if (!x->source)
        output_done(&o);
    found_done(&f);
}
