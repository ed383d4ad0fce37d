/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/wire.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

#define NAME_FORMAT "standby-%d-%016llx-%d.sock" /* the client, the key, the agent */
#define MESSAGE_MAX 4096
#define FDS 2
#define END 'e' /* a message of this byte only: a request to exit */

uint64_t hy_standby_key(const char *client, const char *warm_key)
{
    hy_cleanup_free char *both = hy_asprintf("%s %s", client, warm_key);

    return both ? hy_hash(both, strlen(both)) : 0;
}

/* ---- finding agents ---- */

static bool parse_name(const char *name, struct hy_standby *ret)
{
    unsigned long long key;
    char canonical[128];
    int client, agent;

    if (sscanf(name, "standby-%d-%llx-%d.sock", &client, &key, &agent) != 3 || client < 1 || agent < 1)
        return false;
    *ret = (struct hy_standby){.client = client, .agent = agent, .key = key};
    snprintf(canonical, sizeof canonical, NAME_FORMAT, client, key, agent);
    return strcmp(canonical, name) == 0;
}

int hy_standby_each(void (*each)(void *arg, const struct hy_standby *s), void *arg)
{
    hy_cleanup_free char *runtime_dir = hy_runtime_dir(NULL);
    DIR *dir = runtime_dir ? opendir(runtime_dir) : NULL;
    struct dirent *entry;
    struct hy_standby s;

    if (!dir)
        return runtime_dir ? -errno : -ENOENT;
    while ((entry = readdir(dir))) {
        hy_cleanup_free char *path = parse_name(entry->d_name, &s) ? hy_path_join(runtime_dir, entry->d_name) : NULL;

        if (!path || hy_socket_is_dead(path))
            continue;
        s.path = path;
        each(arg, &s);
    }
    closedir(dir);
    return 0;
}

static int open_socket(const char *path, struct sockaddr_un *address)
{
    int fd;

    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address->sun_path)
        return -ENAMETOOLONG;
    strcpy(address->sun_path, path);
    fd = HY_SYS(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    return fd < 0 ? -errno : fd;
}

/* ---- the agent ---- */

int hy_standby_open(const char *client, const char *warm_key, char **ret_path)
{
    hy_cleanup_free char *dir = hy_runtime_dir(NULL);
    hy_cleanup_free char *path = NULL;
    hy_cleanup_close int fd = -1;
    struct sockaddr_un address;
    int on = 1;

    if (dir)
        path = hy_asprintf("%s/" NAME_FORMAT, dir, atoi(client), (unsigned long long)hy_standby_key(client, warm_key),
                           (int)getpid());
    if (!path)
        return dir ? -ENOMEM : -ENOENT;
    fd = open_socket(path, &address);
    if (fd < 0)
        return fd;
    if (unlink(path) < 0 && errno != ENOENT) /* of an earlier process with this process ID */
        return -errno;
    if (HY_SYS(setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on)) < 0 ||
        HY_SYS(bind(fd, (struct sockaddr *)&address, sizeof address)) < 0)
        return -errno;
    *ret_path = hy_take(path);
    return hy_take_fd(fd);
}

/* The ancillary data of a message: the user ID of the sender, and its descriptors; more than FDS are closed. */
struct ancillary {
    uid_t user;
    int fds[FDS];
    size_t count;
};

static void take_fds(struct ancillary *b, const struct cmsghdr *c)
{
    size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

    for (size_t i = 0; i < n; i++) {
        int fd;

        memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
        if (b->count < FDS)
            b->fds[b->count++] = fd;
        else
            close(fd);
    }
}

static void take_ancillary(struct ancillary *b, struct msghdr *m)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_CREDENTIALS)
            memcpy(&b->user, CMSG_DATA(c) + offsetof(struct ucred, uid), sizeof b->user);
        else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
            take_fds(b, c);
    }
}

static bool is_valid(const Hy__Handover *h)
{
    return h && h->key.len == HY_KEY_SIZE && h->port && h->port <= UINT16_MAX && h->slots && *h->identity && *h->name;
}

