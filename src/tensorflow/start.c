/* SPDX-License-Identifier: Apache-2.0 */
/* HopyardStart: passes tensors to the group and returns at once. */
#include "tensorflow/ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* The attributes of one node. */
struct start {
    int64_t kind, reduce, set, root;
    int64_t prescale, postscale; /* bits of a double: TensorFlow's float attributes are float32 */
    int64_t tensor_count, splits_count;
    int64_t waits_next;
    char *name;
};

static const struct {
    const char *attr;
    size_t offset;
} numbers[] = {
    {"kind", offsetof(struct start, kind)},
    {"reduce", offsetof(struct start, reduce)},
    {"set", offsetof(struct start, set)},
    {"root", offsetof(struct start, root)},
    {"prescale", offsetof(struct start, prescale)},
    {"postscale", offsetof(struct start, postscale)},
    {"N", offsetof(struct start, tensor_count)},
    {"S", offsetof(struct start, splits_count)},
    {"waits_next", offsetof(struct start, waits_next)},
};

static void read_name(struct start *s, TF_OpKernelConstruction *ctx, TF_Status *status)
{
    int32_t list, length = 0;

    hy_tf.OpKernelConstruction_GetAttrSize(ctx, "tensor_name", &list, &length, status);
    if (hy_tf.GetCode(status) != TF_OK)
        return;
    s->name = hy_calloc((size_t)length + 1, 1);
    if (s->name)
        hy_tf.OpKernelConstruction_GetAttrString(ctx, "tensor_name", s->name, (size_t)length, status);
    else
        hy_tf.SetStatus(status, TF_RESOURCE_EXHAUSTED, "out of memory");
}

static void check(const struct start *s, TF_Status *status)
{
    const char *wrong = NULL;

    if (s->kind < 0 || s->kind > HY_JOIN)
        wrong = "invalid kind of collective";
    else if (s->reduce < 0 || s->reduce >= HY_REDUCES)
        wrong = "invalid reduction";
    else if (s->set < 0 || s->set > UINT32_MAX)
        wrong = "invalid process set";
    else if (s->root < 0 || s->root > UINT32_MAX)
        wrong = "invalid root rank";
    else if ((s->tensor_count > 0) == (s->kind == HY_BARRIER || s->kind == HY_JOIN))
        wrong = "a barrier or join has no tensors, other collectives at least one";
    else if (s->tensor_count > HY_TENSORS_MAX || (s->kind == HY_ALLTOALL && s->tensor_count != 1))
        wrong = "too many tensors for one request";
    else if (s->splits_count > (s->kind == HY_ALLTOALL))
        wrong = "only an alltoall has splits";
    if (wrong)
        hy_tf.SetStatus(status, TF_INVALID_ARGUMENT, wrong);
}

static void read_attrs(struct start *s, TF_OpKernelConstruction *ctx, TF_Status *status)
{
    for (size_t i = 0; i < HY_COUNT(numbers) && hy_tf.GetCode(status) == TF_OK; i++) {
        int64_t *value = (int64_t *)(void *)((char *)s + numbers[i].offset);

        hy_tf.OpKernelConstruction_GetAttrInt64(ctx, numbers[i].attr, value, status);
    }
    if (hy_tf.GetCode(status) == TF_OK)
        read_name(s, ctx, status);
    if (hy_tf.GetCode(status) == TF_OK)
        check(s, status);
}

static void destroy(void *kernel)
{
    struct start *s = kernel;

    if (!s)
        return;
    free(s->name);
    free(s);
}

static void *create(TF_OpKernelConstruction *ctx)
{
    hy_cleanup_status TF_Status *status = hy_tf.NewStatus();
    struct start *s = hy_calloc(1, sizeof(*s));

    if (s)
        read_attrs(s, ctx, status);
    else
        hy_tf.SetStatus(status, TF_RESOURCE_EXHAUSTED, "out of memory");
    if (hy_tf.GetCode(status) == TF_OK)
        return s;
    hy_tf.OpKernelConstruction_Failure(ctx, status);
    destroy(s);
    return NULL;
}

