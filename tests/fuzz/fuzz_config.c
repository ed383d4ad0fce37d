/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of horovodrun's users: a configuration file, of which every accepted option is one of `train` and
 * has a value if it needs one; and the hosts that a discovery script prints.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/config_file.h"
#include "driver/run.h"
#include "faults.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_hy_file_read(const char *path, struct hy_buf *b);

static const uint8_t *input;
static size_t input_size;

static void check(int holds)
{
    if (!holds)
        abort();
}

/* Replaces the file of --config-file. */
int __wrap_hy_file_read(const char *path, struct hy_buf *b)
{
    (void)path;
    return hy_buf_append(b, input, input_size);
}

static void check_config(void)
{
    static char *argv[] = {(char *)"-np", (char *)"2", (char *)"--config-file", (char *)"c.yaml", (char *)"true", NULL};
    struct hy_args args;
    struct hy_config config;
    struct hy_err err = {0};

    if (hy_args_parse(hy_command_find("train"), 5, argv, &args, &err) < 0)
        return;
    if (hy_config_read(&args, &config, &err) < 0) {
        check(err.code < 0 && *err.text);
    } else {
        for (size_t i = 0; i < config.args.given_count; i++) {
            const struct hy_given *g = &config.args.given[i];

            check(hy_option_find(hy_train_options, g->option->name) == g->option && !g->option->refused);
            check(!g->option->value == !g->value);
        }
        hy_config_done(&config);
    }
    hy_args_done(&args);
}

static void check_hosts(const uint8_t *data, size_t size)
{
    struct hy_discovered hosts = {0};
    struct hy_err err = {0};
    char *text = malloc(size + 1);

    check(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    if (hy_discovered_parse(text, 1, &hosts, &err) < 0)
        check(err.code < 0 && *err.text);
    for (size_t i = 0; i < hosts.count; i++)
        check(*hosts.rows[i].name && *hosts.rows[i].name != '-' && !strpbrk(hosts.rows[i].name, " \n'\";$`") &&
              hosts.rows[i].slots);
    hy_discovered_done(&hosts);
    free(text);
}

static void run(const uint8_t *data, size_t size)
{
    input = data;
    input_size = size;
    check_config();
    check_hosts(data, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hy_run_with_faults(data, size, run);
    return 0;
}
