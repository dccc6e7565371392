// zerolab check losses: a run beside a reference, step by step, and what a difference looks like.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tensor/error.h"
#include "tensor/io/safetensors.h"
#include "tutorials/zerolab/check/commands.h"
#include "tutorials/zerolab/check/recording.h"
#include "tutorials/zerolab/cli/quantity.h"

namespace zl::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct LossOptions {
  std::string reference, candidate;
  double tolerance = 1e-4;               // relative
  int64_t ranks = 0, micro_batches = 0;  // of the candidate; 0: not given
  double clipping = 0;
  bool json = false;
};

struct StepNumbers {
  double loss = NAN, norm = NAN, lr = NAN;
};
using RunNumbers = std::map<int64_t, StepNumbers>;  // by step
struct Step {                                       // that both runs have
  int64_t number;
  StepNumbers r, c;  // reference, candidate
};

// ---- reading -----------------------------------------------------------------------------------

// metrics.jsonl's and Hugging Face's names. A norm that is there and not finite is infinite.
void add(RunNumbers& run, const Json& row) {
  if (!row.is_object()) return;
  const auto value = [&](const char* key, const char* other, double not_finite = NAN) {
    const Json found = row.value(key, row.value(other, Json()));
    return found.is_number() ? found.get<double>() : found.is_string() ? not_finite : NAN;
  };
  const double step = value("step", "global_step");
  if (std::abs(step) < 1e15 && row.contains("loss"))
    run[int64_t(step)] = {value("loss", ""), value("grad_norm", "norm", INFINITY),
                          value("lr", "learning_rate")};
}

// The number behind `word`, or the nth of the line if the word is not there; "nan" is one.
// -infinity: there is none.
double number_at(const std::string& line, const std::string& word, int64_t nth) {
  // std::regex needs stack for each digit.
  static const std::regex number(
      R"([-+]?(\b(\d{1,40}\.?|nan|inf)|\B\.(?=\d))\d{0,99}(e[-+]?\d{1,9})?\b)", std::regex::icase);
  const size_t at = line.find(word), begin = at == line.npos ? 0 : at + word.size();
  std::sregex_iterator found(line.begin() + int64_t(begin), line.end(), number), end;
  for (; begin == 0 && nth > 0 && found != end; --nth) ++found;
  return found == end ? -INFINITY : std::strtod(found->str().c_str(), nullptr);
}

// "step loss" in any clothing: a table, CSV, lines of a log. DeepSpeed's monitor counts samples in
// a column that it calls "step": then the nth count is step n; a resumed run repeats some.
struct TextLines {
  int64_t step_at = 0, loss_at = 1;
  bool samples = false;
  std::map<double, size_t> steps;  // of each count

  Json row(const std::string& line) {  // null: it has none
    const auto column = [&](const char* word) {
      return std::ranges::count_if(line.substr(0, line.find(word)),
                                   [](char c) { return c == ',' || c == '\t'; });
    };
    const auto has = [&](const char* any) { return line.find_first_of(any) != line.npos; };
    if (line.find("step") != line.npos && has(",\t") && !has("0123456789")) {  // a table's head
      samples |= line.find("Samples/train_loss") != line.npos;
      step_at = column("step");
      loss_at = line.find("loss") == line.npos ? INT64_MAX : column("loss");
    }
    double step = number_at(line, "step", step_at);
    const double loss = number_at(line, "loss", loss_at);
    if (!(step >= 0) || loss == -INFINITY) return {};
    if (samples) step = double(steps.try_emplace(step, steps.size() + 1).first->second);
    return {{"step", step}, {"loss", loss}};
  }
};

RunNumbers read_run(const std::string& given) {
  const std::string path = given + (fs::is_directory(given) ? "/metrics.jsonl" : "");
  InputText file(path);
  std::string text(std::istreambuf_iterator<char>(file), {});
  // Python writes numbers that JSON does not have.
  text = std::regex_replace(text, std::regex("([:,]\\s{0,99})-?(NaN|Infinity)"), "$1\"nan\"");
  const bool json = is_json(text), binary = text.find('\0') != text.npos;
  const Json all = Json::parse(text, nullptr, false);
  const Json rows = all.is_object() ? all.value("log_history", Json()) : all;
  std::istringstream lines(json && rows.is_array() ? "" : text);
  RunNumbers run;
  TextLines numbers;
  if (rows.is_array())
    for (const Json& row : rows) add(run, row);
  for (std::string line; std::getline(lines, line);) {
    const Json row = Json::parse(line, nullptr, false);
    add(run, json || binary || row.is_object() ? row : numbers.row(line));
  }
  require_input(!run.empty(), "'", path, "' has no losses: neither metrics.jsonl nor ",
                "trainer_state.json, and no lines with a step and a loss");
  return run;
}

