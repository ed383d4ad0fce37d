/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each rank has one connection per generation, with the same messages as to an agent: over a unix socket or, from
 * another machine, over TCP, where both ends authenticate with the endpoint's key first. When all ranks have joined,
 * each gets a roster, with the memory that the lowest rank of its machine has offered. A rank that disconnects without
 * leaving is lost: the others are notified, and so are ranks that join later, since no process restarts a rank here.
 *
 * One thread owns everything. It ends with the process, which closes the sockets; then the other ranks see that rank 0
 * is gone.
 */
#include "collective/group/rank_server.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "collective/comm/comm.h"
#include "collective/group/thread.h"
#include "wire/wire.h"

#define CHECK_MS 500         /* between two checks for dead and missing ranks */
#define FIRST_REPORT_MS 5000  /* before missing ranks are listed; the interval doubles */
#define SEND_S 5            /* a rank that does not read for this time is lost */
#define UNPROVEN_MAX 64        /* unauthenticated connections */
#define SHORT_PAUSE_MS 100  /* before it accepts again, when descriptors or memory are short */
#define PROOF_MS 5000       /* for the handshake of a connection from another machine */
#define MESSAGE_MAX (256u * 1024)
#define SHARED_MAX 64

struct conn {
    int fd; /* -1: not in use */
    int rank; /* -1: not joined */
    pid_t pid; /* 0: on another machine, or in another PID namespace */
    int proven; /* over TCP: the authenticated rank; -1: not TCP, or not yet */
    struct hy_handshake *handshake; /* over TCP, until it is complete */
    int64_t since;
    bool waits, left;
    uint32_t process;
    uint64_t generation; /* 0: none yet */
    char bell[HY_BELL_MAX];
    char host[HY_HOST_ID], shared[SHARED_MAX];
    unsigned leader, neighbors; /* in a generation: the lowest rank of its machine; there: how many ranks */
    char **addresses;
    size_t address_count;
    uint32_t port;
    struct hy_buf rest;
};

struct server {
    int listener, tcp; /* tcp is -1 if all ranks are on this machine */
    struct hy_endpoint endpoint;
    unsigned size, room;
    struct conn *conns;
    struct pollfd *fds;
    uint64_t generation;
    int64_t asked_ms, report_ms; /* since when ranks wait, when missing ones are listed; 0: no rank waits */
    int64_t report_after;
    int64_t paused_ms; /* until then no connection is accepted: descriptors or memory were short */
    struct hy_buf message;
    char lost[700]; /* why no further generation is possible; "": one is */
};

static char *socket_path; /* of the server of this process; NULL: none */
static pid_t socket_owner;

/* ---- messages to ranks ------------------------------------------------------------------------ */

static int send_answer(struct conn *c, const Hy__TrialReportAnswer *answer)
{
    hy_cleanup_free uint8_t *bytes = hy_malloc(hy__trial_report_answer__get_packed_size(answer));

    return bytes ? hy_local_put(c->fd, bytes, hy__trial_report_answer__pack(answer, bytes)) : -ENOMEM;
}

static int send_word(struct conn *c, Hy__GroupWord *word, const char *error)
{
    Hy__TrialReportAnswer answer = HY__TRIAL_REPORT_ANSWER__INIT;

    answer.group = word;
    answer.error = (char *)error;
    return send_answer(c, &answer);
}

static void send_lost(struct conn *c, unsigned rank, const char *why)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;
    Hy__GroupLost lost = HY__GROUP_LOST__INIT;

    lost.generation = c->waits ? 0 : c->generation;
    lost.rank = rank;
    lost.why = (char *)why;
    word.body_case = HY__GROUP_WORD__BODY_LOST;
    word.lost = &lost;
    if (send_word(c, &word, "") < 0)
        hy_debug("cannot report a loss to a rank rank=%d", c->rank);
}

/* ---- losses ------------------------------------------------------------------------------------ */

static const struct conn closed_conn = {.fd = -1, .rank = -1, .proven = -1};

