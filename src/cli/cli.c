/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/guess.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/private.h"
#include "cli/commands.h"
#include "view/view.h"

int hy_cmd_failed(const struct hy_args *args, const struct hy_err *err)
{
    hy_print_error(args->command->name, err);
    return err->code == -EINVAL ? HY_EXIT_USAGE : HY_EXIT_FAILED;
}

static int print_help(const struct hy_command *c)
{
    hy_cleanup_out struct hy_out out = {0};
    struct hy_style style;

    hy_style_of(STDOUT_FILENO, &style);
    hy_out_init(&out, &style);
    if (c)
        hy_help_command(&out, c);
    else
        hy_help_all(&out);
    return hy_out_flush(&out, STDOUT_FILENO) < 0 ? HY_EXIT_FAILED : HY_EXIT_OK;
}

static int unknown_command(const char *name)
{
    struct hy_err err = {0};
    struct hy_guess guess;

    hy_guess_init(&guess, name);
    for (const struct hy_command *c = hy_commands; c->name; c++)
        if (strcmp(c->name, "driver") != 0)
            hy_guess_offer(&guess, c->name);
    if (guess.best)
        hy_err_set(&err, -EINVAL, "unknown command '%s'; did you mean '%s'?", name, guess.best);
    else
        hy_err_set(&err, -EINVAL, "unknown command '%s'; 'hopyard help' lists the commands", name);
    hy_print_error(NULL, &err);
    return HY_EXIT_USAGE;
}

/* Commands that parse their own arguments print their own help. */
static int explain(const struct hy_command *c)
{
    char *argv[] = {(char *)c->name, (char *)"--help", NULL};

    return c->raw ? c->raw(2, argv) : print_help(c);
}

int hy_cmd_help(const struct hy_args *args)
{
    const char *name = hy_args_word(args, 0);
    const struct hy_command *c = name ? hy_command_find(name) : NULL;

    if (!name)
        return print_help(NULL);
    return c ? explain(c) : unknown_command(name);
}

int hy_cmd_version(const struct hy_args *args)
{
    (void)args;
    return printf("hopyard %s\n", HY_VERSION) < 0 || fflush(stdout) ? HY_EXIT_FAILED : HY_EXIT_OK;
}

static int run_command(const struct hy_command *c, int argc, char **argv)
{
    hy_cleanup_args struct hy_args args = {0};
    struct hy_err err = {0};

    if (c->raw)
        return c->raw(argc, argv);
    hy_private_notes_to(hy_print_note);
    if (hy_args_parse(c, argc - 1, argv + 1, &args, &err) < 0) {
        hy_print_error(c->name, &err);
        return HY_EXIT_USAGE;
    }
    return args.help ? print_help(c) : c->run(&args);
}

/* A link to the program under this name replaces Horovod's launcher. */
static bool is_horovodrun(const char *program)
{
    const char *slash = program ? strrchr(program, '/') : NULL;

    return program && strcmp(slash ? slash + 1 : program, "horovodrun") == 0;
}

int hy_cli_main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "--help";
    const struct hy_command *c;

    hy_style_init();
    hy_json_init();
    if (is_horovodrun(argv[0]))
        return run_command(hy_command_find("horovodrun"), argc, argv);
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return print_help(NULL);
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        name = "version";
    c = hy_command_find(name);
    return c ? run_command(c, argc - 1, argv + 1) : unknown_command(name);
}
