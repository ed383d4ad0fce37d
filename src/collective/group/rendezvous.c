/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/group/rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "collective/group/endpoint.h"
#include "collective/group/launcher.h"
#include "collective/group/pmi.h"
#include "collective/group/rank_server.h"
#include "collective/shm/choice.h"
#include "wire/wire.h"

#define LEAVE_MS 5000
#define POLL_INTERVAL_MS 100 /* between two calls of `give_up` */
#define JOIN_TIMEOUT_MS 600000 /* for all ranks that mpirun or srun has started */
#define RETRY_MS 50         /* between two attempts to reach rank 0 */
#define NOTICE_MS 5000  /* before a rank prints that it waits for rank 0 */
#define LOSS_NOTICE_MS 2000       /* for the report of a loss that is visible otherwise */
#define DIALS_MAX 20       /* to rank 0 on another machine, which drops connections when it has too many */

_Static_assert(HY_MESH_ADDRESSES_MAX <= HY_RANK_ADDRESSES_LIMIT, "the agent accepts the addresses of a rank");

struct hy_rendezvous {
    struct hy_agent_client agent; /* or rank 0's server */
    uint64_t generation;      /* 0: no roster yet */
    atomic_bool outdated, canceled;
    void (*tick)(void *arg); /* NULL: none */
    void *tick_arg;
    bool left;                /* the agent has acknowledged that this rank left */
    bool missed;              /* a missed rank was reported to the agent */
    bool over;                /* the end of the group was reported, by the agent or to it */
    Hy__TrialReportAnswer *roster;
    bool (*give_up)(void *arg); /* while it waits for the roster; NULL: never */
    void *arg;
    struct hy_launcher launcher; /* its size is 0 if an agent has started this rank */
    int64_t until_ms;            /* with a launcher: when all must have joined */
    int64_t notice_ms;             /* ... when to print that this rank waits; 0: printed */
    int memory;                  /* ... offered to the ranks of this machine, which open it through /proc */
};

/* For ranks on several machines: the server of rank 0. The launcher is queried once in a process. */
static struct hy_endpoint endpoint;
static pid_t endpoint_owner;

/* What this rank publishes, until the communicator takes it. */
struct local_member {
    int bell, listen_fd;
    char bell_name[HY_BELL_MAX];
    char **addresses;
    size_t address_count;
    uint16_t port;
    char host[HY_HOST_ID], memory[64]; /* with a launcher */
};

static void local_member_done(struct local_member *p)
{
    if (p->bell >= 0)
        close(p->bell);
    if (p->listen_fd >= 0)
        close(p->listen_fd);
    for (size_t i = 0; i < p->address_count; i++)
        free(p->addresses[i]);
    free(p->addresses);
}

void hy_rendezvous_free(struct hy_rendezvous *r)
{
    if (!r)
        return;
    hy_agent_client_done(&r->agent);
    hy_close_at(&r->memory);
    if (r->roster)
        hy__trial_report_answer__free_unpacked(r->roster, NULL);
    free(r);
}

bool hy_rendezvous_is_outdated(const struct hy_rendezvous *r)
{
    return r && atomic_load(&r->outdated);
}

static int send_join(struct hy_rendezvous *r, const struct local_member *p, struct hy_err *err)
{
    Hy__GroupJoin join = HY__GROUP_JOIN__INIT;
    Hy__GroupWord word = HY__GROUP_WORD__INIT;
    int rc;

    join.addresses = p->addresses;
    join.n_addresses = p->address_count;
    join.port = p->port;
    join.bell = (char *)p->bell_name;
    join.host = (char *)p->host;
    join.shared = (char *)p->memory;
    join.process = (uint32_t)getpid();
    word.body_case = HY__GROUP_WORD__BODY_JOIN;
    word.join = &join;
    rc = hy_agent_client_send_word(&r->agent, &word);
    return rc < 0 ? hy_err_sys(err, rc, "cannot send the request to join to the agent") : 0;
}

/* ---- messages of the agent ------------------------------------------------------ */

static int take_word(struct hy_rendezvous *r, const Hy__GroupWord *word, struct hy_err *err)
{
    switch (word->body_case) {
    case HY__GROUP_WORD__BODY_LOST:
        if (r->generation && word->lost->generation && word->lost->generation != r->generation)
            return 0; /* of an earlier group */
        r->over = true;
        return hy_err_set(err, -ECONNABORTED, "%s",
                          *word->lost->why ? word->lost->why : "a rank of the training was lost");
    case HY__GROUP_WORD__BODY_OUTDATED:
        atomic_store(&r->outdated, true);
        return 0;
    default:
        return 0;
    }
}

