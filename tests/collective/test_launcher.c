/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that mpirun or srun has started, and their environment. */
#include "support.h"

#include <errno.h>
#include <unistd.h>

#include "base/mem.h"
#include "collective/group/endpoint.h"
#include "collective/group/launcher.h"
#include "collective/mesh/mesh.h"

static const char *const all[] = {"OMPI_COMM_WORLD_RANK",
                                  "OMPI_COMM_WORLD_SIZE",
                                  "OMPI_COMM_WORLD_LOCAL_SIZE",
                                  "MV2_COMM_WORLD_RANK",
                                  "MV2_COMM_WORLD_SIZE",
                                  "MV2_COMM_WORLD_LOCAL_SIZE",
                                  "PMI_RANK",
                                  "PMI_SIZE",
                                  "MPI_LOCALNRANKS",
                                  "PMI_LOCAL_SIZE",
                                  "SLURM_PROCID",
                                  "SLURM_STEP_NUM_TASKS",
                                  "SLURM_NTASKS",
                                  "SLURM_NPROCS",
                                  "SLURM_STEP_NUM_NODES",
                                  "SLURM_NNODES",
                                  "SLURM_JOB_ID",
                                  "SLURM_STEP_ID",
                                  "PMIX_NAMESPACE",
                                  "PMIX_RANK",
                                  "PMI_FD"};

/* Sets "A=1 B=2" and unsets all other variables of launchers. */
static int find(const char *text, struct hy_launcher *ret, struct hy_err *err)
{
    hy_cleanup_free char *copy = hy_strdup(text);
    char *rest = copy, *word;

    for (size_t i = 0; i < HY_COUNT(all); i++)
        unsetenv(all[i]);
    while ((word = strsep(&rest, " "))) {
        char *equals = strchr(word, '=');

        if (!equals)
            continue;
        *equals = '\0';
        assert_int_equal(setenv(word, equals + 1, 1), 0);
    }
    *ret = (struct hy_launcher){0};
    *err = (struct hy_err){0};
    return hy_launcher_find(ret, err);
}

HY_TEST(test_rank_and_size_come_from_the_launchers_variables)
{
    static const struct {
        const char *environment;
        unsigned rank, size;
        const char *name;
    } cases[] = {
        {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=4", 1, 4, "mpirun"},
        {"PMI_RANK=0 PMI_SIZE=2", 0, 2, "mpirun"},
        {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2", 1, 2, "mpirun"},
        {"SLURM_PROCID=2 SLURM_NTASKS=3", 2, 3, "srun"},
        {"SLURM_PROCID=2 SLURM_NTASKS=8 SLURM_STEP_NUM_TASKS=3 SLURM_STEP_NUM_NODES=1 SLURM_NNODES=4", 2, 3, "srun"},
        /* mpirun in a Slurm batch script */
        {"SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_NNODES=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", 1, 2, "mpirun"},
    };
    struct hy_launcher l;
    struct hy_err err;

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        if (find(cases[i].environment, &l, &err) != 1)
            fail_msg("%s: %s", cases[i].environment, err.text);
        assert_int_equal(l.rank, cases[i].rank);
        assert_int_equal(l.size, cases[i].size);
        assert_string_equal(l.name, cases[i].name);
    }
}

HY_TEST(test_a_single_process_is_not_a_rank)
{
    static const char *const cases[] = {"", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", "SLURM_PROCID=0",
                                        "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1", "PMI_SIZE=4"};
    struct hy_launcher l;
    struct hy_err err;

    for (size_t i = 0; i < HY_COUNT(cases); i++)
        assert_int_equal(find(cases[i], &l, &err), 0);
}

HY_TEST(test_invalid_variables_are_refused_with_a_message)
{
    static const struct {
        const char *environment, *sentence;
        int code;
    } cases[] = {
        {"PMI_RANK=1", "PMI_RANK is set, but PMI_SIZE is not", -EINVAL},
        {"PMI_RANK=2 PMI_SIZE=2", "PMI_RANK=2 and PMI_SIZE=2: there is no such rank", -EINVAL},
        {"PMI_RANK=one PMI_SIZE=2", "PMI_RANK=one is not a number of ranks", -EINVAL},
        {"PMI_RANK=1 PMI_SIZE=99999", "PMI_SIZE=99999 is not a number of ranks", -EINVAL},
        {"PMIX_RANK=1", "PMIX_RANK is set, but no variable has the number of ranks", -EINVAL},
        {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2",
         "horovodrun -np 4 -H HOST1:2,HOST2:2 python", -ENOTSUP},
        {"SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_NNODES=2",
         "horovodrun -np 4 -H \"$(scontrol show hostnames | sed 's/$/:2/' | paste -sd,)\" python", -ENOTSUP},
    };
    struct hy_launcher l;
    struct hy_err err;

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        assert_int_equal(find(cases[i].environment, &l, &err), cases[i].code);
        if (!strstr(err.text, cases[i].sentence))
            fail_msg("'%s' is not in '%s'", cases[i].sentence, err.text);
    }
}

