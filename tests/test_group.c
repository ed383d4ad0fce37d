/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups whose ranks are threads of this process, so that ThreadSanitizer sees
 * all of them. The test plays their agent: it accepts their connections, says
 * who is there, and who has died.
 */
#include "support.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "collective/collective.h"
#include "collective/shm.h"
#include "wire/local.h"

#define RANKS_MAX 8

/* ---- the agent -------------------------------------------------------------------- */

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
    pthread_t thread;
};

static void answer(int fd, Hy__GroupWord *word)
{
    Hy__TrialReportAnswer a = HY__TRIAL_REPORT_ANSWER__INIT;
    hy_cleanup_free uint8_t *bytes = NULL;

    a.group = word;
    bytes = malloc(hy__trial_report_answer__get_packed_size(&a) + 1);
    hy_local_put(fd, bytes, hy__trial_report_answer__pack(&a, bytes)); /* who is gone is gone */
}

static void send_roster(struct agent *a, unsigned rank)
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

static void tell_loss(struct agent *a, unsigned lost, const char *why)
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

/* One message of a rank; false when it has gone. */
static bool serve_one(struct agent *a, unsigned rank)
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
        tell_loss(a, rank, r->group->failed);
    }
    answer(a->conns[rank], NULL);
    if (!keep)
        hy__trial_report__free_unpacked(r, NULL);
    return true;
}

static void *serve(void *arg)
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
    for (unsigned r = 0; r < a->size; r++)
        send_roster(a, r);
    while (!atomic_load(&a->stop)) {
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

static void open_agent(struct agent *a, unsigned size, unsigned hosts)
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
    a->memory = memfd_create("group", MFD_CLOEXEC);
    assert_int_equal(ftruncate(a->memory, (off_t)hy_shm_size(size)), 0);
    for (unsigned r = 0; r < RANKS_MAX; r++) {
        hy_buf_init(&a->rest[r], HY_LOCAL_MAX + 65536);
        a->conns[r] = -1;
    }
    setenv("HOPYARD_GROUP", "1", 1);
    setenv("HOPYARD_SOCKET", a->path, 1);
    setenv("HOPYARD_TAG", "1.1.1", 1);
    assert_int_equal(pthread_create(&a->thread, NULL, serve, a), 0);
}

static void close_agent(struct agent *a)
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

/* ---- ranks ------------------------------------------------------------------------------ */

struct rank {
    pthread_t thread;
    struct hy_group *g;
    void (*body)(struct rank *r);
    void *arg;
    unsigned number, size; /* in the group */
    struct agent *agent;
};

static void *live(void *arg)
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

static void run_ranks_on(struct agent *a, unsigned size, void (*body)(struct rank *), void *arg)
{
    struct rank ranks[RANKS_MAX] = {0};

    for (unsigned i = 0; i < size; i++) {
        ranks[i].body = body;
        ranks[i].arg = arg;
        ranks[i].agent = a;
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, live, &ranks[i]), 0);
    }
    for (unsigned i = 0; i < size; i++)
        pthread_join(ranks[i].thread, NULL);
}

static void run_ranks(unsigned size, unsigned hosts, void (*body)(struct rank *), void *arg)
{
    struct agent a;

    open_agent(&a, size, hosts);
    run_ranks_on(&a, size, body, arg);
    close_agent(&a);
}

/* ---- what ranks do ---------------------------------------------------------------------------- */

static struct hy_request reduction(const char *name, const struct hy_tensor *t)
{
    return (struct hy_request){.kind = HY_ALLREDUCE, .name = name, .type = HY_F32, .op = HY_SUM, .prescale = 1,
                               .postscale = 1, .tensor_count = 1, .tensors = t};
}

static int64_t start(struct rank *r, const struct hy_request *request)
{
    struct hy_err err = {0};
    int64_t ticket = hy_group_start(r->g, request, &err);

    if (ticket < 0)
        fail_msg("%s", err.text);
    return ticket;
}

