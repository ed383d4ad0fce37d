/* SPDX-License-Identifier: Apache-2.0 */
/* Threads in a training process. */
#ifndef HY_COLLECTIVE_THREAD_H
#define HY_COLLECTIVE_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* Starts a thread with all signals blocked, since they belong to the threads of the program. `ret` NULL: detached.
 * 0 or -Exxx. */
static inline int hy_thread_start(pthread_t *ret, void *(*run)(void *arg), void *arg)
{
    sigset_t all, before;
    pthread_t thread;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0 && ret)
        *ret = thread;
    else if (rc == 0)
        pthread_detach(thread);
    return -rc;
}

#endif
