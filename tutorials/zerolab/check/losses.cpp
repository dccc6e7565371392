// zerolab check losses: a run beside a reference, step by step, and what a difference looks like.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "tensor/error.h"
#include "tensor/io/safetensors.h"
#include "tutorials/zerolab/check/commands.h"
#include "tutorials/zerolab/check/recording.h"
#include "tutorials/zerolab/cli/json_output.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/printable.h"
#include "tutorials/zerolab/cli/quantity.h"

namespace zl::cli {
namespace {

using Json = nlohmann::ordered_json;

struct LossOptions {
  std::vector<std::string> runs;  // the reference, the candidate
  double tolerance = 1e-4;        // relative
  bool json = false;
};

struct StepNumbers {
  double loss = NAN, norm = NAN, lr = NAN;
};
struct RunNumbers {
  std::map<int64_t, StepNumbers> steps;
  std::string weights, start;  // safetensors; "": there are none
  int ranks = 0, micro_batches = 0;
  double clip = 0;
};

// ---- reading -----------------------------------------------------------------------------------

void add(RunNumbers& run, const Json& line) {
  const auto value = [&](const char* key, const char* other) {
    const Json found = line.value(key, line.value(other, Json()));
    return found.is_number() ? found.get<double>() : NAN;
  };
  const double step = value("step", "global_step"), loss = value("loss", "train_loss");
  if (std::isfinite(step) && line.contains("loss"))
    run.steps[int64_t(step)] = {loss, value("grad_norm", "norm"), value("lr", "learning_rate")};
}

// The number behind `word`, or the nth of the line if the word is not there.
double number(const std::string& line, const std::string& word, int nth) {
  const size_t at = line.find(word);
  const char* text = line.c_str() + (at == line.npos ? 0 : at + word.size());
  for (int i = at == line.npos ? nth : 0; *text; ++text) {
    char* end = nullptr;
    const double value = std::strtod(text, &end);
    if (end == text || std::isalpha(static_cast<unsigned char>(*text))) continue;
    if (i-- == 0) return value;
    text = end - (*end == 0);
  }
  return NAN;
}

// "step loss" in any clothing: a table, CSV, a line of a log. The first column of DeepSpeed's
// monitor counts samples; then the nth line is step n.
void add_lines(RunNumbers& run, const std::string& text) {
  std::map<double, StepNumbers> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    const double step = number(line, "step", 0), loss = number(line, "loss", 1);
    if (std::isfinite(step) && std::isfinite(loss) && step >= 0) lines[step] = {loss, NAN, NAN};
  }
  const double first = lines.empty() ? 1 : lines.begin()->first;
  const bool samples = first > 1 && std::ranges::all_of(lines, [&](const auto& line) {
                         return std::fmod(line.first, first) == 0;
                       });
  for (const auto& [step, numbers] : lines)
    run.steps[int64_t(samples ? step / first : step)] = numbers;
}

RunNumbers read_run(const std::string& given) {
  namespace fs = std::filesystem;
  RunNumbers run;
  const bool folder = fs::is_directory(given);
  const std::string path = folder ? given + "/metrics.jsonl" : given;
  const auto beside = [&](const char* name) {
    return folder && fs::exists(given + "/" + name) ? given + "/" + name : "";
  };
  run.weights = beside("model.safetensors"), run.start = beside("init.safetensors");
  TextFile file(path);
  const std::string text(std::istreambuf_iterator<char>(file.stream()), {});
  file.require_complete();
  const Json all = Json::parse(text, nullptr, false);
  if (all.is_object() && all.contains("log_history")) {
    for (const Json& line : all["log_history"])
      if (line.is_object()) add(run, line);
  } else if (text.starts_with('{')) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if (const Json one = Json::parse(line, nullptr, false); one.is_object()) add(run, one);
  } else {
    add_lines(run, text);
  }
  require_input(!run.steps.empty(), "'", path,
                "' has no losses: neither metrics.jsonl nor trainer_state.json, and no lines with "
                "a step and a loss");
  if (const std::string golden = beside("golden.json"); !golden.empty()) {
    TextFile settings(golden);
    const Json s = Json::parse(settings.stream(), nullptr, false);
    if (s.is_object())
      run.ranks = s.value("ranks", 0), run.micro_batches = s.value("accumulation", 0),
      run.clip = s.value("gradient_clipping", 0.0);
  }
  return run;
}

// ---- what a difference looks like --------------------------------------------------------------

