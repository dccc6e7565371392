// The functions of MPI that zerolab calls, as a table. dist/mpi/mpi_plugin.cpp fills it, compiled
// once with each MPI that the build finds; tests have a fake.
//
// Using it needs no header of MPI: the headers of two MPIs cannot be in one program, and their
// libraries need not be on the machine where it starts. A function that returns a text returns null
// if all is well, else what MPI said, valid until the next call. No function waits, except init()
// and finalize(). One thread at a time may be inside.
#pragma once

#include <cstdint>

namespace zl {

// MPI's handle of a message under way: a pointer with Open MPI, a number with MPICH.
struct MpiRequest {
  uint64_t handle = 0;
};

enum class MpiType { i32, f32, f64 };

struct MpiApi {
  int layout = 0;                 // kMpiLayout of the plugin
  const char* name = "";          // "Open MPI" or "MPICH"
  const char* compiled_for = "";  // the header's version, "4.1.4"

  const char* (*library)() = nullptr;  // the first line of MPI_Get_library_version
  const char* (*init)() = nullptr;     // MPI_Init_thread, and a communicator of all ranks
  const char* (*finalize)() = nullptr;
  int (*rank)() = nullptr;
  int (*size)() = nullptr;
  int (*largest_tag)() = nullptr;

  // At most kMostMpiBytes. The sums are over all ranks, in place; that of a reduce_scatter is where
  // the buffer begins, and `count` [n] is of a shard.
  const char* (*send)(const void* from, int64_t bytes, int to, int tag, MpiRequest*) = nullptr;
  const char* (*receive)(void* to, int64_t bytes, int from, int tag, MpiRequest*) = nullptr;
  const char* (*all_reduce)(void* inout, int64_t count, MpiType, MpiRequest*) = nullptr;
  const char* (*reduce_scatter)(void* inout, int64_t count, MpiType, MpiRequest*) = nullptr;
  // Whether all are done. Moves data, of other messages too.
  const char* (*test)(MpiRequest* requests, int count, bool* done) = nullptr;
  // Gives up a message, whose buffer MPI does not use from then on unless it is called again.
  void (*cancel)(MpiRequest* request) = nullptr;
};

inline constexpr int kMpiLayout = 1;                        // of this table
inline constexpr int64_t kMostMpiBytes = int64_t(1) << 30;  // MPI counts in int
inline constexpr const char* kMpiEntry = "zerolab_mpi";     // the plugin's function: the table

}  // namespace zl
