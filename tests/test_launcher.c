/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that mpirun or srun has started: what the environment says of them. */
#include "support.h"

#include <errno.h>
#include <unistd.h>

#include "base/mem.h"
#include "collective/launcher.h"

static const char *const all[] = {
    "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
    "MV2_COMM_WORLD_LOCAL_SIZE", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE", "SLURM_PROCID",
    "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_ID",
    "SLURM_STEP_ID", "PMIX_NAMESPACE", "PMIX_RANK"};

/* "A=1 B=2" and none of the others. */
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

static void test_rank_and_size_come_from_whoever_started_it(void **state)
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
        /* mpirun in a batch script of Slurm's */
        {"SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_NNODES=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", 1, 2, "mpirun"},
    };
    struct hy_launcher l;
    struct hy_err err;

    (void)state;
    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        if (find(cases[i].environment, &l, &err) != 1)
            fail_msg("%s: %s", cases[i].environment, err.text);
        assert_int_equal(l.rank, cases[i].rank);
        assert_int_equal(l.size, cases[i].size);
        assert_string_equal(l.name, cases[i].name);
    }
}

static void test_one_alone_is_not_a_rank(void **state)
{
    static const char *const cases[] = {"", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1", "SLURM_PROCID=0",
                                        "SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1", "PMI_SIZE=4"};
    struct hy_launcher l;
    struct hy_err err;

    (void)state;
    for (size_t i = 0; i < HY_COUNT(cases); i++)
        assert_int_equal(find(cases[i], &l, &err), 0);
}

static void test_what_makes_no_sense_is_refused_with_a_sentence(void **state)
{
    static const struct {
        const char *environment, *sentence;
        int code;
    } cases[] = {
        {"PMI_RANK=1", "PMI_RANK is set, and PMI_SIZE is not", -EINVAL},
        {"PMI_RANK=2 PMI_SIZE=2", "PMI_RANK=2 and PMI_SIZE=2: there is no such rank", -EINVAL},
        {"PMI_RANK=one PMI_SIZE=2", "PMI_RANK=one is not a number of ranks", -EINVAL},
        {"PMI_RANK=1 PMI_SIZE=99999", "PMI_SIZE=99999 is not a number of ranks", -EINVAL},
        {"PMIX_RANK=1", "PMIX_RANK is set, and no variable says how many ranks there are", -EINVAL},
        {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2",
         "horovodrun -np 4 -H HOST1:2,HOST2:2 python", -ENOTSUP},
        {"SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_NNODES=2",
         "horovodrun -np 4 -H \"$(scontrol show hostnames | sed 's/$/:2/' | paste -sd,)\" python", -ENOTSUP},
    };
    struct hy_launcher l;
    struct hy_err err;

    (void)state;
    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        assert_int_equal(find(cases[i].environment, &l, &err), cases[i].code);
        if (!strstr(err.text, cases[i].sentence))
            fail_msg("'%s' is not in '%s'", cases[i].sentence, err.text);
    }
}

static void test_ranks_of_one_start_meet_at_one_place_and_those_of_others_elsewhere(void **state)
{
    struct hy_launcher one, same, other, shell;
    struct hy_err err = {0};
    hy_cleanup_free char *path = NULL, *again = NULL, *far = NULL;
    char folder[] = "/tmp/hy-launcher-XXXXXX", inside[64];

    (void)state;
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
    assert_non_null(strstr(shell.job, "PMI_RANK.")); /* by who has started them */
    snprintf(inside, sizeof inside, "%s/hopyard", folder);
    assert_int_equal(rmdir(inside), 0);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rank_and_size_come_from_whoever_started_it),
        cmocka_unit_test(test_one_alone_is_not_a_rank),
        cmocka_unit_test(test_what_makes_no_sense_is_refused_with_a_sentence),
        cmocka_unit_test(test_ranks_of_one_start_meet_at_one_place_and_those_of_others_elsewhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
