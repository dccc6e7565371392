// The only file that sees mpi.h.
#include "dist/mpi/mpi_calls.h"

#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <pthread.h>

#include <algorithm>
#include <bit>
#include <future>
#include <map>
#include <thread>

#include "dist/communicator.h"
#include "dist/mpi/library.h"
#include "tensor/error.h"

namespace zl {
namespace {

using namespace std::chrono_literals;

MPI_Comm world = MPI_COMM_NULL;                       // of all ranks; its errors are results
std::map<std::pair<int, uint64_t>, MPI_Comm> groups;  // by RankGroup's number and ranks

// Calls MPI's function of this name. MPI's message is "MPI_ERR_TRUNCATE: message truncated" with
// Open MPI, a stack of lines with MPICH.
template <class... Parameters, class... Arguments>
void call(const char* name, int (*function)(Parameters...), Arguments... arguments) {
  const int error = function(arguments...);
  if (error == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  (void)MPI_Error_string(error, text, &length);
  std::replace(text, text + length, '\n', ' ');
  throw CommunicationError(str(name, " failed: ", text));
}

MpiPlace start() {
  int level = 0;
  call("MPI_Init_thread", MPI_Init_thread, nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  if (level < MPI_THREAD_SERIALIZED)
    throw CommunicationError("this MPI was built without threads (MPI_THREAD_SERIALIZED)");
  call("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler, MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  // A copy, so that no message of another library in this process is mistaken for ours. It has the
  // error handler too.
  call("MPI_Comm_dup", MPI_Comm_dup, MPI_COMM_WORLD, &world);
  groups[{0, 0}] = world;
  MpiPlace place;
  call("MPI_Comm_rank", MPI_Comm_rank, world, &place.rank);
  call("MPI_Comm_size", MPI_Comm_size, world, &place.size);
  return place;
}

// Never destroyed, because its thread may still be inside MPI when the program exits.
struct Session {
  std::packaged_task<MpiPlace()> start{zl::start};
  std::packaged_task<void()> finalize{[] { call("MPI_Finalize", MPI_Finalize); }};
  std::promise<void> finish;
  std::shared_future<MpiPlace> place = start.get_future().share();

  void serve() {
    pthread_setname_np(pthread_self(), "MPI");
    start();
    finish.get_future().wait();
    finalize();
  }
};
Session* session = nullptr;  // used by one thread at a time

template <class Post>
void in_rounds(int64_t bytes, const Post& post) {
  for (int64_t begin = 0; begin < bytes; begin += kMaxMessageBytes)
    post(begin, int(std::min(kMaxMessageBytes, bytes - begin)));
}

}  // namespace

std::optional<MpiInBuild> mpi_in_build() {
  return MpiInBuild{ZEROLAB_OPEN_MPI, ZEROLAB_MPI_VERSION, ZEROLAB_MPIRUN};  // of CMake
}

MpiPlace start_mpi(const std::function<void()>& poll) {
  if (!session) {
    session = new Session;
    std::thread(&Session::serve, session).detach();
  }
  while (session->place.wait_for(5ms) != std::future_status::ready) poll();
  return session->place.get();
}

void finish_mpi() {
  if (!session || session->place.wait_for(0s) != std::future_status::ready) return;
  auto finalized = session->finalize.get_future();
  session->finish.set_value();
  if (finalized.wait_for(60s) != std::future_status::ready)
    throw CommunicationError("MPI_Finalize does not return: another rank has not come to its end");
  finalized.get();
}

// Another run of this process may have had a group of this number and these ranks.
void make_mpi_group(const RankGroup& group) {
  MPI_Comm& comm = groups.try_emplace({group.number, group.ranks}, MPI_COMM_NULL).first->second;
  if (comm != MPI_COMM_NULL) call("MPI_Comm_free", MPI_Comm_free, &comm);
  call("MPI_Comm_split", MPI_Comm_split, world, std::countr_zero(group.ranks), 0, &comm);
  call("MPI_Comm_set_errhandler", MPI_Comm_set_errhandler, comm, MPI_ERRORS_RETURN);
}

struct MpiMessages::Requests {
  std::vector<MPI_Request> all;

  template <class... Arguments>
  void post(const char* name, Arguments... arguments) {
    all.push_back(MPI_REQUEST_NULL);
    call(name, arguments..., &all.back());
  }
};

MpiMessages::MpiMessages(const RankGroup& group, int rank, int size)
    : group_(group), rank_(rank), size_(size), requests_(std::make_shared<Requests>()) {}

void MpiMessages::send(const char* from, int64_t count, Dtype dtype, int to_rank) {
  in_rounds(count * size_of(dtype), [&](int64_t begin, int bytes) {
    requests_->post("MPI_Issend", MPI_Issend, from + begin, bytes, MPI_BYTE, group_.of_run(to_rank),
                    group_.number, world);
  });
}

void MpiMessages::receive(char* to, int64_t count, Dtype dtype, int from_rank) {
  in_rounds(count * size_of(dtype), [&](int64_t begin, int bytes) {
    requests_->post("MPI_Irecv", MPI_Irecv, to + begin, bytes, MPI_BYTE, group_.of_run(from_rank),
                    group_.number, world);
  });
}

void MpiMessages::all_gather(const char* from, char* to, int64_t count, Dtype dtype) {
  for (int i = 1; i < size_; ++i) {
    const int next = (rank_ + i) % size_, last = (rank_ + size_ - i) % size_;
    receive(to + last * count * size_of(dtype), count, dtype, last);
    send(from, count, dtype, next);
  }
}

void MpiMessages::add(char* inout, int64_t count, Dtype dtype) {
  const auto type = dtype == Dtype::i32   ? MPI_INT32_T
                    : dtype == Dtype::f32 ? MPI_FLOAT
                                          : MPI_DOUBLE;
  const int each = int(size_of(dtype));
  in_rounds(count * each, [&](int64_t begin, int bytes) {
    requests_->post("MPI_Iallreduce", MPI_Iallreduce, MPI_IN_PLACE, inout + begin, bytes / each,
                    type, MPI_SUM, groups.at({group_.number, group_.ranks}));
  });
}

// One after the other, because a request that is done becomes MPI_REQUEST_NULL, whose test is free.
bool MpiMessages::done() {
  bool all = true;
  for (MPI_Request& request : requests_->all) {
    int done = 0;
    MPI_Status status;
    call("MPI_Test", MPI_Test, &request, &done, &status);
    all = all && done;
  }
  if (all) requests_->all.clear();
  return all;
}

}  // namespace zl
