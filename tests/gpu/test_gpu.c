/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <stdint.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/internal.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

int nvmlShutdown(void); /* so that the linker keeps its library */

static char runtime[64];

/* ---- setup and teardown ---------------------------------------------------------- */

static int set_up(void **state)
{
    static char folder[64];
    static unsigned count;
    char seed[32];

    (void)state;
    snprintf(folder, sizeof folder, "/tmp/hy-gpu-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(runtime, sizeof runtime, "%s", folder);
    snprintf(seed, sizeof seed, "%d-%u", (int)getpid(), count++);
    setenv("XDG_RUNTIME_DIR", runtime, 1);
    setenv("FAKE_NVML_SEED", seed, 1);
    setenv("FAKE_NVML_DEVICES", "2", 1);
    unsetenv("FAKE_NVML_FAIL");
    unsetenv("FAKE_MPS_FAIL");
    unsetenv("CUDA_VISIBLE_DEVICES");
    nvmlShutdown();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return hy_remove_tree(runtime);
}

/* ---- names --------------------------------------------------------------- */

static size_t visible(const char *text, struct hy_gpu_device *list)
{
    static const char *const uuids[] = {"GPU-11aa22bb-0", "GPU-11aa33cc-1", "GPU-99ffee00-2"};

    for (size_t i = 0; i < HY_COUNT(uuids); i++)
        snprintf(list[i].uuid, sizeof list[i].uuid, "%s", uuids[i]);
    return hy_gpu_visible(text, list, HY_COUNT(uuids));
}

HY_TEST(test_only_visible_devices_are_leased)
{
    struct hy_gpu_device list[3] = {0};

    assert_int_equal(visible(NULL, list), 3);
    assert_int_equal(visible("", list), 0);
    assert_int_equal(visible("-1", list), 0);
    assert_int_equal(visible("void", list), 0);
    assert_int_equal(visible("2,0", list), 2);
    assert_string_equal(list[0].uuid, "GPU-99ffee00-2");
    assert_string_equal(list[1].uuid, "GPU-11aa22bb-0");
    assert_int_equal(visible("1,7,0", list), 1); /* as in CUDA: the first invalid entry ends the list */
    assert_int_equal(visible("1,-1,0", list), 1);
    assert_int_equal(visible(" 1 , 2", list), 2);
    assert_int_equal(visible("1,,2", list), 1);
    assert_int_equal(visible("1,1,1", list), 1);
    assert_int_equal(visible("18446744073709551616", list), 0);
}

HY_TEST(test_device_is_selected_by_a_prefix_of_its_uuid)
{
    struct hy_gpu_device list[3] = {0};

    assert_int_equal(visible("GPU-99ffee00-2", list), 1);
    assert_string_equal(list[0].uuid, "GPU-99ffee00-2");
    assert_int_equal(visible("GPU-11aa3,gpu-9", list), 2);
    assert_string_equal(list[0].uuid, "GPU-11aa33cc-1");
    assert_string_equal(list[1].uuid, "GPU-99ffee00-2");
    assert_int_equal(visible("GPU-11aa", list), 0); /* it matches two */
    assert_int_equal(visible("GPU-11aa22bb-0x", list), 0);
    assert_int_equal(visible("MIG-11aa22bb-0", list), 0);
}

/* ---- the log of the MPS server ------------------------------------------------------------ */

#define HEAD "[2026-11-15 07:45:32.837 Server   466] "

static const char fault_text[] = HEAD
    "Status of client {PID: 604, Context ID: 1} is ACTIVE\n" HEAD
    "Client {PID: 579, Context: 1} encountered a fatal GPU error.\n" HEAD "Server is handling a fatal GPU error.\n" HEAD
    "Client {PID: 578, Context ID: 1} on device 0 to be torn down\n" HEAD
    "Client {PID: 604, Context ID: 1} on device 0 to be torn down\n" HEAD "The following devices will be reset:\n" HEAD
    "0\n" HEAD "The following client process have a sticky error set:\n" HEAD "578\n" HEAD "604\n" HEAD "579\n" HEAD
    "Client {PID: 579, Context ID: 1} exiting. Number of active client contexts is 2.\n";

static const char recovery_text[] = HEAD
    "Client {PID: 577, Context ID: 1} exiting. Number of active client contexts is 0.\n" HEAD
    "Destroy server context on device 0 (NVIDIA H200)\n" HEAD "Client process 578 disconnected\n";

HY_TEST(test_fault_in_the_log_names_the_affected_clients)
{
    hy_cleanup_free char *both = hy_asprintf("%s%s", fault_text, recovery_text);
    struct hy_mps_faults f;

    hy_mps_log_scan(fault_text, strlen(fault_text), &f);
    assert_true(f.any && !f.over);
    assert_int_equal(f.clients_hit, 3);
    assert_int_equal(f.last, strcspn(fault_text, "\n") + 1);
    hy_mps_log_scan(both, strlen(both), &f);
    assert_true(f.any && f.over);
    assert_int_equal(f.clients_hit, 3);
    hy_mps_log_scan(recovery_text, strlen(recovery_text), &f);
    assert_false(f.any || f.over || f.clients_hit);
}

HY_TEST(test_truncated_log_is_parsed_safely)
{
    struct hy_mps_faults f;

    hy_mps_log_scan("", 0, &f);
    assert_false(f.any);
    for (size_t from = 0; from < strlen(fault_text); from++) {
        char *piece = strdup(fault_text + from); /* a separate allocation, for the sanitizer */

        hy_mps_log_scan(piece, strlen(piece), &f);
        assert_true(f.clients_hit <= 3);
        hy_mps_log_scan(piece, strlen(piece) / 2, &f);
        free(piece);
    }
}

/* ---- an agent's GPUs -------------------------------------------------------------------------- */

struct bench {
    uv_loop_t loop;
    struct hy_gpus *gpus;
    int found, left;
};

static void on_found(void *arg)
{
    ((struct bench *)arg)->found++;
}

static void on_left(void *arg)
{
    ((struct bench *)arg)->left++;
}

static void open_bench(struct bench *b)
{
    *b = (struct bench){0};
    uv_loop_init(&b->loop);
    b->gpus = hy_gpus_new(&b->loop);
    assert_non_null(b->gpus);
    hy_gpus_find(b->gpus, on_found, b);
    assert_int_equal(b->found, 0);
    while (!b->found)
        uv_run(&b->loop, UV_RUN_ONCE);
    assert_int_equal(b->found, 1);
}

static void close_bench(struct bench *b)
{
    hy_gpus_close(b->gpus, on_left, b);
    while (!b->left)
        uv_run(&b->loop, UV_RUN_ONCE);
    hy_gpus_free(b->gpus);
    uv_run(&b->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&b->loop), 0);
}

