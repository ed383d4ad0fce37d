/* SPDX-License-Identifier: Apache-2.0 */
#include "supervise/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

struct hy_helper {
    uv_process_t process;
    uv_timer_t timer;
    unsigned handles;
    bool timed_out;
    int output; /* a memfd */
    int status;
    hy_helper_cb done; /* NULL: no callback */
    void *arg;
};

/* ---- its end ---- */

static void describe_failure(struct hy_helper *h)
{
    hy_cleanup_buf struct hy_buf text;
    const char *output;

    hy_buf_init(&text, HY_HELPER_OUTPUT_MAX);
    if (lseek(h->output, 0, SEEK_SET) < 0 || hy_read_all(h->output, &text) == -ENOMEM)
        hy_buf_clear(&text);
    output = hy_buf_cstr(&text);
    h->done(h->arg, h->status, output ? output : "");
}

static void on_closed(uv_handle_t *handle)
{
    struct hy_helper *h = handle->data;

    if (--h->handles)
        return;
    if (h->done)
        describe_failure(h);
    close(h->output);
    free(h);
}

static void close_both(struct hy_helper *h)
{
    if (uv_is_closing((uv_handle_t *)&h->process))
        return;
    uv_close((uv_handle_t *)&h->process, on_closed);
    uv_close((uv_handle_t *)&h->timer, on_closed);
}

static void on_helper_exit(uv_process_t *process, int64_t status, int signal)
{
    struct hy_helper *h = process->data;

    h->status = h->timed_out ? -ETIMEDOUT : signal ? 128 + signal : (int)status;
    close_both(h);
}

/* One that hangs in the kernel survives SIGKILL: it is abandoned. */
static void on_timeout(uv_timer_t *timer)
{
    struct hy_helper *h = timer->data;

    uv_process_kill(&h->process, SIGKILL);
    if (h->timed_out) {
        h->status = -ETIMEDOUT;
        close_both(h);
        return;
    }
    h->timed_out = true;
    uv_timer_start(&h->timer, on_timeout, 1000, 0);
}

void hy_helper_limit(struct hy_helper *h, int64_t timeout_ms)
{
    uv_timer_start(&h->timer, on_timeout, (uint64_t)timeout_ms, 0);
}

void hy_helper_cancel(struct hy_helper *h)
{
    if (!h)
        return;
    h->done = NULL;
    uv_process_kill(&h->process, SIGKILL);
    close_both(h);
}

/* ---- its start ---- */

static int open_memory(const char *name, const char *text)
{
    hy_cleanup_close int fd = HY_SYS(memfd_create(name, MFD_CLOEXEC));
    int rc = fd < 0 ? -errno : 0;

    if (rc == 0 && text)
        rc = hy_write_all(fd, text, strlen(text));
    if (rc == 0 && lseek(fd, 0, SEEK_SET) < 0)
        rc = -errno;
    return rc < 0 ? rc : hy_take_fd(fd);
}

static int spawn(struct hy_helper *h, uv_loop_t *loop, const struct hy_helper_spec *spec, int input)
{
    uv_stdio_container_t stdio[] = {{.flags = UV_INHERIT_FD, .data.fd = input},
                                    {.flags = UV_INHERIT_FD, .data.fd = h->output},
                                    {.flags = UV_INHERIT_FD, .data.fd = h->output}};
    uv_process_options_t options = {.exit_cb = on_helper_exit,
                                    .file = spec->file,
                                    .args = (char **)spec->argv,
                                    .env = (char **)spec->env,
                                    .stdio = stdio,
                                    .stdio_count = HY_COUNT(stdio)};

    /* Our descriptors are close-on-exec; this covers inherited ones: a daemon
     * would keep them open, and a reader of the other end would never see EOF. */
    syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC);
    return hy_fault_hit(HY_SEAM_SYS) ? -EIO : uv_spawn(loop, &h->process, &options);
}

static int begin(struct hy_helper *h, uv_loop_t *loop, const struct hy_helper_spec *spec, struct hy_err *err)
{
    hy_cleanup_close int input = spec->input_fd ? HY_SYS(fcntl(spec->input_fd, F_DUPFD_CLOEXEC, 3))
                                                : open_memory("hopyard-input", spec->input);
    int rc = input >= 0 ? 0 : spec->input_fd ? -errno : input;

    h->output = rc == 0 ? open_memory("hopyard-output", NULL) : -1;
    if (rc == 0 && h->output < 0)
        rc = h->output;
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot start '%s'", spec->file);
    uv_timer_init(loop, &h->timer);
    h->process.data = h->timer.data = h;
    h->handles = 2;
    rc = spawn(h, loop, spec, input);
    if (rc < 0)
        return hy_err_set(err, rc, "cannot start '%s': %s", spec->file, uv_strerror(rc));
    if (spec->timeout_ms)
        hy_helper_limit(h, spec->timeout_ms);
    return 0;
}

/* libuv's process handle must be closed even if there is no process. */
static void abandon(struct hy_helper *h)
{
    h->done = NULL;
    if (!h->handles) {
        if (h->output >= 0)
            close(h->output);
        free(h);
    } else if (!h->process.loop) {
        h->handles = 1;
        uv_close((uv_handle_t *)&h->timer, on_closed);
    } else {
        close_both(h);
    }
}

int hy_helper_start(uv_loop_t *loop, const struct hy_helper_spec *spec, hy_helper_cb done, void *arg,
                    struct hy_helper **ret, struct hy_err *err)
{
    struct hy_helper *h = hy_calloc(1, sizeof *h);
    int rc;

    if (!h)
        return hy_err_oom(err);
    h->done = done;
    h->arg = arg;
    rc = begin(h, loop, spec, err);
    if (rc < 0) {
        abandon(h);
        return rc;
    }
    *ret = h;
    return 0;
}
