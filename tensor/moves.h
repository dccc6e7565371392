// Moves: how many bytes of model state and of activations a rank copies between the memory of its
// device, the memory of the host, and a disk.
//
// kernel::copy, kernel::start_copy and kernel::accumulate count a move where the tensors are in
// Memories of different pools: also where the device is a CPU, which copies like a GPU, and on
// meta, so that a dry run predicts moves. A move counts the bytes of the tensor that is read. Not
// counted: uploads of token ids, downloads of losses, and copies in which both tensors are
// workspace or communication buffers, as those of the numbers of the gradient norm.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace zl {

enum class Move { host_to_device, device_to_host, disk_read, disk_write };
inline constexpr int kMoves = 4;

inline const char* name(Move move) {
  static constexpr const char* names[] = {"host to device", "device to host", "disk read",
                                          "disk write"};
  return names[size_t(move)];
}

// What a rank has moved. EventStream::move() adds to the rank's log.
class MoveLog {
 public:
  struct Total {
    int64_t number = 0;  // of moves
    int64_t bytes = 0;   // [B]
    bool operator==(const Total&) const = default;
  };

  // `times`: so many moves of `bytes` each. A move of 0 bytes does not count.
  void add(Move move, int64_t bytes, int64_t times = 1) {
    if (bytes == 0) return;
    totals_[size_t(move)].number += times;
    totals_[size_t(move)].bytes += times * bytes;
  }
  const Total& of(Move move) const { return totals_[size_t(move)]; }
  bool operator==(const MoveLog&) const = default;

 private:
  std::array<Total, kMoves> totals_{};
};

}  // namespace zl
