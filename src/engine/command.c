/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/command.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"

struct hy_program {
    void *bytes;
    size_t size;
    int refs;
    char id[33]; /* the first half of its SHA-256 */
};

static struct hy_program *shared; /* while there are references */

void hy_argv_free(char ***argv)
{
    for (char **a = *argv; a && *a; a++)
        free(*a);
    free(*argv);
    *argv = NULL;
}

/* A copy of `words`; NULL when out of memory, also when one of them is NULL. */
static char **argv_of(const char *const *words, size_t n, struct hy_err *err)
{
    char **argv = hy_calloc(n + 1, sizeof *argv);

    for (size_t i = 0; argv && i < n; i++) {
        argv[i] = words[i] ? hy_strdup(words[i]) : NULL;
        if (!argv[i])
            hy_argv_free(&argv);
    }
    if (!argv)
        hy_err_oom(err);
    return argv;
}

static int map_program(struct hy_program *p, struct hy_err *err)
{
    hy_cleanup_close int fd = HY_SYS(open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n;
    struct stat st;

    if (fd < 0 || HY_SYS(fstat(fd, &st)) < 0)
        return hy_err_sys(err, -errno, "cannot read this program to copy it to a host");
    p->size = (size_t)st.st_size;
    p->bytes = mmap(NULL, p->size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p->bytes == MAP_FAILED)
        return hy_err_sys(err, -errno, "cannot read this program to copy it to a host");
    if (!EVP_Digest(p->bytes, p->size, digest, &n, EVP_sha256(), NULL)) {
        munmap(p->bytes, p->size);
        return hy_err_set(err, -EIO, "cannot hash this program to copy it to a host");
    }
    for (int i = 0; i < 16; i++)
        snprintf(p->id + 2 * i, 3, "%02x", digest[i]);
    return 0;
}

struct hy_program *hy_program_open(struct hy_err *err)
{
    struct hy_program *p = shared;

    if (!p) {
        p = hy_calloc(1, sizeof *p);
        if (!p) {
            hy_err_oom(err);
            return NULL;
        }
        if (map_program(p, err) < 0) {
            free(p);
            return NULL;
        }
        shared = p;
    }
    p->refs++;
    return p;
}

void hy_program_unref(struct hy_program *p)
{
    if (!p || --p->refs > 0)
        return;
    shared = NULL;
    munmap(p->bytes, p->size);
    free(p);
}

const void *hy_program_bytes(const struct hy_program *p)
{
    return p->bytes;
}

size_t hy_program_size(const struct hy_program *p)
{
    return p->size;
}

char **hy_command_local(const struct hy_agent_order *order, struct hy_err *err)
{
    hy_cleanup_free char *join = hy_asprintf("127.0.0.1:%u", order->port);
    hy_cleanup_free char *slots = hy_asprintf("%u", order->slots);
    hy_cleanup_free char *files = hy_asprintf("%llu", (unsigned long long)order->open_files);
    const char *words[] = {"hopyard",      "agent",     "--join",    join,  "--identity", order->identity,
                           "--name",       order->name, "--slots",   slots, "--key-file", "-",
                           "--open-files", files,       "--hold-fd", "3"};

    return argv_of(words, HY_COUNT(words) - (order->hold_fd < 0 ? 2 : 0), err);
}

/*
 * One ssh does everything: it reports whether the host has the program (in a directory
 * named after its hash, so that older versions are ignored), reads it from standard
 * input if not, and runs the agent, which reads its key from there. The agent connects
 * to the address from which ssh came.
 *
 * A user who can write there could replace the program, so the directories and the file
 * must belong to us.
 *
 * A truncated copy has the wrong size and is removed. The shell waits for the agent, so
 * that status 255 means that ssh itself failed (a command that a signal ends would give
 * 255 too).
 */
static const char ssh_script[] =
    "b=${XDG_CACHE_HOME:-$HOME/.cache}/hopyard; d=$b/bin/%s; f=$d/hopyard; p=$d/part.%s; n=%zu; "
    "(umask 077; mkdir -p \"$d\") || exit 1; "
    "for x in \"$b\" \"$b/bin\" \"$d\"; do if [ -h \"$x\" ] || [ ! -O \"$x\" ]; then "
    "echo \"$x is a symbolic link or belongs to another user, and no program is run from there: remove it\" >&2; exit "
    "1; fi; "
    "chmod go-w \"$x\" 2>/dev/null || [ ! -w \"$x\" ] || exit 1; done; "
    "if [ -O \"$f\" ] && [ ! -h \"$f\" ] && [ -x \"$f\" ] && [ $(wc -c <\"$f\") -eq $n ]; then "
    "echo " HY_PROGRAM_IS_THERE "; else "
    "echo " HY_PROGRAM_IS_MISSING " && head -c $n >\"$p\" && [ $(wc -c <\"$p\") -eq $n ] && "
    "chmod 700 \"$p\" && mv \"$p\" \"$f\" || { rm -f \"$p\"; exit 1; }; fi; "
    "\"$f\" agent --join \"[${SSH_CONNECTION%%%% *}]:%u\" --identity %s --name \"%s\" --slots %u --key-file -; exit $?";

static bool is_safe_word(const char *word)
{
    return *word && *word != '-' &&
           strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                        "._-@:[]%") == strlen(word);
}

/* ssh takes an IPv6 address without brackets. */
static char *without_brackets(const char *host)
{
    size_t n = strlen(host);

    return host[0] == '[' && host[n - 1] == ']' ? hy_strndup(host + 1, n - 2) : hy_strdup(host);
}

/* `host` and `command` may be NULL (out of memory). */
static char **ssh_argv(const struct hy_agent_order *order, const char *host, const char *command, struct hy_err *err)
{
    const char *words[16] = {"ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=10",
                             "-T"};
    size_t n = 8;
    char port[16];

    snprintf(port, sizeof port, "%u", order->ssh_port);
    if (order->ssh_port) {
        words[n++] = "-p";
        words[n++] = port;
    }
    if (order->ssh_identity && *order->ssh_identity) {
        words[n++] = "-i";
        words[n++] = order->ssh_identity;
    }
    words[n++] = host;
    words[n++] = command;
    return argv_of(words, n, err);
}

char **hy_command_ssh(const struct hy_agent_order *order, struct hy_err *err)
{
    struct hy_program *program;
    hy_cleanup_free char *script = NULL, *command = NULL, *host = NULL;

    if (!is_safe_word(order->host) || !is_safe_word(order->name)) {
        hy_err_set(err, -EINVAL, "'%s' is not a host name", order->host);
        return NULL;
    }
    program = hy_program_open(err);
    if (!program)
        return NULL;
    script = hy_asprintf(ssh_script, program->id, order->identity, program->size, order->port, order->identity,
                         order->name, order->slots);
    hy_program_unref(program);
    host = without_brackets(order->host);
    command = script ? hy_asprintf("exec sh -c '%s'", script) : NULL;
    return ssh_argv(order, host, command, err);
}
