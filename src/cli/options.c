/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/options.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/guess.h"
#include "base/mem.h"

const struct hy_option hy_common_options[] = {
    {.name = "project",
     .value = "DIR",
     .help = "project directory (default: $HOPYARD_PROJECT, or the current directory)"},
    {.name = "help", .letter = 'h', .help = "show this help"},
    {0},
};

const struct hy_option *hy_command_common(const struct hy_command *c)
{
    return c->common ? c->common : hy_common_options;
}

static bool is_text(const char *text, const char *name, size_t n)
{
    return text && strncmp(text, name, n) == 0 && !text[n];
}

static const struct hy_option *find_in(const struct hy_option *table, const char *name, size_t n, char letter)
{
    for (; table && table->name; table++)
        if (name ? is_text(table->name, name, n) : table->letter == letter)
            return table;
    return NULL;
}

static const struct hy_option *find_option(const struct hy_command *c, const char *name, size_t n, char letter)
{
    const struct hy_option *found = find_in(c->options, name, n, letter);

    return found ? found : find_in(hy_command_common(c), name, n, letter);
}

static int unknown_option(const struct hy_command *c, const char *name, size_t n, struct hy_err *err)
{
    char typed[HY_GUESS_MAX + 1];
    struct hy_guess guess;

    snprintf(typed, sizeof typed, "%.*s", (int)n, name);
    hy_guess_init(&guess, typed);
    for (const struct hy_option *o = c->options; o && o->name; o++)
        hy_guess_offer(&guess, o->name);
    for (const struct hy_option *o = hy_command_common(c); o->name; o++)
        hy_guess_offer(&guess, o->name);
    if (guess.best)
        return hy_err_set(err, -EINVAL, "unknown option --%s; did you mean --%s?", typed, guess.best);
    return hy_err_set(err, -EINVAL, "unknown option --%s; 'hopyard %s --help' lists the options", typed, c->name);
}

static int give(struct hy_args *args, const struct hy_option *option, const char *value, struct hy_err *err)
{
    if (option->refused)
        return hy_err_option(err, option->name, "is not supported: %s", option->refused);
    if (option->same)
        option = find_option(args->command, option->same, strlen(option->same), 0);
    if (!option->many && value && hy_args_has(args, option->name))
        return hy_err_option(err, option->name, "is given twice; give it only once");
    args->given[args->given_count++] = (struct hy_given){.option = option, .value = value};
    return 0;
}

static int needs_value(const struct hy_option *option, struct hy_err *err)
{
    return hy_err_option(err, option->name, "needs a value: --%s %s", option->name, option->value);
}

static int give_pair(struct hy_args *args, const struct hy_option *option, char **values, struct hy_err *err)
{
    int rc = give(args, option, values[0], err);

    if (rc == 0)
        args->given[args->given_count - 1].second = values[1];
    return rc;
}

/* Parses the value after the option's name; `equals` points to its '=', or is NULL. */
static int option_value(struct hy_args *args, const struct hy_option *option, const char *equals, int argc, char **argv,
                        int *at, struct hy_err *err)
{
    if (!option->value) {
        if (equals)
            return hy_err_option(err, option->name, "takes no value; remove '%s'", equals);
        return give(args, option, NULL, err);
    }
    if (equals)
        return equals[1] ? give(args, option, equals + 1, err) : needs_value(option, err);
    if (*at + 1 + option->pair >= argc || !*argv[*at + 1] || strncmp(argv[*at + 1], "--", 2) == 0)
        return needs_value(option, err);
    *at += 1 + option->pair;
    return option->pair ? give_pair(args, option, argv + *at - 1, err) : give(args, option, argv[*at], err);
}

static size_t name_length(const char *name, const char **ret_equals)
{
    *ret_equals = strchr(name, '=');
    return *ret_equals ? (size_t)(*ret_equals - name) : strlen(name);
}

/* "--name", "--name=value" or "--name value"; advances *at over the arguments it uses. */
static int long_option(struct hy_args *args, int argc, char **argv, int *at, struct hy_err *err)
{
    const char *name = argv[*at] + 2, *equals;
    size_t n = name_length(name, &equals);
    const struct hy_option *option = find_option(args->command, name, n, 0);

    if (!option)
        return unknown_option(args->command, name, n, err);
    return option_value(args, option, equals, argc, argv, at, err);
}

/* "-np 4": a whole name after one dash. 0: not such an option. */
static int dashed_option(struct hy_args *args, int argc, char **argv, int *at, struct hy_err *err)
{
    const char *name = argv[*at] + 1, *equals;
    size_t n = name_length(name, &equals);
    int rc;

    for (const struct hy_option *o = args->command->options; o && o->name; o++) {
        if (!is_text(o->dash, name, n))
            continue;
        rc = option_value(args, o, equals, argc, argv, at, err);
        return rc < 0 ? rc : 1;
    }
    return 0;
}

