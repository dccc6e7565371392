#include "tutorials/exercises/judge/record.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises {

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
  return {.exercise = int(std::strtol(words[0], nullptr, 10)),
          .seed = std::strtoull(words[1], nullptr, 10),
          .device = words[2] == std::string("cuda") ? DeviceKind::cuda : DeviceKind::cpu};
}

}  // namespace zl::exercises
