/* SPDX-License-Identifier: Apache-2.0 */
/* Options, help, run specs and their environment; faults, in rendering too. */
#include "support.h"

#include "view/view_fixture.h"

#include <errno.h>
#include <jansson.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "view/live_view.h"
#include "cli/commands.h"
#include "client/provenance.h"
#include "cli/run_spec.h"
#include "view/run_lines.h"
#include "wire/limits.h"

static int count_words(char **words)
{
    int n = 0;

    while (words[n])
        n++;
    return n;
}

/* ---- options ------------------------------------------------------------------ */

static int parse(const char *command, char **words, struct hy_args *args, struct hy_err *err)
{
    return hy_args_parse(hy_command_find(command), count_words(words), words, args, err);
}

HY_TEST(test_options_are_parsed_in_every_spelling)
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

HY_TEST(test_words_and_short_options_may_be_mixed)
{
    char *words[] = {(char *)"digits", (char *)"-f", (char *)"7", NULL}, *dash[] = {(char *)"--", (char *)"-f", NULL};
    struct hy_args args;
    struct hy_err err = {0};

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

HY_TEST(test_usage_errors_have_a_specific_message)
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
        {"run", {"train"}, "after --"},
        {"run", {"-x"}, "unknown option '-x'"},
        {"show", {"1", "2"}, "unexpected argument '2'"},
        {"rm", {NULL}, "hopyard rm RUN…"},
        {"import", {NULL}, "hopyard import PATH"},
    };

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        struct hy_args args;
        struct hy_err err = {0};

        assert_int_equal(parse(cases[i].command, (char **)(uintptr_t)cases[i].words, &args, &err), -EINVAL);
        if (!strstr(hy_sentence_of(&err), cases[i].says))
            fail_msg("'%s' does not say '%s'", hy_sentence_of(&err), cases[i].says);
    }
}

HY_TEST(test_help_takes_precedence_over_missing_words)
{
    struct hy_args args;
    struct hy_err err = {0};

    assert_int_equal(parse("rm", WORDS("-h"), &args, &err), 0);
    assert_true(args.help);
    hy_args_done(&args);
}

HY_TEST(test_help_lists_all_options_in_80_columns)
{
    for (const struct hy_command *c = hy_commands; c->name; c++) {
        hy_cleanup_out struct hy_out out = {0};

        hy_out_init(&out, &ascii80);
        hy_help_command(&out, c);
        for (const struct hy_option *o = c->options; o && o->name; o++)
            assert_true(!o->help || strstr(text_of(&out), o->name));
        for (const char *line = text_of(&out), *end; (end = strchr(line, '\n')); line = end + 1)
            if (hy_columns(line, (size_t)(end - line)) > 80)
                fail_msg("%s: too long: '%.*s'", c->name, (int)(end - line), line);
    }
}

/* ---- run specs -------------------------------------------------------------------------------- */

static int spec_of(char **words, Hy__RunSpec **ret, struct hy_err *err)
{
    hy_cleanup_args struct hy_args args = {0};
    int rc = parse("run", words, &args, err);

    return rc < 0 ? rc : hy_spec_new(&args, ret, err);
}

HY_TEST(test_a_share_of_a_gpu_counts_in_hundredths_rounded_down)
{
    static const struct {
        const char *text;
        unsigned share;
    } cases[] = {{"0", 0},      {"0.01", 10},   {"0.29", 290}, {"0.3333333333333333", 330},
                 {"0.57", 570}, {"0.999", 990}, {"1", 1000},   {"1.0", 1000},
                 {"4", 4000},   {"64", 64000}};

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        char *words[] = {(char *)"--gpus", (char *)cases[i].text, (char *)"--", (char *)"t", NULL};
        hy_cleanup_spec Hy__RunSpec *s = NULL;
        struct hy_err err = {0};

        assert_int_equal(spec_of(words, &s, &err), 0);
        assert_true(s->gpus_said);
        assert_int_equal(s->gpu_share, cases[i].share);
    }
}

