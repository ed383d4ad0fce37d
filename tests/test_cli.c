/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/board.h"
#include "cli/cli.h"
#include "cli/commands.h"
#include "cli/describe.h"
#include "cli/facts.h"
#include "cli/grid.h"
#include "cli/js.h"
#include "cli/logtext.h"
#include "cli/manage.h"
#include "cli/proto.h"
#include "cli/runs.h"
#include "cli/screen.h"
#include "cli/spec.h"
#include "cli/teller.h"
#include "cli/trials.h"
#include "cli/watch.h"

static const struct hy_style bare = {.width = 0};
static const struct hy_style ascii80 = {.width = 80, .height = 24, .terminal = true};
static const struct hy_style fancy80 = {
    .width = 80, .height = 24, .terminal = true, .colour = true, .unicode = true};

#define WORDS(...) ((char *[]){(char *)__VA_ARGS__, NULL})

static int count_words(char **words)
{
    int n = 0;

    while (words[n])
        n++;
    return n;
}

static const char *text_of(struct hy_out *out)
{
    assert_int_equal(out->rc, 0);
    return hy_buf_cstr(&out->buf);
}

/* ---- options ------------------------------------------------------------------ */

static int parse(const char *command, char **words, struct hy_args *args, struct hy_err *err)
{
    return hy_args_parse(hy_command_find(command), count_words(words), words, args, err);
}

static void test_options_are_read_in_every_spelling(void **state)
{
    char *words[] = {(char *)"--grid",
                     (char *)"a=1",
                     (char *)"--grid=b=2",
                     (char *)"-d",
                     (char *)"--seed",
                     (char *)"7",
                     (char *)"--",
                     (char *)"./train",
                     (char *)"--grid",
                     (char *)"{a}",
                     NULL};
    struct hy_args args;
    struct hy_err err = {0};
    size_t cursor = 0;

    (void)state;
    assert_int_equal(parse("run", words, &args, &err), 0);
    assert_string_equal(hy_args_next(&args, "grid", &cursor), "a=1");
    assert_string_equal(hy_args_next(&args, "grid", &cursor), "b=2");
    assert_null(hy_args_next(&args, "grid", &cursor));
    assert_true(hy_args_has(&args, "detach"));
    assert_string_equal(hy_args_get(&args, "seed"), "7");
    assert_string_equal(args.rest[0], "./train");
    assert_string_equal(args.rest[1], "--grid");
    assert_null(args.rest[3]);
    hy_args_done(&args);
}

static void test_words_and_letters_may_be_mixed(void **state)
{
    char *words[] = {(char *)"digits", (char *)"-f", (char *)"7", NULL},
         *dash[] = {(char *)"--", (char *)"-f", NULL};
    struct hy_args args;
    struct hy_err err = {0};

    (void)state;
    assert_int_equal(parse("logs", words, &args, &err), 0);
    assert_string_equal(hy_args_word(&args, 0), "digits");
    assert_string_equal(hy_args_word(&args, 1), "7");
    assert_null(hy_args_word(&args, 2));
    assert_true(hy_args_has(&args, "follow"));
    hy_args_done(&args);
    assert_int_equal(parse("rm", dash, &args, &err), 0);
    assert_string_equal(hy_args_word(&args, 0), "-f");
    assert_false(hy_args_has(&args, "force"));
    hy_args_done(&args);
}

static void test_every_mistake_gets_its_sentence(void **state)
{
    static const struct {
        const char *command, *words[4], *says;
    } cases[] = {
        {"run", {"--gird", "a=1"}, "did you mean --grid?"},
        {"run", {"--pop", "3"}, "did you mean --population?"},
        {"run", {"--zzzzzz"}, "'hopyard run --help'"},
        {"run", {"--seed"}, "--seed needs a value: --seed N"},
        {"run", {"--seed", "--json"}, "--seed needs a value"},
        {"run", {"--seed="}, "--seed needs a value"},
        {"run", {"--json=yes"}, "--json takes no value"},
        {"run", {"--seed", "1", "--seed=2"}, "--seed is given twice"},
        {"run", {"train"}, "behind --"},
        {"run", {"-x"}, "unknown option '-x'"},
        {"show", {"1", "2"}, "'2' is too much"},
        {"rm", {NULL}, "hopyard rm RUN…"},
        {"import", {NULL}, "hopyard import PATH"},
    };

    (void)state;
    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        struct hy_args args;
        struct hy_err err = {0};

        assert_int_equal(parse(cases[i].command, (char **)(uintptr_t)cases[i].words, &args, &err), -EINVAL);
        if (!strstr(err.text, cases[i].says))
            fail_msg("'%s' does not say '%s'", err.text, cases[i].says);
    }
}

static void test_help_among_the_words_wins_over_what_is_missing(void **state)
{
    struct hy_args args;
    struct hy_err err = {0};

    (void)state;
    assert_int_equal(parse("rm", WORDS("-h"), &args, &err), 0);
    assert_true(args.help);
    hy_args_done(&args);
}

static void test_edit_distance_counts_changes_and_swaps(void **state)
{
    char longer[100];

    (void)state;
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(hy_edit_distance("", ""), 0);
    assert_int_equal(hy_edit_distance("grid", "grid"), 0);
    assert_int_equal(hy_edit_distance("gird", "grid"), 1);
    assert_int_equal(hy_edit_distance("kitten", "sitting"), 3);
    assert_int_equal(hy_edit_distance("", "abc"), 3);
    assert_int_equal(hy_edit_distance("ca", "abc"), 3); /* a swapped pair is not edited again */
    assert_int_equal(hy_edit_distance(longer, "grid"), 64);
}

static void test_a_far_word_is_no_guess(void **state)
{
    struct hy_guess guess;

    (void)state;
    hy_guess_init(&guess, "tensor");
    hy_guess_offer(&guess, "grid");
    hy_guess_offer(&guess, "seed");
    assert_null(guess.best);
    hy_guess_init(&guess, "sede");
    hy_guess_offer(&guess, "space");
    hy_guess_offer(&guess, "seed");
    assert_string_equal(guess.best, "seed");
}

