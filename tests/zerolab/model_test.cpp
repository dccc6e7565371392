// zerolab model: what a file holds, and the same weights in another format and back.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "nn/formats/llmc.h"
#include "tensor/io/safetensors.h"
#include "tests/tensor/io/safetensors_case.h"
#include "tests/zerolab/process.h"

namespace cli {
namespace {

const zl::GptConfig kModel{.layers = 2, .heads = 3, .width = 12, .block_size = 7, .vocab = 50};

// A different number for each element of each parameter.
std::vector<float> values_of(const std::string& name) {
  zl::Gpt model(kModel);
  float next = 1;
  for (const zl::Parameter& p : model.parameters()) {
    std::vector<float> values(size_t(zl::numel(p.shape)));
    for (float& v : values) v = (next += 1) / 1024;
    if (p.name == name) return values;
  }
  throw std::invalid_argument(name);
}

std::string safetensors(const ScratchFolder& folder) {
  const std::string path = folder / "ours.safetensors";
  zl::save_safetensors_weights(path, kModel, values_of);
  return path;
}

// As PyTorch's programs save it: with a prefix, without the number of heads.
std::string without_heads(const ScratchFolder& folder) {
  zl::Gpt model(kModel);
  std::vector<std::vector<float>> values;
  std::vector<zl::SafetensorsSource> sources;
  for (const zl::Parameter& p : model.parameters()) values.push_back(values_of(p.name));
  size_t i = 0;
  for (const zl::Parameter& p : model.parameters())
    sources.push_back(zl::test::safetensors_source("transformer." + p.name, p.shape, values[i++]));
  zl::write_safetensors(folder / "theirs.safetensors", sources, {{"format", "pt"}});
  return folder / "theirs.safetensors";
}

nlohmann::json json_of(const Finished& finished) {
  INFO(finished.err);
  CHECK(finished.code == 0);
  CHECK(finished.err.empty());
  return nlohmann::json::parse(finished.out);
}

void check_refused(const std::vector<std::string>& arguments, const std::string& part) {
  const Finished finished = zerolab(arguments);
  CAPTURE(arguments, finished.err);
  CHECK(finished.code == 2);
  CHECK(finished.out.empty());
  CHECK(finished.err.starts_with("zerolab: "));
  CHECK(contains(finished.err, part));
  CHECK(lines(finished.err).size() <= 2);
}

}  // namespace

TEST_CASE("model info says sizes, parameters, types, heads and metadata, as text and as JSON",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string path = safetensors(folder);
  const auto json = json_of(zerolab({"model", "info", path, "--json"}));
  CHECK(json["schema"] == 1);
  CHECK(json["command"] == "model info");
  CHECK((json["format"] == "safetensors" && json["dtype"] == "F32" && json["file"] == path));
  CHECK((json["layers"] == 2 && json["heads"] == 3 && json["width"] == 12 &&
         json["block_size"] == 7 && json["vocab_size"] == 50));
  CHECK(json["parameters"] == kModel.parameters());
  CHECK(json["bytes"] == std::filesystem::file_size(path));
  CHECK(json["metadata"]["n_head"] == "3");
  const Finished text = zerolab({"model", "info", path});
  CHECK(text.code == 0);
  for (const char* part : {"safetensors, F32", "2 layers, width 12", "3 of width 4",
                           "7 (block size)", "50 tokens", "\"n_head\" is \"3\""}) {
    CAPTURE(part, text.out);
    CHECK(contains(text.out, part));
  }
  CHECK(contains(text.out, std::to_string(kModel.parameters()) + ", "));
}

TEST_CASE(
    "a file that does not say its heads is still described, and converted when they are given",
    "[zerolab]") {
  const ScratchFolder folder;
  const std::string path = without_heads(folder);
  const auto json = json_of(zerolab({"model", "info", path, "--json"}));
  CHECK((json["heads"].is_null() && json["layers"] == 2));
  CHECK(contains(zerolab({"model", "info", path}).out, "not in the file: --n-head N"));
  CHECK(json_of(zerolab({"model", "info", path, "--json", "--n-head", "3"}))["heads"] == 3);
  check_refused({"model", "import", path, folder / "in.safetensors"}, "n-head");
  check_refused({"model", "import", path, folder / "in.safetensors", "--n-head", "5"}, "5");
  CHECK(zerolab({"model", "import", path, folder / "in.safetensors", "--n-head", "3"}).code == 0);
  CHECK((read_file(folder / "in.safetensors") == read_file(safetensors(folder))));
}

TEST_CASE("export to llm.c and import from it give back the same bytes", "[zerolab]") {
  const ScratchFolder folder;
  const std::string ours = safetensors(folder), theirs = folder / "model.bin",
                    back = folder / "back.safetensors";
  const auto json = json_of(zerolab({"model", "export", ours, theirs, "--json"}));
  CHECK((json["in_format"] == "safetensors" && json["out_format"] == "llm.c fp32" &&
         json["parameters"] == kModel.parameters()));
  CHECK(json["bytes"] == std::filesystem::file_size(theirs));
  CHECK(json_of(zerolab({"model", "info", theirs, "--json"}))["format"] == "llm.c fp32");
  const Finished imported = zerolab({"model", "import", theirs, back});
  CHECK(imported.code == 0);
  CHECK(contains(imported.out,
                 back + ": safetensors, " + std::to_string(kModel.parameters()) + " parameters"));
  CHECK((read_file(back) == read_file(ours)));
  CHECK((read_file(theirs) != read_file(ours)));
}

TEST_CASE("an llm.c model is recognised by what it holds, whatever its name", "[zerolab]") {
  const ScratchFolder folder;
  zl::save_llmc_weights(folder / "weights", kModel, values_of);
  CHECK(json_of(zerolab({"model", "info", folder / "weights", "--json"}))["format"] ==
        "llm.c fp32");
  CHECK(zerolab({"model", "import", folder / "weights", folder / "out.safetensors"}).code == 0);
  CHECK((read_file(folder / "out.safetensors") == read_file(safetensors(folder))));
}

TEST_CASE("no file is replaced without --force, and none is read and written at once",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string ours = safetensors(folder), bytes = read_file(ours),
                    out = write_file(folder / "out.bin", "mine");
  check_refused({"model", "export", ours, out}, "exists; --force replaces it");
  CHECK((read_file(out) == "mine"));
  CHECK(zerolab({"model", "export", ours, out, "--force"}).code == 0);
  CHECK((read_file(out) != "mine"));
  check_refused({"model", "import", ours, ours, "--force"}, "is the file to read");
  check_refused({"model", "import", ours, folder.path() + "/./ours.safetensors", "--force"},
                "is the file to read");
  CHECK((read_file(ours) == bytes));
  CHECK(files_in(folder.path()) == std::vector<std::string>{"ours.safetensors", "out.bin"});
}

TEST_CASE("model takes what --init-from takes: a file, a folder, an index, llm.c's under any name",
          "[zerolab]") {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder / "hub");
  const std::string single = folder / "hub/model.safetensors",
                    shard = folder / "hub/model-00001-of-00001.safetensors",
                    index = folder / "hub/model.safetensors.index.json";
  std::filesystem::rename(without_heads(folder), single);
  write_file(folder / "hub/config.json", R"({"n_head": 3, "resid_pdrop": 0.1})");
  const nlohmann::json of_file = json_of(zerolab({"model", "info", single, "--json"}));
  CHECK(of_file["heads"] == 3);
  CHECK(of_file["bytes"] == std::filesystem::file_size(single));
  CHECK(contains(of_file["notes"][0], "resid_pdrop 0.1"));
  const auto same = [&](const std::string& path) {
    CAPTURE(path);
    nlohmann::json document = json_of(zerolab({"model", "info", path, "--json"}));
    document["file"] = of_file["file"];
    CHECK(document == of_file);
    const std::string out = folder / "out.safetensors";
    CHECK(zerolab({"model", "import", path, out, "--force"}).code == 0);
    CHECK(zerolab({"train", "--init-from", path, "--steps", "1", "-q", "--vocab-size", "50",
                   "--data", write_file(folder / "a.bin", std::string(800, '\1'))})
              .code == 2);  // token 257 is outside of the vocabulary: the weights were read
    return read_file(out);
  };
  const std::string from_file = same(single);
  CHECK((same(folder / "hub") == from_file && same(folder / "hub/") == from_file));
  std::filesystem::rename(single, shard);
  std::string map;
  const zl::SafetensorsFile opened(shard);
  for (const auto& tensor : opened.entries())
    map += (map.empty() ? "\"" : ", \"") + tensor.name + "\": \"model-00001-of-00001.safetensors\"";
  write_file(index, "{\"metadata\": {}, \"weight_map\": {" + map + "}}");
  CHECK((same(index) == from_file && same(folder / "hub") == from_file));
  std::filesystem::remove(folder / "hub/config.json");
  CHECK(json_of(zerolab({"model", "info", folder / "hub", "--json"}))["heads"].is_null());
  check_refused({"model", "import", folder / "hub", folder / "b.safetensors"}, "has no n_head");

