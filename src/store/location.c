/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of the store: PROJECT/.hopyard, or, if that is on a network file
 * system, $XDG_STATE_HOME/hopyard/HASH (HASH of the project's real path). A project
 * that is a URL has the local directory HASH/files there.
 *
 * SQLite's WAL needs memory shared between processes, and locks that every process
 * sees. Network file systems have neither, and the whole store would be damaged.
 */
#include "store/internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/private.h"
#include "base/text.h"

#define FUSE 0x65735546u

/* File systems that other machines use too, or may use. */
static const uint32_t network_types[] = {
    0x6969,     /* NFS */
    0x517b,     /* SMB */
    0xff534d42, /* CIFS */
    0xfe534d42, /* SMB 2 */
    0x564c,     /* NCP */
    0x5346414f, /* AFS */
    0x6b414653, /* the kernel's AFS */
    0x73757245, /* Coda */
    0x01021997, /* 9p: the host's files in a virtual machine */
    0x786f4256, /* VirtualBox's shared folders */
    0x00c36400, /* Ceph */
    0x0bd00bd0, /* Lustre */
    0x47504653, /* GPFS */
    0x19830326, /* BeeGFS */
    0xaad7aaea, /* PanFS */
    0x20030528, /* OrangeFS */
    0x01161970, /* GFS2 */
    0x7461636f, /* OCFS2 */
};

/*
 * FUSE may be anything: sshfs, s3fs, GlusterFS and shares of a virtual machine's
 * host (virtiofs) are networks, which the kernel does not report. A wrong "network"
 * only moves the file, a wrong "local" loses it. So FUSE counts as a network, except
 * for two that are local: a block device (ntfs-3g) and the root of a rootless
 * container.
 */
static int fuse_is_local(const char *path)
{
    hy_cleanup_buf struct hy_buf mounts;
    char device[32];
    struct stat st;
    char *line, *rest;

    hy_buf_init(&mounts, 1 << 20);
    if (HY_SYS(stat(path, &st)) < 0 || hy_file_read("/proc/self/mountinfo", &mounts) < 0 || !hy_buf_cstr(&mounts))
        return 0;
    snprintf(device, sizeof device, " %u:%u ", major(st.st_dev), minor(st.st_dev));
    for (line = strtok_r((char *)(uintptr_t)hy_buf_cstr(&mounts), "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        const char *type = strstr(line, " - ");

        if (type && strstr(line, device) && strstr(line, device) < type)
            return strncmp(type + 3, "fuseblk ", 8) == 0 || strncmp(type + 3, "fuse.fuse-overlayfs ", 20) == 0;
    }
    return 0;
}

#ifdef HY_FAULTS
/* HOPYARD_TEST_FS_TYPE=0x6969[:/below/here]: test machines have no NFS. */
static uint32_t pretended_type(const char *path, uint32_t real)
{
    const char *want = getenv("HOPYARD_TEST_FS_TYPE");
    uint32_t type;
    char *below;

    if (!want)
        return real;
    type = (uint32_t)strtoul(want, &below, 0);
    return *below != ':' || strncmp(path, below + 1, strlen(below + 1)) == 0 ? type : real;
}
#endif

/* 1, 0, or -Exxx. The path exists. */
static int on_network(const char *path)
{
    struct statfs fs;
    uint32_t type;

    if (HY_SYS(statfs(path, &fs)) < 0)
        return -errno;
    type = (uint32_t)fs.f_type;
#ifdef HY_FAULTS
    type = pretended_type(path, type);
#endif
    for (size_t i = 0; i < HY_COUNT(network_types); i++)
        if (network_types[i] == type)
            return 1;
    return type == FUSE && !fuse_is_local(path);
}

char *hy_store_state_home(void)
{
    const char *home = getenv("XDG_STATE_HOME");
    struct passwd *me;

    if (home && *home == '/')
        return hy_strdup(home);
    home = getenv("HOME");
    if (!home || *home != '/') {
        me = getpwuid(getuid());
        home = me ? me->pw_dir : "/";
    }
    return hy_path_join(home, ".local/state");
}

/* statfs of the nearest existing parent. */
static int will_be_on_network(const char *path)
{
    hy_cleanup_free char *above = hy_strdup(path);
    char *slash;
    int rc;

    if (!above)
        return -ENOMEM;
    while ((rc = on_network(above)) == -ENOENT && (slash = strrchr(above, '/')) && slash != above)
        *slash = '\0';
    return rc == -ENOENT ? on_network("/") : rc;
}

static int place_elsewhere(struct hy_store_location *p, struct hy_err *err)
{
    hy_cleanup_free char *home = hy_store_state_home();
    int rc;

    if (!home)
        return hy_err_oom(err);
    rc = will_be_on_network(home);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot examine the directory '%s'", home);
    if (rc > 0)
        return hy_err_set(err, -ENOTSUP,
                          "the project '%s' and '%s' are both on network file systems, where a store would "
                          "be damaged: set XDG_STATE_HOME to a directory on a local disk",
                          p->project, home);
    free(p->directory);
    p->directory = hy_asprintf("%s/hopyard/%016" PRIx64, home, hy_hash(p->project, strlen(p->project)));
    p->remote = 1;
    return p->directory ? 0 : hy_err_oom(err);
}

/* The URL of the project (write_url); NULL when it is local. */
static int read_url(const struct hy_store_location *p, char **ret, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_path_join(p->directory, "url");
    hy_cleanup_buf struct hy_buf text;
    struct hy_err why = {0};
    const char *url = NULL;
    int rc;

    hy_buf_init(&text, 1 << 16);
    rc = path ? hy_private_read(p->dir, path, &text, &why) : hy_err_oom(&why);
    if (rc == 0 && (!(url = hy_buf_cstr(&text)) || (*url && !(*ret = hy_strdup(url)))))
        rc = hy_err_oom(&why);
    if (rc < 0 && rc != -ENOENT && err)
        *err = why;
    return rc == -ENOENT ? 0 : rc;
}

/* Opens the directory, if it exists, and checks its entries. */
static int open_folder(struct hy_store_location *p, struct hy_err *err)
{
    struct hy_err why = {0};
    int rc = hy_private_dir(p->directory, HY_OWNER_ANY_FOR_ROOT, &why);

    if (rc == -ENOENT)
        return 0;
    if (rc >= 0) {
        p->dir = rc;
        rc = hy_private_scan(p->dir, p->directory, &why);
    }
    if (rc < 0 && err)
        *err = why;
    return rc;
}

/* The parent directory, if hopyard has made it: $XDG_STATE_HOME/hopyard. */
static int check_above(const struct hy_store_location *p, struct hy_err *err)
{
    hy_cleanup_free char *above = hy_strndup(p->directory, (size_t)(strrchr(p->directory, '/') - p->directory));
    hy_cleanup_close int dir = -1;
    struct hy_err why = {0};

    if (!above)
        return hy_err_oom(err);
    dir = hy_private_dir(above, HY_OWNER_ANY_FOR_ROOT, &why);
    if (dir < 0 && dir != -ENOENT && err)
        *err = why;
    return dir < 0 && dir != -ENOENT ? dir : 0;
}

/* 1: on a network; 0; or -Exxx. A link would be followed here, and is refused anyway. */
static int folder_on_network(const struct hy_store_location *p, struct hy_err *err)
{
    struct stat st;
    int rc = HY_SYS(lstat(p->directory, &st)) < 0 ? -errno : 0;

    if (rc == 0)
        rc = on_network(S_ISLNK(st.st_mode) ? p->project : p->directory);
    if (rc == -ENOENT)
        rc = on_network(p->project);
    return rc < 0 ? hy_err_sys(err, rc, "cannot examine the directory '%s'", p->directory) : rc;
}

int hy_store_location_find(const char *project, struct hy_store_location *ret, struct hy_err *err)
{
    struct hy_store_location p = {.dir = -1};
    struct stat st;
    int rc = 0;

    p.project = realpath(project, NULL);
    if (!p.project || HY_SYS(stat(p.project, &st)) < 0)
        rc = hy_err_sys(err, -errno, "cannot use '%s' as the project directory", project);
    else if (!S_ISDIR(st.st_mode))
        rc = hy_err_set(err, -ENOTDIR, "the project '%s' is not a directory", project);
    if (rc == 0 && !(p.directory = hy_path_join(p.project, ".hopyard")))
        rc = hy_err_oom(err);
    if (rc == 0)
        rc = folder_on_network(&p, err);
    if (rc > 0)
        rc = place_elsewhere(&p, err);
    if (rc == 0 && p.remote)
        rc = check_above(&p, err);
    if (rc == 0)
        rc = open_folder(&p, err);
    if (rc == 0 && p.dir >= 0)
        rc = read_url(&p, &p.url, err);
    if (rc < 0) {
        hy_store_location_done(&p);
        return rc;
    }
    *ret = p;
    return 0;
}

/* ---- a project that is a URL ---- */

static int write_url(const char *directory, const char *url, struct hy_err *err)
{
    struct hy_store_location p = {.directory = (char *)(uintptr_t)directory, .dir = -1};
    hy_cleanup_free char *path = hy_path_join(directory, "url"), *known = NULL;
    int rc = path ? 0 : hy_err_oom(err);

    if (rc == 0)
        rc = open_folder(&p, err);
    if (rc == 0)
        rc = read_url(&p, &known, err);
    if (rc == 0 && !known)
        rc = hy_private_write(p.dir, path, url, strlen(url), err);
    hy_close_at(&p.dir);
    return rc;
}

/* PROJECT is $XDG_STATE_HOME/hopyard/HASH/files, all of which hopyard has made. */
static int make_stand_in(const char *project, const char *directory, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_strdup(project);
    char *slash;
    int dir = path ? hy_private_make_dir(directory, HY_OWNER_ANY_FOR_ROOT, err) : hy_err_oom(err);

    for (int level = 0; level < 3 && dir >= 0; level++) {
        close(dir);
        dir = hy_private_dir(path, HY_OWNER_ANY_FOR_ROOT, err);
        slash = strrchr(path, '/');
        *slash = '\0';
    }
    if (dir >= 0)
        close(dir);
    return dir < 0 ? dir : 0;
}

char *hy_store_local_dir(const char *url, struct hy_err *err)
{
    hy_cleanup_free char *home = hy_store_state_home();
    hy_cleanup_free char *tidy = hy_strdup(url), *directory = NULL;
    char *project = NULL;
    int rc;

    for (size_t n = tidy ? strlen(tidy) : 0; n && tidy[n - 1] == '/'; n--)
        tidy[n - 1] = '\0';
    if (home && tidy)
        project = hy_asprintf("%s/hopyard/%016" PRIx64 "/files", home, hy_hash(tidy, strlen(tidy)));
    directory = project ? hy_path_join(project, ".hopyard") : NULL;
    if (!directory) {
        free(project);
        hy_err_oom(err);
        return NULL;
    }
    rc = make_stand_in(project, directory, err);
    if (rc == 0)
        rc = write_url(directory, tidy, err);
    if (rc < 0) {
        hy_err_wrap(err, "the local directory for %s", tidy);
        free(hy_take(project));
    }
    return project;
}

int hy_store_url_of_local_dir(const char *project, char **ret, struct hy_err *err)
{
    struct hy_store_location p = {.dir = -1};
    struct hy_err why = {0};
    int rc = hy_store_location_find(project, &p, &why);

    if (rc == 0)
        *ret = hy_take(p.url);
    hy_store_location_done(&p);
    if (rc < 0 && rc != -ENOENT && err)
        *err = why;
    return rc == -ENOENT ? 0 : rc; /* a missing directory has no URL */
}

void hy_store_location_done(struct hy_store_location *p)
{
    hy_close_at(&p->dir);
    free(p->project);
    free(p->directory);
    free(p->url);
    *p = (struct hy_store_location){.dir = -1};
}

/* The directory's name is a hash: the file has the project's path, and detects collisions. */
static int name_project(const struct hy_store_location *p, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_path_join(p->directory, "project");
    hy_cleanup_free char *text = hy_asprintf("%s\n", p->project);
    hy_cleanup_buf struct hy_buf there;
    struct hy_err why = {0};
    int rc;

    hy_buf_init(&there, 1 << 16);
    if (!path || !text)
        return hy_err_oom(err);
    rc = hy_private_read(p->dir, path, &there, &why);
    if (rc == -ENOENT)
        return hy_private_write(p->dir, path, text, strlen(text), err);
    if (rc < 0 && err)
        *err = why;
    if (rc == 0 && (there.len != strlen(text) || memcmp(hy_buf_bytes(&there), text, there.len) != 0))
        return hy_err_set(err, -EEXIST,
                          "'%s' belongs to another project (see the file 'project' in it); set "
                          "XDG_STATE_HOME to another directory",
                          p->directory);
    return rc;
}

/* A new directory is only as durable as its entry in the parent. */
static void sync_above(const char *directory)
{
    hy_cleanup_free char *above = hy_path_join(directory, "..");
    hy_cleanup_close int fd = above ? HY_SYS(open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) : -1;

    if (fd >= 0)
        fsync(fd);
}

static int make_folder(struct hy_store_location *p, struct hy_err *err)
{
    hy_cleanup_free char *ignore = NULL;
    int rc = hy_mkdirs(p->directory, 0700);

    if (rc < 0)
        return hy_err_sys(err, rc,
                          "cannot make the directory '%s' for the store; make its parent writable, or "
                          "set HOPYARD_PROJECT to another",
                          p->directory);
    rc = p->dir = hy_private_dir(p->directory, HY_OWNER_ANY_FOR_ROOT, err);
    if (rc < 0)
        return rc;
    sync_above(p->directory);
    ignore = p->remote ? NULL : hy_path_join(p->directory, ".gitignore");
    if (ignore) /* only a hint for people: errors are ignored */
        hy_private_write(p->dir, ignore, "*\n", 2, NULL);
    return 0;
}

int hy_store_location_make(struct hy_store_location *p, struct hy_err *err)
{
    int rc = p->dir < 0 ? make_folder(p, err) : 0;

    if (rc == 0 && p->remote)
        rc = name_project(p, err);
    if (rc == 0)
        (void)hy_project_register(p->project, NULL); /* for the page's list of projects: a run does not need it */
    return rc;
}