static void drop(struct conn *c)
{
    hy_close_at(&c->fd);
    hy_buf_done(&c->rest);
    for (size_t i = 0; i < c->address_count; i++)
        free(c->addresses[i]);
    free(c->addresses);
    free(c->handshake);
    *c = closed_conn;
}

/* The first loss counts. */
static void send_lost_to_all(struct server *s, unsigned rank, const char *why)
{
    if (!*s->lost)
        snprintf(s->lost, sizeof s->lost, "%s", why);
    for (unsigned i = 0; i < s->room; i++)
        if (s->conns[i].fd >= 0 && s->conns[i].rank >= 0 && s->conns[i].rank != (int)rank && !s->conns[i].left)
            send_lost(&s->conns[i], rank, why);
}

static void connection_lost(struct server *s, struct conn *c)
{
    int rank = c->rank;
    bool missed = rank >= 0 && !c->left && (c->waits || c->generation), remote = c->proven >= 0;
    char why[240], host[65];

    snprintf(host, sizeof host, "%.*s", (int)strcspn(c->host, "/"), c->host);
    drop(c);
    if (!missed)
        return;
    if (remote)
        snprintf(why, sizeof why,
                 "rank %d on %s has ended, or its machine cannot be reached, while the others were still training",
                 rank, host);
    else
        snprintf(why, sizeof why, "rank %d has ended while the others were still training", rank);
    send_lost_to_all(s, (unsigned)rank, why);
}

/* ---- rosters ---------------------------------------------------------------------------------------- */

static struct conn *conn_of(struct server *s, unsigned rank)
{
    for (unsigned i = 0; i < s->room; i++)
        if (s->conns[i].fd >= 0 && s->conns[i].rank == (int)rank)
            return &s->conns[i];
    return NULL;
}

/* Ranks of one machine share the memory that the lowest of them has offered. */
static void group_by_host(const struct server *s, struct conn **by_rank)
{
    for (unsigned r = 0; r < s->size; r++) {
        struct conn *c = by_rank[r];

        c->leader = s->tcp < 0 ? 0 : r;
        c->neighbors = 0;
        for (unsigned q = 0; q < r && c->leader == r; q++)
            if (by_rank[q]->leader == q && strcmp(by_rank[q]->host, c->host) == 0)
                c->leader = q;
        by_rank[c->leader]->neighbors++;
    }
}

static void send_rosters(struct server *s, struct conn **by_rank, Hy__Roster *roster)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;

    word.body_case = HY__GROUP_WORD__BODY_ROSTER;
    word.roster = roster;
    for (unsigned r = 0; r < s->size; r++) {
        struct conn *c = by_rank[r], *leader = by_rank[c->leader];

        roster->rank = r;
        roster->shared = leader->neighbors > 1 ? leader->shared : (char *)protobuf_c_empty_string;
        c->generation = s->generation;
        c->waits = false;
        if (send_word(c, &word, "") < 0)
            hy_debug("cannot send a roster to a rank rank=%u", r); /* its disconnect follows */
    }
}

/* Ranks on other machines derive the key, so that it is not transmitted. */
static int key_of(struct server *s, uint64_t generation, uint8_t key[HY_MESH_KEY_SIZE])
{
    if (s->tcp >= 0)
        hy_endpoint_mesh_key(&s->endpoint, generation, key);
    else if (getrandom(key, HY_MESH_KEY_SIZE, 0) != HY_MESH_KEY_SIZE)
        return -EIO;
    return 0;
}

