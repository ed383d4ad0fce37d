/* SPDX-License-Identifier: Apache-2.0 */
/* Options of trainings (also horovodrun's), hosts, specs, the environment of ranks. */
#include "support.h"

#include "view/view_fixture.h"

#include <errno.h>

#include "cli/commands.h"
#include "cli/config_file.h"
#include "cli/run_spec.h"
#include "client/client.h"

#define LINE_WORDS 40

/* Parses a command line of `hopyard train`, split at spaces. The texts are valid until the next call. */
static int parse(const char *text, struct hy_args *args, struct hy_err *err)
{
    static char line[2000];
    static char *words[LINE_WORDS + 1];
    char *rest = line;
    int n = 0;

    snprintf(line, sizeof line, "%s", text);
    while (n < LINE_WORDS && (words[n] = strsep(&rest, " ")))
        n += *words[n] != '\0';
    words[n] = NULL;
    return hy_args_parse(hy_command_find("train"), n, words, args, err);
}

static int spec_of(const char *text, Hy__RunSpec **ret, struct hy_err *err)
{
    hy_cleanup_args struct hy_args args = {0};
    int rc = parse(text, &args, err);

    return rc < 0 ? rc : hy_spec_training(&args, ret, err);
}

/* With the environment of the ranks. */
static int whole_spec_of(const char *text, Hy__RunSpec **ret, struct hy_err *err)
{
    hy_cleanup_args struct hy_args args = {0};
    int rc = parse(text, &args, err);

    if (rc == 0)
        rc = hy_spec_training(&args, ret, err);
    if (rc == 0)
        rc = hy_spec_add_environment(*ret, "/p", err);
    return rc == 0 ? hy_spec_training_environment(&args, *ret, err) : rc;
}

static const char *env_of(const Hy__RunSpec *s, const char *name)
{
    for (size_t i = 0; i < s->n_env; i++)
        if (strncmp(s->env[i], name, strlen(name)) == 0 && s->env[i][strlen(name)] == '=')
            return s->env[i] + strlen(name) + 1;
    return NULL;
}

/* ---- options --------------------------------------------------------------------- */

HY_TEST(test_the_command_starts_at_the_first_word_or_after_dashes)
{
    static const char *const lines[] = {
        "-np 4 --verbose python train.py -np 7 --json", "--num-proc=4 --verbose -- python train.py -np 7 --json",
        "--verbose -np=4 python train.py -np 7 --json", "--np 4 --verbose python train.py -np 7 --json"};

    for (size_t i = 0; i < HY_COUNT(lines); i++) {
        hy_cleanup_args struct hy_args args = {0};
        struct hy_err err = {0};

        assert_int_equal(parse(lines[i], &args, &err), 0);
        assert_string_equal(hy_args_get(&args, "num-proc"), "4");
        assert_true(hy_args_has(&args, "verbose"));
        assert_false(hy_args_has(&args, "json"));
        assert_string_equal(args.rest[0], "python");
        assert_string_equal(args.rest[4], "--json");
        assert_null(args.rest[5]);
    }
}

