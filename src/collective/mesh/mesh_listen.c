/* SPDX-License-Identifier: Apache-2.0 */
/* The listening socket, and the addresses of this machine. */
#include "collective/mesh/mesh_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"
#include "base/string_list.h"

#define BACKLOG 4096 /* all ranks may dial while this one computes */

/* ---- the socket --------------------------------------------------------------------- */

static int listen_on(const struct sockaddr *address, socklen_t size)
{
    hy_cleanup_close int fd = HY_SYS(socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    int no = 0;

    if (fd < 0)
        return -errno;
    if (address->sa_family == AF_INET6 && HY_SYS(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no)) < 0)
        return -errno;
    if (HY_SYS(bind(fd, address, size)) < 0 || HY_SYS(listen(fd, BACKLOG)) < 0)
        return -errno;
    return hy_take_fd(fd);
}

/* An IPv6 socket accepts both families; without IPv6, IPv4 only. */
static int listen_anywhere(struct hy_err *err)
{
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    int fd = listen_on((struct sockaddr *)&v6, sizeof v6);

    if (fd < 0)
        fd = listen_on((struct sockaddr *)&v4, sizeof v4);
    return fd < 0 ? hy_err_sys(err, fd, "cannot listen for the other ranks") : fd;
}

static int port_of(int fd, uint16_t *ret)
{
    struct sockaddr_in6 address;
    socklen_t size = sizeof address;

    if (HY_SYS(getsockname(fd, (struct sockaddr *)&address, &size)) < 0)
        return -errno;
    *ret = ntohs(address.sin6_port); /* at the same offset in both families */
    return 0;
}

/* ---- the addresses ------------------------------------------------------------------ */

struct addresses {
    const char *wanted; /* names of interfaces, separated by commas; NULL: all */
    struct hy_string_list list;
};

static bool is_wanted(const char *wanted, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = wanted; at; at = strchr(at, ',')) {
        at += at != wanted; /* the comma */
        if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == '\0'))
            return true;
    }
    return !wanted;
}

static const void *ip_of(const struct ifaddrs *i)
{
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP))
        return NULL;
    if (i->ifa_addr->sa_family == AF_INET)
        return &((const struct sockaddr_in *)(const void *)i->ifa_addr)->sin_addr;
    if (i->ifa_addr->sa_family == AF_INET6) {
        const struct in6_addr *ip = &((const struct sockaddr_in6 *)(const void *)i->ifa_addr)->sin6_addr;

        return IN6_IS_ADDR_LINKLOCAL(ip) ? NULL : ip; /* valid on its own link only */
    }
    return NULL;
}

static int add(struct addresses *a, int family, const void *ip)
{
    char text[INET6_ADDRSTRLEN];

    return hy_string_list_add(&a->list, inet_ntop(family, ip, text, sizeof text));
}

/* The addresses of one family, of loopback or of other interfaces. */
static int collect(struct addresses *a, const struct ifaddrs *all, int family, bool loopback)
{
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        const void *ip = ip_of(i);

        if (!ip || i->ifa_addr->sa_family != family || !!(i->ifa_flags & IFF_LOOPBACK) != loopback ||
            !is_wanted(a->wanted, i->ifa_name) || a->list.count == HY_MESH_ADDRESSES_MAX)
            continue;
        if (add(a, family, ip) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int collect_all(struct addresses *a)
{
    static const struct {
        int family;
        bool loopback;
    } order[] = {{AF_INET, false}, {AF_INET6, false}, {AF_INET, true}, {AF_INET6, true}};
    struct ifaddrs *all;
    int rc = 0;

    if (HY_SYS(getifaddrs(&all)) < 0)
        return -errno;
    for (size_t i = 0; i < HY_COUNT(order) && rc == 0; i++)
        rc = collect(a, all, order[i].family, order[i].loopback);
    freeifaddrs(all);
    return rc;
}

static const char *wanted_interfaces(void)
{
    const char *names = getenv("HOPYARD_INTERFACES");

    if (!names || !*names)
        names = getenv("HOROVOD_GLOO_IFACE");
    return names && *names ? names : NULL;
}

int hy_host_addresses(char ***ret_addresses, size_t *ret_count, struct hy_err *err)
{
    struct addresses a = {.wanted = wanted_interfaces()};
    int rc = collect_all(&a);

    if (rc < 0)
        hy_err_sys(err, rc, "cannot list the network addresses of this machine");
    else if (a.list.count == 0)
        rc = hy_err_set(err, -EADDRNOTAVAIL, "no network interface is up and has an address%s%s; check `ip address`",
                        a.wanted ? ", among HOPYARD_INTERFACES=" : "", a.wanted ? a.wanted : "");
    if (rc < 0) {
        hy_string_list_done(&a.list);
        return rc;
    }
    *ret_addresses = a.list.items;
    *ret_count = a.list.count;
    return 0;
}

int hy_mesh_listen(uint16_t *ret_port, char ***ret_addresses, size_t *ret_count, struct hy_err *err)
{
    hy_cleanup_close int fd = listen_anywhere(err);
    uint16_t port = 0;
    int rc;

    if (fd < 0)
        return fd;
    rc = port_of(fd, &port);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot get the port on which this rank listens");
    rc = hy_host_addresses(ret_addresses, ret_count, err);
    if (rc < 0)
        return rc;
    *ret_port = port;
    return hy_take_fd(fd);
}