// "4.00 × the reference's: a sum over ranks, not a mean"; "" for no factor that a mistake makes.
std::string meaning_of(double factor, const RunNumbers& reference) {
  for (int k = 2; k <= 1024; ++k) {
    const bool times = std::abs(factor / k - 1) < 1e-3;
    if (!times && std::abs(factor * k - 1) >= 1e-3) continue;
    const bool N = k == reference.ranks, A = k == reference.micro_batches;
    const std::string of = N && A ? "ranks or micro-batches"
                           : N    ? "ranks"
                           : A    ? "micro-batches"
                                  : "ranks or micro-batches (or both)";
    return times
               ? str(k, ".00 × the reference's: a sum over ", of, ", not a mean")
               : str("1/", k, " of the reference's: it is divided by the number of ", of, " twice");
  }
  return "";
}

// Why the steps from `first` on differ, in sentences.
std::vector<std::string> meanings(const RunNumbers& reference, const RunNumbers& candidate,
                                  int64_t first, double tolerance) {
  std::vector<std::string> all;
  double least = INFINITY, most = 0;
  bool late = true, other_rate = false;
  int64_t rates = 0, clipped = 0;
  double before = NAN;
  for (const auto& [step, r] : reference.steps) {
    const auto found = candidate.steps.find(step);
    if (found == candidate.steps.end()) continue;
    const StepNumbers& c = found->second;
    least = std::min(least, c.loss / r.loss), most = std::max(most, c.loss / r.loss);
    other_rate |= std::abs(c.lr - r.lr) > 1e-6 * std::abs(r.lr);
    if (std::isfinite(before) && std::isfinite(c.lr))
      ++rates, late &= std::abs(c.lr - before) <= 1e-6 * std::abs(before);
    before = r.lr;
    if (clipped == 0 && reference.clip > 0 && r.norm > reference.clip) clipped = step;
  }
  if (most / least - 1 < tolerance && !meaning_of(most, reference).empty())
    return {"every loss is " + meaning_of(most, reference)};
  const StepNumbers &r = reference.steps.begin()->second, &c = candidate.steps.begin()->second;
  if (std::abs(c.norm / r.norm - 1) > 10 * tolerance)
    all.push_back(str("the gradient norm of step ", reference.steps.begin()->first, " is ",
                      digits(c.norm, 4), " where the reference has ", digits(r.norm, 4),
                      meaning_of(c.norm / r.norm, reference).empty()
                          ? ""
                          : ": every gradient is " + meaning_of(c.norm / r.norm, reference)));
  if (reference.clip > 0 && r.norm > reference.clip && std::abs(c.norm / reference.clip - 1) < 1e-3)
    all.push_back("that is the limit of clipping: the norm is measured after it");
  if (other_rate && rates > 0)
    all.push_back(
        late
            ? "the learning rate is one step late: each step has the reference's of the step before"
            : "the learning rates differ");
  if (all.empty() && clipped > 0 && first == clipped + 1)
    all.push_back(str(
        "step ", clipped, " is the first whose norm is above gradient_clipping ", reference.clip,
        ": the gradient is clipped before the mean over ranks and micro-batches, or not at all"));
  if (all.empty())
    all.push_back(
        first == reference.steps.begin()->first
            ? "the first loss differs already: other weights, data or another loss; no update was "
              "made before it"
            : str("the losses agree up to step ", first - 1,
                  ", so weights and data are the same at the start, and the update of step ",
                  first - 1, " differs"));
  return all;
}

// ---- weights -----------------------------------------------------------------------------------

double norm_of(const float* a, const float* b, int64_t n, double factor = 1) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i)
    sum += std::pow(double(a[i]) - (b ? factor * double(b[i]) : 0), 2);
  return std::sqrt(sum);
}

