/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of an endpoint: a line that is accepted is the same when it is formatted again. */
#include <stdlib.h>
#include <string.h>

#include "collective/group/endpoint.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hy_endpoint first, second;
    char line[HY_ENDPOINT_TEXT], again[HY_ENDPOINT_TEXT], *text = malloc(size + 1);

    if (!text)
        abort();
    memcpy(text, data, size);
    text[size] = '\0';
    if (hy_endpoint_parse(text, &first) == 0) {
        hy_endpoint_format(&first, line);
        if (hy_endpoint_parse(line, &second) < 0)
            abort();
        hy_endpoint_format(&second, again);
        if (strcmp(line, again) != 0 || first.port == 0 || first.address_count == 0)
            abort();
    }
    free(text);
    return 0;
}