HY_TEST(test_all_options_of_horovodrun_are_accepted_or_refused_with_advice)
{
    static const char *const taken[] = {
        "--disable-cache",
        "--start-timeout 30",
        "--network-interfaces eth0,eth1",
        "--network-interface eth0",
        "--output-filename d",
        "--verbose",
        "--config-file c.yaml",
        "--fusion-threshold-mb 32",
        "--cycle-time-ms 3.5",
        "--cache-capacity 2048",
        "--hierarchical-allreduce",
        "--no-hierarchical-allreduce",
        "--hierarchical-allgather",
        "--no-hierarchical-allgather",
        "--torus-allreduce",
        "--no-torus-allreduce",
        "--autotune",
        "--no-autotune",
        "--autotune-log-file f",
        "--autotune-warmup-samples 3",
        "--autotune-steps-per-sample 10",
        "--autotune-bayes-opt-max-samples 20",
        "--autotune-gaussian-process-noise 0.8",
        "--min-np 1",
        "--min-num-proc 1",
        "--max-np 8",
        "--max-num-proc 8",
        "--elastic-timeout 600",
        "--reset-limit 3",
        "--blacklist-cooldown-range 60 300",
        "--timeline-filename t.json",
        "--timeline-mark-cycles",
        "--no-timeline-mark-cycles",
        "--no-stall-check",
        "--stall-check",
        "--stall-check-warning-time-seconds 60",
        "--stall-check-shutdown-time-seconds 0",
        "--mpi-threads-disable",
        "--no-mpi-threads-disable",
        "--mpi-args=--map-by",
        "--tcp",
        "--binding-args=--rankfile",
        "--num-nccl-streams 1",
        "--thread-affinity 0",
        "--gloo-timeout-seconds 30",
        "--log-level INFO",
        "--log-with-timestamp",
        "--log-without-timestamp",
        "-prefix-timestamp",
        "--prefix-output-with-timestamp",
        "--log-hide-timestamp",
        "--no-log-hide-timestamp",
        "-H a:4",
        "--hosts a:4",
        "-hostfile f",
        "--hostfile f",
        "--gloo",
        "--mpi",
        "-p 22",
        "--ssh-port 22",
        "-i id",
        "--ssh-identity-file id",
        "--slots 2",
        "--slots-per-host 2",
        "--host-discovery-script s",
        "-v",
        "--version",
        "-cb",
        "--check-build",
    };
    static const char *const refused[] = {"--jsrun"};
    char line[200];

    for (size_t i = 0; i < HY_COUNT(taken); i++) {
        hy_cleanup_args struct hy_args args = {0};
        struct hy_err err = {0};

        snprintf(line, sizeof line, "-np 4 %s python train.py", taken[i]);
        if (parse(line, &args, &err) < 0)
            fail_msg("%s: %s", taken[i], err.text);
        assert_string_equal(args.rest[0], "python");
    }
    for (size_t i = 0; i < HY_COUNT(refused); i++) {
        struct hy_args args;
        struct hy_err err = {0};

        snprintf(line, sizeof line, "-np 4 %s python train.py", refused[i]);
        assert_int_equal(parse(line, &args, &err), -EINVAL);
        assert_non_null(strstr(hy_sentence_of(&err), " is not supported: "));
    }
}

/* ---- specs --------------------------------------------------------------------------- */

HY_TEST(test_a_training_is_a_parallel_grid_over_its_ranks)
{
    hy_cleanup_spec Hy__RunSpec *s = NULL, *one = NULL;
    struct hy_err err = {0};

    assert_int_equal(spec_of("-np 4 --gpus 1 --retries 2 --max accuracy --name wine python t.py {x}", &s, &err), 0);
    assert_int_equal(s->ranks, 4);
    assert_int_equal(s->ranks_min, 0);
    assert_int_equal(s->ranks_max, 0);
    assert_int_equal(s->parallel, 4);
    assert_int_equal(s->kind, HY__RUN_SPEC__KIND__GRID);
    assert_int_equal(s->n_dims, 1);
    assert_string_equal(s->dims[0]->text, "rank=0..3");
    assert_string_equal(s->argv[2], "{x}"); /* braces are not replaced */
    assert_string_equal(s->metric, "accuracy");
    assert_true(s->metric_optional); /* only rank 0 may have a value */
    assert_int_equal(s->gpu_share, 1000);
    assert_int_equal(s->retries, 2);
    assert_int_equal(spec_of("-np 1 true", &one, &err), 0);
    assert_string_equal(one->dims[0]->text, "rank=0");
    assert_int_equal(hy_spec_set_ranks(one, 3, &err), 0);
    assert_int_equal(one->ranks, 3);
    assert_int_equal(one->parallel, 3);
    assert_string_equal(one->dims[0]->text, "rank=0..2");
}

HY_TEST(test_elastic_bounds_follow_from_the_options)
{
    static const struct {
        const char *line;
        uint32_t ranks, least, most;
    } cases[] = {
        {"-np 4 --min-np 2 true", 4, 2, 4},
        {"-np 4 --max-np 6 true", 4, 4, 6},
        {"-np 2 --min-np 1 -H a:2,b:2 true", 2, 1, 4}, /* four slots */
        {"--min-np 2 -H a:2,b:2 true", 4, 2, 4},
        {"-np 2 --host-discovery-script s true", 2, 2, 1024}, /* unlimited, as in Horovod */
        {"-np 2 --min-np 1 --max-np 4 --host-discovery-script s --slots 1 true", 2, 1, 4},
    };

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        hy_cleanup_spec Hy__RunSpec *s = NULL;
        struct hy_err err = {0};

        assert_int_equal(spec_of(cases[i].line, &s, &err), 0);
        assert_int_equal(s->ranks, cases[i].ranks);
        assert_int_equal(s->ranks_min, cases[i].least);
        assert_int_equal(s->ranks_max, cases[i].most);
        assert_int_equal(s->parallel, cases[i].most);
    }
}

