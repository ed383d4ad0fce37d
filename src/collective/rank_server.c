/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each rank has one connection for each generation, as it has to an agent, and
 * says the same words on it. When all have joined, each gets a roster with the
 * memory that they share. A rank that ends without a leave is lost: the others
 * receive that, and so does everyone who joins later, since nothing here starts
 * a rank again.
 *
 * One thread owns all of it. It ends with its process, and the sockets with it:
 * then the other ranks see that rank 0 is gone.
 */
#include "collective/rank_server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
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
#include "collective/comm.h"
#include "wire/local.h"

#define LOOK_MS 500         /* so often it looks whether ranks are alive, and whether some are missing */
#define FIRST_WORD_MS 5000  /* after this time it names the ranks that have not come, then after twice the time */
#define SEND_S 5            /* a rank that does not read for so long is lost */
#define STRANGERS 64        /* connections that have not said which rank they are */
#define MESSAGE_MAX (256u * 1024)

struct conn {
    int fd; /* -1: not in use */
    int rank; /* -1: it has not said */
    pid_t pid;
    bool waits, left;
    uint64_t generation; /* 0: none yet */
    char bell[HY_BELL_MAX];
    struct hy_buf rest;
};

struct server {
    int listener, shared;
    unsigned size, room;
    struct conn *conns;
    struct pollfd *fds;
    uint64_t generation;
    int64_t asked_ms, word_ms; /* since when ranks wait, and when the missing are named; 0: nobody waits */
    int64_t word_after;
    struct hy_buf message;
    char lost[700]; /* why no generation can follow; "": one can */
};

static char *socket_path; /* of this process's server; NULL: it has none */
static pid_t socket_owner;

/* ---- words to ranks ------------------------------------------------------------------------ */

static int send_answer(struct conn *c, const Hy__TrialReportAnswer *answer)
{
    hy_cleanup_free uint8_t *bytes = hy_malloc(hy__trial_report_answer__get_packed_size(answer));

    return bytes ? hy_local_put(c->fd, bytes, hy__trial_report_answer__pack(answer, bytes)) : -ENOMEM;
}

static int say(struct conn *c, Hy__GroupWord *word, const char *error)
{
    Hy__TrialReportAnswer answer = HY__TRIAL_REPORT_ANSWER__INIT;

    answer.group = word;
    answer.error = (char *)error;
    return send_answer(c, &answer);
}

static void tell_lost(struct conn *c, unsigned rank, const char *why)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;
    Hy__GroupLost lost = HY__GROUP_LOST__INIT;

    lost.generation = c->waits ? 0 : c->generation;
    lost.rank = rank;
    lost.why = (char *)why;
    word.body_case = HY__GROUP_WORD__BODY_LOST;
    word.lost = &lost;
    if (say(c, &word, "") < 0)
        hy_debug("a rank cannot be told of a loss rank=%d", c->rank);
}

/* ---- losses ------------------------------------------------------------------------------------ */

static void drop(struct conn *c)
{
    hy_close_at(&c->fd);
    hy_buf_done(&c->rest);
    *c = (struct conn){.fd = -1, .rank = -1};
}

/* The first one counts. */
static void tell_all(struct server *s, unsigned rank, const char *why)
{
    if (!*s->lost)
        snprintf(s->lost, sizeof s->lost, "%s", why);
    for (unsigned i = 0; i < s->room; i++)
        if (s->conns[i].fd >= 0 && s->conns[i].rank >= 0 && s->conns[i].rank != (int)rank && !s->conns[i].left)
            tell_lost(&s->conns[i], rank, why);
}

static void gone(struct server *s, struct conn *c)
{
    int rank = c->rank;
    bool missed = rank >= 0 && !c->left && (c->waits || c->generation);
    char why[100];

    drop(c);
    if (!missed)
        return;
    snprintf(why, sizeof why, "rank %d has ended while the others were still training", rank);
    tell_all(s, (unsigned)rank, why);
}

