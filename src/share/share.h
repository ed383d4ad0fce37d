/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share: data sets of a project that are shared with other users' projects.
 *
 * The owner grants: every file and directory of the data set gets an entry for the
 * user in its access control list, directories also one for what is created in them,
 * and the directories from the project down to it let the user pass through, but not
 * list them. What is granted, and what the user could do before, is recorded in the
 * project's private directory first (shares.json): a grant that was interrupted is
 * completed by the next call, and a revocation removes what the share has added,
 * and nothing else.
 *
 * The receiver accepts: a file Shared/OWNER::NAME in its project contains the real path.
 * hy_share_resolve replaces it in paths.
 *
 * Calls block and are thread-safe. Files named `.hopyard` and `run.db` are never shared.
 */
#ifndef HY_SHARE_H
#define HY_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hy_err;

/* The owner's project. Borrowed. */
struct hy_share_project {
    const char *url;  /* its directory: an absolute real path, or hdfs://… */
    const char *path; /* of its private directory, */
    int dir;          /* and its descriptor (base/private.h) */
};

/* ---- the owner's side -------------------------------------------------------------------- */

enum hy_share_state {
    HY_SHARE_GRANTING, /* interrupted, if no call is in progress */
    HY_SHARE_GRANTED,
    HY_SHARE_REVOKING, /* the same */
};

/* What the user and the owner could do before; private. */
struct hy_share_prior {
    char *path;        /* relative to the project */
    int access;        /* rights of the user's entry; -1: it had none */
    int on_new;        /* of the user's default entry; -1 */
    int owner_on_new;  /* of the owner's default entry; -1 */
    bool had_default;  /* the directory had default entries */
};

struct hy_share {
    char *path; /* of the data set, relative to the project */
    char *user;
    bool is_writable;
    enum hy_share_state state;
    int64_t since_ms; /* 1970 */
    /* Private: */
    char *id, *owner_id;           /* the names of the user and of the data set's owner in ACLs */
    struct hy_share_prior *priors; /* sorted by path */
    size_t prior_count;
};

struct hy_shares {
    struct hy_share *list;
    size_t count;
};
void hy_shares_done(struct hy_shares *s);
#define hy_cleanup_shares __attribute__((cleanup(hy_shares_done)))

struct hy_share_report {
    uint64_t changed; /* files and directories whose rights have changed */
    uint64_t foreign; /* those of other users in the data set, which keep their rights */
    char *blocked;    /* a directory above the project that the user cannot pass through; NULL: none was found */
    bool is_missing;  /* hy_share_remove: the data set is not there; if it was moved, its files keep the rights */
};
void hy_share_report_done(struct hy_share_report *r);
#define hy_cleanup_share_report __attribute__((cleanup(hy_share_report_done)))

/*
 * Shares the directory `path` of the project with a user, or changes whether that user may write. `with` is a user, or
 * the directory or URL of a project, for its owner. -EPERM: it must not be shared.
 */
int hy_share_add(const struct hy_share_project *p, const char *path, const char *with, bool is_writable,
                 struct hy_share_report *ret, struct hy_err *err);
/* Revokes it. -ENOENT: it is not shared with this user. A data set that does not exist any more is no failure. */
int hy_share_remove(const struct hy_share_project *p, const char *path, const char *with, struct hy_share_report *ret,
                    struct hy_err *err);
/* Completes interrupted changes. Returns how many there were, or the first failure, after it has tried the others. */
int hy_share_repair(const struct hy_share_project *p, struct hy_err *err);
int hy_share_list(const struct hy_share_project *p, struct hy_shares *ret, struct hy_err *err);

/* ---- the receiver's side ------------------------------------------------------------------ */

struct hy_share_entry {
    char *name;   /* "OWNER::NAME" */
    char *target; /* the real path or URL */
    char *owner;  /* of the target, when it was accepted: a user's number, or a name on HDFS */
};
void hy_share_entry_done(struct hy_share_entry *e);
#define hy_cleanup_share_entry __attribute__((cleanup(hy_share_entry_done)))

/* The name of its file in Shared: names on HDFS cannot contain ':', so that they are encoded there. Free it; NULL when
 * out of memory. */
char *hy_share_file_name(const char *url, const char *name);
/* The reverse; NULL when it is not the name of an entry, or out of memory. */
char *hy_share_entry_name(const char *url, const char *file_name);
/* "PROJECT::DATASET" of a data set; NULL when out of memory. */
char *hy_share_name(const char *project, const char *path);
/*
 * Makes the entry `name` in the project `url`, after a check that this user can read the target. -EEXIST: there is
 * one with another target. -EACCES: the message names the directory that blocks access.
 */
int hy_share_accept(const char *url, const char *name, const char *target, struct hy_share_entry *ret,
                    struct hy_err *err);
/* Removes the entry; the rights stay. -ENOENT. */
int hy_share_forget(const char *url, const char *name, struct hy_err *err);
/* Calls back for each entry, by name; `why` is the reason why one cannot be used, or NULL. A nonzero result ends it and
 * is returned. */
typedef int hy_share_entry_visit(void *arg, const struct hy_share_entry *e, const char *why);
int hy_share_entries(const char *url, hy_share_entry_visit *visit, void *arg, struct hy_err *err);

/*
 * Replaces "…/Shared/OWNER::NAME" at the start of a path or URL by the real path. Returns 1 and the result, which the
 * caller frees, 2 when it is the data set itself, or 0: the path does not contain an entry. Locally no link is
 * followed on the way, and the target must still belong to the same user: -EPERM, -ELOOP.
 */
int hy_share_resolve(const char *url, char **ret, struct hy_err *err);
/*
 * Opens the data set of the entry `name`: *ret_target is its real path, to be freed, and *ret_dir its descriptor
 * (O_PATH), or -1 on other file systems. -ENOENT, -ENOTDIR: there is no such entry.
 */
int hy_share_open(const char *url, const char *name, char **ret_target, int *ret_dir, struct hy_err *err);
/* Whether an entry can be used. */
int hy_share_check(const struct hy_share_entry *e, struct hy_err *err);

/* ---- text ---------------------------------------------------------------------------------- */

/* The command for the receiver, quoted for a shell: "hopyard share accept --as NAME TARGET". NULL when out of memory.
 */
char *hy_share_accept_line(const char *project, const char *path);
/* How to remove the rights of a data set that was moved; NULL when out of memory. */
char *hy_share_missing_text(const struct hy_share_project *p, const char *path, const char *user);
/* As JSON, with their real paths; NULL when out of memory. `why`: as in hy_share_entry_visit. */
struct json_t;
struct json_t *hy_share_json(const char *project, const struct hy_share *s);
struct json_t *hy_share_entry_json(const struct hy_share_entry *e, const char *why);

/* Pure: the entry in `text`. -EINVAL when it was not written by hy_share_accept. */
int hy_share_entry_parse(const char *text, size_t n, struct hy_share_entry *ret, struct hy_err *err);
/* Pure: a name that is never listed, served or shared. */
bool hy_share_is_hidden(const char *name);

#endif
