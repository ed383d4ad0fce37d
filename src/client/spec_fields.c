/* SPDX-License-Identifier: Apache-2.0 */
#include "client/spec_fields.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"
#include "wire/wire.h"

int hy_spec_set_text(char **field, char *value, struct hy_err *err)
{
    if (!value)
        return hy_err_oom(err);
    if (*field != protobuf_c_empty_string)
        free(*field);
    *field = value;
    return 0;
}

/* Appends to a list of the message. Takes `entry`, on success only. */
static int take_entry(void ***list, size_t *count, void *entry, struct hy_err *err)
{
    if (!entry || hy_array_grow(*list, *count) < 0)
        return hy_err_oom(err);
    (*list)[(*count)++] = entry;
    return 0;
}

int hy_spec_add_text(char ***list, size_t *count, const char *text, struct hy_err *err)
{
    char *copy = hy_strdup(text);
    int rc = take_entry((void ***)list, count, copy, err);

    if (rc < 0)
        free(copy);
    return rc;
}

int hy_spec_copy_texts(char ***list, size_t *ret_count, char *const *texts, size_t count, struct hy_err *err)
{
    *list = hy_calloc(count, sizeof **list);
    if (!*list)
        return hy_err_oom(err);
    for (size_t i = 0; i < count; i++) {
        (*list)[i] = hy_strdup(texts[i]);
        if (!(*list)[i])
            return hy_err_oom(err);
        *ret_count = i + 1;
    }
    return 0;
}

int hy_spec_add_dim(Hy__RunSpec *spec, char *text, struct hy_err *err)
{
    Hy__Dim *dim = hy_malloc(sizeof *dim);
    int rc;

    if (!dim) {
        free(text);
        return hy_err_oom(err);
    }
    hy__dim__init(dim);
    rc = hy_spec_set_text(&dim->text, text, err);
    if (rc == 0)
        rc = take_entry((void ***)&spec->dims, &spec->n_dims, dim, err);
    if (rc < 0)
        hy__dim__free_unpacked(dim, &hy_proto_memory);
    return rc;
}

int hy_spec_add_host(Hy__RunSpec *spec, char *name, uint32_t slots, struct hy_err *err)
{
    Hy__HostSpec *host = hy_malloc(sizeof *host);
    int rc;

    if (!host) {
        free(name);
        return hy_err_oom(err);
    }
    hy__host_spec__init(host);
    host->slots = slots;
    rc = hy_spec_set_text(&host->host, name, err);
    if (rc == 0)
        rc = take_entry((void ***)&spec->hosts, &spec->n_hosts, host, err);
    if (rc < 0)
        hy__host_spec__free_unpacked(host, &hy_proto_memory);
    return rc;
}