/* ---- text ------------------------------------------------------------------------- */

static void test_columns_are_not_bytes(void **state)
{
    int columns;

    (void)state;
    assert_int_equal(hy_columns("abc", 3), 3);
    assert_int_equal(hy_columns("grün", strlen("grün")), 4);
    assert_int_equal(hy_columns("中文", strlen("中文")), 4);
    assert_int_equal(hy_columns("e\xcc\x81", 3), 1); /* a combining accent */
    assert_int_equal(hy_columns("\xff\xfe", 2), 2);
    assert_int_equal(hy_fit("中文", strlen("中文"), 3, &columns), 3);
    assert_int_equal(columns, 2);
    assert_int_equal(hy_fit("ab", 2, 0, &columns), 0);
}

static void test_cut_text_ends_in_an_ellipsis_within_its_columns(void **state)
{
    hy_cleanup_out struct hy_out out = {0};

    (void)state;
    hy_out_init(&out, &fancy80);
    assert_int_equal(hy_out_cut(&out, "abcdef", 6, 4), 4);
    hy_out_str(&out, "|");
    assert_int_equal(hy_out_cut(&out, "中文中文", strlen("中文中文"), 4), 3);
    hy_out_str(&out, "|");
    assert_int_equal(hy_out_cut(&out, "abc", 3, 0), 0);
    assert_string_equal(text_of(&out), "abc…|中…|");
}

static struct hy_grid *sample_grid(void)
{
    struct hy_grid *g = hy_grid_new();

    assert_non_null(g);
    hy_grid_column(g, "#", HY_GRID_RIGHT, 0);
    hy_grid_column(g, "name", HY_GRID_FLEX, 0);
    hy_grid_column(g, "note", HY_GRID_FLEX, 1);
    hy_grid_cell(g, HY_PLAIN, "1");
    hy_grid_cell(g, HY_GREEN, "short");
    hy_grid_cell(g, HY_PLAIN, "");
    hy_grid_cellf(g, HY_PLAIN, "%d", 12);
    hy_grid_cell(g, HY_PLAIN, "a long name of grün 中文");
    hy_grid_cell(g, HY_PLAIN, "evil\033[2J\n");
    return g;
}

static void test_a_grid_aligns_its_columns_and_escapes_its_cells(void **state)
{
    hy_cleanup_grid struct hy_grid *g = sample_grid();
    hy_cleanup_out struct hy_out out = {0};

    (void)state;
    hy_out_init(&out, &ascii80);
    assert_int_equal(hy_grid_render(g, &out, true), 0);
    assert_string_equal(text_of(&out), " #  name                      note\n"
                                       " 1  short\n"
                                       "12  a long name of grün 中文  evil\\x1b[2J\\n\n");
}

static void test_a_grid_cuts_the_widest_column_first_then_drops(void **state)
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

    (void)state;
    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        hy_cleanup_grid struct hy_grid *g = sample_grid();
        hy_cleanup_out struct hy_out out = {0};
        struct hy_style style = {.width = cases[i].width, .height = 10, .terminal = true};

        hy_out_init(&out, &style);
        assert_int_equal(hy_grid_render(g, &out, false), 0);
        assert_string_equal(text_of(&out), cases[i].text);
    }
}

static void test_a_grid_that_is_drawn_again_does_not_jump(void **state)
{
    struct hy_grid_memory memory = {0};
    hy_cleanup_out struct hy_out out = {0};

    (void)state;
    hy_out_init(&out, &ascii80);
    for (int i = 0; i < 2; i++) {
        hy_cleanup_grid struct hy_grid *g = hy_grid_new();

        hy_grid_column(g, "a", 0, 0);
        hy_grid_column(g, "b", 0, 0);
        hy_grid_cell(g, HY_PLAIN, i ? "x" : "wide");
        hy_grid_cell(g, HY_PLAIN, "y");
        hy_grid_remember(g, &memory);
        assert_int_equal(hy_grid_render(g, &out, false), 0);
    }
    assert_string_equal(text_of(&out), "wide  y\nx     y\n");
}

/* ---- updates ------------------------------------------------------------------------ */

static char *copy(const char *text)
{
    char *c = *text ? strdup(text) : (char *)(uintptr_t)protobuf_c_empty_string;

    assert_non_null(c);
    return c;
}

static Hy__TrialView *trial(uint64_t number, const char *state, double value, const char *message)
{
    Hy__TrialView *t = malloc(sizeof *t);
    char text[100];

    assert_non_null(t);
    hy__trial_view__init(t);
    t->number = number;
    t->state = copy(state);
    snprintf(text, sizeof text, "{\"lr\": 0.%02d, \"act\": \"%s\"}", (int)number,
             number % 2 ? "relu" : "tanh");
    t->params = copy(text);
    t->has_value = isfinite(value);
    t->value = value;
    t->elapsed_ms = 3200;
    t->message = copy(message);
    t->attempt = 1;
    t->step = -1;
    return t;
}

static Hy__Update *update(size_t running, size_t ended)
{
    Hy__Update *u = malloc(sizeof *u);

    assert_non_null(u);
    hy__update__init(u);
    u->run = 3;
    u->name = copy("digits");
    u->state = copy("running");
    u->metric = copy("accuracy");
    u->logdir = copy("/p/Logs/TensorFlow/local-1/1");
    u->maximize = true;
    u->total = 100;
    u->done = 11;
    u->failed = 1;
    u->running_count = running;
    u->elapsed_ms = 42000;
    u->left_ms = 245000;
    u->agents = 1;
    u->slots = 2;
    u->running = calloc(running + 1, sizeof *u->running);
    u->ended = calloc(ended + 1, sizeof *u->ended);
    for (size_t i = 0; i < running; i++)
        u->running[u->n_running++] = trial(13 + i, "running", NAN, "");
    for (size_t i = 0; i < ended; i++)
        u->ended[u->n_ended++] =
            i ? trial(i + 1, "done", 0.5 + (double)i / 100, "") : trial(1, "failed", NAN, "exit status 1");
    u->best = trial(7, "done", 0.9312, "");
    return u;
}

