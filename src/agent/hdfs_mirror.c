/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies the files of a trial directly to HDFS, if the project is there and the agent
 * has no access to the driver's directory.
 *
 * A helper process does it (`hopyard agent --mirror`), since the calls of fs.h block:
 * one for each trial that runs for a while, and one for each at its end. It copies
 * until its standard input ends; then all files must be copied. If HDFS does not
 * answer for GIVE_UP_MS after that, the files go over the driver's link.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "supervise/supervise.h"
#include "agent/trial.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "fs/fs.h"
#include "wire/wire.h"

#define LOOK_MS 3000
#define AGAIN_MS 1000 /* after the trial has ended */
#define GIVE_UP_MS (3 * 60 * 1000)

struct mirror {
    struct trial *trial;
    struct hy_helper *helper; /* NULL: it has ended */
    int gate;                 /* the helper reads the other end */
    bool is_ending;
};

/* The driver mirrors these: it needs the checkpoint for the next attempt, and has the output already. */
bool hy_agent_mirror_skips(const char *path)
{
    return strcmp(path, "checkpoint") == 0 || strncmp(path, "checkpoint/", 11) == 0 || strcmp(path, "stdout") == 0 ||
           strcmp(path, "stderr") == 0;
}

/* ---- in the agent ------------------------------------------------------------------ */

static void on_end(void *arg, int status, const char *said)
{
    struct mirror *m = arg;
    const int length = (int)strcspn(said, "\n");

    m->helper = NULL;
    if (status != 0)
        hy_warn_limited(
            "a trial's files go over the driver's link, not directly to HDFS trial=%llu status=%d error=%.*s",
            (unsigned long long)m->trial->number, status, length, said);
    hy_agent_upload_mirrored(m->trial, m->is_ending && status == 0);
}

static int begin(struct mirror *m, struct hy_err *err)
{
    const struct agent *a = m->trial->agent;
    hy_cleanup_free char *url = hy_fs_join(a->welcomed->welcome->url, m->trial->dir + strlen(a->root) + 1);
    const uint64_t max_transfer = hy_limits_transfer(a->welcomed->welcome->max_transfer);
    hy_cleanup_free char *limit = hy_asprintf("%llu", (unsigned long long)max_transfer);
    char *argv[] = {(char *)"hopyard", (char *)"agent", (char *)"--mirror", m->trial->dir, url, limit, NULL};
    struct hy_helper_spec spec = {.file = "/proc/self/exe", .argv = argv, .env = a->env};
    int ends[2], rc;

    if (!url || !limit)
        return hy_err_oom(err);
    if (HY_SYS(pipe2(ends, O_CLOEXEC)) < 0)
        return hy_err_sys(err, -errno, "cannot make a pipe");
    m->gate = ends[1];
    spec.input_fd = ends[0];
    rc = hy_helper_start(&m->trial->agent->loop, &spec, on_end, m, &m->helper, err);
    close(ends[0]);
    return rc;
}

struct mirror *hy_agent_mirror_start(struct trial *t)
{
    struct mirror *m = hy_calloc(1, sizeof *m);
    struct hy_err err = {0};

    if (!m) {
        hy_agent_end(t->agent, 1, "out of memory");
        return NULL;
    }
    m->trial = t;
    m->gate = -1;
    if (begin(m, &err) == 0)
        return m;
    hy_warn_limited("a trial's files go over the driver's link, not directly to HDFS trial=%llu error=%s",
                    (unsigned long long)t->number, err.text);
    hy_agent_mirror_free(m);
    return NULL;
}

void hy_agent_mirror_end(struct mirror *m)
{
    m->is_ending = true;
    close(hy_take_fd(m->gate));
    hy_helper_limit(m->helper, GIVE_UP_MS);
}

void hy_agent_mirror_free(struct mirror *m)
{
    if (!m)
        return;
    hy_helper_cancel(m->helper);
    hy_close_at(&m->gate);
    free(m);
}

/* ---- in the helper ------------------------------------------------------------------ */

/* The end of standard input. */
static bool is_over(int timeout_ms)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

    return poll(&input, 1, timeout_ms) > 0;
}

/* Retrying does not help; and the driver may have permissions that we lack. */
static bool is_refused(int rc)
{
    return rc == -EACCES || rc == -EPERM || rc == -EDQUOT || rc == -EINVAL || rc == -ENAMETOOLONG || rc == -EFBIG;
}

int hy_agent_mirror_main(const char *directory, const char *url, const char *limit)
{
    struct hy_fs_mirror *m = hy_fs_mirror_new(directory, url, hy_agent_mirror_skips);
    bool is_last = false;
    uint64_t bytes;
    int rc = -ENOMEM;

    if (m && hy_parse_u64(limit, &bytes) == 0)
        hy_fs_mirror_limit(m, bytes);
    while (m) {
        struct hy_err err = {0};

        rc = hy_fs_mirror_sync(m, is_last, &err);
        if (rc < 0)
            fprintf(stderr, "%s\n", err.text);
        if ((rc == 0 && is_last) || is_refused(rc))
            break;
        if (!is_last)
            is_last = is_over(LOOK_MS);
        else
            poll(NULL, 0, AGAIN_MS);
    }
    hy_fs_mirror_free(m);
    return rc < 0;
}
