/* SPDX-License-Identifier: Apache-2.0 */
#include "hdfs/lease_renewer.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

#include "base/clock.h"
#include "base/err.h"
#include "hdfs.pb-c.h"
#include "hdfs/cluster.h"

#define BEAT_MS 5000
#define RENEW_MS 20000 /* the NameNode gives a file away after 60 s */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct hy_list all;
    struct hy_hdfs_lease *busy; /* whose beat is running */
    bool is_running;
} keeper = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .all = {&keeper.all, &keeper.all},
};

void hy_hdfs_lease_renewer_forked(void)
{
    pthread_mutex_init(&keeper.lock, NULL);
    pthread_cond_init(&keeper.changed, NULL);
    hy_list_init(&keeper.all);
    keeper.busy = NULL;
    keeper.is_running = false;
}

/* When the NameNode is away, the next who writes will meet it, too. */
static void renew(struct hy_hdfs_cluster *c)
{
    Hdfs__RenewLeaseRequest request = HDFS__RENEW_LEASE_REQUEST__INIT;
    hy_cleanup_hdfs_response Hdfs__Nothing *answer = NULL;
    struct hy_err err;

    request.clientname = (char *)c->client_name;
    (void)hy_hdfs_call(c, "renewLease", &request.base, &hdfs__nothing__descriptor, &answer, &err);
}

/* With the lock held before and after; it is let go while clusters are asked, one after the other. */
static void renew_all(void)
{
    struct hy_hdfs_cluster *asked[16];
    size_t count = 0;

    hy_list_each(it, &keeper.all) {
        struct hy_hdfs_cluster *c = hy_container(it, struct hy_hdfs_lease, link)->cluster;
        bool is_known = count == 16;

        for (size_t i = 0; i < count && !is_known; i++)
            is_known = asked[i] == c;
        if (!is_known)
            asked[count++] = c;
    }
    pthread_mutex_unlock(&keeper.lock);
    for (size_t i = 0; i < count; i++)
        renew(asked[i]); /* clusters live as long as the process */
    pthread_mutex_lock(&keeper.lock);
}

/* With the lock held before and after. Who is done goes to the end, so that each has one turn. */
static void beat_all(void)
{
    size_t count = 0;

    hy_list_each(it, &keeper.all)
        count++;
    while (count-- && !hy_list_empty(&keeper.all)) {
        struct hy_hdfs_lease *k = hy_container(keeper.all.next, struct hy_hdfs_lease, link);

        hy_list_remove(&k->link);
        hy_list_push(&keeper.all, &k->link);
        keeper.busy = k;
        pthread_mutex_unlock(&keeper.lock);
        k->beat(k);
        pthread_mutex_lock(&keeper.lock);
        keeper.busy = NULL;
        pthread_cond_broadcast(&keeper.changed);
    }
}

static void wait_for_change(int ms)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000;
    pthread_cond_timedwait(&keeper.changed, &keeper.lock, &until);
}

static void *keep(void *nothing)
{
    int64_t beaten = hy_clock_ms(), renewed = beaten;

    pthread_mutex_lock(&keeper.lock);
    while (!hy_list_empty(&keeper.all)) {
        wait_for_change(BEAT_MS);
        if (hy_clock_ms() - beaten >= BEAT_MS) {
            beat_all();
            beaten = hy_clock_ms();
        }
        if (hy_clock_ms() - renewed >= RENEW_MS) {
            renew_all();
            renewed = hy_clock_ms();
        }
    }
    keeper.is_running = false;
    pthread_mutex_unlock(&keeper.lock);
    return nothing;
}

/* Signals are for the program's own threads. */
static int start(void)
{
    pthread_attr_t attributes;
    sigset_t all, old;
    pthread_t thread;
    int rc;

    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&thread, &attributes, keep, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return -rc;
}

int hy_hdfs_lease_renewer_add(struct hy_hdfs_lease *k, struct hy_err *err)
{
    int rc = 0;

    hy_list_init(&k->link);
    pthread_mutex_lock(&keeper.lock);
    if (!keeper.is_running) {
        rc = start();
        keeper.is_running = rc == 0;
    }
    if (rc == 0)
        hy_list_push(&keeper.all, &k->link);
    pthread_mutex_unlock(&keeper.lock);
    return rc < 0 ? hy_err_sys(err, rc, "cannot start the thread that keeps files open") : 0;
}

void hy_hdfs_lease_renewer_remove(struct hy_hdfs_lease *k)
{
    if (!k->link.next)
        return;
    pthread_mutex_lock(&keeper.lock);
    while (keeper.busy == k)
        pthread_cond_wait(&keeper.changed, &keeper.lock);
    hy_list_remove(&k->link);
    pthread_cond_broadcast(&keeper.changed);
    pthread_mutex_unlock(&keeper.lock);
}
