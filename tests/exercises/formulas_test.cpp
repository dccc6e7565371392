// The judge of exercise 01 on results by wrong formulas, without a student's file.
#include "tutorials/exercises/01_rms_norm/formulas.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>

#include "tutorials/exercises/grader/grade.h"

namespace zl::exercises::rms_norm_checks {

TEST_CASE(
    "the checks of exercise 01 find each wrong formula, and their judge gives it its diagnosis",
    "[exercises]") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto said = [&](const char* check, ValueMistake of_y, GradientMistake of_x,
                          GradientMistake of_weight) {
      const Case c = make_case(check, {.seed = seed});
      Record record;
      record.numbers = {{"y shape", {c.shape.begin(), c.shape.end()}},
                        {"y is f64", {double(c.dtype == Dtype::f64)}},
                        {"y", value(c, c.x, c.weight, of_y)},
                        {"recorded", {1}},
                        {"dx", gradients(c, c.x, c.dy, of_x).x},
                        {"dweight", gradients(c, c.x, c.dy, of_weight).weight}};
      std::ranges::transform(record.numbers["dweight"], c.before, record.numbers["dweight"].begin(),
                             std::plus<>());
      return find_exercise("01").judge({.name = check}, {.seed = seed}, record).meaning;
    };
    CAPTURE(seed);
    for (const char* check : {kOneRow, kRows, kWeight, kX, kF32})
      CHECK(said(check, {}, {}, {}) == "");
    for (const auto& [mistake, text] : kValueMistakes)
      CHECK((said(kOneRow, mistake, {}, {}) == text || said(kRows, mistake, {}, {}) == text));
    for (const auto& [mistake, text] : kXMistakes) CHECK(said(kX, {}, mistake, {}) == text);
    for (const auto& [mistake, text] : kWeightMistakes)
      CHECK(said(kWeight, {}, {}, mistake) == text);
  }
}

}  // namespace zl::exercises::rms_norm_checks
