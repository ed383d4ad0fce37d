/* SPDX-License-Identifier: Apache-2.0 */
/* horovodrun's --config-file: options of `train` from a YAML file. */
#ifndef HY_CLI_CONFIG_FILE_H
#define HY_CLI_CONFIG_FILE_H

#include "base/buf.h"
#include "cli/options.h"

struct hy_config {
    struct hy_args args; /* the file's options, then those of the command line, which take precedence */
    struct hy_buf text;  /* private: values point into it */
};

/*
 * Reads the file of --config-file, if given. Supports a subset of YAML: sections
 * with settings ("timeline:", "  filename: t.json"), quotes and comments. 0,
 * -EINVAL with a message that names the line, or -ENOMEM.
 */
int hy_config_read(const struct hy_args *args, struct hy_config *ret, struct hy_err *err);
void hy_config_done(struct hy_config *c);
#define hy_cleanup_config __attribute__((cleanup(hy_config_done)))

#endif