struct asked {
    struct hy_gpu_lease *lease;
    int held, ready, failed;
    char why[600];
};

static void on_held(void *arg, const char *why)
{
    struct asked *a = arg;

    a->held++;
    snprintf(a->why, sizeof a->why, "%s", why);
}

static void on_ready(void *arg)
{
    ((struct asked *)arg)->ready++;
}

static void on_failed(void *arg, const struct hy_err *err)
{
    struct asked *a = arg;

    a->failed++;
    snprintf(a->why, sizeof a->why, "%s", err->text);
}

static int ask(struct bench *b, struct asked *a, uint64_t mask, uint32_t share)
{
    static const struct hy_gpu_events events = {on_held, on_ready, on_failed};
    struct hy_err err = {0};

    *a = (struct asked){0};
    return hy_gpu_lease_new(b->gpus, mask, share, &events, a, &a->lease, &err);
}

/* Requests a lease, and runs the loop until there is a result. */
static void get(struct bench *b, struct asked *a, uint64_t mask, uint32_t share)
{
    assert_int_equal(ask(b, a, mask, share), 0);
    assert_false(a->held || a->ready || a->failed); /* callbacks do not run inside the call */
    while (!a->held && !a->ready && !a->failed)
        uv_run(&b->loop, UV_RUN_ONCE);
}

