#include "tutorials/exercises/01_rms_norm/rms_norm_case.h"

#include "tensor/random.h"

namespace zl::exercises::rms_norm_checks {
namespace {

class Values {
 public:
  Values(PhiloxStream stream, Dtype dtype) : stream_(stream), dtype_(dtype) {}
  int64_t size(int64_t least, int64_t most) {
    return least + int64_t(stream_.uniform(next_++) * double(most - least + 1));
  }
  double normal() { return rounded(stream_.normal(2 * next_++)); }
  double rounded(double value) const { return dtype_ == Dtype::f32 ? double(float(value)) : value; }
  std::vector<double> normals(int64_t n, double mean) {
    std::vector<double> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(rounded(mean + normal()));
    return values;
  }

 private:
  PhiloxStream stream_;
  Dtype dtype_;
  uint64_t next_ = 0;
};

}  // namespace

// The mean of a row is not 0, so that a layer norm computes something else. Rows differ in size: in
// some of them eps matters.
Case make_case(const std::string& check, const CheckOptions& options) {
  Case c;
  const bool large = check == kKept || check == kNoTape;
  c.dtype = large || check == kF32 ? Dtype::f32 : Dtype::f64;
  Values values({options.seed, fnv1a(check)}, c.dtype);
  const int64_t C = 2 * values.size(2, 5) + 1, rows = values.size(2, 4);
  c.shape = check == kOneRow ? Shape{1, C} : large ? Shape{17, 50 + rows, C} : Shape{2, rows, C};
  c.eps = 0.01 * double(values.size(1, 4));
  c.weight = values.normals(C, 1);
  for (int64_t row = 0; row < c.rows(); ++row) {
    const double size = row % 3 == 0 ? 1 : row % 3 == 1 ? 0.2 : 8;
    for (const double value : values.normals(C, 0.5)) c.x.push_back(values.rounded(size * value));
  }
  c.dy = values.normals(numel(c.shape), 0.25);
  c.before = values.normals(C, 0);
  return c;
}

}  // namespace zl::exercises::rms_norm_checks
