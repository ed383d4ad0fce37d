/* SPDX-License-Identifier: Apache-2.0 */
/* Paths sent by browsers: accepted ones stay below the directory and do not name hopyard's own files. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "faults.h"
#include "web/files/served_dir.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_accepted(const char *path)
{
    char *copy = strdup(path), *rest = copy, *name;

    if (*path == '/' || (*path && path[strlen(path) - 1] == '/'))
        abort();
    while (*path && (name = strsep(&rest, "/")))
        if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strncasecmp(name, ".hopyard", 8) == 0 ||
            strcasecmp(name, "run.db") == 0 || strcasecmp(name, "store.db") == 0)
            abort();
    free(copy);
}

static void check_range(const char *field)
{
    uint64_t start, end;

    if (hy_http_range(field, 1000, &start, &end) == 1 && (start >= end || end > 1000))
        abort();
}

/* Escapes of all bytes are reversible. */
static void check_escapes(const char *text)
{
    char *encoded = hy_http_encode(text), *again = encoded ? malloc(strlen(encoded) + 1) : NULL;

    if (again && (hy_http_decode(encoded, strlen(encoded), true, again) < 0 || strcmp(again, text) != 0))
        abort();
    free(again);
    free(encoded);
}

static void run(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *decoded = malloc(size + 1);
    struct hy_err err = {0};

    if (!text || !decoded)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    check_range(text);
    check_escapes(text);
    if (hy_http_decode(text, strlen(text), true, decoded) >= 0) {
        if (hy_served_dir_check(decoded, &err) == 0)
            check_accepted(decoded);
        else if (!err.text[0])
            abort();
    }
    free(text);
    free(decoded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hy_run_with_faults(data, size, run);
    return 0;
}
