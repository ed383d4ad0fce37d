/* SPDX-License-Identifier: Apache-2.0 */
/* The commands: their table, their help, and their functions. */
#ifndef HY_CLI_COMMANDS_H
#define HY_CLI_COMMANDS_H

#include "cli/options.h"
#include "view/view.h"

extern const struct hy_command hy_commands[];
extern const struct hy_option hy_train_options[]; /* train_options.c */

/* NULL if the command does not exist. */
const struct hy_command *hy_command_find(const char *name);

/* The list of all commands, with an introduction. */
void hy_help_all(struct hy_out *out);
/* The help of one command. */
void hy_help_command(struct hy_out *out, const struct hy_command *c);
/* The help of a command with subcommands. */
void hy_help_group(struct hy_out *out, const struct hy_command *c, const struct hy_command *table);

/* Runs a command with subcommands, whose names start with its own name. Returns the exit status. */
int hy_subcommand_main(const struct hy_command *group, const struct hy_command *commands, int argc, char **argv);

/* Common to `run` and `train`. */
#define HY_ENGINE_OPTIONS                                                                                              \
    {.name = "engine", .value = "MASTER", .help = "run on a Spark cluster: spark://HOST:7077 or yarn"},                \
        {.name = "executors", .value = "N", .help = "with --engine: number of executors (default: as configured)"},    \
        {.name = "executor-memory", .value = "MB", .help = "with --engine: memory per executor"},                      \
        {.name = "executor-gpus", .value = "N", .help = "with --engine: GPUs per executor"},                           \
        {.name = "address",                                                                                            \
         .value = "ADDR",                                                                                              \
         .help = "with --engine: this machine's address for executors (default: of the route to the cluster)"}

int hy_cmd_run(const struct hy_args *args);
int hy_cmd_train(const struct hy_args *args);
int hy_cmd_attach(const struct hy_args *args);
int hy_cmd_ls(const struct hy_args *args);
int hy_cmd_show(const struct hy_args *args);
int hy_cmd_best(const struct hy_args *args);
int hy_cmd_logs(const struct hy_args *args);
int hy_cmd_tensorboard(const struct hy_args *args);
int hy_cmd_ui(const struct hy_args *args);
int hy_cmd_notebook(const struct hy_args *args);
int hy_cmd_stop(const struct hy_args *args);
int hy_cmd_resume(const struct hy_args *args);
int hy_cmd_rm(const struct hy_args *args);
int hy_cmd_gc(const struct hy_args *args);
int hy_cmd_import(const struct hy_args *args);
int hy_cmd_driver(int argc, char **argv); /* submit.c */
int hy_fs_main(int argc, char **argv);
int hy_records_main(int argc, char **argv);
int hy_share_main(int argc, char **argv);
int hy_cmd_version(const struct hy_args *args);
int hy_cmd_help(const struct hy_args *args);

/* Prints the error of a command and returns its exit status: usage for -EINVAL, failed for all others. */
int hy_cmd_failed(const struct hy_args *args, const struct hy_err *err);

#endif
