/* SPDX-License-Identifier: Apache-2.0 */
#include "client/provenance.h"

#include <errno.h>
#include <fcntl.h>
#include <gnu/libc-version.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#define LINE_MAX_BYTES 1024
#define GIT_HEAD_MS 1000

/* ---- the program ---------------------------------------------------------------- */

static int is_program(const char *path)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return -errno;
    if (S_ISDIR(st.st_mode))
        return -EISDIR;
    return access(path, X_OK) < 0 ? -errno : 0;
}

/* A name that contains a slash is a path, relative to `cwd`. */
static int program_at(const char *name, const char *cwd, char **ret_path, struct hy_err *err)
{
    hy_cleanup_free char *path = *name == '/' ? hy_strdup(name) : hy_path_join(cwd, name);
    const char *dot = strrchr(name, '.');
    int rc = path ? is_program(path) : -ENOMEM;

    if (rc == 0)
        *ret_path = hy_take(path);
    else if (rc == -ENOMEM)
        hy_err_oom(err);
    else if (rc == -ENOENT || rc == -ENOTDIR)
        hy_err_set(err, rc, "program '%s' does not exist%s%s", name, *name == '/' ? "" : " in ",
                   *name == '/' ? "" : cwd);
    else if (rc == -EISDIR)
        hy_err_set(err, rc, "'%s' is a directory, not a program", name);
    else if (dot && strcmp(dot, ".py") == 0)
        hy_err_set(err, rc, "'%s' is not executable; put python3 before it, or run: chmod +x %s", name, name);
    else
        hy_err_set(err, rc, "'%s' is not executable; run: chmod +x %s", name, name);
    return rc;
}

static int not_in_path(const char *name, const char *cwd, struct hy_err *err)
{
    hy_cleanup_free char *here = hy_path_join(cwd, name);

    if (here && is_program(here) == 0)
        return hy_err_set(err, -ENOENT, "program '%s' is not in PATH; did you mean ./%s?", name, name);
    return hy_err_set(err, -ENOENT, "program '%s' is not in PATH; give its path, or install it", name);
}

int hy_find_program(const char *name, const char *cwd, const char *path, char **ret_path, struct hy_err *err)
{
    if (!*name)
        return hy_err_set(err, -ENOENT, "the program name of the command is empty; put the command after --");
    if (strchr(name, '/'))
        return program_at(name, cwd, ret_path, err);
    for (const char *at = path ? path : "/usr/local/bin:/usr/bin:/bin"; *at;) {
        size_t n = strcspn(at, ":");
        /* An empty entry is the current directory, as in shells. */
        hy_cleanup_free char *directory = hy_strndup(n ? at : ".", n ? n : 1);
        hy_cleanup_free char *whole = directory ? hy_path_join(directory, name) : NULL;

        if (!whole)
            return hy_err_oom(err);
        if (is_program(whole) == 0) {
            *ret_path = hy_take(whole);
            return 0;
        }
        at += n + (at[n] == ':');
    }
    return not_in_path(name, cwd, err);
}

/* ---- output of other programs ------------------------------------------------------ */

/* In a new process group, so that a timeout kills its descendants too; standard input is /dev/null. */
static int spawn(char *const *argv, const char *cwd, int out, pid_t *ret)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    int rc = posix_spawn_file_actions_init(&files);

    if (rc)
        return -rc;
    rc = posix_spawnattr_init(&attributes);
    if (rc == 0) {
        rc = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
        rc = rc ? rc : posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
        rc = rc ? rc : posix_spawn_file_actions_adddup2(&files, out, 1);
        rc = rc ? rc : posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
        rc = rc || !cwd ? rc : posix_spawn_file_actions_addchdir_np(&files, cwd);
        rc = rc ? rc : posix_spawnp(ret, argv[0], &files, &attributes, argv, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&files);
    return -rc;
}

/* Reads to EOF or to the deadline (-ETIMEDOUT). Drops what does not fit into `text`. */
static int read_until(int fd, struct hy_buf *text, int64_t deadline)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int64_t left = deadline - hy_clock_ms();
        char chunk[512];
        ssize_t n;

        if (left <= 0)
            return -ETIMEDOUT;
        if (poll(&p, 1, (int)left) <= 0)
            continue;
        n = HY_SYS(read(fd, chunk, sizeof chunk));
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            return n < 0 ? -errno : 0;
        if (hy_buf_append(text, chunk, (size_t)n) == -ENOMEM)
            return -ENOMEM;
    }
}