/* The value of a variable in a trial's environment; NULL: unset. */
static const char *word(const struct hy_gpu_lease *l, const char *name)
{
    static char *env[HY_GPU_ENV_MAX];
    size_t n = hy_gpu_environment(l, env, 0);

    for (size_t i = 0; i < n; i++)
        if (strncmp(env[i], name, strlen(name)) == 0 && env[i][strlen(name)] == '=')
            return env[i] + strlen(name) + 1;
    return NULL;
}

static const char *device(struct bench *b, size_t i)
{
    return hy_gpus_device(b->gpus, i)->uuid;
}

HY_TEST_WITH(test_devices_are_found_and_named, set_up, tear_down)
{
    struct bench b;

    open_bench(&b);
    assert_int_equal(hy_gpus_count(b.gpus), 2);
    assert_non_null(strstr(device(&b, 0), "GPU-000000a0-fake-"));
    assert_string_equal(hy_gpus_device(b.gpus, 1)->name, "Fake GPU 1");
    assert_true(hy_gpus_device(b.gpus, 1)->memory == 16ull << 30);
    close_bench(&b);
    setenv("CUDA_VISIBLE_DEVICES", "GPU-000000a1", 1);
    open_bench(&b);
    assert_int_equal(hy_gpus_count(b.gpus), 1);
    assert_non_null(strstr(device(&b, 0), "GPU-000000a1-fake-"));
    close_bench(&b);
}

HY_TEST_WITH(test_failing_driver_means_no_gpus, set_up, tear_down)
{
    static const char *const faults[] = {"init", "memory"};
    struct bench b;

    for (size_t i = 0; i < HY_COUNT(faults); i++) {
        setenv("FAKE_NVML_FAIL", faults[i], 1);
        open_bench(&b);
        assert_int_equal(hy_gpus_count(b.gpus), 0);
        close_bench(&b);
    }
}

/* Measures, and runs the loop until that is over. */
static void measure(struct bench *b)
{
    hy_gpus_measure(b->gpus);
    hy_gpus_measure(b->gpus); /* no second process */
    while (uv_loop_alive(&b->loop))
        uv_run(&b->loop, UV_RUN_ONCE);
}

HY_TEST_WITH(test_the_use_of_devices_is_measured, set_up, tear_down)
{
    struct bench b;

    setenv("FAKE_NVML_USE", "25", 1);
    setenv("CUDA_VISIBLE_DEVICES", "1", 1);
    open_bench(&b);
    assert_false(hy_gpus_device(b.gpus, 0)->is_measured);
    measure(&b);
    assert_true(hy_gpus_device(b.gpus, 0)->is_measured);
    assert_int_equal(hy_gpus_device(b.gpus, 0)->use, 250);
    assert_in_range(hy_gpus_device(b.gpus, 0)->memory_used, (4ull << 30) - 100, 4ull << 30);
    setenv("FAKE_NVML_FAIL", "memory", 1); /* the figures are old then */
    measure(&b);
    assert_false(hy_gpus_device(b.gpus, 0)->is_measured);
    assert_int_equal(hy_gpus_count(b.gpus), 1);
    unsetenv("FAKE_NVML_USE");
    close_bench(&b);
}