static void finish(struct rank *r, int64_t ticket)
{
    struct hy_err err = {0};

    if (hy_group_wait(r->g, ticket, &err) < 0)
        fail_msg("rank %u: %s", r->number, err.text);
}

static float sum_of(struct rank *r, const char *name, float value)
{
    float out = -1;
    struct hy_tensor t = {.in = &value, .out = &out};
    struct hy_request q = reduction(name, &t);

    finish(r, start(r, &q));
    return out;
}

static void add_up(struct rank *r)
{
    float expected = (float)(r->size * (r->size + 1)) / 2;

    for (int i = 0; i < 50; i++)
        assert_true(sum_of(r, "x", (float)r->number + 1) == expected);
}

static void test_sums_come_out_alike_for_all_sizes_of_group(void **state)
{
    (void)state;
    for (unsigned size = 1; size <= 5; size++)
        run_ranks(size, 1, add_up, NULL);
}

static void test_sums_come_out_alike_between_hosts(void **state)
{
    (void)state;
    run_ranks(3, 3, add_up, NULL);
}

/* All ranks start the same twenty, each in its own order, and wait in another. */
static void any_order(struct rank *r)
{
    enum { N = 20 };
    float in[N], out[N];
    int64_t tickets[N];
    char name[16];

    for (unsigned i = 0; i < N; i++) {
        unsigned k = (i * 7 + r->number * 3) % N;
        struct hy_tensor t = {.in = &in[k], .out = &out[k]};
        struct hy_request q;

        snprintf(name, sizeof name, "t%u", k);
        in[k] = (float)k;
        q = reduction(name, &t);
        tickets[k] = start(r, &q);
    }
    for (unsigned k = 0; k < N; k++) {
        finish(r, tickets[N - 1 - k]);
        assert_true(out[N - 1 - k] == (float)(N - 1 - k) * (float)r->size);
    }
}

static void test_ranks_need_not_agree_on_an_order(void **state)
{
    (void)state;
    run_ranks(3, 1, any_order, NULL);
}

static void grouped(struct rank *r)
{
    float a[3] = {1, 2, 3}, b[5] = {4, 5, 6, 7, 8}, out_a[3], out_b[5];
    struct hy_tensor t[] = {{.in = a, .out = out_a, .dim_count = 1, .dims = {3}},
                            {.dim_count = 1, .dims = {0}},
                            {.in = b, .out = out_b, .dim_count = 1, .dims = {5}}};
    struct hy_request q = reduction("both", t);

    q.tensor_count = 3;
    q.op = HY_AVERAGE;
    q.prescale = 2;
    finish(r, start(r, &q));
    assert_true(out_a[2] == 6 && out_b[0] == 8 && out_b[4] == 16);
}

static void test_tensors_of_a_group_go_together(void **state)
{
    (void)state;
    run_ranks(2, 1, grouped, NULL);
}

static void *allocate(void *arg, size_t tensor, const int64_t *dims, uint32_t dim_count, size_t bytes)
{
    void **outs = arg;

    (void)dims;
    (void)dim_count;
    outs[tensor] = calloc(1, bytes + 1);
    return outs[tensor];
}

/* Rank r has r rows, each of two times its number. */
static void gather(struct rank *r)
{
    int32_t rows[2 * RANKS_MAX], *outs[2] = {0};
    struct hy_tensor t = {.in = rows, .dim_count = 2, .dims = {r->number, 2}};
    struct hy_request q = {.kind = HY_ALLGATHER, .name = "rows", .type = HY_I32, .prescale = 1, .postscale = 1,
                           .tensor_count = 1, .tensors = &t, .allocate = allocate, .arg = outs};
    size_t at = 0;

    for (unsigned i = 0; i < 2 * r->number; i++)
        rows[i] = (int32_t)r->number;
    finish(r, start(r, &q));
    for (unsigned from = 0; from < r->size; from++)
        for (unsigned i = 0; i < 2 * from; i++)
            assert_int_equal(outs[0][at++], from);
    free(outs[0]);
}

