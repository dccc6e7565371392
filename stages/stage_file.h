// What a stage file declares of its stage: its name, what a rank keeps, which calls it makes, and
// how it is made. To add a stage is to add such a file to stages/ or stages/variants/: commands
// find it by its name, and stages/steady_state.h predicts its bytes and traffic. A program outside
// the library registers its own with ZL_REGISTER.
#pragma once

#include <compare>
#include <memory>
#include <vector>

#include "dist/call.h"
#include "nn/unit.h"
#include "stages/options.h"

namespace zl {

class Communicator;
class Stage;

// Of one rank. Host memory and disk are needed only where the options offload something. They must
// outlive the stage.
struct Memories {
  Memories(Memory& device_memory, Memory* host_memory = nullptr, Memory* disk_memory = nullptr)
      : device(device_memory), host(host_memory), disk(disk_memory) {}
  Memory& device;
  Memory *host, *disk;
};

// Makes a stage that is not started yet.
using MakeStage = std::unique_ptr<Stage>(std::vector<Unit>& units, Communicator& comm,
                                         Memories memories, const Options& options);

enum class Part {
  full,
  shard,       // 1/N; of hsdp 1/N of a replica
  node_shard,  // 1/X: a node's X ranks keep one copy together
  none,
};
enum class Per {
  never,
  step,         // once, when all micro-batches are added or the update is made
  micro_batch,  // when backward has completed the unit's gradient
  forward,      // before the unit's forward pass, in each micro-batch
  backward,     // before its backward pass, if forward has resharded the unit: never for root
};
enum class Among { all, intra, inter };  // all ranks, a group's, or one rank of each group

// A collective that a stage makes for every unit. Among `inter` it moves the part of the unit that
// a group has reduced for one rank: full / X.
struct UnitCall {
  Collective collective{};
  Purpose purpose{};
  Per per = Per::never;
  Among among = Among::all;
  // Of an element as it is sent, with a scale per kScaleGroup elements of a shard in a second call;
  // 0: as its type.
  int bits = 0;
  static constexpr int64_t kScaleGroup = 256;  // [n]
};

// What a variant promises relative to its parent on the same ranks and data.
enum class VariantBits {
  equal,     // losses, norms and weights have the same bits
  rounding,  // sums are added in another order
  lossy,     // something is communicated in fewer bits than it has
};
// Which groups of ranks it has: none, nodes, or replicas of the whole state.
enum class VariantGroups { none, nodes, replicas };

struct StageFile {
  const char* name;
  MakeStage* make;
  Part parameter, gradient, optimizer;  // what a rank keeps between steps
  UnitCall calls[6] = {};               // what is not declared is never made
  // Of a variant, which changes one of the paper's four.
  const char* parent = nullptr;  // the one of the four; needed by ZL_REGISTER
  VariantBits bits = VariantBits::equal;
  VariantGroups groups = VariantGroups::none;
  Part secondary = Part::none;  // a second copy of the parameters
  const char* sentence = "";    // for --help

  bool is_variant() const { return parent != nullptr; }
};

// The four, then all others by name.
const std::vector<StageFile>& stage_files();
std::vector<StageKind> all_stages();  // their names
// Throws InputError with the list of stages if there is none.
const StageFile& file_of(StageKind kind);
// Adds one. Throws std::invalid_argument if stages have been asked for already. If its name is
// taken, or its parent is none of the four, the first function that asks for stages throws it.
bool register_stage(const StageFile& file);

std::strong_ordering operator<=>(StageKind a, StageKind b);  // in the order of stage_files()
// The one of the four that a variant changes; itself, if it is one of them.
StageKind parent(StageKind kind);
// 0 to 3: DeepSpeed's number of that stage.
int stage_number(StageKind kind);
inline VariantBits bits_of(StageKind kind) { return file_of(kind).bits; }
inline bool shards_optimizer(StageKind kind) { return file_of(kind).optimizer == Part::shard; }
inline bool shards_gradient(StageKind kind) { return file_of(kind).gradient == Part::shard; }
inline bool shards_parameter(StageKind kind) { return file_of(kind).parameter == Part::shard; }

// What of a rank is in host memory or on disk.
bool offloads_optimizer(const Options& options);
bool offloads_parameter(const Options& options);
// Whether a run with these options needs a Memory of Pool::disk.
bool needs_disk(const Options& options);
// Throws InputError if the options contradict each other or the stage, or need a memory that is not
// there.
void check(const Options& options, const Memories& memories);

// Ends a stage file, whose class is ThisStage; what follows the name are members of StageFile. A
// second stage in one file needs a namespace of its own.
// Defines one external function, which the library's table of stages names.
#define ZL_STAGE(NAME, ...) \
  StageFile stage_##NAME() { return {.name = #NAME, .make = make<ThisStage>, __VA_ARGS__}; }
// In a program outside the library, behind ZL_STAGE.
#define ZL_REGISTER(NAME) const bool NAME##_registered = ::zl::register_stage(stage_##NAME());

// The files in the library; CMake writes this function from their names.
std::vector<StageFile> library_stages();

}  // namespace zl
