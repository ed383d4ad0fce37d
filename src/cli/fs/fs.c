/* SPDX-License-Identifier: Apache-2.0 */
/* `hopyard fs`: the table of its commands, and the expansion of patterns. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/fs/commands.h"
#include "fs/fs.h"
#include "share/share.h"

/* ---- the table --------------------------------------------------------------------- */

static const struct hy_option help_only[] = {
    {.name = "help", .letter = 'h', .help = "show this help"},
    {0},
};

/* For commands with -h for human-readable sizes. */
static const struct hy_option long_help_only[] = {
    {.name = "help", .help = "show this help"},
    {0},
};

#define HUMAN {.name = "human", .letter = 'h', .help = "print sizes as 4.1 GB"}
#define FORCE {.name = "force", .letter = 'f', .help = "replace existing files"}
#define ALL_BELOW(what) {.name = "recursive", .letter = 'R', .help = what}

static const struct hy_option ls_options[] = {
    ALL_BELOW("directories and their content"),
    {.name = "directory", .letter = 'd', .help = "list directories themselves, not their content"},
    HUMAN,
    {.name = "json", .help = "print JSON"},
    {.name = "long", .letter = 'l'}, /* accepted for habit: the list is always long */
    {0},
};

static const struct hy_option json_options[] = {
    {.name = "json", .help = "print JSON"},
    {0},
};

static const struct hy_option du_options[] = {
    {.name = "summarize", .letter = 's', .help = "print one sum per PATH"},
    HUMAN,
    {0},
};

static const struct hy_option df_options[] = {
    HUMAN,
    {0},
};

static const struct hy_option tail_options[] = {
    {.name = "bytes", .letter = 'c', .value = "N", .help = "number of bytes such as 500 or 64K (default: 1K)"},
    {.name = "follow", .letter = 'f', .help = "print new data as the file grows, until Ctrl-C"},
    {0},
};

static const struct hy_option force_options[] = {
    FORCE,
    {0},
};

static const struct hy_option cp_options[] = {
    FORCE,
    {.name = "recursive", .letter = 'r', .help = "directories and their content"},
    {.name = "R", .letter = 'R', .same = "recursive"},
    {0},
};

static const struct hy_option rm_options[] = {
    {.name = "recursive", .letter = 'r', .help = "directories and their content"},
    {.name = "R", .letter = 'R', .same = "recursive"},
    {.name = "force", .letter = 'f', .help = "ignore missing files"},
    {0},
};

static const struct hy_option mkdir_options[] = {
    {.name = "parents", .letter = 'p', .help = "create parent directories; ignore existing directories"},
    {0},
};

static const struct hy_option below_options[] = {
    ALL_BELOW("directories and their content"),
    {0},
};

#define LISTING "Listing and reading"
#define COPYING "Copying"
#define CHANGING "Creating, removing and permissions"