/* ---- rosters ---------------------------------------------------------------------------------------- */

static struct conn *conn_of(struct server *s, unsigned rank)
{
    for (unsigned i = 0; i < s->room; i++)
        if (s->conns[i].fd >= 0 && s->conns[i].rank == (int)rank)
            return &s->conns[i];
    return NULL;
}

/* All of it zero, and as large as it is for good: nobody can make others fault. */
static int share(struct server *s)
{
    hy_close_at(&s->shared);
    s->shared = HY_SYS(memfd_create("hopyard-group", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (s->shared < 0 || HY_SYS(ftruncate(s->shared, (off_t)hy_shm_size(s->size))) < 0 ||
        HY_SYS(fcntl(s->shared, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) < 0)
        return -errno;
    return 0;
}

static void send_rosters(struct server *s, Hy__Roster *roster)
{
    Hy__GroupWord word = HY__GROUP_WORD__INIT;

    word.body_case = HY__GROUP_WORD__BODY_ROSTER;
    word.roster = roster;
    for (unsigned r = 0; r < s->size; r++) {
        struct conn *c = conn_of(s, r);

        roster->rank = r;
        c->generation = s->generation;
        c->waits = false;
        if (say(c, &word, "") < 0)
            hy_debug("a rank cannot be sent its roster rank=%u", r); /* its end follows */
    }
}

static int begin_generation(struct server *s)
{
    hy_cleanup_free Hy__GroupMember *rows = hy_calloc(s->size, sizeof *rows);
    hy_cleanup_free Hy__GroupMember **members = hy_calloc(s->size, sizeof *members);
    Hy__Roster roster = HY__ROSTER__INIT;
    uint8_t key[HY_MESH_KEY_SIZE];
    char path[64];
    int rc = rows && members ? share(s) : -ENOMEM;

    if (rc == 0 && getrandom(key, sizeof key, 0) != sizeof key)
        rc = -EIO;
    if (rc < 0)
        return rc;
    for (unsigned r = 0; r < s->size; r++) {
        members[r] = &rows[r];
        hy__group_member__init(members[r]);
        rows[r].bell = conn_of(s, r)->bell;
        rows[r].trial = r + 1;
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), s->shared);
    roster.generation = ++s->generation;
    roster.members = members;
    roster.n_members = s->size;
    roster.key = (ProtobufCBinaryData){sizeof key, key};
    roster.shared = path;
    send_rosters(s, &roster);
    explicit_bzero(key, sizeof key);
    return 0;
}

static void form(struct server *s)
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
    snprintf(why, sizeof why, "cannot make the memory that %u ranks share: %s", s->size, strerror(-rc));
    for (unsigned r = 0; r < s->size; r++)
        tell_lost(conn_of(s, r), 0, why);
}

/* ---- words from ranks ------------------------------------------------------------------------------------ */

static int rank_of(const struct server *s, const Hy__TrialReport *report)
{
    char text[16] = "";
    uint64_t rank;

    if (report->token.len >= sizeof text)
        return -EINVAL;
    memcpy(text, report->token.data, report->token.len);
    return hy_parse_u64(text, &rank) == 0 && rank < s->size ? (int)rank : -EINVAL;
}

/* A child that calls init, while the rank itself is in the group. */
static bool is_taken(const struct conn *old, const struct conn *c)
{
    return old && old != c && !old->left && old->pid != c->pid && kill(old->pid, 0) == 0;
}

static const char *join(struct server *s, struct conn *c, int rank, const Hy__GroupJoin *join)
{
    struct conn *old = conn_of(s, (unsigned)rank);
    char why[100];

    if (strlen(join->bell) >= sizeof c->bell)
        return "this is no way to join a group";
    if (is_taken(old, c))
        return "another process of this rank is in the group already: call init in one of them only";
    if (old && old != c) {
        bool given_up = old->generation == s->generation && old->generation && !old->left && !old->waits;

        drop(old);
        snprintf(why, sizeof why, "rank %d has joined anew", rank);
        if (given_up)
            tell_all(s, (unsigned)rank, why);
    }
    c->rank = rank;
    c->waits = true;
    c->left = false;
    snprintf(c->bell, sizeof c->bell, "%s", join->bell);
    if (!s->asked_ms) {
        s->asked_ms = hy_clock_ms();
        s->word_after = FIRST_WORD_MS;
        s->word_ms = s->asked_ms + FIRST_WORD_MS;
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
        refused = "join first";
    else if (word->body_case == HY__GROUP_WORD__BODY_LEAVE)
        c->left = true;
    else if (word->body_case == HY__GROUP_WORD__BODY_FAILED) {
        snprintf(why, sizeof why, "rank %d cannot go on: %.500s", rank, word->failed);
        tell_all(s, (unsigned)rank, why);
    } else if (word->body_case != HY__GROUP_WORD__BODY_NOTE) /* the rank has printed it */
        refused = "a rank may join, leave, or note something";
    if (say(c, NULL, refused) < 0) {
        gone(s, c);
        return;
    }
    if (word->body_case != HY__GROUP_WORD__BODY_JOIN || *refused)
        return;
    if (*s->lost)
        tell_lost(c, (unsigned)rank, s->lost);
    else
        form(s);
}

/* False: the connection is over. */
static bool take_message(struct server *s, struct conn *c)
{
    Hy__TrialReport *report = hy__trial_report__unpack(NULL, s->message.len, hy_buf_bytes(&s->message));
    int rank = report ? rank_of(s, report) : -EINVAL;

    if (rank >= 0 && report->group)
        on_word(s, c, rank, report->group);
    else
        gone(s, c);
    hy__trial_report__free_unpacked(report, NULL);
    return c->fd >= 0;
}

static void read_conn(struct server *s, struct conn *c)
{
    int rc;

    while (c->fd >= 0 && (rc = hy_local_get(c->fd, &c->rest, &s->message, 0)) > 0)
        if (!take_message(s, c))
            return;
    if (c->fd >= 0 && rc != -EAGAIN && rc != -EINTR)
        gone(s, c);
}

/* ---- connections -------------------------------------------------------------------------------------------- */

static void take_conn(struct server *s)
{
    hy_cleanup_close int fd = HY_SYS(accept4(s->listener, NULL, NULL, SOCK_CLOEXEC));
    const struct timeval patience = {.tv_sec = SEND_S};
    struct ucred who = {0};
    socklen_t n = sizeof who;

    if (fd < 0)
        return;
    if (HY_SYS(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n)) < 0 || who.uid != geteuid() ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) < 0)
        return;
    for (unsigned i = 0; i < s->room; i++)
        if (s->conns[i].fd < 0) {
            s->conns[i] = (struct conn){.fd = hy_take_fd(fd), .rank = -1, .pid = who.pid};
            hy_buf_init(&s->conns[i].rest, MESSAGE_MAX);
            return;
        }
}

