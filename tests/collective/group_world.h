/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups whose ranks are threads of this process, so that ThreadSanitizer sees all of them. The test implements their
 * agent: it accepts their connections, sends rosters, and reports losses.
 */
#ifndef HY_TESTS_GROUP_WORLD_H
#define HY_TESTS_GROUP_WORLD_H

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support.h"

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "collective/collective.h"
#include "wire/local.h"

#define RANKS_MAX 8

/* ---- the agent ------------------------------------------------------------------------ */

struct agent {
    char path[64];
    int listen_fd, memory;
    unsigned size, hosts;
    int conns[RANKS_MAX];
    struct hy_buf rest[RANKS_MAX];
    Hy__TrialReport *joins[RANKS_MAX];
    atomic_uint notes, leaves, failures;
    char note[300];
    atomic_bool stop;
    atomic_bool late; /* the last rank gets its roster after another rank has left */
    pthread_t thread;
};

static inline void answer(int fd, Hy__GroupWord *word)
{
    Hy__TrialReportAnswer a = HY__TRIAL_REPORT_ANSWER__INIT;
    hy_cleanup_free uint8_t *bytes = NULL;

    a.group = word;
    bytes = malloc(hy__trial_report_answer__get_packed_size(&a) + 1);
    hy_local_put(fd, bytes, hy__trial_report_answer__pack(&a, bytes)); /* the rank may have exited */
}

static inline void send_roster(struct agent *a, unsigned rank)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;
    Hy__Roster roster = HY__ROSTER__INIT;
    Hy__GroupMember members[RANKS_MAX], *pointers[RANKS_MAX];
    uint8_t key[32] = {7};
    char shared[64];

    for (unsigned r = 0; r < a->size; r++) {
        const Hy__GroupJoin *j = a->joins[r]->group->join;

        hy__group_member__init(&members[r]);
        members[r].host = r * a->hosts / a->size;
        members[r].addresses = j->addresses;
        members[r].n_addresses = j->n_addresses;
        members[r].port = j->port;
        members[r].bell = j->bell;
        pointers[r] = &members[r];
    }
    snprintf(shared, sizeof shared, "/proc/self/fd/%d", a->memory);
    roster.generation = 1;
    roster.rank = rank;
    roster.members = pointers;
    roster.n_members = a->size;
    roster.key = (ProtobufCBinaryData){sizeof key, key};
    roster.shared = a->hosts == 1 ? shared : (char *)"";
    word.body_case = HY__GROUP_WORD__BODY_ROSTER;
    word.roster = &roster;
    answer(a->conns[rank], &word);
}

static inline void report_loss(struct agent *a, unsigned lost, const char *why)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;
    Hy__GroupLost loss = HY__GROUP_LOST__INIT;

    loss.generation = 1;
    loss.rank = lost;
    loss.why = (char *)why;
    word.body_case = HY__GROUP_WORD__BODY_LOST;
    word.lost = &loss;
    for (unsigned r = 0; r < a->size; r++)
        if (r != lost && a->conns[r] >= 0)
            answer(a->conns[r], &word);
}

/* Handles one message of a rank; false when it has disconnected. */
static inline bool serve_one(struct agent *a, unsigned rank)
{
    hy_cleanup_buf struct hy_buf message;
    Hy__TrialReport *r;
    bool keep = false;

    hy_buf_init(&message, HY_LOCAL_MAX);
    if (hy_local_get(a->conns[rank], &a->rest[rank], &message, 0) <= 0)
        return false;
    r = hy__trial_report__unpack(NULL, message.len, hy_buf_bytes(&message));
    assert_non_null(r);
    if (r->group->body_case == HY__GROUP_WORD__BODY_JOIN) {
        a->joins[rank] = r;
        keep = true;
    } else if (r->group->body_case == HY__GROUP_WORD__BODY_NOTE) {
        snprintf(a->note, sizeof a->note, "%s", r->group->note);
        atomic_fetch_add(&a->notes, 1);
    } else if (r->group->body_case == HY__GROUP_WORD__BODY_LEAVE) {
        atomic_fetch_add(&a->leaves, 1);
    } else if (r->group->body_case == HY__GROUP_WORD__BODY_FAILED) { /* as the driver does */
        atomic_fetch_add(&a->failures, 1);
        report_loss(a, rank, r->group->failed);
    }
    answer(a->conns[rank], NULL);
    if (!keep)
        hy__trial_report__free_unpacked(r, NULL);
    return true;
}

