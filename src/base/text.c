/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

int hy_parse_double(const char *text, double *ret)
{
    char *end;
    double value;

    if (!*text || isspace((unsigned char)*text))
        return -EINVAL;
    errno = 0;
    value = strtod(text, &end);
    if (*end)
        return -EINVAL;
    if (errno == ERANGE && isinf(value))
        return -ERANGE;
    *ret = value;
    return 0;
}

static size_t digits(const char *s)
{
    size_t n = 0;

    while (s[n] >= '0' && s[n] <= '9') /* not strspn: a sanitizer's scans to the end of a long text each time */
        n++;
    return n;
}

size_t hy_json_number_len(const char *s)
{
    size_t n = *s == '-', whole = s[n] == '0' ? 1 : digits(s + n), more;

    if (whole == 0)
        return 0;
    n += whole;
    more = s[n] == '.' ? digits(s + n + 1) : 0;
    n += more ? 1 + more : 0;
    if (s[n] == 'e' || s[n] == 'E') {
        size_t sign = s[n + 1] == '+' || s[n + 1] == '-';

        more = digits(s + n + 1 + sign);
        n += more ? 1 + sign + more : 0;
    }
    return n;
}

bool hy_json_number_fits(const char *s, size_t n)
{
    if (memchr(s, '.', n) || memchr(s, 'e', n) || memchr(s, 'E', n))
        return isfinite(strtod(s, NULL));
    errno = 0;
    return (strtoll(s, NULL, 10), errno) != ERANGE;
}

int hy_parse_u64(const char *text, uint64_t *ret)
{
    unsigned long long value;
    char *end;

    if (!isdigit((unsigned char)*text))
        return -EINVAL;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (*end)
        return -EINVAL;
    if (errno)
        return -ERANGE;
    *ret = value;
    return 0;
}

/* Reads a number that is not negative, and returns what follows it in *unit. */
static int number_and_unit(const char *text, double *ret, const char **unit)
{
    char *end;

    if (!isdigit((unsigned char)*text) && *text != '.')
        return -EINVAL;
    *ret = strtod(text, &end);
    if (end == text || !isfinite(*ret) || strcspn(text, "xX") < (size_t)(end - text))
        return -EINVAL;
    *unit = end;
    return 0;
}

int hy_parse_size(const char *text, uint64_t *ret_bytes)
{
    static const char letters[] = "KMGT";
    const char *unit, *letter;
    double value;

    if (number_and_unit(text, &value, &unit) < 0)
        return -EINVAL;
    letter = *unit ? strchr(letters, toupper((unsigned char)*unit)) : NULL;
    if (letter) {
        value *= ldexp(1.0, 10 * (int)(letter - letters + 1));
        unit++;
        if (*unit == 'i')
            unit++;
    }
    if (*unit == 'B' || *unit == 'b')
        unit++;
    if (*unit)
        return -EINVAL;
    if (value >= 0x1p63)
        return -ERANGE;
    *ret_bytes = (uint64_t)value;
    return 0;
}

int hy_parse_duration(const char *text, int64_t *ret_ms)
{
    static const struct {
        const char *name;
        double ms;
    } units[] = {{"", 1e3}, {"ms", 1}, {"s", 1e3}, {"m", 6e4}, {"min", 6e4}, {"h", 3.6e6}, {"d", 8.64e7}};
    const char *unit;
    double value;

    if (number_and_unit(text, &value, &unit) < 0)
        return -EINVAL;
    for (size_t i = 0; i < HY_COUNT(units); i++) {
        if (strcmp(unit, units[i].name) != 0)
            continue;
        value *= units[i].ms;
        if (value >= 0x1p53)
            return -ERANGE;
        *ret_ms = (int64_t)value;
        return 0;
    }
    return -EINVAL;
}

char *hy_format_count(uint64_t count, char *out, size_t size)
{
    char text[32], *at = text + sizeof text; /* 26 characters at most */
    int digits = 0;

    *--at = '\0';
    do {
        if (digits && digits % 3 == 0)
            *--at = ',';
        *--at = (char)('0' + count % 10);
        digits++;
    } while ((count /= 10) > 0);
    snprintf(out, size, "%s", at);
    return out;
}