// Which rows of which tensors differ by more than a hundredth, and those that never moved.
std::vector<std::string> weights_differences(const RunNumbers& reference,
                                             const RunNumbers& candidate) {
  const SafetensorsFile ours(reference.weights), theirs(candidate.weights);
  std::optional<SafetensorsFile> start;
  if (!reference.start.empty()) start.emplace(reference.start);
  std::vector<std::string> all;
  double dot = 0, squares = 0, far = 0;  // of r and c - r
  for (const SafetensorsEntry& e : ours.entries()) {
    const SafetensorsEntry* same = theirs.find(e.name);
    if (same == nullptr || same->shape != e.shape) {
      all.push_back(e.name + (same ? " has another shape" : " is missing"));
      continue;
    }
    const auto r = ours.read_floats(e.name), c = theirs.read_floats(e.name);
    const auto s = start && start->find(e.name) ? start->read_floats(e.name) : std::vector<float>();
    const int64_t rows = e.shape.empty() ? 1 : e.shape[0], width = rows ? e.numel() / rows : 0;
    int64_t first = -1, last = -1, count = 0, still = 0;
    for (int64_t row = 0; row < rows; ++row) {
      const float *a = &r[size_t(row * width)], *b = &c[size_t(row * width)],
                  *z = s.size() == r.size() ? &s[size_t(row * width)] : nullptr;
      const bool stays = z && norm_of(b, z, width) == 0 && norm_of(a, z, width) > 0;
      if (!stays && norm_of(b, a, width) <= 0.01 * norm_of(a, nullptr, width)) continue;
      first = first < 0 ? row : first, last = row, ++count, still += stays;
    }
    for (size_t i = 0; i < r.size(); ++i)
      dot += double(r[i]) * (double(c[i]) - r[i]), squares += double(r[i]) * r[i],
          far += std::pow(double(c[i]) - r[i], 2);
    if (count > 0)
      all.push_back(str(
          e.name, ": ",
          count == rows ? str("all ", rows, " rows")
                        : str(plural(count, "row"), " of ", rows, ", ", first, " to ", last, ","),
          still == count ? " never moved: a shard that is not updated" : " differ"));
  }
  const double factor = dot / squares,
               rest = std::sqrt(std::max(0.0, far - dot * dot / squares) / std::max(far, 1e-300));
  if (far > 1e-10 * squares && rest < 0.2)
    all.insert(all.begin(), str("all weights are ", digits(1 + factor, 6),
                                " × the reference's, so weight decay differs"));
  if (all.size() > 8) all.resize(8), all.push_back("…");
  return all;
}

int check_losses(const LossOptions& options) {
  if (options.runs.size() != 2) throw UsageError("check losses needs a REFERENCE and a CANDIDATE");
  const RunNumbers reference = read_run(options.runs[0]), candidate = read_run(options.runs[1]);
  int64_t compared = 0, first = -1;
  double most = 0;
  for (const auto& [step, r] : reference.steps)
    if (const auto c = candidate.steps.find(step); c != candidate.steps.end()) {
      ++compared;
      const double off = std::abs(c->second.loss - r.loss) / std::max(std::abs(r.loss), 1e-30);
      if (first < 0 && !(off <= options.tolerance)) first = step;
      if (first < 0) most = std::max(most, off);
    }
  require_input(compared > 0, "'", options.runs[0], "' and '", options.runs[1],
                "' have no step in common");
  std::vector<std::string> differences;
  if (first >= 0) differences = meanings(reference, candidate, first, options.tolerance);
  if (!reference.weights.empty() && !candidate.weights.empty())
    std::ranges::copy(weights_differences(reference, candidate), std::back_inserter(differences));
  const bool ok = differences.empty();
  Json document = {{"schema", 1},
                   {"command", "check losses"},
                   {"ok", ok},
                   {"steps_compared", compared},
                   {"tolerance", options.tolerance},
                   {"first_step_that_differs", nullptr},
                   {"differences", differences}};
  if (first >= 0) document["first_step_that_differs"] = first;
  if (options.json) return print_json(document), ok ? kFine : kFailed;
  std::printf("%s compared, tolerance %g\n", plural(compared, "step").c_str(), options.tolerance);
  if (first >= 0)
    std::printf("step %lld differs: loss %.6g, reference %.6g\n", (long long)first,
                candidate.steps.at(first).loss, reference.steps.at(first).loss);
  for (const std::string& d : differences)
    std::printf("  difference  %s\n", printable_line(d).c_str());
  if (ok) std::printf("equal but for rounding: at most %.2g apart\n", most);
  return ok ? kFine : kFailed;
}

}  // namespace

void add_check_losses(CLI::App& check, Invocation& invocation) {
  static LossOptions options;
  Flags flags(check, invocation, "losses",
              "losses of a run beside a reference; what a difference looks like",
              [] { return check_losses(options); });
  flags.value(
      "RUN", "",
      "REFERENCE and CANDIDATE: metrics.jsonl, trainer_state.json, CSV or 'step loss' text, or "
      "a\nfolder with metrics.jsonl and model.safetensors",
      [](const std::string& text) { options.runs.push_back(text); }, Flags::Takes::several);
  flags.value("--tolerance", "X",
              "relative difference of losses that counts as rounding (default 1e-4)",
              [](const std::string& text) { options.tolerance = read_real(text); });
  flags.toggle("--json", "print one JSON document instead of text", options.json);
  flags.footer(
      "Examples:\n  zerolab check losses golden mine\n  zerolab check losses metrics.jsonl "
      "trainer_state.json --tolerance 1e-3\n\nExit codes: 0 equal but for rounding, 1 a "
      "difference, 2 usage");
}

}  // namespace zl::cli