HY_TEST(test_each_start_has_its_own_rendezvous_socket)
{
    struct hy_launcher one, same, other, shell;
    struct hy_err err = {0};
    hy_cleanup_free char *path = NULL, *again = NULL, *far = NULL;
    char folder[] = "/tmp/hy-launcher-XXXXXX", inside[64];

    assert_non_null(mkdtemp(folder));
    setenv("XDG_RUNTIME_DIR", folder, 1);
    assert_int_equal(find("SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_ID=7 SLURM_STEP_ID=0", &one, &err), 1);
    path = hy_launcher_socket(&one, &err);
    assert_int_equal(find("SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=7 SLURM_STEP_ID=0", &same, &err), 1);
    again = hy_launcher_socket(&same, &err);
    assert_int_equal(find("SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=7 SLURM_STEP_ID=1", &other, &err), 1);
    far = hy_launcher_socket(&other, &err);
    assert_non_null(path);
    assert_string_equal(path, again);
    assert_string_not_equal(path, far);
    assert_int_equal(strncmp(path, folder, strlen(folder)), 0);
    assert_int_equal(find("PMI_RANK=1 PMI_SIZE=2", &shell, &err), 1);
    assert_non_null(strstr(shell.job, "PMI_RANK.")); /* by the process that has started them */
    snprintf(inside, sizeof inside, "%s/hopyard", folder);
    assert_int_equal(rmdir(inside), 0);
    assert_int_equal(rmdir(folder), 0);
}

HY_TEST(test_ranks_on_several_machines_need_pmi)
{
    static const char *const cases[] = {
        "OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=7 PMIX_RANK=3",
        "SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_NNODES=2 PMI_FD=5"};
    struct hy_launcher l;
    struct hy_err err;

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        if (find(cases[i], &l, &err) != 1)
            fail_msg("%s: %s", cases[i], err.text);
        assert_true(l.is_spread);
        assert_int_equal(l.rank, 3);
    }
    assert_int_equal(hy_launcher_refuse(&l, "no such library", &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "(no such library); use `srun --mpi=pmix`"));
    assert_int_equal(find("SLURM_PROCID=3 SLURM_NTASKS=4 SLURM_NNODES=1 PMI_FD=5", &l, &err), 1);
    assert_false(l.is_spread);
}

HY_TEST(test_an_endpoint_round_trips_through_its_text)
{
    char text[HY_ENDPOINT_TEXT], other[HY_HOST_ID];
    struct hy_endpoint e, found;
    struct hy_err err = {0};
    uint8_t one[HY_HANDSHAKE_KEY], two[HY_HANDSHAKE_KEY];
    int fd = hy_endpoint_listen(&e, &err);

    assert_true(fd >= 0);
    assert_true(e.address_count > 0);
    hy_endpoint_format(&e, text);
    assert_int_equal(hy_endpoint_parse(text, &found), 0);
    assert_memory_equal(&e, &found, sizeof e);
    assert_int_equal(hy_host_id(other, &err), 0);
    assert_string_equal(e.host, other);
    hy_endpoint_mesh_key(&e, 1, one);
    hy_endpoint_mesh_key(&found, 1, two);
    assert_memory_equal(one, two, sizeof one);
    hy_endpoint_mesh_key(&e, 2, two);
    assert_memory_not_equal(one, two, sizeof one);
    assert_memory_not_equal(one, e.key, sizeof one);
    close(fd);
}

/* Every truncation before the end of the first address. */
HY_TEST(test_a_damaged_endpoint_is_refused)
{
    static const char good[] = "hopyard1 a/b 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff 4711 "
                               "10.0.0.7,fd00::7";
    static const char *const bad[] = {"", "hopyard1", "hopyard2 a k 1 ::1", "hopyard1 a 00 1 ::1"};
    struct hy_endpoint e;
    char text[sizeof good];

    assert_int_equal(hy_endpoint_parse(good, &e), 0);
    assert_int_equal(e.address_count, 2);
    for (size_t n = 0;
         n < strlen("hopyard1 a/b 00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff 4711 1"); n++) {
        memcpy(text, good, n);
        text[n] = '\0';
        assert_int_equal(hy_endpoint_parse(text, &e), -EPROTO);
    }
    for (size_t i = 0; i < HY_COUNT(bad); i++)
        assert_int_equal(hy_endpoint_parse(bad[i], &e), -EPROTO);
}

HY_TEST(test_an_unreachable_rank_0_is_reported)
{
    struct hy_endpoint e;
    struct hy_err err = {0};
    int fd = hy_endpoint_listen(&e, &err);

    close(fd);
    e.address_count = 1;
    strcpy(e.addresses[0], "127.0.0.1");
    assert_int_equal(hy_endpoint_dial(&e, 1, 2, &err), -ECONNREFUSED);
    assert_non_null(strstr(err.text, "rank 1 cannot connect to rank 0 at 127.0.0.1 port "));
    e.address_count = 0;
    assert_int_equal(hy_endpoint_dial(&e, 1, 2, &err), -EDESTADDRREQ);
}
