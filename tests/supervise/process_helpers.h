/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a trial may do, for process_bench.h: a suite that is started with
 * `helper NAME …` plays the badly behaved one. A helper prints `pid N` for every
 * process it makes.
 */
#ifndef HY_TESTS_PROCESS_HELPERS_H
#define HY_TESTS_PROCESS_HELPERS_H

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MB (1ull << 20)

static char self_path[PATH_MAX];

static void say_pid(void)
{
    char line[32];
    int n = snprintf(line, sizeof line, "pid %d\n", (int)getpid());

    if (write(1, line, (size_t)n) != n)
        _exit(99);
}

static __attribute__((noreturn)) void stay(void)
{
    for (;;)
        pause();
}

static void *touch(void *at, size_t n)
{
    memset(at, 7, n);
    return at;
}

static void *take_memory(size_t n, int shared)
{
    void *at = mmap(NULL, n, PROT_READ | PROT_WRITE, (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        _exit(98);
    return touch(at, n);
}

static int help_daemon(char **args)
{
    signal(SIGTERM, SIG_IGN);
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            say_pid();
            if (*args && strcmp(*args, "bare") == 0) {
                const char *argv[] = {self_path, "helper", "stay", NULL}, *none[] = {NULL};

                execve("/proc/self/exe", (char **)argv, (char **)none);
            }
            stay();
        }
        _exit(0);
    }
    wait(NULL);
    return 5;
}

static int help_stay(char **args)
{
    (void)args;
    say_pid();
    stay();
}

static int help_children(char **args)
{
    (void)args;
    signal(SIGTERM, SIG_IGN);
    if (fork() == 0) {
        say_pid();
        stay();
    }
    if (fork() == 0) {
        setsid();
        say_pid();
        if (fork() == 0) {
            say_pid();
            stay();
        }
        stay();
    }
    say_pid();
    stay();
}

/* Every process tends two children of the next level, each in a session of its own. */
static __attribute__((noreturn)) void tend(int level)
{
    setsid();
    say_pid();
    for (int i = 0; i < 2 && level > 0; i++)
        if (fork() == 0)
            tend(level - 1);
    for (;;) {
        if (level == 0)
            pause();
        if (wait(NULL) > 0 && fork() == 0)
            tend(level - 1);
    }
}

static int help_hydra(char **args)
{
    signal(SIGTERM, SIG_IGN);
    tend(atoi(*args));
}

static int help_last_words(char **args)
{
    int ends[2];
    char c;

    (void)args;
    if (pipe(ends) == 0 && fork() == 0) {
        close(ends[1]);
        while (read(ends[0], &c, 1) > 0)
            ;
        return write(1, "last words\n", 11) != 11;
    }
    return 0;
}

static int help_flood(char **args)
{
    static uint8_t block[8191]; /* odd, so that reads and writes never line up */
    long long left = atoll(*args);
    uint64_t at = 0;

    while (left > 0) {
        size_t n = left < (long long)sizeof block ? (size_t)left : sizeof block;

        for (size_t i = 0; i < n; i++)
            block[i] = (uint8_t)((at + i) * 2654435761u >> 11);
        for (size_t done = 0; done < n;) {
            ssize_t w = write(1, block + done, n - done);

            if (w < 0)
                return 1;
            done += (size_t)w;
        }
        at += n;
        left -= (long long)n;
    }
    return 0;
}

static int help_memory(char **args)
{
    take_memory((size_t)atoll(args[0]) * MB, 0);
    return 0;
}

static int help_memory_shared(char **args)
{
    take_memory((size_t)atoll(args[0]) * MB, 1);
    stay();
}

/* Takes memory in a child and goes on itself when that child is killed. */
static int help_memory_in_child(char **args)
{
    if (fork() == 0) {
        say_pid();
        take_memory((size_t)atoll(args[0]) * MB, 0);
        stay();
    }
    say_pid();
    wait(NULL);
    stay();
}

