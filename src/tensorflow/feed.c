/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HopyardFeed: the next batch of a feed, as tensors; a ragged column has a tensor of
 * values and one of row ends. It waits for a tenth of a second at most: then `state`
 * reports that there is no batch yet, and the tensors have no rows. TensorFlow's C
 * API does not notify a kernel that its step was cancelled; TensorFlow checks that
 * between two calls.
 */
#include "tensorflow/ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "tensorflow/memory.h"

#define TEXT_SIZE 24 /* of TensorFlow's string, on all 64-bit machines */

static const TF_DataType types[HY_DTYPES] = {
    [HY_DTYPE_BOOL] = TF_BOOL,     [HY_DTYPE_INT8] = TF_INT8,     [HY_DTYPE_INT16] = TF_INT16,
    [HY_DTYPE_INT32] = TF_INT32,   [HY_DTYPE_INT64] = TF_INT64,   [HY_DTYPE_UINT8] = TF_UINT8,
    [HY_DTYPE_UINT16] = TF_UINT16, [HY_DTYPE_UINT32] = TF_UINT32, [HY_DTYPE_UINT64] = TF_UINT64,
    [HY_DTYPE_FLOAT16] = TF_HALF,  [HY_DTYPE_FLOAT32] = TF_FLOAT, [HY_DTYPE_FLOAT64] = TF_DOUBLE,
    [HY_DTYPE_BYTES] = TF_STRING,  [HY_DTYPE_STR] = TF_STRING,
};

/* ---- strings ----------------------------------------------------------------------------- */

/* Looked up when the op is registered. Without them only feeds with strings fail. */
static struct {
    void (*init)(void *text);
    void (*copy)(void *to, const char *text, size_t n);
    void (*done)(void *text);
} strings;

static void find_strings(void)
{
    *(void **)&strings.init = hy_tf_symbol("TF_StringInit");
    *(void **)&strings.copy = hy_tf_symbol("TF_StringCopy");
    *(void **)&strings.done = hy_tf_symbol("TF_StringDealloc");
}

static void put_text(void *to, const char *text, size_t n)
{
    strings.init(to);
    strings.copy(to, text, n);
}

static void drop_text(void *text)
{
    strings.done(text);
}

static const struct hy_gather_sink sink = {.take = hy_memory_alloc,
                                           .drop = hy_memory_free,
                                           .text_size = TEXT_SIZE,
                                           .put_text = put_text,
                                           .drop_text = drop_text};

/* ---- tensors ------------------------------------------------------------------------------ */

static void release(void *data, size_t bytes, void *arg)
{
    (void)bytes;
    (void)arg;
    hy_memory_free(data);
}

static void release_texts(void *data, size_t bytes, void *arg)
{
    (void)arg;
    for (size_t at = 0; at < bytes; at += TEXT_SIZE)
        drop_text((uint8_t *)data + at);
    hy_memory_free(data);
}

/* The tensor takes the column's memory. */
static TF_Tensor *take_values(struct hy_gathered_column *c, uint64_t rows)
{
    const TF_DataType type = types[c->like.dtype];
    const int64_t *ends = (const int64_t *)(const void *)hy_buf_bytes(&c->row_ends);
    int64_t dims[HY_BATCH_DIMS + 1];
    TF_Tensor *tensor;

    dims[0] = c->like.is_ragged ? ends[rows] : (int64_t)rows;
    for (unsigned i = 0; i < c->like.dims; i++)
        dims[i + 1] = (int64_t)c->like.shape[i];
    if (c->values_n == 0)
        return hy_tf.AllocateTensor(type, dims, (int)c->like.dims + 1, 0);
    tensor = hy_tf.NewTensor(type, dims, (int)c->like.dims + 1, c->values, c->values_n,
                             type == TF_STRING ? release_texts : release, NULL);
    c->values = NULL; /* TensorFlow calls `release` even if it copies the data, or fails to */
    c->values_n = 0;
    return tensor;
}

static TF_Tensor *row_ends(const struct hy_gathered_column *c, uint64_t rows)
{
    const int64_t count = (int64_t)rows + 1;
    TF_Tensor *tensor = hy_tf.AllocateTensor(TF_INT64, &count, 1, (size_t)count * sizeof count);

    if (tensor)
        memcpy(hy_tf.TensorData(tensor), hy_buf_bytes(&c->row_ends), (size_t)count * sizeof count);
    return tensor;
}

/* ---- outputs ------------------------------------------------------------------------------- */

