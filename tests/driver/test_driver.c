/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters as text: commands, directory names, JSON. The driver as a whole is tested in tests/e2e. */
#include "support.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <signal.h>

#include "base/mem.h"
#include "driver/driver.h"
#include "driver/params_text.h"
#include "driver/run.h"
#include "engine/command.h"
#include "engine/engine.h"

static struct hy_space space;
static struct hy_value values[8];

static int setup(void **state)
{
    struct hy_err err = {0};

    (void)state;
    space = (struct hy_space){0};
    memset(values, 0, sizeof values);
    assert_int_equal(hy_space_add(&space, "lr=log:1e-5..1e-1", &err), 0);
    assert_int_equal(hy_space_add(&space, "layers=1..4", &err), 0);
    assert_int_equal(hy_space_add(&space, "act=relu,a/b,007", &err), 0);
    values[0].number = 0.001;
    values[1].number = 3;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    hy_space_done(&space);
    return 0;
}

static void assert_expands(const char *template, const char *expected)
{
    hy_cleanup_free char *text = hy_command_expand(template, &space, values);

    assert_non_null(text);
    assert_string_equal(text, expected);
}

HY_TEST_WITH(test_names_in_braces_are_replaced_by_values, setup, teardown)
{
    assert_expands("--lr={lr}", "--lr=0.001");
    assert_expands("{layers}{layers}", "33");
    assert_expands("{act}", "relu");
    assert_expands("plain", "plain");
    assert_expands("", "");
}

HY_TEST_WITH(test_doubled_braces_are_literal, setup, teardown)
{
    assert_expands("{{lr}}", "{lr}");
    assert_expands("awk {{ print {lr} }}", "awk { print 0.001 }");
    assert_expands("{{{lr}}}", "{0.001}");
}

HY_TEST_WITH(test_other_text_in_braces_is_unchanged, setup, teardown)
{
    assert_expands("{\"a\": 1}", "{\"a\": 1}");
    assert_expands("{ lr }", "{ lr }");
    assert_expands("{", "{");
    assert_expands("{lr", "{lr");
    assert_expands("{}", "{}");
}

HY_TEST_WITH(test_unknown_name_is_rejected_and_known_ones_are_listed, setup, teardown)
{
    char *names[] = {(char *)"lr", (char *)"layers", NULL};
    char *good[] = {(char *)"a", (char *)"{lr}", (char *)"{{dropout}}", (char *)"{\"json\": 1}", NULL};
    char *bad[] = {(char *)"a", (char *)"--x={dropout}", NULL};
    struct hy_err err = {0};

    assert_int_equal(hy_command_check(good, names, &err), 0);
    assert_int_equal(hy_command_check(bad, names, &err), -EINVAL);
    assert_non_null(strstr(err.text, "{dropout}"));
    assert_non_null(strstr(err.text, "{lr}, {layers}"));
    assert_non_null(strstr(err.text, "{{dropout}}"));
}

static void assert_dir(const char *expected)
{
    hy_cleanup_free char *dir = hy_params_dir(&space, values, 7);

    assert_non_null(dir);
    assert_string_equal(dir, expected);
}

HY_TEST_WITH(test_directory_is_named_after_the_parameters, setup, teardown)
{
    assert_dir("lr=0.001,layers=3,act=relu");
}

HY_TEST_WITH(test_unsafe_bytes_in_a_directory_name_are_escaped, setup, teardown)
{
    values[2].number = 1;
    assert_dir("lr=0.001,layers=3,act=a%2Fb");
}

HY_TEST_WITH(test_directory_has_the_trial_number_without_parameters, setup, teardown)
{
    struct hy_space none = {0};
    hy_cleanup_free char *dir = hy_params_dir(&none, values, 7);

    assert_string_equal(dir, "trial-7");
}

static char *dir_of(const char *value)
{
    struct hy_space s = {0};
    struct hy_value v = {0};
    hy_cleanup_free char *text = hy_asprintf("v=%s,other", value);
    struct hy_err err = {0};
    char *dir;

    assert_int_equal(hy_space_add_grid(&s, text, &err), 0);
    dir = hy_params_dir(&s, &v, 1);
    hy_space_done(&s);
    assert_non_null(dir);
    return dir;
}

HY_TEST_WITH(test_long_values_give_short_distinct_names, setup, teardown)
{
    char a[400], b[400];
    hy_cleanup_free char *one = NULL, *two = NULL;

    memset(a, 'x', sizeof a - 1);
    a[sizeof a - 1] = '\0';
    memcpy(b, a, sizeof b);
    b[sizeof b - 2] = 'y';
    one = dir_of(a);
    two = dir_of(b);
    assert_true(strlen(one) <= 200 && strlen(two) <= 200);
    assert_string_not_equal(one, two);
}

