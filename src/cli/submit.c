/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hopyard driver --submit`: starts a run for a client library.
 *
 * Reads a Submission from standard input, does what the command of that name
 * would do with these options, and writes one Submitted to standard output. The
 * process is a short-lived child of the client; the driver is not.
 */
#include "cli/submit.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/project.h"
#include "cli/run_spec.h"
#include "cli/start.h"
#include "driver/driver.h"
#include "wire/wire.h"

static Hy__Submission *read_submission(struct hy_err *err)
{
    hy_cleanup_buf struct hy_buf bytes;
    Hy__Submission *s;
    int rc;

    hy_buf_init(&bytes, HY_SUBMISSION_LIMIT);
    rc = hy_read_all(STDIN_FILENO, &bytes);
    if (rc == -ENOBUFS)
        hy_err_set(err, -EINVAL,
                   "the function and its parameters are larger than %u MB; load large data in the function",
                   HY_SUBMISSION_LIMIT >> 20);
    else if (rc < 0)
        hy_err_sys(err, rc, "cannot read the submission");
    if (rc < 0)
        return NULL;
    s = hy__submission__unpack(&hy_proto_memory, bytes.len, hy_buf_bytes(&bytes));
    if (!s)
        hy_err_set(err, -EINVAL, "the submission is invalid; `hopyard driver` is started by the Python package");
    return s;
}

int hy_submission_args(Hy__Submission *s, struct hy_args *ret, struct hy_err *err)
{
    const struct hy_command *c = hy_command_find(s->command);
    int rc;

    if (!c || !c->start)
        return hy_err_set(err, -EINVAL, "'%s' does not start a run", s->command);
    if (!s->spec)
        return hy_err_set(err, -EINVAL, "the submission has no specification");
    rc = hy_args_begin(c, s->n_options, ret, err);
    for (size_t i = 0; i < s->n_options && rc == 0; i++)
        rc = hy_args_add(ret, s->options[i]->name, s->options[i]->value, err);
    if (rc == 0 && *s->run)
        ret->words[ret->word_count++] = s->run;
    ret->submitted = &s->spec;
    return rc;
}

static int start(Hy__Submission *s, struct hy_started *ret, struct hy_err *err)
{
    hy_cleanup_args struct hy_args args = {0};
    hy_cleanup_free char *project = NULL;
    int rc = hy_submission_args(s, &args, err);

    if (rc < 0)
        return rc;
    project = strcmp(s->command, "resume") == 0 ? hy_project(&args, err) : hy_project_made(&args, err);
    return project ? args.command->start(&args, project, ret, err) : err->code;
}

static int answer(const struct hy_started *started, const struct hy_err *err)
{
    Hy__Submitted submitted = HY__SUBMITTED__INIT;
    uint8_t bytes[sizeof err->text + 8192];

    if (err->code) {
        submitted.option = (char *)(err->option ? err->option : "");
        submitted.text = (char *)err->text;
    } else {
        submitted.run = started->run;
        submitted.socket = started->socket;
    }
    if (hy__submitted__get_packed_size(&submitted) > sizeof bytes)
        return -E2BIG;
    return hy_write_all(STDOUT_FILENO, bytes, hy__submitted__pack(&submitted, bytes));
}

static int submit(void)
{
    hy_cleanup_started struct hy_started started = {0};
    struct hy_err err = {0};
    Hy__Submission *s;
    int rc;

    syscall(SYS_close_range, 3, ~0U, 0); /* the client's, of libraries that do not mark theirs */
    s = read_submission(&err);
    if (s && start(s, &started, &err) == 0)
        err.code = 0;
    rc = answer(&started, &err);
    if (s)
        hy__submission__free_unpacked(s, &hy_proto_memory);
    return rc < 0 || err.code ? HY_EXIT_FAILED : HY_EXIT_OK;
}

int hy_cmd_driver(int argc, char **argv)
{
    return argc == 2 && strcmp(argv[1], "--submit") == 0 ? submit() : hy_driver_main(argc, argv);
}
