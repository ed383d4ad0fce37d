/* SPDX-License-Identifier: Apache-2.0 */
/* CSV: rows end within the text, make progress, and end at the same places when only a part of the text is there. */
#include <stdlib.h>
#include <string.h>

#include "base/string_list.h"
#include "faults.h"
#include "web/files/csv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_row(const char *text, size_t n, char separator)
{
    struct hy_string_list cells = {0};
    ssize_t length = hy_csv_row(text, n, separator, true, &cells);

    if (length > (ssize_t)n || cells.count > HY_CSV_CELLS_MAX || (length == 0 && n > 0))
        abort();
    if (length < 0 && !hy_is_short_of_memory)
        abort();
    hy_string_list_done(&cells);
}

static void run(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    char separator;
    size_t at = 0;

    if (!text)
        return;
    memcpy(text, data, size);
    separator = hy_csv_separator(text, size);
    if (!memchr(",;\t|", separator, 4))
        abort();
    while (at < size) {
        struct hy_string_list cells = {0};
        ssize_t length = hy_csv_row(text + at, size - at, separator, false, &cells);

        check_row(text + at, size - at, separator);
        hy_string_list_done(&cells);
        if (length <= 0)
            break;
        at += (size_t)length;
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hy_run_with_faults(data, size, run);
    return 0;
}
