/* SPDX-License-Identifier: Apache-2.0 */
/* Output of a training: live table, summary, output of its ranks, scaling. */
#include "support.h"

#include "view/view_fixture.h"

#include <errno.h>

#include "base/clock.h"
#include "view/live_view.h"
#include "cli/scaling.h"
#include "cli/rank_output.h"
#include "view/run_lines.h"
#include "driver/driver.h"

/* ---- displays ------------------------------------------------------------------------ */

static Hy__TrialView *rank_view(uint32_t rank, const char *view_state, const char *message)
{
    Hy__TrialView *t = trial(rank + 1, view_state, NAN, message);
    char text[40];

    snprintf(text, sizeof text, "{\"rank\": %u}", rank);
    free(t->params);
    t->params = copy(text);
    return t;
}

/* Three ranks: rank 1 has failed, the others are running. */
static Hy__Update *training(void)
{
    Hy__Update *u = update(2, 1);

    hy__trial_view__free_unpacked(u->best, &hy_proto_memory);
    u->best = NULL;
    free(u->metric);
    u->metric = copy("");
    u->ranks = 3;
    u->total = 3;
    u->done = 0;
    for (size_t i = 0; i < 2; i++) {
        hy__trial_view__free_unpacked(u->running[i], &hy_proto_memory);
        u->running[i] = rank_view(2 - 2 * (uint32_t)i, "running", "");
    }
    hy__trial_view__free_unpacked(u->ended[0], &hy_proto_memory);
    u->ended[0] = rank_view(1, "failed", "exit status 1");
    return u;
}

static Hy__Update *ended_training(void)
{
    Hy__Update *u = training();

    free(u->state);
    u->state = copy("failed");
    u->message = copy("rank 1 on a ended with exit status 1");
    u->done = 2;
    u->last = true;
    return u;
}

HY_TEST(test_the_live_table_lists_ranks_in_order)
{
    struct hy_live_view board = {0};
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &ascii80);
    assert_int_equal(hy_live_view_take(&board, training(), 1000), 0);
    assert_int_equal(hy_live_view_text(&board, &out, 2000, 0, NULL), 0);
    assert_string_equal(text_of(&out), "run 3 digits  running  43s  3 ranks  1 failed  2 running\n"
                                       "\n"
                                       "rank  state    time\n"
                                       "   0  running  4.2s\n"
                                       "   1  failed   3.2s  exit status 1\n"
                                       "   2  running  4.2s\n");
    hy_live_view_done(&board);
}

HY_TEST(test_the_summary_shows_the_first_failed_rank_and_its_last_lines)
{
    struct hy_live_view board = {0};
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &ascii80);
    assert_int_equal(hy_live_view_take(&board, ended_training(), 1000), 0);
    hy_live_view_take_first_failure(&board, rank_view(1, "failed", "exit status 1"),
                                    strdup("Traceback:\nValueError: no data"));
    assert_int_equal(hy_live_view_summary(&board, &out), 0);
    assert_string_equal(text_of(&out), "failed  run 3 digits  3 ranks in 42s:  2 done  1 failed\n"
                                       "  ! rank 1 on a ended with exit status 1\n"
                                       "      Traceback:\n"
                                       "      ValueError: no data\n"
                                       "  logs  /p/Logs/TensorFlow/local-1/1\n"
                                       "  open  hopyard tensorboard 3\n"
                                       "  more  hopyard show 3, hopyard logs 3 1, hopyard resume 3\n");
    hy_live_view_done(&board);
}

HY_TEST(test_an_html_fragment_with_last_lines_is_one_line)
{
    struct hy_live_view board = {0};
    hy_cleanup_out struct hy_out out = {0};
    const char *html;

    hy_out_init(&out, &hy_html_style);
    assert_int_equal(hy_live_view_take(&board, ended_training(), 1000), 0);
    hy_live_view_take_first_failure(&board, rank_view(1, "failed", "exit status 1"),
                                    strdup("a < b\nValueError: no data"));
    assert_int_equal(hy_live_view_html(&board, &out, 1000), 0);
    html = text_of(&out);
    assert_non_null(strstr(html, "rank 1 on a ended with exit status 1"));
    assert_non_null(strstr(html, "a &lt; b<br>ValueError: no data<br>"));
    assert_non_null(strstr(html, "3 ranks"));
    assert_null(strstr(html, "trial"));
    assert_ptr_equal(strchr(html, '\n'), html + strlen(html) - 1);
    hy_live_view_done(&board);
}

