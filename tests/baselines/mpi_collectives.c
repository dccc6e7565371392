// MPI's own collectives, to put beside `mpirun -n N zerolab bench comm --backend mpi`: the same
// buffers (in place, fp32), the same time (of the slowest rank, median of the calls) and the same
// bandwidth.
//   mpicc -O2 mpi_collectives.c -o mpi_collectives && mpirun -n 3 ./mpi_collectives [CALLS]
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_size(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  const int calls = argc > 1 ? atoi(argv[1]) : 20, warm_up = 5;
  double* seconds = malloc((size_t)calls * sizeof *seconds);
  const char* names[] = {"all_gather", "reduce_scatter", "all_reduce"};
  for (int kind = 0; kind < 3; ++kind)
    for (long bytes = 8 << 10; bytes <= 64L << 20; bytes *= 4) {
      const int count = (int)(bytes / 4 / size), total = count * size;
      float* buffer = malloc((size_t)total * 4);
      memset(buffer, 0, (size_t)total * 4);
      for (int i = -warm_up; i < calls; ++i) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double began = MPI_Wtime();
        if (kind == 0)
          MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, buffer, count, MPI_FLOAT,
                        MPI_COMM_WORLD);
        else if (kind == 1)
          MPI_Reduce_scatter_block(MPI_IN_PLACE, buffer, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        else
          MPI_Allreduce(MPI_IN_PLACE, buffer, total, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        double took = MPI_Wtime() - began, slowest = 0;
        MPI_Reduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (i >= 0) seconds[i] = slowest;
      }
      if (rank == 0) {
        qsort(seconds, (size_t)calls, sizeof *seconds, by_size);
        const double median = seconds[calls / 2], rate = 4.0 * total / median;
        printf("%-15s %10d bytes %10.1f us %8.3f GB/s\n", names[kind], 4 * total, 1e6 * median,
               rate / 1e9);
      }
      free(buffer);
    }
  free(seconds);
  MPI_Finalize();
  return 0;
}
