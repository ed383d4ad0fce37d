/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"

static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
static int ends[2] = {-1, -1};

static void on_signal(int signal)
{
    unsigned char byte = (unsigned char)signal;
    int saved = errno;

    /* With a full pipe 65,536 signals are pending already: this one can be dropped. */
    if (write(ends[1], &byte, 1) < 0)
        errno = saved;
    errno = saved;
}

static void on_closed_pipe(int signal)
{
    (void)signal;
}

int hy_signals_open(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    struct sigaction ignore = {.sa_handler = on_closed_pipe, .sa_flags = SA_RESTART};

    if (ends[0] >= 0)
        return ends[0];
    if (HY_SYS(pipe2(ends, O_CLOEXEC | O_NONBLOCK)) < 0)
        return -errno;
    for (size_t i = 0; i < HY_COUNT(caught); i++) {
        struct sigaction old;

        /* Ignored signals stay ignored (nohup, background jobs of a shell). */
        if (sigaction(caught[i], NULL, &old) == 0 && old.sa_handler == SIG_IGN && caught[i] != SIGWINCH)
            continue;
        sigaction(caught[i], &action, NULL);
    }
    sigaction(SIGPIPE, &ignore, NULL);
    return ends[0];
}

int hy_signals_next(void)
{
    unsigned char byte;

    return ends[0] >= 0 && read(ends[0], &byte, 1) == 1 ? byte : 0;
}

void hy_signals_close(void)
{
    for (size_t i = 0; i < HY_COUNT(caught); i++) {
        struct sigaction old;

        if (sigaction(caught[i], NULL, &old) == 0 && old.sa_handler == on_signal)
            signal(caught[i], SIG_DFL);
    }
    signal(SIGPIPE, SIG_DFL);
    hy_close_at(&ends[0]);
    hy_close_at(&ends[1]);
    ends[0] = ends[1] = -1;
}