static void free_update(Hy__Update *u)
{
    hy__update__free_unpacked(u, &hy_proto_memory);
}

static void test_the_live_table_shows_what_runs_and_what_ended_last(void **state)
{
    struct hy_board board = {0};
    hy_cleanup_out struct hy_out out = {0};

    (void)state;
    hy_out_init(&out, &ascii80);
    assert_int_equal(hy_board_take(&board, update(2, 3), 1000), 0);
    assert_int_equal(hy_board_table(&board, &out, 2000, 0, NULL), 0);
    assert_string_equal(text_of(&out),
                        "run 3 digits  running  43s, about 4m04s left  1 agent, 2 slots\n"
                        "[###---------------------------]  12/100  11 done  1 failed  2 running\n"
                        "best  accuracy=0.9312  trial 7  lr=0.07 act=relu\n"
                        "\n"
                        " #  state      lr  act   accuracy  time\n"
                        "13  running  0.13  relu            4.2s\n"
                        "14  running  0.14  tanh            4.2s\n"
                        " 3  done     0.03  relu      0.52  3.2s\n"
                        " 2  done     0.02  tanh      0.51  3.2s\n"
                        " 1  failed   0.01  relu            3.2s  exit status 1\n");
    hy_board_done(&board);
}

static void test_the_live_table_uses_symbols_and_colours_where_it_may(void **state)
{
    struct hy_board board = {0};
    hy_cleanup_out struct hy_out out = {0};

    (void)state;
    hy_out_init(&out, &fancy80);
    assert_int_equal(hy_board_take(&board, update(1, 1), 0), 0);
    assert_int_equal(hy_board_table(&board, &out, 0, 0, "Stop?"), 0);
    assert_non_null(strstr(text_of(&out), "━"));
    assert_non_null(strstr(text_of(&out), "\033[31m✗ failed\033[0m"));
    assert_non_null(strstr(text_of(&out), "\033[33mStop?\033[0m\n"));
    hy_board_done(&board);
}

/* Columns of a line without its colours. */
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

static void test_no_frame_is_larger_than_its_terminal(void **state)
{
    (void)state;
    for (int width = 1; width <= 130; width += 3)
        for (int height = 2; height <= 40; height += 5) {
            struct hy_style style = {
                .width = width, .height = height, .terminal = true, .colour = true, .unicode = true};
            struct hy_board board = {0};
            hy_cleanup_out struct hy_out out = {0};
            int lines = 0;
            Hy__Update *u = update(30, 90);

            free(u->running[0]->params);
            u->running[0]->params = copy("{\"lr\": \"中文\\u001b[2J grün\", \"act\": 1e300}");
            hy_out_init(&out, &style);
            assert_int_equal(hy_board_take(&board, u, 0), 0);
            assert_int_equal(hy_board_table(&board, &out, 0, 1, height % 2 ? "Stop the run (s)?" : NULL), 0);
            for (const char *line = text_of(&out), *end; (end = strchr(line, '\n')); line = end + 1, lines++)
                if (visible(line, (size_t)(end - line)) > width)
                    fail_msg("width %d: '%.*s'", width, (int)(end - line), line);
            assert_true(lines <= (height - 1 < 3 ? 4 : height - 1));
            hy_board_done(&board);
        }
}

static void test_a_trial_that_ended_twice_is_shown_once(void **state)
{
    struct hy_board board = {0};
    Hy__Update *again = update(0, 0);

    (void)state;
    assert_int_equal(hy_board_take(&board, update(0, 3), 0), 0);
    again->ended[again->n_ended++] = trial(2, "failed", NAN, "second time");
    assert_int_equal(hy_board_take(&board, again, 0), 0);
    assert_int_equal(board.recent_count, 3);
    assert_int_equal(board.recent[0]->number, 2);
    assert_string_equal(board.recent[0]->message, "second time");
    assert_int_equal(board.failure_count, 2);
    hy_board_done(&board);
}

static void test_a_board_keeps_only_the_newest(void **state)
{
    struct hy_board board = {0};

    (void)state;
    for (uint64_t i = 1; i <= 300; i++) {
        Hy__Update *u = update(0, 0);

        u->ended[u->n_ended++] = trial(i, "failed", NAN, "no");
        assert_int_equal(hy_board_take(&board, u, 0), 0);
    }
    assert_int_equal(board.recent_count, HY_BOARD_RECENT);
    assert_int_equal(board.recent[0]->number, 300);
    assert_int_equal(board.recent[HY_BOARD_RECENT - 1]->number, 300 - HY_BOARD_RECENT + 1);
    assert_int_equal(board.failure_count, HY_BOARD_FAILURES);
    assert_int_equal(board.failures[0]->number, 1);
    hy_board_done(&board);
}

static Hy__Update *last_update(void)
{
    Hy__Update *u = update(0, 2);

    free(u->state);
    u->state = copy("done");
    u->done = 99;
    u->last = true;
    return u;
}

static void test_the_summary_says_what_is_worth_keeping(void **state)
{
    struct hy_board board = {0};
    hy_cleanup_out struct hy_out out = {0};

    (void)state;
    hy_out_init(&out, &ascii80);
    assert_int_equal(hy_board_summary(&board, &out), 0); /* nothing was ever heard */
    assert_int_equal(hy_board_take(&board, last_update(), 0), 0);
    assert_int_equal(hy_board_summary(&board, &out), 0);
    assert_string_equal(text_of(&out), "done  run 3 digits  100 of 100 trials in 42s:  99 done  1 failed\n"
                                       "  ! trial 1  lr=0.01 act=relu  exit status 1\n"
                                       "  best  accuracy=0.9312  trial 7  lr=0.07 act=relu\n"
                                       "  logs  /p/Logs/TensorFlow/local-1/1\n"
                                       "  more  hopyard show 3, hopyard logs 3 1, hopyard resume 3\n");
    hy_board_done(&board);
}

