// What NCCL and ranks do wrong.
#include "tests/nccl/fake/scripts.h"

namespace zl::test {
namespace {

using namespace std::chrono_literals;

using K = Fault::Kind;
using R = NcclResult;

}  // namespace

const std::vector<Script>& scripts_of_joining() {
  static const std::vector<Script> scripts = {
      {"joining is slow", {{"ncclCommInitRankConfig", K::slow, -1}}},
      {"two ranks on one GPU",
       {{"ncclCommInitRankConfig", K::fails, 1, 1, R::invalid_usage,
         "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1b000\n"}},
       {"rank 1 joining NCCL: ncclCommInitRankConfig gave ncclInvalidUsage", "Duplicate GPU",
        "start no more ranks than there are GPUs"}},
      {"no such GPU",
       {{"ncclCommInitRankConfig", K::fails, 2, 1, R::unhandled_cuda_error,
         "Cuda failure 'invalid device ordinal'"}},
       {"rank 2 joining NCCL", "ncclUnhandledCudaError", "CUDA_VISIBLE_DEVICES"}},
      {"the driver is too old",
       {{"ncclCommInitRankConfig", K::fails_later, -1, 1, R::unhandled_cuda_error,
         "Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'"}},
       {"joining NCCL", "update the driver"}},
      {"no route between machines",
       {{"ncclCommInitRankConfig", K::fails_later, 1, 1, R::system_error,
         "socketStartConnect: Connect to 10.0.0.7<4711> failed : No route to host"}},
       {"rank 1 joining NCCL", "ncclSystemError (unhandled system error)", "NCCL_SOCKET_IFNAME"}},
      {"no interface",
       {{"ncclGetUniqueId", K::fails, 0, 1, R::system_error,
         "Bootstrap : no socket interface found"}},
       {"ncclGetUniqueId gave ncclSystemError",
        "set NCCL_SOCKET_IFNAME to an interface that is up"}},
      {"another version on another machine",
       {{"ncclCommInitRankConfig", K::fails_later, 2, 1, R::invalid_usage,
         "Mismatched NCCL version detected : rank 0 version 22809 rank 2 version 22703"}},
       {"rank 2 joining NCCL", "all ranks must load the same libnccl"}},
      {"no room in /dev/shm",
       {{"ncclCommInitRankConfig", K::fails, 1, 1, R::system_error,
         "Error while creating shared memory segment /dev/shm/nccl-7 (size 9637888)"}},
       {"rank 1 joining NCCL", "--shm-size=1g"}},
      {"no memory for NCCL's buffers",
       {{"ncclCommInitRankConfig", K::fails, 1, 1, R::unhandled_cuda_error,
         "Cuda failure 2 'out of memory'"}},
       {"rank 1", "NCCL_BUFFSIZE"}},
      {"an error without a text",
       {{"ncclCommInitRankConfig", K::fails, 0, 1, R::internal_error}},
       {"rank 0", "ncclInternalError", "NCCL_DEBUG=INFO"}},
      {"joining never ends",
       {{"ncclCommInitRankConfig", K::never, -1}},
       {"joining NCCL: ncclCommInitRankConfig was not done within 300 ms", "raise --timeout"}},
      {"joining never ends on one rank",
       {{"ncclCommInitRankConfig", K::never, 1}},
       {"joining NCCL: nccl", "was not done within 300 ms"}},
      {"two ranks cannot be connected",
       {{"ncclGroupEnd", K::fails_later, 1, 1, R::system_error, "Call to ibv_modify_qp failed"}},
       {"rank 1 joining NCCL: ncclGroupEnd gave ncclSystemError"}},
      {"connecting never ends",
       {{"ncclGroupEnd", K::never, 2}},
       {"joining NCCL: ncclGroupEnd was not done within 300 ms"}}};
  return scripts;
}

namespace {

std::vector<Script> with(std::vector<Script> more, std::vector<Script> scripts) {
  scripts.insert(scripts.end(), more.begin(), more.end());
  return scripts;
}

std::vector<Script> scripts_of_leaving() {
  return {{"leaving is slow", {{"ncclCommFinalize", K::slow, -1}}},
          {"leaving never ends",
           {{"ncclCommFinalize", K::never, -1}},
           {"leaving NCCL: ncclCommFinalize was not done within 300 ms"}},
          {"leaving is refused",
           {{"ncclCommFinalize", K::fails, 1, 1, R::internal_error}},
           {"rank 1 leaving NCCL: ncclCommFinalize gave ncclInternalError"}},
          {"an error while leaving",
           {{"ncclCommFinalize", K::fails_later, 2, 1, R::remote_error}},
           {"rank 2 leaving NCCL: ncclCommFinalize gave ncclRemoteError"}},
          {"the end is refused",
           {{"ncclCommDestroy", K::fails, 0, 1, R::internal_error}},
           {"rank 0 leaving NCCL: ncclCommDestroy gave ncclInternalError"}}};
}

}  // namespace

const std::vector<Script>& scripts_of_calls() {
  static const std::vector<Script> scripts =
      with(scripts_of_leaving(),
           {{"nothing goes wrong"},
            {"nothing goes wrong behind streams", {}, {}, true},
            {"every group is slow", {{"ncclGroupEnd", K::slow, -1, 0}}},
            {"every group is slow behind streams", {{"ncclGroupEnd", K::slow, -1, 0}}, {}, true},
            {"one rank's groups are slow, unordered",
             {{"ncclGroupEnd", K::slow, 2, 0}},
             {},
             true,
             false},
            {"a remote error in the third group",
             {{"ncclGroupEnd", K::fails_later, 1, 4, R::remote_error}},
             {"rank 1 in all_reduce 'loss' of 7 f32 elements (call 3)",
              "ncclGroupEnd gave ncclRemoteError", "first error among the other ranks"}},
            {"a remote error on all ranks",
             {{"ncclGroupEnd", K::fails_later, -1, 2, R::remote_error}},
             {"in reduce_scatter 'h.1 gradient'", "ncclRemoteError"}},
            {"a remote error behind streams",
             {{"ncclGroupEnd", K::fails_later, 2, 3, R::remote_error}},
             {"rank 2 in all_gather 'h.1 parameter' of 120 f32 elements (call 2)"},
             true},
            {"a send is refused",
             {{"ncclSend", K::fails, 0, 4, R::system_error, "Connection refused"}},
             {"rank 0 in reduce_scatter 'h.1 gradient' of 120 f32 elements (call 1)",
              "ncclSend gave", "look at the first error of rank 0"}},
            {"a receive is refused",
             {{"ncclRecv", K::fails, 1, 3, R::invalid_argument}},
             {"rank 1 in reduce_scatter", "ncclRecv gave ncclInvalidArgument"}},
            {"a gather is refused",
             {{"ncclAllGather", K::fails, 2, 2, R::internal_error}},
             {"rank 2 in all_gather 'h.1 parameter'", "(call 5)"}},
            {"a sum is refused",
             {{"ncclReduceScatter", K::fails, 1, 2, R::internal_error}},
             {"rank 1 in reduce_scatter 'h.1 gradient'", "(call 4)", "ncclReduceScatter"},
             false,
             false},
            {"a group cannot begin to work",
             {{"ncclGroupEnd", K::fails, 1, 2, R::unhandled_cuda_error,
               "an illegal memory access was encountered"}},
             {"rank 1 in reduce_scatter", "CUDA_LAUNCH_BLOCKING=1"}},
            {"a group never ends",
             {{"ncclGroupEnd", K::never, -1, 3}},
             {"in all_gather 'h.1 parameter'", "ncclGroupEnd was not done within 300 ms"}},
            {"data never moves",
             {{"ncclGroupEnd", K::stalls, 1, 3}},
             {"in all_gather 'h.1 parameter'", "was not done within 300 ms", "NCCL_DEBUG=INFO"}},
            {"data never moves behind streams",
             {{"ncclGroupEnd", K::stalls, 1, 5}},
             {"in all_reduce 'loss'", "the transfer was not done within 300 ms"},
             true},
            {"an abort that fails too",
             {{"ncclSend", K::fails, 0, 3, R::system_error},
              {"ncclCommAbort", K::fails, -1, 1, R::internal_error}},
             {"rank 0 in reduce_scatter", "ncclSend gave ncclSystemError"}}});
  return scripts;
}

namespace {

auto on_rank_1(int call, std::function<void(Rank&)> what) {
  return [=](Rank& rank, int now) {
    if (rank.comm.rank() == 1 && now == call) what(rank);
  };
}

}  // namespace

const std::vector<Script>& scripts_of_ranks() {
  static const std::vector<Script> scripts = {
      {"a rank calls something else",
       {},
       {"rank 1 calls barrier 'own way'", "ranks 0 and 2 call all_gather 'h.1 parameter'",
        "same order"},
       false,
       true,
       on_rank_1(1,
                 [](Rank& rank) {
                   rank.comm.barrier({"own way", Purpose::check}).wait();
                 })},
      {"a rank brings another count",
       {},
       {"rank 1 calls all_gather 'h.1 parameter' of 3 f32 elements"},
       true,
       true,
       on_rank_1(
           1,
           [](Rank& rank) {
             rank.comm.all_gather(rank.filled(3, 1), {"h.1 parameter", Purpose::parameter}).wait();
           })},
      {"a rank throws",
       {},
       {"rank 1 has had enough"},
       true,
       true,
       on_rank_1(4, [](Rank&) { throw std::runtime_error("rank 1 has had enough"); }),
       Kind::other},
      {"a rank has no memory for the scratch",
       {},
       {"rank 1"},
       true,
       true,
       on_rank_1(3, [](Rank& rank) { rank.memory.fail_at(1); }),
       Kind::other},
      {"a rank comes too late",
       {},
       {"only 2 of 3 ranks came to all_reduce 'loss'",
        "rank 1 was last seen in all_gather 'h.1 parameter'"},
       false,
       true,
       on_rank_1(2, [](Rank&) { std::this_thread::sleep_for(700ms); })},
      {"a rank throws with a Work under way",
       {},
       {"rank 1 has had enough"},
       true,
       true,
       [](Rank& rank, int call) {
         if (call != 2) return;
         const Tensor t = rank.filled(3 * 1000, 1);
         Work work = rank.comm.all_gather(t, kName);
         if (rank.comm.rank() == 1) throw std::runtime_error("rank 1 has had enough");
         work.wait();
       },
       Kind::other}};
  return scripts;
}

}  // namespace zl::test
