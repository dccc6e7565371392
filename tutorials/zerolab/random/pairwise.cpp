#include "tutorials/zerolab/random/pairwise.h"

#include <algorithm>
#include <numeric>

#include "tensor/random.h"

namespace zl::cli {
namespace {

constexpr size_t kOpen = size_t(-1);  // no value yet
constexpr int kAttempts = 8;          // from one pair, before it is tried beside first values

// Fisher and Yates.
template <class T>
void shuffle(std::vector<T>& list, const PhiloxStream& random) {
  for (size_t i = list.size(); i > 1; --i)
    std::swap(list[i - 1], list[size_t(random.uniform(i) * double(i))]);
}

}  // namespace

PairwiseSet::PairwiseSet(uint64_t seed) : seed_(seed) {
  for (size_t option = 0; option < random_options().size(); ++option) {
    first_.push_back(values_.size());
    for (size_t value = 0; value < random_options()[option].size(); ++value)
      values_.emplace_back(option, value);
  }
  pairs_.resize(values_.size() * values_.size());
  for (size_t a = 0; a < values_.size(); ++a)
    for (size_t b = a + 1; b < values_.size(); ++b)
      if (values_[a].first != values_[b].first) order_.emplace_back(a, b);
  shuffle(order_, {seed_, drawn_++});
}

PairwiseSet::Pair& PairwiseSet::pair(size_t option, size_t value, size_t other,
                                     size_t other_value) {
  const size_t a = first_[option] + value, b = first_[other] + other_value;
  return pairs_[std::min(a, b) * values_.size() + std::max(a, b)];
}

double PairwiseSet::gain(size_t option, size_t value, size_t other, size_t other_value) {
  const Pair& p = pair(option, value, other, other_value);
  return (p.done ? 0.0 : 1.0) - p.refusals;
}

void PairwiseSet::complete(Configuration& c) {
  std::vector<size_t> options(c.size());
  std::iota(options.begin(), options.end(), size_t(0));
  const PhiloxStream random{seed_, drawn_++};
  shuffle(options, random);
  for (const size_t option : options) {
    if (c[option] != kOpen) continue;
    const size_t count = random_options()[option].size();
    const size_t begin = size_t(random.uniform(c.size() + option + 1) * double(count));
    double most = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t value = (begin + i) % count;
      double sum = 0;
      for (size_t other = 0; other < c.size(); ++other)
        if (c[other] != kOpen) sum += gain(option, value, other, c[other]);
      if (i == 0 || sum > most) c[option] = value, most = sum;
    }
  }
}

PairwiseSet::Pair& PairwiseSet::start() {
  return pairs_[order_[begin_].first * values_.size() + order_[begin_].second];
}

std::optional<Configuration> PairwiseSet::next() {
  while (begin_ < order_.size() && start().done) ++begin_, attempts_ = 0;
  if (begin_ == order_.size()) return std::nullopt;
  Configuration c(random_options().size(), attempts_ < kAttempts ? kOpen : 0);
  for (const size_t i : {order_[begin_].first, order_[begin_].second})
    c[values_[i].first] = values_[i].second;
  if (attempts_ < kAttempts) complete(c);
  return c;
}

void PairwiseSet::tell(const Configuration& c, bool runs) {
  for (size_t option = 0; option < c.size(); ++option)
    for (size_t other = option + 1; other < c.size(); ++other) {
      Pair& p = pair(option, c[option], other, c[other]);
      covered_ += runs && !p.done;
      if (runs)
        p = {true, 0};
      else if (!p.done)
        ++p.refusals;
    }
  if (runs) return;
  if (attempts_++ < kAttempts) return;
  start().done = true;
  ++impossible_;
}

}  // namespace zl::cli