/* A child of a rank may hold its connection open. */
static void look_for_the_dead(struct server *s)
{
    for (unsigned i = 0; i < s->room; i++)
        if (s->conns[i].fd >= 0 && kill(s->conns[i].pid, 0) < 0 && errno == ESRCH)
            gone(s, &s->conns[i]);
}

static void name_the_missing(struct server *s, int64_t now)
{
    char list[160] = "";
    unsigned missing = 0;
    size_t at = 0;

    if (!s->asked_ms || now < s->word_ms || *s->lost)
        return;
    for (unsigned r = 0; r < s->size; r++) {
        const struct conn *c = conn_of(s, r);

        if (c && c->waits)
            continue;
        if (missing++ < 8)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%u", at ? ", " : "", r);
    }
    fprintf(stderr, "[hopyard] waiting for %u of %u ranks, which have not called init for %lld s: %s%s\n", missing, s->size,
            (long long)(now - s->asked_ms) / 1000, list, missing > 8 ? ", …" : "");
    s->word_after *= 2;
    s->word_ms = now + s->word_after;
}

static void turn(struct server *s)
{
    int64_t now;

    s->fds[0] = (struct pollfd){.fd = s->listener, .events = POLLIN};
    for (unsigned i = 0; i < s->room; i++)
        s->fds[i + 1] = (struct pollfd){.fd = s->conns[i].fd, .events = POLLIN};
    if (poll(s->fds, s->room + 1, LOOK_MS) < 0)
        return;
    for (unsigned i = 0; i < s->room; i++)
        if (s->fds[i + 1].fd >= 0 && s->fds[i + 1].revents)
            read_conn(s, &s->conns[i]);
    if (s->fds[0].revents)
        take_conn(s);
    now = hy_clock_ms();
    look_for_the_dead(s);
    name_the_missing(s, now);
}