// ---- what a difference looks like --------------------------------------------------------------

// Relative.
double apart(double a, double b) { return a == 0 && b == 0 ? 0 : std::abs(a - b) / std::abs(b); }

// How far a step's numbers are apart; norms may be ten times as far as losses.
double off(const Step& s) {
  return std::max(apart(s.c.loss, s.r.loss), std::fmax(0, apart(s.c.norm, s.r.norm) / 10));
}

// What a factor means that a mistake makes; "": it is none of these.
std::string meaning_of(double factor, const LossOptions& o) {
  const double k = std::round(std::max(factor, 1 / factor));
  const bool times = apart(factor, k) < 1e-3;
  if (!(k >= 2 && k <= 1024) || !(times || apart(1 / factor, k) < 1e-3)) return "";
  const bool N = k == o.ranks, A = k == o.micro_batches;
  const std::string of = N == A ? "ranks or micro-batches" : N ? "ranks" : "micro-batches";
  return times ? str(k, ".00 x the reference's: a sum over ", of, ", not a mean")
               : str("1/", k, " of the reference's: divided by the number of ", of, " twice");
}

// Why the steps from `first` on differ, in sentences.
std::vector<std::string> meanings(const std::vector<Step>& steps, size_t first,
                                  const LossOptions& o) {
  if (!std::isfinite(steps[first].r.loss))
    return {"the reference has no finite loss there: nothing can be compared"};
  if (std::isinf(steps[first].c.norm) && std::isfinite(steps[first].r.norm))
    return {str("the gradient of step ", steps[first].number, " is not finite")};
  std::vector<std::string> all;
  const StepNumbers &r = steps[0].r, &c = steps[0].c;
  const auto near = [&](double a, double b) { return apart(a, b) <= o.tolerance; };
  const double factor = c.loss / r.loss, of_norm = c.norm / r.norm;
  const std::string meaning = meaning_of(factor, o), of_gradient = meaning_of(of_norm, o);
  bool multiple = !meaning.empty(), late = steps.size() > 1, other_rate = false;
  size_t clipped = steps.size();  // the first whose norm is clipped
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto& [number, its, mine] = steps[i];
    multiple &= near(mine.loss, factor * its.loss);
    other_rate |= apart(mine.lr, its.lr) > o.tolerance;
    late &= i == 0 || near(mine.lr, steps[i - 1].r.lr);
    if (o.clipping > 0 && its.norm > o.clipping) clipped = std::min(clipped, i);
  }
  if (multiple) return {"every loss is " + meaning};
  if (clipped == 0 && near(c.norm, o.clipping))
    all.push_back("the first norm is gradient_clipping itself: it is measured after clipping");
  else if (!of_gradient.empty())
    all.push_back("every gradient is " + of_gradient);
  else if (std::abs(of_norm - 1) > 10 * o.tolerance)
    all.push_back(str("the first gradient norm is ", c.norm, ", the reference's ", r.norm));
  if (other_rate)
    all.push_back(late ? "the learning rate is one step late" : "the learning rates differ");
  if (!all.empty()) return all;
  if (first == 0) return {"the first loss differs: other weights, other data, another loss"};
  if (first == clipped + 1)
    return {str("step ", steps[clipped].number, " is the first with a norm above ", o.clipping,
                ": the gradient is clipped before the mean, or not clipped")};
  return {str("the update of step ", steps[first - 1].number, " differs")};
}

// ---- weights -----------------------------------------------------------------------------------

