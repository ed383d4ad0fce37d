/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/text.h"
#include "fs/fs.h"

#define NAME_MAX_KEPT 200 /* with the suffix a name stays below the usual limit of 255 bytes */

static uint64_t random_number(void)
{
    uint64_t number;

    if (getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number) {
        const int64_t here[] = {hy_clock_wall_ms(), hy_clock_ms(), getpid()};

        number = hy_hash(here, sizeof here);
    }
    return number;
}

char *hy_fs_temporary_name(const char *target)
{
    size_t length, begin = hy_url_name(target, &length);

    if (length > NAME_MAX_KEPT)
        length = NAME_MAX_KEPT;
    return hy_asprintf("%.*s.%.*s.%016llx._COPYING_", (int)begin, target, (int)length, target + begin,
                       (unsigned long long)random_number());
}

static void clear(struct hy_fs_atomic_file *f)
{
    free(f->url);
    free(f->target);
    *f = (struct hy_fs_atomic_file){0};
}

/* The caller reports the error that made the removal necessary. */
static void remove_quietly(const char *url)
{
    struct hy_err ignored = {0};

    if (hy_fs_remove(url, false, &ignored) < 0)
        ignored.code = 0;
}

int hy_fs_atomic_file_open(struct hy_fs_atomic_file *f, const char *target, struct hy_err *err)
{
    int rc;

    *f = (struct hy_fs_atomic_file){.url = hy_fs_temporary_name(target), .target = hy_strdup(target)};
    rc = f->url && f->target ? hy_fs_open(f->url, HY_FS_CREATE, &f->file, err) : hy_err_oom(err);
    if (rc == 0)
        return 0;
    if (f->url && rc != -EEXIST)
        remove_quietly(f->url); /* the server may have created it and the response was lost */
    clear(f);
    return rc;
}

int hy_fs_atomic_file_commit(struct hy_fs_atomic_file *f, bool replace, struct hy_err *err)
{
    int rc = hy_fs_close(hy_take(f->file), err);

    if (rc == 0)
        rc = hy_fs_rename(f->url, f->target, replace, err);
    if (rc == -EEXIST)
        hy_err_set(err, rc, "%s already exists", f->target);
    if (rc < 0)
        remove_quietly(f->url);
    clear(f);
    return rc;
}

void hy_fs_atomic_file_abort(struct hy_fs_atomic_file *f)
{
    struct hy_err ignored = {0};

    if (!f->url)
        return;
    if (hy_fs_close(hy_take(f->file), &ignored) < 0)
        ignored.code = 0;
    remove_quietly(f->url);
    clear(f);
}
