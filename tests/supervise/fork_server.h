/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server that forks trials as hopyard's own in Python does, and servers that
 * do what that one never would. A trial of it prints its folder, its TRIAL_SAYS
 * and whether it has the files it should keep, and ends by TRIAL_STATUS. Its
 * server holds memory of its own, which is none of the trial's.
 */
#ifndef HY_TESTS_FORK_SERVER_H
#define HY_TESTS_FORK_SERVER_H

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FDS_MAX 205
#define HELD (100u << 20)

enum { PAYLOAD, OUT, ERR, CONTROL, CGROUP, FIXED };

static void server_say(int fd, const char *text)
{
    if (write(fd, text, strlen(text)) < 0)
        _exit(9);
}

static int take_request(int socket, int fds[FDS_MAX])
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control;
    char word[8];
    struct iovec io = {.iov_base = word, .iov_len = sizeof word};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct cmsghdr *c;
    size_t n;

    if (recvmsg(socket, &m, 0) != 4 || memcmp(word, "fork", 4) != 0)
        exit(0);
    c = CMSG_FIRSTHDR(&m);
    n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(c), n * sizeof(int));
    return (int)n;
}

static char *payload_text(const char **at)
{
    char *text = strdup(*at);

    *at += strlen(*at) + 1;
    return text;
}

static void take_payload(int fd)
{
    static char bytes[1 << 20];
    const char *at = bytes;
    long n;

    if (pread(fd, bytes, sizeof bytes - 1, 0) <= 0 || chdir(payload_text(&at)) < 0)
        _exit(8);
    payload_text(&at); /* the limit of open files */
    n = atol(payload_text(&at));
    clearenv();
    while (n--)
        putenv(payload_text(&at));
}

static void be_trial(const int *fds, int n)
{
    char word, folder[512];
    int kept = 0;

    setsid();
    if (write(fds[CGROUP], "0", 1) < 0)
        _exit(7);
    take_payload(fds[PAYLOAD]);
    dprintf(fds[CONTROL], "pid %d\n", (int)getpid());
    if (getenv("TRIAL_DIES"))
        _exit(6);
    if (read(fds[CONTROL], &word, 1) != 1 || word != 'g')
        _exit(0);
    for (int i = FIXED; i < n; i++)
        kept += fcntl(fds[i], F_GETFD) >= 0;
    dprintf(fds[OUT], "%s %s kept=%d\n", getcwd(folder, sizeof folder), getenv("TRIAL_SAYS"), kept);
    dprintf(fds[ERR], "tag=%s\n", getenv("HOPYARD_TAG"));
    if (getenv("TRIAL_TAKES")) {
        size_t bytes = (size_t)atol(getenv("TRIAL_TAKES")) << 20;
        char *taken = malloc(bytes);

        explicit_bzero(taken, bytes); /* memset could be optimized away: nothing reads the memory */
        pause();
    }
    if (getenv("TRIAL_STAYS"))
        pause();
    _exit(atoi(getenv("TRIAL_STATUS") ? getenv("TRIAL_STATUS") : "0"));
}

/* Twice, so that the trial falls to the subreaper. */
static void fork_trial(const int *fds, int n)
{
    pid_t pid = fork();

    if (pid == 0) {
        int self = (int)syscall(SYS_pidfd_open, getpid(), 0);

        if (fork() == 0) {
            struct pollfd gone = {.fd = self, .events = POLLIN};

            if (poll(&gone, 1, -1) == 1)
                be_trial(fds, n);
        }
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

static int run_server(const char *mode)
{
    int socket = atoi(getenv("HOPYARD_SERVER")), fds[FDS_MAX], n;
    static char held[HELD];

    memset(held, 2, sizeof held);
    if (strcmp(mode, "dies") == 0) {
        fputs("Traceback\nImportError: no luck\n", stderr);
        return 3;
    }
    server_say(socket, strcmp(mode, "refuses") == 0   ? "refuse it has run an operation\n"
                       : strcmp(mode, "babbles") == 0 ? "hello\n"
                                                      : "ready\n");
    for (;;) {
        n = take_request(socket, fds);
        if (strcmp(mode, "works") == 0)
            fork_trial(fds, n);
        else if (strcmp(mode, "is alien") == 0)
            server_say(fds[CONTROL], "pid 1073741824\n");
        else if (strcmp(mode, "babbles to trials") == 0)
            server_say(fds[CONTROL], "hello\n");
        else if (strcmp(mode, "refuses trials") == 0)
            server_say(fds[CONTROL], "refuse there are threads\n");
        else if (strcmp(mode, "cannot fork") == 0)
            server_say(fds[CONTROL], "again cannot fork: out of memory\n");
        else if (strcmp(mode, "has no folder") == 0)
            server_say(fds[CONTROL], "error cannot enter the folder\n");
        else if (strcmp(mode, "dies at work") == 0)
            _exit(4);
        for (int i = 0; i < n && strcmp(mode, "is slow") != 0; i++)
            close(fds[i]);
    }
}

#endif
