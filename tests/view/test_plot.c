/* SPDX-License-Identifier: Apache-2.0 */
/* Plots for a terminal, compared with their expected output. */
#include "view_fixture.h"

#include <errno.h>
#include <float.h>

#include "search/search.h"
#include "view/plot.h"
#include "view/trial_columns_json.h"

static const struct hy_style fancy40 = {.width = 40, .unicode = true};
static const struct hy_style ascii40 = {.width = 40};
static const struct hy_plot_metric accuracy = {"accuracy", true};

static struct hy_trial_columns columns_of(const char *const *params, const double *values, size_t count)
{
    struct hy_trial_columns c;

    hy_trial_columns_init(&c);
    for (size_t i = 0; i < count; i++) {
        struct hy_trial_row row = {.number = (int64_t)i + 1,
                                   .params = params[i],
                                   .state = HY_TRIAL_DONE,
                                   .has_value = true,
                                   .value = values[i]};

        assert_int_equal(hy_trial_columns_add_row(&c, &row), 0);
    }
    assert_int_equal(hy_trial_columns_finish(&c), 0);
    return c;
}

/* ---- history ----------------------------------------------------------------------------------- */

HY_TEST(test_history_has_the_values_and_a_line_for_the_best_so_far)
{
    static const double values[] = {0.2, NAN, 0.5, 0.3, 0.9, 0.1, 0.6, 0.8};
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &ascii40);
    assert_int_equal(hy_plot_history(&out, &accuracy, values, HY_COUNT(values)), 0);
    assert_string_equal(text_of(&out), "\n"
                                       "accuracy by trial, and the best so far\n"
                                       "   0.9 +                  :'''''''''''''\n"
                                       "       |                  :            '\n"
                                       "       |                  :\n"
                                       "       |                  :        .\n"
                                       "       |         .........:\n"
                                       "  0.46 +         :\n"
                                       "       |         :\n"
                                       "       |         :   .\n"
                                       "       |.........:\n"
                                       "   0.1 +                      .\n"
                                       "       +--------------------------------\n"
                                       "        1            trial             8\n");
}

HY_TEST(test_history_uses_braille_where_the_terminal_has_it)
{
    static const double values[] = {9, 7, 8, 3, 5, 2, 6, 2.5};
    static const struct hy_plot_metric loss = {"loss", false};
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &fancy40);
    assert_int_equal(hy_plot_history(&out, &loss, values, HY_COUNT(values)), 0);
    assert_string_equal(text_of(&out), "\n"
                                       "loss by trial, and the best so far\n"
                                       "     9 ┤⠉⠉⠉⠉⢹\n"
                                       "       │    ⢸    ⠂\n"
                                       "       │    ⢸⣀⣀⣀⣀⣀⣀⣀⣀⣀\n"
                                       "       │             ⢸\n"
                                       "       │             ⢸             ⠂\n"
                                       "  5.15 ┤             ⢸    ⠄\n"
                                       "       │             ⢸\n"
                                       "       │             ⢸\n"
                                       "       │             ⠸⠤⠤⠤⠤⠤⠤⠤⠤⢤\n"
                                       "     2 ┤                      ⢸⣀⣀⣀⣀⣀⣀⣀⣀⣀\n"
                                       "       └────────────────────────────────\n"
                                       "        1            trial             8\n");
}

HY_TEST(test_values_far_from_the_others_are_left_out_and_counted)
{
    double values[40];
    static const struct hy_plot_metric loss = {"loss", false};
    hy_cleanup_out struct hy_out out = {0};

    for (int i = 0; i < 40; i++)
        values[i] = i == 7 || i == 9 ? 1e30 : 1 + i % 5;
    hy_out_init(&out, &ascii40);
    assert_int_equal(hy_plot_history(&out, &loss, values, HY_COUNT(values)), 0);
    assert_non_null(strstr(text_of(&out), "loss by trial, and the best so far; 4 of 40 worse values are not shown\n"));
    assert_null(strstr(text_of(&out), "e+"));
}

