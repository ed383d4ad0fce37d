/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both interfaces are C ABIs that have been stable for years; the few functions used are declared here and found by
 * dlsym, so neither is needed to build. Both block until all ranks have called them and cannot be interrupted, so a
 * separate thread makes the calls.
 *
 * The library is finalized at once: a launcher takes the exit of a process without finalization for a crash.
 */
#include "collective/group/pmi.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "collective/group/thread.h"

#define KEY "hopyard.rank0"
#define LOOK_MS 100

struct exchange {
    unsigned rank;
    char text[HY_PMI_TEXT];
    struct hy_err err;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_over;
    atomic_int users; /* the caller and the thread; the last one frees it */
};

/* ---- PMIx -------------------------------------------------------------------------------- */

struct pmix_process {
    char space[256];
    uint32_t rank;
};

struct pmix_value {
    uint16_t type;
    char *string;
    char rest[112]; /* of a union that has grown over the versions */
};

#define PMIX_STRING 3
#define PMIX_GLOBAL 3

struct pmix {
    int (*init)(struct pmix_process *process, void *info, size_t n);
    int (*put)(uint8_t scope, const char *key, struct pmix_value *value);
    int (*commit)(void);
    int (*fence)(const struct pmix_process *processes, size_t count, const void *info, size_t n);
    int (*get)(const struct pmix_process *process, const char *key, const void *info, size_t n,
               struct pmix_value **ret);
    int (*finalize)(const void *info, size_t n);
    const char *(*error_string)(int status);
};

static int pmix_failed(const struct pmix *p, const char *call, int status, struct hy_err *err)
{
    return hy_err_set(err, -EIO, "PMIx of the launcher did not transfer the address of rank 0: %s: %s", call,
                      p->error_string(status));
}

static int pmix_get(const struct pmix *p, const struct pmix_process *self, char *text, struct hy_err *err)
{
    struct pmix_process first = *self;
    struct pmix_value *value = NULL;
    int status, rc = 0;

    first.rank = 0;
    status = p->get(&first, KEY, NULL, 0, &value);
    if (status || !value)
        return pmix_failed(p, "PMIx_Get", status, err);
    if (value->type == PMIX_STRING && value->string && strlen(value->string) < HY_PMI_TEXT)
        strcpy(text, value->string);
    else
        rc = hy_err_set(err, -EPROTO, "PMIx of the launcher transferred an invalid address of rank 0");
    if (value->type == PMIX_STRING)
        free(value->string);
    free(value);
    return rc;
}

static int pmix_exchange(const struct pmix *p, struct exchange *x)
{
    struct pmix_process self = {0};
    struct pmix_value value = {.type = PMIX_STRING, .string = x->text};
    int rc = 0, status = p->init(&self, NULL, 0);

    if (status)
        return pmix_failed(p, "PMIx_Init", status, &x->err);
    if (x->rank == 0 && ((status = p->put(PMIX_GLOBAL, KEY, &value)) || (status = p->commit())))
        rc = pmix_failed(p, "PMIx_Put", status, &x->err);
    if (rc == 0 && (status = p->fence(NULL, 0, NULL, 0)))
        rc = pmix_failed(p, "PMIx_Fence", status, &x->err);
    if (rc == 0 && x->rank != 0)
        rc = pmix_get(p, &self, x->text, &x->err);
    status = p->finalize(NULL, 0);
    return rc == 0 && status ? pmix_failed(p, "PMIx_Finalize", status, &x->err) : rc;
}

/* ---- PMI-2 -------------------------------------------------------------------------------- */

struct pmi2 {
    int (*init)(int *spawned, int *size, int *rank, int *application);
    int (*job)(char *id, int size);
    int (*put)(const char *key, const char *value);
    int (*fence)(void);
    int (*get)(const char *job, int source, const char *key, char *value, int size, int *length);
    int (*finalize)(void);
};

static int pmi2_failed(const char *call, int status, struct hy_err *err)
{
    return hy_err_set(err, -EIO, "PMI-2 of the launcher did not transfer the address of rank 0: %s: error %d", call,
                      status);
}

static int pmi2_exchange(const struct pmi2 *p, struct exchange *x)
{
    int spawned, size, rank, application, length = 0, rc = 0, status = p->init(&spawned, &size, &rank, &application);
    char job[256] = "";

    if (status)
        return pmi2_failed("PMI2_Init", status, &x->err);
    if (x->rank == 0 && (status = p->put(KEY, x->text)))
        rc = pmi2_failed("PMI2_KVS_Put", status, &x->err);
    if (rc == 0 && (status = p->fence()))
        rc = pmi2_failed("PMI2_KVS_Fence", status, &x->err);
    if (rc == 0 && (status = p->job(job, sizeof job)))
        rc = pmi2_failed("PMI2_Job_GetId", status, &x->err);
    if (rc == 0 && x->rank != 0) {
        status = p->get(job, -1, KEY, x->text, sizeof x->text, &length);
        x->text[sizeof x->text - 1] = '\0';
        if (status || length <= 0)
            rc = pmi2_failed("PMI2_KVS_Get", status, &x->err);
    }
    status = p->finalize();
    return rc == 0 && status ? pmi2_failed("PMI2_Finalize", status, &x->err) : rc;
}