/* ---- lines for pipes and programs ------------------------------------------------------ */

static void test_a_pipe_gets_one_line_per_trial(void **state)
{
    struct hy_teller teller = {.seed = 7};
    hy_cleanup_out struct hy_out out = {0};
    Hy__Update *first = update(1, 2), *last = last_update();

    (void)state;
    free(first->ended[1]->params);
    first->ended[1]->params = copy("{\"lr\": 0.02, \"act\": \"a\\nb\\u001b\"}");
    hy_out_init(&out, &bare);
    assert_int_equal(hy_teller_update(&teller, first, &out), 0);
    last->n_notes = 1;
    last->notes = calloc(1, sizeof *last->notes);
    last->notes[0] = copy("agent b: gone");
    assert_int_equal(hy_teller_update(&teller, last, &out), 0);
    assert_string_equal(
        text_of(&out),
        "run 3 digits: 100 trials, seed 7, logs in /p/Logs/TensorFlow/local-1/1\n"
        "[1/100] failed  lr=0.01 act=relu  3.2s  exit status 1\n"
        "[2/100] done  lr=0.02 act=a\\nb\\x1b  accuracy=0.51  3.2s\n"
        "[3/100] failed  lr=0.01 act=relu  3.2s  exit status 1\n"
        "[4/100] done  lr=0.02 act=tanh  accuracy=0.51  3.2s\n"
        "note: agent b: gone\n"
        "run 3 done: 99 done, 1 failed in 42s; best accuracy=0.9312 in trial 7 (lr=0.07 act=relu)\n");
    free_update(first);
    free_update(last);
}

static void test_who_connects_again_is_told_nothing_twice(void **state)
{
    struct hy_teller teller = {.ended = 3, .skip = 3, .begun = true};
    hy_cleanup_out struct hy_out out = {0};
    Hy__Update *two = update(0, 2), *more = update(0, 2);

    (void)state;
    hy_out_init(&out, &bare);
    assert_int_equal(hy_teller_update(&teller, two, &out), 0);
    assert_string_equal(text_of(&out), "");
    assert_int_equal(hy_teller_update(&teller, more, &out), 0);
    assert_string_equal(text_of(&out), "[4/100] done  lr=0.02 act=tanh  accuracy=0.51  3.2s\n");
    free_update(two);
    free_update(more);
}

