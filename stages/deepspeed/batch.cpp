// DeepSpeed's batch arithmetic: train_batch_size = train_micro_batch_size_per_gpu *
// gradient_accumulation_steps * ranks. Two of the three keys give the third. One gives the others
// as in DeepSpeed 0.19 (runtime/config.py, _set_batch_related_parameters), with floor division.
// Errors quote DeepSpeed's own sentences, so that a web search finds them.

#include "dist/run_ranks.h"
#include "stages/deepspeed/reader.h"
#include "tensor/error.h"

namespace zl {
namespace {

constexpr char kTrain[] = "train_batch_size", kMicro[] = "train_micro_batch_size_per_gpu";
constexpr char kAccumulation[] = "gradient_accumulation_steps";
using Severity = ConfigFinding::Severity;

struct Given {
  std::optional<int64_t> train, micro, accumulation;
};

struct Sizes {
  int64_t train, micro, accumulation;
};

// At least one of train and micro is given.
Sizes complete(const Given& given, int64_t ranks) {
  const int64_t accumulation = given.accumulation.value_or(1);
  if (!given.train) return {*given.micro * accumulation * ranks, *given.micro, accumulation};
  const int64_t train = *given.train;
  if (!given.micro) return {train, train / ranks / accumulation, accumulation};
  return {train, *given.micro, given.accumulation.value_or(train / *given.micro / ranks)};
}

std::string deepspeed_says(const Sizes& s, int64_t ranks) {
  if (s.micro <= 0)
    return str("(DeepSpeed: Micro batch size per gpu: ", s.micro, " has to be greater than 0). ");
  if (s.accumulation <= 0)
    return str("(DeepSpeed: Gradient accumulation steps: ", s.accumulation,
               " has to be greater than 0). ");
  return str(
      "(DeepSpeed: Check batch related parameters. train_batch_size is not equal to "
      "micro_batch_per_gpu * gradient_acc_step * world_size ",
      s.train, " != ", s.micro, " * ", s.accumulation, " * ", ranks, "). ");
}

int64_t largest_batch() { return int64_t(find_config_key("", kTrain)->type.most); }

std::string count_ranks(int64_t ranks) { return str(ranks, ranks == 1 ? " rank" : " ranks"); }

// All three keys are given, and train_batch_size is not their product.
std::string contradiction(const Sizes& s, int64_t ranks) {
  const int64_t per_rank = s.micro * s.accumulation, product = per_rank * ranks;
  const bool other_ranks = s.train % per_rank == 0 && s.train / per_rank <= kMostRanks;
  return str(s.train, " is not ", s.micro, " (", kMicro, ") * ", s.accumulation, " (",
             kAccumulation, ") * ", count_ranks(ranks), " = ", product, " ",
             deepspeed_says(s, ranks),
             product <= largest_batch() ? str("Use ", product, ", leave") : "Leave",
             " one of the three out",
             other_ranks ? str(", or run with --ranks ", s.train / per_rank) : "");
}

// train_batch_size is not a multiple of what one step of all ranks takes.
std::string remainder(const Given& given, const Sizes& s, int64_t ranks) {
  const int64_t unit = given.micro.value_or(1) * given.accumulation.value_or(1) * ranks;
  std::string over = count_ranks(ranks);
  if (given.micro) over = str("micro-batches of ", *given.micro, " on ", over);
  if (given.accumulation) over = str(*given.accumulation, " micro-batches on ", over);
  const int64_t below = s.train / unit * unit, above = below + unit;
  std::string advice = below > 0 ? str("Use ", below) : "";
  if (above <= largest_batch()) advice += str(advice.empty() ? "Use " : " or ", above);
  if (advice.empty()) advice = "Use smaller micro-batches, fewer of them or fewer ranks";
  return str(s.train, " cannot be split over ", over, ": ", s.train, " / ", unit, " = ",
             s.train / unit, " remainder ", s.train % unit, " ", deepspeed_says(s, ranks), advice);
}

}  // namespace

BatchSizes read_batch_sizes(ConfigBlock& top, int ranks, bool file_given) {
  const Given given{top.get<int64_t>(kTrain), top.get<int64_t>(kMicro),
                    top.get<int64_t>(kAccumulation)};
  BatchSizes sizes;
  if (top.given(kTrain) != given.train.has_value() ||
      top.given(kMicro) != given.micro.has_value() ||
      top.given(kAccumulation) != given.accumulation.has_value())
    return sizes;  // a wrong value, which has its finding; arithmetic with it would only confuse
  const bool no_size = !given.train && !given.micro;
  const Sizes s =
      complete(no_size ? Given{{}, sizes.micro_batch, given.accumulation} : given, ranks);
  const std::string product = str(s.micro, " * ", s.accumulation, " * ", count_ranks(ranks));
  if (s.train != s.micro * s.accumulation * ranks) {
    const bool all = given.train && given.micro && given.accumulation;
    top.error(kTrain, all ? contradiction(s, ranks) : remainder(given, s, ranks));
    return sizes;
  }
  if (no_size && file_given)
    top.warn(kTrain,
             str("neither this nor ", kMicro,
                 " is given (DeepSpeed: Either train_batch_size or train_micro_batch_size_per_gpu "
                 "needs to be provided). zerolab takes ",
                 product, " = ", s.train));
  sizes = {s.micro, s.accumulation, {}};
  if (!given.train) sizes.derived[kTrain] = product;
  if (given.train && !given.micro)
    sizes.derived[kMicro] = str(s.train, " / ", count_ranks(ranks), " / ", s.accumulation);
  if (given.train && given.micro && !given.accumulation)
    sizes.derived[kAccumulation] = str(s.train, " / ", s.micro, " / ", count_ranks(ranks));
  return sizes;
}

}  // namespace zl