HY_TEST(test_history_without_values_is_empty)
{
    static const double values[] = {NAN, NAN};
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &ascii40);
    assert_int_equal(hy_plot_history(&out, &accuracy, values, HY_COUNT(values)), 0);
    assert_int_equal(hy_plot_history(&out, &accuracy, NULL, 0), 0);
    assert_int_equal(out.buf.len, 0);
}

HY_TEST(test_one_value_and_equal_values_are_plotted)
{
    static const double values[] = {-3, -3, -3};
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &ascii40);
    assert_int_equal(hy_plot_history(&out, &accuracy, values, 1), 0);
    assert_non_null(strstr(text_of(&out), "-3"));
    assert_int_equal(hy_plot_history(&out, &accuracy, values, 3), 0);
    assert_non_null(strstr(text_of(&out), "-2.7 +"));
}

HY_TEST(test_the_largest_and_the_smallest_numbers_are_plotted)
{
    static const double values[] = {DBL_MAX, -DBL_MAX, 0}, equal[] = {DBL_MAX, DBL_MAX}, close[] = {1e15, 1e15 + 1};
    static const char *const wide[] = {"{\"x\": 1e-308}", "{\"x\": 1e308}"};
    struct hy_trial_columns c = columns_of(wide, equal, 2);
    hy_cleanup_out struct hy_out out = {0}, two = {0};

    hy_out_init(&out, &ascii40);
    assert_int_equal(hy_plot_history(&out, &accuracy, values, 3), 0);
    assert_int_equal(hy_plot_history(&out, &accuracy, equal, 2), 0);
    assert_int_equal(hy_plot_scatter(&out, &accuracy, &c, 0, true), 0);
    assert_null(strstr(text_of(&out), "nan"));
    assert_null(strstr(text_of(&out), "inf"));
    hy_out_init(&two, &ascii40);
    assert_int_equal(hy_plot_history(&two, &accuracy, close, 2), 0);
    assert_non_null(strstr(text_of(&two), "  1e+15 +                              :\n"));
    assert_non_null(strstr(text_of(&two), "  1e+15 +..............................:\n"));
    hy_trial_columns_done(&c);
}

HY_TEST(test_plots_are_in_color_where_the_rest_is)
{
    static const double values[] = {0.2, 0.5};
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &fancy80);
    assert_int_equal(hy_plot_history(&out, &accuracy, values, 2), 0);
    assert_non_null(strstr(text_of(&out), "\033[32m⣀"));
}

/* ---- importance ---------------------------------------------------------------------------------------- */

static const char *const names[] = {"{\"lr\": 1, \"act\": 1, \"evil\\u001b[2J\": 1}"};

static struct hy_importance shares(void)
{
    struct hy_importance m = {.params = hy_calloc(3, sizeof *m.params), .count = 3, .pair_count = 2};

    m.params[0] = (struct hy_param_share){0, 0.5};
    m.params[1] = (struct hy_param_share){2, 0.25};
    m.params[2] = (struct hy_param_share){1, 0.01};
    m.pairs[0] = (struct hy_pair_share){0, 1, 0.125};
    m.pairs[1] = (struct hy_pair_share){0, 2, 0.009};
    return m;
}

HY_TEST(test_importance_has_a_bar_for_each_hyperparameter_and_for_important_pairs)
{
    struct hy_trial_columns c = columns_of(names, (double[]){1}, 1);
    struct hy_importance m = shares();
    hy_cleanup_out struct hy_out out = {0}, plain = {0};

    hy_out_init(&out, &fancy40);
    assert_int_equal(hy_plot_importance(&out, &m, &c), 0);
    assert_string_equal(text_of(&out), "\n"
                                       "importance of hyperparameters\n"
                                       "  lr           0.500 ██████████████████\n"
                                       "  evil\\x1b[2J  0.250 █████████\n"
                                       "  act          0.010 ▍\n"
                                       "  lr × act     0.125 ████▌\n");
    c.seen = 100000;
    hy_out_init(&plain, &ascii40);
    assert_int_equal(hy_plot_importance(&plain, &m, &c), 0);
    assert_string_equal(text_of(&plain), "\n"
                                         "importance of hyperparameters, from a sample of 1 of 100,000 trials\n"
                                         "  lr           0.500 ##################\n"
                                         "  evil\\x1b[2J  0.250 #########\n"
                                         "  act          0.010 \n"
                                         "  lr x act     0.125 #####\n");
    hy_importance_done(&m);
    hy_trial_columns_done(&c);
}