HY_TEST(test_text_lines_of_a_training_name_ranks)
{
    struct hy_run_lines teller = {.seed = 7};
    hy_cleanup_out struct hy_out out = {0};
    Hy__Update *u = ended_training();

    hy_out_init(&out, &bare);
    assert_int_equal(hy_run_lines_update(&teller, u, &out), 0);
    assert_string_equal(text_of(&out), "run 3 digits: 3 ranks, seed 7, logs in /p/Logs/TensorFlow/local-1/1\n"
                                       "run 3 failed: 2 done, 1 failed in 42s\n"
                                       "logs in /p/Logs/TensorFlow/local-1/1; 'hopyard tensorboard 3' shows them\n"
                                       "'hopyard resume 3' continues the run\n");
    hy__update__free_unpacked(u, &hy_proto_memory);
}

HY_TEST(test_resume_is_suggested_only_if_possible)
{
    static const struct {
        Hy__Resume how;
        const char *in_pipe, *in_table;
    } cases[] = {{HY__RESUME__BY_PROGRAM, "'hopyard resume 3' continues the run\n", ", hopyard resume 3\n"},
                 {HY__RESUME__BY_SESSION, "'experiment.resume(3, spark=spark)' continues the run\n",
                  ", experiment.resume(3, spark=spark)\n"},
                 {HY__RESUME__NEVER, "shows them\n", "hopyard logs 3 1\n"}};

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        hy_cleanup_out struct hy_out pipe = {0}, table = {0};
        struct hy_run_lines teller = {.seed = 7};
        struct hy_live_view board = {0};
        Hy__Update *u = ended_training();

        u->resume = cases[i].how;
        hy_out_init(&pipe, &bare);
        hy_out_init(&table, &ascii80);
        assert_int_equal(hy_run_lines_update(&teller, u, &pipe), 0);
        assert_int_equal(hy_live_view_take(&board, u, 1000), 0);
        assert_int_equal(hy_live_view_summary(&board, &table), 0);
        assert_string_equal(text_of(&pipe) + strlen(text_of(&pipe)) - strlen(cases[i].in_pipe), cases[i].in_pipe);
        assert_string_equal(text_of(&table) + strlen(text_of(&table)) - strlen(cases[i].in_table), cases[i].in_table);
        hy_live_view_done(&board);
    }
}

HY_TEST(test_runs_that_cannot_be_resumed_are_recognized)
{
    Hy__RunSpec spec = HY__RUN_SPEC__INIT;

    assert_int_equal(hy_run_resume(NULL), HY__RESUME__BY_PROGRAM);
    assert_int_equal(hy_run_resume(&spec), HY__RESUME__BY_PROGRAM);
    spec.engine = (char *)"spark";
    assert_int_equal(hy_run_resume(&spec), HY__RESUME__BY_SESSION);
    spec.master = (char *)"yarn";
    assert_int_equal(hy_run_resume(&spec), HY__RESUME__BY_PROGRAM);
    spec.fed = true;
    assert_int_equal(hy_run_resume(&spec), HY__RESUME__NEVER);
}

HY_TEST(test_json_lines_contain_the_number_of_ranks)
{
    struct hy_run_lines teller = {.json = true};
    hy_cleanup_out struct hy_out out = {0};
    Hy__Update *u = training();

    hy_out_init(&out, &bare);
    assert_int_equal(hy_run_lines_update(&teller, u, &out), 0);
    assert_non_null(strstr(text_of(&out), "\"ranks\": 3"));
    assert_non_null(strstr(text_of(&out), "\"params\": {\"rank\": 1}"));
    hy__update__free_unpacked(u, &hy_proto_memory);
}

/* ---- output of ranks -------------------------------------------------------------------- */

struct printing {
    char *logdir;
    char *ranks[2];
};

static void printing_begin(struct printing *p)
{
    p->logdir = make_directory();
    for (int i = 0; i < 2; i++) {
        p->ranks[i] = hy_asprintf("%s/rank=%d", p->logdir, i);
        assert_int_equal(hy_mkdirs(p->ranks[i], 0700), 0);
    }
}