static int begin_generation(struct server *s)
{
    hy_cleanup_free Hy__GroupMember *rows = hy_calloc(s->size, sizeof *rows);
    hy_cleanup_free Hy__GroupMember **members = hy_calloc(s->size, sizeof *members);
    hy_cleanup_free struct conn **by_rank = hy_calloc(s->size, sizeof(struct conn *));
    Hy__Roster roster = HY__ROSTER__INIT;
    uint8_t key[HY_MESH_KEY_SIZE];
    int rc = rows && members && by_rank ? key_of(s, s->generation + 1, key) : -ENOMEM;

    if (rc < 0)
        return rc;
    for (unsigned r = 0; r < s->size; r++)
        by_rank[r] = conn_of(s, r);
    group_by_host(s, by_rank);
    for (unsigned r = 0; r < s->size; r++) {
        const struct conn *c = by_rank[r];

        members[r] = &rows[r];
        hy__group_member__init(members[r]);
        rows[r].host = c->leader;
        rows[r].bell = (char *)c->bell;
        rows[r].addresses = c->addresses;
        rows[r].n_addresses = c->address_count;
        rows[r].port = c->port;
        rows[r].trial = r + 1;
    }
    roster.generation = ++s->generation;
    roster.members = members;
    roster.n_members = s->size;
    if (s->tcp < 0)
        roster.key = (ProtobufCBinaryData){sizeof key, key};
    send_rosters(s, by_rank, &roster);
    explicit_bzero(key, sizeof key);
    return 0;
}

static void form_group(struct server *s)
{
    char why[200];
    int rc;

    for (unsigned r = 0; r < s->size; r++) {
        const struct conn *c = conn_of(s, r);

        if (!c || !c->waits)
            return;
    }
    s->asked_ms = 0;
    rc = begin_generation(s);
    if (rc == 0)
        return;
    snprintf(why, sizeof why, "cannot form a group of %u ranks: %s", s->size, strerror(-rc));
    for (unsigned r = 0; r < s->size; r++)
        send_lost(conn_of(s, r), 0, why);
}

/* ---- messages from ranks ------------------------------------------------------------------------------------ */

static int rank_of(const struct server *s, const Hy__TrialReport *report)
{
    char text[16] = "";
    uint64_t rank;

    if (report->token.len == 0 || report->token.len >= sizeof text)
        return -EINVAL;
    memcpy(text, report->token.data, report->token.len);
    return hy_parse_u64(text, &rank) == 0 && rank < s->size ? (int)rank : -EINVAL;
}

/* A child process calls init while the rank itself is in the group. */
static bool is_joined_by_another(const struct conn *old, const struct conn *c, uint32_t process)
{
    if (!old || old == c || old->left)
        return false;
    return old->pid ? old->pid != c->pid && kill(old->pid, 0) == 0 : old->process != process;
}

static int keep_addresses(struct conn *c, const Hy__GroupJoin *join)
{
    c->addresses = hy_calloc(join->n_addresses ? join->n_addresses : 1, sizeof *c->addresses);
    for (size_t i = 0; c->addresses && i < join->n_addresses; i++) {
        c->addresses[i] = hy_strdup(join->addresses[i]);
        if (!c->addresses[i])
            return -ENOMEM;
        c->address_count++;
    }
    c->port = join->port;
    return c->addresses ? 0 : -ENOMEM;
}

static const char *join(struct server *s, struct conn *c, int rank, const Hy__GroupJoin *join)
{
    struct conn *old = conn_of(s, (unsigned)rank);
    char why[100];

    if (strlen(join->bell) >= sizeof c->bell || strlen(join->host) >= sizeof c->host || c->addresses ||
        strlen(join->shared) >= sizeof c->shared || join->port > UINT16_MAX ||
        join->n_addresses > HY_RANK_ADDRESSES_LIMIT)
        return "invalid request to join a group";
    if (is_joined_by_another(old, c, join->process))
        return "another process of this rank is in the group already: call init in one of them only";
    if (old && old != c) {
        bool given_up = old->generation == s->generation && old->generation && !old->left && !old->waits;

        drop(old);
        snprintf(why, sizeof why, "rank %d has joined again", rank);
        if (given_up)
            send_lost_to_all(s, (unsigned)rank, why);
    }
    if (keep_addresses(c, join) < 0)
        return "rank 0 is out of memory";
    c->rank = rank;
    c->waits = true;
    c->left = false;
    c->process = join->process;
    snprintf(c->bell, sizeof c->bell, "%s", join->bell);
    snprintf(c->host, sizeof c->host, "%s", join->host);
    snprintf(c->shared, sizeof c->shared, "%s", join->shared);
    if (!s->asked_ms) {
        s->asked_ms = hy_clock_ms();
        s->report_after = FIRST_REPORT_MS;
        s->report_ms = s->asked_ms + FIRST_REPORT_MS;
    }
    return "";
}

