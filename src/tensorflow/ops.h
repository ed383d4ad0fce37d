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
 * Start hands its inputs to the group and returns at once; Wait takes the
 * handles of many Starts and gives their results. So gradients travel while
 * the backward pass still runs, and no thread of TensorFlow's is held but for
 * one, once a step. All are stateful: TensorFlow neither drops nor repeats
 * them, and keeps the order of the program within a tf.function. A graph of
 * TensorFlow 1 has no such order: a loop of Polls comes before the Wait there.
 *
 *   tf_api.h api.c      TensorFlow's C API
 *   pending.c           what has been started and not been waited for
 *   start.c poll.c wait.c query.c   the kernels
 *   feed.c              the one of feeds: batches out of shared memory (feed/feed.h)
 *   library.c           registers them; the bridge to the group
 *   files.h             the other thing it is loaded for: hdfs://
 */
#ifndef HY_TENSORFLOW_OPS_H
#define HY_TENSORFLOW_OPS_H

#include "base/list.h"
#include "tensorflow/tensorflow.h"
#include "tensorflow/tf_api.h"

#define HY_NOT_INITIALIZED "Horovod has not been initialized; use hvd.init()." /* Horovod's words */

/* The group's table, or NULL and -ENOTCONN in `err`: hvd.init() was not called. */
const struct hy_bridge *hy_bridge_get(struct hy_err *err);

/* Puts Horovod's name of the op before the loss of a rank: elastic programs look for it in the message. */
void hy_tf_name_loss(struct hy_err *err, enum hy_kind kind, const char *name);

/* A request between its Start and its Wait, and all the tensors that it holds. */
struct hy_pending {
    struct hy_list link; /* private: among the abandoned */
    int64_t handle;      /* read-only */
    int64_t ticket;      /* of the group */
    enum hy_kind kind;
    uint32_t set;
    enum hy_type type;
    bool is_polled;      /* HopyardPoll has looked at it once */
    bool holds_thread;   /* the Wait for it blocks a thread that other ops of its graph need */
    char *name;
    size_t input_count, output_count;
    TF_Tensor **inputs;  /* the splits of an alltoall behind the others */
    TF_Tensor **outputs; /* NULL: not there yet */
};

/*
 * A new one in the table, which owns it, under a handle that was never used before. *ret_handle: that number as a
 * scalar int64. With the last reference to it goes the last chance to wait for the request (a step that failed in
 * between, a result that nobody asked for): then the request is abandoned. NULL when out of memory.
 */
struct hy_pending *hy_pending_new(const char *name, size_t input_count, size_t output_count, TF_Tensor **ret_handle);
/* The group's ticket of one in the table, and whether it was asked for before; 0: there is no such handle. */
int64_t hy_pending_look_up(int64_t handle, bool *ret_again);
void hy_pending_holds_thread(int64_t handle); /* sets that of one in the table, if there is such a handle */
/* Out of the table, the caller's from now on; NULL: there is no such handle. */
struct hy_pending *hy_pending_take(int64_t handle);
void hy_pending_free(struct hy_pending *p); /* NULL is fine; not while the group may work on it */
/* Puts aside one that was taken, and that the group may still work on. */
void hy_pending_abandon(struct hy_pending *p);
/*
 * Frees those abandoned under that name. They are over when the group has taken the name again, so this does not
 * block; and since every name keeps one at most, what is abandoned does not grow.
 */
void hy_pending_reap(const struct hy_bridge *bridge, const char *name, uint32_t set);
size_t hy_pending_count(void); /* in the table and abandoned */

/* Each registers one op and its kernels. */
void hy_start_register(TF_Status *status);
void hy_poll_register(TF_Status *status);
void hy_wait_register(TF_Status *status);
void hy_query_register(TF_Status *status);
void hy_feed_register(TF_Status *status);

/* For those five: an op whose every input and output lies in host memory, on CPU and GPU alike. */
struct hy_op_spec {
    const char *name;
    const char *const *inputs, *const *outputs, *const *attrs; /* NULL at the end; an input is "name: type" */
    void (*shape)(TF_ShapeInferenceContext *, TF_Status *);
    void *(*create)(TF_OpKernelConstruction *);
    void (*compute)(void *, TF_OpKernelContext *);
    /* Instead of compute, where TensorFlow can: must have called hy_tf_done when it returns. NULL: compute serves. */
    void (*compute_async)(void *, TF_OpKernelContext *, TF_AsyncOpKernelDoneCallback *);
    void (*destroy)(void *);
};
/* Ends an asynchronous op. TensorFlow keeps `done` only until compute_async returns. */
void hy_tf_done(TF_AsyncOpKernelDoneCallback *done);
void hy_op_register(const struct hy_op_spec *spec, TF_Status *status);
void hy_op_scalar_shape(TF_ShapeInferenceContext *ctx, TF_Status *status); /* the one output is a scalar */

#endif
