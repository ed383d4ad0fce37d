/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"

#ifdef HY_FAULTS
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_long passed[HY_SEAM_COUNT];
static atomic_long armed[HY_SEAM_COUNT];

static const char *const seam_names[HY_SEAM_COUNT] = {"alloc", "sys", "wire"};

/* What follows "COMMAND/", if that is our subcommand or missing; else NULL. */
static const char *part_of(const char *want, int argc, char **argv)
{
    const char *slash = want ? strchr(want, '/') : NULL;
    size_t n = slash ? (size_t)(slash - want) : 0;

    if (!slash)
        return want;
    return argc > 1 && strncmp(argv[1], want, n) == 0 && !argv[1][n] ? slash + 1 : NULL;
}

/* glibc passes main's arguments to constructors. */
__attribute__((constructor)) static void arm_from_environment(int argc, char **argv)
{
    const char *want = part_of(getenv("HOPYARD_FAULT"), argc, argv);

    for (int i = 0; want && i < HY_SEAM_COUNT; i++) {
        size_t n = strlen(seam_names[i]);
        if (strncmp(want, seam_names[i], n) == 0 && want[n] == ':')
            hy_fault_arm((enum hy_seam)i, atol(want + n + 1));
    }
}

int hy_fault_hit(enum hy_seam seam)
{
    long n = atomic_fetch_add(&passed[seam], 1) + 1;

    return n == atomic_load(&armed[seam]);
}

void hy_fault_arm(enum hy_seam seam, long n)
{
    atomic_store(&passed[seam], 0);
    atomic_store(&armed[seam], n);
}

long hy_fault_passed(enum hy_seam seam)
{
    return atomic_load(&passed[seam]);
}
#else
typedef int hy_fault_is_not_built; /* an empty file is not C */
#endif