  const std::string llmc = folder / "model.dat";
  REQUIRE(zerolab({"model", "export", safetensors(folder), folder / "model.bin"}).code == 0);
  std::filesystem::rename(folder / "model.bin", llmc);
  CHECK(json_of(zerolab({"model", "info", llmc, "--json"}))["format"] == "llm.c fp32");
  CHECK(zerolab({"train", "--init-from", llmc, "--steps", "1", "-q", "--data", folder / "a.bin"})
            .code == 2);
}

TEST_CASE("a wrong file for model ends in one sentence, and nothing is written", "[zerolab]") {
  const ScratchFolder folder;
  const std::string out = folder / "out.safetensors", ours = safetensors(folder);
  write_file(folder / "short.bin", "abc");
  write_file(folder / "text.safetensors", "Once upon a time there was no header.");
  write_file(folder / "cut.safetensors", read_file(ours).substr(0, 3000));
  write_file(folder / "empty", "");
  for (const char* name : {"short.bin", "text.safetensors", "cut.safetensors", "empty", "missing",
                           "missing.bin", "."}) {
    check_refused({"model", "info", folder / name}, folder / name);
    check_refused({"model", "import", folder / name, out}, folder / name);
  }
  const std::string bad = std::string("\x05\0\0\0\0\0\0\0", 8) + "{\"a: ";
  check_refused({"model", "info", write_file(folder / "bad.safetensors", bad)},
                "the header is not valid JSON: error at byte ");
  CHECK_FALSE(
      contains(zerolab({"model", "info", folder / "bad.safetensors"}).err, "json.exception"));
  check_refused({"model", "export", ours, folder / "nowhere/out.bin"}, "there is no folder");
  check_refused({"model", "export", ours, folder.path()}, "is a folder");
  check_refused({"model", "info", ours, "--n-head", "4"}, "4");
  CHECK_FALSE(std::filesystem::exists(out));
}

TEST_CASE("model without a command or a file says what is needed", "[zerolab]") {
  check_refused({"model"}, "needs a command: info, import, export");
  check_refused({"model", "inof"}, "did you mean 'info'?");
  check_refused({"model", "info"}, "zerolab model info FILE");
  check_refused({"model", "import", "a"}, "zerolab model import IN OUT");
  check_refused({"model", "export", "a", "b", "c"}, "takes no argument 'c'");
  check_refused({"model", "info", "a", "--n-head", "0"}, "--n-head: '0' is too small");
}

TEST_CASE("the help of model teaches with examples, in lines that fit", "[zerolab]") {
  for (const char* command : {"info", "import", "export"}) {
    const Finished help = zerolab({"model", command, "--help"});
    CHECK(help.code == 0);
    CHECK(contains(help.out, std::string("  zerolab model ") + command + " "));
    for (const std::string& line : lines(help.out)) {
      CAPTURE(line);
      CHECK(line.size() <= 120);
    }
  }
}

}  // namespace cli
