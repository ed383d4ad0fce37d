/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks up TensorFlow's C API in the process, and converts types and errors.
 *
 * TensorFlow's libraries are not in the global scope in every version (in 2.12
 * an undefined symbol is not resolved), but libraries that are already loaded
 * can be opened by name.
 */
#include "tensorflow/tf_api.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/mem.h"

struct hy_tf hy_tf;

void *hy_tf_symbol(const char *name)
{
    static const char *const libraries[] = {"libtensorflow_framework.so.2", "libtensorflow_cc.so.2"};

    for (size_t i = 0; i < HY_COUNT(libraries); i++) {
        void *library = dlopen(libraries[i], RTLD_NOW | RTLD_NOLOAD);
        void *symbol = library ? dlsym(library, name) : NULL;

        if (library)
            dlclose(library); /* only drops the reference; TensorFlow keeps the library loaded */
        if (symbol)
            return symbol;
    }
    return dlsym(RTLD_DEFAULT, name);
}

int hy_tf_find(struct hy_err *err)
{
#define HY_TF_FIND(type, name, parameters)                                                                             \
    if (!(*(void **)&hy_tf.name = hy_tf_symbol("TF_" #name)))                                                          \
        return hy_err_set(err, -ENOSYS,                                                                                \
                          "this TensorFlow has no TF_" #name                                                           \
                          " in its C API, which hopyard's ops need; use TensorFlow 2.12 or newer");
    HY_TF_ENTRIES(HY_TF_FIND)
#undef HY_TF_FIND
    return 0;
}

static const TF_DataType types[HY_TYPES] = {
    [HY_U8] = TF_UINT8,  [HY_I8] = TF_INT8,    [HY_U16] = TF_UINT16, [HY_I16] = TF_INT16, [HY_U32] = TF_UINT32,
    [HY_I32] = TF_INT32, [HY_U64] = TF_UINT64, [HY_I64] = TF_INT64,  [HY_F16] = TF_HALF,  [HY_BF16] = TF_BFLOAT16,
    [HY_F32] = TF_FLOAT, [HY_F64] = TF_DOUBLE, [HY_BOOL] = TF_BOOL,
};

TF_DataType hy_tf_type_of(enum hy_type type)
{
    return types[type];
}

int hy_tf_type(TF_DataType type, enum hy_type *ret)
{
    for (unsigned i = 0; i < HY_TYPES; i++) {
        if (types[i] == type) {
            *ret = (enum hy_type)i;
            return 0;
        }
    }
    return -ENOTSUP;
}

void *hy_tf_memory(const TF_Tensor *tensor)
{
    static max_align_t nothing;
    void *memory = hy_tf.TensorData(tensor);

    return memory ? memory : &nothing;
}

static void release(void *data, size_t bytes, void *arg)
{
    (void)bytes;
    (void)arg;
    free(data);
}

/* Huge pages: with pages of 4 KB the first touch of 64 MB takes longer than their reduction. */
TF_Tensor *hy_tf_allocate(TF_DataType type, const int64_t *dims, int dim_count, size_t bytes)
{
    const size_t huge = 2u << 20;
    void *data;

    if (bytes < 2 * huge)
        return hy_tf.AllocateTensor(type, dims, dim_count, bytes);
    data = aligned_alloc(huge, (bytes + huge - 1) & ~(huge - 1));
    if (!data)
        return NULL;
    (void)madvise(data, bytes, MADV_HUGEPAGE); /* optional */
    return hy_tf.NewTensor(type, dims, dim_count, data, bytes, release, NULL);
}

/* Horovod's users catch these codes; its elastic mode treats UNKNOWN as the loss of a rank. */
static TF_Code status_code(int error)
{
    switch (-error) {
    case EBADMSG:
    case EDEADLK:
    case ENOTCONN:
        return TF_FAILED_PRECONDITION;
    case EINVAL:
    case EEXIST:
        return TF_INVALID_ARGUMENT;
    case ENOMEM:
        return TF_RESOURCE_EXHAUSTED;
    case ECONNABORTED:
        return TF_UNKNOWN;
    default:
        return TF_INTERNAL;
    }
}

void hy_tf_fail(TF_OpKernelContext *ctx, const struct hy_err *err)
{
    hy_cleanup_status TF_Status *status = hy_tf.NewStatus();

    hy_tf.SetStatus(status, status_code(err->code), err->text);
    hy_tf.OpKernelContext_Failure(ctx, status);
}

bool hy_tf_failed(TF_OpKernelContext *ctx, TF_Status *status)
{
    if (hy_tf.GetCode(status) == TF_OK)
        return false;
    hy_tf.OpKernelContext_Failure(ctx, status);
    return true;
}

void hy_tf_delete_status_at(TF_Status **status)
{
    if (*status)
        hy_tf.DeleteStatus(*status);
}

void hy_tf_delete_tensor_at(TF_Tensor **tensor)
{
    if (*tensor)
        hy_tf.DeleteTensor(*tensor);
}