/* ---- selection ------------------------------------------------------------------------- */

/* Resolves names to the members of a struct of function pointers; false: one is missing. */
static bool look_up(void *library, const char *const *names, size_t count, void *functions)
{
    for (size_t i = 0; i < count; i++) {
        void *function = dlsym(library, names[i]);

        if (!function)
            return false;
        memcpy((char *)functions + i * sizeof function, &function, sizeof function);
    }
    return true;
}

static bool is_set(const char *name)
{
    const char *text = getenv(name);

    return text && *text;
}

static bool has_pmix(void)
{
    return is_set("PMIX_NAMESPACE") && is_set("PMIX_RANK");
}

bool hy_pmi_is_offered(void)
{
    return has_pmix() || is_set("PMI_FD");
}

/* The library is not unloaded: its threads may still run after finalization. */
static int exchange(struct exchange *x)
{
    static const char *const pmix_names[] = {"PMIx_Init", "PMIx_Put",      "PMIx_Commit",      "PMIx_Fence",
                                             "PMIx_Get",  "PMIx_Finalize", "PMIx_Error_string"};
    static const char *const pmi2_names[] = {"PMI2_Init",      "PMI2_Job_GetId", "PMI2_KVS_Put",
                                             "PMI2_KVS_Fence", "PMI2_KVS_Get",   "PMI2_Finalize"};
    const char *name = has_pmix() ? "libpmix.so.2" : "libpmi2.so.0";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    struct pmix pmix;
    struct pmi2 pmi2;

    if (!library)
        return hy_err_set(&x->err, -ENOTSUP, "%s", dlerror());
    if (has_pmix() && look_up(library, pmix_names, HY_COUNT(pmix_names), &pmix))
        return pmix_exchange(&pmix, x);
    if (!has_pmix() && look_up(library, pmi2_names, HY_COUNT(pmi2_names), &pmi2))
        return pmi2_exchange(&pmi2, x);
    return hy_err_set(&x->err, -ENOTSUP, "%s lacks required functions", name);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void unref(struct exchange *x)
{
    if (atomic_fetch_sub(&x->users, 1) != 1)
        return;
    pthread_mutex_destroy(&x->lock);
    pthread_cond_destroy(&x->changed);
    explicit_bzero(x, sizeof *x);
    free(x);
}

static void *run(void *arg)
{
    struct exchange *x = arg;

    (void)exchange(x); /* the error is in x->err */
    pthread_mutex_lock(&x->lock);
    x->is_over = true;
    pthread_cond_signal(&x->changed);
    pthread_mutex_unlock(&x->lock);
    unref(x);
    return NULL;
}

static struct timespec soon(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += LOOK_MS * 1000000L;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static bool await(struct exchange *x, bool (*give_up)(void *arg), void *arg)
{
    bool is_over, enough = false;

    do {
        struct timespec until = soon();

        pthread_mutex_lock(&x->lock);
        if (!x->is_over)
            pthread_cond_timedwait(&x->changed, &x->lock, &until);
        is_over = x->is_over;
        pthread_mutex_unlock(&x->lock);
        enough = !is_over && give_up && give_up(arg);
    } while (!is_over && !enough);
    return is_over;
}

int hy_pmi_share(unsigned rank, char text[HY_PMI_TEXT], bool (*give_up)(void *arg), void *arg, struct hy_err *err)
{
    struct exchange *x = hy_calloc(1, sizeof *x);
    int rc;

    if (!x)
        return hy_err_oom(err);
    x->rank = rank;
    snprintf(x->text, sizeof x->text, "%s", rank == 0 ? text : "");
    pthread_mutex_init(&x->lock, NULL);
    pthread_cond_init(&x->changed, NULL);
    atomic_init(&x->users, 2);
    rc = hy_thread_start(NULL, run, x);
    if (rc < 0) {
        unref(x);
        unref(x);
        return hy_err_sys(err, rc, "cannot start a thread to find the other ranks through the launcher");
    }
    if (!await(x, give_up, arg))
        rc = hy_err_set(err, -EINTR, "interrupted while waiting for the other ranks");
    else if (x->err.code)
        rc = hy_err_set(err, x->err.code, "%s", x->err.text);
    else
        memcpy(text, x->text, HY_PMI_TEXT);
    unref(x);
    return rc;
}
