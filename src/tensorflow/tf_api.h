/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The used part of TensorFlow's C API. TensorFlow's headers do not compile as C,
 * and linking it would bind a build to one version: so the functions are declared
 * by hand and looked up in the process (api.c). They are the same since 2.12.
 */
#ifndef HY_TENSORFLOW_TF_API_H
#define HY_TENSORFLOW_TF_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "collective/collective.h"

typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef struct TF_ShapeHandle TF_ShapeHandle;
typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_OpKernelContext TF_OpKernelContext;
typedef struct TF_AsyncOpKernelDoneCallback TF_AsyncOpKernelDoneCallback;

typedef enum {
    TF_FLOAT = 1,
    TF_DOUBLE = 2,
    TF_INT32 = 3,
    TF_UINT8 = 4,
    TF_INT16 = 5,
    TF_INT8 = 6,
    TF_STRING = 7,
    TF_INT64 = 9,
    TF_BOOL = 10,
    TF_BFLOAT16 = 14,
    TF_UINT16 = 17,
    TF_HALF = 19,
    TF_UINT32 = 22,
    TF_UINT64 = 23,
} TF_DataType;

typedef enum {
    TF_OK = 0,
    TF_UNKNOWN = 2,
    TF_INVALID_ARGUMENT = 3,
    TF_NOT_FOUND = 5,
    TF_ALREADY_EXISTS = 6,
    TF_PERMISSION_DENIED = 7,
    TF_RESOURCE_EXHAUSTED = 8,
    TF_FAILED_PRECONDITION = 9,
    TF_ABORTED = 10,
    TF_OUT_OF_RANGE = 11,
    TF_UNIMPLEMENTED = 12,
    TF_INTERNAL = 13,
    TF_UNAVAILABLE = 14,
    TF_DATA_LOSS = 15,
} TF_Code;

#define TF_ALIGNMENT 64 /* of a tensor's memory; TensorFlow copies less aligned memory */

