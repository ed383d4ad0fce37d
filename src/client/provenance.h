/* SPDX-License-Identifier: Apache-2.0 */
/* What a run was run with: versions, the commit, the program. For the store. */
#ifndef HY_CLIENT_PROVENANCE_H
#define HY_CLIENT_PROVENANCE_H

#include <stdint.h>

#include "base/err.h"
#include "hopyard.pb-c.h"

/*
 * Finds what the shell would start for `name` in folder `cwd` by the path list
 * `path` (the value of PATH). *ret_path gets it (free it). -ENOENT or -EACCES
 * with a sentence that says what to do.
 */
int hy_find_program(const char *name, const char *cwd, const char *path, char **ret_path, struct hy_err *err);

/*
 * The following ask other programs, and wait for them until `deadline`
 * (hy_clock_ms) at the latest. Free what they return.
 */

/* A JSON object: hopyard, kernel, system, glibc, python, program (may be NULL).
 * What cannot be found out is left out. NULL when out of memory. */
char *hy_versions(const char *program, int64_t deadline);
/* The commit of the folder's git tree, "-dirty" behind it when files differ
 * from it or git is too slow to say; NULL when there is none. */
char *hy_git_commit(const char *cwd, int64_t deadline);
/* The first line a program prints ("" when it prints nothing, at most 1 KB);
 * NULL when it cannot be run, fails or takes too long. */
char *hy_first_line(char *const *argv, const char *cwd, int64_t deadline);

/* Adds directory, environment, versions and commit to a run's spec; looks for its program. */
int hy_spec_add_environment(Hy__RunSpec *spec, const char *project, struct hy_err *err);

#endif
