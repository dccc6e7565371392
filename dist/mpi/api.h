// The functions of MPI that zerolab calls, as a table. dist/mpi/mpi_plugin.cpp fills it, compiled
// once with each MPI that the build finds.
//
// Using it needs no header of MPI: the headers of two MPIs cannot be in one program, and their
// libraries need not be on the machine where it starts. Functions that return const char* return
// null on success, else an error message, valid until the next call. No function
// waits, except init(), finalize() and make_group(). One thread at a time may be inside.
#pragma once

#include <cstdint>

namespace zl {

// MPI's handle of a message under way: a pointer with Open MPI, a number with MPICH.
struct MpiRequest {
  uint64_t handle = 0;
};

enum class MpiKind { open_mpi, mpich };
enum class MpiType { i32, f32, f64 };

struct MpiApi {
  int abi_version = 0;  // kAbiVersion of the plugin
  MpiKind kind{};
  const char* compiled_for = "";  // the header's version, "4.1.4"

  const char* (*init)() = nullptr;  // MPI_Init_thread, and a communicator of all ranks
  const char* (*finalize)() = nullptr;
  int (*rank)() = nullptr;
  int (*size)() = nullptr;
  int (*largest_tag)() = nullptr;

  // Sets `group` to what sums among these ranks take; 0: all ranks. The same ranks and number give
  // the same one again. Waits for all members to call it.
  const char* (*make_group)(const int* members, int count, int number, int* group) = nullptr;

  // At most kMaxMessageBytes. MPI uses the buffer until test() says that the request is done; a
  // request cannot be withdrawn. Ranks are those of the run. The sums are over the ranks of a
  // group, in place; that of a reduce_scatter is where the buffer begins, and `count` [n] is of a
  // shard.
  const char* (*send)(const void* from, int64_t bytes, int to, int tag, MpiRequest*) = nullptr;
  const char* (*receive)(void* to, int64_t bytes, int from, int tag, MpiRequest*) = nullptr;
  const char* (*all_reduce)(void* inout, int64_t count, MpiType, int group, MpiRequest*) = nullptr;
  const char* (*reduce_scatter)(void* inout, int64_t count, MpiType, int group,
                                MpiRequest*) = nullptr;
  // Whether all are done. Moves data, of other messages too.
  const char* (*test)(MpiRequest* requests, int count, bool* done) = nullptr;
};

inline constexpr int kAbiVersion = 3;                          // of this table
inline constexpr int64_t kMaxMessageBytes = int64_t(1) << 30;  // MPI counts in int
inline constexpr const char* kMpiEntry = "zerolab_mpi";        // the plugin's function: the table

}  // namespace zl
