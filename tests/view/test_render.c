/* SPDX-License-Identifier: Apache-2.0 */
/* Rendering of updates: tables, summaries, text and JSON lines, the screen, logs. */
#include "view_fixture.h"

#include <jansson.h>

#include "view/live_view.h"
#include "cli/cli.h"
#include "view/run_description.h"
#include "view/text_table.h"
#include "view/log_format.h"
#include "cli/screen.h"
#include "view/run_lines.h"
#include "view/trial_table.h"
#include "cli/watch.h"

/* ---- text ------------------------------------------------------------------------- */

HY_TEST(test_widths_count_columns_not_bytes)
{
    int columns;

    assert_int_equal(hy_columns("abc", 3), 3);
    assert_int_equal(hy_columns("grün", strlen("grün")), 4);
    assert_int_equal(hy_columns("中文", strlen("中文")), 4);
    assert_int_equal(hy_columns("e\xcc\x81", 3), 1); /* a combining accent */
    assert_int_equal(hy_columns("\xff\xfe", 2), 2);
    assert_int_equal(hy_fit("中文", strlen("中文"), 3, &columns), 3);
    assert_int_equal(columns, 2);
    assert_int_equal(hy_fit("ab", 2, 0, &columns), 0);
}

HY_TEST(test_cut_text_ends_in_an_ellipsis_within_its_columns)
{
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &fancy80);
    assert_int_equal(hy_out_cut(&out, "abcdef", 6, 4), 4);
    hy_out_str(&out, "|");
    assert_int_equal(hy_out_cut(&out, "中文中文", strlen("中文中文"), 4), 3);
    hy_out_str(&out, "|");
    assert_int_equal(hy_out_cut(&out, "abc", 3, 0), 0);
    assert_string_equal(text_of(&out), "abc…|中…|");
}

static struct hy_text_table *sample_grid(void)
{
    struct hy_text_table *g = hy_text_table_new();

    assert_non_null(g);
    hy_text_table_column(g, "#", HY_TABLE_RIGHT, 0);
    hy_text_table_column(g, "name", HY_TABLE_FLEX, 0);
    hy_text_table_column(g, "note", HY_TABLE_FLEX, 1);
    hy_text_table_cell(g, HY_PLAIN, "1");
    hy_text_table_cell(g, HY_GREEN, "short");
    hy_text_table_cell(g, HY_PLAIN, "");
    hy_text_table_cellf(g, HY_PLAIN, "%d", 12);
    hy_text_table_cell(g, HY_PLAIN, "a long name of grün 中文");
    hy_text_table_cell(g, HY_PLAIN, "evil\033[2J\n");
    return g;
}

HY_TEST(test_a_text_table_aligns_its_columns_and_escapes_its_cells)
{
    hy_cleanup_text_table struct hy_text_table *g = sample_grid();
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &ascii80);
    assert_int_equal(hy_text_table_render(g, &out, true), 0);
    assert_string_equal(text_of(&out), " #  name                      note\n"
                                       " 1  short\n"
                                       "12  a long name of grün 中文  evil\\x1b[2J\\n\n");
}

HY_TEST(test_a_text_table_cuts_the_widest_column_before_dropping_columns)
{
    static const struct {
        int width;
        const char *text;
    } cases[] = {
        {30, " 1  short\n12  a long name~  evil\\x1b[2J~\n"},
        {18, " 1  short\n12  a lon~  evil\\~\n"},
        {10, " 1  short\n12  a lon~\n"},
        {6, " 1  s~\n12  a~\n"},
    };

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        hy_cleanup_text_table struct hy_text_table *g = sample_grid();
        hy_cleanup_out struct hy_out out = {0};
        struct hy_style style = {.width = cases[i].width, .height = 10, .terminal = true};

        hy_out_init(&out, &style);
        assert_int_equal(hy_text_table_render(g, &out, false), 0);
        assert_string_equal(text_of(&out), cases[i].text);
    }
}

