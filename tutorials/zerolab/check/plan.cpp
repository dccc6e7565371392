// The parameters of a model, by unit, and the collectives that a step must make, by system.
//
// fully_shard of PyTorch 2.15 (fsdp/_fully_shard): a unit is all-gathered before its forward pass,
// and again before its backward pass if forward has resharded it, which root does not; gradients
// are reduce-scattered unit by unit in each micro-batch. DistributedDataParallel (reducer.cpp):
// all-reduces of buckets of 1 MiB and then 25 MiB, with the last micro-batch only under no_sync().

#include <algorithm>
#include <deque>
#include <iterator>
#include <limits>
#include <regex>
#include <sstream>
#include <utility>

#include "nn/gpt.h"
#include "stages/predict/closed_form.h"
#include "stages/steady_state.h"
#include "stages/variants/groups.h"
#include "tensor/error.h"
#include "tutorials/zerolab/check/traffic.h"
#include "tutorials/zerolab/cli/number_text.h"

namespace zl::cli {

// ---- models ------------------------------------------------------------------------------------

Unit CheckedModel::all() const {
  Unit all;
  for (const Unit& unit : units)
    std::ranges::copy(unit.parameters, std::back_inserter(all.parameters));
  return all;
}

CheckedModel gpt_units(const GptConfig& config) {
  const auto gpt = std::make_shared<Gpt>(config);
  return {.units = gpt->units(), .owner = gpt, .either_layout = true};
}

CheckedModel read_units(const std::string& path, Dtype& dtype) {
  static const std::regex row(R"(\s*([^\s,]+)[\s,]+([\dx()[\], ]+)[\s,]+([^\s,]+)[\s,]+(\S+)\s*)");
  InputText file(path);
  const auto parameters = std::make_shared<std::deque<Parameter>>();
  CheckedModel model{.units = {}, .owner = parameters};
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const auto require_line = [&](bool fine, const auto&... problem) {
      require_input(fine, path, ":", number, ": '", problem...);
    };
    line.resize(std::min({line.find('#'), line.size(), size_t(999)}));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    std::smatch words;
    require_line(std::regex_match(line, words, row), line.substr(0, 80),
                 "' is not name, shape, dtype and unit, such as 'wte.weight 256x32 float32 root'");
    const std::string name = words[1], type = our_type(words[3]);
    for (const Dtype known : {Dtype::f32, Dtype::bf16, Dtype::f16})
      if (model.units.empty() && type == zl::name(known)) dtype = known;
    require_line(type == zl::name(dtype), name, "' is ", type,
                 "; all must be float32, or all bfloat16, or all float16");
    // "256x32", "(256, 32)" or "[256,32]"; "()" of a scalar
    std::istringstream numbers(std::regex_replace(words[2].str(), std::regex("\\D"), " "));
    const Shape sizes{std::istream_iterator<int64_t>(numbers), {}};
    double n = 1;
    for (const int64_t size : sizes) n *= double(size);
    require_line(n <= 0x1p45 && numbers.eof(), name, "' of shape ", words[2].str(),
                 " is too large");
    auto unit = std::ranges::find(model.units, words[4], &Unit::name);
    if (unit == model.units.end())
      unit = model.units.insert(words[4] == "root" ? model.units.begin() : unit, {words[4], {}});
    unit->parameters.push_back(&parameters->emplace_back(Parameter{.name = name, .shape = sizes}));
  }
  require_input(!model.units.empty(), "'", path, "' names no parameter");
  return model;
}

// ---- plans -------------------------------------------------------------------------------------

int64_t TrafficCase::padded(const Unit& unit) const {
  int64_t sum = 0;
  for (const Parameter* p : unit.parameters) {
    const bool turned = model.transposed && p->shape.size() == 2 && p->name.starts_with("h.");
    const int64_t n = p->numel(), rows = p->shape.empty() ? 1 : p->shape[turned];
    sum += n == 0 ? 0 : n / rows * round_up(rows, ranks);
  }
  return sum;
}

const char* TrafficCase::padding(int64_t n, const Unit& unit) const {
  const int64_t exact = unit.numel();
  return n == padded(unit) ? "the first dimension of each parameter is padded, as by fully_shard"
         : n == exact      ? "nothing is padded"
         : n == round_up(exact, ranks) ? "a unit is padded as one, as by FSDP1"
                                       : nullptr;
}

namespace {

struct Planner : TrafficCase, TrafficPlan {
  bool sums = false;  // the sizes of calls depend on buckets