HY_TEST(test_hosts_are_read_from_options_or_from_a_file)
{
    char *directory = make_directory();
    hy_cleanup_spec Hy__RunSpec *s = NULL, *here = NULL, *bad = NULL;
    struct hy_err err = {0};
    char line[200];

    write_text(directory, "hosts", "# ours\n a slots=2\n\nme@b:3 # b\nc\n", 0600);
    write_text(directory, "bad", "a slots=2\nb cores=3\n", 0600);
    snprintf(line, sizeof line, "--hostfile %s/hosts true", directory);
    assert_int_equal(spec_of(line, &s, &err), 0);
    assert_int_equal(s->n_hosts, 3);
    assert_string_equal(s->hosts[1]->host, "me@b");
    assert_int_equal(s->hosts[1]->slots, 3);
    assert_int_equal(s->ranks, 6); /* all slots */
    snprintf(line, sizeof line, "-hostfile %s/bad true", directory);
    assert_int_equal(spec_of(line, &bad, &err), -EINVAL);
    assert_non_null(strstr(err.text, "bad, line 2: invalid 'cores=3'; write lines as: HOST slots=N"));
    assert_int_equal(spec_of("-np 2 -H localhost:4 true", &here, &err), 0);
    assert_int_equal(here->n_hosts, 0); /* this machine needs no ssh */
    assert_int_equal(here->ranks, 2);
    remove_directory(directory);
}

HY_TEST(test_invalid_training_options_are_refused_with_a_message)
{
    static const struct {
        const char *line, *sentence;
    } cases[] = {
        {"true", "missing number of ranks; usage: hopyard train -np 4 …"},
        {"-np 4", "missing command; put it after the options, for example: hopyard train -np 4 python train.py"},
        {"-np 0 true", "--num-proc takes an integer from 1 to 1024, not '0'"},
        {"-np 200 true", "one machine can run at most 128 ranks; distribute them with -H a:128,b:128"},
        {"-np 5 -H a:2,b:2 true", "the hosts have 4 slots, too few for 5 ranks; add slots, for example a:5"},
        {"-np 2 --min-np 3 true", "--min-np must be at most the number of ranks, 2, not 3"},
        {"-np 2 --max-np 1 true", "--max-np must be at least the number of ranks, 2, not 1"},
        {"-np 2 --hosts a:2 --hostfile f true",
         "--hosts, --hostfile and --host-discovery-script exclude each other; choose one"},
        {"-np 2 --hosts a:2 --host-discovery-script f true",
         "--hosts, --hostfile and --host-discovery-script exclude each other; choose one"},
        {"-np 2 --slots-per-host 2 true", "--slots-per-host requires --host-discovery-script; otherwise write the "
                                          "slots after each host, for example -H a:2,b:2"},
        {"-np 2 --elastic-timeout 30 true", "--elastic-timeout requires an elastic training; add --min-np or --max-np"},
        {"-np 2 --blacklist-cooldown-range 1 2 true",
         "--blacklist-cooldown-range requires an elastic training; add --min-np or --max-np"},
        {"-np 2 --min-np 1 --blacklist-cooldown-range 5 2 true",
         "--blacklist-cooldown-range takes two numbers of seconds such as 10 100, not '5 2'"},
        {"-np 2 --min-np 1 --elastic-timeout soon true",
         "--elastic-timeout (or $HOROVOD_ELASTIC_TIMEOUT) takes a number of seconds, not 'soon'"},
        {"-np 2 --ssh-port 0 true", "--ssh-port takes an integer from 1 to 65535, not '0'"},
        {"-np 2 -i /no/such/key true", "--ssh-identity-file: cannot read '/no/such/key': No such file or directory"},
        {"-np 2 --metric speed true",
         "--metric requires --scaling; set the metric of a training with --max NAME or --min NAME"},
        {"-np 2 --scaling --min-np 1 true", "--scaling cannot be used with --min-np or --max-np; remove them"},
        {"-np 2 -x NO-SUCH-NAME true",
         "-x takes NAME=VALUE, or the name of an environment variable that is set, not 'NO-SUCH-NAME'"},
        {"-np 2 --timeline-mark-cycles true", "--timeline-mark-cycles requires --timeline-filename FILE"},
        {"-np 2 --reset-limit 3 true", "--reset-limit requires an elastic training; add --min-np or --max-np"},
    };

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        hy_cleanup_spec Hy__RunSpec *s = NULL;
        struct hy_err err = {0};

        assert_int_equal(whole_spec_of(cases[i].line, &s, &err), -EINVAL);
        assert_string_equal(hy_sentence_of(&err), cases[i].sentence);
    }
}

