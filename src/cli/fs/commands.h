/* SPDX-License-Identifier: Apache-2.0 */
/* `hopyard fs`: its commands and their helpers. They use only src/fs, so that all file systems behave alike. */
#ifndef HY_CLI_FS_COMMANDS_H
#define HY_CLI_FS_COMMANDS_H

#include "cli/options.h"
#include "cli/spec_internal.h"

struct hy_fs_info;

/* list.c */
int hy_files_ls(const struct hy_args *args);
int hy_files_stat(const struct hy_args *args);
int hy_files_du(const struct hy_args *args);
int hy_files_df(const struct hy_args *args);
/* read.c */
int hy_files_cat(const struct hy_args *args);
int hy_files_tail(const struct hy_args *args);
/* copy.c */
int hy_files_put(const struct hy_args *args);
int hy_files_get(const struct hy_args *args);
int hy_files_cp(const struct hy_args *args);
int hy_files_mv(const struct hy_args *args);
/* change.c */
int hy_files_rm(const struct hy_args *args);
int hy_files_mkdir(const struct hy_args *args);
int hy_files_touch(const struct hy_args *args);
int hy_files_chmod(const struct hy_args *args);
int hy_files_chown(const struct hy_args *args);

/* ---- helpers: fs.c ---- */

/* URLs, with patterns expanded. */
struct hy_urls {
    char **list;
    size_t count;
    const char *command; /* the command's name for error messages; NULL: "fs" */
};
void hy_urls_done(struct hy_urls *u);
#define hy_cleanup_urls __attribute__((cleanup(hy_urls_done)))

/*
 * Expands `count` words from the first-th on. A word that is the name of an existing file is that file, even if it
 * looks like a pattern, because the shell may have expanded it. A word without a match is an error, unless
 * `may_be_none`. Returns the exit status so far.
 */
int hy_files_expand(const struct hy_args *args, size_t first, size_t count, bool may_be_none, struct hy_urls *ret);

/* Calls `act` for each URL; prints errors and continues; 1 from `act` ends the loop. Returns the exit status. */
typedef int hy_files_act(void *arg, const char *url, struct hy_err *err);
int hy_files_each(const struct hy_urls *urls, hy_files_act *act, void *arg);
/* The same for all words from the first-th on. */
int hy_files_each_word(const struct hy_args *args, size_t first, hy_files_act *act, void *arg);

/* Prints the files, one after the other. Returns the exit status. */
int hy_files_print(const struct hy_urls *urls);

/* Prints "hopyard fs: …"; returns HY_EXIT_FAILED. */
int hy_files_print_error(const struct hy_err *err);
/* 0 if the parent directory exists. HDFS would create it, and so hide a typo. */
int hy_files_check_parent(const char *url, struct hy_err *err);

#endif
