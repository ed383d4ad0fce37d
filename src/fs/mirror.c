/* SPDX-License-Identifier: Apache-2.0 */
/* Mirrors a local directory to a URL, pass by pass. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/text.h"
#include "fs/fs.h"

#define BUFFER_SIZE (1u << 20)
#define QUIET_MS 3000 /* without a change for this long a file counts as complete */
#define OPEN_MAX 32u  /* remote files kept open for appending */
#define DEPTH_MAX 64
#define TAIL 64u

struct entry {
    char *path;              /* relative to the directory */
    struct hy_fs_file *open; /* only of a growing file */
    uint64_t sent;           /* only of a growing file */
    uint8_t tail[TAIL];      /* the last bytes sent, or all if there are fewer */
    uint64_t inode, size;
    int64_t modified_ns;
    int64_t used_ms;
    bool is_done; /* the mirror has this version */
};

struct hy_fs_mirror {
    char *directory, *url;
    bool (*is_skipped)(const char *path);
    struct hy_map entries; /* by the hash of the path, or the next free key */
    size_t open_count;
    char *buffer; /* BUFFER_SIZE bytes */
    bool is_last;
    uint64_t limit; /* bytes of all files; 0: none */
    uint64_t seen;  /* in this pass */
    int first_error; /* of this pass */
    struct hy_err *err;
};

struct hy_fs_mirror *hy_fs_mirror_new(const char *directory, const char *url, bool (*is_skipped)(const char *path))
{
    struct hy_fs_mirror *m = hy_calloc(1, sizeof(*m));

    if (!m)
        return NULL;
    m->directory = hy_strdup(directory);
    m->url = hy_strdup(url);
    m->buffer = hy_malloc(BUFFER_SIZE);
    m->is_skipped = is_skipped;
    if (m->directory && m->url && m->buffer)
        return m;
    hy_fs_mirror_free(m);
    return NULL;
}

void hy_fs_mirror_limit(struct hy_fs_mirror *m, uint64_t bytes)
{
    m->limit = bytes;
}

/* After an error the next pass sends the file again from the start. */
static void close_remote(struct hy_fs_mirror *m, struct entry *e)
{
    struct hy_err ignored;

    if (!e->open)
        return;
    m->open_count--;
    if (hy_fs_close(hy_take(e->open), &ignored) < 0)
        e->sent = 0;
}

void hy_fs_mirror_free(struct hy_fs_mirror *m)
{
    struct entry *e;

    if (!m)
        return;
    for (size_t i = 0; (e = hy_map_next(&m->entries, &i));) {
        close_remote(m, e);
        free(e->path);
        free(e);
    }
    hy_map_done(&m->entries);
    free(m->directory);
    free(m->url);
    free(m->buffer);
    free(m);
}

/* ---- state of a file ------------------------------------------------------- */

static struct entry *entry_of(struct hy_fs_mirror *m, const char *path)
{
    uint64_t key = hy_hash(path, strlen(path));
    struct entry *e;

    while ((e = hy_map_get(&m->entries, key)) && strcmp(e->path, path) != 0)
        key++;
    if (e)
        return e;
    e = hy_calloc(1, sizeof(*e));
    if (e)
        e->path = hy_strdup(path);
    if (e && e->path && hy_map_put(&m->entries, key, e) == 0)
        return e;
    if (e)
        free(e->path);
    free(e);
    return NULL;
}

static bool grows(const char *path)
{
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    const size_t n = strlen(name);

    return strstr(name, "tfevents") || (n > 4 && strcmp(name + n - 4, ".log") == 0) || strcmp(name, "stdout") == 0 ||
           strcmp(name, "stderr") == 0;
}