/* Rank r sends to rank j j + 1 rows that say 10 r + j. */
static void exchange(struct rank *r)
{
    int64_t splits[RANKS_MAX], sum = 0;
    int16_t in[64];
    void *outs[2] = {0};
    struct hy_tensor t = {.in = in, .dim_count = 1};
    struct hy_request q = {.kind = HY_ALLTOALL, .name = "rows", .type = HY_I16, .prescale = 1, .postscale = 1,
                           .tensor_count = 1, .tensors = &t, .splits = splits, .split_count = r->size,
                           .allocate = allocate, .arg = outs};
    const int16_t *got;

    for (unsigned j = 0; j < r->size; j++) {
        splits[j] = j + 1;
        for (unsigned i = 0; i <= j; i++)
            in[sum++] = (int16_t)(10 * r->number + j);
    }
    t.dims[0] = sum;
    finish(r, start(r, &q));
    got = outs[0];
    for (unsigned from = 0; from < r->size; from++) {
        assert_int_equal(((int32_t *)outs[1])[from], r->number + 1);
        for (unsigned i = 0; i <= r->number; i++)
            assert_int_equal(*got++, 10 * from + r->number);
    }
    free(outs[0]);
    free(outs[1]);
}

static void scatter(struct rank *r)
{
    float in[7] = {1, 2, 3, 4, 5, 6, 7};
    void *outs[2] = {0};
    struct hy_tensor t = {.in = in, .dim_count = 1, .dims = {7}};
    struct hy_request q = reduction("s", &t);
    unsigned rows = 7 / r->size + (r->number < 7 % r->size), first = 0;

    q.kind = HY_REDUCESCATTER;
    q.allocate = allocate;
    q.arg = outs;
    finish(r, start(r, &q));
    for (unsigned i = 0; i < r->number; i++)
        first += 7 / r->size + (i < 7 % r->size);
    for (unsigned i = 0; i < rows; i++)
        assert_true(((float *)outs[0])[i] == (float)(first + i + 1) * (float)r->size);
    free(outs[0]);
}

static void cast(struct rank *r)
{
    double in = r->number + 0.5, out = 0;
    struct hy_tensor t = {.in = &in, .out = &out};
    struct hy_request q = {.kind = HY_BROADCAST, .name = "w", .type = HY_F64, .root = 1, .prescale = 1, .postscale = 1,
                           .tensor_count = 1, .tensors = &t};
    struct hy_request b = {.kind = HY_BARRIER, .name = "b", .prescale = 1, .postscale = 1};

    finish(r, start(r, &q));
    assert_true(out == 1.5);
    finish(r, start(r, &b));
}

static void all_the_others(struct rank *r)
{
    gather(r);
    exchange(r);
    scatter(r);
    if (r->size > 1)
        cast(r);
}

static void test_every_kind_of_request_does_what_it_says(void **state)
{
    (void)state;
    for (unsigned size = 1; size <= 4; size++)
        run_ranks(size, 1, all_the_others, NULL);
    run_ranks(3, 3, all_the_others, NULL);
}

/* ---- what goes wrong ------------------------------------------------------------------------------ */

static void other_shapes(struct rank *r)
{
    float in[4] = {0}, out[4];
    struct hy_tensor t = {.in = in, .out = out, .dim_count = 1, .dims = {r->number == 1 ? 4 : 3}};
    struct hy_request q = reduction("grad", &t);
    struct hy_err err = {0};

    assert_int_equal(hy_group_wait(r->g, start(r, &q), &err), -EBADMSG);
    assert_non_null(strstr(err.text, "'grad'"));
    assert_non_null(strstr(err.text, "rank 1 has [4]"));
    assert_true(sum_of(r, "after", 1) == 2); /* and the group goes on */
}

static void test_another_shape_is_an_error_on_both_sides_and_not_the_end(void **state)
{
    (void)state;
    run_ranks(2, 1, other_shapes, NULL);
}