HY_TEST(test_a_redrawn_text_table_keeps_its_widths)
{
    struct hy_text_table_layout memory = {0};
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &ascii80);
    for (int i = 0; i < 2; i++) {
        hy_cleanup_text_table struct hy_text_table *g = hy_text_table_new();

        hy_text_table_column(g, "a", 0, 0);
        hy_text_table_column(g, "b", 0, 0);
        hy_text_table_cell(g, HY_PLAIN, i ? "x" : "wide");
        hy_text_table_cell(g, HY_PLAIN, "y");
        hy_text_table_remember(g, &memory);
        assert_int_equal(hy_text_table_render(g, &out, false), 0);
    }
    assert_string_equal(text_of(&out), "wide  y\nx     y\n");
}

/* ---- updates ------------------------------------------------------------------------ */

static void free_update(Hy__Update *u)
{
    hy__update__free_unpacked(u, &hy_proto_memory);
}

HY_TEST(test_the_live_table_shows_running_and_recently_ended_trials)
{
    struct hy_live_view board = {0};
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &ascii80);
    assert_int_equal(hy_live_view_take(&board, update(2, 3), 1000), 0);
    assert_int_equal(hy_live_view_text(&board, &out, 2000, 0, NULL), 0);
    assert_string_equal(text_of(&out), "run 3 digits  running  43s, about 4m04s left  1 agent, 2 slots\n"
                                       "[###---------------------------]  12/100  11 done  1 failed  2 running\n"
                                       "best  accuracy=0.9312  trial 7  lr=0.07 act=relu\n"
                                       "\n"
                                       " #  state      lr  act   accuracy  time\n"
                                       "13  running  0.13  relu            4.2s\n"
                                       "14  running  0.14  tanh            4.2s\n"
                                       " 3  done     0.03  relu      0.52  3.2s\n"
                                       " 2  done     0.02  tanh      0.51  3.2s\n"
                                       " 1  failed   0.01  relu            3.2s  exit status 1\n");
    hy_live_view_done(&board);
}

static Hy__Update *update_with_pruned(void)
{
    Hy__Update *u = update(1, 1);

    u->pruned = 5;
    u->paused = 2;
    free(u->ended[0]->state);
    u->ended[0]->state = copy("pruned");
    free(u->running[0]->state);
    u->running[0]->state = copy("paused");
    return u;
}

HY_TEST(test_pruned_trials_have_ended_and_paused_ones_have_not)
{
    struct hy_live_view board = {0};
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &ascii80);
    assert_int_equal(hy_live_view_take(&board, update_with_pruned(), 1000), 0);
    assert_int_equal(hy_live_view_text(&board, &out, 2000, 0, NULL), 0);
    assert_non_null(strstr(text_of(&out), "]  17/100  11 done  1 failed  5 pruned  2 paused  1 running\n"));
    assert_non_null(strstr(text_of(&out), "\n13  paused "));
    assert_non_null(strstr(text_of(&out), "\n 1  pruned "));
    hy_live_view_done(&board);
}

HY_TEST(test_the_last_line_counts_pruned_and_paused_trials_apart)
{
    struct hy_run_lines teller = {.begun = true};
    hy_cleanup_out struct hy_out out = {0};
    Hy__Update *u = update_with_pruned();

    u->last = true;
    hy_out_init(&out, &bare);
    assert_int_equal(hy_run_lines_update(&teller, u, &out), 0);
    assert_non_null(strstr(text_of(&out), "[1/100] trial 1 pruned  lr=0.01"));
    assert_non_null(strstr(text_of(&out), "11 done, 1 failed, 5 pruned, 2 paused in "));
    free_update(u);
}

static Hy__Update *update_with_tensorboard(const char *address)
{
    Hy__Update *u = update(1, 1);

    u->tensorboard = copy(address);
    return u;
}

HY_TEST(test_the_live_table_shows_the_address_of_tensorboard)
{
    struct hy_live_view board = {0};
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &ascii80);
    assert_int_equal(hy_live_view_take(&board, update_with_tensorboard("http://127.0.0.1:41234/\033"), 1000), 0);
    assert_int_equal(hy_live_view_text(&board, &out, 1000, 0, NULL), 0);
    assert_non_null(strstr(text_of(&out), "act=relu\ntensorboard  http://127.0.0.1:41234/\\x1b\n\n"));
    hy_live_view_done(&board);
}

