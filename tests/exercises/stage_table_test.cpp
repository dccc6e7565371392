// A library that is linked statically has the same stages as a shared one.

#include <catch2/catch_test_macros.hpp>

#include "stages/stage_file.h"
#include "tests/exercises/grading.h"
#include "tests/paths.h"
#include "tests/zerolab/process.h"

namespace zl::exercises {

TEST_CASE("a static and a shared library list the same stages", "[exercises][unsanitized]") {
  const cli::ScratchFolder folder;
  cli::write_file(folder / "list.cpp", R"(
    #include <cstdio>
    #include "stages/stage_file.h"
    int main() { for (const auto& file : zl::stage_files()) std::puts(file.name); })");
  std::string flags, link, library;
  for (const std::string& flag : toolchain().flags) flags += " '" + flag + "'";
  for (const std::string& word : toolchain().link) {
    if (cli::contains(word, "libexercise_")) continue;
    if (cli::contains(word, "libzerolab."))
      library = word;
    else
      link += " '" + word + "'";
  }
  const bool is_static = library.ends_with(".a");
  const std::string compile = "cd '" + folder.path() + "' && " + toolchain().compiler + flags,
                    whole = is_static
                                ? " -Wl,--whole-archive '" + library + "' -Wl,--no-whole-archive"
                                : " '" + library + "'";
  const auto run = [&](const std::string& command) {
    const cli::Finished done = cli::shell(command);
    INFO(done.out << done.err);
    REQUIRE(done.code == 0);
    return cli::lines(done.out);
  };
  link += " " ZEROLAB_MPI_LINK;  // the whole library needs it
  run(compile + " -c list.cpp -o list.o");
  run(compile + " -shared -o libshared.so" + whole + link);
  run(compile + " list.o -o with_shared -L. -lshared -Wl,-rpath,." + link);
  run(compile + " list.o -o with_library '" + library + "'" + link);
  std::vector<std::string> names;
  for (const StageFile& file : stage_files()) names.emplace_back(file.name);
  CHECK(names.size() >= 8);
  CHECK(run("cd '" + folder.path() + "' && ./with_shared") == names);

  // A registered stage is in its place; a wrong one is a sentence that main() can catch.
  const auto registered = [&](const std::string& file) {
    cli::write_file(folder / "own.cpp",
                    "#include <cstdio>\n#include \"stages/stage_file.h\"\n"
                    "const bool done = zl::register_stage(" +
                        file + R"();
      int main() try { for (const auto& file : zl::stage_files()) std::puts(file.name); }
      catch (const std::exception& e) { std::puts(e.what()); })");
    return run(compile + " own.cpp -o own '" + library + "'" + link + " && ./own");
  };
  names.insert(names.begin() + 4, "early");
  CHECK(registered("{.name = \"early\", .calls = {}, .parent = \"ddp\"}") == names);
  CHECK(registered("{.name = \"zero2\", .calls = {}, .parent = \"ddp\"}") ==
        std::vector<std::string>{"a stage 'zero2' exists: give yours another name"});
  for (const char* parent : {"nullptr", "\"hsdp\""})
    CHECK(registered(std::string("{.name = \"own\", .calls = {}, .parent = ") + parent + "}") ==
          std::vector<std::string>{"stage own needs a parent, ddp, zero1, zero2 or zero3: the one "
                                   "that it changes"});
  names.erase(names.begin() + 4);
  CHECK(run("cd '" + folder.path() + "' && LD_LIBRARY_PATH=$(dirname '" + library +
            "') ./with_library") == names);
}

}  // namespace zl::exercises