  Dtype type_of(Purpose purpose) const {
    return purpose == Purpose::gradient ? communication_type(config) : config.precision;
  }
  void call(PlannedCalls more, const std::string& of, int64_t times = 1) {
    if (times == 0 || more.elements == 0) return;
    if (more.group == 0) more.group = ranks;
    auto row = std::ranges::find_if(calls, [&](const PlannedCalls& p) {
      return p.is(more.collective, more.purpose) && p.elements == more.elements &&
             p.group == more.group;
    });
    if (row == calls.end()) row = calls.insert(row, more);
    row->dtype = name(type_of(row->purpose)), row->sum_only = sums && !row->number();
    row->planned += times;
    if (std::ranges::find(row->units, of) == row->units.end()) row->units.push_back(of);
  }
  void buckets(const char* collective, int64_t sum, int64_t times) {  // DeepSpeed's
    const int64_t most = config.reduce_bucket_size;
    call({collective, Purpose::gradient, most}, "", sum / most * times);
    call({collective, Purpose::gradient, sum % most}, "", times);
  }
  // What a stage of zerolab makes for units of these sizes, [n].
  void unit_calls(const Options& options, const std::vector<int64_t>& sizes) {
    const int node = int(std::max<int64_t>(1, options.ranks_per_node));
    const size_t first_kept = first_kept_block(sizes, options.overlap);
    for (const UnitCall& of : file_of(options.stage).calls)
      for (size_t u = 0; u < sizes.size(); ++u) {
        const int part = of.among == Among::inter ? node : 1;
        const int group = of.among == Among::intra ? node : ranks / part;
        call({name(of.collective), of.purpose, sizes[u] / part, group, part}, model.units[u].name,
             calls_per_step({options, ranks, sizes}, of, u, first_kept));
      }
  }
};

void zerolab_stage(Planner& p) {
  Options options = p.config;
  options.stage = StageKind(p.system.c_str());
  options = with_groups(options, p.ranks);
  const std::vector<int64_t> sizes = padded_unit_sizes(p.model.units, p.ranks, options);
  p.each = reduces_every_micro_batch(options);
  p.unit_calls(options, sizes);
  const CommunicationLog log = steady_traffic({options, p.ranks, sizes});
  for (const auto& [key, row] : log.rows())
    if (key.purpose == Purpose::norm || key.purpose == Purpose::loss)
      p.call({name(key.collective), key.purpose, row.elements, row.ranks}, "");
}

void torch_ddp(Planner& p) {
  p.each = false;
  p.sums = true;
  const int64_t bytes = size_of(p.type_of(Purpose::gradient));
  const Unit all = p.model.all();
  int64_t bucket = 0, most = 1 << 20;  // [n], [B]
  for (size_t i = all.parameters.size(); i-- > 0;) {
    bucket += all.parameters[i]->numel();
    if (i > 0 && bucket * bytes < most) continue;
    p.call({"all_reduce", Purpose::gradient, std::exchange(bucket, 0)}, "");
    most = 25 << 20;
  }
}

// The calls of zero3, of other sizes.
void fully_sharded(Planner& p) {
  Options options = p.config;
  options.stage = StageKind("zero3"), options.overlap = {};
  if (p.system == "fsdp2-no-reshard")
    options.overlap.max_reuse_distance = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> sizes;
  for (const Unit& unit : p.model.units) sizes.push_back(p.padded(unit));
  p.unit_calls(options, sizes);
  const Unit all = p.model.all();
  const int64_t padded = p.padded(all), more = padded - all.numel();
  if (more > 0)
    p.note =
        str("padding: fully_shard pads the first dimension of each parameter for ", p.ranks,
            " ranks: ", with_commas(more), " of ", with_commas(padded), " elements are padding");
}

// DeepSpeed 0.19.8, stage_1_and_2.py: all gradients are one flat group, padded to 2 N; each rank
// all-reduces all of it, and all-gathers the updated parameters once.
void deepspeed_flat(Planner& p) {
  const int64_t all = p.model.all().numel();
  p.each = p.system == "deepspeed-2";
  p.sums = true;
  p.buckets("all_reduce", all, p.each ? p.config.accumulation : 1);
  p.call({"all_reduce", Purpose::norm, 1}, "");
  p.call({"all_gather", Purpose::parameter, round_up(all, 2 * p.ranks)}, "flat");
}

// stage3.py: each parameter is padded to a multiple of N. Small ones stay unsharded, and are
// gathered after the update; the others are gathered for forward, and for backward unless
// max_reuse_distance keeps them.
void deepspeed_3(Planner& p) {
  const int64_t A = p.config.accumulation;
  p.sums = true;
  int64_t sum = 0;
  std::vector<int64_t> large;  // of each unit
  for (const Unit& unit : p.model.units) {
    large.push_back(0);
    for (const Parameter* parameter : unit.parameters) {
      const int64_t n = parameter->numel(), padded = round_up(n, p.ranks);
      const bool small = n <= p.config.persistence_threshold;
      sum += padded;
      if (small) p.call({"all_gather", Purpose::parameter, padded}, "small");
      large.back() += small ? 0 : padded;
    }
  }
  const size_t kept = first_kept_block(large, p.config.overlap);
  for (size_t u = 0; u < large.size(); ++u)
    p.call({"all_gather", Purpose::parameter, large[u]}, p.model.units[u].name,
           kept != 1 && u < kept ? 2 * A : A);
  p.buckets("reduce_scatter", sum, A);
  p.call({"all_reduce", Purpose::norm, 1}, "");
}

}  // namespace

TrafficPlan plan_traffic(const TrafficCase& c) {
  constexpr std::pair<const char*, void (*)(Planner&)> systems[] = {{"torch-ddp", torch_ddp},
                                                                    {"fsdp2", fully_sharded},
                                                                    {"deepspeed-3", deepspeed_3},
                                                                    {"deepspeed", deepspeed_flat},
                                                                    {"", zerolab_stage}};
  Planner p{c};
  std::ranges::find_if(systems, [&](auto& s) { return c.system.starts_with(s.first); })->second(p);
  return p;
}

}  // namespace zl::cli
