/* SPDX-License-Identifier: Apache-2.0 */
/* The table of started requests. A handle is a number, not a pointer, since a graph may pass any int64. */
#include "tensorflow/ops.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hy_map table;
static struct hy_list abandoned = {&abandoned, &abandoned};
static size_t abandoned_count;
static int64_t last_handle;

static struct hy_pending *pending_alloc(const char *name, size_t input_count, size_t output_count)
{
    struct hy_pending *p = hy_calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    hy_list_init(&p->link);
    p->input_count = input_count;
    p->output_count = output_count;
    p->name = hy_strdup(name);
    p->inputs = hy_calloc(input_count + output_count + 1, sizeof(p->inputs[0])); /* + 1: never of size 0 */
    if (!p->name || !p->inputs) {
        hy_pending_free(p);
        return NULL;
    }
    p->outputs = p->inputs + input_count;
    return p;
}

void hy_pending_free(struct hy_pending *p)
{
    if (!p)
        return;
    for (size_t i = 0; p->inputs && i < p->input_count + p->output_count; i++)
        hy_tf_delete_tensor_at(&p->inputs[i]);
    free(p->inputs);
    free(p->name);
    free(p);
}

static int add(struct hy_pending *p)
{
    int r;

    pthread_mutex_lock(&lock);
    p->handle = ++last_handle;
    r = hy_map_put(&table, (uint64_t)p->handle, p);
    pthread_mutex_unlock(&lock);
    return r;
}

int64_t hy_pending_look_up(int64_t handle, bool *ret_was_polled)
{
    struct hy_pending *p;
    int64_t ticket = 0;

    pthread_mutex_lock(&lock);
    p = hy_map_get(&table, (uint64_t)handle);
    if (p) {
        ticket = p->ticket;
        *ret_was_polled = p->is_polled;
        p->is_polled = true;
    }
    pthread_mutex_unlock(&lock);
    return ticket;
}

void hy_pending_set_holds_thread(int64_t handle)
{
    struct hy_pending *p;

    pthread_mutex_lock(&lock);
    p = hy_map_get(&table, (uint64_t)handle);
    if (p)
        p->holds_thread = true;
    pthread_mutex_unlock(&lock);
}

struct hy_pending *hy_pending_take(int64_t handle)
{
    struct hy_pending *p;

    pthread_mutex_lock(&lock);
    p = hy_map_remove(&table, (uint64_t)handle);
    pthread_mutex_unlock(&lock);
    return p;
}

void hy_pending_abandon(struct hy_pending *p)
{
    pthread_mutex_lock(&lock);
    hy_list_push(&abandoned, &p->link);
    abandoned_count++;
    pthread_mutex_unlock(&lock);
}

/* The handle's tensor is unreferenced. TensorFlow calls this from any thread, so it must not block. */
static void release(void *data, size_t bytes, void *arg)
{
    struct hy_pending *p = hy_pending_take((int64_t)(uintptr_t)arg);

    (void)bytes;
    free(data);
    if (p)
        hy_pending_abandon(p);
}

static TF_Tensor *tensor_of(int64_t handle)
{
    int64_t *data = aligned_alloc(TF_ALIGNMENT, TF_ALIGNMENT);

    if (!data)
        return NULL;
    *data = handle;
    return hy_tf.NewTensor(TF_INT64, NULL, 0, data, sizeof(*data), release, (void *)(uintptr_t)handle);
}

struct hy_pending *hy_pending_new(const char *name, size_t input_count, size_t output_count, TF_Tensor **ret_handle)
{
    struct hy_pending *p = pending_alloc(name, input_count, output_count);

    if (!p || add(p) < 0) {
        hy_pending_free(p);
        return NULL;
    }
    *ret_handle = tensor_of(p->handle);
    if (*ret_handle)
        return p;
    hy_pending_free(hy_pending_take(p->handle));
    return NULL;
}

static struct hy_pending *take_abandoned(const char *name, uint32_t set)
{
    struct hy_pending *found = NULL;

    pthread_mutex_lock(&lock);
    hy_list_each(it, &abandoned) {
        struct hy_pending *p = hy_container(it, struct hy_pending, link);

        if (p->set != set || strcmp(p->name, name) != 0)
            continue;
        hy_list_remove(it);
        abandoned_count--;
        found = p;
        break;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void hy_pending_reap(const struct hy_bridge *bridge, const char *name, uint32_t set)
{
    struct hy_pending *p;
    struct hy_err err; /* ignored */

    while ((p = take_abandoned(name, set))) {
        (void)bridge->wait(p->ticket, &err);
        hy_pending_free(p);
    }
}

size_t hy_pending_count(void)
{
    pthread_mutex_lock(&lock);
    size_t count = table.count + abandoned_count;
    pthread_mutex_unlock(&lock);
    return count;
}
