/* SPDX-License-Identifier: Apache-2.0 */
/* `ui`: the project in the browser. */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/project.h"
#include "web/web.h"

#define DEFAULT_PORT 4677 /* HOPS on the keys of a telephone */
#define ALLOWED_HOSTS_MAX 32

extern char **environ;

struct opening {
    bool browser; /* to be opened with the first address */
    bool was_announced;
};

/* A desktop's program for addresses. Its failure is no failure: the address is printed. */
static void open_browser(const char *url)
{
    char *argv[] = {(char *)"xdg-open", (char *)(uintptr_t)url, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;

    if (!getenv("DISPLAY") && !getenv("WAYLAND_DISPLAY"))
        return;
    signal(SIGCHLD, SIG_IGN); /* it is not waited for */
    if (posix_spawn_file_actions_init(&actions) != 0)
        return;
    if (posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", 1, 0) == 0)
        (void)posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
}

static void announce(void *arg, const char *url)
{
    struct opening *o = arg;

    if (o->was_announced)
        printf("Logged in. For another browser: %s\n", url);
    else
        printf("Open %s\nIt logs in once. Ctrl-C ends the server.\n", url);
    fflush(stdout);
    if (o->browser)
        open_browser(url);
    o->browser = false;
    o->was_announced = true;
}

static int parse_port(const struct hy_args *args, uint16_t *ret, struct hy_err *err)
{
    const char *text = hy_args_get(args, "port");
    uint64_t port = DEFAULT_PORT;

    if (text && (hy_parse_u64(text, &port) < 0 || port > UINT16_MAX))
        return hy_err_option(err, "port", "takes a number from 0 (any free port) to 65535, not '%s'", text);
    *ret = (uint16_t)port;
    return 0;
}

static int parse_hosts(const struct hy_args *args, const char **ret, struct hy_err *err)
{
    size_t cursor = 0, n = 0;
    const char *name;

    while ((name = hy_args_next(args, "allow-host", &cursor))) {
        if (n == ALLOWED_HOSTS_MAX)
            return hy_err_option(err, "allow-host", "can be given %d times at most", ALLOWED_HOSTS_MAX);
        ret[n++] = name;
    }
    return 0;
}

static int serve(const struct hy_args *args, struct hy_err *err)
{
    const char *hosts[ALLOWED_HOSTS_MAX + 1] = {NULL};
    hy_cleanup_free char *project = hy_project(args, err);
    struct opening o = {.browser = !hy_args_has(args, "no-browser")};
    struct hy_web_settings settings = {
        .project = project, .address = "127.0.0.1", .allow_hosts = hosts, .announce = announce, .arg = &o};
    int rc = project ? parse_port(args, &settings.port, err) : err->code;

    if (rc == 0)
        rc = parse_hosts(args, hosts, err);
    if (rc < 0)
        return rc;
    rc = hy_web_serve(&settings, err);
    if (rc == -EADDRINUSE && !hy_args_has(args, "port")) { /* another project's page, perhaps */
        *err = (struct hy_err){0};
        settings.port = 0;
        rc = hy_web_serve(&settings, err);
    }
    return rc;
}

int hy_cmd_ui(const struct hy_args *args)
{
    struct hy_err err = {0};

    return serve(args, &err) < 0 ? hy_cmd_failed(args, &err) : HY_EXIT_OK;
}