HY_TEST(test_grid_options_become_a_run_spec)
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
                     (char *)"--max-transfer",
                     (char *)"none",
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

    if (spec_of(words, &s, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(s->kind, HY__RUN_SPEC__KIND__GRID);
    assert_int_equal(s->n_dims, 2);
    assert_string_equal(s->dims[1]->text, "act=relu");
    assert_string_equal(s->metric, "accuracy");
    assert_true(s->maximize);
    assert_int_equal(s->parallel, 2);
    assert_int_equal(s->memory, 4ULL << 30);
    assert_true(s->max_transfer == HY_TRANSFER_UNLIMITED);
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

HY_TEST(test_search_options_become_a_run_spec)
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

HY_TEST(test_invalid_run_options_are_refused_with_a_message)
{
    static const struct {
        const char *words[12], *says;
    } cases[] = {
        {{"--grid", "a=1", "--"}, "missing command"},
        {{"--grid", "a=1"}, "missing command"},
        {{"--grid", "a=", "--", "t"}, "--grid"},
        {{"--grid", "a=1", "--", "t", "{b}"}, "{b}"},
        {{"--grid", "a=1", "--grid", "a=2", "--", "t"}, "a"},
        {{"--grid", "a=[1,2", "--grid", "b=[1,]", "--", "t"}, "--grid: 'b' is not a valid JSON list: at byte 4"},
        {{"--random", "1", "--space", "a=[x]", "--", "t"}, "--space: 'a' is not a valid JSON list"},
        {{"--paired", "--", "t"}, "--paired requires --grid"},
        {{"--paired", "--random", "1", "--space", "a=1..2", "--", "t"}, "--paired requires --grid"},
        {{"--paired", "--grid", "a=1,2", "--grid", "b=1..3", "--", "t"}, "'a' has 2 values and 'b' has 3"},
        {{"--grid", "a=@/nowhere/values", "--", "t"}, "a: cannot read values from '/nowhere/values': No such file"},
        {{"--grid", "a=@/", "--", "t"}, "Is a directory"},
        {{"--grid", "a=@/dev/null", "--", "t"}, "no values"},
        {{"--grid", "a=@/dev/zero", "--", "t"}, "are larger than 8 MB"},
        {{"--grid", "a=1", "--random", "3", "--", "t"}, "use --space instead of --grid"},
        {{"--grid", "a=1", "--space", "b=1..2", "--", "t"}, "exclude each other"},
        {{"--space", "b=1..2", "--", "t"}, "--random N or --evolve"},
        {{"--random", "3", "--", "t"}, "requires a search space"},
        {{"--random", "many", "--space", "b=1..2", "--", "t"}, "--random takes an integer"},
        {{"--random", "3", "--evolve", "--space", "b=1..2", "--", "t"}, "choose one"},
        {{"--evolve", "--space", "b=1..2", "--", "t"}, "--max NAME or --min NAME"},
        {{"--evolve", "--space", "b=1..2", "--min", "f", "--", "t"}, "--generations"},
        {{"--population", "3", "--", "t"}, "requires --evolve"},
        {{"--max", "a", "--min", "b", "--", "t"}, "one metric"},
        {{"--memory", "4X", "--", "t"}, "--memory takes a size"},
        {{"--memory", "0", "--", "t"}, "--memory takes a size"},
        {{"--max-transfer", "0", "--", "t"}, "--max-transfer takes a size"},
        {{"--max-transfer", "much", "--", "t"}, "--max-transfer takes a size"},
        {{"--gpus", "1.5", "--", "t"}, "--gpus takes an integer"},
        {{"--gpus", "0.009", "--", "t"}, "--gpus takes an integer"},
        {{"--gpus", "nan", "--", "t"}, "--gpus takes an integer"},
        {{"--timeout", "soon", "--", "t"}, "--timeout takes a duration"},
        {{"--parallel", "0", "--", "t"}, "--parallel takes an integer"},
        {{"--retries", "-1", "--", "t"}, "--retries takes an integer"},
        {{"--seed", "9223372036854775808", "--", "t"}, "--seed takes an integer"},
        {{"--name", "12", "--", "t"}, "cannot be a number"},
        {{"--name", "a\nb", "--", "t"}, "without control characters"},
        {{"--listen", "host:99999", "--", "t"}, "--listen takes"},
        {{"--hosts", "a:0", "--", "t"}, "from 1 to 65536"},
    };

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        Hy__RunSpec *s = NULL;
        struct hy_err err = {0};

        assert_int_equal(spec_of((char **)(uintptr_t)cases[i].words, &s, &err), -EINVAL);
        assert_null(s);
        if (!strstr(hy_sentence_of(&err), cases[i].says))
            fail_msg("'%s' does not say '%s'", hy_sentence_of(&err), cases[i].says);
    }
}

/* A spec whose first dimension, given with `option`, has its values in a file with these bytes. */
static int spec_of_file(const char *option, const char *bytes, size_t n, Hy__RunSpec **ret, struct hy_err *err)
{
    char *directory = make_directory();
    hy_cleanup_free char *path = hy_path_join(directory, "values"), *value = hy_asprintf("x=@%s", path);
    char *grid[] = {(char *)"--grid", value, (char *)"--", (char *)"t", (char *)"{x}", NULL};
    char *space[] = {(char *)"--random", (char *)"1", (char *)"--space", value,
                     (char *)"--",       (char *)"t", (char *)"{x}",     NULL};
    int rc;

    assert_int_equal(hy_file_write(path, bytes, n, 0600), 0);
    rc = spec_of(strcmp(option, "grid") ? space : grid, ret, err);
    remove_directory(directory);
    return rc;
}

HY_TEST(test_values_may_be_read_from_a_file)
{
    static const struct {
        const char *option, *bytes, *text;
    } cases[] = {
        {"grid", "0.1,0.01\n", "x=0.1,0.01"},
        {"grid", "\n0.1\r\n 0.01 \n\n1e-3,\nrelu,\n", "x=0.1,0.01,1e-3,relu"}, /* one value per line */
        {"grid", "\n [\n  [64, 64],\n  \"@x\"\n]\r\n", "x=[\n  [64, 64],\n  \"@x\"\n]"},
        {"space", "log:1e-5..1e-1\n", "x=log:1e-5..1e-1"},
        {"space", "[\"a\", null]", "x=[\"a\", null]"},
    };
    hy_cleanup_spec Hy__RunSpec *none = NULL;
    struct hy_err err = {0};

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        hy_cleanup_spec Hy__RunSpec *s = NULL;

        if (spec_of_file(cases[i].option, cases[i].bytes, strlen(cases[i].bytes), &s, &err) < 0)
            fail_msg("%s", err.text);
        assert_string_equal(s->dims[0]->text, cases[i].text); /* the values, not the file's name */
    }
    assert_int_equal(spec_of_file("grid", "a\0b", 3, &none, &err), -EINVAL);
    assert_non_null(strstr(err.text, "contain a NUL byte"));
}

