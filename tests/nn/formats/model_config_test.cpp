// config.json beside weights: each key of transformers' GPT-2 is honoured, changes nothing, or is
// refused. What changes the function was found by reading GPT2Config and GPT2Model of transformers
// 5.24: which keys modeling_gpt2.py reads, and what it does with them.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "nn/formats/weights.h"
#include "tests/nn/model_values.h"

namespace zl {
namespace {

// The weights of kSmallModel as Hugging Face saves them, without n_head, beside a config.json.
class Folder {
 public:
  Folder() {
    folder_.write("model.safetensors",
                  safetensors_bytes(hand_tensors<float>("F32"), "{\"format\":\"pt\"}"));
  }
  std::unique_ptr<GptWeights> open(const std::string& config) const {
    folder_.write("config.json", config);
    return open_weights(folder_.path(""));
  }
  // The sentence about a config.json with n_head and these members; "" if it is taken.
  std::string refusal(const std::string& members) const {
    return sentence_of([&] { open("{\"n_head\": 2, " + members + "}"); });
  }
  std::vector<std::string> notes(const std::string& members) const {
    return open("{\"n_head\": 2, " + members + "}")->info().notes;
  }
  std::string path(const std::string& name) const { return folder_.path(name); }

 private:
  ScratchFolder folder_;
};

// GPT2Config(...).to_json_string(use_diff=False) of transformers 5.24.
const std::string kTransformers5 = R"({"_name_or_path": "", "activation_function": "gelu_new",
  "add_cross_attention": false, "architectures": null, "attn_pdrop": 0.0, "bos_token_id": 50256,
  "chunk_size_feed_forward": 0, "dtype": null, "embd_pdrop": 0.0, "eos_token_id": 50256,
  "id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "initializer_range": 0.02,
  "is_encoder_decoder": false, "label2id": {"LABEL_0": 0, "LABEL_1": 1},
  "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_embd": 4, "n_head": 2, "n_inner": null,
  "n_layer": 2, "n_positions": 3, "output_attentions": false, "output_hidden_states": false,
  "pad_token_id": null, "problem_type": null, "reorder_and_upcast_attn": false, "resid_pdrop": 0.0,
  "return_dict": true, "scale_attn_by_inverse_layer_idx": false, "scale_attn_weights": true,
  "summary_activation": null, "summary_first_dropout": 0.1, "summary_proj_to_labels": true,
  "summary_type": "cls_index", "summary_use_proj": true, "tie_word_embeddings": true,
  "transformers_version": "5.24.0", "use_cache": true, "vocab_size": 5})";

// The config.json of the published gpt2, with the sizes of kSmallModel.
const std::string kPublished = R"({"activation_function": "gelu_new",
  "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
  "embd_pdrop": 0.1, "eos_token_id": 50256, "initializer_range": 0.02, "layer_norm_epsilon": 1e-05,
  "model_type": "gpt2", "n_ctx": 3, "n_embd": 4, "n_head": 2, "n_layer": 2, "n_positions": 3,
  "resid_pdrop": 0.1, "summary_activation": null, "summary_first_dropout": 0.1,
  "summary_proj_to_labels": true, "summary_type": "cls_index", "summary_use_proj": true,
  "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
  "vocab_size": 5})";

}  // namespace

TEST_CASE("the config.json of transformers and of the published gpt2 are taken", "[nn]") {
  const Folder folder;
  const auto newest = folder.open(kTransformers5), published = folder.open(kPublished);
  CHECK((newest->config() == kSmallModel && published->config() == kSmallModel));
  CHECK(newest->info().notes.empty());
  REQUIRE(published->info().notes.size() == 1);  // fine-tuning has no dropout
  check_says(published->info().notes[0], "attn_pdrop 0.1, embd_pdrop 0.1, resid_pdrop 0.1");
}