static void another_name(struct rank *r)
{
    float in = 0, out;
    struct hy_tensor t = {.in = &in, .out = &out};
    struct hy_request q = reduction(r->number ? "b" : "a", &t);
    struct hy_err err = {0};
    int64_t began = hy_clock_ms();

    assert_int_equal(hy_group_wait(r->g, start(r, &q), &err), -EDEADLK);
    assert_true(hy_clock_ms() - began < 60000); /* it ends at all */
    assert_non_null(strstr(err.text, r->number ? "'a' (allreduce)" : "'b' (allreduce)"));
}

static void test_a_missing_tensor_is_an_error_and_no_stall(void **state)
{
    (void)state;
    run_ranks(2, 1, another_name, NULL);
}

/* Whether it is known before or after it is started. */
static int64_t try(struct rank *r, const struct hy_request *request, struct hy_err *err)
{
    int64_t ticket = hy_group_start(r->g, request, err);

    return ticket < 0 ? ticket : hy_group_wait(r->g, ticket, err);
}

static void one_leaves(struct rank *r)
{
    float in = 0, out;
    struct hy_tensor t = {.in = &in, .out = &out};
    struct hy_request q = reduction("x", &t);
    struct hy_err err = {0};

    if (r->number == *(unsigned *)r->arg)
        return;
    assert_int_equal(try(r, &q, &err), -ECONNABORTED);
    assert_non_null(strstr(err.text, "has left the group"));
}

static void test_who_has_left_is_not_waited_for(void **state)
{
    unsigned who = 1;

    (void)state;
    run_ranks(3, 1, one_leaves, &who);
    who = 0;
    run_ranks(3, 1, one_leaves, &who);
}

static pthread_barrier_t all_there;

/* Rank 1 is silent from some moment on, and the agent says that it is dead. */
static void one_dies(struct rank *r)
{
    float in[1000] = {0}, out[1000];
    struct hy_tensor t = {.in = in, .out = out, .dim_count = 1, .dims = {1000}};
    struct hy_request q = reduction("x", &t);
    struct hy_err err = {0};
    int64_t ticket, rc = 0;

    for (int i = 0; i < 3; i++)
        finish(r, start(r, &q));
    pthread_barrier_wait(&all_there);
    if (r->number == 1) {
        tell_loss(r->agent, 1, "rank 1 on b was ended by signal 9");
        pthread_barrier_wait(&all_there);
        return;
    }
    while (rc >= 0) {
        ticket = hy_group_start(r->g, &q, &err);
        rc = ticket < 0 ? ticket : hy_group_wait(r->g, ticket, &err);
    }
    assert_int_equal(rc, -ECONNABORTED);
    assert_string_equal(err.text, "rank 1 on b was ended by signal 9");
    pthread_barrier_wait(&all_there);
}

static void test_a_lost_rank_is_named_to_all_others(void **state)
{
    (void)state;
    pthread_barrier_init(&all_there, NULL, 3);
    run_ranks(3, 1, one_dies, NULL);
    run_ranks(3, 3, one_dies, NULL);
    pthread_barrier_destroy(&all_there);
}

/* One rank has no memory for what is gathered: it alone knows. */
static void *give_memory(void *arg, size_t tensor, const int64_t *dims, uint32_t dim_count, size_t bytes)
{
    (void)tensor, (void)dims, (void)dim_count, (void)bytes;
    return arg;
}

static void without_memory(struct rank *r)
{
    float in[2] = {1, 2}, out[6];
    struct hy_tensor t = {.in = in, .dim_count = 1, .dims = {2}};
    struct hy_request q = reduction("rows", &t);
    struct hy_err err = {0};

    q.kind = HY_ALLGATHER;
    q.allocate = give_memory;
    q.arg = r->number == 1 ? NULL : out;
    assert_int_equal(hy_group_wait(r->g, start(r, &q), &err), r->number == 1 ? -ENOMEM : -ECONNABORTED);
    assert_non_null(strstr(err.text, "'rows': no memory for a result of 24 bytes"));
    assert_int_equal(hy_group_start(r->g, &q, &err), -ECONNABORTED); /* and that is the end, for all */
    pthread_barrier_wait(&all_there);
}

