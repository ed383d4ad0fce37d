/* SPDX-License-Identifier: Apache-2.0 */
/* HopyardQuery: rank, size ... at the time the op runs, not when its graph is built (an elastic group changes). */
#include "tensorflow/ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

static void *create(TF_OpKernelConstruction *ctx)
{
    hy_cleanup_status TF_Status *status = hy_tf.NewStatus();
    int64_t *what = hy_calloc(1, sizeof(*what));

    if (what)
        hy_tf.OpKernelConstruction_GetAttrInt64(ctx, "what", what, status);
    else
        hy_tf.SetStatus(status, TF_RESOURCE_EXHAUSTED, "out of memory");
    if (hy_tf.GetCode(status) != TF_OK)
        hy_tf.OpKernelConstruction_Failure(ctx, status);
    return what;
}

static TF_Tensor *query(int64_t what, struct hy_err *err)
{
    const struct hy_bridge *bridge = hy_bridge_get(err);
    int32_t value = bridge ? bridge->query((int)what) : err->code;
    TF_Tensor *tensor;

    if (value < 0) {
        hy_err_set(err, value, value == -ENOTCONN ? HY_NOT_INITIALIZED : "HopyardQuery: invalid value of 'what'");
        return NULL;
    }
    tensor = hy_tf.AllocateTensor(TF_INT32, NULL, 0, sizeof(value));
    if (tensor)
        memcpy(hy_tf.TensorData(tensor), &value, sizeof(value));
    else
        hy_err_oom(err);
    return tensor;
}

static void compute(void *kernel, TF_OpKernelContext *ctx)
{
    hy_cleanup_status TF_Status *status = hy_tf.NewStatus();
    struct hy_err err = {0};
    hy_cleanup_tensor TF_Tensor *tensor = query(*(const int64_t *)kernel, &err);

    if (tensor) {
        hy_tf.SetOutput(ctx, 0, tensor, status);
        hy_tf_failed(ctx, status);
    } else {
        hy_tf_fail(ctx, &err);
    }
}

void hy_query_register(TF_Status *status)
{
    static const char *const inputs[] = {NULL};
    static const char *const outputs[] = {"value: int32", NULL};
    static const char *const attrs[] = {"what: int", NULL};

    hy_op_register(&(struct hy_op_spec){.name = "HopyardQuery",
                                        .inputs = inputs,
                                        .outputs = outputs,
                                        .attrs = attrs,
                                        .shape = hy_op_scalar_shape,
                                        .create = create,
                                        .compute = compute,
                                        .destroy = free},
                   status);
}
