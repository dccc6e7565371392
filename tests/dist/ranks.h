// What the tests of dist/ share: tensors with known values on every rank, and the result of a run
// that failed.
//
// Only the main thread checks; ranks record what they saw.
#pragma once

#include <chrono>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "dist/lane/lane.h"
#include "tensor/backend.h"
#include "tests/device.h"

namespace zl::test {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

// 1 to `most`. Under the thread sanitizer, where a run takes 20 times as long, one of them: a race
// does not depend on how many ranks there are.
inline std::vector<int> ranks_up_to(int most) {
  std::vector<int> all;
  for (int n = 1; n <= most; ++n)
    if (!kThreadSanitizer || n == 3) all.push_back(n);
  return all;
}

inline constexpr CallName kName{"h.1 gradient", Purpose::gradient};

// A value that depends on all its arguments and on nothing else: about ±1, ±0.01 or ±100, so that
// sums do round.
inline double value(int64_t seed, int rank, int64_t i) {
  uint64_t x =
      uint64_t(seed) * 0x9e3779b97f4a7c15u + uint64_t(rank) * 0xbf58476d1ce4e5b9u + uint64_t(i) + 1;
  for (int k = 0; k < 2; ++k) x = (x ^ (x >> 31)) * 0x94d049bb133111ebu;
  const double magnitude = x % 3 == 0 ? 1.0 : x % 3 == 1 ? 0.01 : 100.0;
  return (double(x >> 11) * 0x1p-53 - 0.5) * 2 * magnitude;
}

template <class T>
T as(double v) {
  if constexpr (std::is_same_v<T, int32_t>)
    return int32_t(v * 1e6);
  else if constexpr (std::is_same_v<T, double>)
    return v;
  else
    return T(float(v));
}

template <class T>
std::vector<T> values(int64_t seed, int rank, int64_t count) {
  std::vector<T> v;
  v.reserve(size_t(count));
  for (int64_t i = 0; i < count; ++i) v.push_back(as<T>(value(seed, rank, i)));
  return v;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// One rank's memory.
struct Rank {
  explicit Rank(Communicator& comm, MemoryOptions options = {},
                RankBackends own = backends_of_rank())
      : comm(comm),
        backends(std::move(own)),
        memory({}, device_of(backends), comm.events(), options) {}
  Tensor empty(int64_t count, Dtype dtype = Dtype::f32) {
    return Tensor::empty(memory, MemoryUse::gradient, {count}, dtype);
  }
  template <class T>
  Tensor tensor(const std::vector<T>& v) {
    Tensor t = empty(int64_t(v.size()), dtype_of<T>);
    memory.backend().upload(v.data(), t);
    return t;
  }
  // A float tensor that holds `value` everywhere.
  Tensor filled(int64_t count, float value) {
    return tensor(std::vector<float>(size_t(count), value));
  }
  Communicator& comm;
  RankBackends backends;
  Memory memory;
};

template <class T>
std::vector<T> contents(const Tensor& t) {
  std::vector<T> values(size_t(t.numel()));
  t.backend().download(t, values.data());
  return values;
}

inline RankOptions within(std::chrono::milliseconds timeout) { return {.timeout = timeout}; }

// Ranks with a lane each.
inline RankOptions lanes(std::chrono::milliseconds timeout = std::chrono::seconds(20),
                         const Link& link = {}) {
  return {.timeout = timeout, .lane = own_lane(link)};
}

template <class T>
using Buffers = std::vector<std::vector<T>>;  // by rank

template <class T>
Buffers<T> inputs(int ranks, int64_t count, int64_t seed = 7) {
  Buffers<T> all;
  for (int r = 0; r < ranks; ++r) all.push_back(values<T>(seed, r, count));
  return all;
}

// What every rank's buffer holds after `call`.
template <class T>
Buffers<T> after(const Buffers<T>& in,
                 const std::function<void(Communicator&, const Tensor&)>& call,
                 const std::function<RankBackends(int rank)>& where = {}) {
  Buffers<T> out(in.size());
  run_ranks(
      int(in.size()),
      [&](Communicator& comm) {
        Rank rank(comm, {}, where ? where(comm.rank()) : backends_of_rank());
        const Tensor t = rank.tensor(in[size_t(comm.rank())]);
        call(comm, t);
        out[size_t(comm.rank())] = contents<T>(t);
      },
      within(std::chrono::seconds(20)));
  return out;
}

// The promise: fp32 (f64: fp64, integers: exactly), in rank order, one division, one rounding.
template <class T>
std::vector<T> reduced(const Buffers<T>& in, Reduction reduction) {
  using Sum = std::conditional_t<std::is_same_v<T, int32_t>, int64_t, Compute<T>>;
  std::vector<T> result;
  for (size_t i = 0; i < in[0].size(); ++i) {
    Sum sum = Sum(in[0][i]);
    for (size_t r = 1; r < in.size(); ++r) sum += Sum(in[r][i]);
    if (reduction == Reduction::mean) sum /= Sum(in.size());
    result.push_back(T(sum));
  }
  return result;
}

// Sums the thirds of `t` one after another: each but the first starts with the sum before it. The
// last third then holds the result, of a reduce_scatter in the rank's shard.
inline void sum_thirds(Communicator& comm, const Tensor& t, Collective kind, bool starts = true) {
  const int64_t n = t.numel() / 3, shard = n / comm.size();
  Tensor start;
  for (int64_t i = 0; i < 3; ++i) {
    const Tensor part = t.slice(i * n, {n});
    if (kind == Collective::all_reduce) {
      comm.all_reduce(part, Reduction::sum, kName, start).wait();
      start = part;
    } else {
      comm.reduce_scatter(part, Reduction::sum, kName, start).wait();
      start = part.slice(comm.rank() * shard, {shard});
    }
    if (!starts) start = {};
  }
}

// The same in one loop, rounded to T after each third.
template <class T>
std::vector<T> summed_thirds(const Buffers<T>& in) {
  const size_t n = in[0].size() / 3;
  std::vector<T> sums;
  for (size_t i = 0; i < n; ++i) {
    Compute<T> sum(in[0][i]);
    for (size_t part = 0; part < 3; ++part) {
      for (size_t r = part == 0 ? 1 : 0; r < in.size(); ++r) sum += Compute<T>(in[r][part * n + i]);
      sum = Compute<T>(T(sum));
    }
    sums.push_back(T(sum));
  }
  return sums;
}

// Whether the last third of every rank's buffer, or the rank's shard of it, has the bits of `sums`.
template <class T>
bool last_third_is(const std::vector<T>& sums, const Buffers<T>& out, Collective kind) {
  for (size_t r = 0; r < out.size(); ++r) {
    const size_t shard = sums.size() / out.size(), all = kind == Collective::all_reduce,
                 begin = all ? 0 : r * shard, length = all ? sums.size() : shard;
    const std::vector<T> a(sums.begin() + long(begin), sums.begin() + long(begin + length)),
        b(out[r].begin() + long(2 * sums.size() + begin),
          out[r].begin() + long(2 * sums.size() + begin + length));
    if (!same_bits(a, b)) return false;
  }
  return true;
}

// The result of a run in which ranks fail.
struct Outcome {
  std::vector<std::string> errors;  // by rank: the CommunicationError that it got; empty if none
  std::string thrown;               // what run_ranks threw
  std::exception_ptr cause;         // the same
  std::chrono::milliseconds took{};
  bool all_failed() const {
    for (const std::string& text : errors)
      if (text.empty()) return false;
    return true;
  }
  bool all_say(const std::string& part) const {
    for (const std::string& text : errors)
      if (text.find(part) == std::string::npos) return false;
    return true;
  }
};

// `run`: run_ranks(), or what starts ranks on another transport.
template <class Run>
Outcome outcome_of(int ranks, const std::function<void(Communicator&)>& body, const Run& run) {
  Outcome result;
  result.errors.resize(size_t(ranks));
  const auto start = std::chrono::steady_clock::now();
  try {
    run([&](Communicator& comm) {
      try {
        body(comm);
      } catch (const CommunicationError& error) {
        result.errors[size_t(comm.rank())] = error.what();
        throw;
      }
    });
  } catch (const std::exception& error) {
    result.thrown = error.what(), result.cause = std::current_exception();
  } catch (...) {
    result.thrown = "no std::exception", result.cause = std::current_exception();
  }
  result.took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - start);
  return result;
}

inline Outcome outcome(int ranks, const std::function<void(Communicator&)>& body,
                       const RankOptions& options) {
  return outcome_of(ranks, body, [&](const auto& one) { run_ranks(ranks, one, options); });
}

inline Outcome outcome(int ranks, const std::function<void(Communicator&)>& body,
                       std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  return outcome(ranks, body, within(timeout));
}

// What rank 0 of two leaves behind, which keeps the Work of its last call beyond its run.
struct OutlivingWork {
  std::string thrown, refusal;  // by the run; by wait() afterwards
  int64_t live = 0;             // [B] of rank 0's memory when the run has ended
};

inline OutlivingWork outliving_work(bool sends, const RankOptions& options,
                                    const std::function<RankBackends()>& where = backends_of_rank) {
  OutlivingWork left;
  Work kept;
  const auto body = [&](Communicator& comm) {
    if (comm.rank() == 0)
      comm.events().listen([&](const Event& e) {
        left.live += e.kind == EventKind::allocate  ? e.bytes
                     : e.kind == EventKind::release ? -e.bytes
                                                    : 0;
      });
    Rank rank(comm, {}, where());
    const Tensor t = rank.filled(1000, 1);
    if (comm.rank() == 0)
      kept = sends ? comm.send(t, 1, kName) : comm.broadcast(t, 0, kName);
    else
      (sends ? comm.receive(t, 0, kName) : comm.broadcast(t, 0, kName)).wait();
  };
  left.thrown = outcome(2, body, options).thrown;
  const int64_t live = left.live;  // before wait()
  try {
    kept.wait();
  } catch (const CommunicationError& error) {
    left.refusal = error.what();
  }
  left.live = live;
  return left;
}

}  // namespace zl::test