HY_TEST(test_each_tensorboard_address_is_printed_once)
{
    static const char *const addresses[] = {"", "http://127.0.0.1:1/", "http://127.0.0.1:1/", "",
                                            "http://127.0.0.1:2/"};

    for (int json = 0; json < 2; json++) {
        struct hy_run_lines teller = {.json = json};
        hy_cleanup_out struct hy_out out = {0};

        hy_out_init(&out, &bare);
        for (size_t i = 0; i < HY_COUNT(addresses); i++) {
            Hy__Update *u = update_with_tensorboard(addresses[i]);

            u->n_ended = 0;
            assert_int_equal(hy_run_lines_update(&teller, u, &out), 0);
            u->n_ended = 1;
            free_update(u);
        }
        assert_non_null(strstr(text_of(&out),
                               json ? "{\"event\": \"tensorboard\", \"run\": 3, \"address\": \"http://127.0.0.1:1/\"}\n"
                                      "{\"event\": \"tensorboard\", \"run\": 3, \"address\": \"http://127.0.0.1:2/\"}\n"
                                    : "\ntensorboard http://127.0.0.1:1/\ntensorboard http://127.0.0.1:2/\n"));
    }
}

HY_TEST(test_the_live_table_uses_symbols_and_colors_if_supported)
{
    struct hy_live_view board = {0};
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &fancy80);
    assert_int_equal(hy_live_view_take(&board, update(1, 1), 0), 0);
    assert_int_equal(hy_live_view_text(&board, &out, 0, 0, "Stop?"), 0);
    assert_non_null(strstr(text_of(&out), "━"));
    assert_non_null(strstr(text_of(&out), "\033[31m✗ failed\033[0m"));
    assert_non_null(strstr(text_of(&out), "\033[33mStop?\033[0m\n"));
    hy_live_view_done(&board);
}

/* The width of a line without its colors. */
static int visible(const char *line, size_t n)
{
    int columns = 0;

    for (size_t i = 0; i < n;) {
        size_t end = i;

        if (line[i] == '\033') {
            while (line[i++] != 'm')
                assert_true(i < n);
            continue;
        }
        while (end < n && line[end] != '\033')
            end++;
        columns += hy_columns(line + i, end - i);
        i = end;
    }
    return columns;
}

HY_TEST(test_no_frame_is_larger_than_its_terminal)
{
    for (int width = 1; width <= 130; width += 3)
        for (int height = 2; height <= 40; height += 5) {
            struct hy_style style = {
                .width = width, .height = height, .terminal = true, .color = true, .unicode = true};
            struct hy_live_view board = {0};
            hy_cleanup_out struct hy_out out = {0};
            int lines = 0;
            Hy__Update *u = update(30, 90);

            u->tensorboard = copy("http://127.0.0.1:41234/");
            free(u->running[0]->params);
            u->running[0]->params = copy("{\"lr\": \"中文\\u001b[2J grün\", \"act\": 1e300}");
            hy_out_init(&out, &style);
            assert_int_equal(hy_live_view_take(&board, u, 0), 0);
            assert_int_equal(hy_live_view_text(&board, &out, 0, 1, height % 2 ? "Stop the run (s)?" : NULL), 0);
            for (const char *line = text_of(&out), *end; (end = strchr(line, '\n')); line = end + 1, lines++)
                if (visible(line, (size_t)(end - line)) > width)
                    fail_msg("width %d: '%.*s'", width, (int)(end - line), line);
            assert_true(lines <= (height - 1 < 3 ? 4 : height - 1));
            hy_live_view_done(&board);
        }
}

HY_TEST(test_a_trial_that_ended_twice_is_shown_once)
{
    struct hy_live_view board = {0};
    Hy__Update *again = update(0, 0);

    assert_int_equal(hy_live_view_take(&board, update(0, 3), 0), 0);
    again->ended[again->n_ended++] = trial(2, "failed", NAN, "second time");
    assert_int_equal(hy_live_view_take(&board, again, 0), 0);
    assert_int_equal(board.recent_count, 3);
    assert_int_equal(board.recent[0]->number, 2);
    assert_string_equal(board.recent[0]->message, "second time");
    assert_int_equal(board.failure_count, 2);
    hy_live_view_done(&board);
}

