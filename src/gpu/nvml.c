/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NVIDIA's management library: loaded at run time, and declared here, so that CUDA is
 * not needed to build.
 */
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/internal.h"
#include "base/mem.h"
#include "base/text.h"

#define LIBRARY "libnvidia-ml.so.1"

typedef struct nvml_device *nvml_device;

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_utilization {
    unsigned gpu, memory; /* percent */
};

struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *count);
    int (*handle)(unsigned index, nvml_device *device);
    int (*uuid)(nvml_device device, char *uuid, unsigned size);
    int (*name)(nvml_device device, char *name, unsigned size);
    int (*memory)(nvml_device device, struct nvml_memory *memory);
    int (*utilization)(nvml_device device, struct nvml_utilization *ret); /* NULL: this library has none */
    const char *(*error)(int code);
};

static void *open_library(void)
{
    return dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

bool hy_nvml_is_here(void)
{
    void *library = open_library();

    if (library)
        dlclose(library);
    return library != NULL;
}

static int load(struct nvml *n, struct hy_err *err)
{
    const struct {
        const char *name;
        void *to;
    } entries[] = {{"nvmlInit_v2", &n->init},
                   {"nvmlShutdown", &n->shutdown},
                   {"nvmlDeviceGetCount_v2", &n->count},
                   {"nvmlDeviceGetHandleByIndex_v2", &n->handle},
                   {"nvmlDeviceGetUUID", &n->uuid},
                   {"nvmlDeviceGetName", &n->name},
                   {"nvmlDeviceGetMemoryInfo", &n->memory},
                   {"nvmlErrorString", &n->error}};

    n->library = open_library();
    if (!n->library)
        return hy_err_set(err, -ENOENT, "%s cannot be loaded", LIBRARY);
    for (size_t i = 0; i < HY_COUNT(entries); i++) {
        void *entry = dlsym(n->library, entries[i].name);

        if (!entry)
            return hy_err_set(err, -ENOSYS, "%s has no %s; its driver is too old", LIBRARY, entries[i].name);
        memcpy(entries[i].to, &entry, sizeof entry); /* C has no cast from data to functions */
    }
    memcpy(&n->utilization, &(void *){dlsym(n->library, "nvmlDeviceGetUtilizationRates")}, sizeof(void *));
    return 0;
}

static int failed(const struct nvml *n, int code, const char *call, struct hy_err *err)
{
    return hy_err_set(err, -EIO, "%s: %s: %s", LIBRARY, call, n->error(code));
}

/* UUIDs become parts of environment variables and lock names. */
static bool is_plain(const char *uuid)
{
    size_t n = 0;

    while (isalnum((unsigned char)uuid[n]) || uuid[n] == '-')
        n++;
    return n && !uuid[n];
}

/* Parts of a GPU (MIG) have no utilization: they count as idle. */
static void measure(const struct nvml *n, nvml_device device, const struct nvml_memory *memory,
                    struct hy_gpu_device *ret)
{
    struct nvml_utilization busy = {0};

    if (n->utilization && n->utilization(device, &busy) == 0)
        ret->use = (busy.gpu < 100 ? busy.gpu : 100) * 10;
    ret->memory_used = memory->used;
    ret->is_measured = true;
}

static int describe(const struct nvml *n, unsigned index, struct hy_gpu_device *ret, struct hy_err *err)
{
    struct nvml_memory memory = {0};
    nvml_device device;
    int code = n->handle(index, &device);

    memset(ret, 0, sizeof *ret);
    if (code == 0)
        code = n->uuid(device, ret->uuid, sizeof ret->uuid);
    if (code == 0)
        code = n->name(device, ret->name, sizeof ret->name);
    if (code == 0)
        code = n->memory(device, &memory);
    if (code != 0)
        return failed(n, code, "a device cannot be read", err);
    ret->uuid[sizeof ret->uuid - 1] = ret->name[sizeof ret->name - 1] = '\0';
    ret->memory = memory.total;
    measure(n, device, &memory, ret);
    if (!is_plain(ret->uuid))
        return hy_err_set(err, -EINVAL, "%s: device %u has an invalid UUID", LIBRARY, index);
    return 0;
}

static int list_all(const struct nvml *n, struct hy_gpu_device *list, size_t room, struct hy_err *err)
{
    unsigned count = 0;
    int code = n->count(&count), rc = 0;

    if (code != 0)
        return failed(n, code, "devices cannot be counted", err);
    count = count < room ? count : (unsigned)room;
    for (unsigned i = 0; i < count && rc == 0; i++)
        rc = describe(n, i, &list[i], err);
    return rc < 0 ? rc : (int)count;
}

int hy_nvml_list(struct hy_gpu_device *list, size_t room, struct hy_err *err)
{
    struct nvml n = {0};
    int code, rc = load(&n, err);

    if (rc == 0) {
        code = n.init();
        rc = code ? failed(&n, code, "it cannot be started", err) : list_all(&n, list, room, err);
        if (code == 0)
            n.shutdown();
    }
    if (n.library)
        dlclose(n.library);
    return rc;
}

/* ---- CUDA_VISIBLE_DEVICES ---- */

/* The device that an entry names, or `count`. */
static size_t find(const struct hy_gpu_device *list, size_t count, const char *entry, size_t n)
{
    hy_cleanup_free char *text = hy_strndup(entry, n);
    size_t found = count;
    uint64_t index;

    if (!text || n == 0)
        return count;
    if (hy_parse_u64(text, &index) == 0)
        return index < count ? index : count;
    for (size_t i = 0; i < count; i++) {
        if (strncasecmp(list[i].uuid, text, n) != 0)
            continue;
        if (found < count)
            return count; /* ambiguous */
        found = i;
    }
    return found;
}

size_t hy_gpu_visible(const char *visible, struct hy_gpu_device *list, size_t count)
{
    struct hy_gpu_device all[HY_GPUS_MAX];
    bool taken[HY_GPUS_MAX] = {false};
    size_t kept = 0;

    if (!visible || count > HY_GPUS_MAX)
        return count;
    memcpy(all, list, count * sizeof *all);
    while (*visible) {
        size_t n = strcspn(visible, ","), skip = strspn(visible, " \t"), end = n, i;

        while (end > skip && strchr(" \t", visible[end - 1]))
            end--;
        i = end > skip ? find(all, count, visible + skip, end - skip) : count;
        if (i == count)
            break;
        if (!taken[i])
            list[kept++] = all[i];
        taken[i] = true;
        visible += n + (visible[n] == ',');
    }
    return kept;
}
