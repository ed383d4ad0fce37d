/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the files that convert options to a RunSpec (run_spec.c,
 * train_spec.c, spec_hosts.c, spec_engine.c). All functions that can fail return 0, -EINVAL
 * with a message, or -ENOMEM.
 */
#ifndef HY_CLI_SPEC_INTERNAL_H
#define HY_CLI_SPEC_INTERNAL_H

#include "cli/options.h"
#include "client/client.h"

/* An empty spec, or the submitted one. */
int hy_spec_begin(const struct hy_args *args, Hy__RunSpec **ret, struct hy_err *err);
/* Parses the number of an option; *ret stays unchanged if it was not given. */
int hy_spec_number(const struct hy_args *args, const char *name, uint32_t least, uint32_t most, uint32_t *ret,
                   struct hy_err *err);
/* Whether a value of --engine is a Spark cluster: spark://…, yarn or k8s://…. */
bool hy_is_spark_master(const char *text);
/* --max and --min. */
int hy_spec_metric(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err);
/* --stop and what belongs to it. */
int hy_spec_stop(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err);
/* Limits, name, hosts, and the command or what was submitted instead. */
int hy_spec_common(const struct hy_args *args, Hy__RunSpec *spec, struct hy_err *err);

#endif
