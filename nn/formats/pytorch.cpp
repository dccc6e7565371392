#include "nn/formats/pytorch.h"

#include <filesystem>
#include <fstream>

#include "tensor/error.h"
#include "tensor/io/file_kind.h"

namespace zl {

namespace {

namespace fs = std::filesystem;

constexpr const char* kScript = "zero_to_fp32.py";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// nanoGPT stores linear weights as (out, in) and may have no biases, which are zeros then.
constexpr char kConvert[] = R"(
  ck = torch.load(path, map_location="cpu", weights_only=True)
  sd = {k.removeprefix("_orig_mod."): v for k, v in ck.get("model", ck).items()}
  tables = ("wte.weight", "wpe.weight", "lm_head.weight")
  rows, columns = next(v.shape for k, v in sd.items() if k.endswith("h.0.attn.c_attn.weight"))
  for k, v in list(sd.items()):
      if rows > columns and k.endswith(".weight") and not k.endswith(tables):
          sd[k], sd[k[:-6] + "bias"] = v.t(), sd.get(k[:-6] + "bias", torch.zeros(len(v)))
  heads = {"n_head": str(ck["model_args"]["n_head"])} if "model_args" in ck else None
  save_file({k: v.contiguous().clone() for k, v in sd.items()}, "model.safetensors", heads)
)";

// mp_rank_00_model_states.pt, zero_pp_rank_0_mp_rank_00_optim_states.pt and others.
bool is_deepspeed_file(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with("_model_states.pt") || name.ends_with("_optim_states.pt");
}

bool has_deepspeed_files(const fs::path& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (is_deepspeed_file(entry.path())) return true;
  return false;
}

// The folder of the newest step, as the file `latest` names it, or "".
fs::path latest_step(const fs::path& folder) {
  std::string tag;
  std::ifstream(folder / "latest") >> tag;
  return tag.empty() ? "" : folder / tag;
}

// `tag`: a step that is not necessarily the newest, or "".
[[noreturn]] void refuse_deepspeed(const std::string& path, const std::string& top,
                                   const std::string& tag) {
  const fs::path script = fs::path(top) / kScript, out = fs::path(top) / "fp32";
  const std::string program =
      is_there(script) ? script.string() : "-m deepspeed.utils.zero_to_fp32";
  throw InputError(str("'", path, "' is a checkpoint of DeepSpeed, which only its own ", kScript,
                       " can read: run python ", program, " ", top, " ", out.string(),
                       " --safe_serialization", tag.empty() ? "" : " --tag " + tag, ", then give ",
                       out.string(), " instead (--init-from ", out.string(), ")"));
}

}  // namespace

void refuse_pytorch_file(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return;
  if (is_deepspeed_file(path))
    refuse_deepspeed_checkpoint(fs::absolute(path).parent_path().string());
  // torch.save writes a zip archive; before PyTorch 1.6 it wrote pickles of protocol 2.
  const std::string_view is = recognise_file_at(path).is;
  require_input(is != "a zip archive" && is != "a pickle of Python", "'", path,
                "' is a file of PyTorch, which is not read here. If it holds a state dict, or is a "
                "checkpoint of nanoGPT, convert it with\n"
                "  import torch; from safetensors.torch import save_file\n  path = \"",
                path, "\"", kConvert,
                "in Python, then give model.safetensors instead (--init-from model.safetensors)");
}

void refuse_deepspeed_checkpoint(const std::string& folder) {
  fs::path path = folder;
  if (!path.has_filename()) path = path.parent_path();  // a slash at the end
  if (is_there(path / kScript) || has_deepspeed_files(latest_step(path)))
    refuse_deepspeed(folder, path.string(), "");
  if (!has_deepspeed_files(path)) return;
  path = fs::canonical(path);  // has a parent, even if it was "."
  refuse_deepspeed(folder, path.parent_path().string(), path.filename().string());
}

}  // namespace zl
