/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/group/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "collective/mesh/mesh.h"
#include "collective/mesh/sha256.h"

#define CONNECT_MS 2000   /* for one address */
#define HANDSHAKE_MS 5000 /* rank 0's server answers from a separate thread */

/* ---- host ID ------------------------------------------------------------------------- */

static int namespace_of(const char *path, unsigned long long *ret)
{
    struct stat st;

    if (HY_SYS(stat(path, &st)) < 0)
        return -errno;
    *ret = st.st_ino;
    return 0;
}

int hy_host_id(char id[HY_HOST_ID], struct hy_err *err)
{
    hy_cleanup_buf struct hy_buf boot;
    unsigned long long net = 0, pids = 0;
    char name[65] = "";
    int rc;

    hy_buf_init(&boot, 4096);
    rc = hy_file_read("/proc/sys/kernel/random/boot_id", &boot);
    if (rc == 0)
        rc = namespace_of("/proc/self/ns/net", &net);
    if (rc == 0)
        rc = namespace_of("/proc/self/ns/pid", &pids);
    if (rc < 0 || !hy_buf_cstr(&boot))
        return hy_err_sys(err, rc < 0 ? rc : -ENOMEM, "cannot read boot ID and namespaces from /proc");
    if (gethostname(name, sizeof name - 1) < 0)
        return hy_err_sys(err, -errno, "cannot get this machine's name");
    for (char *c = name; *c; c++)
        if (*c == ' ' || (unsigned char)*c < ' ')
            *c = '_';
    snprintf(id, HY_HOST_ID, "%s/%.36s/%llu/%llu", name, hy_buf_cstr(&boot), net, pids);
    return 0;
}

/* ---- rank 0 ------------------------------------------------------------------------------ */

int hy_endpoint_listen(struct hy_endpoint *ret, struct hy_err *err)
{
    struct hy_endpoint e = {0};
    char **addresses = NULL;
    size_t count = 0;
    int fd, rc = hy_host_id(e.host, err);

    if (rc < 0)
        return rc;
    if (HY_SYS(getrandom(e.key, sizeof e.key, 0)) != sizeof e.key)
        return hy_err_set(err, -EIO, "cannot get random bytes for the ranks' key");
    fd = hy_mesh_listen(&e.port, &addresses, &count, err);
    for (size_t i = 0; fd >= 0 && i < count && e.address_count < HY_ENDPOINT_ADDRESSES; i++)
        snprintf(e.addresses[e.address_count++], sizeof e.addresses[0], "%s", addresses[i]);
    for (size_t i = 0; i < count; i++)
        free(addresses[i]);
    free(addresses);
    if (fd >= 0)
        *ret = e;
    explicit_bzero(&e, sizeof e);
    return fd;
}

/* ---- other ranks ------------------------------------------------------------------------ */

static int await(int fd, short events, int64_t until)
{
    for (;;) {
        int64_t left = until - hy_clock_ms();
        struct pollfd p = {.fd = fd, .events = events};
        int rc = HY_SYS(poll(&p, 1, left > 0 ? (int)left : 0));

        if (rc < 0 && errno == EINTR)
            continue;
        return rc < 0 ? -errno : rc == 0 ? -ETIMEDOUT : 0;
    }
}

/* A blocking, connected socket. */
static int connect_to(const char *text, uint16_t port)
{
    hy_cleanup_close int fd = -1;
    struct sockaddr_storage address;
    socklen_t size, n = sizeof(int);
    int rc = hy_mesh_parse_address(text, port, &address, &size), code = 0;

    if (rc < 0)
        return rc;
    fd = HY_SYS(socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd < 0)
        return -errno;
    rc = hy_mesh_socket_options(fd);
    if (rc < 0)
        return rc;
    if (HY_SYS(connect(fd, (struct sockaddr *)&address, size)) < 0) {
        rc = errno == EINPROGRESS ? await(fd, POLLOUT, hy_clock_ms() + CONNECT_MS) : -errno;
        if (rc == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &n) < 0)
            code = errno;
        if (rc < 0 || code)
            return rc < 0 ? rc : -code;
    }
    rc = HY_SYS(fcntl(fd, F_SETFL, 0));
    return rc < 0 ? -errno : hy_take_fd(fd);
}

static int send_handshake(int fd, struct hy_handshake *h)
{
    ssize_t n = h->out_size ? HY_SYS(send(fd, h->out, h->out_size, MSG_NOSIGNAL)) : 0;
    size_t wanted = h->out_size;

    h->out_size = 0;
    return n == (ssize_t)wanted ? 0 : n < 0 ? -errno : -EPIPE;
}

static int run_handshake(int fd, const struct hy_endpoint *e, unsigned rank, unsigned size)
{
    int64_t until = hy_clock_ms() + HANDSHAKE_MS;
    uint8_t nonce[HY_HANDSHAKE_NONCE], bytes[HY_CHALLENGE_SIZE];
    struct hy_handshake h;
    int rc = 0, last;

    if (HY_SYS(getrandom(nonce, sizeof nonce, 0)) != sizeof nonce)
        return -EIO;
    hy_handshake_dial(&h, e->key, rank, size, 0, 0, nonce);
    last = send_handshake(fd, &h);
    while (rc == 0 && last == 0) {
        ssize_t n;

        last = await(fd, POLLIN, until);
        if (last < 0)
            break;
        n = HY_SYS(recv(fd, bytes, hy_handshake_needed(&h), 0));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ECONNRESET;
        rc = hy_handshake_take(&h, bytes, (size_t)n);
        last = rc < 0 ? 0 : send_handshake(fd, &h);
    }
    return rc < 0 ? rc : last < 0 ? last : 0;
}

int hy_endpoint_dial(const struct hy_endpoint *e, unsigned rank, unsigned size, struct hy_err *err)
{
    int rc = -EDESTADDRREQ;

    for (unsigned i = 0; i < e->address_count; i++) {
        hy_cleanup_close int fd = connect_to(e->addresses[i], e->port);

        rc = fd < 0 ? fd : run_handshake(fd, e, rank, size);
        if (rc == 0)
            return hy_take_fd(fd);
        hy_err_sys(err, rc, "rank %u cannot connect to rank 0 at %s port %u", rank, e->addresses[i], e->port);
    }
    return rc == -EDESTADDRREQ ? hy_err_set(err, rc, "rank 0 has no network address") : rc;
}

void hy_endpoint_mesh_key(const struct hy_endpoint *e, uint64_t generation, uint8_t ret[HY_HANDSHAKE_KEY])
{
    char text[64];
    int n = snprintf(text, sizeof text, "hopyard mesh, generation %llu", (unsigned long long)generation);

    hy_hmac_sha256(e->key, sizeof e->key, text, (size_t)n, ret);
}
