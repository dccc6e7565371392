// Folders with weights: which file is taken, and what is said about checkpoints of DeepSpeed and
// files of PyTorch, which are not read.

#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "nn/formats/weights.h"
#include "tests/nn/model_values.h"

namespace zl {
namespace {

void save(const std::string& path,
          std::vector<float> (*values)(const GptConfig&, const std::string&) = whole_numbers) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  save_safetensors_weights(path, kSmallModel,
                           [&](const std::string& name) { return values(kSmallModel, name); });
}

void create(const std::string& path) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path) << "x";
}

std::string folder_refusal(const std::string& path) {
  return sentence_of([&] { open_weights(path); });
}

// The first bytes that torch.save writes: today a zip archive, before PyTorch 1.6 a pickle of
// protocol 2 with the number 0x1950a86a20f9469cfc6c.
const std::string kZip("PK\3\4\0\0\10\10\0\0\0\0\0\0\0\0\0\0\0\0", 20);
const std::string kPickle("\x80\2\x8a\nl\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\2M\xe9\3.", 20);

}  // namespace

TEST_CASE("in a folder model.safetensors is taken, with or without a slash at the end", "[nn]") {
  const ScratchFolder folder;
  save(folder.path("model.safetensors"));
  save(folder.path("exp_avg.safetensors"), random_bits);  // as in a checkpoint
  save(folder.path("exp_avg_sq.safetensors"), random_bits);
  folder.write("checkpoint.json", "{}");
  for (const char* end : {"", "/"}) {
    const auto weights = open_weights(folder.path("") + end);
    CHECK(weights->load("wte.weight") == whole_numbers(kSmallModel, "wte.weight"));
    CHECK_FALSE(weights->load("wte.weight") == random_bits(kSmallModel, "wte.weight"));
  }
}

TEST_CASE("a folder without weights is refused", "[nn]") {
  const ScratchFolder folder;
  check_says(folder_refusal(folder.path("")),
             "has neither model.safetensors nor model.safetensors.index.json");
  std::filesystem::create_directory(folder.path("model.bin"));
  check_says(folder_refusal(folder.path("model.bin")), "has neither");
  CHECK_FALSE(folder_refusal(folder.path("none")).empty());
}

TEST_CASE("in a folder of checkpoints one must be named; the highest is the example", "[nn]") {
  const ScratchFolder folder;
  for (const char* step : {"step-00000200", "step-00000900", "step-100000000"})
    save(folder.path(str(step, "/model.safetensors")));
  std::filesystem::create_directory(folder.path("step-999999999.new"));
  folder.write("step-999999999", "a file");
  check_says(folder_refusal(folder.path("")),
             str("has 3 checkpoints and no model.safetensors; name one of them, such as '",
                 folder.path("step-100000000"), "'"));
  CHECK(folder_refusal(folder.path("step-100000000")).empty());
  save(folder.path("model.safetensors"));  // the weights at the end of the run
  CHECK(folder_refusal(folder.path("")).empty());
}

TEST_CASE("a checkpoint of DeepSpeed is refused with the command that converts it", "[nn]") {
  // The names are those of deepspeed/runtime/engine.py; the command is that of
  // deepspeed/utils/zero_to_fp32.py, which DeepSpeed copies into the folder.
  const ScratchFolder folder;
  const std::string top = folder.path("ckpt"), script = top + "/zero_to_fp32.py",
                    step = top + "/global_step40";
  create(step + "/mp_rank_00_model_states.pt");
  create(step + "/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
  const std::string module = str("python -m deepspeed.utils.zero_to_fp32 ", top, " ", top,
                                 "/fp32 --safe_serialization"),
                    convert =
                        str("python ", script, " ", top, " ", top, "/fp32 --safe_serialization"),
                    then = str("then give ", top, "/fp32 instead");

  check_says(folder_refusal(top), "has neither");  // nothing names the subfolder
  std::ofstream(top + "/latest") << "global_step40\n";
  check_says(folder_refusal(top), "checkpoint of DeepSpeed");
  check_says(folder_refusal(top), "zero_to_fp32.py");
  check_says(folder_refusal(top), module);
  create(script);
  for (const std::string end : {"", "/"}) {
    check_says(folder_refusal(top + end), convert + ",");
    check_says(folder_refusal(top + end), then);
    check_says(folder_refusal(step + end), convert + " --tag global_step40,");
    check_says(folder_refusal(step + end), then);
  }
  check_says(folder_refusal(step + "/mp_rank_00_model_states.pt"),
             convert + " --tag global_step40,");
  std::filesystem::remove(top + "/latest");
  check_says(folder_refusal(top), convert);

  save(top + "/fp32/model.safetensors");
  CHECK(folder_refusal(top + "/fp32").empty());
  save(top + "/model.safetensors");  // somebody has converted it already
  CHECK(folder_refusal(top).empty());
}

TEST_CASE("a file latest that names no checkpoint does not make a folder DeepSpeed's", "[nn]") {
  const ScratchFolder folder;
  for (const char* text : {"global_step40", "", "\n", "."}) {
    folder.write("latest", text);
    check_says(folder_refusal(folder.path("")), "has neither");
  }
}

TEST_CASE("a file of PyTorch is refused with the lines that convert it, whatever its name",
          "[nn]") {
  const ScratchFolder folder;
  for (const char* name : {"model.bin", "model.pt", "model.safetensors"})
    for (const std::string& bytes : {kZip, kPickle}) {
      const std::string path = folder.write(name, bytes), sentence = folder_refusal(path);
      check_says(sentence, str("'", path, "' is a file of PyTorch"));
      check_says(sentence, "\n  import torch; from safetensors.torch import save_file\n");
      check_says(sentence, str("\n  path = \"", path, "\"\n"));
      check_says(sentence, "torch.load(path, ");
    }
  std::filesystem::remove(folder.path("model.safetensors"));
  const std::string path = folder.write("pytorch_model.bin", kZip);  // of a folder
  check_says(folder_refusal(folder.path("")), str("'", path, "' is a file of PyTorch"));
  folder.write("pytorch_model.bin.index.json",
               "{\"weight_map\": {\"wte.weight\": \"pytorch_model.bin\"}}");
  check_says(folder_refusal(folder.path("pytorch_model.bin.index.json")),
             str("'", path, "' is a file of PyTorch"));
}

}  // namespace zl
