/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first byte is the size of the chunks of the rest: for any size the same is
 * found. The text up to the first '|' is the metric's name.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/metric.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct hy_metric_scan scan(const char *name, const uint8_t *bytes, size_t n, size_t piece)
{
    struct hy_metric_scan m;

    hy_metric_scan_init(&m, name);
    for (size_t at = 0; at < n; at += piece)
        hy_metric_scan_feed(&m, bytes + at, n - at < piece ? n - at : piece);
    hy_metric_scan_end(&m);
    return m;
}

static void parse_report(const uint8_t *bytes, size_t n)
{
    char *text = malloc(n + 1);
    size_t len;
    double value;

    if (!text)
        return;
    memcpy(text, bytes, n);
    text[n] = '\0';
    if (hy_metric_parse(text, &len, &value) == 0 && (len == 0 || len >= n || text[len] != '='))
        abort();
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hy_metric_scan whole, pieces;
    const uint8_t *bar;
    char name[64];
    size_t n;

    if (size == 0)
        return 0;
    parse_report(data + 1, size - 1);
    bar = memchr(data + 1, '|', size - 1);
    n = bar ? (size_t)(bar - data - 1) : 0;
    if (!bar || n >= sizeof name)
        return 0;
    memcpy(name, data + 1, n);
    name[n] = '\0';
    bar++;
    n = size - (size_t)(bar - data);
    whole = scan(name, bar, n, n + 1);
    pieces = scan(name, bar, n, data[0] + 1u);
    if (whole.found != pieces.found || whole.seen != pieces.seen || whole.step != pieces.step ||
        memcmp(&whole.value, &pieces.value, sizeof whole.value) != 0)
        abort();
    return 0;
}