/* Frees the answer, or keeps it as the roster. */
static int take_answer(struct hy_rendezvous *r, Hy__TrialReportAnswer *answer, struct hy_err *err)
{
    int rc = 0;

    if (*answer->error && !r->roster) /* later ones are answers to notes */
        rc = hy_err_set(err, -ECONNABORTED, "%s", answer->error);
    else if (answer->group && answer->group->body_case == HY__GROUP_WORD__BODY_ROSTER && !r->roster) {
        r->generation = answer->group->roster->generation;
        r->roster = answer;
        return 0;
    } else if (answer->group)
        rc = take_word(r, answer->group, err);
    else
        r->left = true; /* an acknowledgment */
    hy__trial_report_answer__free_unpacked(answer, NULL);
    return rc;
}

/* 1 and an answer, 0 after timeout_ms or on a signal, or -Exxx. */
static int receive_answer(struct hy_rendezvous *r, int timeout_ms, Hy__TrialReportAnswer **ret, struct hy_err *err)
{
    int rc = hy_agent_client_receive(&r->agent, timeout_ms, ret, err);

    if (rc == -EPIPE) {
        r->over = true;
        return hy_err_set(err, -ECONNABORTED, "%s is gone, and the training with it",
                          r->launcher.size ? "rank 0" : "the agent of this rank");
    }
    return rc == -EINTR ? 0 : rc;
}

/* The same, and what the answer means for this rank. */
static int receive(struct hy_rendezvous *r, int timeout_ms, struct hy_err *err)
{
    Hy__TrialReportAnswer *answer;
    int rc = receive_answer(r, timeout_ms, &answer, err);

    if (rc <= 0)
        return rc;
    rc = take_answer(r, answer, err);
    return rc < 0 ? rc : 1;
}

/* The waiter's check: reports the loss of a rank. */
static int check(void *arg, struct hy_err *err)
{
    struct hy_rendezvous *r = arg;
    int rc;

    if (atomic_load(&r->canceled))
        return hy_err_set(err, -ECANCELED, "this rank has left the group during a collective");
    if (r->tick)
        r->tick(r->tick_arg);
    do
        rc = receive(r, 0, err);
    while (rc > 0);
    return rc;
}

/* With a launcher. */
static int join_timeout(const struct hy_rendezvous *r, struct hy_err *err)
{
    const struct hy_launcher *l = &r->launcher;

    return hy_err_set(err, -ETIMEDOUT,
                      "not all of the %u ranks that %s has started have called init within %d s; "
                      "start all ranks by one `%s`, or by `hopyard train -np %u python …`",
                      l->size, l->name, JOIN_TIMEOUT_MS / 1000, l->name, l->size);
}

static bool is_timed_out(const struct hy_rendezvous *r)
{
    return r->launcher.size && hy_clock_ms() > r->until_ms;
}

