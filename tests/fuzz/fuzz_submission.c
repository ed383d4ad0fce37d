/* SPDX-License-Identifier: Apache-2.0 */
/* A run that a client library submits: refused with a message, or a spec that the driver can read. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/commands.h"
#include "cli/run_spec.h"
#include "cli/submit.h"
#include "driver/driver.h"
#include "faults.h"
#include "wire/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int __wrap_hy_file_read(const char *path, struct hy_buf *b);

static void check(int holds)
{
    if (!holds)
        abort();
}

/* In place of files that options name. */
int __wrap_hy_file_read(const char *path, struct hy_buf *b)
{
    return *path == 'n' ? -ENOENT : hy_buf_append_str(b, path);
}

static void check_spec(const struct hy_args *args)
{
    hy_cleanup_spec Hy__RunSpec *spec = NULL;
    struct hy_err err = {0};
    bool is_run = strcmp(args->command->name, "run") == 0;
    int rc = is_run ? hy_spec_new(args, &spec, &err) : hy_spec_training(args, &spec, &err);

    check(rc == 0 ? spec && !err.code : err.code < 0 && *err.text && !spec);
    if (rc == 0) {
        struct hy_space space = {0};

        check(hy_run_space(spec, &space, &err) == 0 || hy_is_short_of_memory);
        hy_space_done(&space);
    }
}

static void run(const uint8_t *data, size_t size)
{
    Hy__Submission *s = hy__submission__unpack(&hy_proto_memory, size, data);
    struct hy_args args = {0};
    struct hy_err err = {0};

    if (!s)
        return;
    if (hy_submission_args(s, &args, &err) < 0)
        check(err.code < 0 && *err.text);
    else if (strcmp(s->command, "resume") != 0 && !hy_args_has(&args, "engine")) /* which asks a name server */
        check_spec(&args);
    hy_args_done(&args);
    hy__submission__free_unpacked(s, &hy_proto_memory);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hy_run_with_faults(data, size, run);
    return 0;
}