HY_TEST_WITH(test_a_lease_names_its_devices_when_it_is_held, set_up, tear_down)
{
    struct bench b;
    struct asked first, second;

    open_bench(&b);
    assert_int_equal(hy_gpu_lease_devices(NULL), 0);
    get(&b, &first, 1, HY_GPU_SHARES);
    assert_int_equal(hy_gpu_lease_devices(first.lease), 1);
    get(&b, &second, 1, HY_GPU_SHARES); /* the driver's choice is taken, the other is free */
    assert_int_equal(hy_gpu_lease_devices(second.lease), 2);
    hy_gpu_lease_free(second.lease);
    get(&b, &second, 3, HY_GPU_SHARES);
    assert_int_equal(hy_gpu_lease_devices(second.lease), 0); /* it waits */
    hy_gpu_lease_free(first.lease);
    hy_gpu_lease_free(second.lease);
    close_bench(&b);
}

HY_TEST_WITH(test_lease_sets_the_visible_devices_of_the_trial, set_up, tear_down)
{
    struct bench b;
    struct asked one, two;
    char both[200];
    size_t n;

    open_bench(&b);
    get(&b, &one, 2, 1000);
    assert_int_equal(one.ready, 1);
    assert_string_equal(word(one.lease, "CUDA_VISIBLE_DEVICES"), device(&b, 1));
    assert_string_equal(word(one.lease, "HOPYARD_GPUS"), "1");
    assert_null(word(one.lease, "HOPYARD_GPU_SHARE"));
    assert_null(word(one.lease, "CUDA_MPS_PIPE_DIRECTORY"));
    hy_gpu_lease_fds(one.lease, &n);
    assert_int_equal(n, 1);
    hy_gpu_lease_free(one.lease);
    get(&b, &two, 3, 1000);
    assert_int_equal(two.ready, 1);
    snprintf(both, sizeof both, "%s,%s", device(&b, 0), device(&b, 1));
    assert_string_equal(word(two.lease, "CUDA_VISIBLE_DEVICES"), both);
    assert_string_equal(word(two.lease, "HOPYARD_GPUS"), "2");
    hy_gpu_lease_free(two.lease);
    assert_string_equal(word(NULL, "CUDA_VISIBLE_DEVICES"), "");
    assert_string_equal(word(NULL, "HOPYARD_GPUS"), "0");
    close_bench(&b);
}

HY_TEST_WITH(test_lease_overrides_variables_of_the_user_except_for_frameworks, set_up, tear_down)
{
    char *env[8 + HY_GPU_ENV_MAX] = {(char *)"HOME=/root", (char *)"CUDA_VISIBLE_DEVICES=0",
                                     (char *)"XLA_PYTHON_CLIENT_MEM_FRACTION=0.5", (char *)"CUDA_VISIBLE_DEVICES_X=1",
                                     (char *)"CUDA_MPS_PIPE_DIRECTORY=/tmp/mine"};
    struct bench b;
    struct asked a;
    size_t n, fraction = 0, visible_devices = 0;

    open_bench(&b);
    get(&b, &a, 1, 250);
    n = hy_gpu_environment(a.lease, env, 5);
    for (size_t i = 0; i < n; i++) {
        fraction += strncmp(env[i], "XLA_PYTHON_CLIENT_MEM_FRACTION=", 31) == 0;
        visible_devices += strncmp(env[i], "CUDA_VISIBLE_DEVICES=", 21) == 0;
        assert_string_not_equal(env[i], "CUDA_VISIBLE_DEVICES=0");
        assert_string_not_equal(env[i], "CUDA_MPS_PIPE_DIRECTORY=/tmp/mine");
    }
    assert_int_equal(fraction, 1);
    assert_int_equal(visible_devices, 1);
    assert_string_equal(env[0], "HOME=/root");
    assert_string_equal(env[1], "XLA_PYTHON_CLIENT_MEM_FRACTION=0.5");
    assert_string_equal(env[2], "CUDA_VISIBLE_DEVICES_X=1");
    hy_gpu_lease_free(a.lease);
    close_bench(&b);
}