/* A parent whose children share its pages; says so when all are there. */
static int help_memory_forked(char **args)
{
    take_memory((size_t)atoll(args[0]) * MB, 0);
    for (int i = 0; i < 4; i++)
        if (fork() == 0)
            stay();
    if (write(1, "ready\n", 6) != 6)
        return 1;
    stay();
}

/* Thirty at once, each of which takes its part and stays. */
static int help_memory_storm(char **args)
{
    say_pid();
    for (int i = 0; i < 30; i++)
        if (fork() == 0) {
            say_pid();
            for (long long left = atoll(args[0]); left > 0; left--)
                take_memory(MB, 0);
            stay();
        }
    stay();
}

static int help_burn(char **args)
{
    struct rusage usage;

    do
        getrusage(RUSAGE_SELF, &usage);
    while (usage.ru_utime.tv_sec * 1000 + usage.ru_utime.tv_usec / 1000 < atoll(*args));
    return 0;
}

/* What it was born with: open files, signals, session. */
static int help_inspect(char **args)
{
    FILE *f = fopen("/proc/self/status", "re");
    struct rlimit files;
    char line[256], c;

    (void)args;
    for (int fd = 0; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) >= 0 && fd != fileno(f))
            printf("fd %d\n", fd);
    while (fgets(line, sizeof line, f))
        if (strncmp(line, "SigBlk:", 7) == 0 || strncmp(line, "SigIgn:", 7) == 0)
            printf("%s", line);
    fclose(f);
    getrlimit(RLIMIT_NOFILE, &files);
    printf("files %llu\n", (unsigned long long)files.rlim_cur);
    printf("leader %d\n", getsid(0) == getpid() && getpgrp() == getpid());
    printf("stdin %d\n", (int)read(0, &c, 1));
    printf("tag %s\n", getenv("HOPYARD_TAG"));
    printf("agent %s\n", getenv("HOPYARD_AGENT"));
    return 0;
}

/* Twenty daemons that live for a moment; says so when all have gone. */
static int help_mayflies(char **args)
{
    int ends[2];
    char c;

    (void)args;
    if (pipe(ends) < 0)
        return 1;
    for (int i = 0; i < 20; i++) {
        if (fork() == 0) {
            if (fork() == 0)
                setsid();
            _exit(0);
        }
        wait(NULL);
    }
    close(ends[1]);
    while (read(ends[0], &c, 1) > 0)
        ;
    if (write(1, "ready\n", 6) != 6)
        return 1;
    stay();
}

/* Stops between vfork and exec, where two processes have one memory. */
static int help_vfork(char **args)
{
    take_memory((size_t)atoll(args[0]) * MB, 0);
    if (write(1, "ready\n", 6) != 6)
        return 1;
    if (vfork() == 0) {
        pause();
        _exit(0);
    }
    return 0;
}

static void *fork_and_stay(void *unused)
{
    (void)unused;
    if (fork() == 0)
        for (;;)
            ;
    stay();
}

/* A child of a thread that is not the first one uses a CPU. */
static int help_child_of_thread(char **args)
{
    pthread_t thread;

    (void)args;
    if (pthread_create(&thread, NULL, fork_and_stay, NULL) != 0)
        return 1;
    stay();
}

static const struct {
    const char *name;
    int (*run)(char **args);
} helpers[] = {
    {"daemon", help_daemon},
    {"stay", help_stay},
    {"children", help_children},
    {"hydra", help_hydra},
    {"flood", help_flood},
    {"last-words", help_last_words},
    {"memory", help_memory},
    {"burn", help_burn},
    {"memory-forked", help_memory_forked},
    {"inspect", help_inspect},
    {"memory-in-child", help_memory_in_child},
    {"memory-shared", help_memory_shared},
    {"memory-storm", help_memory_storm},
    {"vfork", help_vfork},
    {"mayflies", help_mayflies},
    {"child-of-thread", help_child_of_thread},
};

static int run_helper(char **args)
{
    for (size_t i = 0; i < sizeof helpers / sizeof *helpers; i++)
        if (strcmp(helpers[i].name, args[0]) == 0)
            return helpers[i].run(args + 1);
    return 97;
}

#endif