HY_TEST(test_importance_says_why_there_is_none)
{
    struct hy_trial_columns c = columns_of(names, (double[]){1}, 1);
    struct hy_importance m;
    hy_cleanup_out struct hy_out out = {0};

    assert_int_equal(hy_importance_init(&m, &c), 0);
    hy_out_init(&out, &ascii40);
    assert_int_equal(hy_plot_importance(&out, &m, &c), 0);
    assert_string_equal(text_of(&out), "\nimportance of hyperparameters: none, at least 8 finished trials with a "
                                       "finite value are needed; there is 1\n");
    hy_importance_done(&m);
    hy_trial_columns_done(&c);
}

/* ---- scatter ------------------------------------------------------------------------------------------- */

static const char *const mixed[] = {"{\"lr\": 0.0001, \"act\": \"relu\"}", "{\"lr\": 0.001, \"act\": \"tanh\"}",
                                    "{\"lr\": 0.01, \"act\": \"relu\"}", "{\"lr\": 0.1, \"act\": [64, 64]}",
                                    "{\"act\": \"tanh\\u001b[2J\"}"};
static const double mixed_values[] = {1, 2, 3, 4, 2.5};

HY_TEST(test_scatter_has_a_log_axis_where_it_is_suitable)
{
    struct hy_trial_columns c = columns_of(mixed, mixed_values, 5);
    hy_cleanup_out struct hy_out out = {0}, linear = {0};

    hy_out_init(&out, &ascii40);
    assert_int_equal(hy_plot_scatter(&out, &accuracy, &c, 0, true), 0);
    assert_string_equal(text_of(&out), "\n"
                                       "accuracy against lr (log)\n"
                                       "     4 +                               '\n"
                                       "       |\n"
                                       "       |\n"
                                       "       |                     '\n"
                                       "       |\n"
                                       "  2.35 +\n"
                                       "       |          .\n"
                                       "       |\n"
                                       "       |\n"
                                       "     1 +.\n"
                                       "       +--------------------------------\n"
                                       "        0.0001         lr            0.1\n");
    hy_out_init(&linear, &ascii40);
    c.params[0].values[0] = 0; /* has no logarithm */
    assert_int_equal(hy_plot_scatter(&linear, &accuracy, &c, 0, true), 0);
    assert_null(strstr(text_of(&linear), "(log)"));
    hy_trial_columns_done(&c);
}

HY_TEST(test_scatter_of_a_category_has_its_choices_below)
{
    struct hy_trial_columns c = columns_of(mixed, mixed_values, 5);
    hy_cleanup_out struct hy_out out = {0};

    hy_out_init(&out, &ascii40);
    assert_int_equal(hy_plot_scatter(&out, &accuracy, &c, 1, false), 0);
    assert_string_equal(text_of(&out), "\n"
                                       "accuracy against act\n"
                                       "     4 +    '\n"
                                       "       |\n"
                                       "       |\n"
                                       "       |            '\n"
                                       "       |                            .\n"
                                       "  2.35 +\n"
                                       "       |                    .\n"
                                       "       |\n"
                                       "       |\n"
                                       "     1 +            .\n"
                                       "       +--------------------------------\n"
                                       "         [64,64]  relu    tanh   tanh\\x~\n");
    hy_trial_columns_done(&c);
}