static void test_programs_get_one_object_a_line(void **state)
{
    static const char *const events[] = {"run", "trial", "trial", "note", "end"};
    struct hy_teller teller = {.json = true, .seed = 7};
    hy_cleanup_out struct hy_out out = {0};
    Hy__Update *u = last_update();
    const char *line;

    (void)state;
    u->ended[1]->value = NAN;
    u->n_notes = 1;
    u->notes = calloc(1, sizeof *u->notes);
    u->notes[0] = copy("bytes \xff\"\\\n\x7f");
    hy_out_init(&out, &bare);
    assert_int_equal(hy_teller_update(&teller, u, &out), 0);
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

static void test_the_exit_status_tells_how_it_ended(void **state)
{
    Hy__Update u = HY__UPDATE__INIT;

    (void)state;
    u.state = (char *)"done";
    assert_int_equal(hy_exit_of(&u, false), HY_EXIT_OK);
    u.failed = 1;
    assert_int_equal(hy_exit_of(&u, false), HY_EXIT_FAILED);
    u.state = (char *)"stopped";
    assert_int_equal(hy_exit_of(&u, true), HY_EXIT_STOPPED);
    assert_int_equal(hy_exit_of(&u, false), HY_EXIT_FAILED);
    u.state = (char *)"failed";
    assert_int_equal(hy_exit_of(&u, true), HY_EXIT_FAILED);
}

/* ---- the screen ------------------------------------------------------------------------- */

#define BEGIN "\033[?2026h\033[?25l\r"
#define END "\033[J\033[?2026l"

static void test_a_frame_is_drawn_over_the_last_one(void **state)
{
    struct hy_screen screen = {.keys = -1};
    hy_cleanup_out struct hy_out out = {0};

    (void)state;
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

static void test_a_terminal_that_became_narrower_is_wiped_whole(void **state)
{
    struct hy_screen screen = {.keys = -1};
    hy_cleanup_out struct hy_out out = {0};
    const char *frame = "\033[31mtwelve \033[0mlong\n\nx\n";

    (void)state;
    hy_out_init(&out, &fancy80);
    hy_screen_compose(&screen, frame, strlen(frame), 80, &out);
    hy_buf_clear(&out.buf);
    /* 11 columns take three rows of 5, the empty line and the x one each. */
    hy_screen_compose(&screen, "y\n", 2, 5, &out);
    assert_string_equal(text_of(&out), BEGIN "\033[4Ay\033[K" END);
}

/* ---- logs ---------------------------------------------------------------------------------- */

static size_t log_text(const struct hy_logtext *l, struct hy_out *out, const char *bytes, bool last,
                       bool full)
{
    return hy_logtext_append(l, out, 7, false, (const uint8_t *)bytes, strlen(bytes), last, full);
}

static void test_lines_of_several_trials_begin_with_their_number(void **state)
{
    struct hy_logtext l = {.prefix = true, .digits = 3};
    hy_cleanup_out struct hy_out out = {0};

    (void)state;
    hy_out_init(&out, &bare);
    assert_int_equal(log_text(&l, &out, "one\n\ntw", false, false), 5); /* the rest of the line is awaited */
    assert_int_equal(log_text(&l, &out, "two", true, false), 3);
    assert_int_equal(log_text(&l, &out, "too long", false, true), 8); /* but not for ever */
    assert_int_equal(hy_logtext_append(&l, &out, 12, true, (const uint8_t *)"\033\n", 2, false, false), 2);
    assert_string_equal(text_of(&out), "  7 | one\n  7 | \n  7 | two\n  7 | too long\n 12 ! \033\n");
}

static void test_bytes_go_to_a_pipe_as_they_are(void **state)
{
    struct hy_logtext l = {0};
    hy_cleanup_out struct hy_out out = {0};
    const uint8_t bytes[] = {0, 0xff, '\r', 0xc3};

    (void)state;
    hy_out_init(&out, &bare);
    assert_int_equal(hy_logtext_append(&l, &out, 1, false, bytes, sizeof bytes, false, false), sizeof bytes);
    assert_int_equal(out.buf.len, sizeof bytes);
    assert_memory_equal(hy_buf_bytes(&out.buf), bytes, sizeof bytes);
}

static void test_odd_bytes_do_a_terminal_no_harm(void **state)
{
    struct hy_logtext l = {.escape = true};
    hy_cleanup_out struct hy_out out = {0};

    (void)state;
    hy_out_init(&out, &ascii80);
    assert_int_equal(log_text(&l, &out, "a\033[2J\tb\r\n10%\r20%\rgr\xc3", false, false), 19);
    assert_int_equal(log_text(&l, &out, "\xc3\xbcn\xff", false, false),
                     3); /* \xff may begin nothing, but who knows */
    assert_int_equal(log_text(&l, &out, "\xff\r", true, false), 2);
    assert_string_equal(text_of(&out), "a\\x1b[2J\tb\n10%\n20%\ngrün\\xff\n");
}

/* ---- the run's description ------------------------------------------------------------------- */

static int spec_of(char **words, Hy__RunSpec **ret, struct hy_err *err)
{
    hy_cleanup_args struct hy_args args = {0};
    int rc = parse("run", words, &args, err);

    return rc < 0 ? rc : hy_spec_new(&args, ret, err);
}

static void test_a_grid_becomes_its_description(void **state)
{
    char *words[] = {(char *)"--grid",
                     (char *)"lr=0.1,0.01",
                     (char *)"--grid",
                     (char *)"act=relu",
                     (char *)"--max",
                     (char *)"accuracy",
                     (char *)"--parallel",
                     (char *)"2",
                     (char *)"--memory",
                     (char *)"4G",
                     (char *)"--timeout",
                     (char *)"1h",
                     (char *)"--retries",
                     (char *)"1",
                     (char *)"--seed",
                     (char *)"7",
                     (char *)"--name",
                     (char *)"digits",
                     (char *)"--hosts",
                     (char *)"a:4,me@b,[fe80::1]:2",
                     (char *)"--listen",
                     (char *)"0.0.0.0:4711",
                     (char *)"--",
                     (char *)"./train",
                     (char *)"{lr}",
                     (char *)"{{x}}",
                     NULL};
    hy_cleanup_spec Hy__RunSpec *s = NULL;
    struct hy_err err = {0};

    (void)state;
    if (spec_of(words, &s, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(s->kind, HY__RUN_SPEC__KIND__GRID);
    assert_int_equal(s->n_dims, 2);
    assert_string_equal(s->dims[1]->text, "act=relu");
    assert_string_equal(s->metric, "accuracy");
    assert_true(s->maximize);
    assert_int_equal(s->parallel, 2);
    assert_int_equal(s->memory, 4ULL << 30);
    assert_int_equal(s->timeout_ms, 3600000);
    assert_int_equal(s->retries, 1);
    assert_int_equal(s->seed, 7);
    assert_string_equal(s->name, "digits");
    assert_string_equal(s->listen, "0.0.0.0:4711");
    assert_int_equal(s->n_argv, 3);
    assert_string_equal(s->argv[1], "{lr}");
    assert_int_equal(s->n_hosts, 3);
    assert_string_equal(s->hosts[0]->host, "a");
    assert_int_equal(s->hosts[0]->slots, 4);
    assert_string_equal(s->hosts[1]->host, "me@b");
    assert_int_equal(s->hosts[1]->slots, 1);
    assert_string_equal(s->hosts[2]->host, "[fe80::1]");
    assert_int_equal(s->hosts[2]->slots, 2);
    assert_string_equal(hy_spec_unused(s), "act=relu");
}

static void test_searches_become_their_descriptions(void **state)
{
    char *evolve[] = {(char *)"--evolve", (char *)"--population",
                      (char *)"10",       (char *)"--generations",
                      (char *)"5",        (char *)"--mutation",
                      (char *)"0.8",      (char *)"--strategy",
                      (char *)"rand1bin", (char *)"--async",
                      (char *)"--space",  (char *)"x=-5.0..5.0",
                      (char *)"--min",    (char *)"f",
                      (char *)"--",       (char *)"f",
                      (char *)"{x}",      NULL};
    hy_cleanup_spec Hy__RunSpec *random = NULL, *evolution = NULL, *once = NULL;
    struct hy_err err = {0};

    (void)state;
    if (spec_of(WORDS("--random", (char *)"50", (char *)"--space", (char *)"lr=log:1e-5..1e-1", (char *)"--",
                      (char *)"t", (char *)"{lr}"),
                &random, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(random->kind, HY__RUN_SPEC__KIND__RANDOM);
    assert_int_equal(random->samples, 50);
    assert_null(hy_spec_unused(random));
    if (spec_of(evolve, &evolution, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(evolution->kind, HY__RUN_SPEC__KIND__EVOLVE);
    assert_int_equal(evolution->population, 10);
    assert_int_equal(evolution->generations, 5);
    assert_true(evolution->mutation == 0.8);
    assert_true(isnan(evolution->crossover));
    assert_string_equal(evolution->strategy, "rand1bin");
    assert_true(evolution->asynchronous);
    assert_false(evolution->maximize);
    assert_int_equal(spec_of(WORDS("--", (char *)"true"), &once, &err), 0);
    assert_int_equal(once->n_dims, 0);
}

static void test_what_cannot_be_is_refused_with_a_sentence(void **state)
{
    static const struct {
        const char *words[12], *says;
    } cases[] = {
        {{"--grid", "a=1", "--"}, "there is no command"},
        {{"--grid", "a=1"}, "there is no command"},
        {{"--grid", "a=", "--", "t"}, "--grid"},
        {{"--grid", "a=1", "--", "t", "{b}"}, "{b}"},
        {{"--grid", "a=1", "--grid", "a=2", "--", "t"}, "a"},
        {{"--grid", "a=1", "--random", "3", "--", "t"}, "write --space instead of --grid"},
        {{"--grid", "a=1", "--space", "b=1..2", "--", "t"}, "cannot be mixed"},
        {{"--space", "b=1..2", "--", "t"}, "--random N or --evolve"},
        {{"--random", "3", "--", "t"}, "needs a space"},
        {{"--random", "many", "--space", "b=1..2", "--", "t"}, "--random takes a whole number"},
        {{"--random", "3", "--evolve", "--space", "b=1..2", "--", "t"}, "choose one"},
        {{"--evolve", "--space", "b=1..2", "--", "t"}, "--max NAME or --min NAME"},
        {{"--evolve", "--space", "b=1..2", "--min", "f", "--", "t"}, "--generations"},
        {{"--population", "3", "--", "t"}, "belongs to --evolve"},
        {{"--max", "a", "--min", "b", "--", "t"}, "one metric"},
        {{"--memory", "4X", "--", "t"}, "--memory takes a size"},
        {{"--memory", "0", "--", "t"}, "--memory takes a size"},
        {{"--timeout", "soon", "--", "t"}, "--timeout takes a time"},
        {{"--parallel", "0", "--", "t"}, "--parallel takes a whole number"},
        {{"--retries", "-1", "--", "t"}, "--retries takes a whole number"},
        {{"--seed", "9223372036854775808", "--", "t"}, "--seed takes a whole number"},
        {{"--name", "12", "--", "t"}, "cannot be a number"},
        {{"--name", "a\nb", "--", "t"}, "no control characters"},
        {{"--listen", "host:99999", "--", "t"}, "--listen takes"},
        {{"--hosts", "a:0", "--", "t"}, "from 1 to 65536"},
    };

    (void)state;
    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        Hy__RunSpec *s = NULL;
        struct hy_err err = {0};

        assert_int_equal(spec_of((char **)(uintptr_t)cases[i].words, &s, &err), -EINVAL);
        assert_null(s);
        if (!strstr(err.text, cases[i].says))
            fail_msg("'%s' does not say '%s'", err.text, cases[i].says);
    }
}

static void test_a_strategy_misspelt_is_guessed(void **state)
{
    char *words[] = {(char *)"--evolve", (char *)"--generations",
                     (char *)"1",        (char *)"--space",
                     (char *)"x=1..2",   (char *)"--min",
                     (char *)"f",        (char *)"--strategy",
                     (char *)"best1bim", (char *)"--",
                     (char *)"t",        NULL};
    Hy__RunSpec *s = NULL;
    struct hy_err err = {0};

    (void)state;
    assert_int_equal(spec_of(words, &s, &err), -EINVAL);
    assert_non_null(strstr(err.text, "did you mean best1bin?"));
}

static void test_hosts_that_are_none_are_refused(void **state)
{
    static const char *const bad[] = {
        "",    ",",       "a,",       ":4",       "a:",     "a:x",   "a:-1",  "a:65537", "-oProxyCommand=x",
        "a b", "fe80::1", "[fe80::1", "fe80::1]", "[::1]4", "a,a:2", "a:1:2", "'a'",     "a\nb"};

    (void)state;
    for (size_t i = 0; i < HY_COUNT(bad); i++) {
        Hy__RunSpec s = HY__RUN_SPEC__INIT;
        struct hy_err err = {0};

        if (hy_spec_hosts(&s, bad[i], &err) != -EINVAL)
            fail_msg("'%s' was taken", bad[i]);
        for (size_t h = 0; h < s.n_hosts; h++)
            hy__host_spec__free_unpacked(s.hosts[h], &hy_proto_memory);
        free(s.hosts);
    }
}

/* ---- surroundings ---------------------------------------------------------------------------- */

/* A folder of the test's own, removed with hy_remove_tree. */
static char *make_folder(void)
{
    char *path = strdup("/tmp/hy-cli-XXXXXX");

    assert_non_null(path);
    assert_non_null(mkdtemp(path));
    return path;
}

static void remove_folder(char *path)
{
    assert_int_equal(hy_remove_tree(path), 0);
    free(path);
}

static void write_text(const char *folder, const char *name, const char *text, mode_t mode)
{
    hy_cleanup_free char *path = hy_path_join(folder, name);

    assert_int_equal(hy_file_write(path, text, strlen(text), 0600), 0);
    assert_int_equal(chmod(path, mode), 0);
}

static void test_programs_are_found_as_a_shell_finds_them(void **state)
{
    char *folder = make_folder();
    hy_cleanup_free char *list = hy_asprintf("/nowhere:%s", folder), *found = NULL, *again = NULL;
    struct hy_err err = {0};

    (void)state;
    write_text(folder, "train", "#!/bin/sh\n", 0700);
    write_text(folder, "train.py", "", 0600);
    assert_int_equal(hy_find_program("train", "/", list, &found, &err), 0);
    assert_non_null(strstr(found, "/train"));
    assert_int_equal(hy_find_program("./train", folder, "", &again, &err), 0);
    assert_int_equal(hy_find_program("train", folder, "/nowhere", &again, &err), -ENOENT);
    assert_non_null(strstr(err.text, "did you mean ./train?"));
    assert_int_equal(hy_find_program("./nothing", folder, "", &again, &err), -ENOENT);
    assert_non_null(strstr(err.text, "./nothing"));
    assert_int_equal(hy_find_program("./train.py", folder, "", &again, &err), -EACCES);
    assert_non_null(strstr(err.text, "python3"));
    assert_int_equal(hy_find_program("/tmp", folder, "", &again, &err), -EISDIR);
    assert_int_equal(hy_find_program("", folder, "", &again, &err), -ENOENT);
    remove_folder(folder);
}

static void test_other_programs_are_asked_for_one_line(void **state)
{
    char *two[] = {(char *)"printf", (char *)"one\ntwo\n", NULL}, *failing[] = {(char *)"false", NULL};
    char *missing[] = {(char *)"/nowhere/program", NULL}, *silent[] = {(char *)"true", NULL};
    char *endless[] = {(char *)"sh", (char *)"-c", (char *)"sleep 1000 & wait", NULL};
    char *much[] = {(char *)"sh", (char *)"-c", (char *)"head -c 1000000 /dev/zero | tr '\\0' x", NULL};
    int64_t later = hy_clock_ms() + 60000;
    hy_cleanup_free char *line = hy_first_line(two, "/", later),
                         *nothing = hy_first_line(silent, NULL, later);
    hy_cleanup_free char *cut = hy_first_line(much, NULL, later);

    (void)state;
    assert_string_equal(line, "one");
    assert_string_equal(nothing, "");
    assert_true(cut && strlen(cut) <= 1024);
    assert_null(hy_first_line(failing, NULL, later));
    assert_null(hy_first_line(missing, NULL, later));
    assert_null(hy_first_line(two, "/nowhere", later));
    assert_null(hy_first_line(endless, NULL, hy_clock_ms() + 50)); /* and it has ended with all it started */
}

static void test_versions_say_what_is_known(void **state)
{
    hy_cleanup_free char *text = hy_versions("/bin/train", hy_clock_ms() + 60000);
    hy_cleanup_json json_t *o = json_loads(text, 0, NULL);

    (void)state;
    assert_string_equal(json_string_value(json_object_get(o, "hopyard")), HY_VERSION);
    assert_non_null(json_object_get(o, "kernel"));
    assert_non_null(json_object_get(o, "glibc"));
    assert_string_equal(json_string_value(json_object_get(o, "program")), "/bin/train");
}

static void test_a_folder_without_git_has_no_commit(void **state)
{
    char *folder = make_folder();

    (void)state;
    assert_null(hy_git_commit(folder, hy_clock_ms() + 60000));
    remove_folder(folder);
}

static void test_surroundings_leave_an_outer_trials_names_out(void **state)
{
    hy_cleanup_spec Hy__RunSpec *s = NULL;
    struct hy_err err = {0};

    (void)state;
    setenv("HOPYARD_RESULT", "/outer", 1);
    setenv("HY_TEST_WORD", "kept", 1);
    assert_int_equal(spec_of(WORDS("--", (char *)"true"), &s, &err), 0);
    if (hy_spec_surroundings(s, "/project", &err) < 0)
        fail_msg("%s", err.text);
    unsetenv("HOPYARD_RESULT");
    unsetenv("HY_TEST_WORD");
    assert_string_equal(s->project, "/project");
    assert_int_equal(s->cwd[0], '/');
    for (size_t i = 0, found = 0; i < s->n_env || !found; i++) {
        assert_true(i < s->n_env);
        assert_null(strstr(s->env[i], "HOPYARD_RESULT="));
        found |= strcmp(s->env[i], "HY_TEST_WORD=kept") == 0;
    }
}

static void test_a_missing_program_is_a_mistake_of_usage(void **state)
{
    hy_cleanup_spec Hy__RunSpec *s = NULL;
    struct hy_err err = {0};

    (void)state;
    assert_int_equal(spec_of(WORDS("--", (char *)"./nothing-here"), &s, &err), 0);
    assert_int_equal(hy_spec_surroundings(s, "/project", &err), -EINVAL);
    assert_int_equal(err.code, -EINVAL);
}

/* ---- words ------------------------------------------------------------------------------------ */

static void test_commands_are_quoted_as_a_shell_wants_them(void **state)
{
    hy_cleanup_free char *text =
        hy_command_text("[\"./train\", \"--lr\", \"{lr}\", \"a b\", \"it's\", \"\"]");
    hy_cleanup_free char *none = hy_command_text("nonsense"),
                         *versions = hy_versions_text("{\"a\": \"1\", \"b\": \"2\"}");
    hy_cleanup_free char *params =
        hy_json_params("{\"lr\": 0.001, \"n\": 3, \"act\": \"relu\", \"on\": true}", false);

    (void)state;
    assert_string_equal(text, "./train --lr {lr} 'a b' 'it'\\''s' ''");
    assert_string_equal(none, "");
    assert_string_equal(versions, "a 1, b 2");
    assert_string_equal(params, "lr=0.001 n=3 act=relu on=true");
}

static void test_ages_are_rounded_down(void **state)
{
    char text[40];

    (void)state;
    assert_string_equal(hy_format_age(0, 59999, text, sizeof text), "59s ago");
    assert_string_equal(hy_format_age(0, 3599999, text, sizeof text), "59m ago");
    assert_string_equal(hy_format_age(0, 86399999, text, sizeof text), "23h ago");
    assert_string_equal(hy_format_age(0, 10 * 86400000LL, text, sizeof text), "10d ago");
    assert_string_equal(hy_format_age(5000, 0, text, sizeof text), "0s ago");
}

static void test_help_comes_from_the_tables_and_fits(void **state)
{
    (void)state;
    for (const struct hy_command *c = hy_commands; c->name; c++) {
        hy_cleanup_out struct hy_out out = {0};

        hy_out_init(&out, &ascii80);
        hy_help_command(&out, c);
        for (const struct hy_option *o = c->options; o && o->name; o++)
            assert_non_null(strstr(text_of(&out), o->name));
        for (const char *line = text_of(&out), *end; (end = strchr(line, '\n')); line = end + 1)
            if (hy_columns(line, (size_t)(end - line)) > 80)
                fail_msg("%s: too long: '%.*s'", c->name, (int)(end - line), line);
    }
}

/* ---- faults --------------------------------------------------------------------------------------- */

static int describe_scenario(void *arg)
{
    char *words[] = {
        (char *)"--grid", (char *)"lr=0.1,0.01", (char *)"--max",   (char *)"accuracy", (char *)"--hosts",
        (char *)"a:4,b",  (char *)"--",          (char *)"./train", (char *)"{lr}",     NULL};
    hy_cleanup_spec Hy__RunSpec *s = NULL;
    struct hy_err err = {0};
    int rc = spec_of(words, &s, &err);

    (void)arg;
    if (rc < 0)
        assert_true(err.text[0] && err.code == rc);
    return rc;
}

static int render_scenario(void *arg)
{
    struct hy_teller plain = {0}, json = {.json = true};
    struct hy_board board = {0};
    hy_cleanup_out struct hy_out out = {0};
    Hy__Update *u = last_update();
    int rc;

    (void)arg;
    hy_out_init(&out, &fancy80);
    rc = hy_teller_update(&plain, u, &out);
    if (rc == 0)
        rc = hy_teller_update(&json, u, &out);
    if (hy_board_take(&board, u, 0) < 0 && rc == 0)
        rc = -ENOMEM;
    if (rc == 0)
        rc = hy_board_table(&board, &out, 0, 1, "Stop?");
    if (rc == 0)
        rc = hy_board_summary(&board, &out);
    hy_board_done(&board);
    return rc;
}

static int facts_scenario(void *arg)
{
    char *argv[] = {(char *)"printf", (char *)"x\n", NULL};
    hy_cleanup_free char *line = hy_first_line(argv, NULL, hy_clock_ms() + 60000);

    (void)arg;
    return line ? 0 : -EIO;
}

static void test_faults_are_survived(void **state)
{
    (void)state;
    hy_each_fault(HY_SEAM_ALLOC, describe_scenario, NULL);
    hy_each_fault(HY_SEAM_ALLOC, render_scenario, NULL);
    hy_each_fault(HY_SEAM_ALLOC, facts_scenario, NULL);
    hy_each_fault(HY_SEAM_SYS, facts_scenario, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_are_read_in_every_spelling),
        cmocka_unit_test(test_words_and_letters_may_be_mixed),
        cmocka_unit_test(test_every_mistake_gets_its_sentence),
        cmocka_unit_test(test_help_among_the_words_wins_over_what_is_missing),
        cmocka_unit_test(test_edit_distance_counts_changes_and_swaps),
        cmocka_unit_test(test_a_far_word_is_no_guess),
        cmocka_unit_test(test_columns_are_not_bytes),
        cmocka_unit_test(test_cut_text_ends_in_an_ellipsis_within_its_columns),
        cmocka_unit_test(test_a_grid_aligns_its_columns_and_escapes_its_cells),
        cmocka_unit_test(test_a_grid_cuts_the_widest_column_first_then_drops),
        cmocka_unit_test(test_a_grid_that_is_drawn_again_does_not_jump),
        cmocka_unit_test(test_the_live_table_shows_what_runs_and_what_ended_last),
        cmocka_unit_test(test_the_live_table_uses_symbols_and_colours_where_it_may),
        cmocka_unit_test(test_no_frame_is_larger_than_its_terminal),
        cmocka_unit_test(test_a_trial_that_ended_twice_is_shown_once),
        cmocka_unit_test(test_a_board_keeps_only_the_newest),
        cmocka_unit_test(test_the_summary_says_what_is_worth_keeping),
        cmocka_unit_test(test_a_pipe_gets_one_line_per_trial),
        cmocka_unit_test(test_who_connects_again_is_told_nothing_twice),
        cmocka_unit_test(test_programs_get_one_object_a_line),
        cmocka_unit_test(test_the_exit_status_tells_how_it_ended),
        cmocka_unit_test(test_a_frame_is_drawn_over_the_last_one),
        cmocka_unit_test(test_a_terminal_that_became_narrower_is_wiped_whole),
        cmocka_unit_test(test_lines_of_several_trials_begin_with_their_number),
        cmocka_unit_test(test_bytes_go_to_a_pipe_as_they_are),
        cmocka_unit_test(test_odd_bytes_do_a_terminal_no_harm),
        cmocka_unit_test(test_a_grid_becomes_its_description),
        cmocka_unit_test(test_searches_become_their_descriptions),
        cmocka_unit_test(test_what_cannot_be_is_refused_with_a_sentence),
        cmocka_unit_test(test_a_strategy_misspelt_is_guessed),
        cmocka_unit_test(test_hosts_that_are_none_are_refused),
        cmocka_unit_test(test_programs_are_found_as_a_shell_finds_them),
        cmocka_unit_test(test_other_programs_are_asked_for_one_line),
        cmocka_unit_test(test_versions_say_what_is_known),
        cmocka_unit_test(test_a_folder_without_git_has_no_commit),
        cmocka_unit_test(test_surroundings_leave_an_outer_trials_names_out),
        cmocka_unit_test(test_a_missing_program_is_a_mistake_of_usage),
        cmocka_unit_test(test_commands_are_quoted_as_a_shell_wants_them),
        cmocka_unit_test(test_ages_are_rounded_down),
        cmocka_unit_test(test_help_comes_from_the_tables_and_fits),
        cmocka_unit_test(test_faults_are_survived),
    };

    setenv("TERM", "dumb", 1);
    unsetenv("HOPYARD_PROJECT");
    hy_style_init();
    hy_json_init();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
