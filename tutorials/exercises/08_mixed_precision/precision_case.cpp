#include "tutorials/exercises/08_mixed_precision/precision_case.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/error.h"
#include "tensor/random.h"

namespace zl::exercises {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class Draw {
 public:
  Draw(uint64_t seed, const std::string& check) : stream_{seed, fnv1a(check)} {}
  int64_t between(int64_t low, int64_t high) {  // both included
    return low + int64_t(stream_.block(next_++)[0] % uint64_t(high - low + 1));
  }

 private:
  PhiloxStream stream_;
  uint64_t next_ = 0;
};

void add_overflow(PrecisionCase& c, Draw& draw, size_t step, int rank, float value) {
  Overflow overflow;
  overflow.step = step;
  overflow.rank = rank;
  overflow.element = draw.between(0, c.n - 1);
  overflow.value = value;
  c.overflows.push_back(overflow);
}

// Windows of good steps, and overflows after 0 to window - 1 good steps.
void script_of_scale(PrecisionCase& c, Draw& draw) {
  c.window = int(draw.between(4, 6));
  size_t step = 0;
  const auto good = [&](int64_t n) { step += size_t(n); };
  const auto bad = [&] { add_overflow(c, draw, step++, 0, kInfinity); };
  good(c.window - 1);
  bad();
  good(c.window);
  good(c.window);
  good(2);
  bad();
  good(c.window - 2);
  bad();
  bad();
  good(c.window);
  good(1);
  bad();
  good(c.window + 1);
  c.steps = step;
}

}  // namespace

float PrecisionCase::initial(int rank, int64_t i) const {
  const PhiloxStream random{seed, 1 + uint64_t(rank)};
  const double x = 2 * random.uniform(uint64_t(i)) - 1;
  if (numbers == Numbers::exact) return float(std::round(64 * x) / 64);
  return float(x < 0 ? x - 0.5 : x + 0.5);
}

double PrecisionCase::gradient(int rank, size_t step, int64_t i) const {
  const PhiloxStream random{seed, 1000 + uint64_t(rank) * 1000 + step};
  const double x = random.uniform(uint64_t(i)) + 0.25;
  const double sign = random.block(uint64_t(i))[3] % 2 ? 1 : -1;
  switch (numbers) {
    case Numbers::exact: return sign * std::round(8 * x) / 8;
    // Always in the same direction, so that what f16 loses adds up.
    case Numbers::tiny: return (initial(rank, i) < 0 ? 1 : -1) * std::ldexp(x, -12);
    case Numbers::small: return sign * std::ldexp(x, -23);
    case Numbers::plain: break;
  }
  return sign * x * (step % 2 ? 0.02 : 0.5);
}

f16 PrecisionCase::scaled_gradient(int rank, size_t step, int64_t i, double scale) const {
  for (const Overflow& o : overflows)
    if (o.step == step && o.rank == rank && o.element == i) return f16(o.value);
  return f16(float(gradient(rank, step, i) * scale));
}

bool PrecisionCase::overflow(size_t step) const {
  return std::ranges::any_of(overflows, [&](const Overflow& o) { return o.step == step; });
}

bool PrecisionCase::overflow(size_t step, int rank) const {
  return std::ranges::any_of(overflows,
                             [&](const Overflow& o) { return o.step == step && o.rank == rank; });
}

// A power of two, so that SGD rounds once.
float PrecisionCase::rate() const { return 0.125f; }

PrecisionCase precision_case(const std::string& check, uint64_t seed) {
  using Numbers = PrecisionCase::Numbers;
  Draw draw(seed, check);
  PrecisionCase c;
  c.seed = seed ^ fnv1a(check);
  c.n = 2 * draw.between(15, 30) + 1;
  c.steps = 4;
  if (check == "one rank") {
    c.numbers = Numbers::exact;
    c.scale = 8;
  } else if (check == "tiny updates") {
    c.numbers = Numbers::tiny;
    c.steps = 60;
  } else if (check == "small gradients") {
    c.numbers = Numbers::small;
    c.scale = 65536;
  } else if (check == "norm and clipping") {
    c.ranks = int(draw.between(3, 4));
    c.scale = 256;
    c.max_norm = 1 + double(draw.between(0, 100)) / 100;
  } else if (check == "overflow") {
    add_overflow(c, draw, 1, 0, kInfinity);
    add_overflow(c, draw, 2, 0, -kInfinity);
  } else if (check == "not a number") {
    add_overflow(c, draw, 1, 0, kNan);
  } else if (check == "overflow on one rank") {
    c.ranks = int(draw.between(3, 4));
    add_overflow(c, draw, 1, c.ranks - 1, kInfinity);
    add_overflow(c, draw, 2, 0, kNan);
  } else if (check == "scale") {
    c.scale = 64;
    script_of_scale(c, draw);
  } else if (check == "smallest scale") {
    c.min_scale = double(2 << draw.between(0, 2));
    c.scale = 4 * c.min_scale;
    c.window = 3;
    c.steps = 10;
    for (size_t step = 0; step < 4; ++step) add_overflow(c, draw, step, 0, kInfinity);
  } else {
    throw InputError("exercise 08 has no check '" + check + "'");
  }
  return c;
}

}  // namespace zl::exercises
