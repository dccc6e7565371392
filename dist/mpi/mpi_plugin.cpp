// The table of dist/mpi/api.h, filled with MPI's functions. The only file that sees mpi.h: it is
// built as a separate library for each MPI, because Open MPI's handles are pointers and MPICH's are
// numbers.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <cstring>
#include <string>
#include <vector>

#include "dist/mpi/api.h"

#define ZL_TEXT_OF(x) #x
#define ZL_TEXT(x) ZL_TEXT_OF(x)

namespace zl {
namespace {

static_assert(sizeof(MPI_Request) <= sizeof(MpiRequest));

struct Group {
  int number;
  std::vector<int> members;
  MPI_Comm comm;  // its errors are results
};
MPI_Comm comm = MPI_COMM_NULL;  // of all ranks
std::vector<Group> groups;      // 0: all ranks. They are kept, because a program has few of them
std::string last_error;

// MPI's message is "MPI_ERR_TRUNCATE: message truncated" with Open MPI, a stack of lines with
// MPICH.
const char* text_of(const char* function, int error) {
  if (error == MPI_SUCCESS) return nullptr;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(error, text, &length) != MPI_SUCCESS) length = 0;
  last_error = std::string(function) + " failed: " + std::string(text, size_t(length));
  for (char& c : last_error)
    if (c == '\n') c = ' ';
  return last_error.c_str();
}

const char* take(const char* function, int error, MPI_Request raw, MpiRequest* request) {
  request->handle = 0;
  std::memcpy(&request->handle, &raw, sizeof raw);
  return text_of(function, error);
}

MPI_Request raw(const MpiRequest& request) {
  MPI_Request raw;
  std::memcpy(&raw, &request.handle, sizeof raw);
  return raw;
}

MPI_Datatype raw(MpiType type) {
  return type == MpiType::i32 ? MPI_INT32_T : type == MpiType::f32 ? MPI_FLOAT : MPI_DOUBLE;
}

const char* init() {
  int level = 0;
  if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level))
    return text_of("MPI_Init_thread", error);
  if (level < MPI_THREAD_SERIALIZED) {
    last_error = "this MPI was built without threads (MPI_THREAD_SERIALIZED)";
    return last_error.c_str();
  }
  if (const int error = MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN))
    return text_of("MPI_Comm_set_errhandler", error);
  // A copy, so that no message of another library in this process is mistaken for ours. It has the
  // error handler too.
  const int error = MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  groups.push_back({0, {}, comm});
  return text_of("MPI_Comm_dup", error);
}

const char* finalize() {
  for (Group& group : groups)
    if (const int error = MPI_Comm_free(&group.comm)) return text_of("MPI_Comm_free", error);
  return text_of("MPI_Finalize", MPI_Finalize());
}

int rank() {
  int rank = -1;
  return MPI_Comm_rank(comm, &rank) == MPI_SUCCESS ? rank : -1;
}

int size() {
  int size = 0;
  return MPI_Comm_size(comm, &size) == MPI_SUCCESS ? size : 0;
}

int largest_tag() {
  int *value = nullptr, found = 0;
  const int error = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found);
  return error == MPI_SUCCESS && found ? *value : 32767;  // what every MPI has
}

const char* make_group(const int* members, int count, int number, int* group) {
  const std::vector<int> ranks(members, members + count);
  for (*group = 0; *group < int(groups.size()); ++*group)
    if (groups[size_t(*group)].number == number && groups[size_t(*group)].members == ranks)
      return nullptr;
  MPI_Group all = MPI_GROUP_NULL, some = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  int error = MPI_Comm_group(comm, &all);
  if (!error) error = MPI_Group_incl(all, count, members, &some);
  if (!error) error = MPI_Comm_create_group(comm, some, number, &made);
  if (!error) error = MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
  if (error) return text_of("MPI_Comm_create_group", error);
  (void)MPI_Group_free(&all);
  (void)MPI_Group_free(&some);
  groups.push_back({number, ranks, made});
  return nullptr;
}

const char* send(const void* from, int64_t bytes, int to, int tag, MpiRequest* request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int error = MPI_Isend(from, int(bytes), MPI_BYTE, to, tag, comm, &made);
  return take("MPI_Isend", error, made, request);
}

const char* receive(void* to, int64_t bytes, int from, int tag, MpiRequest* request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int error = MPI_Irecv(to, int(bytes), MPI_BYTE, from, tag, comm, &made);
  return take("MPI_Irecv", error, made, request);
}

const char* all_reduce(void* inout, int64_t count, MpiType type, int group, MpiRequest* request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int error = MPI_Iallreduce(MPI_IN_PLACE, inout, int(count), raw(type), MPI_SUM,
                                   groups[size_t(group)].comm, &made);
  return take("MPI_Iallreduce", error, made, request);
}

const char* reduce_scatter(void* inout, int64_t count, MpiType type, int group,
                           MpiRequest* request) {
  MPI_Request made = MPI_REQUEST_NULL;
  const int error = MPI_Ireduce_scatter_block(MPI_IN_PLACE, inout, int(count), raw(type), MPI_SUM,
                                              groups[size_t(group)].comm, &made);
  return take("MPI_Ireduce_scatter_block", error, made, request);
}

// One after the other, because a request that is done becomes MPI_REQUEST_NULL, whose test is free.
const char* test(MpiRequest* requests, int count, bool* done) {
  *done = true;
  for (int i = 0; i < count; ++i) {
    MPI_Request one = raw(requests[i]);
    int flag = 0;
    MPI_Status status;
    const int error = MPI_Test(&one, &flag, &status);
    if (const char* text = take("MPI_Test", error, one, &requests[i])) return text;
    *done = *done && flag;
  }
  return nullptr;
}

constexpr MpiApi kTable {
  .abi_version = kAbiVersion,
#if defined(OMPI_MAJOR_VERSION)
  .kind = MpiKind::open_mpi,
  .compiled_for =
      ZL_TEXT(OMPI_MAJOR_VERSION) "." ZL_TEXT(OMPI_MINOR_VERSION) "." ZL_TEXT(OMPI_RELEASE_VERSION),
#else
  .kind = MpiKind::mpich, .compiled_for = MPICH_VERSION,
#endif
  .init = init, .finalize = finalize, .rank = rank, .size = size, .largest_tag = largest_tag,
  .make_group = make_group, .send = send, .receive = receive, .all_reduce = all_reduce,
  .reduce_scatter = reduce_scatter, .test = test
};

}  // namespace
}  // namespace zl

extern "C" const zl::MpiApi* zerolab_mpi() { return &zl::kTable; }