static size_t output_count(const struct start *s)
{
    switch (s->kind) {
    case HY_BARRIER:
        return 0;
    case HY_JOIN:
        return 1; /* the last rank that joined */
    case HY_ALLTOALL:
        return 2; /* the tensor and the received splits */
    default:
        return (size_t)s->tensor_count;
    }
}

/* For struct hy_request: called from any thread. */
static void *allocate(void *arg, size_t tensor, const int64_t *dims, uint32_t dim_count, size_t bytes)
{
    struct hy_pending *p = arg;
    TF_DataType type = p->kind == HY_ALLTOALL && tensor == 1 ? TF_INT32 : hy_tf_type_of(p->type);

    if (tensor >= p->output_count || p->outputs[tensor])
        return NULL;
    p->outputs[tensor] = hy_tf_allocate(type, dims, (int)dim_count, bytes);
    return p->outputs[tensor] ? hy_tf_memory(p->outputs[tensor]) : NULL;
}

static int take_inputs(struct hy_pending *p, TF_OpKernelContext *ctx, struct hy_err *err)
{
    hy_cleanup_status TF_Status *status = hy_tf.NewStatus();

    for (size_t i = 0; i < p->input_count; i++) {
        hy_tf.GetInput(ctx, (int)i, &p->inputs[i], status);
        if (hy_tf.GetCode(status) != TF_OK)
            return hy_err_set(err, -EINVAL, "input %zu: %s", i, hy_tf.Message(status));
    }
    return 0;
}

/* Allocates outputs of the same size as their inputs; other sizes are known only when all members have joined in. */
static int describe(struct hy_pending *p, size_t i, struct hy_tensor *tensor, struct hy_err *err)
{
    const TF_Tensor *input = p->inputs[i];
    int dim_count = hy_tf.NumDims(input);

    if (dim_count > HY_DIMS_MAX)
        return hy_err_set(err, -EINVAL, "tensor '%s' has %d dimensions (the limit is %d)", p->name, dim_count,
                          HY_DIMS_MAX);
    tensor->in = hy_tf_memory(input);
    tensor->dim_count = (uint32_t)dim_count;
    for (int d = 0; d < dim_count; d++)
        tensor->dims[d] = hy_tf.Dim(input, d);
    if (p->kind != HY_ALLREDUCE && p->kind != HY_BROADCAST)
        return 0;
    p->outputs[i] = hy_tf_allocate(hy_tf.TensorType(input), tensor->dims, dim_count, hy_tf.TensorByteSize(input));
    if (!p->outputs[i])
        return hy_err_set(err, -ENOMEM, "tensor '%s': out of memory", p->name);
    tensor->out = hy_tf_memory(p->outputs[i]);
    return 0;
}