/* 0 if the process exited with status 0. The process may outlive its end of the pipe, so this waits, too. */
static int reap(pid_t pid, int rc, int64_t deadline)
{
    int status = 0;

    while (rc == 0 && waitpid(pid, &status, WNOHANG) == 0) {
        if (hy_clock_ms() >= deadline)
            rc = -ETIMEDOUT;
        poll(NULL, 0, 1);
    }
    if (rc < 0) {
        kill(-pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        return rc;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

/* What a program prints, up to the buffer's maximum. 0; -ETIMEDOUT; -ECHILD: it failed; or another -Exxx. */
static int output_of(char *const *argv, const char *cwd, int64_t deadline, struct hy_buf *text)
{
    int ends[2];
    pid_t pid;
    int rc;

    if (HY_SYS(pipe2(ends, O_CLOEXEC)) < 0)
        return -errno;
    rc = spawn(argv, cwd, ends[1], &pid);
    close(ends[1]);
    if (rc == 0)
        rc = reap(pid, read_until(ends[0], text, deadline), deadline);
    close(ends[0]);
    return rc;
}

char *hy_first_line(char *const *argv, const char *cwd, int64_t deadline)
{
    hy_cleanup_buf struct hy_buf text;
    const char *line;

    hy_buf_init(&text, LINE_MAX_BYTES);
    line = output_of(argv, cwd, deadline, &text) == 0 ? hy_buf_cstr(&text) : NULL;
    return line ? hy_strndup(line, strcspn(line, "\n")) : NULL;
}

/* In a large repository git takes too long to compare all files: "-dirty" is the safe answer then. */
static char *commit_at_least(const char *cwd)
{
    char *head[] = {(char *)"git", (char *)"rev-parse", (char *)"HEAD", NULL};
    hy_cleanup_free char *commit = hy_first_line(head, cwd, hy_clock_ms() + GIT_HEAD_MS);

    return commit ? hy_asprintf("%s-dirty", commit) : NULL;
}

/* Of `git status --porcelain=v2 --branch`: "# branch.oid COMMIT", more lines with '#', then one for each changed file.
 */
static char *parse_status(const char *text)
{
    static const char mark[] = "# branch.oid ";
    const char *commit = strstr(text, mark);
    bool is_dirty = false;
    int n;

    if (!commit || commit[sizeof mark - 1] == '(') /* "(initial)": there is no commit yet */
        return NULL;
    commit += sizeof mark - 1;
    n = (int)strcspn(commit, "\n");
    for (const char *line = text; *line && !is_dirty; line += strcspn(line, "\n"), line += *line == '\n')
        is_dirty = *line != '#';
    return hy_asprintf("%.*s%s", n, commit, is_dirty ? "-dirty" : "");
}

/* Avoids starting git, which takes milliseconds, where there is no repository. */
static bool may_have_repository(const char *cwd)
{
    hy_cleanup_free char *path = hy_asprintf("%s/.git", cwd);

    if (!path || getenv("GIT_DIR"))
        return true;
    for (char *end = path + strlen(cwd); end; end = memrchr(path, '/', (size_t)(end - path))) {
        strcpy(end, "/.git"); /* what is above it is shorter */
        if (access(path, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR))
            return true;
    }
    return false;
}

char *hy_git_commit(const char *cwd, int64_t deadline)
{
    char *argv[] = {(char *)"git",
                    (char *)"--no-optional-locks",
                    (char *)"status",
                    (char *)"--porcelain=v2",
                    (char *)"--branch",
                    (char *)"--no-ahead-behind",
                    (char *)"--untracked-files=no",
                    NULL};
    hy_cleanup_buf struct hy_buf text;
    int rc;

    hy_buf_init(&text, LINE_MAX_BYTES);
    if (!may_have_repository(cwd))
        return NULL;
    rc = output_of(argv, cwd, deadline, &text);
    if (rc == -ETIMEDOUT)
        return commit_at_least(cwd);
    return rc == 0 && hy_buf_cstr(&text) ? parse_status(hy_buf_cstr(&text)) : NULL;
}

/* ---- versions ------------------------------------------------------------------------ */

/* PRETTY_NAME of /etc/os-release; NULL when unknown. */
static char *system_name(void)
{
    hy_cleanup_buf struct hy_buf text;
    const char *at;
    size_t n;

    hy_buf_init(&text, 65536);
    if (hy_file_read("/etc/os-release", &text) < 0 || !hy_buf_cstr(&text))
        return NULL;
    at = strstr(hy_buf_cstr(&text), "PRETTY_NAME=");
    if (!at)
        return NULL;
    at += strlen("PRETTY_NAME=");
    at += *at == '"';
    n = strcspn(at, "\"\n");
    return hy_strndup(at, n);
}

static int set_known(json_t *o, const char *name, const char *value)
{
    return value ? hy_json_set(o, name, hy_json_text(value)) : 0;
}

/* "3.11.7" */
static char *version_of_python3(int64_t deadline)
{
    char *argv[] = {(char *)"python3", (char *)"--version", NULL};
    hy_cleanup_free char *line = hy_first_line(argv, NULL, deadline);

    return line ? hy_strdup(strncmp(line, "Python ", 7) == 0 ? line + 7 : line) : NULL;
}

/* "3.11.7" from the first line of a bundle, which is JSON; NULL if it is not there. */
static char *version_in_bundle(const uint8_t *function, size_t n)
{
    const uint8_t *end = n ? memchr(function, '\n', n) : NULL;
    hy_cleanup_json json_t *head = end ? hy_json_load((const char *)function, (size_t)(end - function), 0, NULL) : NULL;
    const char *version = json_string_value(json_object_get(head, "python"));

    return version ? hy_strdup(version) : NULL;
}

char *hy_versions(const char *program, const uint8_t *function, size_t function_n, int64_t deadline)
{
    char *known = version_in_bundle(function, function_n);
    hy_cleanup_free char *python = known ? known : version_of_python3(deadline);
    hy_cleanup_free char *name = system_name();
    hy_cleanup_json json_t *o = json_object();
    struct utsname kernel;
    int rc = 0;

    rc |= set_known(o, "hopyard", HY_VERSION);
    if (uname(&kernel) == 0)
        rc |= set_known(o, "kernel", kernel.release);
    rc |= set_known(o, "system", name);
    rc |= set_known(o, "glibc", gnu_get_libc_version());
    rc |= set_known(o, "python", python);
    rc |= set_known(o, "program", program);
    return rc < 0 ? NULL : json_dumps(o, JSON_COMPACT);
}