static const struct hy_command commands[] = {
    {.name = "fs ls",
     .group = LISTING,
     .words = "[PATH…]",
     .options = ls_options,
     .common = long_help_only,
     .max_words = -1,
     .run = hy_files_ls,
     .summary = "list files and directories",
     .about = "Prints permissions, replicas, owner, group, size, modification time and path.",
     .examples = "hopyard fs ls hdfs://namenode/Projects/demo\nhopyard fs ls -R -h 'hdfs:///logs/2026-*/*.csv'"},
    {.name = "fs stat",
     .group = LISTING,
     .words = "PATH…",
     .options = json_options,
     .common = help_only,
     .min_words = 1,
     .max_words = -1,
     .run = hy_files_stat,
     .summary = "show the status of files",
     .examples = "hopyard fs stat hdfs:///data/train.tfrecords\nhopyard fs stat --json model.keras"},
    {.name = "fs du",
     .group = LISTING,
     .words = "[PATH…]",
     .options = du_options,
     .common = long_help_only,
     .max_words = -1,
     .run = hy_files_du,
     .summary = "show the disk usage of directories",
     .about = "Prints bytes, bytes with all replicas, and path, for each entry of a directory.",
     .examples = "hopyard fs du -h hdfs:///Projects\nhopyard fs du -s -h hdfs:///Projects/demo Logs"},
    {.name = "fs df",
     .group = LISTING,
     .words = "[PATH…]",
     .options = df_options,
     .common = long_help_only,
     .max_words = -1,
     .run = hy_files_df,
     .summary = "show the free space of file systems",
     .examples = "hopyard fs df -h hdfs:///\nhopyard fs df . /tmp"},
    {.name = "fs cat",
     .group = LISTING,
     .words = "PATH…",
     .common = help_only,
     .min_words = 1,
     .max_words = -1,
     .run = hy_files_cat,
     .summary = "print files",
     .examples = "hopyard fs cat hdfs:///data/part-*\nhopyard fs cat hdfs:///data/a.csv.gz | gunzip | head"},
    {.name = "fs tail",
     .group = LISTING,
     .words = "PATH",
     .options = tail_options,
     .common = help_only,
     .min_words = 1,
     .max_words = 1,
     .run = hy_files_tail,
     .summary = "print the end of a file",
     .examples = "hopyard fs tail -c 64K hdfs:///logs/app.log\nhopyard fs tail -f hdfs:///logs/app.log"},
    {.name = "fs put",
     .group = COPYING,
     .words = "LOCAL… PATH",
     .options = force_options,
     .common = help_only,
     .min_words = 2,
     .max_words = -1,
     .run = hy_files_put,
     .summary = "copy local files and directories to a file system",
     .about = "Copies into PATH if that is a directory. A copy has a temporary name until it\n"
              "is complete. - is standard input.",
     .examples = "hopyard fs put data/*.csv hdfs:///Projects/demo/Resources\n"
                 "zcat a.csv.gz | hopyard fs put -f - hdfs:///Projects/demo/Resources/a.csv"},
    {.name = "fs get",
     .group = COPYING,
     .words = "PATH… LOCAL",
     .options = force_options,
     .common = help_only,
     .min_words = 2,
     .max_words = -1,
     .run = hy_files_get,
     .summary = "copy files and directories from a file system",
     .about = "Copies into LOCAL if that is a directory. A copy has a temporary name until it\n"
              "is complete. - is standard output.",
     .examples = "hopyard fs get 'hdfs:///Projects/demo/Models/*.keras' .\n"
                 "hopyard fs get hdfs:///Projects/demo/Resources/a.csv - | head"},
    {.name = "fs cp",
     .group = COPYING,
     .words = "PATH… PATH",
     .options = cp_options,
     .common = help_only,
     .min_words = 2,
     .max_words = -1,
     .run = hy_files_cp,
     .summary = "copy files, within and between file systems",
     .about = "Copies into the last PATH if that is a directory. A copy has a temporary name\n"
              "until it is complete.",
     .examples = "hopyard fs cp hdfs:///data/a hdfs:///data/b\n"
                 "hopyard fs cp -r hdfs://one/data hdfs://two/backup"},
    {.name = "fs mv",
     .group = COPYING,
     .words = "PATH… PATH",
     .options = force_options,
     .common = help_only,
     .min_words = 2,
     .max_words = -1,
     .run = hy_files_mv,
     .summary = "rename or move files and directories",
     .about = "Moves into the last PATH if that is a directory. Between local files and HDFS it\n"
              "copies and removes.",
     .examples = "hopyard fs mv hdfs:///data/new hdfs:///data/old\nhopyard fs mv 'hdfs:///in/*' hdfs:///done"},
    {.name = "fs rm",
     .group = CHANGING,
     .words = "PATH…",
     .options = rm_options,
     .common = help_only,
     .min_words = 1,
     .max_words = -1,
     .run = hy_files_rm,
     .summary = "remove files and directories",
     .examples = "hopyard fs rm hdfs:///data/a.csv\nhopyard fs rm -r 'hdfs:///tmp/2026-*'"},
    {.name = "fs mkdir",
     .group = CHANGING,
     .words = "PATH…",
     .options = mkdir_options,
     .common = help_only,
     .min_words = 1,
     .max_words = -1,
     .run = hy_files_mkdir,
     .summary = "create directories",
     .examples = "hopyard fs mkdir hdfs:///data/new\nhopyard fs mkdir -p hdfs:///data/2026/11/15"},
    {.name = "fs touch",
     .group = CHANGING,
     .words = "PATH…",
     .common = help_only,
     .min_words = 1,
     .max_words = -1,
     .run = hy_files_touch,
     .summary = "create empty files",
     .about = "Existing files stay unchanged, including their modification time.",
     .examples = "hopyard fs touch hdfs:///data/_SUCCESS\nhopyard fs touch a b"},
    {.name = "fs chmod",
     .group = CHANGING,
     .words = "RIGHTS PATH…",
     .options = below_options,
     .common = help_only,
     .min_words = 2,
     .max_words = -1,
     .run = hy_files_chmod,
     .summary = "change permissions",
     .about = "RIGHTS are permissions such as 750, u+x, go-w, a=rX or u=rwx,go=.",
     .examples = "hopyard fs chmod 750 hdfs:///Projects/demo\nhopyard fs chmod -R go-w,a+rX hdfs:///Projects/demo"},
    {.name = "fs chown",
     .group = CHANGING,
     .words = "[OWNER][:GROUP] PATH…",
     .options = below_options,
     .common = help_only,
     .min_words = 2,
     .max_words = -1,
     .run = hy_files_chown,
     .summary = "change the owner and group of files",
     .examples = "hopyard fs chown -R alice:demo hdfs:///Projects/demo\nhopyard fs chown :staff hdfs:///data"},
    {0},
};