static void printing_end(struct printing *p)
{
    free(p->ranks[0]);
    free(p->ranks[1]);
    remove_directory(p->logdir);
}

static void append_to(const char *directory, const char *name, const char *text)
{
    hy_cleanup_free char *path = hy_asprintf("%s/%s", directory, name);
    FILE *f = fopen(path, "a");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

HY_TEST(test_lines_of_ranks_are_complete_and_shown_once)
{
    hy_cleanup_out struct hy_out out = {0}, err = {0};
    struct hy_rank_output s;
    struct printing p;

    printing_begin(&p);
    hy_out_init(&out, &bare);
    hy_out_init(&err, &bare);
    assert_int_equal(hy_rank_output_init(&s, p.logdir, &(Hy__RunSpec){.ranks = 2}, true), 0);
    s.text = (struct hy_log_format){.prefix = HY_LOG_RANKED};
    assert_int_equal(hy_rank_output_read(&s, false, &out, &err), 0); /* no files yet */
    append_to(p.ranks[0], "stdout", "one\ntw");
    append_to(p.ranks[1], "stderr", "trouble\n");
    assert_int_equal(hy_rank_output_read(&s, false, &out, &err), 0);
    assert_string_equal(text_of(&out), "[0] one\n");
    append_to(p.ranks[0], "stdout", "o\nthree");
    assert_int_equal(hy_rank_output_read(&s, false, &out, &err), 0);
    assert_string_equal(text_of(&out), "[0] one\n[0] two\n");
    assert_int_equal(hy_rank_output_read(&s, true, &out, &err), 0);
    assert_string_equal(text_of(&out), "[0] one\n[0] two\n[0] three\n");
    assert_string_equal(text_of(&err), "[1] trouble\n");
    hy_rank_output_done(&s);
    printing_end(&p);
}

/* ---- the nodes of a cluster ------------------------------------------------------------- */

struct cluster {
    Hy__RoleSpec rows[4], *list[4];
    Hy__RunSpec spec;
};

/* Two servers, a chief, an evaluator, two workers. */
static void cluster_begin(struct cluster *c)
{
    static const char *const names[] = {"ps", "chief", "evaluator", "worker"};
    static const uint32_t counts[] = {2, 1, 1, 2};

    hy__run_spec__init(&c->spec);
    for (size_t i = 0; i < HY_COUNT(names); i++) {
        hy__role_spec__init(&c->rows[i]);
        c->rows[i].name = (char *)names[i];
        c->rows[i].count = counts[i];
        c->list[i] = &c->rows[i];
        c->spec.ranks += counts[i];
    }
    c->spec.roles = c->list;
    c->spec.n_roles = HY_COUNT(names);
}

HY_TEST(test_nodes_are_numbered_role_by_role)
{
    static const struct {
        const char *name;
        bool is_server, has_rank;
        uint32_t rank;
    } wanted[] = {{"ps-0", true, false, 0},         {"ps-1", true, false, 0},     {"chief-0", false, true, 0},
                  {"evaluator-0", false, false, 1}, {"worker-0", false, true, 1}, {"worker-1", false, true, 2}};
    const Hy__RunSpec plain = {.ranks = 3};
    char name[HY_NODE_NAME_MAX];
    struct cluster c;

    cluster_begin(&c);
    for (uint64_t i = 0; i < HY_COUNT(wanted); i++) {
        assert_string_equal(hy_node_name(&c.spec, i + 1, name), wanted[i].name);
        assert_int_equal(hy_node_is_server(&c.spec, i + 1), wanted[i].is_server);
        assert_int_equal(hy_node_has_rank(&c.spec, i + 1), wanted[i].has_rank);
        assert_int_equal(hy_node_rank(&c.spec, i + 1), wanted[i].rank);
    }
    assert_null(hy_node_of(&c.spec, 0).role);
    assert_null(hy_node_of(&c.spec, 7).role);
    assert_int_equal(hy_spec_servers(&c.spec), 2);
    assert_int_equal(hy_spec_ranks(&c.spec), 3);
    assert_string_equal(hy_node_name(&plain, 3, name), "2"); /* a training without roles */
    assert_true(hy_node_has_rank(&plain, 3) && !hy_node_is_server(&plain, 3));
    assert_int_equal(hy_spec_ranks(&plain), 3);
}

HY_TEST(test_lines_of_nodes_are_prefixed_with_their_names)
{
    hy_cleanup_out struct hy_out out = {0};
    hy_cleanup_free char *worker = NULL, *chief = NULL, *last = NULL;
    struct hy_rank_output s;
    struct printing p;
    struct cluster c;

    printing_begin(&p);
    cluster_begin(&c);
    hy_out_init(&out, &bare);
    worker = hy_asprintf("%s/node=worker-1", p.logdir);
    chief = hy_asprintf("%s/node=chief-0", p.logdir);
    assert_int_equal(hy_mkdirs(worker, 0700), 0);
    assert_int_equal(hy_mkdirs(chief, 0700), 0);
    append_to(worker, "stdout", "one\n");
    append_to(chief, "stdout", "two\n");
    assert_int_equal(hy_rank_output_init(&s, p.logdir, &c.spec, true), 0);
    memset(&c.spec, 0, sizeof c.spec); /* clients unpack the spec again */
    s.text = (struct hy_log_format){.prefix = HY_LOG_RANKED};
    assert_int_equal(hy_rank_output_read(&s, true, &out, &out), 0);
    assert_string_equal(text_of(&out), "[chief-0] two\n[worker-1] one\n");
    hy_rank_output_done(&s);
    cluster_begin(&c);
    hy_buf_clear(&out.buf);
    assert_int_equal(hy_rank_output_init(&s, p.logdir, &c.spec, false), 0); /* the chief alone */
    s.text = (struct hy_log_format){.prefix = HY_LOG_LINES};
    assert_int_equal(hy_rank_output_read(&s, true, &out, &out), 0);
    assert_string_equal(text_of(&out), "two\n");
    hy_rank_output_done(&s);
    last = hy_last_lines(p.logdir, &c.spec, 6, 1);
    assert_string_equal(last, "one\n");
    printing_end(&p);
}

HY_TEST(test_output_of_a_restarted_rank_is_shown_from_its_start)
{
    hy_cleanup_out struct hy_out out = {0};
    hy_cleanup_free char *before = NULL, *after = NULL;
    struct hy_rank_output s;
    struct printing p;

    printing_begin(&p);
    hy_out_init(&out, &bare);
    append_to(p.ranks[0], "stdout", "of the first attempt\n");
    assert_int_equal(hy_rank_output_init(&s, p.logdir, &(Hy__RunSpec){.ranks = 1}, true), 0);
    s.text = (struct hy_log_format){.prefix = HY_LOG_LINES};
    assert_int_equal(hy_rank_output_since(&s, hy_clock_wall_ms() + 1000), 0); /* skips older files */
    assert_int_equal(hy_rank_output_read(&s, false, &out, &out), 0);
    assert_int_equal(out.buf.len, 0);
    before = hy_asprintf("%s/stdout", p.ranks[0]);
    after = hy_asprintf("%s/stdout.1", p.ranks[0]);
    assert_int_equal(rename(before, after), 0);
    append_to(p.ranks[0], "stdout", "of the second attempt, which is longer\n");
    assert_int_equal(hy_rank_output_read(&s, true, &out, &out), 0);
    assert_string_equal(text_of(&out), "of the second attempt, which is longer\n");
    hy_rank_output_done(&s);
    printing_end(&p);
}

HY_TEST(test_a_late_client_sees_the_last_lines)
{
    hy_cleanup_out struct hy_out out = {0};
    struct hy_rank_output s;
    struct printing p;
    const char *text;

    printing_begin(&p);
    hy_out_init(&out, &bare);
    for (int i = 0; i < 1000; i++)
        append_to(p.ranks[0], "stdout", "a line of twenty-six bytes\n");
    append_to(p.ranks[0], "stdout", "the last one\n");
    assert_int_equal(hy_rank_output_init(&s, p.logdir, &(Hy__RunSpec){.ranks = 2}, true), 0);
    s.text = (struct hy_log_format){.prefix = HY_LOG_LINES};
    assert_int_equal(hy_rank_output_near_end(&s), 0);
    assert_int_equal(hy_rank_output_read(&s, false, &out, &out), 0);
    text = text_of(&out);
    assert_true(strlen(text) < 2100 && strncmp(text, "a line", 6) == 0);
    assert_non_null(strstr(text, "the last one\n"));
    hy_rank_output_done(&s);
    printing_end(&p);
}

HY_TEST(test_an_overwritten_progress_bar_is_one_line)
{
    hy_cleanup_out struct hy_out out = {0};
    struct hy_rank_output s;
    struct printing p;

    printing_begin(&p);
    hy_out_init(&out, &ascii80);
    assert_int_equal(hy_rank_output_init(&s, p.logdir, &(Hy__RunSpec){.ranks = 1}, true), 0);
    s.text = (struct hy_log_format){.prefix = HY_LOG_LINES, .escape = true, .overwrite = true};
    append_to(p.ranks[0], "stderr", "\r10 %\r20 %\r");
    assert_int_equal(hy_rank_output_read(&s, false, &out, &out), 0);
    assert_int_equal(out.buf.len, 0);
    assert_string_equal(hy_rank_output_current(&s), "20 %");
    append_to(p.ranks[0], "stderr", "30 %");
    append_to(p.ranks[0], "stdout", "dos\r\n");
    assert_int_equal(hy_rank_output_read(&s, false, &out, &out), 0);
    assert_string_equal(hy_rank_output_current(&s), "30 %");
    append_to(p.ranks[0], "stderr", "\r100 %\nover\n");
    assert_int_equal(hy_rank_output_read(&s, false, &out, &out), 0);
    assert_string_equal(hy_rank_output_current(&s), "");
    assert_string_equal(text_of(&out), "dos\n100 %\nover\n");
    hy_rank_output_done(&s);
    printing_end(&p);
}

HY_TEST(test_a_backlog_is_shown_in_chunks)
{
    static char line[1001];
    hy_cleanup_out struct hy_out out = {0};
    struct hy_rank_output s;
    struct printing p;
    int rc, looks = 0;

    memset(line, 'x', 999);
    line[999] = '\n';
    printing_begin(&p);
    hy_out_init(&out, &bare);
    for (int i = 0; i < 200; i++)
        append_to(p.ranks[0], "stdout", line);
    assert_int_equal(hy_rank_output_init(&s, p.logdir, &(Hy__RunSpec){.ranks = 1}, true), 0);
    s.text = (struct hy_log_format){.prefix = HY_LOG_LINES};
    while ((rc = hy_rank_output_read(&s, true, &out, &out)) == 1)
        looks++;
    assert_int_equal(rc, 0);
    assert_int_equal(looks, 3);
    assert_int_equal(out.buf.len, 200000);
    hy_rank_output_done(&s);
    printing_end(&p);
}

HY_TEST(test_last_lines_are_from_stderr_or_else_from_stdout)
{
    struct printing p;
    char *text;

    printing_begin(&p);
    append_to(p.ranks[0], "stdout", "calm\n");
    append_to(p.ranks[0], "stderr", "1\n2\n3\n\033[2J4");
    append_to(p.ranks[1], "stdout", "1\n2\n3\n");
    text = hy_last_lines(p.logdir, &(Hy__RunSpec){.ranks = 8}, 1, 2);
    assert_string_equal(text, "3\n\\x1b[2J4");
    free(text);
    text = hy_last_lines(p.logdir, &(Hy__RunSpec){.ranks = 8}, 2, 2);
    assert_string_equal(text, "2\n3\n");
    free(text);
    text = hy_last_lines(p.logdir, &(Hy__RunSpec){.ranks = 8}, 8, 2);
    assert_string_equal(text, "");
    free(text);
    printing_end(&p);
}

/* ---- scaling ---------------------------------------------------------------------------- */

HY_TEST(test_scaling_doubles_ranks_up_to_the_maximum)
{
    static const struct {
        uint32_t most, steps[6];
        size_t count;
    } cases[] = {{1, {1}, 1}, {2, {1, 2}, 2}, {6, {1, 2, 4, 6}, 4}, {8, {1, 2, 4, 8}, 4}};
    uint32_t steps[HY_SCALING_STEPS];

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        assert_int_equal(hy_scaling_steps(cases[i].most, steps), cases[i].count);
        assert_memory_equal(steps, cases[i].steps, cases[i].count * sizeof steps[0]);
    }
    assert_int_equal(hy_scaling_steps(UINT32_MAX, steps), HY_SCALING_STEPS);
}