HY_TEST(test_values_too_long_for_a_trial_are_refused)
{
    hy_cleanup_free char *text = hy_calloc(1, (120 << 10) + 2);
    hy_cleanup_spec Hy__RunSpec *fits = NULL, *none = NULL;
    struct hy_err err = {0};

    memset(text, 'x', 120 << 10);
    assert_int_equal(spec_of_file("grid", text, (120 << 10) - 1, &fits, &err), 0);
    assert_int_equal(spec_of_file("grid", text, 120 << 10, &none, &err), -EINVAL);
    assert_non_null(strstr(err.text, "larger than 120 KB with 'x'"));
}

HY_TEST(test_paired_lists_become_a_run_spec)
{
    hy_cleanup_spec Hy__RunSpec *s = NULL;
    struct hy_err err = {0};

    if (spec_of(WORDS("--grid", (char *)"a=[1, 2]", (char *)"--paired", (char *)"--grid", (char *)"b=3..4",
                      (char *)"--", (char *)"t"),
                &s, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(s->kind, HY__RUN_SPEC__KIND__PAIRED);
    assert_int_equal(s->n_dims, 2);
}

HY_TEST(test_a_misspelled_strategy_gets_a_suggestion)
{
    char *words[] = {(char *)"--evolve", (char *)"--generations",
                     (char *)"1",        (char *)"--space",
                     (char *)"x=1..2",   (char *)"--min",
                     (char *)"f",        (char *)"--strategy",
                     (char *)"best1bim", (char *)"--",
                     (char *)"t",        NULL};
    Hy__RunSpec *s = NULL;
    struct hy_err err = {0};

    assert_int_equal(spec_of(words, &s, &err), -EINVAL);
    assert_non_null(strstr(err.text, "did you mean best1bin?"));
}

HY_TEST(test_invalid_hosts_are_refused)
{
    static const char *const bad[] = {
        "",    ",",       "a,",       ":4",       "a:",     "a:x",   "a:-1",  "a:65537", "-oProxyCommand=x",
        "a b", "fe80::1", "[fe80::1", "fe80::1]", "[::1]4", "a,a:2", "a:1:2", "'a'",     "a\nb"};

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

/* ---- environment ------------------------------------------------------------------------------ */

HY_TEST(test_programs_are_found_like_in_a_shell)
{
    char *directory = make_directory();
    hy_cleanup_free char *list = hy_asprintf("/nowhere:%s", directory), *found = NULL, *again = NULL;
    struct hy_err err = {0};

    write_text(directory, "train", "#!/bin/sh\n", 0700);
    write_text(directory, "train.py", "", 0600);
    assert_int_equal(hy_find_program("train", "/", list, &found, &err), 0);
    assert_non_null(strstr(found, "/train"));
    assert_int_equal(hy_find_program("./train", directory, "", &again, &err), 0);
    assert_int_equal(hy_find_program("train", directory, "/nowhere", &again, &err), -ENOENT);
    assert_non_null(strstr(err.text, "did you mean ./train?"));
    assert_int_equal(hy_find_program("./nothing", directory, "", &again, &err), -ENOENT);
    assert_non_null(strstr(err.text, "./nothing"));
    assert_int_equal(hy_find_program("./train.py", directory, "", &again, &err), -EACCES);
    assert_non_null(strstr(err.text, "python3"));
    assert_int_equal(hy_find_program("/tmp", directory, "", &again, &err), -EISDIR);
    assert_int_equal(hy_find_program("", directory, "", &again, &err), -ENOENT);
    remove_directory(directory);
}

HY_TEST(test_first_line_returns_the_first_line_of_a_program)
{
    char *two[] = {(char *)"printf", (char *)"one\ntwo\n", NULL}, *failing[] = {(char *)"false", NULL};
    char *missing[] = {(char *)"/nowhere/program", NULL}, *silent[] = {(char *)"true", NULL};
    char *endless[] = {(char *)"sh", (char *)"-c", (char *)"sleep 1000 & wait", NULL};
    char *much[] = {(char *)"sh", (char *)"-c", (char *)"head -c 1000000 /dev/zero | tr '\\0' x", NULL};
    int64_t later = hy_clock_ms() + 60000;
    hy_cleanup_free char *line = hy_first_line(two, "/", later), *nothing = hy_first_line(silent, NULL, later);
    hy_cleanup_free char *cut = hy_first_line(much, NULL, later);

    assert_string_equal(line, "one");
    assert_string_equal(nothing, "");
    assert_true(cut && strlen(cut) <= 1024);
    assert_null(hy_first_line(failing, NULL, later));
    assert_null(hy_first_line(missing, NULL, later));
    assert_null(hy_first_line(two, "/nowhere", later));
    assert_null(hy_first_line(endless, NULL, hy_clock_ms() + 50)); /* killed with its descendants */
}

HY_TEST(test_versions_contain_the_known_versions)
{
    hy_cleanup_free char *text = hy_versions("/bin/train", NULL, 0, hy_clock_ms() + 60000);
    hy_cleanup_json json_t *o = json_loads(text, 0, NULL);

    assert_string_equal(json_string_value(json_object_get(o, "hopyard")), HY_VERSION);
    assert_non_null(json_object_get(o, "kernel"));
    assert_non_null(json_object_get(o, "glibc"));
    assert_string_equal(json_string_value(json_object_get(o, "program")), "/bin/train");
}

/* A function does not run with the python3 of PATH. */
HY_TEST(test_version_of_python_is_that_of_the_function)
{
    static const char bundle[] = "{\"name\": \"f\", \"python\": \"3.99.1\"}\npickled";
    static const char *const others[] = {"{\"python\": 3}\n", "{\"python\": \"3.99.1\"}", "garbage\n"};
    const int64_t later = hy_clock_ms() + 60000;
    hy_cleanup_free char *text = hy_versions(NULL, (const uint8_t *)bundle, sizeof bundle - 1, later);
    hy_cleanup_json json_t *o = json_loads(text, 0, NULL);

    assert_string_equal(json_string_value(json_object_get(o, "python")), "3.99.1");
    for (size_t i = 0; i < HY_COUNT(others); i++) {
        hy_cleanup_free char *other = hy_versions(NULL, (const uint8_t *)others[i], strlen(others[i]), later);

        assert_non_null(other);
        assert_null(strstr(other, "3.99.1"));
    }
}

HY_TEST(test_a_directory_without_git_has_no_commit)
{
    char *directory = make_directory();

    assert_null(hy_git_commit(directory, hy_clock_ms() + 60000));
    remove_directory(directory);
}

HY_TEST(test_the_environment_omits_variables_of_an_enclosing_trial)
{
    hy_cleanup_spec Hy__RunSpec *s = NULL;
    struct hy_err err = {0};

    setenv("HOPYARD_RESULT", "/outer", 1);
    setenv("HY_TEST_WORD", "kept", 1);
    assert_int_equal(spec_of(WORDS("--", (char *)"true"), &s, &err), 0);
    if (hy_spec_add_environment(s, "/project", &err) < 0)
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

HY_TEST(test_a_missing_program_is_a_usage_error)
{
    hy_cleanup_spec Hy__RunSpec *s = NULL;
    struct hy_err err = {0};

    assert_int_equal(spec_of(WORDS("--", (char *)"./nothing-here"), &s, &err), 0);
    assert_int_equal(hy_spec_add_environment(s, "/project", &err), -EINVAL);
    assert_int_equal(err.code, -EINVAL);
}

/* ---- faults --------------------------------------------------------------------------------------- */

static int describe_scenario(void *arg)
{
    char *words[] = {(char *)"--grid", (char *)"lr=0.1,0.01", (char *)"--max",   (char *)"accuracy", (char *)"--hosts",
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
    struct hy_run_lines plain = {0}, json = {.json = true};
    struct hy_live_view board = {0};
    hy_cleanup_out struct hy_out out = {0};
    Hy__Update *u = last_update();
    int rc;

    (void)arg;
    hy_out_init(&out, &fancy80);
    rc = hy_run_lines_update(&plain, u, &out);
    if (rc == 0)
        rc = hy_run_lines_update(&json, u, &out);
    if (hy_live_view_take(&board, u, 0) < 0 && rc == 0)
        rc = -ENOMEM;
    if (rc == 0)
        rc = hy_live_view_text(&board, &out, 0, 1, "Stop?");
    if (rc == 0)
        rc = hy_live_view_summary(&board, &out);
    out.style = hy_html_style;
    if (rc == 0)
        rc = hy_live_view_html(&board, &out, 0);
    hy_live_view_done(&board);
    return rc;
}

static int facts_scenario(void *arg)
{
    char *argv[] = {(char *)"printf", (char *)"x\n", NULL};
    hy_cleanup_free char *line = hy_first_line(argv, NULL, hy_clock_ms() + 60000);

    (void)arg;
    return line ? 0 : -EIO;
}

HY_TEST(test_allocation_and_system_call_faults_are_handled)
{
    hy_each_fault(HY_SEAM_ALLOC, describe_scenario, NULL);
    hy_each_fault(HY_SEAM_ALLOC, render_scenario, NULL);
    hy_each_fault(HY_SEAM_ALLOC, facts_scenario, NULL);
    hy_each_fault(HY_SEAM_SYS, facts_scenario, NULL);
}

int main(int argc, char **argv)
{
    begin_plain();
    return hy_run_tests(argc > 1 ? argv[1] : NULL, NULL, NULL);
}
