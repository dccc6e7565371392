#include "nn/formats/hugging_face.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "nn/formats/pytorch.h"
#include "tensor/error.h"
#include "tensor/io/small_file.h"

namespace zl {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr size_t kLargestJson = 100 << 20;  // [B]

using WeightMap = std::map<std::string, std::string>;  // tensor -> name of its file

json read_json(const std::string& path, const char* what) {
  const std::string text = read_small_file(path, {what, kLargestJson});
  check_json(text, "'" + path + "'");
  return json::parse(text);
}

// Sizes of the model, by their names in transformers.
constexpr struct Size {
  const char* keys;
  int64_t GptConfig::*member;
  int64_t times = 1;
} kSizes[] = {{"n_layer num_hidden_layers", &GptConfig::layers},
              {"n_head num_attention_heads", &GptConfig::heads},
              {"n_embd hidden_size", &GptConfig::width},
              {"n_inner", &GptConfig::width, 4},
              {"n_positions max_position_embeddings n_ctx", &GptConfig::block_size},
              {"vocab_size", &GptConfig::vocab}};

// Keys that transformers' GPT2Model and PreTrainedConfig compute with, and the JSON values that
// give our model. The five names of GELU are one function in different orders of rounding.
constexpr struct Function {
  std::string_view keys, honoured;
} kFunctions[] = {
    {"model_type", R"("gpt2")"},
    {"architectures", R"(null [] ["GPT2LMHeadModel"] ["GPT2Model"] ["GPT2DoubleHeadsModel"])"},
    {"activation_function",
     R"("gelu_new" "gelu_fast" "gelu_accurate" "gelu_pytorch_tanh" "gelu_python_tanh")"},
    {"layer_norm_epsilon", "1e-05"},
    {"scale_attn_weights tie_word_embeddings", "true"},
    {"scale_attn_by_inverse_layer_idx add_cross_attention is_encoder_decoder", "false"},
    {"reorder_and_upcast_attn", "false true"},  // another order of rounding
    {"quantization_config", "null"},
    {"pruned_heads per_layer_config auto_map", "null {}"}};  // the last: code of the model's own

constexpr std::string_view kDropout = "resid_pdrop embd_pdrop attn_pdrop";

// Keys of GPT2Config, PreTrainedConfig and their older versions that do not change the loss: types
// of storage, other heads, text generation, labels and names.
constexpr std::string_view kNoEffect =
    "_name_or_path name_or_path transformers_version _commit_hash dtype torch_dtype torchscript "
    "use_bfloat16 tf_legacy_loss initializer_range use_cache output_past output_attentions "
    "output_hidden_states return_dict use_return_dict chunk_size_feed_forward "
    "gradient_checkpointing attn_implementation _attn_implementation "
    "_attn_implementation_autoset is_decoder cross_attention_hidden_size summary_type "
    "summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout "
    "summary_last_dropout predict_special_tokens n_special num_labels _num_labels id2label "
    "label2id problem_type finetuning_task task_specific_params tokenizer_class prefix "
    "bos_token_id "
    "eos_token_id pad_token_id sep_token_id decoder_start_token_id max_length min_length do_sample "
    "early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p typical_p "
    "repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size "
    "bad_words_ids num_return_sequences output_scores return_dict_in_generate forced_bos_token_id "
    "forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens "
    "begin_suppress_tokens";

bool has_word(std::string_view words, std::string_view word) {
  return (" " + std::string(words) + " ").find(" " + std::string(word) + " ") != std::string::npos;
}

WeightMap weight_map_of(const std::string& index, const json& content) {
  const auto found = content.find("weight_map");
  require_input(content.is_object() && found != content.end() && found->is_object(), "'", index,
                "' has no weight_map; expected the index of safetensors files");
  require_input(!found->empty(), "'", index, "': weight_map is empty");
  WeightMap map;
  for (const auto& [tensor, file] : found->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    const bool plain =
        !name.empty() && name != "." && name != ".." && fs::path(name).filename() == name;
    require_input(plain, "'", index, "' assigns tensor '", tensor, "' to ",
                  file.is_string() ? str("'", name, "'") : str("a JSON ", file.type_name()),
                  "; expected the name of a file in the same folder");
    map.emplace(tensor, name);
  }
  return map;
}

// Throws unless the file has exactly the tensors that the index assigns to it.
void check_shard(const std::string& index, const WeightMap& map, const std::string& name,
                 const SafetensorsFile& file) {
  for (const auto& [tensor, assigned] : map)
    require_input(assigned != name || file.find(tensor), "'", index, "' assigns tensor '", tensor,
                  "' to '", file.path(), "', which does not have it among its ",
                  file.entries().size());
  for (const SafetensorsEntry& e : file.entries()) {
    const auto found = map.find(e.name);
    require_input(found != map.end(), "'", file.path(), "' has tensor '", e.name, "', which '",
                  index, "' does not list");
    require_input(found->second == name, "'", file.path(), "' has tensor '", e.name, "', which '",
                  index, "' assigns to '", found->second, "'");
  }
}

// Throws if there is a total_size and it is not the bytes of all tensors. Older versions of
// transformers counted an element of BOOL, the type of GPT-2's masks, as 1/8 byte.
void check_total_size(const std::string& index, const json& content,
                      const std::deque<SafetensorsFile>& files) {
  const auto metadata = content.find("metadata");
  if (metadata == content.end()) return;
  require_input(metadata->is_object(), "'", index, "': metadata is a JSON ", metadata->type_name(),
                "; expected an object");
  const auto size = metadata->find("total_size");
  if (size == metadata->end()) return;
  require_input(size->is_number(), "'", index, "': total_size is a JSON ", size->type_name(),
                "; expected a number");
  int64_t bytes = 0, booleans = 0;
  for (const SafetensorsFile& file : files)
    for (const SafetensorsEntry& e : file.entries())
      (e.dtype == "BOOL" ? booleans : bytes) += e.bytes();
  const double stated = size->get<double>();
  require_input(
      stated == double(bytes + booleans) || stated == double(bytes) + double(booleans) / 8, "'",
      index, "': total_size is ", size->dump(), ", but the tensors in its ", files.size(),
      " files have ", bytes + booleans, " bytes; are all files of the same model?");
}

}  // namespace

