/* SPDX-License-Identifier: Apache-2.0 */
/* mpirun -np RANKS mpi BATCHES SIZES: MPI_Allreduce of float32, sum; built by bench/allreduce.py with mpicc. */
#include <mpi.h>

#include "allreduce_loop.h"

static void allreduce(void *arg, const float *in, float *out, size_t count)
{
    (void)arg;
    MPI_Allreduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void barrier(void *arg)
{
    (void)arg;
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    struct side s = {.allreduce = allreduce, .barrier = barrier};

    MPI_Init(&argc, &argv);
    if (argc != 3) {
        fprintf(stderr, "usage: mpi BATCHES SIZES\n");
        return 2;
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &s.ranks);
    s.batches = atoi(argv[1]);
    time_sizes(&s, argv[2]);
    MPI_Finalize();
    return 0;
}