HY_TEST(test_options_reach_the_ranks_environment)
{
    hy_cleanup_spec Hy__RunSpec *s = NULL, *scaling = NULL;
    struct hy_err err = {0};

    setenv("HY_TEST_TRAIN", "old", 1);
    setenv("HOROVOD_RANK", "7", 1); /* as in a rank that starts a training */
    assert_int_equal(
        whole_spec_of("-np 2 --max-np 3 -x HY_TEST_TRAIN=new -x PATH --env A=b=c --network-interfaces eth0,eth1 "
                      "--network-interface ib0 --timeline-filename t.json --timeline-mark-cycles --reset-limit 5 true",
                      &s, &err),
        0);
    assert_string_equal(env_of(s, "HY_TEST_TRAIN"), "new");
    assert_string_equal(env_of(s, "A"), "b=c");
    assert_string_equal(env_of(s, "PATH"), getenv("PATH"));
    assert_string_equal(env_of(s, "HOPYARD_INTERFACES"), "eth0,eth1,ib0");
    assert_true(env_of(s, "HOROVOD_TIMELINE")[0] == '/');
    assert_string_equal(strrchr(env_of(s, "HOROVOD_TIMELINE"), '/'), "/t.json");
    assert_string_equal(env_of(s, "HOROVOD_TIMELINE_MARK_CYCLES"), "1");
    assert_string_equal(env_of(s, "HOPYARD_RESET_LIMIT"), "5");
    unsetenv("OMP_NUM_THREADS");
    unsetenv("TF_NUM_INTRAOP_THREADS");
    assert_int_equal(whole_spec_of("--scaling -np 64 true", &scaling, &err), 0);
    assert_string_equal(env_of(scaling, "TF_NUM_INTRAOP_THREADS"), "1");
    assert_string_equal(scaling->metric, "examples_per_second");
    assert_null(env_of(s, "HOROVOD_RANK"));
    unsetenv("HY_TEST_TRAIN");
    unsetenv("HOROVOD_RANK");
}