HY_TEST(test_a_ranks_speed_is_the_median_without_the_first_value)
{
    double one[] = {5}, some[] = {1, 100, 300, 200}, even[] = {1, 10, 20};

    assert_true(isnan(hy_scaling_median(NULL, 0)));
    assert_true(hy_scaling_median(one, 1) == 5);
    assert_true(hy_scaling_median(some, 4) == 200);
    assert_true(hy_scaling_median(even, 3) == 15);
}

HY_TEST(test_the_plot_shows_the_gap_to_the_ideal_speed)
{
    struct hy_speed one = {.ranks = 1, .run = 3, .value = 1000, .reported = 1};
    struct hy_speed two = {.ranks = 2, .run = 4, .value = 1500, .reported = 2};
    struct hy_speed four = {.ranks = 4, .run = 5, .value = 4000, .reported = 3};
    hy_cleanup_out struct hy_out out = {0}, json = {0};

    hy_out_init(&out, &ascii80);
    hy_scaling_head(&out, "examples_per_second");
    hy_scaling_line(&out, &one, &one, 4);
    hy_scaling_line(&out, &two, &one, 4);
    hy_scaling_line(&out, &four, &one, 4);
    assert_string_equal(text_of(&out), "ranks  efficiency  examples_per_second of all ranks\n"
                                       "    1       100 %  ########## 1,000\n"
                                       "    2        75 %  ###############..... 1,500\n"
                                       "    4       100 %  ######################################## 4,000"
                                       "  (as reported by 3 of 4)\n");
    hy_out_init(&json, &bare);
    hy_scaling_json(&json, &two, &one, "examples_per_second");
    assert_string_equal(text_of(&json), "{\"event\": \"speed\", \"run\": 4, \"ranks\": 2, \"reported\": 2, \"metric\": "
                                        "\"examples_per_second\", \"value\": 1500.0, \"efficiency\": 0.75}\n");
}

