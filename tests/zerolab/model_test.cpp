// zerolab model: what a file holds, and the same weights in another format and back.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "nn/formats/llmc.h"
#include "tensor/io/safetensors.h"
#include "tests/tensor/io/safetensors_case.h"
#include "tests/zerolab/command.h"

namespace cli {

using Json = nlohmann::json;
namespace {

namespace fs = std::filesystem;

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

Json info(const std::string& words) { return Json::parse(document("model info " + words)); }
int import_of(const std::string& words) { return call("model import " + words).code; }

}  // namespace

TEST_CASE("model info says sizes, parameters, types, heads and metadata, as text and as JSON",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string path = safetensors(folder);
  const Json json = info(path);
  CHECK((json["schema"] == 1 && json["command"] == "model info"));
  CHECK((json["format"] == "safetensors" && json["dtype"] == "F32" && json["file"] == path));
  CHECK((json["layers"] == 2 && json["heads"] == 3 && json["width"] == 12 &&
         json["block_size"] == 7 && json["vocab_size"] == 50));
  CHECK(json["parameters"] == kModel.parameters());
  CHECK(json["bytes"] == fs::file_size(path));
  CHECK(json["metadata"]["n_head"] == "3");
  const Finished text = call("model info " + path);
  CHECK((text.code == 0 && text.err.empty()));
  check_says(text.out, {"\nformat      safetensors\n", "\nheads       3\n", "\nvocab size  50\n",
                        "n head 3", "\nparameters  " + std::to_string(kModel.parameters())});
}

TEST_CASE("export to llm.c and import from it give back the same bytes, whatever the names",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string ours = safetensors(folder), theirs = folder / "model.bin",
                    back = folder / "back.safetensors";
  const Json json = Json::parse(document("model export " + ours + " " + theirs));
  CHECK((json["in_format"] == "safetensors" && json["out_format"] == "llm.c fp32" &&
         json["parameters"] == kModel.parameters()));
  CHECK(json["bytes"] == fs::file_size(theirs));
  CHECK(info(theirs)["format"] == "llm.c fp32");
  const Finished imported = call("model import " + theirs + " " + back);
  CHECK(imported.code == 0);
  check_says(imported.out, {back, "\nout format  safetensors\n"});
  CHECK((read_file(back) == read_file(ours)));
  CHECK((read_file(theirs) != read_file(ours)));

  const std::string unnamed = folder / "weights";
  zl::save_llmc_weights(unnamed, kModel, values_of);
  CHECK(info(unnamed)["format"] == "llm.c fp32");
  CHECK(import_of(unnamed + " --force " + back) == 0);
  CHECK((read_file(back) == read_file(ours)));

  const std::string taken = write_file(folder / "taken.bin", "mine");
  CHECK(call("model export --force " + ours + " " + taken).code == 0);
  CHECK((read_file(taken) == read_file(theirs)));
}

TEST_CASE("model takes what --init-from takes: a file, a folder, an index, llm.c's under any name",
          "[zerolab]") {
  const ScratchFolder folder;
  const std::string hub = folder / "hub", single = hub + "/model.safetensors",
                    name = "model-00001-of-00001.safetensors", index = single + ".index.json",
                    out = folder / "out.safetensors";
  fs::create_directory(hub);
  zl::test::write_with_prefix(single, zl::Gpt(kModel).parameters(), values_of);
  CHECK((info(single)["heads"].is_null() && info(single)["layers"] == 2));
  CHECK(contains(call("model info " + single).out, "not in the file: give --n-head N"));
  CHECK(info(single + " --n-head 3")["heads"] == 3);
  CHECK(import_of(single + " --n-head 3 " + out) == 0);
  const std::string expected = read_file(safetensors(folder));
  CHECK((read_file(out) == expected));

  write_file(hub + "/config.json", R"({"n_head": 3, "resid_pdrop": 0.1})");
  const std::string data = write_file(folder / "a.bin", std::string(800, '\1'));
  // Token 257 is outside of the vocabulary: the weights were read.
  const auto trains_from = [&](const std::string& path) {
    return call("train --steps 1 -q --data " + data + " --init-from " + path);
  };
  const Json of_file = info(single);
  CHECK((of_file["heads"] == 3 && of_file["bytes"] == fs::file_size(single)));
  CHECK(contains(of_file["notes"][0], "resid_pdrop 0.1"));
  const auto check_same = [&](const std::string& path) {
    CAPTURE(path);
    Json json = info(path);
    json["file"] = of_file["file"];
    CHECK(json == of_file);
    CHECK(import_of("--force " + path + " " + out) == 0);
    CHECK((read_file(out) == expected));
    check_refused(trains_from(path), "token 257");
  };
  for (const std::string& path : {single, hub, hub + "/"}) check_same(path);
  fs::rename(single, hub + "/" + name);
  Json map;
  const zl::SafetensorsFile opened(hub + "/" + name);
  for (const auto& tensor : opened.entries()) map[tensor.name] = name;
  write_file(index, Json{{"metadata", Json::object()}, {"weight_map", map}}.dump());
  for (const std::string& path : {index, hub}) check_same(path);
  fs::remove(hub + "/config.json");
  CHECK(info(hub)["heads"].is_null());
  check_refused(call("model import " + hub + " " + (folder / "b.safetensors")), "has no n_head");

  const std::string llmc = folder / "model.dat";
  zl::save_llmc_weights(llmc, kModel, values_of);
  check_refused(trains_from(llmc), "token 257");
}

}  // namespace cli
