/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Our cgroup in each hierarchy, from /proc/self/cgroup and
 * /proc/self/mountinfo:
 *
 *     4:memory:/user.slice                          v1, the controllers by name
 *     0::/user.slice/session-3.scope                v2, always 0 and no names
 *
 *     31 23 0:28 ROOT MOUNT rw … - cgroup cgroup rw,memory
 *     41 31 0:38 ROOT MOUNT rw … - cgroup2 cgroup2 rw
 *
 * ROOT is the part of the tree that is visible at MOUNT: "/" except in containers.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "supervise/internal.h"

bool hy_list_contains(const char *list, const char *word, const char *separators)
{
    size_t n = strlen(word);

    while (*list) {
        size_t len = strcspn(list, separators);

        if (len == n && memcmp(list, word, n) == 0)
            return true;
        list += len + (list[len] != '\0');
    }
    return false;
}

/* Copies the next line without its newline and advances; lines that do not fit
 * are skipped, since no path of ours is that long. */
static bool next_line(const char **text, char line[2 * PATH_MAX])
{
    while (**text) {
        size_t n = strcspn(*text, "\n");
        const char *at = *text;

        *text += n + ((*text)[n] == '\n');
        if (n >= 2 * PATH_MAX)
            continue;
        memcpy(line, at, n);
        line[n] = '\0';
        return true;
    }
    return false;
}

static bool find_own(const char *text, enum hy_cgroup_kind kind, char own[PATH_MAX])
{
    char line[2 * PATH_MAX];

    while (next_line(&text, line)) {
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(++controllers, ':') : NULL;

        if (!path)
            continue;
        *path++ = '\0';
        if (kind == HY_CGROUP_V2 ? *controllers != '\0' : !hy_list_contains(controllers, "memory", ","))
            continue;
        if ((size_t)snprintf(own, PATH_MAX, "%s", path) < PATH_MAX && *own == '/')
            return true;
    }
    return false;
}

static bool find_mount(const char *text, enum hy_cgroup_kind kind, char root[PATH_MAX], char mount[PATH_MAX])
{
    char line[2 * PATH_MAX], type[32], options[512];

    while (next_line(&text, line)) {
        const char *dash = strstr(line, " - ");

        if (!dash || sscanf(dash + 3, "%31s %*s %511s", type, options) != 2)
            continue;
        if (strcmp(type, kind == HY_CGROUP_V2 ? "cgroup2" : "cgroup") != 0)
            continue;
        if (kind == HY_CGROUP_V1 && !hy_list_contains(options, "memory", ","))
            continue;
        if (sscanf(line, "%*s %*s %*s %4095s %4095s", root, mount) == 2)
            return true;
    }
    return false;
}

int hy_cgroup_locate(enum hy_cgroup_kind kind, const char *own_text, const char *mount_text,
                     struct hy_cgroup_place *ret)
{
    char root[PATH_MAX];
    size_t n;

    if (!find_own(own_text, kind, ret->own) || !find_mount(mount_text, kind, root, ret->mount))
        return -ENOENT;
    n = strcmp(root, "/") == 0 ? 0 : strlen(root);
    if (n && strncmp(ret->own, root, n) == 0 && (ret->own[n] == '/' || !ret->own[n]))
        memmove(ret->own, ret->own + n, strlen(ret->own + n) + 1);
    else if (n || strncmp(ret->own, "/..", 3) == 0)
        ret->own[0] = '\0'; /* our cgroup is not visible here: use the mount itself */
    if (strcmp(ret->own, "/") == 0)
        ret->own[0] = '\0';
    return 0;
}
