/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hopyard run …` as the driver's RunSpec, with every check that can be made
 * before anything starts. Pure but for hy_spec_surroundings, and for the files
 * that options name (NAME=@FILE).
 */
#ifndef HY_CLI_SPEC_H
#define HY_CLI_SPEC_H

#include "cli/options.h"
#include "hopyard.pb-c.h"

/*
 * What the options say. 0 and a spec to give to hy_spec_free; -EINVAL with a
 * sentence; -ENOMEM. The seed is left 0 when none was given.
 */
int hy_spec_new(const struct hy_args *args, Hy__RunSpec **ret, struct hy_err *err);
void hy_spec_free(Hy__RunSpec *spec); /* NULL is fine */
void hy_spec_free_at(Hy__RunSpec **spec);
#define hy_cleanup_spec __attribute__((cleanup(hy_spec_free_at)))

/* Adds folder, environment, versions and commit; looks for the program. */
int hy_spec_surroundings(Hy__RunSpec *spec, const char *project, struct hy_err *err);

/* "a:4,user@b,[fe80::1]:2": appends to spec->hosts; a host without slots has one. */
int hy_spec_hosts(Hy__RunSpec *spec, const char *text, struct hy_err *err);

/* The first dimension that stands nowhere in the command as {name}, or NULL. */
const char *hy_spec_unused(const Hy__RunSpec *spec);

#endif