HY_TEST(test_a_live_view_keeps_only_the_newest_trials)
{
    struct hy_live_view board = {0};

    for (uint64_t i = 1; i <= 300; i++) {
        Hy__Update *u = update(0, 0);

        u->ended[u->n_ended++] = trial(i, "failed", NAN, "no");
        assert_int_equal(hy_live_view_take(&board, u, 0), 0);
    }
    assert_int_equal(board.recent_count, HY_LIVE_VIEW_RECENT);
    assert_int_equal(board.recent[0]->number, 300);
    assert_int_equal(board.recent[HY_LIVE_VIEW_RECENT - 1]->number, 300 - HY_LIVE_VIEW_RECENT + 1);
    assert_int_equal(board.failure_count, HY_LIVE_VIEW_FAILURES);
    assert_int_equal(board.failures[0]->number, 1);
    hy_live_view_done(&board);
}

HY_TEST(test_the_summary_shows_result_failures_and_next_commands)
{
    struct hy_live_view board = {0};
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &ascii80);
    assert_int_equal(hy_live_view_summary(&board, &out), 0); /* without an update */
    assert_int_equal(hy_live_view_take(&board, last_update(), 0), 0);
    assert_int_equal(hy_live_view_summary(&board, &out), 0);
    assert_string_equal(text_of(&out), "done  run 3 digits  100 of 100 trials in 42s:  99 done  1 failed\n"
                                       "  ! trial 1  lr=0.01 act=relu  exit status 1\n"
                                       "  best  accuracy=0.9312  trial 7  lr=0.07 act=relu\n"
                                       "  logs  /p/Logs/TensorFlow/local-1/1\n"
                                       "  open  hopyard tensorboard 3\n"
                                       "  more  hopyard show 3, hopyard logs 3 1, hopyard resume 3\n");
    hy_live_view_done(&board);
}

/* ---- lines for pipes and programs ------------------------------------------------------ */

HY_TEST(test_a_pipe_gets_one_line_per_trial)
{
    struct hy_run_lines teller = {.seed = 7};
    hy_cleanup_out struct hy_out out = {0};
    Hy__Update *first = update(1, 2), *last = last_update();

    free(first->ended[1]->params);
    first->ended[1]->params = copy("{\"lr\": 0.02, \"act\": \"a\\nb\\u001b\"}");
    hy_out_init(&out, &bare);
    assert_int_equal(hy_run_lines_update(&teller, first, &out), 0);
    last->n_notes = 1;
    last->notes = calloc(1, sizeof *last->notes);
    last->notes[0] = copy("agent b: gone");
    assert_int_equal(hy_run_lines_update(&teller, last, &out), 0);
    assert_string_equal(text_of(&out),
                        "run 3 digits: 100 trials, seed 7, logs in /p/Logs/TensorFlow/local-1/1\n"
                        "[1/100] trial 1 failed  lr=0.01 act=relu  3.2s  exit status 1\n"
                        "[2/100] trial 2 done  lr=0.02 act=a\\nb\\x1b  accuracy=0.51  3.2s\n"
                        "[3/100] trial 1 failed  lr=0.01 act=relu  3.2s  exit status 1\n"
                        "[4/100] trial 2 done  lr=0.02 act=tanh  accuracy=0.51  3.2s\n"
                        "note: agent b: gone\n"
                        "run 3 done: 99 done, 1 failed in 42s; best accuracy=0.9312 in trial 7 (lr=0.07 act=relu)\n"
                        "logs in /p/Logs/TensorFlow/local-1/1; 'hopyard tensorboard 3' shows them\n");
    free_update(first);
    free_update(last);
}

