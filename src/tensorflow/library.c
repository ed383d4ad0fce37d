/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers the ops and the file systems when TensorFlow loads the library. An
 * error is kept and reported when they are used: `import tensorflow` must not
 * fail because of hopyard.
 */
#include "tensorflow/ops.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tensorflow/files.h"

#define EXPORT __attribute__((visibility("default")))

static _Atomic(const struct hy_bridge *) attached;
static hy_tensorflow_attach_fn *attach_to_other_copy; /* of this library, loaded earlier; NULL: there is none */
static struct hy_err ops_error, files_error;

EXPORT hy_tensorflow_attach_fn hy_tensorflow_attach;
EXPORT const char *hy_tensorflow_trouble(void);
EXPORT const char *hy_tensorflow_files_trouble(void);
EXPORT size_t hy_tensorflow_pending(void);

int hy_tensorflow_attach(const struct hy_bridge *bridge)
{
    if (attach_to_other_copy)
        return attach_to_other_copy(bridge);
    if (bridge && bridge->version != HY_BRIDGE_VERSION)
        return -EPROTO;
    atomic_store(&attached, bridge);
    return 0;
}

const char *hy_tensorflow_trouble(void)
{
    return ops_error.code ? ops_error.text : NULL;
}

const char *hy_tensorflow_files_trouble(void)
{
    return files_error.code ? files_error.text : NULL;
}

size_t hy_tensorflow_pending(void)
{
    return hy_pending_count();
}

const struct hy_bridge *hy_bridge_get(struct hy_err *err)
{
    const struct hy_bridge *bridge = atomic_load(&attached);

    if (!bridge)
        hy_err_set(err, -ENOTCONN, HY_NOT_INITIALIZED);
    return bridge;
}

void hy_op_scalar_shape(TF_ShapeInferenceContext *ctx, TF_Status *status)
{
    TF_ShapeHandle *scalar = hy_tf.ShapeInferenceContextScalar(ctx);

    hy_tf.ShapeInferenceContextSetOutput(ctx, 0, scalar, status);
    hy_tf.DeleteShapeHandle(scalar);
}

static void define(const struct hy_op_spec *spec, TF_Status *status)
{
    TF_OpDefinitionBuilder *builder = hy_tf.NewOpDefinitionBuilder(spec->name);

    for (size_t i = 0; spec->inputs[i]; i++)
        hy_tf.OpDefinitionBuilderAddInput(builder, spec->inputs[i]);
    for (size_t i = 0; spec->outputs[i]; i++)
        hy_tf.OpDefinitionBuilderAddOutput(builder, spec->outputs[i]);
    for (size_t i = 0; spec->attrs[i]; i++)
        hy_tf.OpDefinitionBuilderAddAttr(builder, spec->attrs[i]);
    hy_tf.OpDefinitionBuilderSetIsStateful(builder, true);
    hy_tf.OpDefinitionBuilderSetShapeInferenceFunction(builder, spec->shape);
    hy_tf.RegisterOpDefinition(builder, status);
}

/* Arguments have the form "tensors: N * T". */
static void keep_in_host_memory(TF_KernelBuilder *builder, const char *const *arguments)
{
    char name[32];

    for (size_t i = 0; arguments[i]; i++) {
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(arguments[i], ":"), arguments[i]);
        hy_tf.KernelBuilder_HostMemory(builder, name);
    }
}

/* Not every version's C API has asynchronous kernels. */
static struct {
    TF_KernelBuilder *(*new_builder)(const char *op, const char *device, void *(*create)(TF_OpKernelConstruction *),
                                     void (*compute)(void *, TF_OpKernelContext *, TF_AsyncOpKernelDoneCallback *),
                                     void (*destroy)(void *));
    void (*done)(TF_AsyncOpKernelDoneCallback *);
} async;

static bool find_async(void)
{
    *(void **)&async.new_builder = hy_tf_symbol("TF_NewAsyncKernelBuilder");
    *(void **)&async.done = hy_tf_symbol("TF_RunAsyncOpKernelDoneCallback");
    return async.new_builder && async.done;
}

void hy_tf_done(TF_AsyncOpKernelDoneCallback *done)
{
    async.done(done);
}

static TF_KernelBuilder *builder_of(const struct hy_op_spec *spec, const char *device)
{
    if (spec->compute_async && find_async())
        return async.new_builder(spec->name, device, spec->create, spec->compute_async, spec->destroy);
    return hy_tf.NewKernelBuilder(spec->name, device, spec->create, spec->compute, spec->destroy);
}

void hy_op_register(const struct hy_op_spec *spec, TF_Status *status)
{
    static const char *const devices[] = {"CPU", "GPU"};

    define(spec, status);
    for (size_t i = 0; i < HY_COUNT(devices) && hy_tf.GetCode(status) == TF_OK; i++) {
        TF_KernelBuilder *builder = builder_of(spec, devices[i]);

        keep_in_host_memory(builder, spec->inputs);
        keep_in_host_memory(builder, spec->outputs);
        hy_tf.RegisterKernelBuilder(spec->name, builder, status);
    }
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* For dl_iterate_phdr: whether this is another library with our name. */
static int is_other_copy(struct dl_phdr_info *info, size_t size, void *own)
{
    const Dl_info *self = own;

    (void)size;
    if ((void *)info->dlpi_addr == self->dli_fbase || strcmp(base_of(info->dlpi_name), base_of(self->dli_fname)) != 0)
        return 0;
    void *library = dlopen(info->dlpi_name, RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        return 0;
    *(void **)&attach_to_other_copy = dlsym(library, HY_BRIDGE_ATTACH);
    dlclose(library);
    return attach_to_other_copy != NULL;
}

/*
 * TensorFlow aborts when an op is registered twice, and it loads plugins from every site-packages directory: if hopyard
 * is installed in two of them, the first copy provides the ops.
 */
static bool is_registered_already(void)
{
    Dl_info own;

    return dladdr((void *)hy_tensorflow_trouble, &own) && dl_iterate_phdr(is_other_copy, &own);
}

static void register_ops(void)
{
    hy_cleanup_status TF_Status *status = hy_tf.NewStatus();
    hy_start_register(status);
    if (hy_tf.GetCode(status) == TF_OK)
        hy_poll_register(status);
    if (hy_tf.GetCode(status) == TF_OK)
        hy_wait_register(status);
    if (hy_tf.GetCode(status) == TF_OK)
        hy_query_register(status);
    if (hy_tf.GetCode(status) == TF_OK)
        hy_feed_register(status);
    if (hy_tf.GetCode(status) != TF_OK)
        hy_err_set(&ops_error, -EPROTO, "TensorFlow did not register hopyard's ops: %s", hy_tf.Message(status));
}

/*
 * Each copy registers the file systems, since an older copy may not have them: TensorFlow keeps the first one for a
 * scheme and returns TF_ALREADY_EXISTS for the others.
 */
__attribute__((constructor)) static void on_load(void)
{
    if (hy_tf_find(&ops_error) < 0) {
        files_error = ops_error;
        return;
    }
    (void)hy_files_register(&files_error); /* reported by hy_tensorflow_files_trouble */
    if (!is_registered_already())
        register_ops();
}
