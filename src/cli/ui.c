/* SPDX-License-Identifier: Apache-2.0 */
/* `ui`: the project in the browser. */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/project.h"
#include "web/web.h"

#define DEFAULT_PORT 4677 /* HOPS on the keys of a telephone */
#define ALLOWED_HOSTS_MAX 32

extern char **environ;

struct announcement {
    bool browser; /* to be opened with the first address */
    bool was_announced;
    char *page; /* the file that redirects the browser to the login; or NULL */
};

static void remove_page(struct announcement *o)
{
    if (o->page)
        unlink(o->page);
    free(hy_take(o->page));
}

/* Other users see the arguments of programs, so the login is in a file that only this user can read. */
static char *write_page(const char *url)
{
    hy_cleanup_free char *dir = hy_runtime_dir(NULL);
    hy_cleanup_free char *path = dir ? hy_asprintf("%s/login-%d.html", dir, (int)getpid()) : NULL;
    hy_cleanup_close int fd = -1;

    if (!path || strpbrk(url, "\"'<>&"))
        return NULL;
    unlink(path); /* of a killed process that had this PID */
    fd = HY_SYS(open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (fd < 0)
        return NULL;
    if (dprintf(fd, "<!doctype html><meta http-equiv=\"refresh\" content=\"0; url=%s\">\n", url) < 0) {
        unlink(path);
        return NULL;
    }
    return hy_take(path);
}

/* Opens the URL with the desktop's default program. If it fails, the user has the address that is printed. The shell
 * exits at once, so that the program is not a child of the server. */
static void open_browser(struct announcement *o, const char *url)
{
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)"xdg-open \"$1\" >/dev/null 2>&1 </dev/null &",
                    (char *)"sh", NULL,         NULL};
    pid_t pid;

    if (!getenv("DISPLAY") && !getenv("WAYLAND_DISPLAY"))
        return;
    o->page = argv[4] = write_page(url);
    if (o->page && posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) == 0)
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
}

static void announce(void *arg, const char *url, const char *listens)
{
    struct announcement *o = arg;

    remove_page(o); /* its login is used */
    if (o->was_announced)
        printf("Logged in. For another browser: %s\n", url);
    else
        printf("Open %s\nIt logs in once. The server listens on %s; Ctrl-C ends it.\n", url, listens);
    fflush(stdout);
    if (o->browser)
        open_browser(o, url);
    o->browser = false;
    o->was_announced = true;
}

static int parse_port(const struct hy_args *args, const char *option, uint16_t *ret, struct hy_err *err)
{
    const char *text = hy_args_get(args, option);
    uint64_t port = *ret;

    if (text && (hy_parse_u64(text, &port) < 0 || port > UINT16_MAX))
        return hy_err_option(err, option, "takes a number from 0 (any free port) to 65535, not '%s'", text);
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

static int parse_urls(const struct hy_args *args, struct hy_web_settings *ret, struct hy_err *err)
{
    const char *base = hy_args_get(args, "base-url"), *apps = hy_args_get(args, "apps-url");
    const char *host = apps ? strstr(apps, "://") : NULL;
    struct hy_err why = {0};

    if (base && hy_web_check_base(base, &why) < 0)
        return hy_err_option(err, "base-url", "%s", why.text);
    if (apps && (hy_web_check_base(apps, &why) < 0 || !host || strchr(host + 3, '/')))
        return hy_err_option(err, "apps-url", "takes a URL without a path (https://apps.hub.example), not '%s'", apps);
    if (apps && (!base || !strstr(base, "://")))
        return hy_err_option(err, "apps-url", "needs --base-url with the URL of the page (https://hub.example/ada)");
    ret->base_url = base;
    ret->apps_url = apps;
    return 0;
}

static int parse_tls(const struct hy_args *args, struct hy_web_settings *ret, struct hy_err *err)
{
    const char *cert = hy_args_get(args, "tls-cert"), *key = hy_args_get(args, "tls-key");

    if (cert && !key)
        return hy_err_option(err, "tls-cert", "needs --tls-key with the private key of the certificate");
    if (key && !cert)
        return hy_err_option(err, "tls-key", "needs --tls-cert with the certificate of the key");
    if (cert && hy_args_has(args, "without-tls"))
        return hy_err_option(err, "without-tls", "cannot be combined with --tls-cert");
    ret->tls_cert = cert;
    ret->tls_key = key;
    return 0;
}

static bool is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0 || strcmp(address, "localhost") == 0;
}

/* Anyone who can read a login on the network can run programs as this user. */
static int parse_listen(const struct hy_args *args, const char **ret, struct hy_err *err)
{
    const char *address = hy_args_get(args, "listen");

    if (!address)
        return 0;
    if (!is_loopback(address) && !hy_args_has(args, "tls-cert") && !hy_args_has(args, "without-tls"))
        return hy_err_option(err, "listen",
                             "%s would send logins over the network as plain text; use --tls-cert and --tls-key, "
                             "`ssh -L` or a proxy with TLS (--base-url), or add --without-tls",
                             address);
    *ret = address;
    return 0;
}

static int serve(const struct hy_args *args, struct hy_err *err)
{
    const char *hosts[ALLOWED_HOSTS_MAX + 1] = {NULL};
    hy_cleanup_free char *project = hy_project(args, err);
    struct announcement o = {.browser = !hy_args_has(args, "no-browser")};
    struct hy_web_settings settings = {.project = project,
                                       .address = "127.0.0.1",
                                       .port = DEFAULT_PORT,
                                       .allow_hosts = hosts,
                                       .announce = announce,
                                       .arg = &o};
    int rc = project ? parse_port(args, "port", &settings.port, err) : err->code;

    if (rc == 0)
        rc = parse_port(args, "apps-port", &settings.apps_port, err);
    if (rc == 0)
        rc = parse_tls(args, &settings, err);
    if (rc == 0)
        rc = parse_listen(args, &settings.address, err);
    if (rc == 0)
        rc = parse_hosts(args, hosts, err);
    if (rc == 0)
        rc = parse_urls(args, &settings, err);
    if (rc < 0)
        return rc;
    if (!hy_web_has_page()) {
        fputs("hopyard: this program was built without the page, since its build found no Node.js "
              "('make setup' installs it); only /api/v1 is served\n",
              stderr);
        o.browser = false;
    }
    rc = hy_web_serve(&settings, err);
    if (rc == -EADDRINUSE && !hy_args_has(args, "port")) { /* another project's page, perhaps */
        *err = (struct hy_err){0};
        settings.port = 0;
        rc = hy_web_serve(&settings, err);
    }
    remove_page(&o);
    return rc;
}

int hy_cmd_ui(const struct hy_args *args)
{
    struct hy_err err = {0};

    return serve(args, &err) < 0 ? hy_cmd_failed(args, &err) : HY_EXIT_OK;
}