char *hy_format_size(uint64_t bytes, char *out, size_t size)
{
    static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB", "EB"};
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 1023.95 && unit + 1 < HY_COUNT(units)) {
        value /= 1024;
        unit++;
    }
    snprintf(out, size, unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return out;
}

char *hy_format_duration(int64_t ms, char *out, size_t size)
{
    long long s;

    if (ms < 0) /* the clock was set back */
        ms = 0;
    s = ms / 1000;
    if (ms < 10000)
        snprintf(out, size, "%lld.%llds", s, (long long)(ms % 1000 / 100));
    else if (s < 60)
        snprintf(out, size, "%llds", s);
    else if (s < 3600)
        snprintf(out, size, "%lldm%02llds", s / 60, s % 60);
    else if (s < 86400)
        snprintf(out, size, "%lldh%02lldm", s / 3600, s / 60 % 60);
    else
        snprintf(out, size, "%lldd%02lldh", s / 86400, s / 3600 % 24);
    return out;
}

char *hy_format_double(double value, char *out, size_t size)
{
    char text[32];
    /* Subnormal numbers have fewer significant digits than DBL_DIG. */
    int digits = isnormal(value) ? DBL_DIG - 1 : 0, is_negative = signbit(value) != 0, exponent;

    if (!isfinite(value)) {
        snprintf(out, size, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return out;
    }
    do
        snprintf(text, sizeof text, "%.*e", digits, value);
    while (strtod(text, NULL) != value && ++digits < 17);
    if (digits == DBL_DIG - 1) { /* a shorter one, if there is one, is this without its zeros */
        while (digits > 0 && text[is_negative + 1 + digits] == '0')
            digits--;
        snprintf(text, sizeof text, "%.*e", digits, value);
    }
    exponent = atoi(strchr(text, 'e') + 1);
    if (exponent < -4 || exponent >= 16)
        snprintf(out, size, "%s", text);
    else
        snprintf(out, size, "%.*f", digits > exponent ? digits - exponent : 0, value);
    return out;
}

size_t hy_utf8_len(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t len;

    if (n == 0)
        return 0;
    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    len = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (n < len)
        return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
        (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return len;
}

int hy_append_printable(struct hy_buf *b, const char *text, size_t n)
{
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0;) {
        unsigned char c = (unsigned char)text[i];
        size_t len = hy_utf8_len(text + i, n - i);
        /* U+0080 to U+009F are control characters too. */
        int plain = len > 1 ? !(c == 0xc2 && (unsigned char)text[i + 1] < 0xa0) : len == 1 && c >= ' ' && c != 0x7f;

        if (plain)
            rc = hy_buf_append(b, text + i, len);
        else if (c == '\n' || c == '\t' || c == '\r')
            rc = hy_buf_printf(b, "\\%c", c == '\n' ? 'n' : c == '\t' ? 't' : 'r');
        else
            rc = hy_buf_printf(b, "\\x%02x", c);
        i += plain ? len : 1;
    }
    return rc;
}

uint64_t hy_hash(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint64_t h = 0xcbf29ce484222325ULL;

    for (size_t i = 0; i < n; i++)
        h = (h ^ p[i]) * 0x100000001b3ULL;
    return h;
}

int hy_parse_host_port(const char *text, char *ret_host, size_t size, uint16_t *ret_port)
{
    const char *colon = strrchr(text, ':');
    size_t n = colon ? (size_t)(colon - text) : 0;
    uint64_t port;

    if (n == 0 || hy_parse_u64(colon + 1, &port) < 0 || port > UINT16_MAX)
        return -EINVAL;
    if (text[0] == '[' && text[n - 1] == ']') {
        text++;
        n -= 2;
    }
    if (n == 0 || n >= size)
        return -EINVAL;
    memcpy(ret_host, text, n);
    ret_host[n] = '\0';
    *ret_port = (uint16_t)port;
    return 0;
}

char *hy_format_host_port(const char *host, uint16_t port, char *out, size_t size)
{
    snprintf(out, size, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, port);
    return out;
}