static int64_t modified_ns(const struct stat *st)
{
    return (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec;
}

/* ---- growing files --------------------------------------------------------------- */

static void close_oldest(struct hy_fs_mirror *m)
{
    struct entry *e, *oldest = NULL;

    for (size_t i = 0; (e = hy_map_next(&m->entries, &i));)
        if (e->open && (!oldest || e->used_ms < oldest->used_ms))
            oldest = e;
    if (oldest)
        close_remote(m, oldest);
}

static int open_remote(struct hy_fs_mirror *m, struct entry *e, struct hy_err *err)
{
    hy_cleanup_free char *url = hy_fs_join(m->url, e->path);
    int rc;

    if (!url)
        return hy_err_oom(err);
    if (m->open_count == OPEN_MAX)
        close_oldest(m);
    rc = hy_fs_open(url, e->sent ? HY_FS_APPEND : HY_FS_WRITE, &e->open, err);
    if (rc == 0)
        m->open_count++;
    return rc;
}

static size_t tail_length(const struct entry *e)
{
    return e->sent < TAIL ? (size_t)e->sent : TAIL;
}

/* Whether the bytes before the last sent offset are unchanged; if not, the file was rewritten. */
static bool is_unchanged(const struct entry *e, int fd)
{
    const size_t n = tail_length(e);
    uint8_t now[TAIL];

    return HY_SYS(pread(fd, now, n, (off_t)(e->sent - n))) == (ssize_t)n && memcmp(now, e->tail, n) == 0;
}

static void remember_tail(struct entry *e, const char *bytes, size_t n)
{
    const size_t old = n >= TAIL ? 0 : tail_length(e) < TAIL - n ? tail_length(e) : TAIL - n;

    memmove(e->tail, e->tail + tail_length(e) - old, old);
    if (n > TAIL - old) {
        bytes += n - (TAIL - old);
        n = TAIL - old;
    }
    memcpy(e->tail + old, bytes, n);
}

static int append_new_bytes(struct hy_fs_mirror *m, struct entry *e, int fd, uint64_t size, struct hy_err *err)
{
    while (e->sent < size) {
        const size_t want = size - e->sent < BUFFER_SIZE ? (size_t)(size - e->sent) : BUFFER_SIZE;
        ssize_t got = HY_SYS(pread(fd, m->buffer, want, (off_t)e->sent));
        int rc;

        if (got < 0)
            return hy_err_sys(err, -errno, "cannot read %s/%s", m->directory, e->path);
        if (got == 0)
            return 0; /* truncated meanwhile; the next pass detects it */
        rc = hy_fs_write(e->open, m->buffer, (size_t)got, err);
        if (rc < 0)
            return rc;
        remember_tail(e, m->buffer, (size_t)got);
        e->sent += (uint64_t)got;
    }
    return 0;
}

static int follow(struct hy_fs_mirror *m, struct entry *e, const struct stat *st, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_path_join(m->directory, e->path);
    hy_cleanup_close int fd = path ? HY_SYS(open(path, O_RDONLY | O_CLOEXEC)) : -1;
    int rc;

    if (fd < 0)
        return hy_err_sys(err, path ? -errno : -ENOMEM, "cannot read %s/%s", m->directory, e->path);
    if (!is_unchanged(e, fd)) {
        close_remote(m, e);
        e->sent = 0;
    }
    rc = e->open ? 0 : open_remote(m, e, err);
    if (rc == 0)
        rc = append_new_bytes(m, e, fd, (uint64_t)st->st_size, err);
    if (rc == 0)
        rc = hy_fs_flush(e->open, false, err);
    e->used_ms = hy_clock_ms();
    return rc;
}

/* Everything was sent. */
static int complete(struct hy_fs_mirror *m, struct entry *e, struct hy_err *err)
{
    if (!e->open)
        return 0;
    m->open_count--;
    return hy_fs_close(hy_take(e->open), err);
}

static int mirror_growing(struct hy_fs_mirror *m, struct entry *e, const struct stat *st, struct hy_err *err)
{
    int rc = 0;

    if (e->inode != st->st_ino || (uint64_t)st->st_size < e->sent) { /* another file of this name */
        close_remote(m, e);
        e->sent = 0;
        e->is_done = false;
        e->inode = st->st_ino;
    }
    if ((uint64_t)st->st_size > e->sent || (!e->is_done && m->is_last))
        rc = follow(m, e, st, err);
    if (rc == 0 && m->is_last)
        rc = complete(m, e, err);
    e->is_done = rc == 0 && (m->is_last || e->is_done);
    if (rc < 0) {
        close_remote(m, e);
        e->sent = 0;
    }
    return rc;
}

/* ---- other files -------------------------------------------------------------------- */

static int mirror_whole(struct hy_fs_mirror *m, struct entry *e, const struct stat *st, struct hy_err *err)
{
    const struct hy_fs_copy how = {.replace = true};
    hy_cleanup_free char *from = NULL, *to = NULL;
    int rc;

    if (e->is_done && e->inode == st->st_ino && e->size == (uint64_t)st->st_size && e->modified_ns == modified_ns(st))
        return 0;
    if (!m->is_last && hy_clock_wall_ms() - modified_ns(st) / 1000000 < QUIET_MS)
        return 0;
    from = hy_path_join(m->directory, e->path);
    to = hy_fs_join(m->url, e->path);
    if (!from || !to)
        return hy_err_oom(err);
    rc = hy_fs_copy(from, to, &how, err);
    e->is_done = rc == 0;
    e->inode = st->st_ino;
    e->size = (uint64_t)st->st_size;
    e->modified_ns = modified_ns(st);
    return rc;
}

static int mirror_directory(struct hy_fs_mirror *m, struct entry *e, struct hy_err *err)
{
    hy_cleanup_free char *url = hy_fs_join(m->url, e->path);
    int rc;

    if (e->is_done)
        return 0;
    rc = url ? hy_fs_mkdirs(url, 0777, err) : hy_err_oom(err);
    e->is_done = rc == 0;
    return rc;
}

/* ---- passes ----------------------------------------------------------------------- */

static int sync_directory(struct hy_fs_mirror *m, const char *path, int depth);

/* An error with one file does not stop the pass; an unreachable server does. */
static bool stops_pass(int rc)
{
    switch (-rc) {
    case EINTR:
    case ENOMEM:
    case ECONNREFUSED:
    case ECONNRESET:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ETIMEDOUT:
    case EHOSTDOWN:
        return true;
    default:
        return false;
    }
}

static int note_error(struct hy_fs_mirror *m, int rc, const struct hy_err *why)
{
    if (rc < 0 && m->first_error == 0) {
        m->first_error = rc;
        if (m->err)
            *m->err = *why;
    }
    return stops_pass(rc) ? rc : 0;
}

/* Holes count: the mirror stores them as zeros. */
static bool over_limit(struct hy_fs_mirror *m, const struct stat *st)
{
    if (__builtin_add_overflow(m->seen, (uint64_t)st->st_size, &m->seen))
        m->seen = UINT64_MAX;
    return m->limit && m->seen > m->limit;
}

/* A file that is removed meanwhile is not an error. */
static int sync_entry(struct hy_fs_mirror *m, const char *path, int depth)
{
    hy_cleanup_free char *full = hy_path_join(m->directory, path);
    struct hy_err why = {0};
    struct entry *e;
    struct stat st;
    int rc;

    if (!full)
        return note_error(m, hy_err_oom(&why), &why);
    if (HY_SYS(lstat(full, &st)) < 0)
        return 0;
    if ((!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) || (m->is_skipped && m->is_skipped(path)))
        return 0;
    if (S_ISREG(st.st_mode) && over_limit(m, &st)) {
        note_error(m,
                   hy_err_set(&why, -EFBIG, "%s has more bytes than may be copied (%llu)", m->directory,
                              (unsigned long long)m->limit),
                   &why);
        return -EFBIG;
    }
    e = entry_of(m, path);
    if (!e)
        rc = hy_err_oom(&why);
    else if (S_ISDIR(st.st_mode))
        rc = mirror_directory(m, e, &why);
    else
        rc = grows(path) ? mirror_growing(m, e, &st, &why) : mirror_whole(m, e, &st, &why);
    if (rc == -ENOENT && access(full, F_OK) < 0)
        rc = 0;
    rc = note_error(m, rc, &why);
    return rc == 0 && S_ISDIR(st.st_mode) ? sync_directory(m, path, depth + 1) : rc;
}

static int sync_directory(struct hy_fs_mirror *m, const char *path, int depth)
{
    hy_cleanup_free char *full = hy_path_join(m->directory, path);
    DIR *dir = full && depth <= DEPTH_MAX ? opendir(full) : NULL;
    struct hy_err why = {0};
    struct dirent *d;
    int rc = 0;

    if (depth > DEPTH_MAX)
        return note_error(m,
                          hy_err_set(&why, -ENAMETOOLONG,
                                     "directories are nested more than %d levels deep in %s;"
                                     " deeper files are not copied to %s",
                                     DEPTH_MAX, m->directory, m->url),
                          &why);
    if (!dir && full && errno == ENOENT)
        return 0;
    if (!dir)
        return note_error(
            m, hy_err_sys(&why, full ? -errno : -ENOMEM, "cannot read the directory %s/%s", m->directory, path), &why);
    while (rc == 0 && (d = readdir(dir))) {
        hy_cleanup_free char *below = NULL;

        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        below = *path ? hy_path_join(path, d->d_name) : hy_strdup(d->d_name);
        rc = below ? sync_entry(m, below, depth) : note_error(m, hy_err_oom(&why), &why);
    }
    closedir(dir);
    return rc;
}

int hy_fs_mirror_sync(struct hy_fs_mirror *m, bool is_last, struct hy_err *err)
{
    int rc;

    m->is_last = is_last;
    m->first_error = 0;
    m->seen = 0;
    m->err = err;
    rc = sync_directory(m, "", 0);
    m->err = NULL;
    return m->first_error ? m->first_error : rc;
}
