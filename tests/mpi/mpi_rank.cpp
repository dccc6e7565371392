// A rank of a run on MPI, for tests/mpi: `mpirun -n 3 mpi_rank CASE`. Prints a line on rank 0 if
// all is well; else says what is wrong on stderr. Exits as the program does: 0, 1 (a value is
// wrong), 2, 4.
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "dist/mpi/mpi_transport.h"
#include "dist/trace/collective_trial.h"
#include "tensor/error.h"
#include "tests/dist/split_calls.h"

namespace zl::test {
namespace {

using namespace std::chrono_literals;

constexpr CallName kOther{"h.2 gradient", Purpose::gradient};

struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class... Args>
void expect(bool ok, const Args&... what) {
  if (!ok) throw Wrong(str(what...));
}

Rank on_cpu(Communicator& comm) { return Rank(comm, {}, RankBackends{}); }

// Every collective in every type, at sizes that N divides where it must, and at odd ones.
void collectives(Communicator& comm) {
  Rank rank = on_cpu(comm);
  for (const Collective kind :
       {Collective::all_reduce, Collective::reduce_scatter, Collective::all_gather,
        Collective::broadcast, Collective::all_to_all})
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16})
      for (int64_t count : {1, 3, 130, 70'001}) {
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

// fp32 sums have the bits of additions in rank order.
void order_of_sums(Communicator& comm) {
  Rank rank = on_cpu(comm);
  for (const int64_t count : {1, 100, 70'001}) {
    auto in = inputs<float>(comm.size(), count);
    const Tensor t = rank.tensor(in[size_t(comm.rank())]);
    comm.all_reduce(t, Reduction::sum, kName).wait();
    expect(same_bits(contents<float>(t), reduced(in, Reduction::sum)), "a sum of ", count,
           " elements was not added in rank order");
    std::swap(in.front(), in.back());  // the check sees another order
    expect(count == 1 || comm.size() == 2 ||
               !same_bits(contents<float>(t), reduced(in, Reduction::sum)),
           "any order has these bits");
  }
}

// Ranks wait for their calls in different orders, and one before it makes the next call.
void any_order(Communicator& comm) {
  Rank rank = on_cpu(comm);
  const int64_t count = 300'007;  // no eager message
  const auto one = inputs<float>(comm.size(), count, 1),
             other = inputs<float>(comm.size(), count, 2);
  for (int round = 0; round < 4; ++round) {
    const Tensor a = rank.tensor(one[size_t(comm.rank())]),
                 b = rank.tensor(other[size_t(comm.rank())]);
    Work first = comm.all_reduce(a, Reduction::sum, kName);
    if (comm.rank() % 3 == 1) first.wait();
    Work second = comm.all_reduce(b, Reduction::sum, kOther);
    if (comm.rank() % 3 == 2) first.wait();
    second.wait();
    if (comm.rank() % 3 == 0) first.wait();
    expect(same_bits(contents<float>(a), reduced(one, Reduction::sum)), "the first sum is wrong");
    expect(same_bits(contents<float>(b), reduced(other, Reduction::sum)), "the second is wrong");
    if (round == 1) comm.compare_calls_only_on_timeout();
  }
}

void groups(Communicator& comm) {
  Rank rank = on_cpu(comm);
  Colors pairs, strides, all(size_t(comm.size()), 0);
  for (int r = 0; r < comm.size(); ++r) pairs.push_back(r / 2), strides.push_back(r % 2);
  for (const Colors& colors : {pairs, strides, all}) {
    const std::string wrong = wrong_in_split(comm, rank, colors, false);
    expect(wrong.empty(), "in a group: ", wrong);
  }
  for (const int64_t count : {999, 100'003}) {
    const std::string wrong = wrong_in_flight(comm, rank, count);
    expect(wrong.empty(), "in flight at once: ", wrong);
  }
}

// An all-gather of 2.5 GiB: more bytes than an int counts, and than one message has. All but the
// ends of the tensor are the same 16 MiB of memory again and again.
void large(Communicator& comm) {
  Rank rank = on_cpu(comm);
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
  Rank rank = on_cpu(comm);
  const Tensor t = rank.filled(96, 1);
  comm.all_reduce(t, Reduction::sum, comm.rank() == 1 ? kOther : kName).wait();
}

// The last rank is in no call of this group, and waits for all.
void mismatch_in_group(Communicator& comm) {
  Rank rank = on_cpu(comm);
  std::vector<int> colors(size_t(comm.size()), 0);
  colors.back() = 1;
  const auto group = comm.split(colors, "intra");
  const Tensor t = rank.filled(96, 1);
  if (comm.rank() + 1 < comm.size())
    group->all_reduce(t, Reduction::sum, comm.rank() == 1 ? kOther : kName).wait();
  comm.barrier(kName).wait();
}

// Calls are not compared any more, and one rank sends more than the others take. A rank that never
// comes to this call runs until the others have failed.
void mismatch_after_comparison(Communicator& comm, int never_comes) {
  Rank rank = on_cpu(comm);
  comm.compare_calls_only_on_timeout();
  const Tensor t = rank.filled(comm.rank() == 1 ? 960 : 96, 1);
  comm.all_gather(rank.filled(12 * comm.size(), 1), kName).wait();
  for (; comm.rank() == never_comes; ::usleep(1000)) comm.require_running();
  comm.all_gather(t, kName).wait();
  comm.barrier(kName).wait();
}

void late_mismatch(Communicator& comm) { mismatch_after_comparison(comm, -1); }
void late_mismatch_of_two(Communicator& comm) { mismatch_after_comparison(comm, 0); }

void dropped(Communicator& comm) {
  Rank rank = on_cpu(comm);
  const Tensor t = rank.filled(96'000, 1);
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
  run_process_rank(*place, kCases.at(which), options, mpi_transport(*place), {});
  finish_mpi();
  if (place->rank == 0) std::printf("%s is right\n", which.c_str());
  return 0;
}

}  // namespace
}  // namespace zl::test

int main(int, char** argv) {
  std::signal(SIGTERM, SIG_IGN);  // of an mpirun that ends the others: each says first why it ends
  try {
    return zl::test::run(argv[1] ? argv[1] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    if (dynamic_cast<const zl::test::Wrong*>(&error)) return 1;
    if (dynamic_cast<const zl::InputError*>(&error)) return 2;
    return dynamic_cast<const zl::CommunicationError*>(&error) ? 4 : 70;
  }
}