TEST_CASE("a key that changes the function is refused by name and value", "[nn]") {
  const Folder folder;
  for (const auto& [key, right, wrong] :
       {std::tuple{"model_type", "\"gpt2\"", "\"llama\""},
        {"model_type", "\"gpt2\"", "\"gpt_neo\""},
        {"model_type", "\"gpt2\"", "null"},
        {"activation_function", "\"gelu_new\"", "\"relu\""},
        {"activation_function", "\"gelu_pytorch_tanh\"", "\"gelu\""},
        {"activation_function", "\"gelu_fast\"", "\"quick_gelu\""},
        {"activation_function", "\"gelu_accurate\"", "\"gelu_10\""},
        {"activation_function", "\"gelu_python_tanh\"", "[\"gelu_new\"]"},
        {"layer_norm_epsilon", "1e-05", "1e-06"},
        {"layer_norm_epsilon", "0.00001", "2e-05"},
        {"layer_norm_epsilon", "1E-5", "\"1e-05\""},
        {"scale_attn_weights", "true", "false"},
        {"scale_attn_weights", "true", "\"true\""},
        {"scale_attn_by_inverse_layer_idx", "false", "true"},
        {"reorder_and_upcast_attn", "true", "1"},
        {"add_cross_attention", "false", "true"},
        {"is_encoder_decoder", "false", "true"},
        {"tie_word_embeddings", "true", "false"},
        {"architectures", "[\"GPT2LMHeadModel\"]", "[\"LlamaForCausalLM\"]"},
        {"architectures", "[\"GPT2Model\"]", "[\"GPT2ForSequenceClassification\"]"},
        {"pruned_heads", "{}", R"({"0": [1]})"},
        {"per_layer_config", "null", R"({"0": {"n_head": 1}})"},
        {"quantization_config", "null", R"({"quant_method": "gptq"})"},
        {"auto_map", "{}", R"({"AutoModel": "modeling.Model"})"}}) {
    CAPTURE(key, wrong);
    CHECK(folder.refusal(str("\"", key, "\": ", right)).empty());
    const std::string sentence = folder.refusal(str("\"", key, "\": ", wrong));
    check_says(sentence, str("config.json': ", key, " is "));
    if (wrong[0] != '{') check_says(sentence, wrong);
  }
}

TEST_CASE("sizes that contradict the weights are refused with both numbers", "[nn]") {
  const Folder folder;
  for (const auto& [key, size] : {std::pair{"n_layer", 2},
                                  {"num_hidden_layers", 2},
                                  {"n_embd", 4},
                                  {"hidden_size", 4},
                                  {"n_inner", 16},
                                  {"n_positions", 3},
                                  {"max_position_embeddings", 3},
                                  {"n_ctx", 3},
                                  {"vocab_size", 5}}) {
    CAPTURE(key);
    CHECK(folder.refusal(str("\"", key, "\": ", size)).empty());
    check_says(folder.refusal(str("\"", key, "\": ", size + 1)),
               str("config.json': ", key, " is ", size + 1, ", but the weights have ", size));
    for (const char* wrong : {"0", "-2", "2.0", "\"2\"", "true", "[2]", "99999999999999999999"})
      check_says(folder.refusal(str("\"", key, "\": ", wrong)),
                 str(key, " is ", std::string(wrong) == "99999999999999999999" ? "1e+20" : wrong));
    CHECK(folder.refusal(str("\"", key, "\": null")).empty() == (key == std::string("n_inner")));
  }
  CHECK(folder.open("{\"num_attention_heads\": 4}")->config().heads == 4);
  check_says(folder.refusal("\"num_attention_heads\": 4"),
             "num_attention_heads is 4, but another key says 2");
}

TEST_CASE("keys that GPT-2 does not know are ignored with a note, as transformers does", "[nn]") {
  const Folder folder;
  CHECK(folder.notes("\"use_cache\": false, \"torch_dtype\": \"float16\"").empty());
  const auto notes = folder.notes("\"activation_fuction\": \"relu\", \"rope_theta\": 1e4");
  REQUIRE(notes.size() == 1);
  check_says(notes[0], "config.json: activation_fuction, rope_theta: no key");
  CHECK(folder.notes("\"resid_pdrop\": 0").empty());
  for (const char* wrong : {"\"0.1\"", "-0.1", "1.5", "null"})
    check_says(folder.refusal(str("\"resid_pdrop\": ", wrong)), "expected a number from 0 to 1");
}

TEST_CASE("a config.json that is no object, cannot be read or is too deep is refused", "[nn]") {
  const Folder folder;
  const auto refused = [&](const std::string& text) {
    return sentence_of([&] { folder.open(text); });
  };
  check_says(refused("[]"), "config.json' is a JSON array; expected an object");
  check_says(refused("{"), "is not valid JSON");
  check_says(refused("{\"n_head\": 2, \"n_head\": 2}"), "occurs twice");
  check_says(refused("{\"n_head\": 2, \"x\": " + std::string(100'000, '[')),
             "is nested deeper than 64 levels");
  std::filesystem::remove(folder.path("config.json"));
  std::filesystem::create_directory(folder.path("config.json"));
  check_says(sentence_of([&] { open_weights(folder.path("")); }),
             "config.json cannot be read: Is a directory");
}

}  // namespace zl