HY_TEST(test_a_reconnected_client_prints_nothing_twice)
{
    struct hy_run_lines teller = {.ended = 3, .skip = 3, .begun = true};
    hy_cleanup_out struct hy_out out = {0};
    Hy__Update *two = update(0, 2), *more = update(0, 2);

    hy_out_init(&out, &bare);
    assert_int_equal(hy_run_lines_update(&teller, two, &out), 0);
    assert_string_equal(text_of(&out), "");
    assert_int_equal(hy_run_lines_update(&teller, more, &out), 0);
    assert_string_equal(text_of(&out), "[4/100] trial 2 done  lr=0.02 act=tanh  accuracy=0.51  3.2s\n");
    free_update(two);
    free_update(more);
}

HY_TEST(test_json_lines_are_one_object_per_line)
{
    static const char *const events[] = {"run", "trial", "trial", "note", "end"};
    struct hy_run_lines teller = {.json = true, .seed = 7};
    hy_cleanup_out struct hy_out out = {0};
    Hy__Update *u = last_update();
    const char *line;

    u->ended[1]->value = NAN;
    u->n_notes = 1;
    u->notes = calloc(1, sizeof *u->notes);
    u->notes[0] = copy("bytes \xff\"\\\n\x7f");
    hy_out_init(&out, &bare);
    assert_int_equal(hy_run_lines_update(&teller, u, &out), 0);
    line = text_of(&out);
    for (size_t i = 0; i < HY_COUNT(events); i++) {
        const char *end = strchr(line, '\n');
        json_t *o = json_loadb(line, (size_t)(end - line), 0, NULL);

        assert_non_null(o);
        assert_string_equal(json_string_value(json_object_get(o, "event")), events[i]);
        assert_int_equal(json_integer_value(json_object_get(o, "run")), 3);
        if (i == 0)
            assert_int_equal(json_integer_value(json_object_get(o, "seed")), 7);
        if (i == 2)
            assert_true(json_is_null(json_object_get(o, "value")));
        if (i == 3)
            assert_string_equal(json_string_value(json_object_get(o, "message")), "bytes \\xff\"\\\n\x7f");
        if (i == 4)
            assert_true(json_real_value(json_object_get(json_object_get(o, "best"), "value")) == 0.9312);
        json_decref(o);
        line = end + 1;
    }
    assert_string_equal(line, "");
    assert_non_null(strstr(text_of(&out), "\"value\": 0.9312")); /* not 0.93120000000000003 */
    free_update(u);
}

HY_TEST(test_the_exit_status_follows_the_state_of_the_run)
{
    Hy__Update u = HY__UPDATE__INIT;

    u.state = (char *)"done";
    u.pruned = 1;
    assert_int_equal(hy_exit_status(&u, 0), HY_EXIT_OK);
    u.failed = 1;
    assert_int_equal(hy_exit_status(&u, 0), HY_EXIT_FAILED);
    u.state = (char *)"stopped";
    assert_int_equal(hy_exit_status(&u, HY_EXIT_STOPPED), HY_EXIT_STOPPED);
    assert_int_equal(hy_exit_status(&u, 143), 143);
    assert_int_equal(hy_exit_status(&u, 0), HY_EXIT_FAILED);
    u.state = (char *)"failed";
    assert_int_equal(hy_exit_status(&u, HY_EXIT_STOPPED), HY_EXIT_FAILED);
}

/* ---- the screen ------------------------------------------------------------------------- */

#define BEGIN "\033[?2026h\033[?25l\r"
#define END "\033[J\033[?2026l"

HY_TEST(test_a_frame_replaces_the_last_one)
{
    struct hy_screen screen = {.keys = -1};
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &ascii80);
    hy_screen_compose(&screen, "one\ntwo\n", 8, 80, &out);
    assert_string_equal(text_of(&out), BEGIN "one\033[K\ntwo\033[K" END);
    hy_buf_clear(&out.buf);
    hy_screen_compose(&screen, "three\n", 6, 80, &out);
    assert_string_equal(text_of(&out), BEGIN "\033[1Athree\033[K" END);
    hy_buf_clear(&out.buf);
    hy_screen_compose(&screen, "", 0, 80, &out);
    assert_string_equal(text_of(&out), BEGIN END);
}