std::deque<SafetensorsFile> open_shards(const std::string& index) {
  const json content = read_json(index, "safetensors index");
  const WeightMap map = weight_map_of(index, content);
  std::map<std::string, int64_t> tensors;  // of each file
  for (const auto& [tensor, name] : map) ++tensors[name];
  std::deque<SafetensorsFile> files;
  std::error_code ignored;
  for (const auto& [name, count] : tensors) {
    const std::string path = (fs::path(index).parent_path() / name).string();
    require_input(fs::exists(path, ignored), "there is no file '", path, "', but '", index,
                  "' assigns ", count, " tensors to it");
    refuse_pytorch_file(path);
    check_shard(index, map, name, files.emplace_back(path));
  }
  check_total_size(index, content, files);
  return files;
}

HuggingFaceConfig read_hugging_face_config(const std::string& path, const GptConfig& weights) {
  HuggingFaceConfig config;
  const json content = read_json(path, "model configuration");
  require_input(content.is_object(), "'", path, "' is a JSON ", content.type_name(),
                "; expected an object");
  std::string dropout, unknown;
  for (const auto& [key, value] : content.items()) {
    const std::string text = value.dump(),
                      what = str("'", path, "': ", key, " is ",
                                 text.size() < 80 ? text : str("a long JSON ", value.type_name()));
    const auto has_key = [key = key](const auto& row) { return has_word(row.keys, key); };
    const auto size = std::ranges::find_if(kSizes, has_key);
    const auto function = std::ranges::find_if(kFunctions, has_key);
    if (size != std::end(kSizes)) {
      if (value.is_null() && key == "n_inner") continue;
      require_input(value.is_number_unsigned() && value >= 1 && value <= uint64_t(INT64_MAX), what,
                    "; expected a whole number from 1");
      const int64_t n = value;
      const bool heads = size->member == &GptConfig::heads;  // which the weights do not show
      const int64_t expected =
          heads ? config.heads.value_or(n) : weights.*size->member * size->times;
      require_input(n == expected, what, ", but ",
                    heads ? "another key says " : "the weights have ", expected,
                    "; they are not of the same model");
      if (heads) config.heads = n;
    } else if (function != std::end(kFunctions)) {
      require_input(has_word(function->honoured, text), what, ", which changes the model; only ",
                    function->honoured, " can be read");
    } else if (has_word(kDropout, key)) {
      require_input(value.is_number() && value >= 0 && value <= 1, what,
                    "; expected a number from 0 to 1");
      if (value > 0) dropout += str(dropout.empty() ? "" : ", ", key, " ", text);
    } else if (!has_word(kNoEffect, key)) {
      unknown += (unknown.empty() ? "" : ", ") + key;
    }
  }
  if (!dropout.empty())
    config.notes.push_back(str(path, ": ", dropout,
                               ": there is no dropout here, so training differs from that of "
                               "transformers"));
  if (!unknown.empty())
    config.notes.push_back(
        str(path, ": ", unknown, ": no key of GPT-2, so ignored, as in transformers"));
  return config;
}

}  // namespace zl
