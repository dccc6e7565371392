// tutorials/own_stage.cpp: a stage outside the library is found by its name, predicted and
// diagnosed.

#include <catch2/catch_test_macros.hpp>
#include <regex>

#include "stages/stage_file.h"
#include "tests/paths.h"
#include "tests/zerolab/process.h"

using namespace zl;

namespace {

std::string own_stage(const std::string& argument, int code) {
  const cli::Finished done = cli::shell(std::string(ZEROLAB_TUTORIALS) + "/own_stage " + argument);
  INFO(done.out << done.err);
  REQUIRE(done.code == code);
  return done.out;
}

// The number behind each "predicted" equals the one before it.
void check_predictions(const std::string& text, size_t expected) {
  const std::regex pair("([0-9]+), predicted +([0-9]+)");
  size_t found = 0;
  for (std::sregex_iterator i(text.begin(), text.end(), pair), end; i != end; ++i, ++found)
    CHECK((*i)[1] == (*i)[2]);
  CHECK(found == expected);
}

}  // namespace

TEST_CASE("an own stage has zero3's bits, and its bytes and traffic are predicted", "[tutorials]") {
  const std::string out = own_stage("", 0);
  check_predictions(out, 8);
  CHECK(cli::contains(out, "zero3_kept  as promised"));
  CHECK(cli::contains(out, "All promises hold."));
  const std::string page = cli::read_file(ZEROLAB_SOURCE_DIR "/tutorials/reference/variants.md");
  CHECK(cli::contains(page, out));
}

TEST_CASE("an own stage that loses micro-batches gets the diagnosis that exercises get",
          "[tutorials]") {
  const std::string out = own_stage("--mistake", 1);
  CHECK(cli::contains(out, "A promise is broken"));
  const std::string page = cli::read_file(ZEROLAB_SOURCE_DIR "/tutorials/reference/variants.md");
  const auto diagnosis = cli::lines(out);
  size_t said = 0;
  for (const std::string& line : diagnosis)
    said += line.starts_with("  ") && cli::contains(page, line);
  CHECK(said == 2);
}

TEST_CASE("every file that declares a stage is in the table, once, the four first", "[tutorials]") {
  std::vector<std::string> names, found;
  for (const StageKind kind : all_stages()) names.push_back(name(kind));
  for (const StageKind kind : kStages) found.push_back(name(kind));
  CHECK(std::vector(names.begin(), names.begin() + 4) == found);
  const cli::Finished list = cli::shell("cd " ZEROLAB_SOURCE_DIR
                                        "/stages && sed -n 's/^ZL_STAGE(\\([a-z0-9_]*\\).*/\\1/p' "
                                        "ddp.cpp zero?.cpp variants/*.cpp");
  CHECK(cli::lines(list.out) == names);
  CHECK_THROWS(file_of(StageKind("zero4")));
  CHECK_THROWS(register_stage(file_of(StageKind::zero2)));  // too late
}
