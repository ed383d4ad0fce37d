/* SPDX-License-Identifier: Apache-2.0 */
/* PMI-2 without a launcher: values and fences are files in $FAKE_PMI2. Each process fences once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int size, rank;

static FILE *file(const char *name, const char *mode)
{
    char path[512];

    snprintf(path, sizeof path, "%s/%s", getenv("FAKE_PMI2"), name);
    return fopen(path, mode);
}

int PMI2_Init(int *spawned, int *ret_size, int *ret_rank, int *application)
{
    *spawned = *application = 0;
    *ret_size = size = atoi(getenv("PMI_SIZE"));
    *ret_rank = rank = atoi(getenv("PMI_RANK"));
    return getenv("FAKE_PMI2") ? 0 : 14;
}

int PMI2_Job_GetId(char *id, int n)
{
    snprintf(id, (size_t)n, "job");
    return 0;
}

int PMI2_KVS_Put(const char *key, const char *value)
{
    FILE *f = file(key, "w");

    return !f || fputs(value, f) < 0 || fclose(f) ? 14 : 0;
}

int PMI2_KVS_Fence(void)
{
    char name[32];
    FILE *f;

    snprintf(name, sizeof name, "fence-%d", rank);
    f = file(name, "w");
    if (!f)
        return 14;
    fclose(f);
    for (int r = 0; r < size; r++) {
        snprintf(name, sizeof name, "fence-%d", r);
        while (!(f = file(name, "r")))
            usleep(10000);
        fclose(f);
    }
    return 0;
}

int PMI2_KVS_Get(const char *job, int source, const char *key, char *value, int n, int *length)
{
    FILE *f = file(key, "r");

    if (strcmp(job, "job") != 0 || source != -1 || !f)
        return 14;
    *length = (int)fread(value, 1, (size_t)n - 1, f);
    value[*length] = '\0';
    fclose(f);
    return 0;
}

int PMI2_Finalize(void)
{
    return 0;
}
