/* SPDX-License-Identifier: Apache-2.0 */
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

#define PIECE (1u << 20)
#define QUIET_MS 3000 /* not written to for so long: it may be whole */
#define OPEN_MAX 32u  /* files that grow and are kept open over there */
#define DEPTH_MAX 64
#define TAIL 64u

struct entry {
    char *path;              /* in the folder */
    struct hy_fs_file *open; /* of one that grows */
    uint64_t sent;           /* of one that grows */
    uint8_t tail[TAIL];      /* the last bytes of these, or all if they are fewer */
    uint64_t inode, size;
    int64_t modified_ns;
    int64_t used_ms;
    bool is_done; /* it is over there as it was then */
};

struct hy_fs_mirror {
    char *folder, *url;
    bool (*is_skipped)(const char *path);
    struct hy_map entries; /* by the hash of the path, or the next free number */
    size_t open_count;
    char *room; /* PIECE bytes */
    bool is_last;
    uint64_t limit; /* bytes of all files; 0: none */
    uint64_t seen;  /* in this look */
    int trouble; /* the first one of this look */
    struct hy_err *err;
};

struct hy_fs_mirror *hy_fs_mirror_new(const char *folder, const char *url, bool (*is_skipped)(const char *path))
{
    struct hy_fs_mirror *m = hy_calloc(1, sizeof(*m));

    if (!m)
        return NULL;
    m->folder = hy_strdup(folder);
    m->url = hy_strdup(url);
    m->room = hy_malloc(PIECE);
    m->is_skipped = is_skipped;
    if (m->folder && m->url && m->room)
        return m;
    hy_fs_mirror_free(m);
    return NULL;
}

void hy_fs_mirror_limit(struct hy_fs_mirror *m, uint64_t bytes)
{
    m->limit = bytes;
}

/* What went wrong is made good by the next look, which begins the file anew. */
static void let_go(struct hy_fs_mirror *m, struct entry *e)
{
    struct hy_err unheard;

    if (!e->open)
        return;
    m->open_count--;
    if (hy_fs_close(hy_take(e->open), &unheard) < 0)
        e->sent = 0;
}

void hy_fs_mirror_free(struct hy_fs_mirror *m)
{
    struct entry *e;

    if (!m)
        return;
    for (size_t i = 0; (e = hy_map_next(&m->entries, &i));) {
        let_go(m, e);
        free(e->path);
        free(e);
    }
    hy_map_done(&m->entries);
    free(m->folder);
    free(m->url);
    free(m->room);
    free(m);
}

/* ---- what is known of a file ------------------------------------------------------- */

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

/* ---- files that grow --------------------------------------------------------------- */

static void close_oldest(struct hy_fs_mirror *m)
{
    struct entry *e, *oldest = NULL;

    for (size_t i = 0; (e = hy_map_next(&m->entries, &i));)
        if (e->open && (!oldest || e->used_ms < oldest->used_ms))
            oldest = e;
    if (oldest)
        let_go(m, oldest);
}

static int open_there(struct hy_fs_mirror *m, struct entry *e, struct hy_err *err)
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

/* Whether it still ends, where we left it, with what was there then: or else it was written anew. */
static bool is_the_same(const struct entry *e, int fd)
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

static int pour(struct hy_fs_mirror *m, struct entry *e, int fd, uint64_t size, struct hy_err *err)
{
    while (e->sent < size) {
        const size_t want = size - e->sent < PIECE ? (size_t)(size - e->sent) : PIECE;
        ssize_t got = HY_SYS(pread(fd, m->room, want, (off_t)e->sent));
        int rc;

        if (got < 0)
            return hy_err_sys(err, -errno, "cannot read %s/%s", m->folder, e->path);
        if (got == 0)
            return 0; /* it was cut; the next look sees that */
        rc = hy_fs_write(e->open, m->room, (size_t)got, err);
        if (rc < 0)
            return rc;
        remember_tail(e, m->room, (size_t)got);
        e->sent += (uint64_t)got;
    }
    return 0;
}

static int follow(struct hy_fs_mirror *m, struct entry *e, const struct stat *st, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_path_join(m->folder, e->path);
    hy_cleanup_close int fd = path ? HY_SYS(open(path, O_RDONLY | O_CLOEXEC)) : -1;
    int rc;

    if (fd < 0)
        return hy_err_sys(err, path ? -errno : -ENOMEM, "cannot read %s/%s", m->folder, e->path);
    if (!is_the_same(e, fd)) {
        let_go(m, e);
        e->sent = 0;
    }
    rc = e->open ? 0 : open_there(m, e, err);
    if (rc == 0)
        rc = pour(m, e, fd, (uint64_t)st->st_size, err);
    if (rc == 0)
        rc = hy_fs_flush(e->open, false, err);
    e->used_ms = hy_clock_ms();
    return rc;
}