static void on_word(struct server *s, struct conn *c, int rank, const Hy__GroupWord *word)
{
    const char *refused = "";
    char why[700];

    if (word->body_case == HY__GROUP_WORD__BODY_JOIN)
        refused = join(s, c, rank, word->join);
    else if (c->rank != rank)
        refused = "the rank has not joined";
    else if (word->body_case == HY__GROUP_WORD__BODY_LEAVE)
        c->left = true;
    else if (word->body_case == HY__GROUP_WORD__BODY_FAILED) {
        snprintf(why, sizeof why, "rank %d cannot continue: %.500s", rank, word->failed);
        send_lost_to_all(s, (unsigned)rank, why);
    } else if (word->body_case != HY__GROUP_WORD__BODY_NOTE) /* printed by the rank itself */
        refused = "unexpected message: a rank can join, leave or send a note";
    if (send_word(c, NULL, refused) < 0) {
        connection_lost(s, c);
        return;
    }
    if (word->body_case != HY__GROUP_WORD__BODY_JOIN || *refused)
        return;
    if (*s->lost)
        send_lost(c, (unsigned)rank, s->lost);
    else
        form_group(s);
}

/* False: the connection is closed. */
static bool take_message(struct server *s, struct conn *c)
{
    Hy__TrialReport *report = hy__trial_report__unpack(NULL, s->message.len, hy_buf_bytes(&s->message));
    int rank = report ? rank_of(s, report) : -EINVAL;

    if (rank >= 0 && report->group && (c->proven < 0 || c->proven == rank))
        on_word(s, c, rank, report->group);
    else
        connection_lost(s, c);
    hy__trial_report__free_unpacked(report, NULL);
    return c->fd >= 0;
}

static int send_handshake(struct conn *c)
{
    size_t n = c->handshake->out_size;
    ssize_t sent = n ? send(c->fd, c->handshake->out, n, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;

    c->handshake->out_size = 0;
    return sent == (ssize_t)n ? 0 : -EPIPE;
}

/* For a connection from another machine, until both ends are authenticated. False: the connection is closed. */
static bool run_handshake(struct conn *c)
{
    uint8_t bytes[HY_CHALLENGE_SIZE];
    int rc = 0;

    while (rc == 0) {
        ssize_t n = recv(c->fd, bytes, hy_handshake_needed(c->handshake), MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return true;
        rc = n > 0 ? hy_handshake_take(c->handshake, bytes, (size_t)n) : -ECONNRESET;
        if (rc >= 0 && send_handshake(c) < 0)
            rc = -EPIPE;
    }
    if (rc < 0) {
        drop(c);
        return false;
    }
    c->proven = (int)c->handshake->peer;
    free(hy_take(c->handshake));
    return true;
}

static void read_conn(struct server *s, struct conn *c)
{
    int rc = 0;

    if (c->handshake && (!run_handshake(c) || c->handshake))
        return;
    while (c->fd >= 0 && (rc = hy_local_get(c->fd, &c->rest, &s->message, 0)) > 0)
        if (!take_message(s, c))
            return;
    if (c->fd >= 0 && rc != -EAGAIN && rc != -EINTR)
        connection_lost(s, c);
}

/* ---- connections -------------------------------------------------------------------------------------------- */

static struct conn *free_conn(struct server *s)
{
    for (unsigned i = 0; i < s->room; i++)
        if (s->conns[i].fd < 0)
            return &s->conns[i];
    return NULL;
}

/* Takes `fd` in any case. NULL: no room. */
static struct conn *add_conn(struct server *s, int fd)
{
    const struct timeval patience = {.tv_sec = SEND_S};
    struct conn *c = free_conn(s);

    if (!c || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) < 0) {
        close(fd);
        return NULL;
    }
    *c = closed_conn;
    c->fd = fd;
    c->since = hy_clock_ms();
    hy_buf_init(&c->rest, MESSAGE_MAX);
    return c;
}

/* The listener stays readable when accept fails: without a pause this thread would spin. */
static void accept_failed(struct server *s, int code)
{
    if (code != EAGAIN && code != EINTR && code != ECONNABORTED)
        s->paused_ms = hy_clock_ms() + SHORT_PAUSE_MS;
}

static void accept_local(struct server *s)
{
    hy_cleanup_close int fd = HY_SYS(accept4(s->listener, NULL, NULL, SOCK_CLOEXEC));
    struct ucred peer = {0};
    socklen_t n = sizeof peer;
    struct conn *c;

    if (fd < 0) {
        accept_failed(s, errno);
        return;
    }
    if (HY_SYS(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n)) < 0 || peer.uid != geteuid())
        return;
    c = add_conn(s, hy_take_fd(fd));
    if (c)
        c->pid = peer.pid;
}