HY_TEST_WITH(test_another_device_is_leased_if_the_suggested_one_is_held, set_up, tear_down)
{
    struct hy_gpu_lock foreign = {0};
    struct bench b;
    struct asked a;

    open_bench(&b);
    assert_int_equal(hy_gpu_lock_add(&foreign, device(&b, 0), 1000), 0);
    get(&b, &a, 1, 1000);
    assert_int_equal(a.ready, 1);
    assert_string_equal(word(a.lease, "CUDA_VISIBLE_DEVICES"), device(&b, 1));
    hy_gpu_lease_free(a.lease);
    hy_gpu_lock_drop(&foreign);
    close_bench(&b);
}

HY_TEST_WITH(test_waiting_lease_reports_once_and_gets_released_devices, set_up, tear_down)
{
    struct hy_gpu_lock foreign = {0};
    struct bench b;
    struct asked first, second, both;

    open_bench(&b);
    assert_int_equal(hy_gpu_lock_add(&foreign, device(&b, 1), 10), 0);
    get(&b, &first, 1, 1000);
    assert_int_equal(first.ready, 1);
    get(&b, &second, 2, 1000);
    assert_int_equal(second.held, 1);
    assert_non_null(strstr(second.why, device(&b, 1)));
    assert_non_null(strstr(second.why, "leased by another run"));
    get(&b, &both, 3, 1000);
    assert_int_equal(both.held, 1);
    hy_gpu_lock_drop(&foreign); /* of another run: found by polling */
    while (!second.ready)
        uv_run(&b.loop, UV_RUN_ONCE);
    assert_string_equal(word(second.lease, "CUDA_VISIBLE_DEVICES"), device(&b, 1));
    assert_int_equal(second.held, 1);
    hy_gpu_lease_free(first.lease); /* our own: found at once */
    hy_gpu_lease_free(second.lease);
    uv_run(&b.loop, UV_RUN_NOWAIT);
    assert_int_equal(both.ready, 1);
    hy_gpu_lease_free(both.lease);
    close_bench(&b);
}

HY_TEST_WITH(test_lease_that_waits_for_two_devices_holds_none, set_up, tear_down)
{
    struct hy_gpu_lock foreign = {0}, other = {0};
    struct bench b;
    struct asked both;

    open_bench(&b);
    assert_int_equal(hy_gpu_lock_add(&foreign, device(&b, 1), 1000), 0);
    get(&b, &both, 3, 1000);
    assert_int_equal(both.held, 1);
    assert_int_equal(hy_gpu_lock_add(&other, device(&b, 0), 1000), 0);
    hy_gpu_lock_drop(&other);
    hy_gpu_lock_drop(&foreign);
    hy_gpu_lease_free(both.lease); /* it is stopped while it waits */
    close_bench(&b);
    assert_int_equal(both.ready, 0);
}

HY_TEST_WITH(test_more_devices_than_exist_are_an_error, set_up, tear_down)
{
    struct bench b;
    struct asked a;

    open_bench(&b);
    assert_int_equal(ask(&b, &a, 7, 1000), -EINVAL);
    assert_int_equal(ask(&b, &a, 0, 1000), -EINVAL);
    assert_int_equal(ask(&b, &a, 3, 500), -EINVAL);
    assert_int_equal(ask(&b, &a, 1, 0), -EINVAL);
    close_bench(&b);
}

/* ---- MPS ------------------------------------------------------------------------------------------ */

/* The commands that the fake control program has logged: "start quit ". */
static const char *control_log(const char *folder)
{
    static char text[256];
    char path[300];
    FILE *f;
    size_t n = 0;

    snprintf(path, sizeof path, "%s/control.log", folder);
    f = fopen(path, "re");
    if (f) {
        n = fread(text, 1, sizeof text - 1, f);
        fclose(f);
    }
    text[n] = '\0';
    for (char *c = text; *c; c++)
        *c = *c == '\n' ? ' ' : *c;
    return text;
}

static void append(const char *folder, const char *name, const char *text)
{
    char path[300];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "ae");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

