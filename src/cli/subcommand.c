/* SPDX-License-Identifier: Apache-2.0 */
/* Commands with subcommands: `hopyard fs ls`, `hopyard records head`. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/guess.h"
#include "cli/cli.h"
#include "cli/commands.h"

/* "ls" of "fs ls". */
static const char *short_name(const struct hy_command *group, const struct hy_command *c)
{
    return c->name + strlen(group->name) + 1;
}

/* "ls", or "-ls" as after `hdfs dfs`. */
static const struct hy_command *find(const struct hy_command *group, const struct hy_command *commands,
                                     const char *name)
{
    name += *name == '-';
    for (const struct hy_command *c = commands; c->name; c++)
        if (strcmp(short_name(group, c), name) == 0)
            return c;
    return NULL;
}

static int unknown(const struct hy_command *group, const struct hy_command *commands, const char *name)
{
    struct hy_err err = {0};
    struct hy_guess guess;

    hy_guess_init(&guess, name);
    for (const struct hy_command *c = commands; c->name; c++)
        hy_guess_offer(&guess, short_name(group, c));
    if (guess.best)
        hy_err_set(&err, -EINVAL, "unknown command '%s'; did you mean '%s'?", name, guess.best);
    else
        hy_err_set(&err, -EINVAL, "unknown command '%s'; 'hopyard %s --help' lists the commands", name, group->name);
    hy_print_error(group->name, &err);
    return HY_EXIT_USAGE;
}

static int print_help(const struct hy_command *group, const struct hy_command *commands, const struct hy_command *c)
{
    hy_cleanup_out struct hy_out out = {0};
    struct hy_style style;

    hy_style_of(STDOUT_FILENO, &style);
    hy_out_init(&out, &style);
    if (c)
        hy_help_command(&out, c);
    else
        hy_help_group(&out, group, commands);
    return hy_out_flush(&out, STDOUT_FILENO) < 0 ? HY_EXIT_FAILED : HY_EXIT_OK;
}

static bool asks_for_help(const char *word)
{
    return strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 ||
           strcmp(word, "-help") == 0;
}

int hy_subcommand_main(const struct hy_command *group, const struct hy_command *commands, int argc, char **argv)
{
    hy_cleanup_args struct hy_args args = {0};
    const struct hy_command *c;
    struct hy_err err = {0};

    if (argc < 2 || asks_for_help(argv[1])) {
        c = argc > 2 ? find(group, commands, argv[2]) : NULL;
        return argc > 2 && !c ? unknown(group, commands, argv[2]) : print_help(group, commands, c);
    }
    c = find(group, commands, argv[1]);
    if (!c)
        return unknown(group, commands, argv[1]);
    if (hy_args_parse(c, argc - 2, argv + 2, &args, &err) < 0) {
        hy_print_error(c->name, &err);
        return HY_EXIT_USAGE;
    }
    return args.help ? print_help(group, commands, c) : c->run(&args);
}
