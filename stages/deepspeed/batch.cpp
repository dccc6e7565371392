// DeepSpeed's batch arithmetic: train_batch_size = train_micro_batch_size_per_gpu *
// gradient_accumulation_steps * ranks. Two of the three keys give the third. One gives the others
// as in DeepSpeed 0.19 (runtime/config.py, _set_batch_related_parameters), with floor division.

#include <algorithm>

#include "dist/run_ranks.h"
#include "stages/deepspeed/reading.h"
#include "tensor/error.h"

namespace zl {
namespace {

constexpr char kTrain[] = "train_batch_size", kMicro[] = "train_micro_batch_size_per_gpu";
constexpr char kAccumulation[] = "gradient_accumulation_steps";

std::string count_ranks(int64_t ranks) { return str(ranks, ranks == 1 ? " rank" : " ranks"); }

// All three keys are given, and train_batch_size is not their product.
std::string contradiction(int64_t train, const Config& c, int64_t ranks) {
  const int64_t per_rank = c.micro_batch * c.accumulation;
  const bool other_ranks = train % per_rank == 0 && train / per_rank <= kMostRanks;
  return str(train, " is not ", c.micro_batch, " (", kMicro, ") * ", c.accumulation, " (",
             kAccumulation, ") * ", count_ranks(ranks), " = ", per_rank * ranks, ". Use ",
             per_rank * ranks, ", leave one of the three out",
             other_ranks ? str(", or run with --ranks ", train / per_rank) : "");
}

// train_batch_size is not a multiple of what one step of all ranks takes.
std::string remainder(int64_t train, bool micro, bool accumulation, const Config& c,
                      int64_t ranks) {
  std::string over = count_ranks(ranks);
  if (micro) over = str("micro-batches of ", c.micro_batch, " on ", over);
  if (accumulation) over = str(c.accumulation, " micro-batches on ", over);
  const int64_t unit = (micro ? c.micro_batch : 1) * (accumulation ? c.accumulation : 1) * ranks,
                below = train / unit * unit;
  return str(train, " cannot be split over ", over, ": ", train, " / ", unit, " = ", train / unit,
             " remainder ", train % unit, ". Use ", below > 0 ? str(below, " or ") : "",
             below + unit);
}

}  // namespace

void apply_batch_rules(Reading& reading) {
  for (const char* key : {kTrain, kMicro, kAccumulation})
    if (reading.is_wrong(key)) return;  // arithmetic with it would only confuse
  Config& c = reading.config;
  auto& derived = reading.loaded.derived;
  const int64_t ranks = readers(c, reading.source.ranks);
  const bool micro = reading.value(kMicro), accumulation = reading.value(kAccumulation);
  const JsonValue* given = reading.value(kTrain);
  if (given == nullptr) {
    const std::string product =
        str(c.micro_batch, " * ", c.accumulation, " * ", count_ranks(ranks));
    derived[kTrain] = product;
    if (micro || reading.source.file.empty()) return;
    const std::string taken =
        str("zerolab takes ", product, " = ", c.micro_batch * c.accumulation * ranks);
    if (reading.is_auto(kTrain) || reading.is_auto(kMicro))
      reading.note(kTrain, str("this and ", kMicro, " are \"auto\" or absent; ", taken));
    else
      reading.warn(kTrain, str("neither this nor ", kMicro,
                               " is given, and DeepSpeed refuses such a file; ", taken));
    return;
  }
  const int64_t train = *to_whole(*given);
  if (!micro)
    c.micro_batch = train / ranks / c.accumulation;
  else if (!accumulation)
    c.accumulation = train / c.micro_batch / ranks;
  const int64_t most = int64_t(find_config_key("", kMicro)->type.most);
  if (train != c.micro_batch * c.accumulation * ranks)
    return reading.error(kTrain, micro && accumulation
                                     ? contradiction(train, c, ranks)
                                     : remainder(train, micro, accumulation, c, ranks));
  if (std::max(c.micro_batch, c.accumulation) > most)
    return reading.error(
        kTrain, str(train, " is more than ", most, " for ", micro ? kAccumulation : kMicro));
  if (!micro) derived[kMicro] = str(train, " / ", count_ranks(ranks), " / ", c.accumulation);
  if (micro && !accumulation)
    derived[kAccumulation] = str(train, " / ", c.micro_batch, " / ", count_ranks(ranks));
}

}  // namespace zl