HY_TEST(test_host_and_stall_options_of_horovodrun_are_in_the_spec)
{
    hy_cleanup_spec Hy__RunSpec *s = NULL, *fixed = NULL;
    struct hy_err err = {0};

    assert_int_equal(
        whole_spec_of("-np 2 --min-np 1 --host-discovery-script ./hosts.sh --slots-per-host 3 --elastic-timeout 30 "
                      "--blacklist-cooldown-range 10 100 -p 2222 -i /dev/null --stall-check-warning-time-seconds "
                      "7 --stall-check-shutdown-time-seconds 9 --no-stall-check true",
                      &s, &err),
        0);
    assert_string_equal(s->discovery, "./hosts.sh");
    assert_int_equal(s->discovery_slots, 3);
    assert_int_equal(s->elastic_timeout_ms, 30000);
    assert_int_equal(s->cooldown_first_s, 10);
    assert_int_equal(s->cooldown_last_s, 100);
    assert_int_equal(s->ssh_port, 2222);
    assert_string_equal(s->ssh_identity, "/dev/null");
    assert_string_equal(env_of(s, "HOROVOD_STALL_CHECK_TIME_SECONDS"), "7");
    assert_string_equal(env_of(s, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"), "9");
    assert_string_equal(env_of(s, "HOROVOD_STALL_CHECK_DISABLE"), "1");
    setenv("HOROVOD_ELASTIC_TIMEOUT", "40", 1);
    assert_int_equal(spec_of("-np 2 --min-np 1 true", &fixed, &err), 0);
    assert_int_equal(fixed->elastic_timeout_ms, 40000);
    unsetenv("HOROVOD_ELASTIC_TIMEOUT");
}

/* ---- --config-file ---------------------------------------------------------------------- */

static int config_of(const char *directory, const char *text, const char *options, struct hy_config *ret,
                     struct hy_err *err)
{
    hy_cleanup_args struct hy_args args = {0};
    char line[300];
    int rc;

    write_text(directory, "c.yaml", text, 0600);
    snprintf(line, sizeof line, "-np 2 --config-file %s/c.yaml %s true", directory, options);
    rc = parse(line, &args, err);
    return rc < 0 ? rc : hy_config_read(&args, ret, err);
}

HY_TEST(test_a_config_file_sets_the_same_options_as_the_command_line)
{
    static const char text[] =
        "---\n# Horovod's\ncontroller: gloo\nparams:\n  fusion_threshold_mb: 32\n"
        "  hierarchical_allreduce: False\nautotune:\n  enabled: yes\n  log_file: '/tmp/a b'\n"
        "timeline:\n    filename: \"t#1.json\"   # here\n    mark_cycles: on\n\n"
        "stall_check:\n  enabled: false\n  warning_time_seconds: 30\n  shutdown_time_seconds: ~\n"
        "library_options:\n  ccl_bgt_affinity: 2\nlogging:\n  level: DEBUG\n  with_timestamp: false\n";
    char *directory = make_directory();
    hy_cleanup_config struct hy_config c = {0}, over = {0};
    struct hy_err err = {0};

    assert_int_equal(config_of(directory, text, "", &c, &err), 0);
    assert_string_equal(hy_args_get(&c.args, "fusion-threshold-mb"), "32");
    assert_true(hy_args_has(&c.args, "gloo"));
    assert_true(hy_args_has(&c.args, "no-hierarchical-allreduce"));
    assert_true(hy_args_has(&c.args, "autotune"));
    assert_string_equal(hy_args_get(&c.args, "autotune-log-file"), "/tmp/a b");
    assert_string_equal(hy_args_get(&c.args, "timeline-filename"), "t#1.json");
    assert_true(hy_args_has(&c.args, "timeline-mark-cycles"));
    assert_true(hy_args_has(&c.args, "no-stall-check"));
    assert_string_equal(hy_args_get(&c.args, "stall-check-warning-time-seconds"), "30");
    assert_false(hy_args_has(&c.args, "stall-check-shutdown-time-seconds"));
    assert_string_equal(hy_args_get(&c.args, "thread-affinity"), "2");
    assert_string_equal(hy_args_get(&c.args, "log-level"), "DEBUG");
    assert_true(hy_args_has(&c.args, "log-without-timestamp"));
    assert_string_equal(hy_args_get(&c.args, "num-proc"), "2");
    assert_int_equal(config_of(directory, text, "--timeline-filename mine --stall-check", &over, &err), 0);
    assert_string_equal(hy_args_get(&over.args, "timeline-filename"), "mine");
    assert_false(hy_args_has(&over.args, "no-stall-check")); /* the command line takes precedence */
    remove_directory(directory);
}

HY_TEST(test_an_invalid_config_file_is_refused_with_its_line)
{
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"timeline:\n  filename: {a: b}\n",
         "line 2: invalid line; write SECTION:, and below it indented lines NAME: VALUE"},
        {"nothing\n", "line 1: invalid line"},
        {"params:\n  num_proc: 4\n", "line 2: unknown setting 'num_proc' in section 'params'"},
        {"elastic:\n", "line 1: unknown section 'elastic'"},
        {"  level: 3\n", "line 1: 'level' is not in a section"},
        {"timeline:\n  mark_cycles: perhaps\n", "line 2: 'mark_cycles' must be true or false, not 'perhaps'"},
        {"controller: smoke\n", "line 1: the controller must be gloo or mpi, not 'smoke'"},
        {"timeline: t.json\n", "line 1: put the settings of 'timeline' on indented lines below it"},
    };
    char *directory = make_directory();

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        hy_cleanup_config struct hy_config c = {0};
        struct hy_err err = {0};

        assert_int_equal(config_of(directory, cases[i].text, "", &c, &err), -EINVAL);
        if (!strstr(err.text, cases[i].sentence))
            fail_msg("'%s' is not in '%s'", cases[i].sentence, err.text);
    }
    remove_directory(directory);
}

/* ---- faults -------------------------------------------------------------------------- */

static int spec_scenario(void *arg)
{
    hy_cleanup_spec Hy__RunSpec *s = NULL;
    struct hy_err err = {0};
    int rc = spec_of("-np 2 --max-np 3 -H a:2,b:2 --max accuracy --name wine true", &s, &err);

    (void)arg;
    return rc;
}

HY_TEST(test_allocation_and_system_call_faults_are_handled)
{
    hy_each_fault(HY_SEAM_ALLOC, spec_scenario, NULL);
}

int main(int argc, char **argv)
{
    begin_plain();
    return hy_run_tests(argc > 1 ? argv[1] : NULL, NULL, NULL);
}