static int await_roster(struct hy_rendezvous *r, struct hy_err *err)
{
    while (!r->roster) {
        int rc = receive(r, POLL_INTERVAL_MS, err);

        if (rc == 0 && r->give_up && r->give_up(r->arg))
            return hy_err_set(err, -EINTR, "interrupted while waiting for the other ranks");
        if (rc == 0 && is_timed_out(r))
            return join_timeout(r, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* Rank 0 may not listen yet. An fd, or -Exxx. */
static int dial_rank_0(struct hy_rendezvous *r, const char *path, struct hy_err *err)
{
    int64_t notice_ms = hy_clock_ms() + NOTICE_MS;
    int fd;

    while ((fd = hy_local_connect(path, err)) == -ENOENT || fd == -ECONNREFUSED) {
        if (r->give_up && r->give_up(r->arg))
            return hy_err_set(err, -EINTR, "interrupted while waiting for rank 0");
        if (is_timed_out(r))
            return join_timeout(r, err);
        if (notice_ms && hy_clock_ms() > notice_ms) {
            fprintf(stderr, "[hopyard] rank %u waits for rank 0, which has not called init yet\n", r->launcher.rank);
            notice_ms = 0;
        }
        poll(NULL, 0, RETRY_MS);
    }
    return fd;
}

/* A child process of rank 0 connects to the server of its parent, which refuses it. */
static int dial(struct hy_rendezvous *r, const char *path, struct hy_err *err)
{
    int rc = hy_local_connect(path, err);

    if (!r->launcher.size || (rc != -ENOENT && rc != -ECONNREFUSED))
        return rc;
    rc = r->launcher.rank == 0 ? hy_rank_server_start(path, r->launcher.size, NULL, err) : 0;
    return rc < 0 ? rc : dial_rank_0(r, path, err);
}

/* ---- ranks on several machines -------------------------------------------------- */

static bool should_give_up(void *arg)
{
    struct hy_rendezvous *r = arg;

    if (r->notice_ms && hy_clock_ms() > r->notice_ms) {
        fprintf(stderr, "[hopyard] rank %u waits until all %u ranks have called init\n", r->launcher.rank,
                r->launcher.size);
        r->notice_ms = 0;
    }
    return is_timed_out(r) || (r->give_up && r->give_up(r->arg));
}

/* Distributes the endpoint of rank 0 to all ranks through the launcher. */
static int find_endpoint(struct hy_rendezvous *r, const char *path, struct hy_err *err)
{
    char text[HY_PMI_TEXT] = "";
    struct hy_endpoint found = {0};
    int rc = r->launcher.rank == 0 ? hy_rank_server_start(path, r->launcher.size, &found, err) : 0;

    if (rc < 0)
        return rc;
    if (r->launcher.rank == 0)
        hy_endpoint_format(&found, text);
    r->notice_ms = hy_clock_ms() + NOTICE_MS;
    rc = hy_pmi_share(r->launcher.rank, text, should_give_up, r, err);
    if (rc == -EINTR && is_timed_out(r))
        rc = join_timeout(r, err);
    else if (rc == -ENOTSUP) {
        struct hy_err why = *err;

        rc = hy_launcher_refuse(&r->launcher, why.text, err);
    } else if (rc == 0 && hy_endpoint_parse(text, &found) < 0)
        rc = hy_err_set(err, -EPROTO,
                        "%s transferred an invalid address of rank 0; do all ranks have the same version of hopyard?",
                        r->launcher.name);
    if (rc == 0) {
        endpoint = found;
        endpoint_owner = getpid();
    }
    explicit_bzero(text, sizeof text);
    explicit_bzero(&found, sizeof found);
    return rc;
}

/* Rank 0 listens before the launcher distributes its address, so a refused connection means that it has exited. */
static int dial_endpoint(struct hy_rendezvous *r, struct hy_err *err)
{
    int rc, dials = 0;

    while ((rc = hy_endpoint_dial(&endpoint, r->launcher.rank, r->launcher.size, err)) == -ECONNRESET || rc == -EPIPE) {
        if (should_give_up(r) || ++dials == DIALS_MAX)
            return rc;
        poll(NULL, 0, RETRY_MS);
    }
    return rc;
}

/* Ranks on the machine of rank 0 use its unix socket if they can access its directory. */
static int dial_multi_host(struct hy_rendezvous *r, const char *path, const char *host, struct hy_err *err)
{
    int rc = 0;

    if (endpoint_owner != getpid())
        rc = find_endpoint(r, path, err);
    if (rc < 0)
        return rc;
    if (strcmp(host, endpoint.host) == 0) {
        rc = hy_local_connect(path, err);
        if (rc >= 0 || r->launcher.rank == 0)
            return rc;
    }
    return dial_endpoint(r, err);
}

/* An empty memfd: the ranks that share it give it its size. */
static int offer_memory(struct hy_rendezvous *r, struct local_member *p, struct hy_err *err)
{
    int rc = hy_host_id(p->host, err);

    if (rc < 0)
        return rc;
    r->memory = HY_SYS(memfd_create("hopyard-group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (r->memory < 0)
        return hy_err_sys(err, -errno, "cannot create the memory that this machine's ranks share");
    snprintf(p->memory, sizeof p->memory, "/proc/%d/fd/%d", (int)getpid(), r->memory);
    return 0;
}

/* ---- from a roster to a communicator ---------------------------------------------- */

static int check_roster(const Hy__Roster *roster, size_t key_size, struct hy_err *err)
{
    if (roster->n_members == 0 || roster->n_members > HY_RANKS_MAX || roster->rank >= roster->n_members ||
        roster->key.len != key_size)
        return hy_err_set(err, -EPROTO, "the driver's list of ranks is invalid");
    for (size_t i = 0; i < roster->n_members; i++)
        if (strlen(roster->members[i]->bell) >= HY_BELL_MAX || roster->members[i]->port > UINT16_MAX)
            return hy_err_set(err, -EPROTO, "the driver's entry for rank %zu is invalid", i);
    return 0;
}

static void fill_member(struct hy_comm_member *m, const Hy__GroupMember *from)
{
    m->host = from->host;
    m->bell = from->bell;
    m->tcp.addresses = (const char *const *)from->addresses;
    m->tcp.address_count = from->n_addresses;
    m->tcp.port = (uint16_t)from->port;
}

/* The rank that owns the memory may just have died: then its loss, which will be reported, is the error. */
static int open_shared(struct hy_rendezvous *r, const char *path, struct hy_err *err)
{
    int64_t until = hy_clock_ms() + LOSS_NOTICE_MS;
    int fd = HY_SYS(open(path, O_RDWR | O_CLOEXEC)), code = errno;

    while (fd < 0 && code == ENOENT && hy_clock_ms() < until) {
        int rc = check(r, err);

        if (rc < 0)
            return rc;
        poll(NULL, 0, RETRY_MS);
    }
    return fd < 0 ? hy_err_sys(err, -code, "cannot open the memory that this machine's ranks share, '%s'", path) : fd;
}

static unsigned count_local_ranks(const Hy__Roster *roster)
{
    unsigned count = 0;

    for (size_t i = 0; i < roster->n_members; i++)
        count += roster->members[i]->host == roster->members[roster->rank]->host;
    return count;
}

/* *ret: the memory that this machine's ranks share; unchanged for a single rank. */
static int take_shared(struct hy_rendezvous *r, const Hy__Roster *roster, int *ret, struct hy_err *err)
{
    unsigned count = count_local_ranks(roster);
    int rc;

    if (!*roster->shared || count > HY_LOCAL_MAX_RANKS) /* more are refused where the communicator is opened */
        return 0;
    *ret = open_shared(r, roster->shared, err);
    rc = *ret < 0 ? *ret : hy_shm_reserve(*ret, count, err);
    return rc < 0 ? rc : 0;
}

static int open_comm(struct hy_rendezvous *r, struct local_member *p, struct hy_comm **ret, struct hy_err *err)
{
    const Hy__Roster *roster = r->roster->group->roster;
    hy_cleanup_free struct hy_comm_member *members = NULL;
    hy_cleanup_close int shared = -1;
    struct hy_comm_spec spec;
    int rc = check_roster(roster, r->launcher.is_spread ? 0 : HY_MESH_KEY_SIZE, err);

    if (rc < 0)
        return rc;
    members = hy_calloc(roster->n_members, sizeof *members);
    if (!members)
        return hy_err_oom(err);
    for (size_t i = 0; i < roster->n_members; i++)
        fill_member(&members[i], roster->members[i]);
    rc = take_shared(r, roster, &shared, err);
    if (rc < 0)
        return rc;
    spec = (struct hy_comm_spec){.rank = roster->rank,
                                 .size = (unsigned)roster->n_members,
                                 .members = members,
                                 .shm_fd = shared,
                                 .listen_fd = p->listen_fd,
                                 .waiter = {.bell = p->bell, .watch_fd = r->agent.fd, .check = check, .arg = r}};
    if (r->launcher.is_spread)
        hy_endpoint_mesh_key(&endpoint, r->generation, spec.key);
    else
        memcpy(spec.key, roster->key.data, sizeof spec.key);
    if (getenv("HOPYARD_CORES")) { /* of this rank alone, so that spinning does not slow down others */
        spec.waiter.spins = hy_patience(false).spins;
        spec.waiter.yields = hy_patience(false).yields;
    }
    rc = hy_comm_open(&spec, ret, err);
    explicit_bzero(spec.key, sizeof spec.key);
    if (rc == 0)
        p->listen_fd = p->bell = -1; /* taken */
    return rc;
}

static int join(struct hy_rendezvous *r, const char *path, struct hy_comm **ret_comm, struct hy_err *err)
{
    struct local_member p = {.bell = -1, .listen_fd = -1};
    int rc;

    p.bell = rc = hy_bell_open(p.bell_name, err);
    if (rc >= 0)
        p.listen_fd = rc = hy_mesh_listen(&p.port, &p.addresses, &p.address_count, err);
    if (rc >= 0 && r->launcher.size)
        rc = offer_memory(r, &p, err);
    if (rc >= 0)
        r->agent.fd = rc = r->launcher.is_spread ? dial_multi_host(r, path, p.host, err) : dial(r, path, err);
    if (rc >= 0)
        rc = send_join(r, &p, err);
    if (rc >= 0)
        rc = await_roster(r, err);
    if (rc >= 0)
        rc = open_comm(r, &p, ret_comm, err);
    local_member_done(&p);
    return rc;
}

static int join_alone(struct hy_comm **ret_comm, struct hy_err *err)
{
    static const struct hy_comm_member me = {.bell = ""};
    const struct hy_comm_spec spec = {
        .size = 1, .members = &me, .shm_fd = -1, .listen_fd = -1, .waiter = {.bell = -1, .watch_fd = -1}};

    return hy_comm_open(&spec, ret_comm, err);
}

/*
 * The socket of the rendezvous and the tag of this rank: 1, or 0 for a group of one. In a trial of a run, the variables
 * of the agent take precedence over those of a launcher that has started the run itself.
 */
static int find_group(struct hy_launcher *ret_launcher, char **ret_path, char **ret_tag, struct hy_err *err)
{
    const char *path = getenv("HOPYARD_SOCKET"), *tag = getenv("HOPYARD_TAG");
    int rc;

    if (tag && (!path || !getenv("HOPYARD_GROUP")))
        return 0;
    rc = tag ? 1 : hy_launcher_find(ret_launcher, err);
    if (rc <= 0)
        return rc;
    *ret_path = tag ? hy_strdup(path) : hy_launcher_socket(ret_launcher, err);
    *ret_tag = tag ? hy_strdup(tag) : hy_asprintf("%u", ret_launcher->rank);
    if (!*ret_path || !*ret_tag)
        return err->code ? err->code : hy_err_oom(err);
    return 1;
}

int hy_rendezvous(struct hy_rendezvous **ret, struct hy_comm **ret_comm, bool (*give_up)(void *arg), void *arg,
                  struct hy_err *err)
{
    struct hy_launcher launcher = {0};
    hy_cleanup_free char *path = NULL, *tag = NULL;
    struct hy_rendezvous *r;
    int rc = find_group(&launcher, &path, &tag, err);

    *ret = NULL;
    if (rc <= 0)
        return rc < 0 ? rc : join_alone(ret_comm, err);
    r = hy_calloc(1, sizeof *r);
    if (!r)
        return hy_err_oom(err);
    r->memory = -1;
    r->give_up = give_up;
    r->arg = arg;
    r->launcher = launcher;
    r->until_ms = hy_clock_ms() + JOIN_TIMEOUT_MS;
    rc = hy_agent_client_init(&r->agent, tag, err);
    if (rc == 0)
        rc = join(r, path, ret_comm, err);
    if (rc < 0) {
        hy_rendezvous_fail(r, err->text);
        hy_rendezvous_free(r);
        return rc;
    }
    *ret = r;
    return 0;
}

void hy_rendezvous_on_wait(struct hy_rendezvous *r, void (*tick)(void *arg), void *arg)
{
    if (r) {
        r->tick = tick;
        r->tick_arg = arg;
    }
}

void hy_rendezvous_cancel(struct hy_rendezvous *r)
{
    if (r)
        atomic_store(&r->canceled, true);
}

void hy_rendezvous_note(struct hy_rendezvous *r, const char *text)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;

    if (!r)
        return;
    word.body_case = HY__GROUP_WORD__BODY_NOTE;
    word.note = (char *)text;
    (void)hy_agent_client_send_word(&r->agent, &word); /* a failed agent ends this process anyway */
}

void hy_rendezvous_fail(struct hy_rendezvous *r, const char *why)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;

    if (!r || r->over || !r->generation)
        return;
    r->over = true;
    word.body_case = HY__GROUP_WORD__BODY_FAILED;
    word.failed = (char *)why;
    (void)hy_agent_client_send_word(&r->agent, &word); /* a failed agent ends this process anyway */
}

void hy_rendezvous_report_missed(struct hy_rendezvous *r, unsigned rank)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;

    if (!r || r->over || r->missed)
        return;
    r->missed = true;
    word.body_case = HY__GROUP_WORD__BODY_MISSED;
    word.missed = rank;
    (void)hy_agent_client_send_word(&r->agent, &word); /* a failed agent ends this process anyway */
}

int hy_rendezvous_leave(struct hy_rendezvous *r)
{
    int64_t until = hy_clock_ms() + LEAVE_MS;
    Hy__GroupWord word = HY__GROUP_WORD__INIT;
    Hy__TrialReportAnswer *answer;
    struct hy_err err = {0};
    int rc;

    if (!r)
        return 0;
    word.body_case = HY__GROUP_WORD__BODY_LEAVE;
    word.leave = true;
    r->left = false;
    rc = hy_agent_client_send_word(&r->agent, &word);
    while (rc >= 0 && !r->left && hy_clock_ms() < until) {
        rc = receive_answer(r, POLL_INTERVAL_MS, &answer, &err);
        if (rc > 0)
            (void)take_answer(r, answer, &err); /* the loss of a rank does not matter any more */
    }
    return rc < 0 ? rc : r->left ? 0 : -ETIMEDOUT;
}
