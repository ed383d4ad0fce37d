/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the files that make a RunSpec of options (spec.c, hosts.c,
 * training.c, surroundings.c): its lists, and what runs and trainings share.
 * All answer 0, -EINVAL with a sentence, or -ENOMEM.
 */
#ifndef HY_CLI_SPECPARTS_H
#define HY_CLI_SPECPARTS_H

#include "cli/options.h"
#include "hopyard.pb-c.h"


/* Replaces a text of the message. Takes `value`, which may be NULL (out of memory). */
int hy_text_take(char **field, char *value, struct hy_err *err);
int hy_texts_add(char ***list, size_t *count, const char *text, struct hy_err *err);
int hy_texts_copy(char ***list, size_t *ret_count, char *const *texts, size_t count, struct hy_err *err);
/* Takes `text`, which may be NULL (out of memory). */
int hy_dim_take(Hy__RunSpec *spec, char *text, struct hy_err *err);
int hy_host_take(Hy__RunSpec *spec, char *name, uint32_t slots, struct hy_err *err);

/* The number that an option gives; *ret stays when it was not given. */
int hy_spec_number(const struct hy_args *args, const char *name, uint32_t least, uint32_t most, uint32_t *ret,
                   struct hy_err *err);
/* --max and --min. */
int hy_spec_metric(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err);
/* Limits, name, hosts, the command, a Python function. */
int hy_spec_common(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err);

#endif
