/* SPDX-License-Identifier: Apache-2.0 */
/* `hopyard fs`: its commands, and what they share. All of it by src/fs, so that every file system looks the same. */
#ifndef HY_CLI_FS_COMMANDS_H
#define HY_CLI_FS_COMMANDS_H

#include "cli/options.h"
#include "cli/spec_internal.h" /* hy_no_memory */

struct hy_fs_info;

/* fs_look.c */
int hy_files_ls(const struct hy_args *args);
int hy_files_stat(const struct hy_args *args);
int hy_files_du(const struct hy_args *args);
int hy_files_df(const struct hy_args *args);
/* fs_read.c */
int hy_files_cat(const struct hy_args *args);
int hy_files_tail(const struct hy_args *args);
/* fs_copy.c */
int hy_files_put(const struct hy_args *args);
int hy_files_get(const struct hy_args *args);
int hy_files_cp(const struct hy_args *args);
int hy_files_mv(const struct hy_args *args);
/* fs_change.c */
int hy_files_rm(const struct hy_args *args);
int hy_files_mkdir(const struct hy_args *args);
int hy_files_touch(const struct hy_args *args);
int hy_files_chmod(const struct hy_args *args);
int hy_files_chown(const struct hy_args *args);

/* ---- what they share: fs.c ---- */

/* URLs, those that patterns stand for among them. */
struct hy_urls {
    char **list;
    size_t count;
    const char *whose; /* complaints: "fs" if it is not said */
    size_t room;       /* private */
};
void hy_urls_done(struct hy_urls *u);
#define hy_cleanup_urls __attribute__((cleanup(hy_urls_done)))

/*
 * The URLs that `count` words from the first-th on stand for. What is there under a word's own name is meant, also
 * where it could be a pattern: a shell has put in names of files. A word that matches nothing is complained about,
 * unless it may. Returns the exit status so far.
 */
int hy_files_expand(const struct hy_args *args, size_t first, size_t count, bool may_be_none, struct hy_urls *ret);

/* Does it with each of them, complains about failures and goes on; 1 from `act` ends it. Returns the exit status. */
typedef int hy_files_act(void *arg, const char *url, struct hy_err *err);
int hy_files_each(const struct hy_urls *urls, hy_files_act *act, void *arg);
/* The same for all words from the first-th on. */
int hy_files_each_word(const struct hy_args *args, size_t first, hy_files_act *act, void *arg);

/* Prints them, one after the other. Returns the exit status. */
int hy_files_print(const struct hy_urls *urls);

/* "hopyard fs: …"; always HY_EXIT_FAILED. */
int hy_files_print_error(const struct hy_err *err);
/* 0 when the folder that it lies in is there; HDFS would make it, and a typing error with it. */
int hy_files_check_parent(const char *url, struct hy_err *err);

#endif
