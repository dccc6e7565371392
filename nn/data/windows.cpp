#include "nn/data/windows.h"

#include <algorithm>
#include <numeric>

#include "tensor/error.h"
#include "tensor/io/crc32c.h"
#include "tensor/random.h"

namespace zl {

namespace {

std::vector<int64_t> permutation(int64_t n, uint64_t seed, const Poll& poll) {
  const PhiloxStream random{seed, fnv1a("windows")};
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = n - 1; i > 0; --i) {
    if (poll && i % 65'536 == 0) poll();
    std::swap(order[size_t(i)], order[size_t(random.uniform(uint64_t(i)) * double(i + 1))]);
  }
  return order;
}

[[noreturn]] void too_short(const TokenData& data, int64_t T) {
  int longest = 0;
  for (int f = 1; f < data.files(); ++f)
    if (data.file_tokens(f) > data.file_tokens(longest)) longest = f;
  const std::string which = data.files() == 1
                                ? str("'", data.file_name(0), "' has ")
                                : str("the longest of the ", data.files(), " files of '",
                                      data.name(), "', '", data.file_name(longest), "', has ");
  throw InputError(str(which, data.file_tokens(longest), " tokens, but one window of block-size ",
                       T, " needs ", T + 1, ". Use more data or a smaller block-size"));
}

}  // namespace

Windows::Windows(TokenData data, int64_t block_size, WindowOptions options)
    : data_(std::move(data)), T_(block_size) {
  require_input(T_ > 0, "block-size must be at least 1, not ", T_);
  first_window_.push_back(0);
  for (int f = 0; f < data_.files(); ++f)
    first_window_.push_back(first_window_.back() + (data_.file_tokens(f) - 1) / T_);
  training_ = first_window_.back();
  if (training_ == 0) too_short(data_, T_);
  if (options.hold_out) {
    held_out_ = training_ / 10 + (training_ % 10 != 0);
    training_ -= held_out_;
    require_input(
        training_ > 0, "'", data_.name(), "' has ", held_out_, " window of block-size ", T_,
        ", which is held out for evaluation, so none is left to train on. Use more data or "
        "a smaller block-size");
  }
  if (options.shuffle_seed) order_ = permutation(training_, *options.shuffle_seed, options.poll);
  shuffle_seed_ = options.shuffle_seed;
}

std::string Windows::identity() const {
  return str(data_.tokens(), " tokens in ", data_.files(), data_.files() == 1 ? " file" : " files",
             " (CRC-32C ", crc_text(data_.checksum()), "), ", training_, " windows of ", T_,
             held_out_ > 0 ? str(", ", held_out_, " held out") : "",
             shuffle_seed_ ? str(", shuffled with seed ", *shuffle_seed_) : "");
}

void Windows::fill_rows(int64_t first, std::span<int32_t> ids, std::span<int32_t> targets) const {
  const int64_t B = rows(ids, targets);
  require(first >= 0, "window ", first, " does not exist: they start at 0");
  for (int64_t b = 0; b < B; ++b) {
    const int64_t w = (first + b) % training_;
    const size_t at = size_t(b * T_);
    read(order_.empty() ? w : order_[size_t(w)], ids.subspan(at, size_t(T_)),
         targets.subspan(at, size_t(T_)));
  }
}

void Windows::fill_held_out(int64_t first, std::span<int32_t> ids,
                            std::span<int32_t> targets) const {
  const int64_t B = rows(ids, targets);
  require(first >= 0 && first + B <= held_out_, "held-out windows [", first, ", ", first + B,
          ") of ", held_out_);
  for (int64_t b = 0; b < B; ++b) {
    const size_t at = size_t(b * T_);
    read(training_ + first + b, ids.subspan(at, size_t(T_)), targets.subspan(at, size_t(T_)));
  }
}

int64_t Windows::rows(std::span<int32_t> ids, std::span<int32_t> targets) const {
  require(!ids.empty() && ids.size() == targets.size() && int64_t(ids.size()) % T_ == 0,
          "windows of ", T_, " tokens do not fill ", ids.size(), " ids and ", targets.size(),
          " targets");
  return int64_t(ids.size()) / T_;
}

void Windows::read(int64_t window, std::span<int32_t> ids, std::span<int32_t> targets) const {
  const auto next = std::upper_bound(first_window_.begin(), first_window_.end(), window);
  const int file = int(next - first_window_.begin()) - 1;
  const int64_t first = (window - first_window_[size_t(file)]) * T_;
  data_.read(file, first, ids);
  data_.read(file, first + T_, targets.last(1));
  std::copy(ids.begin() + 1, ids.end(), targets.begin());
}

}  // namespace zl