HY_TEST(test_wrapped_lines_of_a_narrower_terminal_are_erased)
{
    struct hy_screen screen = {.keys = -1};
    hy_cleanup_out struct hy_out out = {0};
    const char *frame = "\033[31mtwelve \033[0mlong\n\nx\n";

    hy_out_init(&out, &fancy80);
    hy_screen_compose(&screen, frame, strlen(frame), 80, &out);
    hy_buf_clear(&out.buf);
    /* 11 columns take three rows of 5, the empty line and the x one each. */
    hy_screen_compose(&screen, "y\n", 2, 5, &out);
    assert_string_equal(text_of(&out), BEGIN "\033[4Ay\033[K" END);
}

/* ---- logs ---------------------------------------------------------------------------------- */

static size_t log_text(const struct hy_log_format *l, struct hy_out *out, const char *bytes, bool last, bool full)
{
    return hy_log_format_append(l, out, 7, false, (const uint8_t *)bytes, strlen(bytes), last, full);
}

HY_TEST(test_lines_of_several_trials_start_with_their_number)
{
    struct hy_log_format l = {.prefix = true, .digits = 3};
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &bare);
    assert_int_equal(log_text(&l, &out, "one\n\ntw", false, false), 5); /* waits for the rest of the line */
    assert_int_equal(log_text(&l, &out, "two", true, false), 3);
    assert_int_equal(log_text(&l, &out, "too long", false, true), 8); /* a line longer than the buffer is split */
    assert_int_equal(hy_log_format_append(&l, &out, 12, true, (const uint8_t *)"\033\n", 2, false, false), 2);
    assert_string_equal(text_of(&out), "  7 | one\n  7 | \n  7 | two\n  7 | too long\n 12 ! \033\n");
}

HY_TEST(test_bytes_are_unchanged_in_a_pipe)
{
    struct hy_log_format l = {0};
    hy_cleanup_out struct hy_out out = {0};
    const uint8_t bytes[] = {0, 0xff, '\r', 0xc3};

    hy_out_init(&out, &bare);
    assert_int_equal(hy_log_format_append(&l, &out, 1, false, bytes, sizeof bytes, false, false), sizeof bytes);
    assert_int_equal(out.buf.len, sizeof bytes);
    assert_memory_equal(hy_buf_bytes(&out.buf), bytes, sizeof bytes);
}

HY_TEST(test_unprintable_bytes_are_escaped_for_a_terminal)
{
    struct hy_log_format l = {.escape = true};
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &ascii80);
    assert_int_equal(log_text(&l, &out, "a\033[2J\tb\r\n10%\r20%\rgr\xc3", false, false), 19);
    assert_int_equal(log_text(&l, &out, "\xc3\xbcn\xff", false, false),
                     3); /* \xff is never valid, but may look like a prefix */
    assert_int_equal(log_text(&l, &out, "\xff\r", true, false), 2);
    assert_string_equal(text_of(&out), "a\\x1b[2J\tb\n10%\n20%\ngrün\\xff\n");
}

/* ---- texts ------------------------------------------------------------------------------------ */

HY_TEST(test_commands_are_quoted_for_a_shell)
{
    hy_cleanup_free char *text = hy_command_text("[\"./train\", \"--lr\", \"{lr}\", \"a b\", \"it's\", \"\"]");
    hy_cleanup_free char *none = hy_command_text("nonsense"),
                         *versions = hy_versions_text("{\"a\": \"1\", \"b\": \"2\"}");
    hy_cleanup_free char *params = hy_json_params("{\"lr\": 0.001, \"n\": 3, \"act\": \"relu\", \"on\": true}", false);

    assert_string_equal(text, "./train --lr {lr} 'a b' 'it'\\''s' ''");
    assert_string_equal(none, "");
    assert_string_equal(versions, "a 1, b 2");
    assert_string_equal(params, "lr=0.001 n=3 act=relu on=true");
}

#define NESTED                                                                                                         \
    "{\"l\": [64, [1.0, 0.1]], \"o\": {\"a b\": \"c\", \"d\": {}}, \"n\": null, \"t\": \"1\", \"e\": \"\", \"on\": "   \
    "false}"

static Hy__TrialView *nested_trial(void)
{
    Hy__TrialView *t = trial(1, "done", 0.5, "");

    free(t->params);
    t->params = copy(NESTED);
    return t;
}

