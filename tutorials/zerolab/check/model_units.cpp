// The parameters of a model, by unit.

#include <algorithm>
#include <cctype>
#include <sstream>

#include "nn/gpt.h"
#include "tutorials/zerolab/check/plan.h"
#include "tutorials/zerolab/check/recording.h"

namespace zl::cli {
namespace {

// "256x32", "(256, 32)" or "[256,32]"; "()" of a scalar.
Shape read_shape(const std::string& text) {
  Shape shape;
  for (size_t i = 0; i < text.size();)
    if (std::isdigit(static_cast<unsigned char>(text[i]))) {
      size_t used = 0;
      shape.push_back(std::stoll(text.substr(i, 12), &used));
      i += used;
    } else {
      ++i;
    }
  return shape;
}

}  // namespace

int64_t CheckedModel::numel() const {
  int64_t n = 0;
  for (const Unit& unit : units)
    for (const Parameter& p : unit.parameters) n += p.numel();
  return n;
}

int64_t CheckedModel::parameters() const {
  int64_t n = 0;
  for (const Unit& unit : units) n += std::ssize(unit.parameters);
  return n;
}

void CheckedModel::add(const std::string& unit, Parameter parameter) {
  auto found = std::ranges::find(units, unit, &Unit::name);
  if (found == units.end())
    found = units.insert(unit == "root" ? units.begin() : units.end(), {unit, {}});
  found->parameters.push_back(std::move(parameter));
}

CheckedModel gpt_units(const GptConfig& config) {
  CheckedModel model{.either_layout = true};
  Gpt gpt(config);
  for (const zl::Unit& unit : gpt.units())
    for (const zl::Parameter* p : unit.parameters) model.add(unit.name, {p->name, p->shape});
  return model;
}

CheckedModel read_units(const std::string& path) {
  InputText file(path);
  CheckedModel model;
  int number = 0;
  for (std::string line; std::getline(file.stream(), line);) {
    ++number;
    if (line.find(' ') == line.npos && line.find('\t') == line.npos)
      std::ranges::replace(line, ',', ' ');
    std::istringstream text(line.substr(0, line.find('#')));
    std::vector<std::string> words;
    for (std::string word; text >> word;) words.push_back(word);
    if (words.empty()) continue;
    std::string shape;
    for (size_t i = 1; i + 2 < words.size(); ++i) shape += words[i] + " ";
    require_input(words.size() >= 4 && words.size() < 20 &&
                      shape.find_first_not_of("0123456789x()[], ") == shape.npos,
                  path, ":", number, ": '", line.substr(0, 80),
                  "' is not name, shape, dtype and unit, such as 'wte.weight 256x32 float32 root'");
    std::string type = words[words.size() - 2];
    if (type.starts_with("torch.")) type = type.substr(6);
    type = type == "bfloat16"                    ? "bf16"
           : type == "float16" || type == "half" ? "f16"
                                                 : our_type(type);
    if (type == "fp32" || type == "fp16") type.erase(1, 1);
    require_input(type == "f32" || type == "bf16" || type == "f16", path, ":", number, ": '", type,
                  "' is none of float32, bfloat16 and float16");
    require_input(model.dtype.empty() || model.dtype == type, path, ":", number, ": '", words[0],
                  "' is ", type, ", but those before it are ", model.dtype,
                  "; a model of several types is not planned");
    model.dtype = type;
    model.add(words.back(), {words[0], read_shape(shape)});
  }
  file.require_complete();
  require_input(!model.units.empty(), "'", path, "' names no parameter");
  return model;
}

UnitSizes sizes_of(const CheckedModel::Unit& unit, int ranks, bool either_layout) {
  UnitSizes sizes;
  for (const auto& [name, shape] : unit.parameters) {
    const int64_t n = numel(shape);
    const auto padded = [&, &shape = shape](size_t dimension) {
      const int64_t rows = shape.empty() ? 1 : shape[dimension];
      return rows == 0 ? 0 : n / rows * round_up(rows, ranks);
    };
    const bool linear = either_layout && shape.size() == 2 && name.starts_with("h.");
    sizes.exact += n;
    sizes.ours += round_up(n, 16);
    sizes.rows += padded(0);
    sizes.transposed += padded(linear ? 1 : 0);
  }
  return sizes;
}

}  // namespace zl::cli
