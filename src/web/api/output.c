/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The output of a trial: all of it, a part of it, or as it grows; and a search in it, since a page that shows the end
 * of a gigabyte cannot search for the first error itself.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/list.h"
#include "base/mem.h"
#include "base/text.h"
#include "view/view.h"
#include "web/api/api.h"
#include "web/api/util.h"
#include "web/server.h"

/* ---- files ------------------------------------------------------------------------------------------ */

static int open_regular(const char *directory, const char *path)
{
    hy_cleanup_close int top = HY_SYS(open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC));
    hy_cleanup_close int fd = -1;
    struct stat st;

    if (top < 0)
        return -errno;
    fd = hy_open_below(top, path, O_RDONLY | O_NONBLOCK | O_NOCTTY); /* an imported run: untrusted path */
    if (fd < 0)
        return fd;
    if (HY_SYS(fstat(fd, &st)) < 0)
        return -errno;
    return S_ISREG(st.st_mode) ? hy_take_fd(fd) : -EPERM;
}

/* A trial that has printed nothing has a directory, unless it was removed. */
static bool has_directory(const char *logdir, const char *dir)
{
    hy_cleanup_close int top = HY_SYS(open(logdir, O_PATH | O_DIRECTORY | O_CLOEXEC));
    hy_cleanup_close int fd = top < 0 ? -1 : hy_open_below(top, dir, O_PATH | O_DIRECTORY);

    return fd >= 0;
}

json_t *hy_api_output_sizes(const struct hy_run_info *r, const struct hy_found_trial *f)
{
    static const char *const names[] = {"stdout", "stderr"};
    json_t *sizes = json_object();

    for (size_t i = 0; i < HY_COUNT(names); i++) {
        hy_cleanup_free char *path = hy_asprintf("%s/%s", f->dir, names[i]);
        hy_cleanup_close int fd = path && r->row.logdir ? open_regular(r->row.logdir, path) : -ENOENT;
        struct stat st = {0};

        if (fd >= 0 && HY_SYS(fstat(fd, &st)) < 0)
            st.st_size = 0; /* as a file that cannot be opened: the request for it has the error */
        if (!path || hy_json_set(sizes, names[i], json_integer(st.st_size)) < 0) {
            json_decref(sizes);
            return NULL;
        }
    }
    return sizes;
}

/* ---- GET /runs/RUN/trials/TRIAL/output/stdout --------------------------------------------------------- */

#define CHUNK (256u << 10)
#define FOLLOW_MS 250

/* Bytes of a file from an offset on: up to an end, or with `follow` until the trial is over. */
struct output {
    struct hy_reply_source source;
    struct hy_web *web;
    const struct hy_project *project;
    int fd; /* -1: the trial has printed nothing yet */
    char *logdir, *path;
    uint64_t offset, end;
    int64_t run, trial;
    bool follow;
};

static int is_over(void *arg, const struct hy_trial_row *row)
{
    *(bool *)arg = hy_trial_is_over(row->state);
    return 0;
}

/* Whether the trial writes nothing more; its state is committed when its output is complete. */
static bool trial_is_over(const struct output *o)
{
    hy_cleanup_store_use struct hy_store_use u = {.web = o->web, .project = o->project};
    bool over = false;
    int rc = hy_web_store(o->web, o->project, &u.store, NULL);

    if (rc == 0)
        rc = hy_store_trial_each(u.store, o->run, o->trial, HY_TRIALS_BY_NUMBER, 0, 0, is_over, &over, NULL);
    return over || rc == -ENOENT;
}