static double from_bits(int64_t bits)
{
    double value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* In a group of one only waiting makes progress: an abandoned request is finished by waiting for it. */
static int64_t submit(const struct hy_bridge *bridge, const struct hy_request *request, struct hy_err *err)
{
    int64_t ticket = bridge->start(request, err);

    if (ticket == -EEXIST && bridge->query(HY_QUERY_SIZE) == 1) {
        hy_pending_reap(bridge, request->name, request->set);
        ticket = bridge->start(request, err);
    }
    return ticket;
}

static int64_t start_request(const struct hy_bridge *bridge, const struct start *s, struct hy_pending *p,
                             struct hy_err *err)
{
    hy_cleanup_free struct hy_tensor *tensors = hy_calloc((size_t)s->tensor_count + 1, sizeof(*tensors));
    const TF_Tensor *splits = s->splits_count ? p->inputs[s->tensor_count] : NULL;
    struct hy_request request = {
        .kind = p->kind,
        .name = p->name,
        .set = p->set,
        .type = p->type,
        .op = (enum hy_reduce)s->reduce,
        .prescale = from_bits(s->prescale),
        .postscale = from_bits(s->postscale),
        .root = (uint32_t)s->root,
        .tensor_count = (size_t)s->tensor_count,
        .tensors = tensors,
        .splits = splits ? hy_tf_memory(splits) : NULL,
        .split_count = splits ? hy_tf.TensorByteSize(splits) / sizeof(int64_t) : 0,
        .allocate = allocate,
        .arg = p,
        .waits_next = s->waits_next != 0,
    };

    if (!tensors)
        return hy_err_set(err, -ENOMEM, "tensor '%s': out of memory", p->name);
    for (size_t i = 0; i < request.tensor_count; i++) {
        if (describe(p, i, &tensors[i], err) < 0)
            return err->code;
    }
    return submit(bridge, &request, err);
}

static int prepare(const struct start *s, struct hy_pending *p, TF_OpKernelContext *ctx, struct hy_err *err)
{
    p->kind = (enum hy_kind)s->kind;
    p->set = (uint32_t)s->set;
    if (take_inputs(p, ctx, err) < 0)
        return err->code;
    if (s->tensor_count > 0 && hy_tf_type(hy_tf.TensorType(p->inputs[0]), &p->type) < 0)
        return hy_err_set(err, -EINVAL, "tensor '%s' has a type that collectives do not support", p->name);
    return 0;
}

static int start(const struct hy_bridge *bridge, const struct start *s, struct hy_pending *p, TF_OpKernelContext *ctx,
                 struct hy_err *err)
{
    if (prepare(s, p, ctx, err) < 0)
        return err->code;
    p->ticket = start_request(bridge, s, p, err);
    if (p->ticket < 0)
        return (int)p->ticket;
    hy_pending_reap(bridge, p->name, p->set);
    return 0;
}

static void compute(void *kernel, TF_OpKernelContext *ctx)
{
    const struct start *s = kernel;
    hy_cleanup_status TF_Status *status = hy_tf.NewStatus();
    hy_cleanup_tensor TF_Tensor *handle = NULL;
    struct hy_err err = {0};
    const struct hy_bridge *bridge = hy_bridge_get(&err);
    struct hy_pending *p = NULL;

    if (bridge && !(p = hy_pending_new(s->name, (size_t)(s->tensor_count + s->splits_count), output_count(s), &handle)))
        hy_err_set(&err, -ENOMEM, "tensor '%s': out of memory", s->name);
    if (p && start(bridge, s, p, ctx, &err) == 0) {
        hy_tf.SetOutput(ctx, 0, handle, status);
        hy_tf_failed(ctx, status);
        return;
    }
    if (p)
        hy_pending_free(hy_pending_take(p->handle));
    hy_tf_add_op_name(&err, (enum hy_kind)s->kind, s->name);
    hy_tf_fail(ctx, &err);
}

void hy_start_register(TF_Status *status)
{
    static const char *const inputs[] = {"tensors: N * T", "splits: S * int64", NULL};
    static const char *const outputs[] = {"handle: int64", NULL};
    static const char *const attrs[] = {
        "T: {uint8, int8, uint16, int16, uint32, int32, uint64, int64, half, bfloat16, float, double, bool} = DT_FLOAT",
        "N: int >= 0",
        "S: int >= 0",
        "kind: int",
        "tensor_name: string",
        "reduce: int = 0",
        "set: int = 0",
        "root: int = 0",
        "waits_next: int = 0",
        "prescale: int = 4607182418800017408",
        "postscale: int = 4607182418800017408", /* 1.0 */
        NULL,
    };

    hy_op_register(&(struct hy_op_spec){.name = "HopyardStart",
                                        .inputs = inputs,
                                        .outputs = outputs,
                                        .attrs = attrs,
                                        .shape = hy_op_scalar_shape,
                                        .create = create,
                                        .compute = compute,
                                        .destroy = destroy},
                   status);
}
