/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory whose files clients may use (a project's, or a trial's; local or HDFS), and paths in it.
 *
 * Paths are relative and untrusted: they cannot leave the directory, no link is followed, and hopyard's own files
 * (.hopyard, run.db and similar) are hidden at any depth. In a project, Shared/OWNER::NAME is the data set that another
 * user shares with it, and paths below it are confined to that.
 */
#ifndef HY_WEB_SERVED_DIR_H
#define HY_WEB_SERVED_DIR_H

#include "fs/fs.h"
#include "web/exchange.h"

#define HY_SERVED_DIR_SHARES "Shared" /* the directory of a project's shares */

struct hy_served_dir {
    char *root;                    /* a directory or URL */
    char *inside;                  /* the part of the root that is used: a path below it; "": all */
    struct hy_fs_confined_dir dir; /* private */
    struct {
        char *name, *root; /* NULL: none is open */
        struct hy_fs_confined_dir dir;
    } share; /* private: the one that was used last */
};

/* The files of the project, or of the trial that the route's first two open segments name; otherwise -Exxx, and the
 * reply is set. */
int hy_served_dir_of_project(struct hy_exchange *x, struct hy_served_dir *ret);
int hy_served_dir_of_trial(struct hy_exchange *x, struct hy_served_dir *ret);
void hy_served_dir_done(struct hy_served_dir *p);
#define hy_cleanup_served_dir __attribute__((cleanup(hy_served_dir_done)))

/* Whether the name of a file or directory belongs to hopyard. */
bool hy_served_dir_hides(const char *name);
/* 0, -EINVAL for a path that leaves the directory or is too long, or -EACCES for one of hopyard's own files; with a
 * sentence. "" is the directory itself. */
int hy_served_dir_check(const char *path, struct hy_err *err);

/* The path in a parameter of the query; "" if it is missing. Otherwise -Exxx, and the reply is set. */
int hy_served_dir_parameter(struct hy_exchange *x, const char *name, char **ret);
/* The same for one that must name something in the directory. */
int hy_served_dir_required(struct hy_exchange *x, const char *name, char **ret);

/* Whether a path is the file of a share, or would be one: Shared/OWNER::NAME, as it is listed or as it is named. */
bool hy_served_dir_is_share(const char *path);
/* 0, or -EPERM for a path that must not be made by writing a file: a share, which is accepted, or Shared itself. */
int hy_served_dir_check_new(const char *path, struct hy_err *err);

/* URLs for fs.h, until the next call; the path was checked. Of a file or directory that exists, to read it; and of an
 * entry of a directory that exists, to make, rename or remove it. */
int hy_served_dir_existing(struct hy_served_dir *p, const char *path, char **ret_url, struct hy_err *err);
int hy_served_dir_entry(struct hy_served_dir *p, const char *path, char **ret_url, struct hy_err *err);
/* Replies with the failure, in terms of the user's paths. */
void hy_served_dir_failure(struct hy_exchange *x, const struct hy_served_dir *p, struct hy_err *err);
/* The path for programs: absolute, or a URL; of a share, once one of its files was used, the real one. NULL when out of
 * memory. */
char *hy_served_dir_address(const struct hy_served_dir *p, const char *path);

/* Calls `visit` for everything below a directory, directories before their contents, without following links.
 * -EACCES when it contains one of hopyard's own files, unless `skip_hidden`. */
struct hy_served_dir_walk {
    int (*visit)(void *arg, const char *path, const struct hy_fs_info *entry, struct hy_err *err);
    void *arg;
    bool skip_hidden;
};
int hy_served_dir_walk(struct hy_served_dir *p, const char *path, const struct hy_served_dir_walk *how,
                       struct hy_err *err);

/* The last component of a path, and its directory ("" for the root). */
const char *hy_served_dir_name(const char *path);
char *hy_served_dir_parent(const char *path);
char *hy_served_dir_join(const char *directory, const char *name);
/* The type of an image that browsers show without running scripts in it; NULL: not such an image. */
const char *hy_served_dir_image_type(const char *path);

#endif