/* All of it has gone, and it is complete over there. */
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

    if (e->inode != st->st_ino || (uint64_t)st->st_size < e->sent) { /* another file by this name */
        let_go(m, e);
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
        let_go(m, e);
        e->sent = 0;
    }
    return rc;
}

/* ---- all others -------------------------------------------------------------------- */

static int mirror_whole(struct hy_fs_mirror *m, struct entry *e, const struct stat *st, struct hy_err *err)
{
    const struct hy_fs_copy how = {.replace = true};
    hy_cleanup_free char *from = NULL, *to = NULL;
    int rc;

    if (e->is_done && e->inode == st->st_ino && e->size == (uint64_t)st->st_size && e->modified_ns == modified_ns(st))
        return 0;
    if (!m->is_last && hy_clock_wall_ms() - modified_ns(st) / 1000000 < QUIET_MS)
        return 0;
    from = hy_path_join(m->folder, e->path);
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

static int mirror_folder(struct hy_fs_mirror *m, struct entry *e, struct hy_err *err)
{
    hy_cleanup_free char *url = hy_fs_join(m->url, e->path);
    int rc;

    if (e->is_done)
        return 0;
    rc = url ? hy_fs_mkdirs(url, 0777, err) : hy_err_oom(err);
    e->is_done = rc == 0;
    return rc;
}

/* ---- looking ----------------------------------------------------------------------- */

static int look_into(struct hy_fs_mirror *m, const char *path, int depth);

/* Trouble with one file is no reason to leave the others; that nobody answers is. */
static bool is_hopeless(int rc)
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

static int settle(struct hy_fs_mirror *m, int rc, const struct hy_err *why)
{
    if (rc < 0 && m->trouble == 0) {
        m->trouble = rc;
        if (m->err)
            *m->err = *why;
    }
    return is_hopeless(rc) ? rc : 0;
}

/* A hole counts: there are none over there. */
static bool over_limit(struct hy_fs_mirror *m, const struct stat *st)
{
    if (__builtin_add_overflow(m->seen, (uint64_t)st->st_size, &m->seen))
        m->seen = UINT64_MAX;
    return m->limit && m->seen > m->limit;
}

/* What is removed while it is looked at is not there. */
static int look_at(struct hy_fs_mirror *m, const char *path, int depth)
{
    hy_cleanup_free char *full = hy_path_join(m->folder, path);
    struct hy_err why = {0};
    struct entry *e;
    struct stat st;
    int rc;

    if (!full)
        return settle(m, hy_err_oom(&why), &why);
    if (HY_SYS(lstat(full, &st)) < 0)
        return 0;
    if ((!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) || (m->is_skipped && m->is_skipped(path)))
        return 0;
    if (S_ISREG(st.st_mode) && over_limit(m, &st)) {
        settle(m, hy_err_set(&why, -EFBIG, "%s has more than the %llu bytes that may be copied", m->folder,
                             (unsigned long long)m->limit), &why);
        return -EFBIG;
    }
    e = entry_of(m, path);
    if (!e)
        rc = hy_err_oom(&why);
    else if (S_ISDIR(st.st_mode))
        rc = mirror_folder(m, e, &why);
    else
        rc = grows(path) ? mirror_growing(m, e, &st, &why) : mirror_whole(m, e, &st, &why);
    if (rc == -ENOENT && access(full, F_OK) < 0)
        rc = 0;
    rc = settle(m, rc, &why);
    return rc == 0 && S_ISDIR(st.st_mode) ? look_into(m, path, depth + 1) : rc;
}

static int look_into(struct hy_fs_mirror *m, const char *path, int depth)
{
    hy_cleanup_free char *full = hy_path_join(m->folder, path);
    DIR *dir = full && depth <= DEPTH_MAX ? opendir(full) : NULL;
    struct hy_err why = {0};
    struct dirent *d;
    int rc = 0;

    if (depth > DEPTH_MAX)
        return settle(m, hy_err_set(&why, -ENAMETOOLONG, "directories are nested more than %d levels deep in %s; what"
                                    " lies deeper is not copied to %s", DEPTH_MAX, m->folder, m->url), &why);
    if (!dir && full && errno == ENOENT)
        return 0;
    if (!dir)
        return settle(m, hy_err_sys(&why, full ? -errno : -ENOMEM, "cannot read the folder %s/%s", m->folder, path), &why);
    while (rc == 0 && (d = readdir(dir))) {
        hy_cleanup_free char *below = NULL;

        if (strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0)
            continue;
        below = *path ? hy_path_join(path, d->d_name) : hy_strdup(d->d_name);
        rc = below ? look_at(m, below, depth) : settle(m, hy_err_oom(&why), &why);
    }
    closedir(dir);
    return rc;
}

int hy_fs_mirror_sync(struct hy_fs_mirror *m, bool is_last, struct hy_err *err)
{
    int rc;

    m->is_last = is_last;
    m->trouble = 0;
    m->seen = 0;
    m->err = err;
    rc = look_into(m, "", 0);
    m->err = NULL;
    return m->trouble ? m->trouble : rc;
}