static const struct hy_command fs = {
    .name = "fs",
    .words = "COMMAND PATH…",
    .summary = "local files and files on HDFS",
    .about = "A PATH is local (data/a.csv, file:///data/a.csv) or on HDFS:\n"
             "hdfs://namenode:8020/a, hdfs://nameservice/a, or hdfs:///a for the cluster in\n"
             "core-site.xml of $HADOOP_CONF_DIR. In paths to read, move or remove, *, ?,\n"
             "[a-z], [^a] and {a,b} match names, including hidden ones; quote patterns, so\n"
             "that the shell does not expand them, and escape special characters with \\.\n"
             "Shared/OWNER::NAME is a data set shared by another user (`hopyard share`).\n"
             "\n"
             "Exit status: 0 success, 1 an operation failed, 2 invalid usage.",
    .examples = "hopyard fs put -f train.csv hdfs://namenode/Projects/demo/Resources\n"
                "hopyard fs ls -h 'hdfs://namenode/Projects/demo/Models/*.keras'",
};

/* ---- paths through Shared/OWNER::NAME ------------------------------------------------------ */

/* Whether the command would remove or move the argument: not allowed for the data set of another user. */
static bool is_removed_or_moved(int argc, char **argv, int i)
{
    return strcmp(argv[1], "rm") == 0 || (strcmp(argv[1], "mv") == 0 && i < argc - 1);
}

/* Replaces such arguments by real paths; `made` owns them. */
static int resolve_shares(int argc, char **argv, struct hy_urls *made, struct hy_err *err)
{
    for (int i = 2; i < argc; i++) {
        char *real = NULL;
        int rc = hy_share_resolve(argv[i], &real, err);

        if (rc < 0)
            return rc;
        if (rc == 0)
            continue;
        if (hy_array_grow(made->list, made->count) < 0) {
            free(real);
            return hy_err_oom(err);
        }
        made->list[made->count++] = real;
        if (rc == 2 && is_removed_or_moved(argc, argv, i))
            return hy_err_set(err, -EPERM,
                              "%s is %s, a data set of another project; `hopyard share remove` removes only the share",
                              argv[i], real);
        argv[i] = real;
    }
    return 0;
}

