#include "tutorials/exercises/judge/record.h"

#include <cstdlib>

#include "dist/processes/wire.h"
#include "tensor/error.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises {

const std::vector<double>& Record::list(const std::string& name) const {
  const auto found = numbers.find(name);
  require_input(found != numbers.end() && !found->second.empty(), "there is no '", name, "'");
  return found->second;
}

std::string encode(const Record& record) {
  WireWriter wire;
  wire.put(uint64_t(record.numbers.size()));
  for (const auto& [name, values] : record.numbers) {
    wire.text(name).put(uint64_t(values.size()));
    for (const double value : values) wire.put(value);
  }
  wire.put(uint64_t(record.texts.size()));
  for (const auto& [name, text] : record.texts) wire.text(name).text(text);
  return wire.take();
}

Record decode_record(const std::string& bytes) try {
  WireReader reader(bytes);
  Record record;
  for (auto n = reader.get<uint64_t>(); n > 0; --n) {
    std::vector<double>& values = record.numbers[reader.text()];
    for (auto k = reader.get<uint64_t>(); k > 0; --k) values.push_back(reader.get<double>());
  }
  for (auto n = reader.get<uint64_t>(); n > 0; --n) {
    std::string& text = record.texts[reader.text()];
    text = reader.text();
  }
  require_input(reader.at_end(), "the observations have no end");
  return record;
} catch (const CommunicationError&) {
  throw InputError("the observations end too early");
}

CheckOptions check_options(const char* const* words) {
  CheckOptions options;
  options.exercise = int(std::strtol(words[0], nullptr, 10));
  options.seed = std::strtoull(words[1], nullptr, 10);
  options.device = words[2] == std::string("cuda") ? DeviceKind::cuda : DeviceKind::cpu;
  return options;
}

}  // namespace zl::exercises
