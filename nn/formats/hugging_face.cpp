#include "nn/formats/hugging_face.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "nn/formats/pytorch.h"
#include "tensor/error.h"

namespace zl {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

using WeightMap = std::map<std::string, std::string>;  // tensor -> name of its file

// Throws if the text is not JSON, or if a name occurs twice in an object: json::parse would take
// the last.
json read_json(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  require_input(file.is_open(), "'", path, "' cannot be opened");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::set<std::string>> names;  // of each open object
  using Event = json::parse_event_t;
  const auto check = [&](int, Event event, json& value) {
    if (event == Event::object_start) names.emplace_back();
    if (event == Event::object_end) names.pop_back();
    if (event == Event::key)
      require_input(names.back().insert(value.get<std::string>()).second, "'", path, "': the name ",
                    value.dump(), " occurs twice");
    return true;
  };
  try {
    return json::parse(text, check);
  } catch (const json::parse_error& error) {
    throw InputError(str("'", path, "' is not valid JSON: error at byte ", error.byte));
  } catch (const json::exception&) {
    throw InputError(str("'", path, "' is not valid JSON: a value is out of range"));
  }
}

WeightMap weight_map_of(const std::string& index, const json& content) {
  const auto found = content.find("weight_map");
  require_input(content.is_object() && found != content.end() && found->is_object(), "'", index,
                "' has no weight_map; expected the index of safetensors files");
  require_input(!found->empty(), "'", index, "': weight_map is empty");
  WeightMap map;
  for (const auto& [tensor, file] : found->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    const bool plain =
        !name.empty() && name != "." && name != ".." && fs::path(name).filename() == name;
    require_input(plain, "'", index, "' assigns tensor '", tensor, "' to ",
                  file.is_string() ? str("'", name, "'") : str("a JSON ", file.type_name()),
                  "; expected the name of a file in the same folder");
    map.emplace(tensor, name);
  }
  return map;
}

// Throws unless the file has exactly the tensors that the index assigns to it.
void check_shard(const std::string& index, const WeightMap& map, const std::string& name,
                 const SafetensorsFile& file) {
  for (const auto& [tensor, assigned] : map)
    require_input(assigned != name || file.find(tensor), "'", index, "' assigns tensor '", tensor,
                  "' to '", file.path(), "', which does not have it among its ",
                  file.entries().size());
  for (const SafetensorsEntry& e : file.entries()) {
    const auto found = map.find(e.name);
    require_input(found != map.end(), "'", file.path(), "' has tensor '", e.name, "', which '",
                  index, "' does not list");
    require_input(found->second == name, "'", file.path(), "' has tensor '", e.name, "', which '",
                  index, "' assigns to '", found->second, "'");
  }
}

// Throws if there is a total_size and it is not the bytes of all tensors. Older versions of
// transformers counted an element of BOOL, the type of GPT-2's masks, as 1/8 byte.
void check_total_size(const std::string& index, const json& content,
                      const std::deque<SafetensorsFile>& files) {
  const auto metadata = content.find("metadata");
  if (metadata == content.end()) return;
  require_input(metadata->is_object(), "'", index, "': metadata is a JSON ", metadata->type_name(),
                "; expected an object");
  const auto size = metadata->find("total_size");
  if (size == metadata->end()) return;
  require_input(size->is_number(), "'", index, "': total_size is a JSON ", size->type_name(),
                "; expected a number");
  int64_t bytes = 0, booleans = 0;
  for (const SafetensorsFile& file : files)
    for (const SafetensorsEntry& e : file.entries())
      (e.dtype == "BOOL" ? booleans : bytes) += e.bytes();
  const double stated = size->get<double>();
  require_input(
      stated == double(bytes + booleans) || stated == double(bytes) + double(booleans) / 8, "'",
      index, "': total_size is ", size->dump(), ", but the tensors in its ", files.size(),
      " files have ", bytes + booleans, " bytes; are all files of the same model?");
}

}  // namespace

std::deque<SafetensorsFile> open_shards(const std::string& index) {
  const json content = read_json(index);
  const WeightMap map = weight_map_of(index, content);
  std::map<std::string, int64_t> tensors;  // of each file
  for (const auto& [tensor, name] : map) ++tensors[name];
  std::deque<SafetensorsFile> files;
  std::error_code ignored;
  for (const auto& [name, count] : tensors) {
    const std::string path = (fs::path(index).parent_path() / name).string();
    require_input(fs::exists(path, ignored), "there is no file '", path, "', but '", index,
                  "' assigns ", count, " tensors to it");
    refuse_pytorch_file(path);
    check_shard(index, map, name, files.emplace_back(path));
  }
  check_total_size(index, content, files);
  return files;
}

std::optional<int64_t> heads_of_config(const std::string& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return {};
  const json content = read_json(path);
  const auto found = content.find("n_head");
  if (found == content.end()) return {};
  const bool counts = found->is_number_unsigned() && found->get<uint64_t>() >= 1 &&
                      found->get<uint64_t>() <= uint64_t(INT64_MAX);
  require_input(counts, "'", path, "': n_head is ",
                found->is_number() ? found->dump() : str("a JSON ", found->type_name()),
                "; expected a whole number from 1");
  return found->get<int64_t>();
}

}  // namespace zl
