/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libnvidia-ml.so.1 for machines without GPUs:
 *
 *     FAKE_NVML_DEVICES=2     how many (default: 0)
 *     FAKE_NVML_SEED=text     makes their UUIDs different from another test's
 *     FAKE_NVML_FAIL=init     init or memory: that call fails; hang: init does not return
 *     FAKE_NVML_USE=40        percent of each device that is busy, and of its memory that is used (default: 0)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GIB (1ull << 30)

static int fails(const char *call)
{
    const char *what = getenv("FAKE_NVML_FAIL");

    return what && strcmp(what, call) == 0;
}

static unsigned percent_used(void)
{
    const char *percent = getenv("FAKE_NVML_USE");

    return percent ? (unsigned)atoi(percent) : 0;
}

int nvmlInit_v2(void)
{
    while (fails("hang"))
        pause();
    return fails("init") ? 9 : 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    const char *n = getenv("FAKE_NVML_DEVICES");

    *count = n ? (unsigned)atoi(n) : 0;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, size_t *device)
{
    *device = index;
    return 0;
}

int nvmlDeviceGetUUID(size_t device, char *uuid, unsigned size)
{
    const char *seed = getenv("FAKE_NVML_SEED");

    snprintf(uuid, size, "GPU-%08zx-fake-%s", device + 0xa0, seed ? seed : "0");
    return 0;
}

int nvmlDeviceGetName(size_t device, char *name, unsigned size)
{
    snprintf(name, size, "Fake GPU %zu", device);
    return 0;
}

int nvmlDeviceGetMemoryInfo(size_t device, unsigned long long *memory)
{
    (void)device;
    memory[0] = 16 * GIB;
    memory[2] = 16 * GIB / 100 * percent_used();
    memory[1] = memory[0] - memory[2];
    return fails("memory") ? 15 : 0;
}

int nvmlDeviceGetUtilizationRates(size_t device, unsigned *percent)
{
    (void)device;
    percent[0] = percent[1] = percent_used();
    return 0;
}

const char *nvmlErrorString(int code)
{
    return code == 9 ? "Driver Not Loaded" : "GPU is lost";
}
