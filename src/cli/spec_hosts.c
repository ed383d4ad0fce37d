/* SPDX-License-Identifier: Apache-2.0 */
/* Parses --hosts and host files. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/run_spec.h"
#include "cli/spec_internal.h"

/* One entry: "a", "user@a:4", "[fe80::1]:2". */
static int one_host(Hy__RunSpec *spec, const char *text, size_t n, struct hy_err *err)
{
    const char *close = memchr(text, ']', n), *from = close ? close : text;
    const char *colon = memchr(from, ':', n - (size_t)(from - text));
    size_t host = colon ? (size_t)(colon - text) : n;
    hy_cleanup_free char *whole = hy_strndup(text, n);
    uint64_t slots = 1;
    char *name;

    if (!whole)
        return hy_err_oom(err);
    if (host == 0 || *text == '-' || strcspn(whole, " \t\r\n'\"\\") != n || (close && !memchr(text, '[', host)))
        return hy_err_option(err, "hosts", "takes HOST[:SLOTS],… such as a:4,b:2; '%s' is not a valid host", whole);
    if (colon && strchr(whole + host + 1, ':'))
        return hy_err_option(err, "hosts", "takes an IPv6 address in brackets, for example [%s]:2", whole);
    if ((close && close + 1 < text + n && !colon) ||
        (colon && (hy_parse_u64(whole + host + 1, &slots) < 0 || slots < 1 || slots > 65536)))
        return hy_err_option(err, "hosts", "takes from 1 to 65536 slots for a host; '%s' is invalid", whole);
    for (size_t i = 0; i < spec->n_hosts; i++)
        if (strncmp(spec->hosts[i]->host, whole, host) == 0 && !spec->hosts[i]->host[host])
            return hy_err_option(err, "hosts", "names %s twice; give it once, with all its slots",
                                 spec->hosts[i]->host);
    name = hy_strndup(whole, host);
    return name ? hy_spec_add_host(spec, name, (uint32_t)slots, err) : hy_err_oom(err);
}

int hy_spec_hosts(Hy__RunSpec *spec, const char *text, struct hy_err *err)
{
    int rc = 0;

    while (rc == 0) {
        size_t n = strcspn(text, ",");

        rc = one_host(spec, text, n, err);
        if (!text[n])
            break;
        text += n + 1;
    }
    return rc;
}

/* ---- host files ---------------------------------------------------------------------------- */

#define FILE_MAX (1u << 20)

/* Converts "a slots=4", the format of horovodrun and mpirun, to "a:4". */
static int one_line(Hy__RunSpec *spec, char *line, struct hy_err *err)
{
    char *rest, *host = strtok_r(line, " \t\r", &rest), *word;
    hy_cleanup_free char *entry = NULL;

    if (!host)
        return 0;
    word = strtok_r(NULL, " \t\r", &rest);
    if (word && strncmp(word, "slots=", 6) != 0)
        return hy_err_set(err, -EINVAL, "invalid '%s'; write lines as: HOST slots=N", word);
    entry = word ? hy_asprintf("%s:%s", host, word + 6) : hy_strdup(host);
    return entry ? one_host(spec, entry, strlen(entry), err) : hy_err_oom(err);
}

static int each_line(Hy__RunSpec *spec, const char *file, char *text, struct hy_err *err)
{
    for (int number = 1; text; number++) {
        char *line = strsep(&text, "\n");
        int rc;

        line[strcspn(line, "#")] = '\0';
        rc = one_line(spec, line, err);
        if (rc < 0)
            return hy_err_wrap(err, "%s, line %d", file, number);
    }
    return spec->n_hosts ? 0 : hy_err_set(err, -EINVAL, "%s contains no hosts; write lines as: HOST slots=N", file);
}

int hy_spec_hostfile(Hy__RunSpec *spec, const char *file, struct hy_err *err)
{
    hy_cleanup_buf struct hy_buf b;
    char *text;
    int rc;

    hy_buf_init(&b, FILE_MAX);
    rc = hy_file_read(file, &b);
    if (rc == -ENOMEM)
        return hy_err_oom(err);
    if (rc < 0) {
        hy_err_sys(err, rc, "cannot read the hosts in '%s'", file);
        return err->code = -EINVAL;
    }
    text = (char *)hy_buf_cstr(&b);
    return text ? each_line(spec, file, text, err) : hy_err_oom(err);
}

uint32_t hy_spec_slots(const Hy__RunSpec *spec)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < spec->n_hosts; i++)
        if (__builtin_add_overflow(sum, spec->hosts[i]->slots, &sum))
            return UINT32_MAX;
    return sum;
}