static int read_output(struct hy_reply_source *s, struct hy_buf *out)
{
    struct output *o = hy_container(s, struct output, source);
    bool over = !o->follow || trial_is_over(o); /* before the read, which then gets the rest */
    size_t wanted;
    uint8_t *room;
    ssize_t n;

    if (o->fd < 0)
        o->fd = open_regular(o->logdir, o->path);
    if (o->fd == -ENOENT)
        return over ? 0 : -EAGAIN;
    if (o->fd < 0)
        return o->fd;
    if (!o->follow && o->offset >= o->end)
        return 0;
    wanted = o->follow || o->end - o->offset > CHUNK ? CHUNK : (size_t)(o->end - o->offset);
    room = hy_buf_reserve(out, wanted);
    n = room ? HY_SYS(pread(o->fd, room, wanted, (off_t)o->offset)) : (errno = ENOMEM, -1);
    if (n < 0)
        return -errno;
    hy_buf_added(out, (size_t)n);
    o->offset += (uint64_t)n;
    if (n > 0)
        return 1;
    if (!o->follow)
        return -EIO; /* it was truncated: the client sees that bytes are missing */
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

/* Which part of the file is sent without `follow`: at most `limit` of its current bytes. */
static void set_end(struct output *o, uint64_t limit)
{
    struct stat st;

    o->end = o->offset;
    if (o->fd >= 0 && HY_SYS(fstat(o->fd, &st)) == 0 && (uint64_t)st.st_size > o->offset)
        o->end = limit < (uint64_t)st.st_size - o->offset ? o->offset + limit : (uint64_t)st.st_size;
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
    o->source = (struct hy_reply_source){.read = read_output,
                                         .close = close_output,
                                         .size = o->follow ? -1 : (int64_t)(o->end - o->offset),
                                         .wait_ms = FOLLOW_MS};
    x->source = &o->source; /* from here on the exchange closes it */
    hy_reply_bytes(x, 200, "text/plain; charset=utf-8", "", 0);
}

void hy_api_output(struct hy_exchange *x)
{
    hy_cleanup_store_use struct hy_store_use u = {0};
    hy_cleanup_run_info struct hy_run_info r = {0};
    uint64_t offset = 0, limit = INT64_MAX;
    struct output o;
    struct hy_found_trial f;

    if (!is_stream(x->segments[2])) {
        hy_reply_error(x, 404, "the output of a trial is stdout or stderr, not '%s'", x->segments[2]);
        return;
    }
    if (hy_api_number(x, "offset", INT64_MAX, &offset) < 0 || hy_api_number(x, "limit", INT64_MAX, &limit) < 0 ||
        hy_api_find_run(x, &u, &r) < 0 || hy_api_find_trial(x, u.store, &r, &f) < 0)
        return;
    o = (struct output){.web = x->web,
                        .project = u.project,
                        .logdir = hy_strdup(r.row.logdir ? r.row.logdir : ""),
                        .path = hy_asprintf("%s/%s", f.dir, x->segments[2]),
                        .offset = offset,
                        .run = r.row.id,
                        .trial = f.number,
                        .follow = hy_api_flag(x, "follow") && !f.is_over};
    o.fd = o.logdir && o.path ? open_regular(o.logdir, o.path) : -ENOMEM;
    set_end(&o, limit);
    if (o.fd >= 0 || (o.fd == -ENOENT && (!f.is_over || has_directory(o.logdir, f.dir)))) /* or it printed nothing */
        reply_output(x, &o);
    else
        hy_reply_error(x, o.fd == -ENOENT ? 404 : 403, "cannot open '%s' in '%s': %s", o.path ? o.path : "",
                       o.logdir ? o.logdir : "", strerror(-o.fd));
    if (!x->source)
        output_done(&o);
    hy_found_trial_done(&f);
}

/* ---- GET /runs/RUN/trials/TRIAL/output/stdout/search -------------------------------------------------------- */

#define SEARCH_CHUNK (1u << 20)
#define SEARCH_MAX (256u << 20) /* bytes of one request: about 0.2 s */
#define WORD_MAX 1000

struct word {
    const char *text;
    bool is_whole;     /* no letter, digit or '_' precedes it: not "mean_absolute_error:" */
    bool may_be_metric; /* "Validation error: 0.2" is not a failure */
};

/* What common training programs print first when they fail. */
static const struct word failures[] = {
    {"Traceback (most", false, false},
    {"Error:", false, true},
    {"error:", true, true},
    {"ERROR:", true, true},
    {"ERROR ", true, true},
    {"Exception:", false, false},
    {"fatal:", true, false},
    {"FATAL", true, false},
    {"Segmentation fault", false, false},
    {"[fatal]", false, false},
    {"[error]", false, false},
    {"[ERROR]", false, false},
};

struct search {
    int fd;
    const struct word *words;
    size_t word_count;
    size_t longest;
    uint64_t size;
    bool backward, ignores_case; /* then the words are in lower case */
};

/* A part of the output that was read. */
struct chunk {
    const char *bytes;
    size_t n;
    char before; /* the byte that precedes it; a newline at the beginning of the output */
};

static void lower(char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        bytes[i] = (char)tolower((unsigned char)bytes[i]);
}

/* Whether a value follows, and nothing but the next value or the end of the line: " 0.41 - val_loss: 3" */
static bool precedes_value(const char *at, const char *end)
{
    const char *value;

    while (at < end && (*at == ' ' || *at == '='))
        at++;
    for (value = at; at < end && *at && strchr("0123456789.+-eE%", *at); at++)
        ;
    while (at < end && *at == ' ')
        at++;
    return at > value && (at == end || !*at || strchr("\r\n,;|)]-", *at));
}

static bool is_match(const struct chunk *c, const struct word *w, const char *at)
{
    const char before = at > c->bytes ? at[-1] : c->before;

    if (w->is_whole && (isalnum((unsigned char)before) || before == '_'))
        return false;
    return !w->may_be_metric || !precedes_value(at + strlen(w->text), c->bytes + c->n);
}

/* The first match, or the last one, that starts in the first `step` bytes; NULL: none. */
static const char *find_word(const struct chunk *c, const struct word *w, size_t step, bool is_last)
{
    const size_t len = strlen(w->text), end = step + len - 1 < c->n ? step + len - 1 : c->n;
    const char *found = NULL;

    for (const char *at = c->bytes; (at = memmem(at, end - (size_t)(at - c->bytes), w->text, len)); at++) {
        if (!is_match(c, w, at))
            continue;
        found = at;
        if (!is_last)
            break;
    }
    return found;
}

/* The offset of the first (or last) word that starts in the first `step` bytes; -1: none. */
static int64_t find_in_chunk(const struct search *s, const struct chunk *c, size_t step)
{
    const char *best = NULL;

    for (size_t i = 0; i < s->word_count; i++) {
        const char *found = find_word(c, &s->words[i], step, s->backward);

        if (found && (!best || (s->backward ? found > best : found < best)))
            best = found;
    }
    return best ? best - c->bytes : -1;
}

/* Reads up to `n` bytes behind the byte that precedes them, and returns how many there are, or -Exxx. */
static ssize_t read_chunk(const struct search *s, char *room, size_t n, uint64_t start, struct chunk *ret)
{
    const size_t extra = start > 0;
    ssize_t got = HY_SYS(pread(s->fd, room, n + extra, (off_t)(start - extra)));

    if (got < 0)
        return -errno;
    if (s->ignores_case)
        lower(room, (size_t)got);
    *ret = (struct chunk){
        .bytes = room + extra, .n = (size_t)got > extra ? (size_t)got - extra : 0, .before = extra ? room[0] : '\n'};
    return (ssize_t)ret->n;
}

/*
 * Searches from `*at` on, or before it. 1: `*at` is the offset of the word; 0: it is where another request continues,
 * or the end of the file (or its beginning).
 */
static int search(const struct search *s, uint64_t *at)
{
    hy_cleanup_free char *room = hy_malloc(1 + SEARCH_CHUNK + WORD_MAX);
    size_t overlap = s->longest - 1; /* a word may be on the border of two chunks */

    if (!room)
        return -ENOMEM;
    for (uint64_t searched = 0; searched < SEARCH_MAX; searched += SEARCH_CHUNK) {
        uint64_t start = s->backward ? (*at > SEARCH_CHUNK ? *at - SEARCH_CHUNK : 0) : *at;
        uint64_t step = s->backward ? *at - start : SEARCH_CHUNK;
        struct chunk chunk = {.bytes = room, .before = '\n'};
        ssize_t n = step ? read_chunk(s, room, (size_t)step + overlap, start, &chunk) : 0;
        int64_t found;

        if (n < 0)
            return (int)n;
        found = find_in_chunk(s, &chunk, (size_t)step);
        if (found >= 0) {
            *at = start + (uint64_t)found;
            return 1;
        }
        *at = s->backward ? start : start + ((uint64_t)n < step ? (uint64_t)n : step);
        if (s->backward ? start == 0 : (uint64_t)n < step)
            return 0;
    }
    return 0;
}

/* {"found": 1234 or null, "next": 5678 or null}: null when the search is complete */
static void reply_search(struct hy_exchange *x, const struct search *s, uint64_t at)
{
    int rc = search(s, &at);
    bool is_complete = s->backward ? at == 0 : at >= s->size;

    if (rc < 0) {
        hy_reply_error(x, 500, "cannot search in the output: %s", strerror(-rc));
        return;
    }
    hy_reply_json(x, json_pack("{s:o,s:o}", "found", rc ? json_integer((json_int_t)at) : json_null(), "next",
                               rc || is_complete ? json_null() : json_integer((json_int_t)at)));
}

/* A descriptor; otherwise -Exxx, and the reply is set. */
static int open_output(struct hy_exchange *x)
{
    hy_cleanup_store_use struct hy_store_use u = {0};
    hy_cleanup_run_info struct hy_run_info r = {0};
    hy_cleanup_free char *path = NULL;
    struct hy_found_trial f;
    int fd;

    if (!is_stream(x->segments[2])) {
        hy_reply_error(x, 404, "the output of a trial is stdout or stderr, not '%s'", x->segments[2]);
        return -ENOENT;
    }
    if (hy_api_find_run(x, &u, &r) < 0 || hy_api_find_trial(x, u.store, &r, &f) < 0)
        return -ENOENT;
    path = hy_asprintf("%s/%s", f.dir, x->segments[2]);
    fd = !path ? -ENOMEM : r.row.logdir ? open_regular(r.row.logdir, path) : -ENOENT;
    if (fd == -ENOENT) /* it has printed nothing */
        hy_reply_json(x, json_pack("{s:n,s:n}", "found", "next"));
    else if (fd == -ENOMEM)
        hy_reply_error(x, 503, "out of memory");
    else if (fd < 0)
        hy_reply_error(x, 403, "cannot open '%s' in '%s': %s", path, r.row.logdir, strerror(-fd));
    hy_found_trial_done(&f);
    return fd;
}

void hy_api_output_search(struct hy_exchange *x)
{
    hy_cleanup_free char *text = hy_http_parameter(x->request.query, "text");
    const struct word own = {.text = text};
    bool is_failure = !text;
    struct search s = {.words = is_failure ? failures : &own,
                       .word_count = is_failure ? HY_COUNT(failures) : 1,
                       .backward = hy_api_flag(x, "backward"),
                       .ignores_case = !is_failure};
    hy_cleanup_close int fd = -1;
    uint64_t offset = 0;
    struct stat st;

    if (text && (!*text || strlen(text) > WORD_MAX)) {
        hy_reply_error(x, 400, "'text' must have 1 to %d bytes", WORD_MAX);
        return;
    }
    if (hy_api_number(x, "offset", INT64_MAX, &offset) < 0 || (fd = open_output(x)) < 0)
        return;
    if (HY_SYS(fstat(fd, &st)) < 0) {
        hy_reply_error(x, 500, "cannot read the size of %s: %s", x->segments[2], strerror(errno));
        return;
    }
    if (text)
        lower(text, strlen(text));
    for (size_t i = 0; i < s.word_count; i++)
        s.longest = strlen(s.words[i].text) > s.longest ? strlen(s.words[i].text) : s.longest;
    s.fd = fd;
    s.size = (uint64_t)st.st_size;
    reply_search(x, &s, s.backward && offset > s.size ? s.size : offset);
}
