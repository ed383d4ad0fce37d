/* SPDX-License-Identifier: Apache-2.0 */
/* The provenance of a run, for the store: versions, commit, program. */
#ifndef HY_CLIENT_PROVENANCE_H
#define HY_CLIENT_PROVENANCE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "hopyard.pb-c.h"

/*
 * Finds the program that a shell in directory `cwd` would start for `name`, with
 * `path` as the value of PATH. *ret_path gets its path (free it). -ENOENT or
 * -EACCES with a message that says what to do.
 */
int hy_find_program(const char *name, const char *cwd, const char *path, char **ret_path, struct hy_err *err);

/*
 * The following functions run other programs and wait for them until `deadline`
 * (hy_clock_ms) at the latest. Free their results.
 */

/* A JSON object: hopyard, kernel, system, glibc, python, program (may be NULL).
 * Python's is that of the function's bundle, if there is one, otherwise that of
 * python3. Unknown ones are omitted. NULL when out of memory. */
char *hy_versions(const char *program, const uint8_t *function, size_t function_n, int64_t deadline);
/* The commit of the directory's git tree, with "-dirty" appended when files differ from it or git does not answer
 * in time; NULL when there is no commit. */
char *hy_git_commit(const char *cwd, int64_t deadline);
/* The first line of a program's output ("" when it prints nothing, at most 1 KB); NULL when it cannot be started,
 * fails or times out. */
char *hy_first_line(char *const *argv, const char *cwd, int64_t deadline);

/* Adds directory, environment, versions and commit to a run's spec; checks that its program exists. */
int hy_spec_add_environment(Hy__RunSpec *spec, const char *project, struct hy_err *err);

#endif
