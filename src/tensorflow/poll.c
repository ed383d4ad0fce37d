/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HopyardPoll: whether requests are complete; for the loop before a HopyardWait in
 * a graph of TensorFlow 1. There independent ops run in any order, on as few
 * threads as the user configures. A blocking Wait could hold the thread that is
 * needed by a Start for which the other ranks wait: a deadlock.
 *
 * A Poll holds its thread for at most a millisecond. But TensorFlow runs the
 * successors of an op on the same thread, or puts them first in that thread's
 * queue: with a single thread, only the loop would run. So a separate thread
 * completes the op. The successors are then appended to the queue, after all
 * Starts that are ready.
 */
#include "tensorflow/ops.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/mem.h"

#define POLL_MS 1

/* This thread completes an op. Other ops run on it only if TensorFlow has no thread pool. */
static _Thread_local bool is_completing;

static int64_t handle_at(TF_OpKernelContext *ctx, int input)
{
    hy_cleanup_status TF_Status *status = hy_tf.NewStatus();
    hy_cleanup_tensor TF_Tensor *tensor = NULL;
    int64_t handle = 0;

    hy_tf.GetInput(ctx, input, &tensor, status);
    if (tensor && hy_tf.TensorByteSize(tensor) == sizeof(handle))
        memcpy(&handle, hy_tf.TensorData(tensor), sizeof(handle));
    return handle;
}

/* Also true if there is no such request or no group: HopyardWait then returns the error at once. */
static bool is_complete(const struct hy_bridge *bridge, int64_t handle)
{
    bool was_polled = false;
    int64_t ticket = hy_pending_look_up(handle, &was_polled);

    return ticket == 0 || bridge->poll(ticket, was_polled ? POLL_MS : 0);
}

static bool are_complete(TF_OpKernelContext *ctx)
{
    struct hy_err err = {0};
    const struct hy_bridge *bridge = hy_bridge_get(&err);

    for (int i = 0; bridge && i < hy_tf.NumInputs(ctx); i++)
        if (!is_complete(bridge, handle_at(ctx, i)))
            return false;
    return true;
}

static void set_result(TF_OpKernelContext *ctx, bool over)
{
    hy_cleanup_status TF_Status *status = hy_tf.NewStatus();
    hy_cleanup_tensor TF_Tensor *tensor = hy_tf.AllocateTensor(TF_BOOL, NULL, 0, sizeof(over));
    struct hy_err err = {0};

    if (!tensor) {
        hy_err_oom(&err);
        hy_tf_fail(ctx, &err);
        return;
    }
    memcpy(hy_tf.TensorData(tensor), &over, sizeof(over));
    hy_tf.SetOutput(ctx, 0, tensor, status);
    hy_tf_failed(ctx, status);
}

static void *complete_op(void *done)
{
    is_completing = true;
    hy_tf_done(done);
    return NULL;
}

static void complete_op_in_thread(TF_AsyncOpKernelDoneCallback *done)
{
    sigset_t all, before;
    pthread_t thread;
    int rc;

    sigfillset(&all); /* the program's threads handle signals */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, NULL, complete_op, done);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0)
        pthread_join(thread, NULL);
    else
        hy_tf_done(done); /* correct, but other ops may have to wait */
}

/* TensorFlow has no asynchronous kernels (2.12) or no thread pool: polling would not help, so the Wait blocks. */
static void compute(void *kernel, TF_OpKernelContext *ctx)
{
    (void)kernel;
    for (int i = 0; i < hy_tf.NumInputs(ctx); i++)
        hy_pending_set_holds_thread(handle_at(ctx, i));
    set_result(ctx, true);
}

static void compute_async(void *kernel, TF_OpKernelContext *ctx, TF_AsyncOpKernelDoneCallback *done)
{
    bool over = !is_completing && are_complete(ctx);

    if (is_completing) {
        compute(kernel, ctx);
        hy_tf_done(done);
        return;
    }
    set_result(ctx, over);
    if (over)
        hy_tf_done(done);
    else
        complete_op_in_thread(done);
}

void hy_poll_register(TF_Status *status)
{
    static const char *const inputs[] = {"handles: M * int64", NULL};
    static const char *const outputs[] = {"over: bool", NULL};
    static const char *const attrs[] = {"M: int >= 1", NULL};

    hy_op_register(&(struct hy_op_spec){.name = "HopyardPoll",
                                        .inputs = inputs,
                                        .outputs = outputs,
                                        .attrs = attrs,
                                        .shape = hy_op_scalar_shape,
                                        .compute = compute,
                                        .compute_async = compute_async},
                   status);
}