static void test_a_rank_that_cannot_take_part_says_so_to_the_others(void **state)
{
    struct agent a;

    (void)state;
    pthread_barrier_init(&all_there, NULL, 3);
    for (unsigned hosts = 1; hosts <= 3; hosts += 2) {
        open_agent(&a, 3, hosts);
        run_ranks_on(&a, 3, without_memory, NULL);
        assert_int_equal(atomic_load(&a.failures), 1); /* who heard it does not say it again */
        close_agent(&a);
    }
    pthread_barrier_destroy(&all_there);
}

static atomic_bool is_held, may_go_on;

/* The group's thread of one rank is held in the midst of a request. */
static void *give_memory_late(void *arg, size_t tensor, const int64_t *dims, uint32_t dim_count, size_t bytes)
{
    (void)arg, (void)tensor, (void)dims, (void)dim_count, (void)bytes;
    atomic_store(&is_held, true);
    while (!atomic_load(&may_go_on))
        usleep(1000);
    return NULL; /* the others know already that it is over */
}

static void leave_in_the_midst(struct rank *r)
{
    float in[2] = {1, 2}, out[6];
    struct hy_tensor t = {.in = in, .dim_count = 1, .dims = {2}};
    struct hy_request q = reduction("rows", &t);
    struct hy_err err = {0};
    int64_t ticket;

    q.kind = HY_ALLGATHER;
    q.allocate = r->number == 2 ? give_memory_late : give_memory;
    q.arg = out;
    ticket = start(r, &q);
    if (r->number == 2) {
        assert_int_equal(hy_group_wait(r->g, ticket, &err), -ENOMEM);
        return;
    }
    if (r->number == 1) {
        while (!atomic_load(&is_held))
            usleep(1000);
        hy_group_stop(r->g);
        assert_int_equal(hy_group_wait(r->g, ticket, &err), -ECONNABORTED);
        return;
    }
    assert_int_equal(hy_group_wait(r->g, ticket, &err), -ECONNABORTED);
    assert_non_null(strstr(err.text, "left the group while something was under way"));
    atomic_store(&may_go_on, true);
}

static void test_who_leaves_in_the_midst_of_something_is_missed(void **state)
{
    (void)state;
    run_ranks(3, 1, leave_in_the_midst, NULL);
}

/* Rank 1 goes without waiting for what it has asked for: perhaps it is ordered at that very moment. */
static void leave_at_once(struct rank *r)
{
    float in = 1, out = 0;
    struct hy_tensor t = {.in = &in, .out = &out};
    struct hy_request q = reduction("x", &t);
    struct hy_err err = {0};
    int64_t ticket, rc;

    if (r->number == 1) {
        ticket = hy_group_start(r->g, &q, &err);
        hy_group_stop(r->g);
        rc = ticket < 0 ? ticket : hy_group_wait(r->g, ticket, &err);
    } else {
        rc = try(r, &q, &err);
    }
    if (rc == 0)
        assert_true(out == 3);
    else
        assert_int_equal(rc, -ECONNABORTED);
}

static void test_who_leaves_at_once_keeps_nobody_waiting(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++)
        run_ranks(3, 1, leave_at_once, NULL);
}

/* Thousands of tensors: the order to add them up is larger than what lies ready for a rank to read. */
static void many_tensors(struct rank *r)
{
    enum { N = 30000 };
    float in = 1, *out = calloc(N, sizeof *out);
    struct hy_tensor *t = calloc(N, sizeof *t);
    struct hy_request q = reduction("many", t);

    for (size_t i = 0; i < N; i++)
        t[i] = (struct hy_tensor){.in = &in, .out = &out[i], .dim_count = 3, .dims = {1, 1, 1}};
    q.tensor_count = N;
    for (int i = 0; i < 3; i++)
        finish(r, start(r, &q));
    assert_true(out[0] == (float)r->size && out[N - 1] == (float)r->size);
    free(t);
    free(out);
}

