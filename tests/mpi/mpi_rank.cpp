// A rank of a run on MPI, for tests/mpi: `mpirun -n 3 mpi_rank CASE`. Prints a line on rank 0 if
// all is well; else says what is wrong on stderr. Exits as the program does: 0, 1 (a value is
// wrong), 2, 4.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dist/mpi/session.h"
#include "dist/processes/mpi_transport.h"
#include "dist/trace/collective_trial.h"
#include "tensor/cpu/cpu_backend.h"
#include "tensor/error.h"

namespace zl::test {
namespace {

using namespace std::chrono_literals;

constexpr CallName kName{"h.1 gradient", Purpose::gradient};
constexpr CallName kOther{"h.2 gradient", Purpose::gradient};

struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Args>
void expect(bool ok, const Args&... what) {
  if (!ok) throw Wrong(str(what...));
}

struct Rank {
  explicit Rank(Communicator& comm)
      : comm(comm), memory({DeviceKind::cpu}, cpu_backend(), comm.events()) {}
  Tensor values(const std::vector<float>& values) {
    Tensor t = Tensor::empty(memory, MemoryUse::gradient, {int64_t(values.size())});
    memory.backend().upload(values.data(), t);
    return t;
  }
  Communicator& comm;
  Memory memory;
};

// Values whose sum depends on the order of its additions.
std::vector<float> values_of(int rank, int64_t count) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(float((i * 7919 + rank * 104729) % 1009 - 504) *
                     (rank % 2 ? 1e-3f : 3.14159f) / 7);
  return values;
}

// One addition after the other in rank order, in fp32.
std::vector<float> sums(const std::vector<int>& ranks, int64_t count) {
  std::vector<float> all(size_t(count), 0);
  for (size_t r = 0; r < ranks.size(); ++r) {
    const std::vector<float> values = values_of(ranks[r], count);
    for (size_t i = 0; i < all.size(); ++i) all[i] = r == 0 ? values[i] : all[i] + values[i];
  }
  return all;
}

// The first element in which a tensor differs, bit for bit; -1: in none.
int64_t first_difference(const Tensor& t, const std::vector<float>& expected) {
  std::vector<float> found(size_t(t.numel()));
  t.backend().download(t, found.data());
  for (size_t i = 0; i < expected.size(); ++i)
    if (std::memcmp(&found[i], &expected[i], sizeof(float)) != 0) return int64_t(i);
  return -1;
}

std::vector<int> all_ranks(const Communicator& comm) {
  std::vector<int> ranks;
  for (int r = 0; r < comm.size(); ++r) ranks.push_back(r);
  return ranks;
}

// Every collective in every type, at sizes that N divides where it must, and at odd ones.
void collectives(Communicator& comm) {
  Rank rank(comm);
  for (const Collective kind :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
        Collective::broadcast, Collective::all_to_all, Collective::send})
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16})
      for (int64_t count : {1, 3, 130, 70'001}) {
        if (kind == Collective::send && comm.size() == 1) continue;  // to itself
        const bool slices = kind == Collective::reduce_scatter || kind == Collective::all_gather ||
                            kind == Collective::all_to_all;
        if (slices) count *= comm.size();
        CollectiveTrial trial({kind, count, dtype}, comm, rank.memory);
        trial.fill();
        if (const char* skip = std::getenv("MPI_RANK_SKIPS"); !skip) trial.call();
        expect(trial.wrong() == 0, name(kind), " of ", count, " ", name(dtype), ": ", trial.wrong(),
               " values are wrong");
      }
}

