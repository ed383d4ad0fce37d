/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/group/timeline.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/text.h"

#define BUFFER_MAX (1u << 20)
#define NAME_MAX_SHOWN 200
#define TAIL "\n]\n"

struct hy_timeline {
    int fd;
    char *path;
    unsigned rank;
    bool mark_cycles;
    struct hy_buf text;
    struct hy_map lanes; /* hash of a name -> lane */
    uintptr_t lane_count;
    off_t end;           /* end of the last event: the offset of TAIL and of the next event */
    int failed;          /* -Exxx: writing has stopped */
};

int64_t hy_timeline_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t); /* so that the traces of several ranks can be merged */
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* A single write for the events and the tail, so that readers see both. */
static void flush(struct hy_timeline *t)
{
    size_t n = t->text.len;

    if (!t->failed)
        t->failed = hy_buf_append(&t->text, TAIL, strlen(TAIL));
    if (!t->failed && HY_SYS(lseek(t->fd, t->end, SEEK_SET)) < 0)
        t->failed = -errno;
    if (!t->failed)
        t->failed = hy_write_all(t->fd, hy_buf_bytes(&t->text), t->text.len);
    hy_buf_clear(&t->text);
    t->end += (off_t)n;
}

/* Escapes a name for JSON. */
static void escape(const char *name, char *text, size_t size)
{
    size_t at = 0;

    for (; *name && at + 7 < size; name++) {
        unsigned char c = (unsigned char)*name;

        if (c == '"' || c == '\\')
            text[at++] = '\\';
        if (c < 0x20)
            at += (size_t)snprintf(text + at, size - at, "\\u%04x", c);
        else
            text[at++] = (char)c;
    }
    if (*name) /* truncated, but not within a UTF-8 character */
        while (at && (*name & 0xc0) == 0x80 && (text[--at] & 0xc0) == 0x80)
            ;
    text[at] = '\0';
}

/* Appends an event. */
static void put(struct hy_timeline *t, const char *fmt, ...) HY_PRINTF(2, 3);
static void put(struct hy_timeline *t, const char *fmt, ...)
{
    char line[1200];
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof line)
        return; /* not possible: names are truncated */
    if (!t->failed)
        t->failed = hy_buf_append(&t->text, t->end || t->text.len ? ",\n" : "[\n", 2);
    if (!t->failed)
        t->failed = hy_buf_append(&t->text, line, (size_t)n);
}

/* The lane of a tensor; a new one gets a name event. */
static uintptr_t lane_of(struct hy_timeline *t, const char *name)
{
    uint64_t key = hy_hash(name, strlen(name));
    uintptr_t lane = (uintptr_t)hy_map_get(&t->lanes, key);
    char text[NAME_MAX_SHOWN];

    if (lane)
        return lane;
    lane = ++t->lane_count;
    if (hy_map_put(&t->lanes, key, (void *)lane) < 0)
        t->failed = -ENOMEM;
    escape(name, text, sizeof text);
    put(t, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%u,\"tid\":%zu,\"args\":{\"name\":\"%s\"}}", t->rank,
        (size_t)lane, text);
    return lane;
}

static void upper(const char *kind, char *text, size_t size)
{
    size_t i = 0;

    for (; kind[i] && i + 1 < size; i++)
        text[i] = (char)(kind[i] >= 'a' && kind[i] <= 'z' ? kind[i] - 32 : kind[i]);
    text[i] = '\0';
}

void hy_timeline_request(struct hy_timeline *t, const char *name, const char *kind, uint64_t bytes, int64_t asked_us,
                         int64_t begun_us, int64_t over_us)
{
    uintptr_t lane = lane_of(t, name);
    char what[32];

    upper(kind, what, sizeof what);
    put(t, "{\"ph\":\"X\",\"name\":\"NEGOTIATE_%s\",\"pid\":%u,\"tid\":%zu,\"ts\":%" PRId64 ",\"dur\":%" PRId64 "}",
        what, t->rank, (size_t)lane, asked_us, begun_us - asked_us);
    put(t,
        "{\"ph\":\"X\",\"name\":\"%s\",\"pid\":%u,\"tid\":%zu,\"ts\":%" PRId64 ",\"dur\":%" PRId64
        ",\"args\":{\"bytes\":%" PRIu64 "}}",
        what, t->rank, (size_t)lane, begun_us, over_us - begun_us, bytes);
    flush(t);
}

void hy_timeline_cycle(struct hy_timeline *t)
{
    if (!t->mark_cycles)
        return;
    put(t, "{\"ph\":\"i\",\"name\":\"CYCLE_START\",\"pid\":%u,\"tid\":0,\"ts\":%" PRId64 ",\"s\":\"p\"}", t->rank,
        hy_timeline_now());
    flush(t);
}

/* "trace.json" -> "trace.rank-3.json" */
static char *path_of(const char *path, unsigned rank)
{
    const char *name = strrchr(path, '/'), *dot;

    if (rank == 0)
        return hy_strdup(path);
    dot = strrchr(name ? name : path, '.');
    if (!dot)
        dot = path + strlen(path);
    return hy_asprintf("%.*s.rank-%u%s", (int)(dot - path), path, rank, dot);
}

int hy_timeline_open(const char *path, unsigned rank, bool mark_cycles, struct hy_timeline **ret, struct hy_err *err)
{
    struct hy_timeline *t = hy_calloc(1, sizeof *t);
    int rc;

    if (!t)
        return hy_err_oom(err);
    t->rank = rank;
    t->mark_cycles = mark_cycles;
    hy_buf_init(&t->text, BUFFER_MAX);
    t->path = path_of(path, rank);
    t->fd = t->path ? HY_SYS(open(t->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) : -1;
    if (t->fd < 0) {
        rc = t->path ? hy_err_sys(err, -errno, "cannot write the timeline '%s'", t->path) : hy_err_oom(err);
        free(t->path);
        free(t);
        return rc;
    }
    put(t, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%u,\"args\":{\"name\":\"rank %u\"}}", rank, rank);
    flush(t);
    *ret = t;
    return 0;
}

int hy_timeline_close(struct hy_timeline *t, struct hy_err *err)
{
    int rc;

    if (!t)
        return 0;
    put(t, "{\"ph\":\"i\",\"name\":\"end\",\"pid\":%u,\"tid\":0,\"ts\":%" PRId64 ",\"s\":\"p\"}", t->rank,
        hy_timeline_now());
    flush(t);
    if (HY_SYS(close(t->fd)) < 0 && !t->failed)
        t->failed = -errno;
    rc = t->failed < 0 ? hy_err_sys(err, t->failed, "the timeline '%s' is incomplete", t->path) : 0;
    hy_buf_done(&t->text);
    hy_map_done(&t->lanes);
    free(t->path);
    free(t);
    return rc;
}
