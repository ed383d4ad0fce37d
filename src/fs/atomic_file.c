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

#define NAME_MAX_KEPT 200 /* with what is added it stays below the 255 bytes that file systems take */

static uint64_t any_number(void)
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
                       (unsigned long long)any_number());
}

static void forget(struct hy_fs_atomic_file *d)
{
    free(d->url);
    free(d->target);
    *d = (struct hy_fs_atomic_file){0};
}

/* What went wrong before is what is told; that this goes wrong as well adds nothing. */
static void remove_quietly(const char *url)
{
    struct hy_err unheard = {0};

    if (hy_fs_remove(url, false, &unheard) < 0)
        unheard.code = 0;
}

int hy_fs_atomic_file_open(struct hy_fs_atomic_file *d, const char *target, struct hy_err *err)
{
    int rc;

    *d = (struct hy_fs_atomic_file){.url = hy_fs_temporary_name(target), .target = hy_strdup(target)};
    rc = d->url && d->target ? hy_fs_open(d->url, HY_FS_CREATE, &d->file, err)
                             : hy_err_oom(err);
    if (rc == 0)
        return 0;
    if (d->url && rc != -EEXIST)
        remove_quietly(d->url); /* it may have been made before the answer was lost */
    forget(d);
    return rc;
}

int hy_fs_atomic_file_commit(struct hy_fs_atomic_file *d, bool replace, struct hy_err *err)
{
    int rc = hy_fs_close(hy_take(d->file), err);

    if (rc == 0)
        rc = hy_fs_rename(d->url, d->target, replace, err);
    if (rc == -EEXIST)
        hy_err_set(err, rc, "%s is there already", d->target);
    if (rc < 0)
        remove_quietly(d->url);
    forget(d);
    return rc;
}

void hy_fs_atomic_file_abort(struct hy_fs_atomic_file *d)
{
    struct hy_err unheard = {0};

    if (!d->url)
        return;
    if (hy_fs_close(hy_take(d->file), &unheard) < 0)
        unheard.code = 0;
    remove_quietly(d->url);
    forget(d);
}
