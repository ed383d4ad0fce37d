/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HopyardPoll: whether requests are over; for the loop before a HopyardWait in a
 * graph of TensorFlow 1. There ops that do not depend on each other run in any
 * order, and on as few threads as the user likes. A Wait that blocks would hold
 * a thread that Starts need for which the other ranks wait: a deadlock.
 *
 * A Poll holds the thread for a millisecond at most. But TensorFlow goes on with
 * the successors of an op on the same thread, or puts them first in the queue of
 * that thread: the loop would run on, and nothing else, where there is only one.
 * So a thread of ours ends the op. What it schedules comes last in the queue,
 * after all Starts that are ready.
 */
#include "tensorflow/ops.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/mem.h"

#define TURN_MS 1

/* This thread is one that ends ops. Ops run on it only where TensorFlow uses no threads of its own. */
static _Thread_local bool ends_ops;

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

/* True as well where there is no such request or no group: HopyardWait returns at once and says why. */
static bool is_over(const struct hy_bridge *bridge, int64_t handle)
{
    bool again = false;
    int64_t ticket = hy_pending_look_up(handle, &again);

    return ticket == 0 || bridge->poll(ticket, again ? TURN_MS : 0);
}

static bool are_over(TF_OpKernelContext *ctx)
{
    struct hy_err err = {0};
    const struct hy_bridge *bridge = hy_bridge_get(&err);

    for (int i = 0; bridge && i < hy_tf.NumInputs(ctx); i++)
        if (!is_over(bridge, handle_at(ctx, i)))
            return false;
    return true;
}

static void answer(TF_OpKernelContext *ctx, bool over)
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

static void *end_op(void *done)
{
    ends_ops = true;
    hy_tf_done(done);
    return NULL;
}

static void end_op_elsewhere(TF_AsyncOpKernelDoneCallback *done)
{
    sigset_t all, before;
    pthread_t thread;
    int rc;

    sigfillset(&all); /* signals are for the program's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, NULL, end_op, done);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0)
        pthread_join(thread, NULL);
    else
        hy_tf_done(done); /* without a thread to spare the others have to wait */
}

/* TensorFlow has no asynchronous kernels (2.12), or no threads: nothing else can run meanwhile, and the Wait blocks. */
static void compute(void *kernel, TF_OpKernelContext *ctx)
{
    (void)kernel;
    for (int i = 0; i < hy_tf.NumInputs(ctx); i++)
        hy_pending_holds_thread(handle_at(ctx, i));
    answer(ctx, true);
}

static void compute_async(void *kernel, TF_OpKernelContext *ctx, TF_AsyncOpKernelDoneCallback *done)
{
    bool over = !ends_ops && are_over(ctx);

    if (ends_ops) {
        compute(kernel, ctx);
        hy_tf_done(done);
        return;
    }
    answer(ctx, over);
    if (over)
        hy_tf_done(done);
    else
        end_op_elsewhere(done);
}

void hy_poll_register(TF_Status *status)
{
    static const char *const inputs[] = {"handles: M * int64", NULL};
    static const char *const outputs[] = {"over: bool", NULL};
    static const char *const attrs[] = {"M: int >= 1", NULL};

    hy_op_register(&(struct hy_op_spec){.name = "HopyardPoll", .inputs = inputs, .outputs = outputs, .attrs = attrs,
                                        .shape = hy_op_scalar_shape, .compute = compute,
                                        .compute_async = compute_async},
                   status);
}