static void test_orders_may_be_larger_than_a_pipe(void **state)
{
    (void)state;
    run_ranks(3, 1, many_tensors, NULL);
    run_ranks(2, 2, many_tensors, NULL);
}

/* Rank 2 goes, in order; the set of the other two is no affair of it. */
static void one_goes_early(struct rank *r)
{
    static const unsigned two[] = {0, 1};
    struct hy_err err = {0};
    float in = 1, out = 0;
    struct hy_tensor t = {.in = &in, .out = &out};
    struct hy_request q = reduction("pair", &t);

    q.set = (uint32_t)hy_group_set_add(r->g, two, 2, &err);
    if (r->number == 2)
        return;
    while (atomic_load(&r->agent->leaves) == 0)
        usleep(1000);
    for (int i = 0; i < 20; i++) {
        finish(r, start(r, &q));
        assert_true(out == 2);
        usleep(1000);
    }
}

static void test_who_goes_in_order_is_no_loss_to_a_set_without_it(void **state)
{
    struct agent a;

    (void)state;
    for (unsigned hosts = 1; hosts <= 3; hosts += 2) {
        open_agent(&a, 3, hosts);
        run_ranks_on(&a, 3, one_goes_early, NULL);
        assert_int_equal(atomic_load(&a.failures), 0);
        close_agent(&a);
    }
}

struct waiter {
    struct rank *r;
    int64_t ticket, result;
    struct hy_err err;
};

static void *wait_for_it(void *arg)
{
    struct waiter *w = arg;

    w->result = hy_group_wait(w->r->g, w->ticket, &w->err);
    return NULL;
}