/* 1, 0 or -EPROTO, as hy_standby_receive. */
static int parse(const uint8_t *bytes, size_t n, const struct ancillary *b, Hy__Handover **ret)
{
    if (b->user != geteuid())
        return -EPERM;
    if (n == 1 && bytes[0] == END)
        return 0;
    *ret = hy__handover__unpack(NULL, n, bytes);
    if (is_valid(*ret) && b->count == FDS)
        return 1;
    if (*ret)
        hy__handover__free_unpacked(*ret, NULL);
    return -EPROTO;
}

int hy_standby_receive(int socket, Hy__Handover **ret, int fds[2])
{
    uint8_t bytes[MESSAGE_MAX];
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(FDS * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
    } control = {0};
    struct iovec io = {.iov_base = bytes, .iov_len = sizeof bytes};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct ancillary b = {.user = (uid_t)-1};
    ssize_t n = HY_SYS(recvmsg(socket, &m, MSG_CMSG_CLOEXEC));
    int rc;

    if (n < 0)
        return -errno;
    take_ancillary(&b, &m);
    rc = m.msg_flags & (MSG_TRUNC | MSG_CTRUNC) ? -EPROTO : parse(bytes, (size_t)n, &b, ret);
    explicit_bzero(bytes, sizeof bytes);
    for (size_t i = 0; i < b.count; i++)
        if (rc == 1)
            fds[i] = b.fds[i];
        else
            close(b.fds[i]);
    return rc;
}

/* ---- the next driver ---- */

static int send_to(const char *path, const uint8_t *bytes, size_t n, const int *fds, size_t count)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(FDS * sizeof(int))];
    } control = {0};
    struct iovec io = {.iov_base = (uint8_t *)bytes, .iov_len = n};
    struct sockaddr_un address;
    struct msghdr m = {.msg_name = &address, .msg_namelen = sizeof address, .msg_iov = &io, .msg_iovlen = 1};
    hy_cleanup_close int fd = open_socket(path, &address);

    if (fd < 0)
        return fd;
    if (count) {
        m.msg_control = &control;
        m.msg_controllen = CMSG_SPACE(count * sizeof(int));
        control.head = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(count * sizeof(int))};
        memcpy(CMSG_DATA(&control.head), fds, count * sizeof(int));
    }
    return HY_SYS(sendmsg(fd, &m, MSG_NOSIGNAL)) < 0 ? -errno : 0;
}

int hy_standby_end(const struct hy_standby *s)
{
    return send_to(s->path, (const uint8_t[]){END}, 1, NULL, 0);
}

struct take_args {
    const Hy__Handover *order;
    const int *fds;
    pid_t client;
    uint64_t key;
    int pidfd; /* -Exxx: not yet */
};

/* Opens the pidfd before it sends the message, so that the process ID cannot have been reused when it arrives. */
static int hand_over(const struct take_args *t, const struct hy_standby *s)
{
    hy_cleanup_close int pidfd = (int)HY_SYS(syscall(SYS_pidfd_open, s->agent, 0));
    uint8_t bytes[MESSAGE_MAX];
    int rc;

    if (pidfd < 0)
        return -errno;
    if (hy__handover__get_packed_size(t->order) > sizeof bytes)
        return -EMSGSIZE;
    rc = send_to(s->path, bytes, hy__handover__pack(t->order, bytes), t->fds, FDS);
    explicit_bzero(bytes, sizeof bytes);
    return rc < 0 ? rc : hy_take_fd(pidfd);
}

static void take_or_end(void *arg, const struct hy_standby *s)
{
    struct take_args *t = arg;

    if (s->client != t->client)
        return;
    if (t->pidfd < 0 && s->key == t->key)
        t->pidfd = hand_over(t, s);
    else
        (void)hy_standby_end(s); /* on failure it exits later, by its timeout */
}

int hy_standby_take(const char *client, const char *warm_key, const Hy__Handover *order, const int fds[2])
{
    struct take_args t = {
        .order = order, .fds = fds, .client = atoi(client), .key = hy_standby_key(client, warm_key), .pidfd = -ENOENT};
    int rc = hy_standby_each(take_or_end, &t);

    return rc < 0 && t.pidfd < 0 ? rc : t.pidfd;
}
