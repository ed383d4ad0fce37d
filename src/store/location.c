/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the store lies: PROJECT/.hopyard, or, where that is on a network file
 * system, $XDG_STATE_HOME/hopyard/HASH (HASH of the project's real path). For a
 * project that is a URL, the folder HASH/files there stands for it.
 *
 * SQLite's WAL is memory shared between processes and locks that every process
 * sees. Over a network neither holds, and what is lost is the whole store.
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

/* Files of these are, or may be, seen by other machines too. */
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
 * FUSE is whatever its program makes of it: sshfs, s3fs, GlusterFS and shares
 * of a virtual machine's host (virtiofs) are networks, and the kernel does not
 * know. A wrong "network" only moves the file, a wrong "local" loses it; so
 * FUSE is a network, but for the two that are known to be a disk of this
 * machine: a block device (ntfs-3g) and the root of a rootless container.
 */
static int fuse_is_local(const char *path)
{
    hy_cleanup_buf struct hy_buf mounts;
    char device[32];
    struct stat st;
    char *line, *rest;

    hy_buf_init(&mounts, 1 << 20);
    if (HY_SYS(stat(path, &st)) < 0 || hy_file_read("/proc/self/mountinfo", &mounts) < 0 ||
        !hy_buf_cstr(&mounts))
        return 0;
    snprintf(device, sizeof device, " %u:%u ", major(st.st_dev), minor(st.st_dev));
    for (line = strtok_r((char *)(uintptr_t)hy_buf_cstr(&mounts), "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        const char *type = strstr(line, " - ");

        if (type && strstr(line, device) && strstr(line, device) < type)
            return strncmp(type + 3, "fuseblk ", 8) == 0 ||
                   strncmp(type + 3, "fuse.fuse-overlayfs ", 20) == 0;
    }
    return 0;
}

#ifdef HY_FAULTS
/* HOPYARD_TEST_FS_TYPE=0x6969[:/below/here]: no test machine has an NFS of its own. */
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

static char *state_home(void)
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

/* statfs of the nearest folder above that exists already. */
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

static int place_elsewhere(struct hy_place *p, struct hy_err *err)
{
    hy_cleanup_free char *home = state_home();
    int rc;

    if (!home)
        return hy_err_oom(err);
    rc = will_be_on_network(home);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot look at the folder '%s'", home);
    if (rc > 0)
        return hy_err_set(err, -ENOTSUP,
                          "the project '%s' and '%s' are both on network file systems, where a store would "
                          "be damaged: set XDG_STATE_HOME to a folder on a local disk",
                          p->project, home);
    free(p->folder);
    p->folder = hy_asprintf("%s/hopyard/%016" PRIx64, home, hy_hash(p->project, strlen(p->project)));
    p->remote = 1;
    return p->folder ? 0 : hy_err_oom(err);
}

/* The URL that it stands for (write_url); NULL when the project is just a folder. */
static int read_url(const struct hy_place *p, char **ret, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_path_join(p->folder, "url");
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

/* Opens the folder, if it is there, and checks all that lies in it. */
static int open_folder(struct hy_place *p, struct hy_err *err)
{
    struct hy_err why = {0};
    int rc = hy_private_dir(p->folder, HY_OWNER_ANY_FOR_ROOT, &why);

    if (rc == -ENOENT)
        return 0;
    if (rc >= 0) {
        p->dir = rc;
        rc = hy_private_scan(p->dir, p->folder, &why);
    }
    if (rc < 0 && err)
        *err = why;
    return rc;
}

/* Where the folder itself lies, if hopyard has made that: $XDG_STATE_HOME/hopyard. */
static int check_above(const struct hy_place *p, struct hy_err *err)
{
    hy_cleanup_free char *above = hy_strndup(p->folder, (size_t)(strrchr(p->folder, '/') - p->folder));
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
static int folder_on_network(const struct hy_place *p, struct hy_err *err)
{
    struct stat st;
    int rc = HY_SYS(lstat(p->folder, &st)) < 0 ? -errno : 0;

    if (rc == 0)
        rc = on_network(S_ISLNK(st.st_mode) ? p->project : p->folder);
    if (rc == -ENOENT)
        rc = on_network(p->project);
    return rc < 0 ? hy_err_sys(err, rc, "cannot look at the folder '%s'", p->folder) : rc;
}

int hy_place_find(const char *project, struct hy_place *ret, struct hy_err *err)
{
    struct hy_place p = {.dir = -1};
    struct stat st;
    int rc = 0;

    p.project = realpath(project, NULL);
    if (!p.project || HY_SYS(stat(p.project, &st)) < 0)
        rc = hy_err_sys(err, -errno, "cannot use '%s' as the project folder", project);
    else if (!S_ISDIR(st.st_mode))
        rc = hy_err_set(err, -ENOTDIR, "the project '%s' is not a folder", project);
    if (rc == 0 && !(p.folder = hy_path_join(p.project, ".hopyard")))
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
        hy_place_done(&p);
        return rc;
    }
    *ret = p;
    return 0;
}

/* ---- a project that lies on another file system, of which this machine knows only a URL ---- */

static int write_url(const char *folder, const char *url, struct hy_err *err)
{
    struct hy_place p = {.folder = (char *)(uintptr_t)folder, .dir = -1};
    hy_cleanup_free char *path = hy_path_join(folder, "url"), *known = NULL;
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

/* PROJECT is $XDG_STATE_HOME/hopyard/HASH/files, all of which is hopyard's. */
static int make_stand_in(const char *project, const char *folder, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_strdup(project);
    char *slash;
    int dir = path ? hy_private_make_dir(folder, HY_OWNER_ANY_FOR_ROOT, err) : hy_err_oom(err);

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

char *hy_store_stand_in(const char *url, struct hy_err *err)
{
    hy_cleanup_free char *home = state_home();
    hy_cleanup_free char *tidy = hy_strdup(url), *folder = NULL;
    char *project = NULL;
    int rc;

    for (size_t n = tidy ? strlen(tidy) : 0; n && tidy[n - 1] == '/'; n--)
        tidy[n - 1] = '\0';
    if (home && tidy)
        project = hy_asprintf("%s/hopyard/%016" PRIx64 "/files", home, hy_hash(tidy, strlen(tidy)));
    folder = project ? hy_path_join(project, ".hopyard") : NULL;
    if (!folder) {
        free(project);
        hy_err_oom(err);
        return NULL;
    }
    rc = make_stand_in(project, folder, err);
    if (rc == 0)
        rc = write_url(folder, tidy, err);
    if (rc < 0) {
        hy_err_wrap(err, "the directory that stands for %s here", tidy);
        free(hy_take(project));
    }
    return project;
}

int hy_store_stands_for(const char *project, char **ret, struct hy_err *err)
{
    struct hy_place p = {.dir = -1};
    struct hy_err why = {0};
    int rc = hy_place_find(project, &p, &why);

    if (rc == 0)
        *ret = hy_take(p.url);
    hy_place_done(&p);
    if (rc < 0 && rc != -ENOENT && err)
        *err = why;
    return rc == -ENOENT ? 0 : rc; /* a folder that is not there stands for nothing */
}

void hy_place_done(struct hy_place *p)
{
    hy_close_at(&p->dir);
    free(p->project);
    free(p->folder);
    free(p->url);
    *p = (struct hy_place){.dir = -1};
}

/* The folder's name is a hash: the file says of which project, and proves it. */
static int name_project(const struct hy_place *p, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_path_join(p->folder, "project");
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
                          "XDG_STATE_HOME to another folder",
                          p->folder);
    return rc;
}

/* A folder that was just made is only as durable as the entry in the one above it. */
static void sync_above(const char *folder)
{
    hy_cleanup_free char *above = hy_path_join(folder, "..");
    hy_cleanup_close int fd = above ? HY_SYS(open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) : -1;

    if (fd >= 0)
        fsync(fd);
}

static int make_folder(struct hy_place *p, struct hy_err *err)
{
    hy_cleanup_free char *ignore = NULL;
    int rc = hy_mkdirs(p->folder, 0700);

    if (rc < 0)
        return hy_err_sys(err, rc,
                          "cannot make the folder '%s' for the store; make the folder above it writable, or "
                          "set HOPYARD_PROJECT to another",
                          p->folder);
    rc = p->dir = hy_private_dir(p->folder, HY_OWNER_ANY_FOR_ROOT, err);
    if (rc < 0)
        return rc;
    sync_above(p->folder);
    ignore = p->remote ? NULL : hy_path_join(p->folder, ".gitignore");
    if (ignore) /* a courtesy: without it nothing is wrong */
        hy_private_write(p->dir, ignore, "*\n", 2, NULL);
    return 0;
}

int hy_place_make(struct hy_place *p, struct hy_err *err)
{
    int rc = p->dir < 0 ? make_folder(p, err) : 0;

    return rc == 0 && p->remote ? name_project(p, err) : rc;
}