static inline void *serve(void *arg)
{
    struct agent *a = arg;
    struct pollfd fds[RANKS_MAX];
    unsigned here = 0;

    while (here < a->size) {
        a->conns[here] = accept4(a->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        assert_true(a->conns[here] >= 0);
        while (!a->joins[here])
            serve_one(a, here);
        here++;
    }
    for (unsigned r = 0; r < a->size - atomic_load(&a->late); r++)
        send_roster(a, r);
    while (!atomic_load(&a->stop)) {
        if (atomic_load(&a->late) && atomic_load(&a->leaves) && atomic_exchange(&a->late, false))
            send_roster(a, a->size - 1);
        for (unsigned r = 0; r < a->size; r++)
            fds[r] = (struct pollfd){.fd = a->conns[r], .events = POLLIN};
        if (poll(fds, a->size, 20) <= 0)
            continue;
        for (unsigned r = 0; r < a->size; r++)
            if (fds[r].revents && !serve_one(a, r)) {
                close(a->conns[r]);
                a->conns[r] = -1;
            }
    }
    return NULL;
}

static inline void open_agent(struct agent *a, unsigned size, unsigned hosts)
{
    static int count;
    struct sockaddr_un where;

    memset(a, 0, sizeof *a);
    a->size = size;
    a->hosts = hosts;
    snprintf(a->path, sizeof a->path, "/tmp/hopyard-test-group-%d-%d", (int)getpid(), ++count);
    assert_int_equal(hy_local_address(a->path, &where, NULL), 0);
    a->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(a->listen_fd, (struct sockaddr *)&where, sizeof where), 0);
    assert_int_equal(listen(a->listen_fd, 64), 0);
    a->memory = memfd_create("group", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(a->memory >= 0);
    for (unsigned r = 0; r < RANKS_MAX; r++) {
        hy_buf_init(&a->rest[r], HY_LOCAL_MAX + 65536);
        a->conns[r] = -1;
    }
    setenv("HOPYARD_GROUP", "1", 1);
    setenv("HOPYARD_SOCKET", a->path, 1);
    setenv("HOPYARD_TAG", "1.1.1", 1);
    assert_int_equal(pthread_create(&a->thread, NULL, serve, a), 0);
}

static inline void close_agent(struct agent *a)
{
    atomic_store(&a->stop, true);
    pthread_join(a->thread, NULL);
    for (unsigned r = 0; r < a->size; r++) {
        if (a->conns[r] >= 0)
            close(a->conns[r]);
        hy__trial_report__free_unpacked(a->joins[r], NULL);
        hy_buf_done(&a->rest[r]);
    }
    close(a->listen_fd);
    close(a->memory);
    unlink(a->path);
    unsetenv("HOPYARD_GROUP");
}

/* ---- ranks ---------------------------------------------------------------------------- */

struct rank {
    pthread_t thread;
    struct hy_group *g;
    void (*body)(struct rank *r);
    void *arg;
    unsigned number, size; /* in the group */
    struct agent *agent;
};

static inline void *rank_main(void *arg)
{
    struct rank *r = arg;
    struct hy_err err = {0};

    if (hy_group_join(&r->g, &err) < 0)
        fail_msg("%s", err.text);
    r->number = hy_group_rank(r->g);
    r->size = hy_group_size(r->g);
    r->body(r);
    hy_group_leave(r->g);
    return NULL;
}

static inline void run_ranks_on(struct agent *a, unsigned size, void (*body)(struct rank *), void *arg)
{
    struct rank ranks[RANKS_MAX] = {0};

    for (unsigned i = 0; i < size; i++) {
        ranks[i].body = body;
        ranks[i].arg = arg;
        ranks[i].agent = a;
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, rank_main, &ranks[i]), 0);
    }
    for (unsigned i = 0; i < size; i++)
        pthread_join(ranks[i].thread, NULL);
}

static inline void run_ranks(unsigned size, unsigned hosts, void (*body)(struct rank *), void *arg)
{
    struct agent a;

    open_agent(&a, size, hosts);
    run_ranks_on(&a, size, body, arg);
    close_agent(&a);
}

/* ---- requests ---------------------------------------------------------------- */

static inline struct hy_request reduction(const char *name, const struct hy_tensor *t)
{
    return (struct hy_request){.kind = HY_ALLREDUCE,
                               .name = name,
                               .type = HY_F32,
                               .op = HY_SUM,
                               .prescale = 1,
                               .postscale = 1,
                               .tensor_count = 1,
                               .tensors = t};
}

static inline int64_t start(struct rank *r, const struct hy_request *request)
{
    struct hy_err err = {0};
    int64_t ticket = hy_group_start(r->g, request, &err);

    if (ticket < 0)
        fail_msg("%s", err.text);
    return ticket;
}

static inline void finish(struct rank *r, int64_t ticket)
{
    struct hy_err err = {0};

    if (hy_group_wait(r->g, ticket, &err) < 0)
        fail_msg("rank %u: %s", r->number, err.text);
}

static inline float sum_of(struct rank *r, const char *name, float value)
{
    float out = -1;
    struct hy_tensor t = {.in = &value, .out = &out};
    struct hy_request q = reduction(name, &t);

    finish(r, start(r, &q));
    return out;
}

#endif