/* Unauthenticated connections must not keep ranks out: the oldest of too many is dropped. */
static void make_room(struct server *s)
{
    struct conn *oldest = NULL;
    unsigned unproven = 0;

    for (unsigned i = 0; i < s->room; i++) {
        struct conn *c = &s->conns[i];

        if (c->fd < 0 || !c->handshake)
            continue;
        unproven++;
        if (!oldest || c->since < oldest->since)
            oldest = c;
    }
    if (unproven >= UNPROVEN_MAX)
        drop(oldest);
}

static void accept_remote(struct server *s)
{
    hy_cleanup_close int fd = HY_SYS(accept4(s->tcp, NULL, NULL, SOCK_CLOEXEC));
    uint8_t nonce[HY_HANDSHAKE_NONCE];
    struct conn *c;

    if (fd < 0) {
        accept_failed(s, errno);
        return;
    }
    if (hy_mesh_socket_options(fd) < 0 || getrandom(nonce, sizeof nonce, 0) != sizeof nonce)
        return;
    make_room(s);
    c = add_conn(s, hy_take_fd(fd));
    if (!c)
        return;
    c->handshake = hy_malloc(sizeof *c->handshake);
    if (c->handshake)
        hy_handshake_accept(c->handshake, s->endpoint.key, 0, s->size, 1, nonce);
    else
        drop(c);
}

static void drop_unproven(struct server *s, int64_t now)
{
    for (unsigned i = 0; i < s->room; i++)
        if (s->conns[i].fd >= 0 && s->conns[i].handshake && now - s->conns[i].since > PROOF_MS)
            drop(&s->conns[i]);
}

/* A child process of a dead rank may hold its connection open. */
static void check_alive(struct server *s)
{
    for (unsigned i = 0; i < s->room; i++)
        if (s->conns[i].fd >= 0 && s->conns[i].pid && kill(s->conns[i].pid, 0) < 0 && errno == ESRCH)
            connection_lost(s, &s->conns[i]);
}

static void report_missing(struct server *s, int64_t now)
{
    char list[160] = "";
    unsigned missing = 0;
    size_t at = 0;

    if (!s->asked_ms || now < s->report_ms || *s->lost)
        return;
    for (unsigned r = 0; r < s->size; r++) {
        const struct conn *c = conn_of(s, r);

        if (c && c->waits)
            continue;
        if (missing++ < 8)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%u", at ? ", " : "", r);
    }
    fprintf(stderr, "[hopyard] waiting for %u of %u ranks, which have not called init for %lld s: %s%s\n", missing,
            s->size, (long long)(now - s->asked_ms) / 1000, list, missing > 8 ? ", …" : "");
    s->report_after *= 2;
    s->report_ms = now + s->report_after;
}

