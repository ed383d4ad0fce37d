/* SPDX-License-Identifier: Apache-2.0 */
/* `hopyard ui` of a program that was built without the page. */
#include "captured_log.h"
#include "support.h"
#include "view/view_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/commands.h"
#include "web/assets.h"

const struct hy_asset hy_assets[] = {{0}}; /* in place of those that the build has made */

static uint16_t listen_anywhere(int *ret_fd)
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof where;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&where, sizeof where), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&where, &size), 0);
    *ret_fd = fd;
    return ntohs(where.sin_port);
}

/* Its port is in use, so that it returns. */
HY_TEST_WITH(test_ui_without_the_page_says_so_in_one_line, NULL, log_restore)
{
    char *dir = make_directory();
    hy_cleanup_close int taken = -1;
    hy_cleanup_free char *port = hy_asprintf("%d", (int)listen_anywhere(&taken));
    char *words[] = {(char *)"--no-browser", (char *)"--project", dir, (char *)"--port", port, NULL};
    hy_cleanup_args struct hy_args args;
    struct hy_err err = {0};
    int status;

    assert_int_equal(setenv("XDG_RUNTIME_DIR", dir, 1), 0);
    assert_int_equal(hy_args_parse(hy_command_find("ui"), 5, words, &args, &err), 0);
    log_begin();
    status = hy_cmd_ui(&args);
    assert_int_equal(log_count("hopyard: this program was built without the page, since its build found no Node.js "
                               "('make setup' installs it); only /api/v1 is served"),
                     1);
    log_end();
    assert_int_not_equal(status, 0);
    remove_directory(dir);
}
