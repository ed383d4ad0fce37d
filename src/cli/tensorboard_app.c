/* SPDX-License-Identifier: Apache-2.0 */
/* `tensorboard --sock`: TensorBoard behind the page (web/apps/apps.h). */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/tensorboard_viewer.h"

/* TensorBoard's own server listens on TCP only, and its data server (load_fast) on a TCP port that any local user can
 * read; launch() would register the server in /tmp, which all users can read. */
static const char launcher[] = "import os, signal, socketserver, sys\n"
                               "from tensorboard import default, program\n"
                               "from werkzeug import serving\n"
                               "class Handler(serving.WSGIRequestHandler):\n"
                               "    def log(self, *arguments):\n"
                               "        pass\n"
                               "class Server(serving.ThreadedWSGIServer):\n"
                               "    daemon_threads = True\n"
                               "    def __init__(self, app, flags):\n"
                               "        super().__init__('unix://' + sys.argv[1], 0, app, Handler)\n"
                               "    def server_bind(self):\n" /* without a look-up of the path as a host name */
                               "        socketserver.TCPServer.server_bind(self)\n"
                               "        self.server_name, self.server_port = 'localhost', 0\n"
                               "    def get_url(self):\n"
                               "        return ''\n"
                               "os.umask(0o077)\n"
                               "board = program.TensorBoard(default.get_plugins(), server_class=Server)\n"
                               "board.configure(argv=['tensorboard'] + sys.argv[2:])\n"
                               "board.launch()\n"
                               "signal.pause()\n";

/* "3:/path/of/3,5:/path/of/5" */
static int add_directory(struct hy_buf *spec, const char *run, const char *directory, struct hy_err *err)
{
    if (strchr(directory, ','))
        return hy_err_set(err, -EINVAL,
                          "TensorBoard cannot show several runs when a path has a comma (%s); open them one by one",
                          directory);
    return hy_buf_printf(spec, "%s%s:%s", spec->len ? "," : "", run, directory) < 0 ? hy_err_oom(err) : 0;
}

/* The directories of all runs, and the Python of the first. */
static int find_all(const struct hy_args *args, struct hy_buf *spec, struct hy_tensorboard_viewer *viewer,
                    struct hy_err *err)
{
    int rc = 0;

    for (size_t i = 0; i < args->word_count && rc == 0; i++) {
        struct hy_tensorboard_target t = {0};

        rc = hy_tensorboard_target(args, args->words[i], &t, err);
        if (rc == 0 && i == 0)
            rc = hy_tensorboard_viewer(&t, true, viewer, err);
        if (rc == 0 && args->word_count == 1)
            rc = hy_buf_append_str(spec, t.directory);
        else if (rc == 0)
            rc = add_directory(spec, args->words[i], t.directory, err);
        hy_tensorboard_target_done(&t);
    }
    return rc;
}

static int exec_app(const struct hy_args *args, const char *program, const char *spec, struct hy_err *err)
{
    const char *prefix = hy_args_get(args, "prefix");
    const char *argv[] = {program,
                          "-c",
                          launcher,
                          hy_args_get(args, "sock"),
                          args->word_count == 1 ? "--logdir" : "--logdir_spec",
                          spec,
                          "--reload_multifile",
                          "true",
                          "--load_fast",
                          "false",
                          "--path_prefix",
                          prefix ? prefix : "",
                          NULL};

    hy_tensorboard_lower_priority(STDERR_FILENO);
    /* TensorFlow reserves GPUs when it is imported; 'python -c' would import modules from the current directory. */
    if (setenv("CUDA_VISIBLE_DEVICES", "", 1) == 0 && chdir("/") == 0)
        execv(program, (char *const *)(uintptr_t)argv);
    return hy_err_sys(err, -errno, "cannot run %s", program);
}

int hy_tensorboard_app(const struct hy_args *args)
{
    hy_cleanup_buf struct hy_buf spec;
    struct hy_tensorboard_viewer viewer = {0};
    struct hy_err err = {0};
    int rc;

    hy_buf_init(&spec, SIZE_MAX);
    rc = args->word_count ? find_all(args, &spec, &viewer, &err) : hy_err_set(&err, -EINVAL, "no run was given");
    if (rc == 0)
        rc = hy_tensorboard_check(&viewer, &err);
    if (rc == 0)
        rc = hy_buf_cstr(&spec) ? exec_app(args, viewer.program, hy_buf_cstr(&spec), &err) : hy_err_oom(&err);
    free(viewer.program);
    return hy_cmd_failed(args, &err);
}