/* X(return type, name without TF_, parameters) */
#define HY_TF_ENTRIES(X)                                                                                               \
    X(TF_Status *, NewStatus, (void))                                                                                  \
    X(void, DeleteStatus, (TF_Status *))                                                                               \
    X(void, SetStatus, (TF_Status *, TF_Code, const char *text))                                                       \
    X(TF_Code, GetCode, (const TF_Status *))                                                                           \
    X(const char *, Message, (const TF_Status *))                                                                      \
    X(TF_Tensor *, AllocateTensor, (TF_DataType, const int64_t *dims, int dim_count, size_t bytes))                    \
    X(TF_Tensor *, NewTensor,                                                                                          \
      (TF_DataType, const int64_t *dims, int dim_count, void *data, size_t bytes,                                      \
       void (*release)(void *data, size_t bytes, void *arg), void *arg))                                               \
    X(void, DeleteTensor, (TF_Tensor *))                                                                               \
    X(TF_DataType, TensorType, (const TF_Tensor *))                                                                    \
    X(int, NumDims, (const TF_Tensor *))                                                                               \
    X(int64_t, Dim, (const TF_Tensor *, int))                                                                          \
    X(size_t, TensorByteSize, (const TF_Tensor *))                                                                     \
    X(void *, TensorData, (const TF_Tensor *))                                                                         \
    X(TF_OpDefinitionBuilder *, NewOpDefinitionBuilder, (const char *op))                                              \
    X(void, RegisterOpDefinition, (TF_OpDefinitionBuilder *, TF_Status *))                                             \
    X(void, OpDefinitionBuilderAddAttr, (TF_OpDefinitionBuilder *, const char *spec))                                  \
    X(void, OpDefinitionBuilderAddInput, (TF_OpDefinitionBuilder *, const char *spec))                                 \
    X(void, OpDefinitionBuilderAddOutput, (TF_OpDefinitionBuilder *, const char *spec))                                \
    X(void, OpDefinitionBuilderSetIsStateful, (TF_OpDefinitionBuilder *, bool))                                        \
    X(void, OpDefinitionBuilderSetShapeInferenceFunction,                                                              \
      (TF_OpDefinitionBuilder *, void (*shape)(TF_ShapeInferenceContext *, TF_Status *)))                              \
    X(TF_ShapeHandle *, ShapeInferenceContextScalar, (TF_ShapeInferenceContext *))                                     \
    X(void, ShapeInferenceContextSetOutput, (TF_ShapeInferenceContext *, int, TF_ShapeHandle *, TF_Status *))          \
    X(void, ShapeInferenceContextSetUnknownShape, (TF_ShapeInferenceContext *, TF_Status *))                           \
    X(void, DeleteShapeHandle, (TF_ShapeHandle *))                                                                     \
    X(TF_KernelBuilder *, NewKernelBuilder,                                                                            \
      (const char *op, const char *device, void *(*create)(TF_OpKernelConstruction *),                                 \
       void (*compute)(void *, TF_OpKernelContext *), void (*destroy)(void *)))                                        \
    X(void, KernelBuilder_HostMemory, (TF_KernelBuilder *, const char *argument))                                      \
    X(void, RegisterKernelBuilder, (const char *name, TF_KernelBuilder *, TF_Status *))                                \
    X(void, OpKernelConstruction_GetAttrSize,                                                                          \
      (TF_OpKernelConstruction *, const char *, int32_t *list, int32_t *total, TF_Status *))                           \
    X(void, OpKernelConstruction_GetAttrInt64, (TF_OpKernelConstruction *, const char *, int64_t *, TF_Status *))      \
    X(void, OpKernelConstruction_GetAttrString,                                                                        \
      (TF_OpKernelConstruction *, const char *, char *, size_t room, TF_Status *))                                     \
    X(void, OpKernelConstruction_Failure, (TF_OpKernelConstruction *, TF_Status *))                                    \
    X(void, OpKernelContext_Failure, (TF_OpKernelContext *, TF_Status *))                                              \
    X(int, NumInputs, (TF_OpKernelContext *))                                                                          \
    X(int, NumOutputs, (TF_OpKernelContext *))                                                                         \
    X(void, GetInput, (TF_OpKernelContext *, int, TF_Tensor **, TF_Status *))                                          \
    X(void, SetOutput, (TF_OpKernelContext *, int, const TF_Tensor *, TF_Status *))                                    \
    X(TF_DataType, ExpectedOutputDataType, (TF_OpKernelContext *, int))

struct hy_tf {
#define HY_TF_MEMBER(type, name, parameters) type(*name) parameters;
    HY_TF_ENTRIES(HY_TF_MEMBER)
#undef HY_TF_MEMBER
};
extern struct hy_tf hy_tf; /* filled in once, before anything is registered */

/* NULL: this TensorFlow does not have the symbol, or there is no TensorFlow. */
void *hy_tf_symbol(const char *name);
/* Fills in hy_tf. 0, or -ENOSYS with the missing function in `err`. */
int hy_tf_find(struct hy_err *err);

/* 0, or -ENOTSUP: a type that the collectives do not support. */
int hy_tf_type(TF_DataType type, enum hy_type *ret);
TF_DataType hy_tf_type_of(enum hy_type type);

/* A tensor's memory; never NULL, even if it has no elements. */
void *hy_tf_memory(const TF_Tensor *tensor);

/* A new, uninitialized tensor; NULL when out of memory. */
TF_Tensor *hy_tf_allocate(TF_DataType type, const int64_t *dims, int dim_count, size_t bytes);

/* Fails the op with this message, and with the exception that Horovod raises for the code. */
void hy_tf_fail(TF_OpKernelContext *ctx, const struct hy_err *err);
/* The same with a TensorFlow status; true if it is an error. */
bool hy_tf_failed(TF_OpKernelContext *ctx, TF_Status *status);

void hy_tf_delete_status_at(TF_Status **status);
void hy_tf_delete_tensor_at(TF_Tensor **tensor);
#define hy_cleanup_status __attribute__((cleanup(hy_tf_delete_status_at)))
#define hy_cleanup_tensor __attribute__((cleanup(hy_tf_delete_tensor_at)))

#endif
