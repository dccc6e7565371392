#include "tutorials/exercises/grader/record.h"

#include "dist/processes/wire.h"
#include "tensor/error.h"

namespace zl::exercises {

std::string encode(const Record& record, uint64_t key) {
  WireWriter wire;
  wire.put(key).put(uint64_t(record.numbers.size()));
  for (const auto& [name, values] : record.numbers) {
    wire.text(name).put(uint64_t(values.size()));
    for (const double value : values) wire.put(value);
  }
  wire.put(uint64_t(record.texts.size()));
  for (const auto& [name, text] : record.texts) wire.text(name).text(text);
  wire.put(key);
  return wire.take();
}

Record decode_record(const std::string& bytes, uint64_t key) {
  try {
    WireReader reader(bytes);
    Record record;
    require_input(reader.get<uint64_t>() == key, "the result of the check is no record");
    for (uint64_t n = reader.get<uint64_t>(); n > 0; --n) {
      std::vector<double>& values = record.numbers[reader.text()];
      for (uint64_t k = reader.get<uint64_t>(); k > 0; --k) values.push_back(reader.get<double>());
    }
    for (uint64_t n = reader.get<uint64_t>(); n > 0; --n) {
      std::string& text = record.texts[reader.text()];
      text = reader.text();
    }
    require_input(reader.get<uint64_t>() == key && reader.at_end(),
                  "the result of the check is no record");
    return record;
  } catch (const CommunicationError&) {
    throw InputError("the result of the check ends too early");
  }
}

}  // namespace zl::exercises