int hy_fs_main(int argc, char **argv)
{
    hy_cleanup_urls struct hy_urls made = {0};
    struct hy_err err = {0};

    if (resolve_shares(argc, argv, &made, &err) < 0)
        return hy_files_print_error(&err);
    return hy_subcommand_main(&fs, commands, argc, argv);
}

/* ---- expansion of patterns ----------------------------------------------------------- */

int hy_files_print_error(const struct hy_err *err)
{
    hy_print_error("fs", err);
    return HY_EXIT_FAILED;
}

static int print_error_for(const struct hy_urls *urls, const struct hy_err *err)
{
    hy_print_error(urls->command ? urls->command : "fs", err);
    return HY_EXIT_FAILED;
}

void hy_urls_done(struct hy_urls *u)
{
    for (size_t i = 0; i < u->count; i++)
        free(u->list[i]);
    free(u->list);
    *u = (struct hy_urls){0};
}

static int urls_add(struct hy_urls *u, const char *url, struct hy_err *err)
{
    if (hy_array_grow(u->list, u->count) < 0)
        return hy_err_oom(err);
    u->list[u->count] = hy_strdup(url);
    return u->list[u->count] ? (u->count++, 0) : hy_err_oom(err);
}

static int take_match(void *arg, const char *url, const struct hy_fs_info *info, struct hy_err *err)
{
    (void)info;
    return urls_add(arg, url, err);
}

static int expand(struct hy_urls *urls, const char *word, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    const size_t before = urls->count;
    int rc;

    if (!strpbrk(word + hy_url_root(word), "*?[{\\"))
        return urls_add(urls, word, err);
    rc = hy_fs_stat(word, &info, err);
    if (rc != -ENOENT && rc != -ENOTDIR)
        return rc < 0 ? rc : urls_add(urls, word, err);
    rc = hy_fs_glob(word, take_match, urls, err);
    if (rc == 0 && urls->count == before)
        return hy_err_set(err, -ENOENT, "%s matches no files", word);
    return rc;
}

int hy_files_expand(const struct hy_args *args, size_t first, size_t count, bool may_be_none, struct hy_urls *ret)
{
    int status = HY_EXIT_OK;

    *ret = (struct hy_urls){.command = strncmp(args->command->name, "fs ", 3) == 0 ? NULL : args->command->name};
    for (size_t i = first; i < first + count; i++) {
        struct hy_err err = {0};

        int rc = expand(ret, args->words[i], &err);

        if (rc < 0 && (rc != -ENOENT || !may_be_none))
            status = print_error_for(ret, &err);
    }
    return status;
}

int hy_files_each(const struct hy_urls *urls, hy_files_act *act, void *arg)
{
    int status = HY_EXIT_OK, rc = 0;

    for (size_t i = 0; i < urls->count && rc <= 0; i++) {
        struct hy_err err = {0};

        rc = act(arg, urls->list[i], &err);
        if (rc < 0)
            status = print_error_for(urls, &err);
    }
    return status;
}

int hy_files_each_word(const struct hy_args *args, size_t first, hy_files_act *act, void *arg)
{
    hy_cleanup_urls struct hy_urls urls = {0};
    int status = hy_files_expand(args, first, args->word_count - first, false, &urls);

    return hy_files_each(&urls, act, arg) == HY_EXIT_OK ? status : HY_EXIT_FAILED;
}

int hy_files_check_parent(const char *url, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    hy_cleanup_free char *parent = hy_url_parent(url);
    int rc = parent ? hy_fs_stat(parent, &info, err) : hy_err_oom(err);

    if (rc == -ENOENT)
        return hy_err_set(err, rc, "cannot create %s: its parent directory does not exist", url);
    if (rc == 0 && !info.is_dir)
        return hy_err_set(err, -ENOTDIR, "cannot create %s: %s is a file, not a directory", url, parent);
    return rc;
}
