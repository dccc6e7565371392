// Weights with the names of Hugging Face's GPT-2: what is written, what is read, and what is
// refused.

#include "nn/formats/weights.h"

#include <catch2/catch_test_macros.hpp>

#include "tensor/dtype.h"
#include "tensor/io/safetensors.h"
#include "tests/nn/model_values.h"

namespace zl {
namespace {

bool holds(const GptWeights& weights,
           std::vector<float> (*values)(const GptConfig&, const std::string&)) {
  Gpt model(weights.config());
  bool same = true;
  for (const Parameter& p : model.parameters())
    same = same && same_bits(weights.load(p.name), values(weights.config(), p.name));
  return same;
}

std::string refusal(const std::vector<HandTensor>& tensors, std::optional<int64_t> heads = {},
                    const std::string& metadata = "{\"n_head\":\"2\"}") {
  const ScratchFolder folder;
  const std::string path = folder.write("m.safetensors", safetensors_bytes(tensors, metadata));
  return sentence_of([&] { open_safetensors_weights(path, heads); });
}

}  // namespace

TEST_CASE("saved weights are loaded with the same bits", "[nn]") {
  const ScratchFolder folder;
  for (const GptConfig& config :
       {kSmallModel, GptConfig{12, 1, 3, 7, 130}}) {  // blocks 10 and 11 sort before block 2
    const std::string path = folder.path("m.safetensors");
    save_safetensors_weights(path, config,
                             [&](const std::string& name) { return random_bits(config, name); });
    const auto weights = open_weights(path);
    CHECK(weights->config() == config);
    CHECK(weights->format() == std::string("safetensors"));
    CHECK(holds(*weights, random_bits));
    CHECK_FALSE(holds(*weights, whole_numbers));
    CHECK_THROWS_AS(weights->load("lm_head.weight"), std::invalid_argument);
  }
  CHECK(folder.names() == std::vector<std::string>{"m.safetensors"});
}

TEST_CASE("a saved file is fp32, without prefix and lm_head, and contains the number of heads",
          "[nn]") {
  const ScratchFolder folder;
  std::vector<std::string> asked;
  save_safetensors_weights(folder.path("m.safetensors"), kSmallModel, [&](const std::string& name) {
    asked.push_back(name);
    return whole_numbers(kSmallModel, name);
  });
  CHECK_THROWS_AS(
      save_safetensors_weights(folder.path("m.safetensors"), kSmallModel,
                               [](const std::string&) { return std::vector<float>(3); }),
      std::invalid_argument);
  const SafetensorsFile file(folder.path("m.safetensors"));  // the old one
  CHECK(file.metadata() == SafetensorsMetadata{{"format", "pt"}, {"n_head", "2"}});
  REQUIRE(file.entries().size() == 4 + 2 * 12);
  for (const SafetensorsEntry& e : file.entries()) {
    CHECK(e.dtype == "F32");
    CHECK(e.shape == shape_of(kSmallModel, e.name));
  }
  CHECK(file.find("lm_head.weight") == nullptr);
  CHECK(std::is_sorted(asked.begin(), asked.end()));
  CHECK(
      asked.size() ==
      file.entries().size());  // each once: each parameter of a sharded model is all-gathered once
}

TEST_CASE("F32, F16 and BF16 are read, with and without prefix", "[nn]") {
  const ScratchFolder folder;
  for (const std::string prefix : {"", "transformer."}) {
    CHECK(holds(
        *open_weights(folder.write("a", safetensors_bytes(hand_tensors<float>("F32", prefix)))),
        whole_numbers));
    CHECK(
        holds(*open_weights(folder.write("b", safetensors_bytes(hand_tensors<f16>("F16", prefix)))),
              whole_numbers));
    CHECK(holds(
        *open_weights(folder.write("c", safetensors_bytes(hand_tensors<bf16>("BF16", prefix)))),
        whole_numbers));
  }
  auto tensors = hand_tensors<float>("F32");
  find(tensors, "h.1.ln_2.bias") = {"h.1.ln_2.bias", "F64", {4}, std::string(32, '\0')};
  check_says(refusal(tensors), "'h.1.ln_2.bias' is F64; expected F32, F16 or BF16");
}

TEST_CASE("mask buffers are skipped, whatever their type", "[nn]") {
  auto tensors = hand_tensors<float>("F32", "transformer.");
  tensors.push_back({"transformer.h.0.attn.bias", "U8", {1, 1, 3, 3}, std::string(9, '\1')});
  tensors.push_back({"transformer.h.1.attn.masked_bias", "F32", {}, std::string(4, '\0')});
  CHECK(refusal(tensors).empty());
  tensors.push_back({"transformer.h.1.attn.c_bias", "F32", {}, std::string(4, '\0')});
  check_says(refusal(tensors),
             "1 tensor that a GPT-2 with 2 layers does not have: transformer.h.1.attn.c_bias");
}

TEST_CASE("a head is accepted only if it is the token embedding, bit for bit", "[nn]") {
  auto tensors = hand_tensors<float>("F32");
  HandTensor head = find(tensors, "wte.weight");
  head.name = "lm_head.weight";
  tensors.push_back(head);
  CHECK(refusal(tensors).empty());
  tensors.back().bytes[4 * 13] ^= 1;  // row 3, column 1
  check_says(refusal(tensors), "'lm_head.weight' differs from 'wte.weight' in row 3, column 1");
  tensors.back() = {"lm_head.weight", "F32", {4, 5}, head.bytes};
  check_says(refusal(tensors), "has shape (4, 5); expected (5, 4)");
}

TEST_CASE("the number of heads is in the metadata or given by the caller, and they must not differ",
          "[nn]") {
  const auto tensors = hand_tensors<float>("F32");
  const ScratchFolder folder;
  const std::string with = folder.write("a", safetensors_bytes(tensors)),
                    without = folder.write("b", safetensors_bytes(tensors, "{}"));
  CHECK(open_weights(with)->config().heads == 2);
  CHECK(open_weights(with, 2)->config().heads == 2);
  CHECK(open_weights(without, 4)->config().heads == 4);
  check_says(refusal(tensors, {}, "{}"), "has no n_head in its metadata");
  check_says(refusal(tensors, 4), "has n_head 2, but n-head 4 was given");
  check_says(refusal(tensors, 3, "{}"), "4 cannot be split into 3 heads");
  for (const char* wrong : {"", "two", "2x", "0", "-2", "99999999999999999999"})
    check_says(refusal(tensors, {}, str("{\"n_head\":\"", wrong, "\"}")),
               str("n_head in the metadata is '", wrong, "'"));
}

TEST_CASE("missing tensors are counted and named", "[nn]") {
  auto tensors = hand_tensors<float>("F32");
  std::erase_if(tensors, [](const HandTensor& t) { return t.name == "h.0.mlp.c_fc.bias"; });
  check_says(refusal(tensors),
             "lacks 1 of the 28 tensors of a GPT-2 with 2 layers: h.0.mlp.c_fc.bias");
  std::erase_if(tensors, [](const HandTensor& t) {
    return t.name.starts_with("h.0.");
  });  // a hole: block 1 is there
  check_says(refusal(tensors), "lacks 12 of the 28 tensors");
  check_says(refusal(tensors), "h.0.ln_1.weight, h.0.ln_1.bias, h.0.attn.c_attn.weight and 9 more");
  std::erase_if(tensors, [](const HandTensor& t) { return t.name.starts_with("h."); });
  check_says(refusal(tensors), "no block");
  std::erase_if(tensors, [](const HandTensor& t) { return t.name == "wpe.weight"; });
  check_says(refusal(tensors), "it has no tensor 'wpe.weight'");
}

TEST_CASE("tensors of wrong shape are refused with both shapes", "[nn]") {
  const auto with = [](const std::string& name, Shape shape) {
    auto tensors = hand_tensors<float>("F32");
    find(tensors, name) = {name, "F32", shape, std::string(size_t(4 * numel(shape)), '\0')};
    return refusal(tensors);
  };
  check_says(with("h.1.attn.c_attn.weight", {12, 4}),
             "'h.1.attn.c_attn.weight' has shape (12, 4); expected (4, 12)");
  check_says(with("ln_f.bias", {4, 1}), "'ln_f.bias' has shape (4, 1); expected (4)");
  check_says(with("wpe.weight", {3, 5}), "'wpe.weight' has shape (3, 5); expected (3, 4)");
  check_says(with("wte.weight", {20}), "'wte.weight' has shape (20); expected a matrix");
  check_says(with("wte.weight", {0, 4}), "vocab-size 0");
  CHECK(with("wte.weight", {2, 4})
            .empty());  // with a smaller vocabulary it is another, complete model
}

TEST_CASE("names that are no parameter, or one twice, are refused", "[nn]") {
  auto tensors = hand_tensors<float>("F32");
  tensors.push_back({"transformer.ln_f.bias", "F32", {4}, std::string(16, '\0')});
  check_says(refusal(tensors), "the same parameter");
  tensors.back().name = "h.1000000000000.ln_1.bias";
  check_says(refusal(tensors), "belongs to block 1000000000000, but there are only 29 tensors");
  tensors.back().name = "h.01.ln_1.bias";
  check_says(refusal(tensors), "h.01.ln_1.bias");
  tensors.back().name = "score.weight";
  check_says(refusal(tensors), "1 tensor that a GPT-2 with 2 layers does not have: score.weight");
  check_says(refusal({{"model.embed_tokens.weight", "F32", {1}, "1234"}}),
             "is not a GPT-2 checkpoint");
}

}  // namespace zl