/* ---- faults -------------------------------------------------------------------------- */

static int board_scenario(void *arg)
{
    struct hy_live_view board = {0};
    hy_cleanup_out struct hy_out out = {0};
    int rc;

    (void)arg;
    hy_out_init(&out, &ascii80);
    rc = hy_live_view_take(&board, training(), 1000);
    if (rc == 0)
        rc = hy_live_view_text(&board, &out, 2000, 0, NULL);
    hy_live_view_done(&board);
    return rc;
}

static int stream_scenario(void *arg)
{
    struct printing *p = arg;
    hy_cleanup_out struct hy_out out = {0};
    struct hy_rank_output s;
    int rc = hy_rank_output_init(&s, p->logdir, &(Hy__RunSpec){.ranks = 2}, true);
    char *last;

    hy_out_init(&out, &bare);
    s.text.prefix = HY_LOG_RANKED;
    if (rc == 0)
        rc = hy_rank_output_near_end(&s);
    if (rc == 0)
        rc = hy_rank_output_read(&s, true, &out, &out);
    last = rc == 0 ? hy_last_lines(p->logdir, &(Hy__RunSpec){.ranks = 8}, 1, 3) : NULL;
    rc = rc == 0 && !last ? -ENOMEM : rc;
    free(last);
    hy_rank_output_done(&s);
    return rc;
}

HY_TEST(test_allocation_and_system_call_faults_are_handled)
{
    struct printing p;

    printing_begin(&p);
    append_to(p.ranks[0], "stdout", "one\ntwo\n");
    append_to(p.ranks[1], "stderr", "three\n");
    hy_each_fault(HY_SEAM_ALLOC, board_scenario, NULL);
    hy_each_fault(HY_SEAM_ALLOC, stream_scenario, &p);
    hy_each_fault(HY_SEAM_SYS, stream_scenario, &p);
    printing_end(&p);
}

int main(int argc, char **argv)
{
    begin_plain();
    return hy_run_tests(argc > 1 ? argv[1] : NULL, NULL, NULL);
}
