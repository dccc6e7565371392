// Which numbers a floating-point type has, and what a loss scale does to a small gradient.
#include <cmath>

#include "tensor/dtype.h"
#include "tutorials/zerolab/draw/pictures.h"
#include "tutorials/zerolab/draw/svg.h"

namespace zl::draw {
namespace {

double rounded(Dtype type, double x) {
  double result = 0;
  for_float_type(type, [&](auto element) { result = double(decltype(element)(float(x))); });
  return result;
}

// Exponents of 2, found by rounding.
struct Range {
  int mantissa = 0;  // bits: the next number after 1 is 2^-mantissa away
  int least = 0;     // below, there is nothing but 0
  int normal = 0;    // from here on, all bits of the mantissa are kept
  int largest = 0;
};

Range range_of(Dtype type) {
  const auto has = [&](double x) { return rounded(type, x) == x; };
  Range range;
  while (has(1 + std::ldexp(1.0, -range.mantissa - 1))) ++range.mantissa;
  while (has(std::ldexp(1.0, range.least - 1))) --range.least;
  while (has(std::ldexp(1 + std::ldexp(1.0, -range.mantissa), range.normal - 1))) --range.normal;
  while (has(std::ldexp(1.0, range.largest + 1))) ++range.largest;
  return range;
}

// "2⁻²⁴"
std::string power(int exponent) {
  constexpr const char* kDigits[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text = exponent < 0 ? "2⁻" : "2";
  for (const char digit : std::to_string(std::abs(exponent))) text += kDigits[digit - '0'];
  return text;
}

double x_of(double exponent) { return 96 + (exponent + 152) * 2.28; }

void draw_type(Svg& svg, Dtype type, const char* paper_name, double y) {
  const Range range = range_of(type);
  const double least = x_of(range.least), normal = x_of(range.normal),
               end = x_of(range.largest + 1);
  svg.text({16, y + 12}, paper_name, "bold");
  svg.text({16, y + 28}, str("1 + ", power(-range.mantissa)), "soft");
  svg.box({least, y + 14, normal - least, 8}, "parameter",
          str(name(type), ": fewer bits from ", power(range.least)));
  svg.box(
      {normal, y, end - normal, 22}, "parameter",
      str(name(type), ": all bits from ", power(range.normal), " to ", power(range.largest + 1)));
  svg.text({normal - 20, y + 37}, power(range.least), "end");
  svg.text({normal, y + 37}, power(range.normal), "middle");
  svg.text({end, y + 37}, power(range.largest + 1), "middle");
}

}  // namespace

std::string draw_number_ranges() {
  constexpr int kGradient = -27, kScale = 16;
  Svg svg("Which numbers fp32, bf16 and fp16 have",
          "Three bars on an axis of powers of two. fp32 and bf16 reach from 2 to the -126 to 2 to "
          "the 128, fp16 only from 2 to the -14 to 2 to the 16. A gradient of 2 to the -27 is zero "
          "in fp16; multiplied by a loss scale of 2 to the 16 it is inside the range.",
          308);
  svg.box({96, 34, 22, 16}, "parameter");
  svg.text({124, 47}, "all bits of the mantissa");
  svg.box({300, 42, 22, 8}, "parameter");
  svg.text({328, 47}, "fewer and fewer; to the left of it 0, to the right infinity");
  draw_type(svg, Dtype::f32, "fp32", 72);
  draw_type(svg, Dtype::bf16, "bf16", 136);
  draw_type(svg, Dtype::f16, "fp16", 200);
  const double from = x_of(kGradient), to = x_of(kGradient + kScale);
  for (const double x : {from, to}) {
    svg.line({x, 194}, {x, 224}, "accent dash");
    svg.line({x, 242}, {x, 270}, "accent dash");
  }
  svg.arrow({from, 262}, {to, 262});
  svg.text({from - 8, 267}, str("a gradient of ", power(kGradient)), "end halo");
  svg.text({to + 8, 267},
           str("times a loss scale of ", power(kScale), ": ", power(kGradient + kScale)), "halo");
  svg.text({16, 296}, "Below each name: 1, and the distance to the next number after 1.", "soft");
  return svg.document();
}

}  // namespace zl::draw