HY_TEST(test_no_line_is_wider_than_the_terminal)
{
    static const int widths[] = {24, 30, 53, 80, 100};
    struct hy_trial_columns c = columns_of(mixed, mixed_values, 5);
    struct hy_importance m = shares();

    m.params[1].param = 1;
    m.pairs[1].second = 1;
    for (size_t i = 0; i < HY_COUNT(widths); i++) {
        struct hy_style style = {.width = widths[i], .unicode = true};
        hy_cleanup_out struct hy_out out = {0};
        char *line, *rest = NULL;

        hy_out_init(&out, &style);
        assert_int_equal(hy_plot_scatter(&out, &(struct hy_plot_metric){"m", true}, &c, 1, false), 0);
        assert_int_equal(hy_plot_scatter(&out, &(struct hy_plot_metric){"m", true}, &c, 0, true), 0);
        m.count = 2;
        m.pair_count = 1;
        hy_out_str(&out, "x"); /* the title of the bars is longer */
        assert_int_equal(hy_plot_importance(&out, &m, &c), 0);
        for (line = strtok_r((char *)(uintptr_t)text_of(&out), "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
            if (!strstr(line, "importance") && hy_columns(line, strlen(line)) > widths[i])
                fail_msg("width %d: %s", widths[i], line);
    }
    hy_importance_done(&m);
    hy_trial_columns_done(&c);
}

HY_TEST(test_log_axes_are_for_log_ranges_and_wide_lists)
{
    struct hy_space space = {0};
    struct hy_err err = {0};

    assert_int_equal(hy_space_add(&space, "a=log:1..10", &err), 0);
    assert_int_equal(hy_space_add(&space, "b=0.001..10.0", &err), 0);
    assert_int_equal(hy_space_add_grid(&space, "c=1e-4,1e-3,0.01", &err), 0);
    assert_int_equal(hy_space_add_grid(&space, "d=1,2,3", &err), 0);
    assert_int_equal(hy_space_add_grid(&space, "e=0,1,1000", &err), 0);
    assert_int_equal(hy_space_add_grid(&space, "f=relu,1000", &err), 0);
    assert_true(hy_dim_is_log(&space.dims[0]) && hy_dim_is_log(&space.dims[2]));
    for (size_t i = 1; i < 6; i++)
        assert_true(i == 2 || !hy_dim_is_log(&space.dims[i]));
    hy_space_done(&space);
}

/* ---- faults ------------------------------------------------------------------------------------------------ */

static int plot_all(void *arg)
{
    hy_cleanup_trial_columns struct hy_trial_columns c;
    hy_cleanup_importance struct hy_importance m = {0};
    hy_cleanup_out struct hy_out out = {0};
    int rc = 0;

    (void)arg;
    hy_out_init(&out, &fancy40);
    hy_trial_columns_init(&c);
    for (size_t i = 0; i < 10 && rc == 0; i++) {
        struct hy_trial_row row = {.number = 1, .params = mixed[i % 5], .state = HY_TRIAL_DONE, .has_value = true};

        row.value = mixed_values[i % 5];
        rc = hy_trial_columns_add_row(&c, &row);
    }
    rc = rc == 0 ? hy_trial_columns_finish(&c) : rc;
    rc = rc == 0 ? hy_plot_history(&out, &accuracy, c.metric, c.rows) : rc;
    rc = rc == 0 ? hy_plot_scatter(&out, &accuracy, &c, 0, true) : rc;
    rc = rc == 0 ? hy_plot_scatter(&out, &accuracy, &c, 1, true) : rc;
    rc = rc == 0 ? hy_importance_init(&m, &c) : rc;
    return rc == 0 ? hy_plot_importance(&out, &m, &c) : rc;
}

HY_TEST(test_plots_survive_failed_allocations)
{
    hy_each_fault(HY_SEAM_ALLOC, plot_all, NULL);
    hy_some_faults(HY_SEAM_ALLOC, 11, plot_all, NULL);
}

int main(int argc, char **argv)
{
    begin_plain();
    return hy_run_tests(argc > 1 ? argv[1] : NULL, NULL, NULL);
}