// fp32 sums have the bits of additions in rank order, also from a start.
void order_of_sums(Communicator& comm) {
  Rank rank(comm);
  for (const int64_t count : {1, 100, 70'001}) {
    const Tensor t = rank.values(values_of(comm.rank(), count));
    comm.all_reduce(t, Reduction::sum, kName).wait();
    std::vector<int> ranks = all_ranks(comm);
    const int64_t where = first_difference(t, sums(ranks, count));
    expect(where < 0, "element ", where, " of ", count, " was not added in rank order");
    if (count > 1 && comm.size() > 2) {  // the check sees another order
      std::swap(ranks.front(), ranks.back());
      expect(first_difference(t, sums(ranks, count)) >= 0, "any order has these bits");
    }
  }
}

// Ranks wait for their calls in different orders, and one before it makes the next call.
void any_order(Communicator& comm) {
  Rank rank(comm);
  const int64_t count = 300'007;  // no eager message
  for (int round = 0; round < 4; ++round) {
    const Tensor a = rank.values(values_of(comm.rank(), count)),
                 b = rank.values(values_of(comm.rank() + 1, count));
    Work first = comm.all_reduce(a, Reduction::sum, kName);
    if (comm.rank() % 3 == 1) first.wait();
    Work second = comm.all_reduce(b, Reduction::sum, kOther);
    if (comm.rank() % 3 == 2) first.wait();
    second.wait();
    if (comm.rank() % 3 == 0) first.wait();
    std::vector<int> ranks = all_ranks(comm);
    expect(first_difference(a, sums(ranks, count)) < 0, "the first sum is wrong");
    for (int& r : ranks) ++r;
    expect(first_difference(b, sums(ranks, count)) < 0, "the second sum is wrong");
    if (round == 1) comm.compare_calls_only_on_timeout();
  }
}

// Neighbours in groups, and those of one number in others, beside calls of all ranks.
void groups(Communicator& comm) {
  Rank rank(comm);
  std::vector<int> pairs, strides;
  for (int r = 0; r < comm.size(); ++r) pairs.push_back(r / 2), strides.push_back(r % 2);
  const auto intra = comm.split(pairs, "intra"), inter = comm.split(strides, "inter");
  const auto members = [&](const std::vector<int>& colors) {
    std::vector<int> all;
    for (int r = 0; r < comm.size(); ++r)
      if (colors[size_t(r)] == colors[size_t(comm.rank())]) all.push_back(r);
    return all;
  };
  const int64_t count = 200'003;
  const Tensor in_all = rank.values(values_of(comm.rank(), count)),
               in_pair = rank.values(values_of(comm.rank(), count)),
               in_stride = rank.values(values_of(comm.rank(), count));
  Work all = comm.all_reduce(in_all, Reduction::sum, kName);
  Work pair = intra->all_reduce(in_pair, Reduction::sum, kName);
  Work stride = inter->all_reduce(in_stride, Reduction::sum, kName);
  comm.rank() % 2 ? pair.wait() : stride.wait();
  all.wait();
  comm.rank() % 2 ? stride.wait() : pair.wait();
  expect(first_difference(in_all, sums(all_ranks(comm), count)) < 0, "the sum of all is wrong");
  expect(first_difference(in_pair, sums(members(pairs), count)) < 0, "the pair's sum is wrong");
  expect(first_difference(in_stride, sums(members(strides), count)) < 0, "the other is wrong");
  if (comm.size() > 2)
    expect(first_difference(in_pair, sums(all_ranks(comm), count)) >= 0, "groups are all ranks");
}

void without_order(Communicator& comm) {
  Rank rank(comm);
  const int64_t count = 999 * comm.size();
  for (const bool mean : {false, true}) {
    const Tensor all = rank.values(std::vector<float>(size_t(count), float(comm.rank() + 1))),
                 shard = rank.values(std::vector<float>(size_t(count), float(comm.rank() + 1)));
    const Reduction reduction = mean ? Reduction::mean : Reduction::sum;
    comm.all_reduce(all, reduction, kName).wait();
    comm.reduce_scatter(shard, reduction, kName).wait();
    const int n = comm.size();  // 1 + 2 + … + n is exact in every order
    const float expected = float(n * (n + 1) / 2) / float(mean ? n : 1);
    expect(first_difference(all, std::vector<float>(size_t(count), expected)) < 0, "all_reduce");
    std::vector<float> found(static_cast<size_t>(count));
    shard.backend().download(shard, found.data());
    for (int i = 0; i < 999; ++i)
      expect(found[size_t(comm.rank() * 999 + i)] == expected, "reduce_scatter at ", i);
  }
  expect(comm.reduction_scratch_bytes(count, Dtype::f32) == 0, "MPI adds, and there is scratch");
}

// MPI adds in the groups of an HSDP run, and beside them over all ranks.
void without_order_in_groups(Communicator& comm) {
  Rank rank(comm);
  for (int round = 0; round < 2; ++round) {
    std::vector<int> pairs, strides;
    for (int r = 0; r < comm.size(); ++r) pairs.push_back(r / 2), strides.push_back(r % 2);
    const auto intra = comm.split(pairs, "intra"), inter = comm.split(strides, "inter");
    const int64_t count = 999 * 2 * intra->size();  // the last group may have one rank
    const Tensor all = rank.values(std::vector<float>(999, float(comm.rank() + 1))),
                 shards = rank.values(std::vector<float>(size_t(count), float(comm.rank() + 1))),
                 stride = rank.values(std::vector<float>(999, float(comm.rank() + 1)));
    Work first = intra->reduce_scatter(shards, Reduction::sum, kName);
    Work second = comm.all_reduce(all, Reduction::sum, kName);
    Work third = inter->all_reduce(stride, Reduction::mean, kOther);
    third.wait(), first.wait(), second.wait();
    float sum = 0, in_pair = 0, in_stride = 0;
    for (int r = 0; r < comm.size(); ++r) {
      sum += float(r + 1);
      if (r / 2 == comm.rank() / 2) in_pair += float(r + 1);
      if (r % 2 == comm.rank() % 2) in_stride += float(r + 1);
    }
    const float of_pair = shards.data<float>()[size_t(2 * 999 * intra->rank())],
                of_all = all.data<float>()[998], of_stride = stride.data<float>()[998];
    expect(of_pair == in_pair, "the pair's sum is ", of_pair, ", not ", in_pair);
    expect(of_all == sum, "the sum of all is ", of_all, ", not ", sum);
    expect(of_stride == in_stride / float(inter->size()), "the mean is ", of_stride);
  }
}

void without_order_in_bf16(Communicator& comm) {
  Rank rank(comm);
  const Tensor t = Tensor::zeros(rank.memory, MemoryUse::gradient, {12}, Dtype::bf16);
  comm.all_reduce(t, Reduction::sum, kName).wait();
}

// An all-gather of 2.5 GiB: more bytes than an int counts, and than one message has. All but the
// ends of the tensor are the same 16 MiB of memory again and again.
void large(Communicator& comm) {
  Rank rank(comm);
  const int64_t piece = int64_t(16) << 20, bytes = (int64_t(5) << 29) / comm.size() * comm.size(),
                shard = bytes / comm.size();
  const Tensor t = Tensor::empty(rank.memory, MemoryUse::gradient, {bytes / 4}, Dtype::i32);
  char* const begin = static_cast<char*>(t.address());
  const int file = memfd_create("mpi_rank", 0);
  expect(file >= 0 && ftruncate(file, piece) == 0, "no memory to map");
  for (int r = 0; r < comm.size(); ++r) {  // within each shard, without its first and last piece
    const auto first = (reinterpret_cast<uintptr_t>(begin + r * shard) + 2 * piece) / piece * piece;
    const auto end = reinterpret_cast<uintptr_t>(begin + (r + 1) * shard) - piece;
    for (uintptr_t at = first; at + size_t(piece) <= end; at += size_t(piece))
      expect(mmap(reinterpret_cast<void*>(at), size_t(piece), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_FIXED, file, 0) != MAP_FAILED,
             "no mapping");
  }
  const auto word = [&](int64_t byte) -> int32_t& {
    return *reinterpret_cast<int32_t*>(begin + byte);
  };
  word(comm.rank() * shard) = comm.rank() + 1;
  word((comm.rank() + 1) * shard - 4) = 100 + comm.rank();
  comm.all_gather(t, kName).wait();
  for (int r = 0; r < comm.size(); ++r) {
    expect(word(r * shard) == r + 1, "the first value of rank ", r, " is ", word(r * shard));
    expect(word((r + 1) * shard - 4) == 100 + r, "the last value of rank ", r, " is ",
           word((r + 1) * shard - 4));
  }
}

void mismatch(Communicator& comm) {
  Rank rank(comm);
  const Tensor t = rank.values(values_of(0, 96));
  comm.all_reduce(t, Reduction::sum, comm.rank() == 1 ? kOther : kName).wait();
}

// The last rank is in no call of this group, and waits for all.
void mismatch_in_group(Communicator& comm) {
  Rank rank(comm);
  std::vector<int> colors(size_t(comm.size()), 0);
  colors.back() = 1;
  const auto group = comm.split(colors, "intra");
  const Tensor t = rank.values(values_of(0, 96));
  if (comm.rank() + 1 < comm.size())
    group->all_reduce(t, Reduction::sum, comm.rank() == 1 ? kOther : kName).wait();
  comm.barrier(kName).wait();
}

// Calls are not compared any more, and one rank sends more than the others take. A rank that never
// comes to this call runs until the others have failed.
void mismatch_after_comparison(Communicator& comm, int never_comes) {
  Rank rank(comm);
  comm.compare_calls_only_on_timeout();
  const Tensor t = rank.values(values_of(0, comm.rank() == 1 ? 960 : 96));
  comm.all_gather(rank.values(values_of(0, 12 * comm.size())), kName).wait();
  for (; comm.rank() == never_comes; ::usleep(1000)) comm.require_running();
  comm.all_gather(t, kName).wait();
  comm.barrier(kName).wait();
}

void late_mismatch(Communicator& comm) { mismatch_after_comparison(comm, -1); }
void late_mismatch_of_two(Communicator& comm) { mismatch_after_comparison(comm, 0); }

void dropped(Communicator& comm) {
  Rank rank(comm);
  const Tensor t = rank.values(values_of(0, 96'000));
  if (comm.rank() == 1)
    (void)comm.all_reduce(t, Reduction::sum, kName);
  else
    comm.all_reduce(t, Reduction::sum, kName).wait();
  comm.barrier(kName).wait();
}

const std::map<std::string, void (*)(Communicator&)> kCases = {
    {"collectives", collectives},
    {"order", order_of_sums},
    {"any-order", any_order},
    {"groups", groups},
    {"without-order", without_order},
    {"without-order-in-groups", without_order_in_groups},
    {"without-order-in-bf16", without_order_in_bf16},
    {"large", large},
    {"mismatch", mismatch},
    {"mismatch-in-group", mismatch_in_group},
    {"late-mismatch", late_mismatch},
    {"late-mismatch-of-two", late_mismatch_of_two},
    {"dropped", dropped}};

int run(const std::string& which) {
  const auto place =
      launch_environment([](const char* name) -> const char* { return std::getenv(name); }).rank;
  expect(place.has_value(), "this process was started by no launcher");
  const RankOptions options{.timeout = 20s, .grace = 5s};
  const bool ordered = !which.starts_with("without-order");
  run_process_rank(*place, kCases.at(which), options, mpi_transport(*place, options, ordered), {});
  const std::string problem = finish_mpi();
  expect(problem.empty(), problem);
  if (place->rank == 0) std::printf("%s is right\n", which.c_str());
  return 0;
}

}  // namespace
}  // namespace zl::test

int main(int, char** argv) {
  int code = 70;
  try {
    return zl::test::run(argv[1] ? argv[1] : "");
  } catch (const zl::test::Wrong& error) {
    std::fprintf(stderr, "%s\n", error.what()), code = 1;
  } catch (const zl::InputError& error) {
    std::fprintf(stderr, "%s\n", error.what()), code = 2;
  } catch (const zl::CommunicationError& error) {
    std::fprintf(stderr, "%s\n", error.what()), code = 4;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return code;
}
