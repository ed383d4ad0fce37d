/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Token files: accepted tokens are complete, and a rejected file has a message. hy_file_read is replaced by the linker:
 * the input is the file, and reading fails when it ends with "gone".
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "faults.h"
#include "hdfs/security/sasl.h"
#include "hdfs/security/tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

static const uint8_t *input;
static size_t input_n;

int __wrap_hy_file_read(const char *path, struct hy_buf *b);
int __wrap_hy_file_read(const char *path, struct hy_buf *b)
{
    (void)path;
    return input_n >= 4 && memcmp(input + input_n - 4, "gone", 4) == 0 ? -ENOENT : hy_buf_append(b, input, input_n);
}

static void look_at(const struct hy_hdfs_tokens *t, size_t size)
{
    for (size_t i = 0; i < t->count; i++) {
        const Hdfs__Token *token = t->all[i], *found = hy_hdfs_tokens_find(t, token->kind, token->service);
        char *text;

        check(found && strcmp(found->service, token->service) == 0);
        check(token->identifier.len <= size && token->password.len <= size);
        text = hy_hdfs_base64(token->password.data, token->password.len); /* reads all bytes */
        check(hy_is_short_of_memory || (text && strlen(text) == (token->password.len + 2) / 3 * 4));
        free(text);
    }
}

static void run(const uint8_t *data, size_t size)
{
    struct hy_hdfs_tokens t;
    struct hy_err err = {0};

    input = data;
    input_n = size;
    if (hy_hdfs_tokens_load(&t, &err) < 0) {
        check(err.code < 0 && err.text[0]);
        return;
    }
    look_at(&t, size);
    hy_hdfs_tokens_done(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(setenv("HADOOP_TOKEN_FILE_LOCATION", size == 0 ? "" : "/file", 1) == 0);
    hy_run_with_faults(data, size, run);
    return 0;
}
