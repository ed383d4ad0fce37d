/* SPDX-License-Identifier: Apache-2.0 */
#include "fork_server.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"

#define PAYLOAD_MAX (16u << 20)

/* ---- the message ------------------------------------------------------------ */

static void take_fds(struct hy_fork_request *r, struct msghdr *m)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(m); /* at most one, since no socket option adds others */

    if (!c || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
        return;
    r->fd_count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    assert(r->fd_count <= HY_FORK_REQUEST_FDS_MAX);
    memcpy(r->fds, CMSG_DATA(c), r->fd_count * sizeof(int));
}

/* Descriptors are close-on-exec until a trial takes them, so that they do not leak into other processes. */
int hy_fork_request_receive(struct hy_fork_request *r, int socket)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(HY_FORK_REQUEST_FDS_MAX * sizeof(int))];
    } control;
    struct iovec io = {.iov_base = r->word, .iov_len = sizeof r->word - 1};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n;

    *r = (struct hy_fork_request){0};
    hy_buf_init(&r->payload, PAYLOAD_MAX);
    n = HY_SYS(recvmsg(socket, &m, MSG_CMSG_CLOEXEC));
    if (n < 0)
        return -errno;
    take_fds(r, &m);
    r->truncated = m.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
    return n > 0;
}

void hy_fork_request_done(struct hy_fork_request *r)
{
    for (size_t i = 0; i < r->fd_count; i++)
        hy_close_at(&r->fds[i]);
    hy_buf_done(&r->payload);
}

/* ---- the payload -------------------------------------------------------------- */

/* The string at *at, which moves behind its NUL; NULL when it is not terminated. */
static const char *next_text(const char **at, const char *end)
{
    const char *text = *at, *nul = text < end ? memchr(text, '\0', (size_t)(end - text)) : NULL;

    if (!nul)
        return NULL;
    *at = nul + 1;
    return text;
}

static int next_number(const char **at, const char *end, uint64_t *ret)
{
    const char *text = next_text(at, end);

    return text ? hy_parse_u64(text, ret) : -EINVAL;
}

int hy_fork_request_parse(struct hy_fork_request *r, const char *bytes, size_t n)
{
    const char *at = bytes, *end = bytes + n;
    uint64_t count;

    r->cwd = next_text(&at, end);
    if (!r->cwd || next_number(&at, end, &r->open_files) < 0 || next_number(&at, end, &count) < 0)
        return -EINVAL;
    r->env = at;
    for (r->env_count = 0; r->env_count < count; r->env_count++) {
        const char *word = next_text(&at, end), *equals = word ? strchr(word, '=') : NULL;

        if (!equals || equals == word)
            return -EINVAL;
        if (strncmp(word, "HOPYARD_TAG=", 12) == 0)
            r->tag = equals + 1;
    }
    return at == end && r->tag ? 0 : -EINVAL;
}

static int check_message(const struct hy_fork_request *r, struct hy_err *err)
{
    if (strcmp(r->word, "fork") != 0)
        return hy_err_set(err, -EPROTO, "unknown request '%s' from the agent; is it of another version?", r->word);
    if (r->truncated)
        return hy_err_set(err, -EMFILE, "the fork server has too many open files");
    if (r->fd_count < HY_FD_KEPT || r->fd_count > HY_FD_KEPT + HY_KEPT_FDS_MAX)
        return hy_err_set(err, -EPROTO,
                          "the agent sent %zu descriptors, but %d to %d are expected; is it of another version?",
                          r->fd_count, HY_FD_KEPT, HY_FD_KEPT + HY_KEPT_FDS_MAX);
    return 0;
}

/* The offset of the memfd is at its end, where the agent has left it. */
int hy_fork_request_read(struct hy_fork_request *r, struct hy_err *err)
{
    int rc = check_message(r, err);

    if (rc < 0)
        return rc;
    if (HY_SYS(lseek(r->fds[HY_FD_PAYLOAD], 0, SEEK_SET)) < 0)
        rc = -errno;
    rc = rc < 0 ? rc : hy_read_all(r->fds[HY_FD_PAYLOAD], &r->payload);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot read the request for a trial");
    if (hy_fork_request_parse(r, (const char *)hy_buf_bytes(&r->payload), r->payload.len) < 0)
        return hy_err_set(err, -EPROTO, "invalid request for a trial; is the agent of another version?");
    return 0;
}
