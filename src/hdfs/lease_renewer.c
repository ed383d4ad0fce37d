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

#define HEARTBEAT_MS 5000
#define RENEW_MS 20000 /* a lease expires after 60 s */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct hy_list all;
    struct hy_hdfs_lease *busy; /* its heartbeat is running */
    bool is_running;
} renewer = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .changed = PTHREAD_COND_INITIALIZER,
    .all = {&renewer.all, &renewer.all},
};

void hy_hdfs_lease_renewer_forked(void)
{
    pthread_mutex_init(&renewer.lock, NULL);
    pthread_cond_init(&renewer.changed, NULL);
    hy_list_init(&renewer.all);
    renewer.busy = NULL;
    renewer.is_running = false;
}

/* Ignores errors: the next write reports an unreachable NameNode. */
static void renew(struct hy_hdfs_cluster *c)
{
    Hdfs__RenewLeaseRequest request = HDFS__RENEW_LEASE_REQUEST__INIT;
    hy_cleanup_hdfs_response Hdfs__Nothing *response = NULL;
    struct hy_err err;

    request.clientname = (char *)c->client_name;
    (void)hy_hdfs_call(c, "renewLease", &request.base, &hdfs__nothing__descriptor, &response, &err);
}

/* With the lock held before and after; releases it while it calls the clusters. */
static void renew_all(void)
{
    struct hy_hdfs_cluster *clusters[16];
    size_t count = 0;

    hy_list_each(it, &renewer.all) {
        struct hy_hdfs_cluster *c = hy_container(it, struct hy_hdfs_lease, link)->cluster;
        bool is_listed = count == 16;

        for (size_t i = 0; i < count && !is_listed; i++)
            is_listed = clusters[i] == c;
        if (!is_listed)
            clusters[count++] = c;
    }
    pthread_mutex_unlock(&renewer.lock);
    for (size_t i = 0; i < count; i++)
        renew(clusters[i]); /* clusters live as long as the process */
    pthread_mutex_lock(&renewer.lock);
}

/* With the lock held before and after. Each lease moves to the end, so that each has one turn. */
static void send_heartbeats(void)
{
    size_t count = 0;

    hy_list_each(it, &renewer.all)
        count++;
    while (count-- && !hy_list_empty(&renewer.all)) {
        struct hy_hdfs_lease *l = hy_container(renewer.all.next, struct hy_hdfs_lease, link);

        hy_list_remove(&l->link);
        hy_list_push(&renewer.all, &l->link);
        renewer.busy = l;
        pthread_mutex_unlock(&renewer.lock);
        l->heartbeat(l);
        pthread_mutex_lock(&renewer.lock);
        renewer.busy = NULL;
        pthread_cond_broadcast(&renewer.changed);
    }
}

static void wait_for_change(int ms)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000;
    pthread_cond_timedwait(&renewer.changed, &renewer.lock, &until);
}

static void *run(void *nothing)
{
    int64_t last_heartbeat = hy_clock_ms(), last_renewal = last_heartbeat;

    pthread_mutex_lock(&renewer.lock);
    while (!hy_list_empty(&renewer.all)) {
        wait_for_change(HEARTBEAT_MS);
        if (hy_clock_ms() - last_heartbeat >= HEARTBEAT_MS) {
            send_heartbeats();
            last_heartbeat = hy_clock_ms();
        }
        if (hy_clock_ms() - last_renewal >= RENEW_MS) {
            renew_all();
            last_renewal = hy_clock_ms();
        }
    }
    renewer.is_running = false;
    pthread_mutex_unlock(&renewer.lock);
    return nothing;
}

/* Blocks signals: they are for the threads of the program. */
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
    rc = pthread_create(&thread, &attributes, run, NULL);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attributes);
    return -rc;
}

int hy_hdfs_lease_renewer_add(struct hy_hdfs_lease *l, struct hy_err *err)
{
    int rc = 0;

    hy_list_init(&l->link);
    pthread_mutex_lock(&renewer.lock);
    if (!renewer.is_running) {
        rc = start();
        renewer.is_running = rc == 0;
    }
    if (rc == 0)
        hy_list_push(&renewer.all, &l->link);
    pthread_mutex_unlock(&renewer.lock);
    return rc < 0 ? hy_err_sys(err, rc, "cannot start the thread that renews leases") : 0;
}

void hy_hdfs_lease_renewer_remove(struct hy_hdfs_lease *l)
{
    if (!l->link.next)
        return;
    pthread_mutex_lock(&renewer.lock);
    while (renewer.busy == l)
        pthread_cond_wait(&renewer.changed, &renewer.lock);
    hy_list_remove(&l->link);
    pthread_cond_broadcast(&renewer.changed);
    pthread_mutex_unlock(&renewer.lock);
}