static void *serve(void *arg)
{
    struct server *s = arg;

    for (;;)
        turn(s);
    return NULL;
}

/* ---- start ------------------------------------------------------------------------------------------------- */

static void remove_socket(void)
{
    if (socket_path && getpid() == socket_owner)
        (void)unlink(socket_path); /* one that stays is removed by the next server */
}

/* Under its name only when it listens, so that ranks which try meanwhile do not find a socket that nobody serves. */
static int listen_at(const char *path, unsigned size, struct hy_err *err)
{
    hy_cleanup_close int fd = HY_SYS(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    hy_cleanup_free char *temporary = hy_asprintf("%s.%d", path, (int)getpid());
    struct sockaddr_un where;
    int rc = temporary ? hy_local_address(temporary, &where, err) : hy_err_set(err, -ENOMEM, "out of memory");

    if (rc < 0)
        return rc;
    (void)unlink(temporary); /* of a process that had our number */
    if (fd < 0 || HY_SYS(bind(fd, (struct sockaddr *)&where, sizeof where)) < 0 ||
        HY_SYS(listen(fd, (int)size + STRANGERS)) < 0 || HY_SYS(rename(temporary, path)) < 0)
        return hy_err_sys(err, -errno, "rank 0 cannot listen for the others at '%s'", path);
    return hy_take_fd(fd);
}

static void server_free(struct server *s)
{
    if (!s)
        return;
    hy_close_at(&s->listener);
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
    *s = (struct server){.listener = -1, .shared = -1, .size = size, .room = 2 * size + STRANGERS};
    hy_buf_init(&s->message, MESSAGE_MAX);
    s->conns = hy_calloc(s->room, sizeof *s->conns);
    s->fds = hy_calloc(s->room + 1, sizeof *s->fds);
    for (unsigned i = 0; s->conns && i < s->room; i++)
        s->conns[i] = (struct conn){.fd = -1, .rank = -1};
    if (s->conns && s->fds)
        return s;
    server_free(s);
    return NULL;
}

/* Signals are for the program's own threads. */
static int start_thread(struct server *s)
{
    sigset_t all, before;
    pthread_t thread;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, NULL, serve, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0)
        pthread_detach(thread);
    return -rc;
}

int hy_rank_server_start(const char *path, unsigned size, struct hy_err *err)
{
    struct server *s;
    int rc;

    if (socket_path && getpid() == socket_owner)
        return 0;
    if (hy_runtime_sweep("job-", ".sock") < 0)
        hy_debug("what earlier starts have left cannot be removed");
    s = server_new(size);
    socket_path = hy_strdup(path);
    if (!s || !socket_path) {
        server_free(s);
        free(hy_take(socket_path));
        return hy_err_set(err, -ENOMEM, "out of memory");
    }
    rc = s->listener = listen_at(path, size, err);
    if (rc >= 0) {
        rc = start_thread(s);
        if (rc < 0)
            hy_err_sys(err, rc, "cannot start the thread by which the ranks find each other");
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
