/* SPDX-License-Identifier: Apache-2.0 */
/* The commands: their table, their help, and what they do (one file or two each). */
#ifndef HY_CLI_COMMANDS_H
#define HY_CLI_COMMANDS_H

#include "cli/options.h"
#include "view/view.h"

extern const struct hy_command hy_commands[];
extern const struct hy_option hy_train_options[]; /* they fill a file of their own */

/* NULL when there is none of that name. */
const struct hy_command *hy_command_find(const char *name);

/* All of them, with a first lesson. */
void hy_help_all(struct hy_out *out);
/* One of them, from its table. */
void hy_help_command(struct hy_out *out, const struct hy_command *c);
/* One that has commands of its own. */
void hy_help_group(struct hy_out *out, const struct hy_command *c, const struct hy_command *table);

/* The whole of one whose commands are these; their names begin with its own. Returns the exit status. */
int hy_subcommand_main(const struct hy_command *group, const struct hy_command *commands, int argc, char **argv);

/* Of `run` and `train`. */
#define HY_ENGINE_OPTIONS                                                                                    \
    {.name = "engine", .value = "MASTER", .help = "run on a Spark cluster: spark://HOST:7077 or yarn"},      \
    {.name = "executors", .value = "N", .help = "with --engine: number of executors (default: as configured)"},  \
    {.name = "executor-memory", .value = "MB", .help = "with --engine: memory per executor"},                     \
    {.name = "executor-gpus", .value = "N", .help = "with --engine: GPUs per executor"},                          \
    {.name = "address", .value = "ADDR",                                                                     \
     .help = "with --engine: this machine's address for executors (default: of the route to the cluster)"}

int hy_cmd_run(const struct hy_args *args);
int hy_cmd_train(const struct hy_args *args);
int hy_cmd_attach(const struct hy_args *args);
int hy_cmd_supply(const struct hy_args *args);
int hy_cmd_ls(const struct hy_args *args);
int hy_cmd_show(const struct hy_args *args);
int hy_cmd_best(const struct hy_args *args);
int hy_cmd_logs(const struct hy_args *args);
int hy_cmd_tensorboard(const struct hy_args *args);
int hy_cmd_stop(const struct hy_args *args);
int hy_cmd_resume(const struct hy_args *args);
int hy_cmd_rm(const struct hy_args *args);
int hy_cmd_gc(const struct hy_args *args);
int hy_cmd_import(const struct hy_args *args);
int hy_fs_main(int argc, char **argv);
int hy_records_main(int argc, char **argv);
int hy_cmd_version(const struct hy_args *args);
int hy_cmd_help(const struct hy_args *args);

/* Complains about a failed command and returns its exit status: usage for
 * -EINVAL, failed for the rest. */
int hy_cmd_failed(const struct hy_args *args, const struct hy_err *err);

#endif
