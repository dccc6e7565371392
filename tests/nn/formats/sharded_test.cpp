// Safetensors in several files with an index, as Hugging Face writes them: what is read, and what
// is refused.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <thread>

#include "nn/formats/weights.h"
#include "tests/nn/model_values.h"

namespace zl {
namespace {

using Names = std::vector<std::pair<std::string, std::string>>;  // tensor and file

const char* const kIndex = "model.safetensors.index.json";
const char* const kOne = "model-00001-of-00002.safetensors";
const char* const kTwo = "model-00002-of-00002.safetensors";

// kSmallModel in two shards: block 1 is in the second. A test changes a part before it opens it.
struct Sharded {
  ScratchFolder folder;
  std::vector<HandTensor> one, two;
  std::string metadata_one = "{\"format\":\"pt\",\"n_head\":\"2\"}", metadata_two = metadata_one;
  Names weight_map;
  std::string total_size;

  explicit Sharded(const std::string& prefix = "") {
    for (const HandTensor& t : hand_tensors<float>("F32", prefix))
      (t.name.starts_with(prefix + "h.1.") ? two : one).push_back(t);
    for (const HandTensor& t : one) weight_map.emplace_back(t.name, kOne);
    for (const HandTensor& t : two) weight_map.emplace_back(t.name, kTwo);
    total_size = std::to_string(4 * kSmallModel.parameters());
  }
  std::string index_text() const {
    std::string text;
    for (const auto& [tensor, file] : weight_map)
      text += str(text.empty() ? "" : ",\n", "    \"", tensor, "\": \"", file, "\"");
    return str("{\n  \"metadata\": {\n    \"total_size\": ", total_size,
               "\n  },\n  \"weight_map\": {\n", text, "\n  }\n}\n");
  }
  std::string write() const {
    folder.write(kOne, safetensors_bytes(one, metadata_one));
    folder.write(kTwo, safetensors_bytes(two, metadata_two));
    return folder.write(kIndex, index_text());
  }
  std::string refusal(std::optional<int64_t> heads = {}) const {
    const std::string index = write();
    return sentence_of([&] { open_weights(index, heads); });
  }
  std::string refusal_of(const std::string& text) const {
    write();
    const std::string index = folder.write(kIndex, text);
    return sentence_of([&] { open_weights(index); });
  }
};

bool holds_whole_numbers(const GptWeights& weights) {
  bool same = true;
  Gpt model(kSmallModel);
  for (const Parameter& p : model.parameters())
    same = same && same_bits(weights.load(p.name), whole_numbers(kSmallModel, p.name));
  return same;
}

}  // namespace

TEST_CASE("the shards of an index have the values of the single file, bit for bit", "[nn]") {
  for (const std::string prefix : {"", "transformer."}) {
    Sharded s(prefix);
    const std::string index = s.write();
    const auto weights = open_weights(index);
    CHECK(weights->config() == kSmallModel);
    CHECK(weights->path() == index);
    CHECK(weights->format() == std::string("safetensors"));
    CHECK(weights->files() ==
          std::vector<std::string>{index, s.folder.path(kOne), s.folder.path(kTwo)});
    CHECK(holds_whole_numbers(*weights));
    CHECK_THROWS_AS(weights->load("lm_head.weight"), std::invalid_argument);
  }
  Sharded changed;  // the negative twin: one bit of the second shard
  find(changed.two, "h.1.mlp.c_proj.bias").bytes[1] ^= 1;
  CHECK_FALSE(holds_whole_numbers(*open_weights(changed.write())));
}

TEST_CASE("a folder is opened by its index, and a single model.safetensors in it comes first",
          "[nn]") {
  Sharded s;
  s.write();
  const std::string folder = s.folder.path("");
  CHECK(open_weights(folder)->path() == s.folder.path(kIndex));
  CHECK(holds_whole_numbers(*open_weights(folder)));
  s.folder.write("model.safetensors", safetensors_bytes(hand_tensors<float>("F32")));
  CHECK(open_weights(folder)->path() == s.folder.path("model.safetensors"));
}

TEST_CASE("several threads may load from shards at the same time", "[nn]") {
  const auto weights = open_weights(Sharded().write());
  std::vector<int> same(4);
  std::vector<std::thread> threads;
  for (int& one : same)
    threads.emplace_back([&] {
      one = 1;
      for (int i = 0; i < 20; ++i) one &= holds_whole_numbers(*weights);
    });
  for (std::thread& t : threads) t.join();
  CHECK(same == std::vector<int>{1, 1, 1, 1});
}

TEST_CASE("a head in another shard than the token embedding must be equal to it", "[nn]") {
  Sharded s;
  HandTensor head = find(s.one, "wte.weight");
  head.name = "lm_head.weight";
  s.two.push_back(head);
  s.weight_map.emplace_back("lm_head.weight", kTwo);
  s.total_size = std::to_string(4 * kSmallModel.parameters() + int64_t(head.bytes.size()));
  CHECK(s.refusal().empty());
  s.two.back().bytes[4 * 13] ^= 1;
  check_says(s.refusal(), "'lm_head.weight' differs from 'wte.weight' in row 3, column 1");
}

TEST_CASE("a shard that is missing is named, with the tensors that it should have", "[nn]") {
  Sharded s;
  const std::string index = s.write();
  std::filesystem::remove(s.folder.path(kTwo));
  const std::string sentence = sentence_of([&] { open_weights(index); });
  check_says(sentence, str("there is no file '", s.folder.path(kTwo), "'"));
  check_says(sentence, str("'", index, "' assigns 12 tensors to it"));
}

TEST_CASE("index and shards must list the same tensors", "[nn]") {
  const char* const bias = "h.1.ln_2.bias";
  Sharded absent;
  std::erase_if(absent.two, [&](const HandTensor& t) { return t.name == bias; });
  check_says(absent.refusal(), str("assigns tensor '", bias, "' to '", absent.folder.path(kTwo),
                                   "', which does not have it among its 11"));

  Sharded twice;  // in both files; the index assigns it to the second
  twice.one.push_back(find(twice.two, bias));
  check_says(twice.refusal(),
             str("'", twice.folder.path(kOne), "' has tensor '", bias, "', which '",
                 twice.folder.path(kIndex), "' assigns to '", kTwo, "'"));

  Sharded unlisted;
  std::erase_if(unlisted.weight_map, [&](const auto& pair) { return pair.first == bias; });
  check_says(unlisted.refusal(),
             str("'", unlisted.folder.path(kTwo), "' has tensor '", bias, "', which '",
                 unlisted.folder.path(kIndex), "' does not list"));
}

TEST_CASE("total_size must be the bytes of all tensors", "[nn]") {
  const int64_t bytes = 4 * kSmallModel.parameters();
  Sharded s;
  s.total_size = std::to_string(bytes + 4);
  check_says(s.refusal(), str("total_size is ", bytes + 4, ", but the tensors in its 2 files have ",
                              bytes, " bytes"));
  for (const char* wrong : {"\"many\"", "null", "-4", "[1]", "{}"}) {
    s.total_size = wrong;
    check_says(s.refusal(), "total_size");
  }
  // Masks count. transformers counted those of type BOOL as 1/8 byte per element until it left
  // this to huggingface_hub, which counts the bytes of the file (dtype_byte_size in
  // modeling_utils.py of transformers 4.30; get_torch_storage_size in huggingface_hub).
  s.two.push_back({"h.1.attn.bias", "BOOL", {1, 1, 4, 3}, std::string(12, '\1')});
  s.weight_map.emplace_back("h.1.attn.bias", kTwo);
  for (const std::string& right : {str(bytes + 12), str(bytes + 1, ".5"), str(bytes + 12, ".0")}) {
    s.total_size = right;
    CHECK(s.refusal().empty());
  }
  s.total_size = str(bytes);
  check_says(s.refusal(), str("have ", bytes + 12, " bytes"));
}

TEST_CASE("an index without total_size is read", "[nn]") {
  Sharded s;
  const std::string text = s.index_text();
  const size_t map = text.find("\"weight_map\"");
  CHECK(s.refusal_of("{" + text.substr(map)).empty());
  CHECK(s.refusal_of("{\"metadata\": {}, " + text.substr(map)).empty());
}

TEST_CASE("file names that leave the folder of the index are refused", "[nn]") {
  for (const char* name :
       {"../other.safetensors", "/etc/passwd", "sub/../../x", "sub/x.safetensors", "..", ".", "",
        "./model-00002-of-00002.safetensors"}) {
    CAPTURE(name);
    Sharded s;
    s.weight_map.back().second = name;
    check_says(s.refusal(), str("assigns tensor '", s.weight_map.back().first, "' to '", name,
                                "'; expected the name of a file in the same folder"));
  }
}

TEST_CASE("an index that is no JSON, or another JSON, is refused", "[nn]") {
  const Sharded s;
  const std::string good = s.index_text();
  CHECK(s.refusal_of(good).empty());
  check_says(s.refusal_of(good.substr(0, 30)), "is not valid JSON");
  check_says(s.refusal_of(""), "is not valid JSON");
  check_says(s.refusal_of("{\"metadata\": {\"total_size\": 1e999}, \"weight_map\": {}}"),
             "is not valid JSON");
  check_says(s.refusal_of("[]"), "has no weight_map");
  check_says(s.refusal_of("{}"), "has no weight_map");
  check_says(s.refusal_of("{\"weight_map\": []}"), "has no weight_map");
  check_says(s.refusal_of("{\"weight_map\": {}}"), "weight_map is empty");
  check_says(s.refusal_of("{\"weight_map\": {\"wte.weight\": 3}}"),
             "assigns tensor 'wte.weight' to a JSON number");
  check_says(s.refusal_of("{\"metadata\": 3," + good.substr(good.find("\"weight_map\""))),
             "metadata is a JSON number; expected an object");
  check_says(s.refusal_of(std::string(100'000, '[')), "is nested deeper than 64 levels");
}

TEST_CASE("a tensor that occurs twice in an index is refused, even with the same file", "[nn]") {
  for (const char* file : {kOne, kTwo}) {
    Sharded s;
    s.weight_map.emplace_back("h.1.ln_1.bias", file);
    check_says(s.refusal(), "the name \"h.1.ln_1.bias\" occurs twice");
  }
}

TEST_CASE("the shards together are checked against the model as one file is", "[nn]") {
  Sharded s;
  std::erase_if(s.two, [](const HandTensor& t) { return t.name == "h.1.ln_1.bias"; });
  std::erase_if(s.weight_map, [](const auto& pair) { return pair.first == "h.1.ln_1.bias"; });
  s.total_size = std::to_string(4 * kSmallModel.parameters() - 16);
  check_says(s.refusal(), "lacks 1 of the 28 tensors of a GPT-2 with 2 layers: h.1.ln_1.bias");

  Sharded shape;  // the message names the shard
  find(shape.two, "h.1.attn.c_attn.weight").shape = {12, 4};
  check_says(shape.refusal(),
             str("'", shape.folder.path(kTwo),
                 "': tensor 'h.1.attn.c_attn.weight' has shape (12, 4); expected (4, 12)"));

  Sharded both;  // with and without prefix, in different files
  both.two.push_back({"transformer.ln_f.bias", "F32", {4}, std::string(16, '\0')});
  both.weight_map.emplace_back("transformer.ln_f.bias", kTwo);
  both.total_size = std::to_string(4 * kSmallModel.parameters() + 16);
  check_says(both.refusal(), "the same parameter");
}

TEST_CASE("shards must agree on the number of heads, and one of them suffices", "[nn]") {
  Sharded s;
  s.metadata_one = "{\"format\":\"pt\"}";
  CHECK(s.refusal().empty());
  CHECK(s.refusal(2).empty());
  check_says(s.refusal(4), "has n_head 2, but n-head 4 was given");
  s.metadata_one = "{\"n_head\":\"4\"}";
  const std::string sentence = s.refusal();
  check_says(sentence, str("'", s.folder.path(kOne), "' has n_head 4"));
  check_says(sentence, str("'", s.folder.path(kTwo), "' has n_head 2"));
  s.metadata_one = s.metadata_two = "{}";
  check_says(s.refusal(), "has no n_head in its metadata");
  CHECK(s.refusal(4).empty());
}

TEST_CASE("config.json beside the weights gives n_head, and must not contradict another source",
          "[nn]") {
  Sharded s;
  s.metadata_one = s.metadata_two = "{\"format\":\"pt\"}";
  const std::string index = s.write();
  const std::string single = s.folder.path("model.safetensors");
  const std::string other = s.folder.path("other.safetensors");
  const auto with_config = [&](const std::string& text) { s.folder.write("config.json", text); };

  with_config("{\"model_type\": \"gpt2\", \"n_head\": 4, \"n_embd\": 4}");
  CHECK(open_weights(index)->config().heads == 4);
  CHECK(open_weights(index)->files().at(1) == s.folder.path("config.json"));
  CHECK(open_weights(s.folder.path(""))->config().heads == 4);
  CHECK(open_weights(index, 4)->config().heads == 4);
  check_says(sentence_of([&] { open_weights(index, 2); }),
             str("'", s.folder.path("config.json"), "' has n_head 4, but n-head 2 was given"));

  for (const std::string& path : {single, other})
    save_safetensors_weights(path, kSmallModel, [](const std::string& name) {
      return whole_numbers(kSmallModel, name);
    });
  const std::string sentence = sentence_of([&] { open_weights(single); });
  check_says(sentence, str("'", single, "' has n_head 2"));
  check_says(sentence, "config.json' has n_head 4");
  CHECK(open_weights(other)->files() == std::vector<std::string>{other});
  CHECK(open_weights(other)->config().heads == 2);  // config.json describes model.safetensors

  for (const char* wrong : {"0", "-2", "2.5", "\"2\"", "null", "[2]", "99999999999999999999"}) {
    CAPTURE(wrong);
    with_config(str("{\"n_head\": ", wrong, "}"));
    check_says(sentence_of([&] { open_weights(index); }), "config.json': n_head is ");
  }
  with_config("{\"n_head\": 4");
  check_says(sentence_of([&] { open_weights(index); }), "config.json' is not valid JSON");
  for (const char* none : {"{}", "{\"hidden_size\": 4}"}) {
    with_config(none);
    check_says(sentence_of([&] { open_weights(index); }), "has no n_head in its metadata");
  }
}

}  // namespace zl
