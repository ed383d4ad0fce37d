/* SPDX-License-Identifier: Apache-2.0 */
/* HopyardWait: waits for started requests and returns their results, in the order of the handles. */
#include "tensorflow/ops.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"

static const char *const names[] = {
    [HY_ALLREDUCE] = "HorovodAllreduce",
    [HY_ALLGATHER] = "HorovodAllgather",
    [HY_BROADCAST] = "HorovodBroadcast",
    [HY_ALLTOALL] = "HorovodAlltoall",
    [HY_REDUCESCATTER] = "HorovodReducescatter",
    [HY_BARRIER] = "HorovodBarrier",
    [HY_JOIN] = "HorovodJoin",
};

void hy_tf_add_op_name(struct hy_err *err, enum hy_kind kind, const char *name)
{
    if (err->code == -ECONNABORTED)
        hy_err_wrap(err, "%s '%s'", names[kind], name);
}

/* The cause of a deadlock may be that ops of this graph had no thread to run on. */
static void add_thread_hint(struct hy_err *err, const struct hy_pending *p)
{
    struct hy_err whole = *err;

    if (err->code == -EDEADLK && p->holds_thread)
        hy_err_set(err, err->code,
                   "%s. Each request of this graph holds a thread while it waits: give its session as many inter-op "
                   "threads as it has requests that do not depend on each other (TF_NUM_INTEROP_THREADS)",
                   whole.text);
}

static struct hy_pending *take(TF_OpKernelContext *ctx, int input, struct hy_err *err)
{
    hy_cleanup_status TF_Status *status = hy_tf.NewStatus();
    hy_cleanup_tensor TF_Tensor *tensor = NULL;
    struct hy_pending *p;
    int64_t handle = 0;

    hy_tf.GetInput(ctx, input, &tensor, status);
    if (tensor && hy_tf.TensorByteSize(tensor) == sizeof(handle))
        memcpy(&handle, hy_tf.TensorData(tensor), sizeof(handle));
    p = hy_pending_take(handle);
    if (!p)
        hy_err_set(err, -EINVAL,
                   "HopyardWait: input %d is not the handle of a request in flight; each is waited for once, in the "
                   "step that started it",
                   input);
    return p;
}

static int put_last_joined(struct hy_pending *p, int64_t rank)
{
    int32_t value = (int32_t)rank;

    p->outputs[0] = hy_tf.AllocateTensor(TF_INT32, NULL, 0, sizeof(value));
    if (!p->outputs[0])
        return -ENOMEM;
    memcpy(hy_tf.TensorData(p->outputs[0]), &value, sizeof(value));
    return 0;
}

/* Waits for `p`, which then has its outputs. An error is stored in `err`, unless it has an earlier one. */
static int wait_for(const struct hy_bridge *bridge, struct hy_pending *p, struct hy_err *err)
{
    struct hy_err own = {0};
    int64_t result = bridge->wait(p->ticket, &own);

    if (result >= 0 && p->kind == HY_JOIN && put_last_joined(p, result) < 0)
        result = hy_err_oom(&own);
    if (result >= 0)
        return 0;
    if (err->code == 0) {
        *err = own;
        err->code = (int)result;
        hy_tf_add_op_name(err, p->kind, p->name);
        add_thread_hint(err, p);
    }
    return (int)result;
}

static int check_output(TF_OpKernelContext *ctx, int index, const struct hy_pending *p, size_t i, struct hy_err *err)
{
    if (!p->outputs[i])
        return hy_err_set(err, -EPROTO, "tensor '%s': the group returned no result", p->name);
    if (index >= hy_tf.NumOutputs(ctx) || hy_tf.ExpectedOutputDataType(ctx, index) != hy_tf.TensorType(p->outputs[i]))
        return hy_err_set(err, -EINVAL, "HopyardWait: Tout does not match the types of the results of '%s'", p->name);
    return 0;
}

static int set_outputs(TF_OpKernelContext *ctx, struct hy_pending *const *all, int count, struct hy_err *err)
{
    hy_cleanup_status TF_Status *status = hy_tf.NewStatus();
    int index = 0;

    for (int h = 0; h < count; h++) {
        for (size_t i = 0; i < all[h]->output_count; i++, index++) {
            if (check_output(ctx, index, all[h], i, err) < 0)
                return err->code;
            hy_tf.SetOutput(ctx, index, all[h]->outputs[i], status);
        }
    }
    if (index != hy_tf.NumOutputs(ctx))
        return hy_err_set(err, -EINVAL, "HopyardWait: Tout has %d types for %d results", hy_tf.NumOutputs(ctx), index);
    if (hy_tf.GetCode(status) != TF_OK)
        return hy_err_set(err, -EPROTO, "HopyardWait: %s", hy_tf.Message(status));
    return 0;
}

/* Waits for all, even after an error: the group may still write to the memory of the others. */
static void wait_for_all(TF_OpKernelContext *ctx, struct hy_pending **all, int count, struct hy_err *err)
{
    const struct hy_bridge *bridge = hy_bridge_get(err);

    for (int i = 0; bridge && i < count; i++) {
        all[i] = take(ctx, i, err);
        /* Another thread is leaving the group: it is not known when the group stops using the memory. */
        if (all[i] && wait_for(bridge, all[i], err) == -ENOTCONN)
            hy_pending_abandon(hy_take(all[i]));
    }
}

static void compute(void *kernel, TF_OpKernelContext *ctx)
{
    int count = hy_tf.NumInputs(ctx);
    hy_cleanup_free struct hy_pending **all = hy_calloc((size_t)count + 1, sizeof(*all));
    struct hy_err err = {0};

    (void)kernel;
    if (all)
        wait_for_all(ctx, all, count, &err);
    else
        hy_err_oom(&err);
    if (err.code == 0)
        set_outputs(ctx, all, count, &err);
    for (int i = 0; all && i < count; i++)
        hy_pending_free(all[i]);
    if (err.code)
        hy_tf_fail(ctx, &err);
}

static void unknown_shapes(TF_ShapeInferenceContext *ctx, TF_Status *status)
{
    hy_tf.ShapeInferenceContextSetUnknownShape(ctx, status);
}

void hy_wait_register(TF_Status *status)
{
    static const char *const inputs[] = {"handles: M * int64", NULL};
    static const char *const outputs[] = {"outputs: Tout", NULL};
    static const char *const attrs[] = {"M: int >= 0", "Tout: list(type) >= 0", NULL};

    hy_op_register(&(struct hy_op_spec){.name = "HopyardWait",
                                        .inputs = inputs,
                                        .outputs = outputs,
                                        .attrs = attrs,
                                        .shape = unknown_shapes,
                                        .compute = compute},
                   status);
}
