/* SPDX-License-Identifier: Apache-2.0 */
/* Files of shares: an entry of a receiver (first byte 'e'), or the record of an owner. */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "share/names.h"
#include "share/records.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

/* A host may have any name. */
static const char *path_of(const char *target)
{
    const char *host = strstr(target, "://");
    const char *path = host ? strchr(host + 3, '/') : target;

    return path ? path : "";
}

static void parse_entry(const char *text, size_t n)
{
    struct hy_share_entry e = {0};
    struct hy_err err = {0};

    if (hy_share_entry_parse(text, n, &e, &err) < 0)
        check(err.text[0] != '\0');
    else
        check(hy_share_check_target(e.target, NULL) == 0 && !strstr(path_of(e.target), "/.hopyard/") && e.owner);
    hy_share_entry_done(&e);
}

static void parse_records(const char *text, size_t n)
{
    struct hy_shares s = {0};
    struct hy_err err = {0};

    if (hy_share_records_parse(text, n, &s, &err) < 0)
        check(err.text[0] != '\0');
    for (size_t i = 0; i < s.count; i++) {
        check(hy_share_check_path(s.list[i].path, NULL) == 0 && s.list[i].user && s.list[i].id);
        for (size_t k = 0; k < s.list[i].prior_count; k++)
            check(hy_share_find_prior(&s.list[i], s.list[i].priors[k].path) != NULL);
    }
    hy_shares_done(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] == 'e')
        parse_entry((const char *)data + 1, size - 1);
    else
        parse_records((const char *)data + 1, size - 1);
    return 0;
}
