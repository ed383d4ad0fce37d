/* SPDX-License-Identifier: Apache-2.0 */
/* TCP sockets that listen, and connections from them on a loop. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <uv.h>

#include "base/mem.h"
#include "wire/faults.h"
#include "wire/listener.h"
#include "wire/wire.h"

#define BACKLOG 1024

static int parse_address(const char *address, uint16_t port, struct sockaddr_storage *ret)
{
    if (!*address)
        address = "0.0.0.0";
    if (uv_ip4_addr(address, port, (struct sockaddr_in *)ret) == 0)
        return 0;
    return uv_ip6_addr(address, port, (struct sockaddr_in6 *)ret);
}

/* "::" accepts IPv4 too. */
static int open_socket(const struct sockaddr_storage *where)
{
    hy_cleanup_close int fd = HY_SYS(socket(where->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int yes = 1, no = 0;
    const bool is_v6 = where->ss_family == AF_INET6;
    const socklen_t size = is_v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

    if (fd < 0 || HY_SYS(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes)) < 0 ||
        (is_v6 && HY_SYS(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no)) < 0) ||
        HY_SYS(bind(fd, (const struct sockaddr *)where, size)) < 0 || HY_SYS(listen(fd, BACKLOG)) < 0)
        return -errno;
    return hy_take_fd(fd);
}

static int port_of(int fd, uint16_t *ret)
{
    struct sockaddr_storage bound = {0};
    socklen_t size = sizeof bound;

    if (HY_SYS(getsockname(fd, (struct sockaddr *)&bound, &size)) < 0)
        return -errno;
    *ret = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                             : ((struct sockaddr_in *)&bound)->sin_port);
    return 0;
}

int hy_tcp_listen(const char *address, uint16_t port, uint16_t *ret_port, struct hy_err *err)
{
    hy_cleanup_close int fd = -1;
    struct sockaddr_storage where;
    int rc;

    if (parse_address(address, port, &where) < 0)
        return hy_err_set(err, -EINVAL, "'%s' is not an address to listen on; use an address like 192.0.2.1 or 0.0.0.0",
                          address);
    fd = open_socket(&where);
    rc = fd < 0 ? fd : port_of(fd, ret_port);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot listen on %s port %u", *address ? address : "0.0.0.0", port);
    return hy_take_fd(fd);
}

struct hy_acceptor {
    struct hy_listener listener;
    int (*on_accept)(void *arg, int fd);
    void *arg;
};

static int on_accept(void *arg, int fd)
{
    struct hy_acceptor *a = arg;

    return a->on_accept(a->arg, fd);
}

int hy_acceptor_new(struct uv_loop_s *loop, int fd, int (*accept)(void *arg, int fd), void *arg,
                    struct hy_acceptor **ret)
{
    struct hy_acceptor *a = hy_calloc(1, sizeof *a);
    int rc = -ENOMEM;

    if (a) {
        *a = (struct hy_acceptor){.on_accept = accept, .arg = arg};
        rc = hy_listener_open(&a->listener, loop, fd, on_accept, a);
    }
    if (rc < 0) {
        free(a);
        return rc;
    }
    *ret = a;
    return 0;
}

void hy_acceptor_close(struct hy_acceptor *a)
{
    if (a)
        hy_listener_close(&a->listener, free);
}
