#include "stages/stage_file.h"

#include <algorithm>
#include <string>
#include <utility>

namespace zl {
namespace {

bool table_is_made = false;

std::vector<StageFile>& registered() {
  static std::vector<StageFile> files;
  return files;
}

}  // namespace

const std::vector<StageFile>& stage_files() {
  static const std::vector<StageFile> files = [] {
    std::vector<StageFile> all = library_stages();
    for (const StageFile& file : registered()) {
      require(std::ranges::count(all, std::string_view(file.name), &StageFile::name) == 0,
              "a stage '", file.name, "' exists: give yours another name");
      require(file.parent && std::ranges::count(kStages, StageKind(file.parent)) > 0, "stage ",
              file.name, " needs a parent, ddp, zero1, zero2 or zero3: the one that it changes");
      all.push_back(file);
    }
    // The four have no parent. The others by name, so that every build gives one order.
    std::ranges::sort(all, {}, [](const StageFile& file) {
      return std::pair(file.is_variant(), std::string_view(file.name));
    });
    table_is_made = true;
    return all;
  }();
  return files;
}

std::vector<StageKind> all_stages() {
  std::vector<StageKind> all;
  for (const StageFile& file : stage_files()) all.emplace_back(file.name);
  return all;
}

const StageFile& file_of(StageKind kind) {
  for (const StageFile& file : stage_files())
    if (kind == StageKind(file.name)) return file;
  std::string all;
  for (const StageFile& file : stage_files())
    all += (all.empty() ? "" : ", ") + std::string(file.name);
  throw InputError(str("there is no stage '", kind.text(), "'; there are ", all,
                       ". A stage of your own needs ZL_REGISTER in the program's file"));
}

bool register_stage(const StageFile& file) {
  require(!table_is_made, "stage ", file.name, " is registered after stages were asked for");
  registered().push_back(file);
  return true;
}

std::strong_ordering operator<=>(StageKind a, StageKind b) {
  return &file_of(a) <=> &file_of(b);  // elements of one table
}

StageKind parent(StageKind kind) {
  const StageFile& file = file_of(kind);
  return file.is_variant() ? StageKind(file.parent) : kind;
}

int stage_number(StageKind kind) {
  return int(std::ranges::find(kStages, parent(kind)) - std::begin(kStages));
}

bool offloads_optimizer(const Options& o) {
  return o.offload_optimizer != OffloadDevice::none && shards_optimizer(o.stage);
}
bool offloads_parameter(const Options& o) {
  return o.offload_param != OffloadDevice::none && shards_parameter(o.stage);
}
bool needs_disk(const Options& o) {
  return (offloads_optimizer(o) && o.offload_optimizer == OffloadDevice::nvme) ||
         (offloads_parameter(o) && o.offload_param == OffloadDevice::nvme);
}

void check(const Options& o, const Memories& memories) {
  const StageFile& file = file_of(o.stage);
  const Dtype sum = compute_type(o.precision), kept = o.grad_accum_dtype.value_or(o.precision);
  require_input(o.accumulation > 0, "a step needs at least one micro-batch, not ", o.accumulation);
  require_input(is_float(o.precision), "parameters of ", name(o.precision), " cannot be trained");
  require_input(kept == o.precision || kept == Dtype::f32, "gradients of parameters of ",
                name(o.precision), " are accumulated in that type or in f32, not in ", name(kept));
  require_input(!o.reproducible || (o.grad_accum_dtype.value_or(sum) == sum &&
                                    o.communication_data_type.value_or(sum) == sum),
                "reproducible sums are accumulated and communicated in ", name(sum),
                "; leave grad_accum_dtype and communication_data_type out");
  require_input(
      !o.reproducible || file.bits == VariantBits::equal, file.name,
      " does not support reproducible sums: it ",
      file.bits == VariantBits::lossy ? "communicates fewer bits" : "adds the sums of groups",
      "; leave \"reproducible\" out, or take zero3 or zero3_hpz");
  const bool parameter_on_host = offloads_parameter(o) && o.offload_param == OffloadDevice::cpu;
  for (const auto& [what, asked] : {std::pair{"cpu_checkpointing", o.cpu_checkpointing},
                                    {"offload_optimizer", offloads_optimizer(o)},
                                    {"offload_param", parameter_on_host}})
    require_input(!asked || memories.host != nullptr, what,
                  " needs host memory: pass a host Memory to initialize()");
  require_input(!needs_disk(o) || (memories.disk && memories.disk->pool() == Pool::disk),
                "offload to nvme needs a disk: pass a Memory of Pool::disk to initialize()");
  require_input(!offloads_optimizer(o) || o.offload_optimizer != OffloadDevice::nvme ||
                    o.swap.sub_group_size > 0,
                "sub_group_size must be at least 1, not ", o.swap.sub_group_size);
}

}  // namespace zl