static void two_wait(struct rank *r)
{
    float in = 1, out = 0;
    struct hy_tensor t = {.in = &in, .out = &out};
    struct hy_request q = reduction("x", &t);
    struct waiter both[2] = {{.r = r}, {.r = r}};
    pthread_t threads[2];

    if (r->number == 1)
        usleep(50000); /* so that the others' threads are in it */
    both[0].ticket = both[1].ticket = start(r, &q);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_it, &both[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(both[0].result + both[1].result, -EINVAL);
    assert_true(out == 2);
}

static void test_a_ticket_is_for_one_who_waits(void **state)
{
    (void)state;
    run_ranks(2, 1, two_wait, NULL);
}

/* Waiting has an end, so that one can look at something else. */
static void wait_a_while(struct rank *r)
{
    float in = 1, out = 0;
    struct hy_tensor t = {.in = &in, .out = &out};
    struct hy_request q = reduction("x", &t);
    struct hy_err err = {0};
    int64_t ticket;

    if (r->number == 1) {
        pthread_barrier_wait(&all_there);
        sum_of(r, "x", 1);
        return;
    }
    ticket = start(r, &q);
    assert_int_equal(hy_group_await(r->g, ticket, 10), 0);
    pthread_barrier_wait(&all_there);
    while (!hy_group_await(r->g, ticket, 10))
        ;
    assert_int_equal(hy_group_wait(r->g, ticket, &err), 0);
    assert_int_equal(hy_group_await(r->g, ticket, 10), 1); /* there is nothing to wait for */
}

static void test_one_may_wait_for_a_while_only(void **state)
{
    (void)state;
    pthread_barrier_init(&all_there, NULL, 2);
    run_ranks(2, 1, wait_a_while, NULL);
    pthread_barrier_destroy(&all_there);
}

static void bad_requests(struct rank *r)
{
    float in[6] = {0}, out[6];
    struct hy_tensor t = {.in = in, .out = out, .dim_count = 1, .dims = {5}};
    struct hy_request q = reduction("x", &t);
    struct hy_err err = {0};

    q.set = 9;
    assert_int_equal(hy_group_start(r->g, &q, &err), -EINVAL);
    q.set = 0, q.op = HY_ADASUM, q.type = HY_I32;
    assert_int_equal(hy_group_start(r->g, &q, &err), -EINVAL);
    q.op = HY_AVERAGE, q.type = HY_BOOL;
    assert_int_equal(hy_group_start(r->g, &q, &err), -EINVAL);
    q = reduction("x", &t);
    q.kind = HY_ALLTOALL;
    assert_int_equal(hy_group_start(r->g, &q, &err), -EINVAL); /* 5 rows for 2 */
    t.dims[0] = -1;
    q = reduction("x", &t);
    assert_int_equal(hy_group_start(r->g, &q, &err), -EINVAL);
    t.dims[0] = 1;
    q = (struct hy_request){.kind = HY_JOIN, .name = "join", .set = 1, .prescale = 1, .postscale = 1};
    assert_int_equal(hy_group_start(r->g, &q, &err), -EINVAL);
    assert_int_equal(hy_group_set_add(r->g, (unsigned[2000]){0}, 2000, &err), -EINVAL);
    assert_true(sum_of(r, "fine", 1) == 2);
    assert_int_equal(hy_group_wait(r->g, 12345678, &err), -EINVAL);
}

static void test_bad_requests_are_refused_at_once(void **state)
{
    (void)state;
    run_ranks(2, 1, bad_requests, NULL);
}

/* ---- sets and joins ------------------------------------------------------------------------------------ */

static void with_sets(struct rank *r)
{
    static const unsigned even[] = {0, 2};
    struct hy_err err = {0};
    unsigned members[4];
    float in = (float)r->number, out = -1;
    struct hy_tensor t = {.in = &in, .out = &out};
    struct hy_request q = reduction("e", &t);

    q.set = (uint32_t)hy_group_set_add(r->g, even, 2, &err);
    assert_int_equal(q.set, 1);
    assert_int_equal(hy_group_set_members(r->g, 1, members, 4), 2);
    assert_int_equal(members[1], 2);
    if (r->number % 2 == 0) {
        finish(r, start(r, &q));
        assert_true(out == 2);
    } else {
        assert_int_equal(hy_group_start(r->g, &q, &err), -EINVAL);
    }
    assert_int_equal(hy_group_set_remove(r->g, 1, &err), 0);
    assert_int_equal(hy_group_set_members(r->g, 1, members, 4), -ENOENT);
    assert_true(sum_of(r, "all", 1) == 4);
}

static void test_process_sets_come_and_go(void **state)
{
    (void)state;
    run_ranks(4, 1, with_sets, NULL);
}

/* Rank r has r + 1 batches; then it joins. */
static void uneven(struct rank *r)
{
    struct hy_request q = {.kind = HY_JOIN, .name = "join", .prescale = 1, .postscale = 1};
    struct hy_err err = {0};

    for (unsigned i = 0; i <= r->number; i++)
        assert_true(sum_of(r, "grad", 1) == (float)(r->size - i));
    assert_int_equal(hy_group_wait(r->g, start(r, &q), &err), r->size - 1);
    assert_true(sum_of(r, "grad", 1) == (float)r->size);
}

static void test_ranks_without_data_give_zeros(void **state)
{
    (void)state;
    run_ranks(3, 1, uneven, NULL);
}

/* Many threads of each rank. */
static void *hammer(void *arg)
{
    struct rank *r = arg;
    static atomic_uint next;
    char name[32];

    (void)next;
    for (unsigned i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "t%lu.%u", (unsigned long)(uintptr_t)r->arg, i);
        assert_true(sum_of(r, name, 1) == (float)r->size);
    }
    return NULL;
}

