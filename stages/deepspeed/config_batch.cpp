// DeepSpeed's triangle: train_batch_size = train_micro_batch_size_per_gpu *
// gradient_accumulation_steps * ranks. Two of the three give the third; one gives the others as
// DeepSpeed 0.19 does (runtime/config.py, _set_batch_related_parameters), floor division included,
// and its sentences are kept so that a web search finds them.

#include "dist/threads/rendezvous.h"
#include "stages/deepspeed/config_keys.h"
#include "stages/deepspeed/config_reader.h"
#include "tensor/error.h"

namespace zl {
namespace {

constexpr char kTrain[] = "train_batch_size", kMicro[] = "train_micro_batch_size_per_gpu";
constexpr char kAccumulation[] = "gradient_accumulation_steps";
using Severity = ConfigFinding::Severity;

struct Triangle {
  std::optional<int64_t> train, micro, accumulation;
};

// The three numbers, the absent ones derived; at least one of train and micro must be given.
struct Derived {
  int64_t train, micro, accumulation;
};

Derived derive(const Triangle& given, int64_t ranks) {
  const auto& [train, micro, accumulation] = given;
  if (!train) return {*micro * accumulation.value_or(1) * ranks, *micro, accumulation.value_or(1)};
  if (micro) return {*train, *micro, accumulation ? *accumulation : *train / *micro / ranks};
  return {*train, *train / ranks / accumulation.value_or(1), accumulation.value_or(1)};
}

// The sentence with which DeepSpeed refuses.
std::string deepspeed_says(const Derived& d, int64_t ranks) {
  if (d.micro <= 0) return str("Micro batch size per gpu: ", d.micro, " has to be greater than 0");
  if (d.accumulation <= 0)
    return str("Gradient accumulation steps: ", d.accumulation, " has to be greater than 0");
  return str(
      "Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
      "gradient_acc_step * world_size ",
      d.train, " != ", d.micro, " * ", d.accumulation, " * ", ranks);
}

// Of train_batch_size, in the schema.
int64_t most_batch() { return int64_t(find_config_key("", kTrain)->type.most); }

std::string of_ranks(int64_t ranks) { return ranks == 1 ? "1 rank" : str(ranks, " ranks"); }

// All three are given and do not agree.
std::string contradiction(const Derived& d, int64_t ranks) {
  const int64_t product = d.micro * d.accumulation * ranks;
  std::string text = str(
      d.train, " is not ", d.micro, " (", kMicro, ") * ", d.accumulation, " (", kAccumulation,
      ") * ", of_ranks(ranks), " = ", product, " (DeepSpeed: ", deepspeed_says(d, ranks), "). ",
      product <= most_batch() ? str("Use ", product, ", leave") : "Leave", " one of the three out");
  const int64_t per_rank = d.micro * d.accumulation;
  const bool even = d.train % per_rank == 0 && d.train / per_rank <= kMostRanks;
  return text + (even ? str(", or run with --ranks ", d.train / per_rank) : "");
}

// train_batch_size is no multiple of what one step of all ranks takes.
std::string remainder(const Triangle& given, const Derived& d, int64_t ranks) {
  const int64_t unit = given.micro.value_or(1) * given.accumulation.value_or(1) * ranks;
  std::string over = of_ranks(ranks);
  if (given.micro) over = str("micro-batches of ", *given.micro, " on ", over);
  if (given.accumulation) over = str(*given.accumulation, " micro-batches on ", over);
  const int64_t below = d.train / unit * unit, above = below + unit;
  std::string advice = below > 0 ? str("Use ", below) : "";
  if (above <= most_batch()) advice += str(advice.empty() ? "Use " : " or ", above);
  if (advice.empty()) advice = "Use smaller micro-batches, fewer of them or fewer ranks";
  return str(d.train, " cannot be split over ", over, ": ", d.train, " / ", unit, " = ",
             d.train / unit, " remainder ", d.train % unit,
             " (DeepSpeed: ", deepspeed_says(d, ranks), "). ", advice);
}

// What is taken where neither of the two sizes is given.
std::string without_a_size(const BatchSizes& taken, int64_t ranks) {
  return str("neither this nor ", kMicro,
             " is given (DeepSpeed: Either train_batch_size or "
             "train_micro_batch_size_per_gpu needs to be provided). zerolab takes ",
             taken.micro_batch, " * ", taken.accumulation, " (", kAccumulation, ") * ",
             of_ranks(ranks), " = ", taken.micro_batch * taken.accumulation * ranks);
}

// How the absent ones come from the others.
std::map<std::string, std::string> how_derived(const Triangle& given, const Derived& d,
                                               int64_t ranks) {
  std::map<std::string, std::string> how;
  if (!given.train) how[kTrain] = str(d.micro, " * ", d.accumulation, " * ", of_ranks(ranks));
  if (!given.micro) how[kMicro] = str(d.train, " / ", of_ranks(ranks), " / ", d.accumulation);
  if (!given.accumulation && given.train && given.micro)
    how[kAccumulation] = str(d.train, " / ", d.micro, " / ", of_ranks(ranks));
  return how;
}

}  // namespace

BatchSizes read_batch_sizes(ConfigBlock& top, int ranks, bool file_given) {
  const Triangle given{top.whole(kTrain), top.whole(kMicro), top.whole(kAccumulation)};
  BatchSizes sizes;
  const bool wrong = top.given(kTrain) != given.train.has_value() ||
                     top.given(kMicro) != given.micro.has_value() ||
                     top.given(kAccumulation) != given.accumulation.has_value();
  if (wrong) return sizes;  // that was found, and arithmetic with it would only confuse
  if (!given.train && !given.micro) {
    sizes.accumulation = given.accumulation.value_or(1);
    sizes.derived[kTrain] =
        str(sizes.micro_batch, " * ", sizes.accumulation, " * ", of_ranks(ranks));
    if (file_given) top.add(Severity::warning, kTrain, without_a_size(sizes, ranks));
    return sizes;
  }
  const Derived d = derive(given, ranks);
  if (d.train != d.micro * d.accumulation * ranks) {
    const bool all = given.train && given.micro && given.accumulation;
    top.add(Severity::error, kTrain, all ? contradiction(d, ranks) : remainder(given, d, ranks));
    return sizes;
  }
  return {d.micro, d.accumulation, how_derived(given, d, ranks)};
}

}  // namespace zl
