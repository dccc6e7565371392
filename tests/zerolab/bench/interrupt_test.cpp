// Ctrl-C during a measurement.

#include <signal.h>

#include <catch2/catch_test_macros.hpp>

#include "tests/zerolab/process.h"

namespace cli {

TEST_CASE("Ctrl-C ends a measurement with 130 and no table", "[zerolab]") {
  const ScratchFolder folder;
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"bench", "kernels", "--samples", "1000"},
        {"bench", "machine", "--samples", "1000", "--array", "1MiB"},
        {"bench", "machine", "--save", folder / "here.json", "--device", "cpu"},
        std::vector<std::string>{"bench", "step", "--model", "tiny", "--ranks", "2", "--steps",
                                 "100000"}}) {
    Launch launch{.arguments = arguments, .timeout = 30};
    launch.watch = [sent = false](pid_t process, const std::string& err) mutable {
      if (sent || err.empty()) return;
      sent = true;
      kill(process, SIGINT);
    };
    const Finished finished = run(launch);
    CHECK(finished.code == 130);
    CHECK_FALSE(finished.timed_out);
    CHECK(finished.out.empty());
    CHECK(contains(finished.err, "interrupted"));
  }
  CHECK(files_in(folder.path()).empty());
}

}  // namespace cli