HY_TEST_WITH(test_no_value_escapes_the_directory, setup, teardown)
{
    static const char *const odd[] = {"..", "/", "a\nb", "\x01", "\xff\xfe", "~", "%", "*", "$(x)", "a b", "\xc3\xbc"};

    for (size_t i = 0; i < HY_COUNT(odd); i++) {
        hy_cleanup_free char *dir = dir_of(odd[i]);

        assert_null(strpbrk(dir, "/\n\x01*$ ~"));
        assert_memory_equal(dir, "v=", 2);
    }
}

HY_TEST_WITH(test_params_are_json_with_numbers_as_numbers, setup, teardown)
{
    hy_cleanup_free char *text = hy_params_json(&space, values);
    json_t *o = json_loads(text, 0, NULL);

    assert_string_equal(text, "{\"lr\": 0.001, \"layers\": 3, \"act\": \"relu\"}");
    assert_non_null(o);
    json_decref(o);
}

HY_TEST_WITH(test_inactive_parameters_are_left_out, setup, teardown)
{
    static const struct {
        bool inactive[3];
        const char *command, *dir, *json;
    } cases[] = {
        {{false, false, true}, "-l 0.001 -n 3 -a ", "lr=0.001,layers=3", "{\"lr\": 0.001, \"layers\": 3}"},
        {{true, false, false}, "-l  -n 3 -a relu", "layers=3,act=relu", "{\"layers\": 3, \"act\": \"relu\"}"},
        {{false, true, false}, "-l 0.001 -n  -a relu", "lr=0.001,act=relu", "{\"lr\": 0.001, \"act\": \"relu\"}"},
        {{true, true, true}, "-l  -n  -a ", "trial-7", "{}"},
    };

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        hy_cleanup_free char *json = NULL;

        teardown(NULL);
        setup(NULL);
        for (int j = 0; j < 3; j++)
            values[j].number = cases[i].inactive[j] ? NAN : values[j].number;
        assert_expands("-l {lr} -n {layers} -a {act}", cases[i].command);
        assert_dir(cases[i].dir);
        json = hy_params_json(&space, values);
        assert_string_equal(json, cases[i].json);
    }
}

HY_TEST_WITH(test_text_that_is_not_a_json_number_is_a_string, setup, teardown)
{
    static const char *const texts[] = {
        "007", ".5", "1.", "inf", "nan", "-", "1e", "0x10", "+1", "9223372036854775808", "1e999", ""};

    for (size_t i = 0; i < HY_COUNT(texts) - 1; i++) {
        struct hy_space s = {0};
        struct hy_value v = {0};
        hy_cleanup_free char *grid = hy_asprintf("v=%s,other", texts[i]), *json = NULL;
        struct hy_err err = {0};
        json_t *o;

        assert_int_equal(hy_space_add_grid(&s, grid, &err), 0);
        json = hy_params_json(&s, &v);
        o = json_loads(json, 0, NULL);
        assert_non_null(o);
        assert_string_equal(json_string_value(json_object_get(o, "v")), texts[i]);
        json_decref(o);
        hy_space_done(&s);
    }
}

HY_TEST(test_json_values_are_unchanged)
{
    struct hy_space s = {0};
    struct hy_value v[3] = {{0}, {1}, {0}};
    hy_cleanup_free char *json = NULL, *dir = NULL, *word = NULL;
    struct hy_err err = {0};

    assert_int_equal(hy_space_add_grid(&s, "layers=[[64, 64], [128]]", &err), 0);
    assert_int_equal(hy_space_add_grid(&s, "id=[1, \"1\"]", &err), 0);
    assert_int_equal(hy_space_add(&s, "o=[{\"a b\": [null, 1.0, \"\\u00e9\"]}]", &err), 0);
    json = hy_params_json(&s, v);
    assert_string_equal(json, "{\"layers\": [64,64], \"id\": \"1\", \"o\": {\"a b\":[null,1.0,\"\\u00e9\"]}}");
    dir = hy_params_dir(&s, v, 1);
    assert_string_equal(dir, "layers=%5B64%2C64%5D,id=1,o=%7B%22a%20b%22:%5Bnull%2C1.0%2C%22%5Cu00e9%22%5D%7D");
    word = hy_command_expand("{layers} {id}", &s, v);
    assert_string_equal(word, "[64,64] 1");
    hy_space_done(&s);
}