HY_TEST(test_nested_parameters_are_shown_as_compact_json)
{
    static const char *const cells[] = {"[64,[1.0,0.1]]", "{\"a b\":\"c\",\"d\":{}}", "null", " 1 ", "false"};
    struct hy_trial_table_options look = {.metric = "accuracy", .titles = true};
    struct hy_style wide = {.width = 200, .height = 24, .terminal = true};
    hy_cleanup_free char *line = hy_json_params(NESTED, true);
    hy_cleanup_out struct hy_out columns = {0}, pipe = {0};
    Hy__TrialView *t = nested_trial();
    const Hy__TrialView *trials[] = {t};

    assert_string_equal(line, "l=[64,[1.0,0.1]] o={\"a b\":\"c\",\"d\":{}} n=null t=1 e= on=false");
    hy_out_init(&columns, &wide);
    hy_out_init(&pipe, &bare);
    assert_int_equal(hy_trial_table_render(&columns, trials, 1, &look), 0);
    assert_int_equal(hy_trial_table_render(&pipe, trials, 1, &look), 0);
    assert_null(strstr(text_of(&columns), "l=")); /* one column per parameter */
    for (size_t i = 0; i < HY_COUNT(cells); i++)
        if (!strstr(text_of(&columns), cells[i]))
            fail_msg("no %s in:\n%s", cells[i], text_of(&columns));
    assert_non_null(strstr(text_of(&pipe), line));
    hy__trial_view__free_unpacked(t, NULL);
}

HY_TEST(test_a_parameter_that_some_trials_do_not_have_has_a_column)
{
    struct hy_trial_table_options look = {.metric = "accuracy", .titles = true};
    struct hy_style wide = {.width = 200, .height = 24, .terminal = true};
    hy_cleanup_out struct hy_out out = {0};
    Hy__TrialView *adam = trial(1, "done", 0.5, ""), *sgd = trial(2, "done", 0.7, "");
    const Hy__TrialView *trials[] = {adam, sgd};

    free(adam->params);
    free(sgd->params);
    adam->params = copy("{\"opt\": \"adam\"}");
    sgd->params = copy("{\"opt\": \"sgd\", \"momentum\": 0.9}");
    hy_out_init(&out, &wide);
    assert_int_equal(hy_trial_table_render(&out, trials, 2, &look), 0);
    assert_non_null(strstr(text_of(&out), "momentum"));
    assert_non_null(strstr(text_of(&out), "adam"));
    assert_non_null(strstr(text_of(&out), "0.9"));
    assert_null(strstr(text_of(&out), "?"));
    hy__trial_view__free_unpacked(adam, NULL);
    hy__trial_view__free_unpacked(sgd, NULL);
}

HY_TEST(test_nested_parameters_are_unchanged_in_json)
{
    hy_cleanup_out struct hy_out out = {0};
    Hy__TrialView *t = nested_trial();
    json_t *got, *want = json_loads(NESTED, 0, NULL);

    hy_out_init(&out, &bare);
    hy_json_take(&out, hy_json_trial(t, "accuracy"));
    assert_non_null(strstr(text_of(&out), NESTED)); /* 1.0 stays a real number, "1" a string */
    got = json_loads(text_of(&out), 0, NULL);
    assert_true(json_equal(json_object_get(got, "params"), want));
    json_decref(got);
    json_decref(want);
    hy__trial_view__free_unpacked(t, NULL);
}

HY_TEST(test_ages_are_rounded_down)
{
    char text[40];

    assert_string_equal(hy_format_age(0, 59999, text, sizeof text), "59s ago");
    assert_string_equal(hy_format_age(0, 3599999, text, sizeof text), "59m ago");
    assert_string_equal(hy_format_age(0, 86399999, text, sizeof text), "23h ago");
    assert_string_equal(hy_format_age(0, 10 * 86400000LL, text, sizeof text), "10d ago");
    assert_string_equal(hy_format_age(5000, 0, text, sizeof text), "0s ago");
}

int main(int argc, char **argv)
{
    begin_plain();
    return hy_run_tests(argc > 1 ? argv[1] : NULL, NULL, NULL);
}