static int set_output(TF_OpKernelContext *ctx, int index, TF_Tensor *made, struct hy_err *err)
{
    hy_cleanup_status TF_Status *status = hy_tf.NewStatus();
    hy_cleanup_tensor TF_Tensor *tensor = made;

    if (!tensor)
        return hy_err_oom(err);
    if (index >= hy_tf.NumOutputs(ctx) || hy_tf.ExpectedOutputDataType(ctx, index) != hy_tf.TensorType(tensor))
        return hy_err_set(err, -EINVAL, "HopyardFeed: Tout does not match the types of the feed's columns");
    hy_tf.SetOutput(ctx, index, tensor, status);
    return hy_tf.GetCode(status) == TF_OK ? 0 : hy_err_set(err, -EPROTO, "HopyardFeed: %s", hy_tf.Message(status));
}

static int set_state(TF_OpKernelContext *ctx, int32_t state, struct hy_err *err)
{
    TF_Tensor *tensor = hy_tf.AllocateTensor(TF_INT32, NULL, 0, sizeof(state));

    if (tensor)
        memcpy(hy_tf.TensorData(tensor), &state, sizeof(state));
    return set_output(ctx, 0, tensor, err);
}

static int set_columns(TF_OpKernelContext *ctx, struct hy_gathered *g, int *index, struct hy_err *err)
{
    for (uint32_t i = 0; i < g->count; i++) {
        struct hy_gathered_column *c = &g->columns[i];
        int rc = set_output(ctx, (*index)++, take_values(c, g->rows), err);

        if (rc == 0 && c->like.is_ragged)
            rc = set_output(ctx, (*index)++, row_ends(c, g->rows), err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* A feed that has been closed has no columns: sets an empty tensor for each remaining output. */
static int set_rest(TF_OpKernelContext *ctx, int index, struct hy_err *err)
{
    int rc = 0;

    for (; rc == 0 && index < hy_tf.NumOutputs(ctx); index++)
        rc = set_output(ctx, index, hy_tf.AllocateTensor(hy_tf.ExpectedOutputDataType(ctx, index), &(int64_t){0}, 1, 0),
                        err);
    return rc;
}

static int set_outputs(TF_OpKernelContext *ctx, int state, struct hy_gathered *g, struct hy_err *err)
{
    int index = 1, rc = set_state(ctx, state, err);

    if (rc == 0)
        rc = set_columns(ctx, g, &index, err);
    return rc == 0 ? set_rest(ctx, index, err) : rc;
}

/* ---- the op -------------------------------------------------------------------------------- */

static bool has_strings(TF_OpKernelContext *ctx)
{
    for (int i = 1; i < hy_tf.NumOutputs(ctx); i++)
        if (hy_tf.ExpectedOutputDataType(ctx, i) == TF_STRING)
            return true;
    return false;
}

static int run(int64_t feed, TF_OpKernelContext *ctx, struct hy_err *err)
{
    const struct hy_bridge *bridge = hy_bridge_get(err);
    struct hy_gathered g = {0};
    int rc;

    if (!bridge)
        return err->code;
    if (!bridge->batch || (has_strings(ctx) && !(strings.init && strings.copy && strings.done)))
        return hy_err_set(err, -EPROTO, "HopyardFeed: the C API of this TensorFlow has no strings; use columns()");
    rc = bridge->batch(feed, &sink, &g, err);
    if (rc >= 0)
        rc = set_outputs(ctx, rc, &g, err);
    hy_gathered_done(&g);
    return rc;
}

static void compute(void *kernel, TF_OpKernelContext *ctx)
{
    struct hy_err err = {0};

    if (run(*(const int64_t *)kernel, ctx, &err) < 0)
        hy_tf_fail(ctx, &err);
}

static void *create(TF_OpKernelConstruction *ctx)
{
    hy_cleanup_status TF_Status *status = hy_tf.NewStatus();
    int64_t *feed = hy_calloc(1, sizeof(*feed));

    if (feed)
        hy_tf.OpKernelConstruction_GetAttrInt64(ctx, "feed", feed, status);
    else
        hy_tf.SetStatus(status, TF_RESOURCE_EXHAUSTED, "out of memory");
    if (hy_tf.GetCode(status) != TF_OK)
        hy_tf.OpKernelConstruction_Failure(ctx, status);
    return feed;
}

static void unknown_shapes(TF_ShapeInferenceContext *ctx, TF_Status *status)
{
    hy_tf.ShapeInferenceContextSetUnknownShape(ctx, status);
}

void hy_feed_register(TF_Status *status)
{
    static const char *const inputs[] = {NULL};
    static const char *const outputs[] = {"state: int32", "outputs: Tout", NULL};
    static const char *const attrs[] = {"feed: int", "Tout: list(type) >= 0", NULL};

    find_strings();
    hy_op_register(&(struct hy_op_spec){.name = "HopyardFeed",
                                        .inputs = inputs,
                                        .outputs = outputs,
                                        .attrs = attrs,
                                        .shape = unknown_shapes,
                                        .create = create,
                                        .compute = compute,
                                        .destroy = free},
                   status);
}
