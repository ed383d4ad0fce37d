/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts the options of `hopyard run …` to the driver's RunSpec and checks
 * everything that can be checked before the run starts. Pure, except for files
 * that options name (NAME=@FILE).
 */
#ifndef HY_CLI_RUN_SPEC_H
#define HY_CLI_RUN_SPEC_H

#include "cli/options.h"
#include "hopyard.pb-c.h"

/*
 * 0 and a spec (free it with hy_spec_free); -EINVAL with a message; -ENOMEM. The
 * seed stays 0 if not given.
 */
int hy_spec_new(const struct hy_args *args, Hy__RunSpec **ret, struct hy_err *err);
void hy_spec_free(Hy__RunSpec *spec); /* NULL is fine */
void hy_spec_free_at(Hy__RunSpec **spec);
#define hy_cleanup_spec __attribute__((cleanup(hy_spec_free_at)))

/*
 * The same for `hopyard train …`: a run whose trials are the ranks of one
 * training. Also applies the environment variables of horovodrun.
 */
int hy_spec_training(const struct hy_args *args, Hy__RunSpec **ret, struct hy_err *err);
/* Changes the number of ranks of a training (--scaling). */
int hy_spec_set_ranks(Hy__RunSpec *spec, uint32_t ranks, struct hy_err *err);
/* Adds the variables that options set for the ranks; call it after hy_spec_add_environment. */
int hy_spec_training_environment(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err);

/* "a:4,user@b,[fe80::1]:2": appends to spec->hosts; a host without slots has one. */
int hy_spec_hosts(Hy__RunSpec *spec, const char *text, struct hy_err *err);
/* --engine and its options. */
int hy_spec_engine(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err);
/* The same from a file: lines of "a slots=4", "a:4" or "a"; # starts a comment. */
int hy_spec_hostfile(Hy__RunSpec *spec, const char *file, struct hy_err *err);
/* The sum of the hosts' slots. */
uint32_t hy_spec_slots(const Hy__RunSpec *spec);

/* The first dimension that the command does not use as {name}, or NULL. */
const char *hy_spec_unused(const Hy__RunSpec *spec);

/* "asha": as --stop takes it. */
const char *hy_stop_rule_name(Hy__StopRule__Kind kind);

#endif
