#include "tensor/io/json_check.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "tensor/error.h"

namespace zl {
namespace {

using nlohmann::json;

// Takes the events of the library's parser, which keeps its state on the heap. Values are accepted.
class Check : public nlohmann::detail::json_sax_acceptor<json> {
 public:
  Check(std::string_view text, const std::string& name, int depth)
      : text_(text), name_(name), depth_(size_t(depth)) {}

  bool start_object(size_t) {
    require_input(open_.size() < depth_, name_, " is nested deeper than ", depth_, " levels");
    open_.emplace_back();
    return true;
  }
  bool start_array(size_t n) { return start_object(n); }
  bool end_object() { return open_.pop_back(), true; }
  bool end_array() { return end_object(); }

  bool key(const std::string& key) {
    require_input(open_.back().insert(key).second, name_, ": the name ", json(key).dump(),
                  " occurs twice");
    return true;
  }

  [[noreturn]] bool parse_error(size_t byte, const std::string&, const json::exception& error) {
    const bool number = dynamic_cast<const json::out_of_range*>(&error) != nullptr;
    const auto before = text_.substr(0, byte);
    throw InputError(str(name_,
                         " is not valid JSON: ", number ? "a number is out of range" : "error",
                         " at byte ", byte, ", line ", 1 + std::ranges::count(before, '\n'),
                         byte > text_.size() ? "; the text ends too early" : ""));
  }

 private:
  const std::string_view text_;
  const std::string& name_;
  const size_t depth_;
  std::vector<std::set<std::string>> open_;  // the names of each open object; an array has none
};

}  // namespace

void check_json(std::string_view text, const std::string& name, const JsonRules& rules) {
  Check check(text, name, rules.depth);
  json::sax_parse(text, &check, json::input_format_t::json, true, rules.comments);
}

bool is_json(std::string_view text) try {
  check_json(text, "");
  return true;
} catch (const InputError&) {
  return false;
}

}  // namespace zl
