// Which folder may include which: the picture in CONTRIBUTING.md, read from the #include lines.
// subfolders_test.cpp has the rules inside a folder.

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/architecture/source_text.h"

namespace architecture {
namespace {

// What a folder may include besides itself.
const std::map<std::string, std::set<std::string>> neighbours = {
    {"tensor", {}},
    {"autograd", {"tensor"}},
    {"nn", {"autograd", "tensor"}},
    {"optim", {"tensor"}},
    {"dist", {"tensor"}},
    {"stages", {"nn", "optim", "dist", "autograd", "tensor"}},
    {"tutorials", {"stages", "nn", "optim", "dist", "autograd", "tensor"}},
    {"tests", {"tutorials", "stages", "nn", "optim", "dist", "autograd", "tensor"}},
};

// Where a package may be included. Paths are of the including file.
struct Package {
  const char* name;
  const char* includes;  // regular expression on the included path
  const char* allowed;   // regular expression on the including path
  const char* rule;
};

const std::vector<Package> packages = {
    {"CUDA", "(cuda|cublas|curand|cooperative_groups|nvtx3|thrust|cub/).*",
     "(tensor/cuda|tests/cuda/on_cpu)/.*", "only in tensor/cuda/ and its tests"},
    {"Eigen", "Eigen/.*", "(tensor/reference|tests)/.*", "only in tensor/reference/ and tests/"},
    {"NCCL", "nccl.*", "dist/nccl/.*", "only in dist/nccl/"},
    {"MPI", "mpi\\.h", "dist/mpi/mpi_communicator\\.cpp", "only in dist/mpi/mpi_communicator.cpp"},
    {"nlohmann-json", "nlohmann/.*", ".*\\.cpp", "only in .cpp files"},
    {"CLI11", "CLI/.*", "tutorials/(zerolab|lesson)/.*\\.cpp",
     "only in .cpp files of tutorials/zerolab/ and lesson/"},
    {"Catch2", "catch2/.*", "(tests|tutorials/exercises/(judge|stages|[0-9][0-9]_[^/]*))/.*",
     "only in tests/ and in the checks of exercises"},
};

std::string wrong_with_system_include(const File& file, const std::string& included) {
  for (const Package& package : packages) {
    if (!std::regex_match(included, std::regex(package.includes))) continue;
    if (std::regex_match(file.path, std::regex(package.allowed))) return "";
    return std::string(package.name) + " is included " + package.rule;
  }
  if (neighbours.count(included.substr(0, included.find('/'))) != 0) {
    return "our own headers are included with quotes, not <" + included + ">";
  }
  static const std::regex std_or_system("[a-z0-9_]+(\\.h)?|(sys|arpa|net|netinet|bits|linux)/.*");
  return std::regex_match(included, std_or_system)
             ? ""
             : "<" + included + "> belongs to no package that zerolab uses";
}

std::string wrong_with_our_include(const std::string& folder, const std::string& included) {
  const std::string other = included.substr(0, included.find('/'));
  if (neighbours.count(other) == 0 || included.find("..") != std::string::npos) {
    return "\"" + included + "\" must be written from the source root, as \"tensor/tensor.h\"";
  }
  if (other == folder || neighbours.at(folder).count(other) != 0) return "";
  return folder + " must not include " + other;
}

std::vector<std::string> check_layers(const File& file) {
  static const std::regex include("\\s*#\\s*include\\s*([<\"])([^>\"]+)[>\"].*");
  const std::string folder = file.path.substr(0, file.path.find('/'));
  const auto lines = split_lines(file.text), code = split_lines(code_only(file.text));
  std::vector<std::string> findings;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::smatch match;
    if (code[i].find('#') == std::string::npos || !std::regex_match(lines[i], match, include))
      continue;
    const std::string wrong = match[1] == "<" ? wrong_with_system_include(file, match[2])
                                              : wrong_with_our_include(folder, match[2]);
    if (!wrong.empty()) findings.push_back(finding(file, static_cast<int>(i) + 1, wrong));
  }
  return findings;
}

}  // namespace

TEST_CASE("every folder includes only its neighbours, and packages only where they belong",
          "[architecture]") {
  CHECK(findings_of(check_layers) == "");
}

TEST_CASE("the layer check finds every kind of wrong include, and names file, line and rule",
          "[architecture]") {
  CHECK(check_layers({"nn/gpt.cpp", "// one\n\n#include \"stages/stage.h\"\n"}) ==
        std::vector<std::string>{"nn/gpt.cpp:3: nn must not include stages"});
  const auto wrong = [](const char* path, const char* text) {
    return check_layers({path, text}).size() == 1;
  };
  CHECK(wrong("tensor/tensor.h", "#include \"autograd/tape.h\""));
  CHECK(wrong("optim/flat_optimizer.cpp", "#include \"dist/communicator.h\""));
  CHECK(wrong("dist/communicator.h", "#  include \"nn/gpt.h\""));
  CHECK(wrong("stages/stage.h", "#include \"tests/support.h\""));
  CHECK(wrong("stages/stage.h", "#include \"stage_options.h\""));
  CHECK(wrong("stages/stage.h", "#include \"../tensor/tensor.h\""));
  CHECK(wrong("stages/stage.h", "#include <tensor/tensor.h>"));
  CHECK(wrong("tensor/cpu/matmul.cpp", "#include <Eigen/Core>"));
  CHECK(wrong("tensor/memory.cpp", "#include <cuda_runtime.h>"));
  CHECK(wrong("dist/threads/thread_communicator.cpp", "#include <nccl.h>"));
  CHECK(wrong("dist/mpi/no_mpi.cpp", "#include <mpi.h>"));
  CHECK(wrong("stages/deepspeed/config.h", "#include <nlohmann/json.hpp>"));
  CHECK(wrong("stages/deepspeed/config.cpp", "#include <CLI/CLI.hpp>"));
  CHECK(wrong("nn/gpt.cpp", "#include <catch2/catch_test_macros.hpp>"));
  CHECK(wrong("nn/gpt.cpp", "#include <boost/any.hpp>"));
}

TEST_CASE("the layer check lets right includes and comments pass", "[architecture]") {
  const auto right = [](const char* path, const char* text) {
    return check_layers({path, text}).empty();
  };
  CHECK(right("tensor/tensor.h",
              "#include <vector>\n#include <sys/mman.h>\n#include \"tensor/shape.h\""));
  CHECK(right("nn/gpt.cpp", "#include \"autograd/tape.h\"\n// #include \"stages/stage.h\""));
  CHECK(right("nn/gpt.cpp", "/*\n#include \"stages/stage.h\"\n*/"));
  CHECK(right("tensor/cuda/matmul.cu", "#include <cublas_v2.h>"));
  CHECK(right("tensor/reference/product.cpp", "#include <Eigen/Core>"));
  CHECK(right("dist/nccl/nccl_communicator.cpp", "#include <nccl.h>"));
  CHECK(right("dist/mpi/mpi_communicator.cpp", "#include <mpi.h>"));
  CHECK(right("nn/formats/weights.cpp", "#include <nlohmann/json.hpp>"));
  CHECK(right("tutorials/zerolab/main.cpp", "#include <CLI/CLI.hpp>"));
  CHECK(right("tests/nn/gpt_test.cpp",
              "#include <catch2/catch_test_macros.hpp>\n#include \"nn/gpt.h\""));
}

}  // namespace architecture
