/* SPDX-License-Identifier: Apache-2.0 */
/* Help texts, generated from the tables of commands and options. */
#include <stdio.h>
#include <string.h>

#include "cli/commands.h"

#define WIDTH 80

static void heading(struct hy_out *out, const char *text)
{
    hy_out_str(out, "\n");
    hy_out_tint(out, HY_BOLD, text);
    hy_out_str(out, "\n");
}

/* Wraps text at WIDTH columns; all lines but the first are indented. */
static void wrapped(struct hy_out *out, const char *text, int at, int indent)
{
    while (*text) {
        size_t n = strcspn(text, " ");
        int columns = hy_columns(text, n);

        if (at > indent && at + 1 + columns > WIDTH) {
            hy_outf(out, "\n%*s", indent, "");
            at = indent;
        } else if (at > indent) {
            hy_out_str(out, " ");
            at++;
        }
        hy_out_bytes(out, text, n);
        at += columns;
        text += n + (text[n] == ' ');
    }
    hy_out_str(out, "\n");
}

/* "  -f, --follow VALUE    what it does", the second column at `indent`. */
static void entry(struct hy_out *out, const char *left, const char *help, int indent)
{
    int at = 2 + hy_columns(left, strlen(left));

    hy_out_str(out, "  ");
    hy_out_tint(out, HY_CYAN, left);
    if (at + 2 > indent) {
        hy_out_str(out, "\n");
        at = 0;
    }
    hy_outf(out, "%*s", indent - at, "");
    wrapped(out, help, indent, indent);
}

static void options(struct hy_out *out, const struct hy_option *table)
{
    for (; table && table->name; table++) {
        char left[80], letter[16] = "";

        if (!table->help)
            continue;
        if (table->letter)
            snprintf(letter, sizeof letter, "-%c, ", table->letter);
        else if (table->dash)
            snprintf(letter, sizeof letter, "-%s, ", table->dash);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, table->name, table->value ? " " : "",
                 table->value ? table->value : "");
        entry(out, left, table->help, 26);
    }
}

static void indented(struct hy_out *out, const char *lines)
{
    while (*lines) {
        size_t n = strcspn(lines, "\n");

        hy_out_str(out, "  ");
        hy_out_bytes(out, lines, n);
        hy_out_str(out, "\n");
        lines += n + (lines[n] == '\n');
    }
}

static void head(struct hy_out *out, const struct hy_command *c)
{
    hy_outf(out, "hopyard %s: %s\n", c->name, c->summary);
    heading(out, "Usage");
    hy_outf(out, "  hopyard %s%s%s\n", c->name, *c->words ? " " : "", c->words);
    if (strstr(c->words, "RUN"))
        hy_outf(out, "  RUN is a number or a name%s\n", strstr(c->words, "[RUN") ? " (default: the newest run)" : "");
    if (c->about)
        hy_outf(out, "\n%s\n", c->about);
    if (c->examples) {
        heading(out, "Examples");
        indented(out, c->examples);
    }
}

void hy_help_command(struct hy_out *out, const struct hy_command *c)
{
    head(out, c);
    heading(out, "Options");
    options(out, c->options);
    options(out, hy_command_common(c));
}

static void list(struct hy_out *out, const struct hy_command *table)
{
    const char *group = NULL;
    int column = 15;

    for (const struct hy_command *c = table; c->name; c++)
        if (c->group && (int)strlen(c->name) + 4 > column)
            column = (int)strlen(c->name) + 4;
    for (const struct hy_command *c = table; c->name; c++) {
        if (!c->group)
            continue;
        if (c->group != group)
            heading(out, c->group);
        group = c->group;
        entry(out, c->name, c->summary, column);
    }
}

void hy_help_group(struct hy_out *out, const struct hy_command *c, const struct hy_command *table)
{
    head(out, c);
    list(out, table);
    hy_outf(out, "\n`hopyard %s COMMAND --help` shows help for a command.\n", c->name);
}

static const char introduction[] = "hopyard runs a program with many parameter values, in parallel, and keeps all\n"
                                   "results.\n"
                                   "\n"
                                   "Write a program that takes its parameters as arguments and prints its result,\n"
                                   "for example accuracy=0.91. Then:\n";

static const char first_commands[] = "hopyard run --grid lr=0.1,0.01 --grid layers=1,2,3 --max accuracy \\\n"
                                     "    -- ./train --lr {lr} --layers {layers}     run all six, watch them\n"
                                     "hopyard best                                   show the best trial\n"
                                     "hopyard logs 1 4                               output of trial 4 of run 1\n"
                                     "hopyard ls                                     list the runs of this project\n"
                                     "hopyard ui                                     all of this in the browser\n"
                                     "hopyard train -np 4 python train.py            one training with four ranks";

void hy_help_all(struct hy_out *out)
{
    hy_out_str(out, introduction);
    hy_out_str(out, "\n");
    indented(out, first_commands);
    list(out, hy_commands);
    hy_out_str(out, "\n`hopyard COMMAND --help` shows help for a command. Runs, logs and results are\n"
                    "stored in the project directory: --project DIR, $HOPYARD_PROJECT, or the current\n"
                    "directory.\n");
}
