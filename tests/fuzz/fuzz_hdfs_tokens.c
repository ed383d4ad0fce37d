/* SPDX-License-Identifier: Apache-2.0 */
/* A file of tokens: what is taken from it is whole, and what is refused has a sentence. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "hdfs/sasl.h"
#include "hdfs/tokens.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hy_tokens t;
    struct hy_err err = {0};
    char *text;

    if (hy_tokens_parse(data, size, "fuzz", &t, &err) < 0) {
        check(err.code < 0 && err.text[0]);
        return 0;
    }
    for (size_t i = 0; i < t.count; i++) {
        const Hdfs__Token *token = t.all[i], *found = hy_tokens_find(&t, token->kind, token->service);

        check(found && strcmp(found->service, token->service) == 0);
        check(token->identifier.len <= size && token->password.len <= size);
        text = hy_base64(token->password.data, token->password.len); /* reads it all */
        check(text && strlen(text) == (token->password.len + 2) / 3 * 4);
        free(text);
    }
    hy_tokens_done(&t);
    return 0;
}