static void many_threads(struct rank *r)
{
    struct rank copies[4];
    pthread_t threads[4];

    for (uintptr_t i = 0; i < 4; i++) {
        copies[i] = *r;
        copies[i].arg = (void *)i;
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, &copies[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

static void test_any_thread_may_ask(void **state)
{
    (void)state;
    run_ranks(1, 1, many_threads, NULL);
    run_ranks(2, 1, many_threads, NULL);
}

/* ---- the timeline ------------------------------------------------------------------------------------------ */

static void with_timeline(struct rank *r)
{
    struct hy_err err = {0};
    char name[400] = "";

    assert_int_equal(hy_group_timeline_start(r->g, r->arg, true, &err), 0);
    assert_int_equal(hy_group_timeline_start(r->g, r->arg, true, &err), -EALREADY);
    sum_of(r, "loss \"x\"", 1);
    for (size_t i = 0; i + 3 < sizeof name; i += 2)
        memcpy(name + i, "\u00e9", 3);
    sum_of(r, name, 1);
    assert_int_equal(hy_group_timeline_stop(r->g, &err), 0);
}

static void expect_trace(const char *path)
{
    char text[8192];
    FILE *f = fopen(path, "r");
    size_t n;

    assert_non_null(f);
    n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    assert_non_null(strstr(text, "\"NEGOTIATE_ALLREDUCE\""));
    assert_non_null(strstr(text, "\"ALLREDUCE\""));
    assert_non_null(strstr(text, "loss \\\"x\\\""));
    assert_non_null(strstr(text, "\"CYCLE_START\""));
    assert_non_null(strstr(text, "\u00e9\"}"));
    assert_null(strstr(text, "\xc3\"")); /* half a character */
    assert_non_null(strstr(text, "\n]\n"));
    unlink(path);
}

static void test_the_timeline_has_every_request_of_each_rank(void **state)
{
    char path[64], other[64];

    (void)state;
    snprintf(path, sizeof path, "/tmp/hopyard-test-trace-%d.json", (int)getpid());
    snprintf(other, sizeof other, "/tmp/hopyard-test-trace-%d.rank-1.json", (int)getpid());
    run_ranks(2, 1, with_timeline, path);
    expect_trace(path);
    expect_trace(other);
}

/* ---- alone ----------------------------------------------------------------------------------------------------- */

static void test_outside_of_a_run_a_group_is_of_one(void **state)
{
    struct rank r = {.size = 1};
    struct hy_err err = {0};

    (void)state;
    assert_int_equal(hy_group_join(&r.g, &err), 0);
    assert_int_equal(hy_group_size(r.g), 1);
    assert_int_equal(hy_group_local_size(r.g), 1);
    assert_int_equal(hy_group_cross_size(r.g), 1);
    assert_true(hy_group_is_homogeneous(r.g));
    assert_true(sum_of(&r, "x", 3) == 3);
    all_the_others(&r);
    hy_group_leave(r.g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outside_of_a_run_a_group_is_of_one),
        cmocka_unit_test(test_sums_come_out_alike_for_all_sizes_of_group),
        cmocka_unit_test(test_sums_come_out_alike_between_hosts),
        cmocka_unit_test(test_ranks_need_not_agree_on_an_order),
        cmocka_unit_test(test_tensors_of_a_group_go_together),
        cmocka_unit_test(test_every_kind_of_request_does_what_it_says),
        cmocka_unit_test(test_another_shape_is_an_error_on_both_sides_and_not_the_end),
        cmocka_unit_test(test_a_missing_tensor_is_an_error_and_no_stall),
        cmocka_unit_test(test_who_has_left_is_not_waited_for),
        cmocka_unit_test(test_a_lost_rank_is_named_to_all_others),
        cmocka_unit_test(test_a_rank_that_cannot_take_part_says_so_to_the_others),
        cmocka_unit_test(test_who_leaves_in_the_midst_of_something_is_missed),
        cmocka_unit_test(test_who_leaves_at_once_keeps_nobody_waiting),
        cmocka_unit_test(test_orders_may_be_larger_than_a_pipe),
        cmocka_unit_test(test_who_goes_in_order_is_no_loss_to_a_set_without_it),
        cmocka_unit_test(test_a_ticket_is_for_one_who_waits),
        cmocka_unit_test(test_one_may_wait_for_a_while_only),
        cmocka_unit_test(test_bad_requests_are_refused_at_once),
        cmocka_unit_test(test_process_sets_come_and_go),
        cmocka_unit_test(test_ranks_without_data_give_zeros),
        cmocka_unit_test(test_any_thread_may_ask),
        cmocka_unit_test(test_the_timeline_has_every_request_of_each_rank),
    };

    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
