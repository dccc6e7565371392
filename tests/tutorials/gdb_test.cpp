// The guide to gdb in tutorials/gdb/README.md works: ranks have names, and the printers show
// tensors and parameters.

#include <catch2/catch_test_macros.hpp>

#include "tests/paths.h"
#include "tests/zerolab/command.h"

namespace tutorials {

TEST_CASE("gdb stops on one rank and shows its tensors", "[tutorials]") {
  if (cli::shell("gdb --version").code != 0) SKIP("there is no gdb");
  const cli::ScratchFolder folder;
  const std::string script = cli::write_file(folder / "script", R"(
set pagination off
set confirm off
source )" ZEROLAB_SOURCE_DIR R"(/tutorials/gdb/zerolab.py
break look if comm.rank_ == 1
run
info threads
print half
print gone
print parameter
kill
)");
  const cli::Finished gdb =
      cli::shell("gdb -q -nx -batch -x " + script + " " ZEROLAB_TUTORIALS "/shown_in_gdb");
  CAPTURE(gdb.out, gdb.err);
  if (cli::contains(gdb.err, "ptrace: Operation not permitted"))
    SKIP("this container does not allow gdb");
  CHECK(cli::contains(gdb.out, "\"rank 1\" hit Breakpoint 1"));
  for (const char* rank : {"\"rank 0\"", "\"rank 2\""}) CHECK(cli::contains(gdb.out, rank));
  cli::check_says(gdb.out,
                  {"Tensor (2, 6) bf16, 24 B of gradient, holders 1 = {1.5, 1.5, 1.5, 1.5, 1.5, "
                   "1.5, 1.5, 1.5, ...}",
                   "= Tensor, undefined",
                   "Parameter h.0.ln_1.weight, usable = {data = Tensor (3) f32, 12 B of "
                   "parameter, holders 1 = {0, 0.25, 0}, "
                   "grad = Tensor (3) f32, 12 B of gradient, holders 1, on meta}"});
}

TEST_CASE("the guide to gdb prints members and calls no function", "[tutorials]") {
  int prints = 0;
  for (const std::string& line :
       cli::lines(cli::read_file(ZEROLAB_SOURCE_DIR "/tutorials/gdb/README.md"))) {
    const size_t print = line.find("(gdb) print ");
    if (print == std::string::npos) continue;
    ++prints;
    CHECK_FALSE(cli::contains(line.substr(print + 6), "("));
  }
  CHECK(prints >= 2);
}

}  // namespace tutorials
