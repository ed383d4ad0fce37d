/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removes a directory tree, by descriptors alone: every name is resolved in its open
 * parent directory, and symbolic links are not followed. So if a directory is swapped
 * for a link meanwhile, the link is removed and not its target.
 *
 * Trees may be deeper than the limits of descriptors and of the stack, so there is no
 * recursion, and only the last OPEN_MAX_LEVELS directories are open. A closed one is
 * reopened as ".." of the level below it, if that is still the same, and read from its
 * start, where only entries that are not removed yet remain.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"

#define OPEN_MAX_LEVELS 16
#define RESCANS_MAX 3 /* some file systems skip entries while others are removed */

struct level {
    DIR *dir; /* NULL: closed for now */
    dev_t dev;
    ino_t ino;
    char *name; /* in the level above */
    int rescans;
};

struct walk {
    int above; /* the parent of the first level */
    struct level *levels;
    size_t count;
    size_t closed; /* the number of first levels that are closed */
};

/* Takes the descriptor. */
static DIR *open_stream(int fd)
{
    DIR *dir = fdopendir(fd);

    if (!dir)
        close(fd);
    return dir;
}

/* Opens the directory `name` in `parent`. -ELOOP or -ENOTDIR when it is not a directory (any more), -EXDEV when it is a
 * mount point. */
static int enter(struct walk *w, int parent, const char *name)
{
    hy_cleanup_close int fd = HY_SYS(openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct level level = {0};
    struct stat st;

    if (fd < 0 || HY_SYS(fstat(fd, &st)) < 0)
        return -errno;
    if (w->count && st.st_dev != w->levels[0].dev)
        return -EXDEV;
    if (hy_array_grow(w->levels, w->count) < 0 || !(level.name = hy_strdup(name)))
        return -ENOMEM;
    level.dev = st.st_dev;
    level.ino = st.st_ino;
    level.dir = open_stream(hy_take_fd(fd));
    if (!level.dir) {
        free(level.name);
        return -ENOMEM;
    }
    w->levels[w->count++] = level;
    if (w->count - w->closed > OPEN_MAX_LEVELS) {
        closedir(w->levels[w->closed].dir);
        w->levels[w->closed++].dir = NULL;
    }
    return 0;
}

/* The level above the last one, opened again if it was closed. */
static int open_above(struct walk *w)
{
    struct level *last = &w->levels[w->count - 1], *above = last - 1;
    hy_cleanup_close int fd = -1;
    struct stat st;

    if (above->dir)
        return 0;
    fd = HY_SYS(openat(dirfd(last->dir), "..", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (fd < 0 || HY_SYS(fstat(fd, &st)) < 0)
        return -errno;
    if (st.st_dev != above->dev || st.st_ino != above->ino)
        return -ESTALE; /* it was moved meanwhile */
    above->dir = open_stream(hy_take_fd(fd));
    w->closed--;
    return above->dir ? 0 : -ENOMEM;
}

static void pop(struct walk *w)
{
    struct level *last = &w->levels[--w->count];

    if (last->dir)
        closedir(last->dir);
    free(last->name);
    if (w->closed > w->count)
        w->closed = w->count;
}

/* The last level has been read to its end: removes it from the one above. */
static int leave(struct walk *w)
{
    struct level *last = &w->levels[w->count - 1];
    int rc = w->count > 1 ? open_above(w) : 0;

    if (rc == 0 && HY_SYS(unlinkat(w->count > 1 ? dirfd(last[-1].dir) : w->above, last->name, AT_REMOVEDIR)) < 0)
        rc = errno == ENOENT ? 0 : -errno;
    if (rc == -ENOTEMPTY && last->rescans++ < RESCANS_MAX) {
        rewinddir(last->dir);
        return 0;
    }
    if (rc == 0)
        pop(w);
    return rc;
}

static int remove_entry(struct walk *w, int parent, const char *name, bool is_dir)
{
    int rc = is_dir ? enter(w, parent, name) : -ENOTDIR;

    if (rc != -ENOTDIR && rc != -ELOOP)
        return rc == -ENOENT ? 0 : rc;
    if (HY_SYS(unlinkat(parent, name, 0)) == 0 || errno == ENOENT)
        return 0;
    return errno == EISDIR && !is_dir ? enter(w, parent, name) : -errno;
}

static int step(struct walk *w)
{
    DIR *dir = w->levels[w->count - 1].dir;
    struct dirent *entry;

    errno = 0;
    entry = readdir(dir);
    if (!entry)
        return errno ? -errno : leave(w);
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
        return 0;
    return remove_entry(w, dirfd(dir), entry->d_name, entry->d_type == DT_DIR);
}

/* Continues until the first level is removed. */
static int walk_to_end(struct walk *w, int rc)
{
    while (rc == 0 && w->count)
        rc = step(w);
    while (w->count)
        pop(w);
    free(w->levels);
    return rc;
}

int hy_remove_tree(const char *path)
{
    hy_cleanup_free char *tidy = hy_strdup(path);
    struct walk w = {.above = AT_FDCWD};
    struct stat st;

    if (!tidy)
        return -ENOMEM;
    for (size_t n = strlen(tidy); n > 1 && tidy[n - 1] == '/'; n--)
        tidy[n - 1] = '\0'; /* "link/" would be followed */
    if (HY_SYS(lstat(tidy, &st)) < 0)
        return errno == ENOENT ? 0 : -errno;
    return walk_to_end(&w, remove_entry(&w, AT_FDCWD, tidy, S_ISDIR(st.st_mode)));
}

int hy_remove_tree_at(int above, const char *name, int fd)
{
    struct walk w = {.above = above};
    struct stat st;
    int rc;

    if (HY_SYS(fstat(fd, &st)) < 0)
        return -errno;
    rc = enter(&w, above, name);
    if (rc == 0 && (w.levels[0].dev != st.st_dev || w.levels[0].ino != st.st_ino)) {
        pop(&w);
        rc = -ESTALE;
    }
    return walk_to_end(&w, rc);
}
