/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensorflow: the ops that TensorFlow loads.
 *
 *     HopyardStart(tensors: N * T, splits: S * int64) -> handle: int64
 *     HopyardPoll(handles: M * int64) -> over: bool
 *     HopyardWait(handles: M * int64) -> outputs: Tout
 *     HopyardQuery() -> value: int32
 *     HopyardFeed() -> state: int32, outputs: Tout
 *
 * Start passes its inputs to the group and returns at once; Wait takes the
 * handles of many Starts and returns their results. So gradients are sent while
 * the backward pass still runs, and only one thread of TensorFlow is blocked,
 * once per step. All are stateful: TensorFlow neither drops nor repeats them,
 * and keeps the order of the program within a tf.function. A graph of
 * TensorFlow 1 has no such order: there a loop of Polls precedes the Wait.
 *
 *   tf_api.h api.c      TensorFlow's C API
 *   pending.c           requests that were started and not waited for
 *   start.c poll.c wait.c query.c   the kernels
 *   feed.c              the kernel of feeds: batches from shared memory (feed/feed.h)
 *   library.c           registers them; the bridge to the group
 *   files.h             the file systems, which TensorFlow loads from the same library
 */
#ifndef HY_TENSORFLOW_OPS_H
#define HY_TENSORFLOW_OPS_H

#include "base/list.h"
#include "tensorflow/tensorflow.h"
#include "tensorflow/tf_api.h"

#define HY_NOT_INITIALIZED "Horovod has not been initialized; use hvd.init()." /* as in Horovod */

/* The attached table, or NULL and -ENOTCONN in `err`: hvd.init() was not called. */
const struct hy_bridge *hy_bridge_get(struct hy_err *err);

/* Prefixes the error for a lost rank with Horovod's name of the op: elastic programs search the message for it. */
void hy_tf_add_op_name(struct hy_err *err, enum hy_kind kind, const char *name);

/* A request between its Start and its Wait, with its tensors. */
struct hy_pending {
    struct hy_list link; /* private: in the list of abandoned requests */
    int64_t handle;      /* read-only */
    int64_t ticket;      /* of the group */
    enum hy_kind kind;
    uint32_t set;
    enum hy_type type;
    bool is_polled;      /* by HopyardPoll, at least once */
    bool holds_thread;   /* its Wait blocks a thread that other ops of its graph need */
    char *name;
    size_t input_count, output_count;
    TF_Tensor **inputs;  /* an alltoall's splits follow the tensors */
    TF_Tensor **outputs; /* NULL: not allocated yet */
};

/*
 * Adds a request to the table, which owns it, with a handle that was never used before. *ret_handle: the handle as a
 * scalar int64. When the last reference to that tensor is dropped (after a failed step, or if the result is unused), no
 * Wait can follow, and the request is abandoned. NULL when out of memory.
 */
struct hy_pending *hy_pending_new(const char *name, size_t input_count, size_t output_count, TF_Tensor **ret_handle);
/* The group's ticket of a request in the table, and whether it was polled before; 0: unknown handle. */
int64_t hy_pending_look_up(int64_t handle, bool *ret_was_polled);
void hy_pending_set_holds_thread(int64_t handle); /* no effect on an unknown handle */
/* Removes a request from the table for the caller; NULL: unknown handle. */
struct hy_pending *hy_pending_take(int64_t handle);
void hy_pending_free(struct hy_pending *p); /* NULL is fine; not while the group may use it */
/* Takes a request that the group may still use; hy_pending_reap frees it. */
void hy_pending_abandon(struct hy_pending *p);
/*
 * Frees the abandoned requests with that name. They are finished when the group has accepted the name again, so this
 * does not block; and since each name keeps at most one, their number is bounded.
 */
void hy_pending_reap(const struct hy_bridge *bridge, const char *name, uint32_t set);
size_t hy_pending_count(void); /* in the table and abandoned */

/* Each registers one op and its kernels. */
void hy_start_register(TF_Status *status);
void hy_poll_register(TF_Status *status);
void hy_wait_register(TF_Status *status);
void hy_query_register(TF_Status *status);
void hy_feed_register(TF_Status *status);

/* For these five ops: all inputs and outputs are in host memory, on CPU and GPU. */
struct hy_op_spec {
    const char *name;
    const char *const *inputs, *const *outputs, *const *attrs; /* terminated by NULL; an input is "name: type" */
    void (*shape)(TF_ShapeInferenceContext *, TF_Status *);
    void *(*create)(TF_OpKernelConstruction *);
    void (*compute)(void *, TF_OpKernelContext *);
    /* Used instead of compute if TensorFlow supports it; must call hy_tf_done before it returns. May be NULL. */
    void (*compute_async)(void *, TF_OpKernelContext *, TF_AsyncOpKernelDoneCallback *);
    void (*destroy)(void *);
};
/* Completes an asynchronous op. `done` is valid only until compute_async returns. */
void hy_tf_done(TF_AsyncOpKernelDoneCallback *done);
void hy_op_register(const struct hy_op_spec *spec, TF_Status *status);
void hy_op_scalar_shape(TF_ShapeInferenceContext *ctx, TF_Status *status); /* for an op with one scalar output */

#endif
