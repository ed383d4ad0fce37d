/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/port_reservation.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"

#define LISTENING 0x0a /* the state in /proc/net/tcp */
#define ANSWER_MS 50   /* loopback answers at once */

/* ---- the owner of a port --------------------------------------------------------- */

/* A listener on all addresses, including IPv6, also accepts on 127.0.0.1. */
static bool covers_loopback(const char *address)
{
    static const char *const addresses[] = {"0100007F", "00000000", "00000000000000000000000000000000",
                                            "0000000000000000FFFF00000100007F"};

    for (size_t i = 0; i < HY_COUNT(addresses); i++)
        if (strcmp(address, addresses[i]) == 0)
            return true;
    return false;
}

/* The inode of the listening socket; 0: not in this table. */
static unsigned long listening_inode(const char *table, uint16_t port)
{
    FILE *f = fopen(table, "re");
    unsigned long found = 0;
    char line[512];

    if (!f)
        return 0;
    while (!found && fgets(line, sizeof line, f)) {
        unsigned local, state;
        unsigned long inode;
        char address[33];

        if (sscanf(line, " %*u: %32[0-9A-F]:%4x %*s %2x %*s %*s %*s %*u %*u %lu", address, &local, &state, &inode) ==
                4 &&
            local == port && state == LISTENING && covers_loopback(address))
            found = inode;
    }
    fclose(f);
    return found;
}

static bool has_socket(pid_t pid, unsigned long inode)
{
    char path[64], wanted[64], link[64];
    struct dirent *e;
    bool found = false;
    DIR *fds;

    snprintf(path, sizeof path, "/proc/%ld/fd", (long)pid);
    snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
    fds = opendir(path);
    while (fds && !found && (e = readdir(fds))) {
        ssize_t n = readlinkat(dirfd(fds), e->d_name, link, sizeof link - 1);

        link[n > 0 ? n : 0] = '\0';
        found = strcmp(link, wanted) == 0;
    }
    if (fds)
        closedir(fds);
    return found;
}

static pid_t process_with(unsigned long inode)
{
    DIR *all = opendir("/proc");
    struct dirent *e;
    pid_t found = 0;

    while (all && !found && (e = readdir(all))) {
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);

        if (pid > 0 && has_socket(pid, inode))
            found = pid;
    }
    if (all)
        closedir(all);
    return found;
}

static void read_name(pid_t pid, char *ret, size_t size)
{
    hy_cleanup_buf struct hy_buf text;
    char path[64];

    hy_buf_init(&text, 256);
    snprintf(path, sizeof path, "/proc/%ld/comm", (long)pid);
    if (hy_file_read(path, &text) == 0 && hy_buf_cstr(&text))
        snprintf(ret, size, "%.*s", (int)strcspn(hy_buf_cstr(&text), "\n"), hy_buf_cstr(&text));
}

void hy_port_find_owner(uint16_t port, struct hy_port_owner *ret)
{
    unsigned long inode = listening_inode("/proc/net/tcp", port);

    *ret = (struct hy_port_owner){0};
    if (!inode)
        inode = listening_inode("/proc/net/tcp6", port);
    ret->there = inode != 0;
    if (inode)
        ret->pid = process_with(inode);
    if (ret->pid)
        read_name(ret->pid, ret->name, sizeof ret->name);
}

static struct sockaddr_in loopback(uint16_t port)
{
    return (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

bool hy_port_answers(uint16_t port)
{
    struct sockaddr_in where = loopback(port);
    hy_cleanup_close int fd = HY_SYS(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    socklen_t n = sizeof(int);
    int error = 0;

    if (fd < 0)
        return false;
    if (connect(fd, (struct sockaddr *)&where, sizeof where) == 0)
        return true;
    return errno == EINPROGRESS && poll(&p, 1, ANSWER_MS) == 1 &&
           getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) == 0 && error == 0;
}

/* ---- reservation ----------------------------------------------------------------- */

static int taken(uint16_t port, struct hy_err *err)
{
    struct hy_port_owner owner;

    hy_port_find_owner(port, &owner);
    if (owner.pid)
        return hy_err_set(err, -EADDRINUSE,
                          "port %u is in use by process %ld (%s); choose another port, or omit --port", port,
                          (long)owner.pid, owner.name);
    return hy_err_set(err, -EADDRINUSE, "port %u is in use; choose another port, or omit --port", port);
}

static int bind_loopback(int fd, uint16_t *port)
{
    struct sockaddr_in where = loopback(*port);
    socklen_t n = sizeof where;
    int yes = 1;

    if (HY_SYS(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes)) < 0 ||
        HY_SYS(bind(fd, (struct sockaddr *)&where, sizeof where)) < 0 ||
        HY_SYS(getsockname(fd, (struct sockaddr *)&where, &n)) < 0)
        return -errno;
    *port = ntohs(where.sin_port);
    return 0;
}

/* With SO_REUSEADDR two hopyard processes could reserve the same port. An abstract socket name is unique in the
 * network namespace, like the port, and disappears with the process. */
static int claim(uint16_t port)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    hy_cleanup_close int fd = HY_SYS(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "hopyard-port-%u", port);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);

    if (fd < 0 || HY_SYS(bind(fd, (struct sockaddr *)&name, size)) < 0)
        return -errno;
    return hy_take_fd(fd);
}

int hy_port_reserve(uint16_t wanted, struct hy_port *ret, struct hy_err *err)
{
    hy_cleanup_close int fd = HY_SYS(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    uint16_t port = wanted;
    int rc = fd < 0 ? -errno : bind_loopback(fd, &port), claimed = -1;

    if (rc == 0)
        rc = claimed = claim(port);
    if (rc == -EADDRINUSE)
        return taken(port, err);
    if (rc == -EACCES)
        return hy_err_set(err, rc, "port %u needs root privileges; choose one above 1023", port);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot reserve a port on 127.0.0.1");
    *ret = (struct hy_port){.number = port, .fd = hy_take_fd(fd), .claim = claimed};
    return 0;
}

void hy_port_release(struct hy_port *p)
{
    hy_close_at(&p->fd);
    hy_close_at(&p->claim);
    p->fd = p->claim = -1;
}
