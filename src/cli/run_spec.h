/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hopyard run …` as the driver's RunSpec, with every check that can be made
 * before anything starts. Pure but for hy_spec_add_environment, and for the files
 * that options name (NAME=@FILE).
 */
#ifndef HY_CLI_RUN_SPEC_H
#define HY_CLI_RUN_SPEC_H

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

/*
 * The same for `hopyard train …`: a run whose trials are the ranks of one
 * training. What horovodrun's users have in their environment counts, too.
 */
int hy_spec_training(const struct hy_args *args, Hy__RunSpec **ret, struct hy_err *err);
/* Changes how many ranks a training has (--scaling). */
int hy_spec_set_ranks(Hy__RunSpec *spec, uint32_t ranks, struct hy_err *err);
/* What the options want in the ranks' environment; after hy_spec_add_environment. */
int hy_spec_training_environment(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err);

/* "a:4,user@b,[fe80::1]:2": appends to spec->hosts; a host without slots has one. */
int hy_spec_hosts(Hy__RunSpec *spec, const char *text, struct hy_err *err);
/* --engine and what belongs to it. */
int hy_spec_engine(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err);
/* The same from a file: lines of "a slots=4", "a:4" or "a"; # begins a comment. */
int hy_spec_hostfile(Hy__RunSpec *spec, const char *file, struct hy_err *err);
/* How many slots they have together. */
uint32_t hy_spec_slots(const Hy__RunSpec *spec);

/* The first dimension that stands nowhere in the command as {name}, or NULL. */
const char *hy_spec_unused(const Hy__RunSpec *spec);

#endif
