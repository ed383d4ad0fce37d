/* SPDX-License-Identifier: Apache-2.0 */
/* The commands that start an agent, and the program that is copied to hosts. */
#ifndef HY_ENGINE_COMMAND_H
#define HY_ENGINE_COMMAND_H

#include "engine/engine.h"

/* NULL-terminated, free with hy_argv_free. NULL with a sentence. */
char **hy_command_local(const struct hy_agent_order *order, struct hy_err *err);
char **hy_command_ssh(const struct hy_agent_order *order, struct hy_err *err);
void hy_argv_free(char ***argv);
#define hy_cleanup_argv __attribute__((cleanup(hy_argv_free)))

/* The first line of a host. Earlier lines of its shell (a greeting in a .bashrc) are
 * ignored. */
#define HY_PROGRAM_IS_THERE "hopyard-is-there"
#define HY_PROGRAM_IS_MISSING "hopyard-is-missing"

/* This program's file, mapped once and shared by concurrent copies. */
struct hy_program;
struct hy_program *hy_program_open(struct hy_err *err); /* a new reference */
void hy_program_unref(struct hy_program *p);            /* NULL is fine */
const void *hy_program_bytes(const struct hy_program *p);
size_t hy_program_size(const struct hy_program *p);

#endif