static void serve_once(struct server *s)
{
    int64_t now = hy_clock_ms();
    bool paused = now < s->paused_ms;

    for (unsigned i = 0; i < s->room; i++)
        s->fds[i] = (struct pollfd){.fd = s->conns[i].fd, .events = POLLIN};
    s->fds[s->room] = (struct pollfd){.fd = paused ? -1 : s->listener, .events = POLLIN};
    s->fds[s->room + 1] = (struct pollfd){.fd = paused ? -1 : s->tcp, .events = POLLIN};
    if (poll(s->fds, s->room + 2, paused ? SHORT_PAUSE_MS : CHECK_MS) < 0)
        return;
    for (unsigned i = 0; i < s->room; i++)
        if (s->fds[i].fd >= 0 && s->fds[i].revents && s->conns[i].fd == s->fds[i].fd)
            read_conn(s, &s->conns[i]);
    if (s->fds[s->room].revents)
        accept_local(s);
    if (s->fds[s->room + 1].revents)
        accept_remote(s);
    now = hy_clock_ms();
    drop_unproven(s, now);
    check_alive(s);
    report_missing(s, now);
}

static void *serve(void *arg)
{
    struct server *s = arg;

    for (;;)
        serve_once(s);
    return NULL;
}

/* ---- start ------------------------------------------------------------------------------------------------- */

static void remove_socket(void)
{
    if (socket_path && getpid() == socket_owner)
        (void)unlink(socket_path); /* a leftover is removed by the next server */
}

/* Renamed to its path when it listens, so that ranks never find a socket that is not served. */
static int listen_at(const char *path, unsigned size, struct hy_err *err)
{
    hy_cleanup_close int fd = HY_SYS(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    hy_cleanup_free char *temporary = hy_asprintf("%s.%d", path, (int)getpid());
    struct sockaddr_un where;
    int rc = temporary ? hy_local_address(temporary, &where, err) : hy_err_oom(err);

    if (rc < 0)
        return rc;
    (void)unlink(temporary); /* of an earlier process with this process ID */
    if (fd < 0 || HY_SYS(bind(fd, (struct sockaddr *)&where, sizeof where)) < 0 ||
        HY_SYS(listen(fd, (int)size + UNPROVEN_MAX)) < 0 || HY_SYS(rename(temporary, path)) < 0)
        return hy_err_sys(err, -errno, "rank 0 cannot listen for the others at '%s'", path);
    return hy_take_fd(fd);
}

static void server_free(struct server *s)
{
    if (!s)
        return;
    hy_close_at(&s->listener);
    hy_close_at(&s->tcp);
    hy_buf_done(&s->message);
    free(s->conns);
    free(s->fds);
    free(s);
}

static struct server *server_new(unsigned size)
{
    struct server *s = hy_calloc(1, sizeof *s);

    if (!s)
        return NULL;
    *s = (struct server){.listener = -1, .tcp = -1, .size = size, .room = 2 * size + 2 * UNPROVEN_MAX};
    hy_buf_init(&s->message, MESSAGE_MAX);
    s->conns = hy_calloc(s->room, sizeof *s->conns);
    s->fds = hy_calloc(s->room + 2, sizeof *s->fds);
    for (unsigned i = 0; s->conns && i < s->room; i++)
        s->conns[i] = closed_conn;
    if (s->conns && s->fds)
        return s;
    server_free(s);
    return NULL;
}

int hy_rank_server_start(const char *path, unsigned size, struct hy_endpoint *ret_endpoint, struct hy_err *err)
{
    struct server *s;
    int rc;

    if (socket_path && getpid() == socket_owner)
        return 0;
    if (hy_runtime_sweep("job-", ".sock") < 0)
        hy_debug("cannot remove the sockets of earlier starts");
    s = server_new(size);
    socket_path = hy_strdup(path);
    if (!s || !socket_path) {
        server_free(s);
        free(hy_take(socket_path));
        return hy_err_oom(err);
    }
    rc = s->listener = listen_at(path, size, err);
    if (rc >= 0 && ret_endpoint)
        rc = s->tcp = hy_endpoint_listen(&s->endpoint, err);
    if (rc >= 0 && ret_endpoint)
        *ret_endpoint = s->endpoint;
    if (rc >= 0) {
        rc = hy_thread_start(NULL, serve, s);
        if (rc < 0)
            hy_err_sys(err, rc, "cannot start the thread of the rendezvous server");
    }
    if (rc < 0) {
        server_free(s);
        free(hy_take(socket_path));
        return rc;
    }
    socket_owner = getpid();
    atexit(remove_socket);
    return 0;
}