HY_TEST_WITH(test_share_is_enforced_by_a_daemon_that_exits_with_its_last_client, set_up, tear_down)
{
    char folder[200];
    struct bench b;
    struct asked a, c;
    size_t n;

    open_bench(&b);
    get(&b, &a, 1, 250);
    get(&b, &c, 1, 250);
    assert_int_equal(a.ready + c.ready, 2);
    hy_gpu_lease_fds(a.lease, &n);
    assert_int_equal(n, 25);
    snprintf(folder, sizeof folder, "%s", word(a.lease, "CUDA_MPS_PIPE_DIRECTORY"));
    assert_non_null(strstr(folder, runtime));
    assert_string_equal(word(a.lease, "CUDA_VISIBLE_DEVICES"), device(&b, 0));
    assert_string_equal(word(a.lease, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"), "0=4095M");
    assert_string_equal(word(a.lease, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"), "25");
    assert_string_equal(word(a.lease, "TF_FORCE_GPU_ALLOW_GROWTH"), "true");
    assert_string_equal(word(a.lease, "XLA_PYTHON_CLIENT_MEM_FRACTION"), "0.225");
    assert_string_equal(word(a.lease, "HOPYARD_GPUS"), "1");
    assert_null(word(a.lease, "HOPYARD_GPU_MEMORY"));
    assert_string_equal(control_log(folder), "start ");
    hy_gpu_lease_free(a.lease);
    hy_gpu_lease_free(c.lease);
    close_bench(&b);
    assert_string_equal(control_log(folder), "start quit ");
}

HY_TEST_WITH(test_two_agents_share_a_daemon_and_the_last_one_stops_it, set_up, tear_down)
{
    char folder[200];
    struct bench first, second;
    struct asked a, c;

    open_bench(&first);
    open_bench(&second);
    get(&first, &a, 1, 250);
    get(&second, &c, 1, 250);
    snprintf(folder, sizeof folder, "%s", word(a.lease, "CUDA_MPS_PIPE_DIRECTORY"));
    assert_string_equal(word(c.lease, "CUDA_MPS_PIPE_DIRECTORY"), folder);
    hy_gpu_lease_free(a.lease);
    close_bench(&first);
    assert_string_equal(control_log(folder), "start ");
    hy_gpu_lease_free(c.lease);
    close_bench(&second);
    assert_string_equal(control_log(folder), "start quit ");
}

HY_TEST_WITH(test_without_mps_the_trial_gets_its_share_in_the_environment, set_up, tear_down)
{
    struct bench b;
    struct asked a, c;

    setenv("FAKE_MPS_FAIL", "start", 1);
    open_bench(&b);
    get(&b, &a, 1, 250);
    get(&b, &c, 1, 500);
    assert_int_equal(a.ready + c.ready, 2);
    assert_null(word(a.lease, "CUDA_MPS_PIPE_DIRECTORY"));
    assert_string_equal(word(a.lease, "HOPYARD_GPU_MEMORY"), "4294967250");
    assert_string_equal(word(a.lease, "HOPYARD_GPU_SHARE"), "0.25");
    assert_string_equal(word(c.lease, "HOPYARD_GPU_SHARE"), "0.5");
    assert_false(hy_gpu_lease_had_fault(a.lease));
    hy_gpu_lease_free(a.lease);
    hy_gpu_lease_free(c.lease);
    close_bench(&b);
}

HY_TEST_WITH(test_machine_without_the_control_program_has_no_mps, set_up, tear_down)
{
    hy_cleanup_free char *path = hy_strdup(getenv("PATH"));
    struct bench b;
    struct asked a;

    open_bench(&b);
    setenv("PATH", "/nowhere", 1);
    get(&b, &a, 1, 250);
    setenv("PATH", path, 1);
    assert_int_equal(a.ready, 1);
    assert_string_equal(word(a.lease, "HOPYARD_GPU_SHARE"), "0.25");
    hy_gpu_lease_free(a.lease);
    close_bench(&b);
}

HY_TEST_WITH(test_fault_of_another_client_is_found_in_the_server_log, set_up, tear_down)
{
    const char *folder;
    struct bench b;
    struct asked before, after;

    open_bench(&b);
    get(&b, &before, 1, 250);
    folder = hy_strdup(word(before.lease, "CUDA_MPS_PIPE_DIRECTORY"));
    assert_false(hy_gpu_lease_had_fault(before.lease));
    append(folder, "server.log", fault_text);
    append(folder, "server.log", recovery_text);
    assert_true(hy_gpu_lease_had_fault(before.lease));
    get(&b, &after, 1, 250);
    assert_false(hy_gpu_lease_had_fault(after.lease)); /* the fault ended before the lease began */
    hy_gpu_lease_free(before.lease);
    hy_gpu_lease_free(after.lease);
    close_bench(&b);
    free((void *)folder);
}

HY_TEST_WITH(test_fault_that_affects_one_client_is_its_own, set_up, tear_down)
{
    struct bench b;
    struct asked a;

    open_bench(&b);
    get(&b, &a, 1, 250);
    append(word(a.lease, "CUDA_MPS_PIPE_DIRECTORY"), "server.log",
           HEAD "Server is handling a fatal GPU error.\n" HEAD
                "The following client process have a sticky error set:\n" HEAD "578\n" HEAD
                "Destroy server context on device 0 (NVIDIA H200)\n");
    assert_false(hy_gpu_lease_had_fault(a.lease));
    hy_gpu_lease_free(a.lease);
    close_bench(&b);
}

HY_TEST_WITH(test_no_trial_starts_while_the_server_recovers, set_up, tear_down)
{
    char folder[200];
    struct bench b;
    struct asked a, c;

    open_bench(&b);
    get(&b, &a, 1, 250);
    snprintf(folder, sizeof folder, "%s", word(a.lease, "CUDA_MPS_PIPE_DIRECTORY"));
    append(folder, "server.log", fault_text);
    assert_int_equal(ask(&b, &c, 1, 250), 0);
    for (int i = 0; i < 3; i++)
        uv_run(&b.loop, UV_RUN_ONCE);
    assert_int_equal(c.ready, 0);
    append(folder, "server.log", recovery_text);
    while (!c.ready)
        uv_run(&b.loop, UV_RUN_ONCE);
    assert_false(hy_gpu_lease_had_fault(c.lease));
    hy_gpu_lease_free(a.lease);
    hy_gpu_lease_free(c.lease);
    close_bench(&b);
}

static pid_t daemon_pid(const char *folder)
{
    char path[300], text[32] = "";
    FILE *f;

    snprintf(path, sizeof path, "%s/nvidia-cuda-mps-control.pid", folder);
    f = fopen(path, "re");
    assert_non_null(f);
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    return atoi(text);
}

/* Waits until it is a zombie, whichever process has to reap it. */
static void kill_daemon(const char *folder)
{
    pid_t pid = daemon_pid(folder);
    char path[64], line[256] = "";

    assert_int_equal(kill(pid, SIGKILL), 0);
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    for (;;) {
        FILE *f = fopen(path, "re");
        const char *state;

        if (!f)
            return;
        state = fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
        fclose(f);
        if (!state || state[2] == 'Z' || state[2] == 'X')
            return;
    }
}

HY_TEST_WITH(test_killed_daemon_is_restarted_and_its_clients_had_a_fault, set_up, tear_down)
{
    char folder[200];
    struct bench b;
    struct asked a, c;

    open_bench(&b);
    get(&b, &a, 1, 250);
    snprintf(folder, sizeof folder, "%s", word(a.lease, "CUDA_MPS_PIPE_DIRECTORY"));
    kill_daemon(folder);
    assert_true(hy_gpu_lease_had_fault(a.lease));
    get(&b, &c, 1, 250);
    assert_int_equal(c.ready, 1);
    assert_non_null(word(c.lease, "CUDA_MPS_PIPE_DIRECTORY"));
    assert_string_equal(control_log(folder), "start start ");
    assert_true(hy_gpu_lease_had_fault(a.lease)); /* it is another daemon now */
    assert_false(hy_gpu_lease_had_fault(c.lease));
    hy_gpu_lease_free(a.lease);
    hy_gpu_lease_free(c.lease);
    close_bench(&b);
    assert_string_equal(control_log(folder), "start start quit ");
}

/* An agent that takes a share and is killed, with its state in memory. */
static void be_killed_with_a_share(const char *mark)
{
    struct bench b;
    struct asked a;

    open_bench(&b);
    get(&b, &a, 1, 250);
    append(runtime, mark, word(a.lease, "CUDA_MPS_PIPE_DIRECTORY"));
    kill(getpid(), SIGKILL);
}

static void leave_a_daemon_behind(char *folder, size_t size)
{
    char path[300];
    int status;
    FILE *f;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0)
        be_killed_with_a_share("left");
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    snprintf(path, sizeof path, "%s/left", runtime);
    f = fopen(path, "re");
    assert_non_null(f);
    assert_non_null(fgets(folder, (int)size, f));
    fclose(f);
}

HY_TEST_WITH(test_daemon_of_a_killed_agent_is_reused_and_stopped_by_the_next, set_up, tear_down)
{
    char folder[200];
    struct bench b;
    struct asked a;

    leave_a_daemon_behind(folder, sizeof folder);
    open_bench(&b);
    get(&b, &a, 1, 250);
    assert_string_equal(word(a.lease, "CUDA_MPS_PIPE_DIRECTORY"), folder);
    assert_string_equal(control_log(folder), "start ");
    assert_int_equal(hy_gpu_sweep(true), 0); /* it is in use */
    assert_int_equal(hy_gpu_sweep(false), 0);
    hy_gpu_lease_free(a.lease);
    close_bench(&b);
    assert_string_equal(control_log(folder), "start quit ");
}

HY_TEST_WITH(test_daemon_of_a_killed_agent_is_stopped_by_gc, set_up, tear_down)
{
    char folder[200];

    leave_a_daemon_behind(folder, sizeof folder);
    assert_int_equal(hy_gpu_sweep(true), 1);
    assert_string_equal(control_log(folder), "start ");
    assert_int_equal(hy_gpu_sweep(false), 1);
    assert_string_equal(control_log(folder), "start quit ");
    assert_int_equal(hy_gpu_sweep(false), 0);
}

HY_TEST_WITH(test_gpus_survive_every_failing_allocation, set_up, tear_down)
{
    struct bench b;
    long n = 0, passed;

    open_bench(&b);
    do {
        struct asked a;

        hy_fault_arm(HY_SEAM_ALLOC, ++n);
        if (ask(&b, &a, 1, 250) == 0) {
            while (!a.ready && !a.failed)
                uv_run(&b.loop, UV_RUN_ONCE);
            hy_gpu_lease_free(a.lease);
        }
        passed = hy_fault_passed(HY_SEAM_ALLOC);
        hy_fault_arm(HY_SEAM_ALLOC, 0);
    } while (passed >= n && n < 1000);
    assert_true(n > 5);
    close_bench(&b);
}

int main(int argc, char **argv)
{
    hy_cleanup_free char *path = hy_asprintf("%s:%s", HY_FAKES, getenv("PATH"));

    if (argc > 2 && strcmp(argv[1], "agent") == 0) /* as hy_gpus_find starts it */
        return hy_gpus_list_main();
    hy_log_init("test");
    signal(SIGPIPE, SIG_IGN);
    setenv("PATH", path, 1);
    return hy_run_tests(argc > 1 ? argv[1] : NULL, NULL, NULL);
}