// Of two folders with weights: which rows of which tensors differ by more than a hundredth, and
// which never moved.
std::vector<std::string> weights_differences(const fs::path& reference, const fs::path& candidate) {
  const char* const name = "model.safetensors";
  if (!fs::exists(reference / name) || !fs::exists(candidate / name)) return {};
  const fs::path begin = reference / "init.safetensors";
  const SafetensorsFile ours(reference / name), theirs(candidate / name),
      start(fs::exists(begin) ? begin : reference / name);
  std::vector<std::string> all;
  double dot = 0, squares = 0, far = 0;
  for (const SafetensorsEntry& e : ours.entries()) {
    const SafetensorsEntry* same = theirs.find(e.name);
    if (same == nullptr || same->shape != e.shape) {
      all.push_back(e.name + (same ? " has another shape" : " is missing"));
      continue;
    }
    const auto r = ours.read_floats(e.name), c = theirs.read_floats(e.name),
               s = start.read_floats(e.name);
    require_input(s.size() == r.size(), "'", start.path(), "' is of another model: ", e.name);
    const size_t rows = e.shape.empty() ? 1 : size_t(e.shape[0]),
                 width = rows ? r.size() / rows : 0;
    size_t first = rows, last = 0, count = 0, still = 0;
    for (size_t row = 0; row < rows; ++row) {
      double off = 0, size = 0;
      bool stays = true, moves = false;  // the candidate's, the reference's
      for (size_t i = row * width; i < (row + 1) * width; ++i) {
        const double more = double(c[i]) - r[i];
        off += more * more, size += double(r[i]) * r[i], dot += r[i] * more;
        stays &= c[i] == s[i], moves |= r[i] != s[i];
      }
      squares += size, far += off;
      // Adam makes steps of the rounding in gradients that are 0, such as those of keys' biases.
      if ((!stays || !moves) && (e.shape.size() < 2 || off <= 1e-4 * size)) continue;
      first = std::min(first, row), last = row, ++count, still += stays && moves;
    }
    if (count > 0)
      all.push_back(str(e.name, ": rows ", first, " to ", last, " of ", rows,
                        still == count ? " never moved: a shard is not updated" : " differ"));
  }
  if (far > 1e-10 * squares && far - dot * dot / squares < 0.04 * far)
    all.insert(all.begin(), str("all weights are ", digits(1 + dot / squares, 6),
                                " x the reference's: weight decay differs"));
  if (all.size() > 8) all.resize(9), all[8] = "…";
  return all;
}

int check_losses(const LossOptions& options) {
  if (options.candidate.empty()) throw UsageError("check losses needs a REFERENCE and a CANDIDATE");
  const RunNumbers reference = read_run(options.reference), candidate = read_run(options.candidate);
  std::vector<Step> steps;
  for (const auto& [step, numbers] : reference)
    if (const auto c = candidate.find(step); c != candidate.end())
      steps.push_back({step, numbers, c->second});
  require_input(!steps.empty(), "'", options.reference, "' and '", options.candidate,
                "' have no step in common");
  double most = 0;
  size_t first = 0;
  while (first < steps.size() && off(steps[first]) <= options.tolerance)
    most = std::max(most, off(steps[first++]));
  const bool equal = first == steps.size();
  std::vector<std::string> differences;
  if (!equal) differences = meanings(steps, first, options);
  std::ranges::copy(weights_differences(options.reference, options.candidate),
                    std::back_inserter(differences));
  const int64_t ends = candidate.rbegin()->first, wanted = reference.rbegin()->first;
  Json notes = Json::array();
  if (ends < wanted)
    notes.push_back(str("the candidate ends with step ", ends, ", the reference with ", wanted));
  const Json document = {{"schema", 1},
                         {"command", "check losses"},
                         {"ok", differences.empty()},
                         {"steps_compared", steps.size()},
                         {"tolerance", options.tolerance},
                         {"first_step_that_differs", equal ? Json() : Json(steps[first].number)},
                         {"differences", differences},
                         {"notes", notes}};
  std::string text =
      plural(std::ssize(steps), "step") + format(" compared, tolerance %g\n", options.tolerance);
  if (!equal) {
    const auto& [number, r, c] = steps[first];
    text += format("step %lld differs: loss %.6g, reference %.6g; norm %.6g, reference %.6g\n",
                   (long long)number, c.loss, r.loss, c.norm, r.norm);
  }
  return print_comparison(
      document, options.json, text,
      differences.empty() ? format("equal but for rounding: at most %.2g apart\n", most) : "");
}

}  // namespace

void add_losses(CLI::App& check, Invocation& invocation) {
  static LossOptions options;
  Flags flags(check, invocation, "losses",
              "losses of a run beside a reference; what a difference looks like",
              [] { return check_losses(options); });
  flags.name("REFERENCE", "",
             "metrics.jsonl, trainer_state.json, CSV or 'step loss' text, or a folder with\n"
             "metrics.jsonl and model.safetensors",
             options.reference);
  flags.name("CANDIDATE", "", "the same of the run in question", options.candidate);
  flags.add("--tolerance", "X", options.tolerance, read_real,
            "relative difference of losses that counts as rounding (default 1e-4)");
  flags.add("--ranks", "N", options.ranks, count_within(),
            "of the candidate: to tell ranks from micro-batches");
  flags.add("--micro-batches", "A", options.micro_batches, count_within(),
            "of a step of the candidate");
  flags.add("--clipping", "X", options.clipping, read_real, "the gradient norm at which both clip");
  flags.toggle("--json", "print one JSON document instead of text", options.json);
  flags.footer(
      "Examples:\n  zerolab check losses reference mine\n  zerolab check losses metrics.jsonl "
      "trainer_state.json --tolerance 1e-3\n\nExit codes: 0 equal but for rounding, 1 a "
      "difference, 2 usage");
}

}  // namespace zl::cli
