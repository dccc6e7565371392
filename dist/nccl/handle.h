// One rank's NCCL communicator: it joins, is watched while it works, and is ended the right way.
//
// NCCL itself waits forever. So nothing here blocks inside it: every call returns at once. Then
// this rank polls until NCCL is done, NCCL reports an error, another rank fails, or the time is
// over. A communicator that ends well is finalized and destroyed, else it is aborted: one of the
// two, once.
//
// Work::wait() does not wait for the data, so the rank's thread cannot notice that an operation on
// a GPU hangs: it may compute, or be blocked in a synchronisation with its GPU. So a second thread,
// the watchdog, looks at the operations that are not done. If NCCL reports an error, another rank
// fails, or the time of an operation is over, it fails the run with the operation's name, and
// aborts the communicator. Then NCCL's kernels end, and so do streams and hosts that wait for them.
// What they then have computed is garbage. So the failure is known before the abort: the rank's
// next call throws it. The watchdog starts with the first operation. Operations on a device without
// streams are done when they are issued, and have none.
//
// NCCL allows one thread at a time in a communicator, and also ncclCommGetAsyncError changes it. So
// the two threads take turns: the rank has the turn from the begin of a group until NCCL has taken
// it, and the watchdog asks NCCL nothing while the rank has it. abort() waits for the turn, but no
// longer than a second: a rank that is still inside NCCL then hangs there, and only an abort can
// free it.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "dist/nccl/api.h"
#include "dist/ordered/ordered_reduction.h"
#include "dist/ordered/polling.h"
#include "dist/processes/control_client.h"
#include "tensor/backend.h"

namespace zl {

struct NcclJoin {
  const NcclApi& api;
  std::chrono::milliseconds timeout;  // of each wait; 0: none
  // The function of NCCL that the rank is in now, for reports; null: none.
  std::atomic<const char*>& inside;
  std::string machine = {};  // the name of the rank's machine
  // false: NCCL adds. That is faster for many small calls, without scratch memory, but rounding
  // then depends on sizes and on the machine.
  bool ordered = true;
};

class NcclHandle final : public ChunkTransport {
 public:
  // An operation that was issued at `began`. It is done when its event is.
  struct Watched {
    Call call;
    int64_t record = 0;  // in the flight recorder
    std::shared_ptr<const StreamEvent> moved;
    int64_t began;  // running_nanoseconds()
  };

  NcclHandle(const NcclJoin& join, int rank, int size, ControlClient& others);
  ~NcclHandle() override;  // aborts unless it has ended
  NcclHandle(const NcclHandle&) = delete;

  // All that follows is called on the rank's thread, and throws CommunicationError.

  // Returns when all ranks have joined and are connected with each other.
  void join(const NcclUniqueId& id);
  bool ended() const { return !comm_; }
  NcclUniqueId unique_id() const;  // a new one, for all ranks of a communicator
  // Issues the calls that `calls` makes as one group on the stream, and returns when NCCL has taken
  // it: from then on other work may be enqueued there.
  void group(void* stream, const std::function<void()>& calls);

  // The calls of a group.
  void send(const char* from, int64_t count, Dtype dtype, int to_rank) override {
    post("ncclSend", join_.api.send, from, size_t(count), type_of(dtype), to_rank);
  }
  void receive(char* to, int64_t count, Dtype dtype, int from_rank) override {
    post("ncclRecv", join_.api.receive, to, size_t(count), type_of(dtype), from_rank);
  }
  void all_gather(const char* from, char* to, int64_t count, Dtype dtype) override {
    post("ncclAllGather", join_.api.all_gather, from, to, size_t(count), type_of(dtype));
  }
  // NCCL adds, in the order that it likes; `all`: all_reduce, else reduce_scatter.
  void add(bool all, const char* from, char* to, int64_t count, Dtype dtype) {
    const auto function = all ? join_.api.all_reduce : join_.api.reduce_scatter;
    post(all ? "ncclAllReduce" : "ncclReduceScatter", function, from, to, size_t(count),
         type_of(dtype), NcclOperator::sum);
  }

  void watch(Watched operation, Backend& backend);  // which recorded the event
  // Returns when all are done, or the run has failed.
  void wait_for_operations();
  // To be called when no rank makes any more calls.
  void finish();

  // ControlClient::carry_out(), which aborts if the run has failed.
  void carry_out(const Call& call, const std::function<void()>& action) {
    others_.carry_out(call, action, [this] { abort(); });
  }
  // After an error. May hang if NCCL does; run_process_rank() then ends the process.
  void abort() noexcept;

 private:
  static NcclType type_of(Dtype dtype) {
    constexpr NcclType kTypes[] = {NcclType::float32, NcclType::bfloat16, NcclType::float16,
                                   NcclType::float64, NcclType::int32,    NcclType::uint8};
    return kTypes[size_t(dtype)];
  }
  void connect();
  // Says for reports where the rank is. If two threads are inside NCCL, that is the function that
  // was called first: there NCCL hangs.
  template <class Function, class... Arguments>
  NcclResult call(const char* name, Function function, Arguments... arguments) const {
    const char* none = nullptr;
    const bool first = join_.inside.compare_exchange_strong(none, name);
    const NcclResult result = function(arguments...);
    if (first) join_.inside = nullptr;
    return result;
  }
  // Throws unless the result is success or in_progress.
  template <class Function, class... Arguments>
  void take(const char* name, Function function, Arguments... arguments) const {
    require_taken(name, call(name, function, arguments...));
  }
  template <class Function, class... Arguments>
  void post(const char* name, Function function, Arguments... arguments) const {
    take(name, function, arguments..., comm(), stream_);
  }
  NcclComm* comm() const;  // throws if it has ended
  void require_taken(const char* function, NcclResult result) const;
  bool is_idle(NcclComm* comm, const char* what) const;
  void require_in_time(const char* what, int64_t began) const;
  void poll(const char* what) const;  // returns when NCCL is idle

  bool look();                            // at the operations; false: the run has failed
  std::optional<Watched> oldest() const;  // of the operations that are not known to be done
  void set_done(int64_t record);

  const NcclJoin join_;
  const int rank_, size_;
  const int64_t timeout_;  // [ns]
  ControlClient& others_;

  std::mutex turn_;         // of the thread that is inside NCCL
  void* stream_ = nullptr;  // of the group
  std::atomic<NcclComm*> comm_{nullptr};

  mutable std::mutex mutex_;        // guards the operations
  std::deque<Watched> operations_;  // in the order of their calls
  std::jthread watchdog_;
};

}  // namespace zl
