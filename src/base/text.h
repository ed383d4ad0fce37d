/* SPDX-License-Identifier: Apache-2.0 */
/* Parsing and formatting: numbers, sizes, durations, addresses, printable text. */
#ifndef HY_BASE_TEXT_H
#define HY_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hy_buf;

/* The whole string is one finite or non-finite number. 0 or -EINVAL / -ERANGE. */
int hy_parse_double(const char *text, double *ret);
int hy_parse_u64(const char *text, uint64_t *ret);
/* "512M", "4G", "1.5GiB", "4096": bytes; K, M, G, T are powers of 1024. */
int hy_parse_size(const char *text, uint64_t *ret_bytes);
/* "90", "90s", "15m", "1h", "1.5h", "2d": milliseconds. */
int hy_parse_duration(const char *text, int64_t *ret_ms);

/* The length of the JSON number at `s` (-0.5e3; of 007 it is 1); 0: not a number. */
size_t hy_json_number_len(const char *s);
/* Whether readers can represent it: an integer in 64 bits, any other number in a double. */
bool hy_json_number_fits(const char *s, size_t n);

/* "1,234,567"; returns `out`. */
char *hy_format_count(uint64_t count, char *out, size_t size);
/* "4.1 GB" (1 GB = 1024^3 bytes); returns `out`. */
char *hy_format_size(uint64_t bytes, char *out, size_t size);
/* "0.4s", "12s", "3m05s", "2h07m", "3d04h"; negative ones as "0.0s"; returns `out`. */
char *hy_format_duration(int64_t ms, char *out, size_t size);
/* The shortest text that reads back as the same double, written as Python does
 * (100, 0.001, 1e-05, 1e+16) but without ".0"; returns `out`. */
char *hy_format_double(double value, char *out, size_t size);

/* Appends text for a terminal: control characters and bytes that are not UTF-8 become
 * escapes such as \n and \xNN. */
int hy_append_printable(struct hy_buf *b, const char *text, size_t n);
/* The length of the UTF-8 sequence at `s`; 0: invalid. */
size_t hy_utf8_len(const char *s, size_t n);

/* "host:4711", "192.0.2.1:4711", "[::1]:4711": the host without its brackets and
 * the port, which may be 0. Returns 0, or -EINVAL, also when the host does not fit. */
int hy_parse_host_port(const char *text, char *ret_host, size_t size, uint16_t *ret_port);
/* The reverse, with brackets around an IPv6 address; returns `out`. */
char *hy_format_host_port(const char *host, uint16_t port, char *out, size_t size);

/* FNV-1a, 64 bits: the same on every machine; not for secrets. */
uint64_t hy_hash(const void *bytes, size_t n);

/* Little-endian integers of n bytes. */
static inline uint64_t hy_get_le(const uint8_t *p, int n)
{
    uint64_t v = 0;

    while (n-- > 0)
        v = v << 8 | p[n];
    return v;
}

/* Big-endian. */
static inline uint64_t hy_get_be(const uint8_t *p, int n)
{
    uint64_t v = 0;

    for (int i = 0; i < n; i++)
        v = v << 8 | p[i];
    return v;
}

static inline void hy_put_be(uint8_t *p, uint64_t v, int n)
{
    for (; n-- > 0; v >>= 8)
        p[n] = (uint8_t)v;
}

static inline void hy_put_le(uint8_t *p, uint64_t v, int n)
{
    for (int i = 0; i < n; i++, v >>= 8)
        p[i] = (uint8_t)v;
}

#endif