HY_TEST(test_float_keeps_its_type_in_json)
{
    struct hy_space s = {0};
    struct hy_value v[3] = {{1}, {1e16}, {1}};
    hy_cleanup_free char *json = NULL;
    struct hy_err err = {0};

    assert_int_equal(hy_space_add(&s, "x=0.0..1.0", &err), 0);
    assert_int_equal(hy_space_add(&s, "y=0.0..1e20", &err), 0);
    assert_int_equal(hy_space_add(&s, "n=0..1", &err), 0);
    json = hy_params_json(&s, v);
    assert_string_equal(json, "{\"x\": 1.0, \"y\": 1e+16, \"n\": 1}");
    hy_space_done(&s);
}

static int format_all(void *arg)
{
    hy_cleanup_free char *a = hy_command_expand("x{lr}y{{{act}}}", &space, values);
    hy_cleanup_free char *b = hy_params_dir(&space, values, 1);
    hy_cleanup_free char *c = hy_params_json(&space, values);

    (void)arg;
    return a && b && c ? 0 : -ENOMEM;
}

HY_TEST_WITH(test_out_of_memory_is_reported_without_leaks, setup, teardown)
{
    hy_each_fault(HY_SEAM_ALLOC, format_all, NULL);
}

HY_TEST(test_only_a_fatal_signal_counts_as_agent_death)
{
    assert_int_equal(hy_agent_end_of(false, 0, SIGKILL), HY_AGENT_DIED);
    assert_int_equal(hy_agent_end_of(false, 0, SIGSEGV), HY_AGENT_DIED);
    assert_int_equal(hy_agent_end_of(false, 1, 0), HY_AGENT_ENDED); /* its lease has ended */
    assert_int_equal(hy_agent_end_of(true, 128 + SIGKILL, 0), HY_AGENT_DIED);
    assert_int_equal(hy_agent_end_of(true, 1, 0), HY_AGENT_ENDED);
    assert_int_equal(hy_agent_end_of(true, 200, 0), HY_AGENT_ENDED);
    assert_int_equal(hy_agent_end_of(true, 255, 0), HY_AGENT_UNREACHED); /* ssh: the host may be gone */
    assert_int_equal(hy_agent_end_of(true, 0, SIGKILL), HY_AGENT_UNREACHED);
}

/* ---- hosts ------------------------------------------------------------------------------ */

HY_TEST(test_discovery_script_lists_hosts_with_or_without_slots)
{
    static const struct {
        const char *text, *message;
    } bad[] = {{"a\n", "host 'a' has no number of slots; print HOST:SLOTS, or pass --slots-per-host N"},
               {"a:many\n", "invalid number of slots in 'a:many'; use a number up to 100000"},
               {"-oProxyCommand=x:1\n", "invalid host '-oProxyCommand=x:1'; print HOST or HOST:SLOTS"},
               {"a;b:1\n", "invalid host 'a;b:1'; print HOST or HOST:SLOTS"}};
    struct hy_discovered hosts = {0};
    struct hy_err err = {0};

    assert_int_equal(hy_discovered_parse("a:4\n\n me@b \r\n[fe80::1]:2\nnone:0\na:3", 7, &hosts, &err), 0);
    assert_int_equal(hosts.count, 3);
    assert_string_equal(hosts.rows[0].name, "a");
    assert_int_equal(hosts.rows[0].slots, 3); /* the last one counts */
    assert_string_equal(hosts.rows[1].name, "me@b");
    assert_int_equal(hosts.rows[1].slots, 7);
    assert_string_equal(hosts.rows[2].name, "[fe80::1]");
    hy_discovered_done(&hosts);
    for (size_t i = 0; i < HY_COUNT(bad); i++) {
        assert_int_equal(hy_discovered_parse(bad[i].text, 0, &hosts, &err), -EINVAL);
        assert_string_equal(err.text, bad[i].message);
    }
}

HY_TEST(test_ssh_uses_the_port_and_key_of_the_user)
{
    struct hy_agent_order order = {
        .identity = "agent-1", .name = "b", .host = "b", .slots = 1, .ssh_port = 2222, .ssh_identity = "/home/me/key"};
    struct hy_err err = {0};
    char **argv = hy_command_ssh(&order, &err);

    assert_non_null(argv);
    assert_string_equal(argv[8], "-p");
    assert_string_equal(argv[9], "2222");
    assert_string_equal(argv[10], "-i");
    assert_string_equal(argv[11], "/home/me/key");
    assert_string_equal(argv[12], "b");
    hy_argv_free(&argv);
    order.ssh_port = 0;
    order.ssh_identity = "";
    argv = hy_command_ssh(&order, &err);
    assert_non_null(argv);
    assert_string_equal(argv[8], "b");
    hy_argv_free(&argv);
}
