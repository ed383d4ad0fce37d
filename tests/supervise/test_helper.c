/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <stdint.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "supervise/supervise.h"
#include "base/fault.h"
#include "base/mem.h"
#include "fds.h"

struct heard {
    int count, status;
    char said[256];
};

static void on_helper(void *arg, int status, const char *said)
{
    struct heard *h = arg;

    h->count++;
    h->status = status;
    snprintf(h->said, sizeof h->said, "%s", said);
}

static int run_helper(const char *script, const char *input, int64_t timeout_ms, struct heard *heard)
{
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
    struct hy_helper_spec spec = {.file = "sh", .argv = argv, .input = input, .timeout_ms = timeout_ms};
    struct hy_helper *h = NULL;
    struct hy_err err = {0};
    uv_loop_t loop;
    int rc;

    *heard = (struct heard){0};
    uv_loop_init(&loop);
    rc = hy_helper_start(&loop, &spec, on_helper, heard, &h, &err);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(rc < 0, err.code != 0);
    return rc;
}

HY_TEST(test_a_helper_reads_speaks_and_is_over)
{
    struct heard h;
    int before;

    assert_int_equal(run_helper("true", NULL, 10000, &h), 0); /* libuv opens what it keeps */
    before = count_fds();
    assert_int_equal(run_helper("read x; echo got $x; echo oops >&2; exit 3", "word\n", 10000, &h), 0);
    assert_int_equal(h.count, 1);
    assert_int_equal(h.status, 3);
    assert_string_equal(h.said, "got word\noops\n");
    assert_int_equal(run_helper("kill -9 $$", NULL, 10000, &h), 0);
    assert_int_equal(h.status, 128 + SIGKILL);
    assert_int_equal(count_fds(), before);
}

HY_TEST(test_a_helper_that_hangs_is_ended)
{
    struct heard h;

    assert_int_equal(run_helper("echo before; exec sleep 1000", NULL, 50, &h), 0);
    assert_int_equal(h.count, 1);
    assert_int_equal(h.status, -ETIMEDOUT);
}

HY_TEST(test_a_daemon_of_a_helper_does_not_delay_the_callback)
{
    struct heard h;

    assert_int_equal(run_helper("setsid sleep 1000 & echo $!", NULL, 10000, &h), 0);
    assert_int_equal(h.status, 0);
    assert_true(atoi(h.said) > 1);
    assert_int_equal(kill(atoi(h.said), SIGKILL), 0);
}

HY_TEST(test_a_missing_helper_program_is_an_error)
{
    char *argv[] = {(char *)"no-such-program", NULL}, *env[] = {(char *)"PATH=/usr/bin:/bin", NULL};
    struct hy_helper_spec spec = {.file = argv[0], .argv = argv, .env = env, .timeout_ms = 1000};
    struct hy_helper *h = NULL;
    struct hy_err err = {0};
    struct heard heard = {0};
    uv_loop_t loop;

    uv_loop_init(&loop);
    assert_int_equal(hy_helper_start(&loop, &spec, on_helper, &heard, &h, &err), -ENOENT);
    assert_non_null(strstr(err.text, "'no-such-program'"));
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(heard.count, 0);
}

HY_TEST(test_a_helper_survives_every_failing_call)
{
    static const enum hy_seam seams[] = {HY_SEAM_ALLOC, HY_SEAM_SYS};
    int before = count_fds();

    for (size_t s = 0; s < HY_COUNT(seams); s++) {
        long n = 0, passed;

        do {
            struct heard h;
            int rc;

            hy_fault_arm(seams[s], ++n);
            rc = run_helper("true", "input", 10000, &h);
            passed = hy_fault_passed(seams[s]);
            hy_fault_arm(seams[s], 0);
            assert_int_equal(h.count, rc == 0);
            assert_int_equal(count_fds(), before);
        } while (passed >= n);
    }
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    return hy_run_tests(argc > 1 ? argv[1] : NULL, NULL, NULL);
}
