/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a person may type: commands and options as tables, and the parser that
 * reads an argument list by them. Pure: nothing is printed or looked up here.
 */
#ifndef HY_CLI_OPTIONS_H
#define HY_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct hy_option {
    const char *name;  /* "grid": typed as --grid; NULL ends a table */
    const char *value; /* "NAME=V,V": the placeholder of its value; NULL: a flag */
    const char *help;  /* NULL: for programs, not shown */
    char letter; /* 'f': -f too; 0: none */
    bool many;   /* may be given more than once */
    bool pair;   /* a second value follows */
    /* What others' command lines have, and this one puts up with: */
    const char *dash;    /* "np": typed as -np too */
    const char *same;    /* this is another name of that option of the table */
    const char *nothing; /* it is taken and means nothing, and this says why */
    const char *refused; /* it is not taken, and this says what to do instead */
};

struct hy_args;

struct hy_command {
    const char *name;     /* NULL ends a table */
    const char *group;    /* the heading it stands under; NULL: not shown */
    const char *words;    /* "[RUN] [TRIAL]" */
    const char *summary;  /* one line */
    const char *about;    /* paragraphs; NULL: the summary is all */
    const char *examples; /* lines; NULL: none */
    const struct hy_option *options;
    const struct hy_option *common;         /* instead of those that every command takes; NULL: these */
    int min_words, max_words;               /* -1: any number */
    bool takes_rest;                        /* a command of the user's follows "--" ... */
    bool bare_rest;                         /* ... or begins with the first word */
    bool owns;                              /* the run that it starts ends with it, however that happens */
    int (*run)(const struct hy_args *args); /* returns the exit status */
    int (*raw)(int argc, char **argv);      /* reads its arguments itself */
};

struct hy_given {
    const struct hy_option *option;
    const char *value; /* NULL for a flag */
    const char *second; /* of a pair; NULL: there is none */
};

/* Texts are borrowed from argv. */
struct hy_args {
    const struct hy_command *command;
    struct hy_given *given; /* in the order they were typed */
    size_t given_count;
    char **words;
    size_t word_count;
    char **rest; /* behind "--", NULL-terminated; NULL when there was none */
    bool help;   /* --help was among them; nothing else was checked */
};

/* Options that every command takes: --project, --help. */
extern const struct hy_option hy_common_options[];
const struct hy_option *hy_command_common(const struct hy_command *c);

/* argv without the program and the command. 0, -EINVAL with a sentence, or -ENOMEM. */
int hy_args_parse(const struct hy_command *command, int argc, char **argv, struct hy_args *ret,
                  struct hy_err *err);
void hy_args_done(struct hy_args *args);
#define hy_cleanup_args __attribute__((cleanup(hy_args_done)))

/* The option's last value ("" for a flag), or NULL when it was not given. */
const char *hy_args_get(const struct hy_args *args, const char *name);
bool hy_args_has(const struct hy_args *args, const char *name);
/* The second value of a pair that was given last, or NULL. */
const char *hy_args_second(const struct hy_args *args, const char *name);
/* Walks over the values of a repeated option: start with *cursor = 0; NULL at the end. */
const char *hy_args_next(const struct hy_args *args, const char *name, size_t *cursor);
/* The option of that name in a table, or NULL. */
const struct hy_option *hy_option_find(const struct hy_option *table, const char *name);
/* The n-th word, or NULL. */
const char *hy_args_word(const struct hy_args *args, size_t n);

/* How many letters must be changed, added, dropped or swapped. */
size_t hy_edit_distance(const char *a, const char *b);

/* Finds who was meant: offer every candidate, then look at `best` (NULL: nobody near). */
struct hy_guess {
    const char *typed;
    const char *best;
    size_t distance; /* private */
};
void hy_guess_init(struct hy_guess *g, const char *typed);
void hy_guess_offer(struct hy_guess *g, const char *candidate);

#endif