/* "-f", "-fx" (two flags), "-n5" or "-n 5". */
static int short_options(struct hy_args *args, int argc, char **argv, int *at, struct hy_err *err)
{
    const char *letters = argv[*at] + 1;
    int found = dashed_option(args, argc, argv, at, err);

    if (found)
        return found < 0 ? found : 0;
    for (; *letters; letters++) {
        const struct hy_option *option = find_option(args->command, NULL, 0, *letters);
        int rc;

        if (!option)
            return hy_err_set(err, -EINVAL, "unknown option '%s'; 'hopyard %s --help' lists the options", argv[*at],
                              args->command->name);
        if (option->value) {
            if (letters[1])
                return give(args, option, letters + 1, err);
            return *at + 1 < argc ? give(args, option, argv[++*at], err) : needs_value(option, err);
        }
        /* One argument may hold a flag per letter: hy_args_parse allocates room for each letter. */
        rc = give(args, option, NULL, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int check_words(const struct hy_args *args, struct hy_err *err)
{
    const struct hy_command *c = args->command;

    if (c->takes_rest && args->word_count)
        return hy_err_set(err, -EINVAL,
                          "unexpected argument '%s'; put the command to run after --, for example: "
                          "hopyard %s … -- ./train --lr {lr}",
                          args->words[0], c->name);
    if (c->max_words >= 0 && args->word_count > (size_t)c->max_words)
        return hy_err_set(err, -EINVAL, "unexpected argument '%s'; usage: hopyard %s %s", args->words[c->max_words],
                          c->name, c->words);
    if (args->word_count < (size_t)c->min_words)
        return hy_err_set(err, -EINVAL, "missing argument; usage: hopyard %s %s", c->name, c->words);
    return 0;
}

static int parse(struct hy_args *args, int argc, char **argv, struct hy_err *err)
{
    int rc = 0;

    for (int i = 0; i < argc && rc == 0; i++) {
        if (args->rest && !args->command->takes_rest)
            args->words[args->word_count++] = argv[i];
        else if (strcmp(argv[i], "--") == 0) {
            args->rest = argv + i + 1;
            if (args->command->takes_rest)
                break;
        } else if (strncmp(argv[i], "--", 2) == 0)
            rc = long_option(args, argc, argv, &i, err);
        else if (argv[i][0] == '-' && argv[i][1])
            rc = short_options(args, argc, argv, &i, err);
        else if (args->command->bare_rest) {
            args->rest = argv + i;
            break;
        } else
            args->words[args->word_count++] = argv[i];
    }
    args->help = hy_args_has(args, "help");
    return rc < 0 || args->help ? rc : check_words(args, err);
}

int hy_args_parse(const struct hy_command *command, int argc, char **argv, struct hy_args *ret, struct hy_err *err)
{
    size_t room = 1;
    int rc;

    *ret = (struct hy_args){.command = command};
    for (int i = 0; i < argc; i++) {
        room += argv[i][0] == '-' && argv[i][1] != '-' ? strlen(argv[i]) : 1;
        if (strcmp(argv[i], "--") == 0)
            room += (size_t)(argc - i);
    }
    ret->given = hy_calloc(room, sizeof *ret->given);
    ret->words = hy_calloc(room, sizeof *ret->words);
    rc = ret->given && ret->words ? parse(ret, argc, argv, err) : hy_err_oom(err);
    if (rc < 0)
        hy_args_done(ret);
    return rc;
}

int hy_args_begin(const struct hy_command *command, size_t room, struct hy_args *ret, struct hy_err *err)
{
    *ret = (struct hy_args){.command = command};
    ret->given = hy_calloc(room + 1, sizeof *ret->given);
    ret->words = hy_calloc(2, sizeof *ret->words);
    if (ret->given && ret->words)
        return 0;
    hy_args_done(ret);
    return hy_err_oom(err);
}

int hy_args_add(struct hy_args *args, const char *name, const char *value, struct hy_err *err)
{
    const struct hy_option *option = find_option(args->command, name, strlen(name), 0);

    if (!option || option->pair)
        return unknown_option(args->command, name, strlen(name), err);
    if (option->value && !*value)
        return hy_err_option(err, option->name, "needs a value: %s", option->value);
    if (!option->value && *value)
        return hy_err_option(err, option->name, "takes no value; remove '%s'", value);
    return give(args, option, option->value ? value : NULL, err);
}

void hy_args_done(struct hy_args *args)
{
    free(args->given);
    free(args->words);
    *args = (struct hy_args){0};
}

const char *hy_args_next(const struct hy_args *args, const char *name, size_t *cursor)
{
    while (*cursor < args->given_count) {
        const struct hy_given *g = &args->given[(*cursor)++];

        if (strcmp(g->option->name, name) == 0)
            return g->value ? g->value : "";
    }
    return NULL;
}

const char *hy_args_get(const struct hy_args *args, const char *name)
{
    const char *value, *found = NULL;
    size_t cursor = 0;

    while ((value = hy_args_next(args, name, &cursor)))
        found = value;
    return found;
}

const char *hy_args_second(const struct hy_args *args, const char *name)
{
    const char *found = NULL;

    for (size_t i = 0; i < args->given_count; i++)
        if (strcmp(args->given[i].option->name, name) == 0)
            found = args->given[i].second;
    return found;
}

const struct hy_option *hy_option_find(const struct hy_option *table, const char *name)
{
    return find_in(table, name, strlen(name), 0);
}

bool hy_args_has(const struct hy_args *args, const char *name)
{
    return hy_args_get(args, name) != NULL;
}

const char *hy_args_word(const struct hy_args *args, size_t n)
{
    return n < args->word_count ? args->words[n] : NULL;
}
