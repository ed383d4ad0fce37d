/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of commands and options, and the parser of argument lists. Pure: it
 * neither prints nor reads anything else.
 */
#ifndef HY_CLI_OPTIONS_H
#define HY_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "hopyard.pb-c.h"

struct hy_option {
    const char *name;  /* "grid": typed as --grid; NULL ends a table */
    const char *value; /* "NAME=V,V": the placeholder of its value; NULL: a flag */
    const char *help;  /* NULL: an alias, or accepted without effect */
    char letter; /* 'f': -f too; 0: none */
    bool many;   /* may be given more than once */
    bool pair;   /* a second value follows */
    /* For compatibility with other command lines: */
    const char *dash;    /* "np": typed as -np too */
    const char *same;    /* an alias of this option of the table */
    const char *nothing; /* accepted without effect, for this reason */
    const char *refused; /* not supported; the alternative */
};

struct hy_args;
struct hy_started;

struct hy_command {
    const char *name;     /* NULL ends a table */
    const char *group;    /* its heading in the list of commands; NULL: not listed */
    const char *words;    /* "[RUN] [TRIAL]" */
    const char *summary;  /* one line */
    const char *about;    /* paragraphs; NULL: none */
    const char *examples; /* lines; NULL: none */
    const struct hy_option *options;
    const struct hy_option *common;         /* replaces hy_common_options; NULL: not replaced */
    int min_words, max_words;               /* -1: any number */
    bool takes_rest;                        /* the user's command follows "--" ... */
    bool bare_rest;                         /* ... or starts with the first word */
    bool owns;                              /* the run it starts ends with it, even if it is killed */
    int (*run)(const struct hy_args *args); /* returns the exit status */
    int (*raw)(int argc, char **argv);      /* parses its own arguments */
    /* Starts a run and returns; NULL: runs are not submitted with this command. */
    int (*start)(const struct hy_args *args, const char *project, struct hy_started *ret, struct hy_err *err);
};

struct hy_given {
    const struct hy_option *option;
    const char *value; /* NULL for a flag */
    const char *second; /* of a pair; NULL: none */
};

/* Texts are borrowed from argv. */
struct hy_args {
    const struct hy_command *command;
    struct hy_given *given; /* in the order of the command line */
    size_t given_count;
    char **words;
    size_t word_count;
    char **rest; /* after "--", NULL-terminated; NULL: none */
    bool help;   /* --help was given; nothing else was checked */
    Hy__RunSpec **submitted; /* of a submission: what no option describes, taken by hy_spec_begin; NULL: none */
};

/* The options of all commands: --project, --help. */
extern const struct hy_option hy_common_options[];
const struct hy_option *hy_command_common(const struct hy_command *c);

/* argv without the program and the command. 0, -EINVAL with a message, or -ENOMEM. */
int hy_args_parse(const struct hy_command *command, int argc, char **argv, struct hy_args *ret, struct hy_err *err);
/* The same from names and values: room for `room` of them, then each ("" for a flag). */
int hy_args_begin(const struct hy_command *command, size_t room, struct hy_args *ret, struct hy_err *err);
int hy_args_add(struct hy_args *args, const char *name, const char *value, struct hy_err *err);
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

#endif
