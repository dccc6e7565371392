#include "tutorials/exercises/judge/record.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises {

namespace {

const auto& found(const auto& in, const std::string& name) {
  const auto one = in.find(name);
  require_input(one != in.end(), "there is no '", name, "'");
  return one->second;
}

}  // namespace

const Values& Record::list(const std::string& name) const { return found(numbers, name); }
const std::string& Record::text(const std::string& name) const { return found(texts, name); }

void Record::add(std::vector<Record> ranks) {
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (auto& [name, values] : ranks[r].numbers) numbers[str(name, " ", r)] = std::move(values);
    for (auto& [name, text] : ranks[r].texts) texts[str(name, " ", r)] = std::move(text);
  }
}

// As MessagePack, which keeps NaN and infinity.
std::string encode(const Record& record) {
  std::string bytes;
  nlohmann::json::to_msgpack({{"numbers", record.numbers}, {"texts", record.texts}}, bytes);
  return bytes;
}

Record decode_record(const std::string& bytes) try {
  const auto json = nlohmann::json::from_msgpack(bytes);
  return {.numbers = json.at("numbers"), .texts = json.at("texts")};
} catch (const nlohmann::json::exception& e) {
  throw InputError(e.what());
}

CheckOptions check_options(const char* const* words) {
  CheckOptions options;
  options.exercise = int(std::strtol(words[0], nullptr, 10));
  options.seed = std::strtoull(words[1], nullptr, 10);
  options.device = words[2] == std::string("cuda") ? DeviceKind::cuda : DeviceKind::cpu;
  return options;
}

}  // namespace zl::exercises
