#include "tests/dist/trace/unpickle.h"

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace zl::test {
namespace {

using Json = nlohmann::json;

class Unpickler {
 public:
  explicit Unpickler(const std::string& bytes) : bytes_(bytes) {}

  Json value() {
    while (true) {
      const auto code = fixed<unsigned char>();
      if (code == '.') break;
      step(code);
    }
    if (stack_.size() != 1 || at_ != bytes_.size()) throw std::runtime_error("no single value");
    return stack_[0];
  }

 private:
  template <class T>
  T fixed() {
    T value;
    std::memcpy(&value, text(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text(size_t n) {
    if (n > bytes_.size() - at_) throw std::runtime_error("cut off");
    return bytes_.substr((at_ += n) - n, n);
  }

  void step(unsigned char code) {
    switch (code) {
      case 0x80:
        if (fixed<unsigned char>() != 2) throw std::runtime_error("not protocol 2");
        break;
      case '}': stack_.push_back(Json::object()); break;
      case ']': stack_.push_back(Json::array()); break;
      case '(': marks_.push_back(stack_.size()); break;
      case 'K': stack_.push_back(fixed<uint8_t>()); break;
      case 'J': stack_.push_back(fixed<int32_t>()); break;
      case 0x8a:
        if (fixed<uint8_t>() != 8) throw std::runtime_error("not 8 bytes");
        stack_.push_back(fixed<int64_t>());
        break;
      case 'X': stack_.push_back(text(fixed<uint32_t>())); break;
      case 'q': memo_[fixed<uint8_t>()] = stack_.back(); break;
      case 'r': memo_[fixed<uint32_t>()] = stack_.back(); break;
      case 'h': stack_.push_back(memo_.at(fixed<uint8_t>())); break;
      case 'j': stack_.push_back(memo_.at(fixed<uint32_t>())); break;
      case 'u': collect(true); break;
      case 'e': collect(false); break;
      default: throw std::runtime_error("an unknown opcode");
    }
  }

  // Moves what is above the mark into the dictionary or list below it.
  void collect(bool pairs) {
    const size_t mark = marks_.back();
    marks_.pop_back();
    Json& into = stack_.at(mark - 1);
    if (pairs != into.is_object()) throw std::runtime_error("items for another container");
    for (size_t i = mark; i < stack_.size(); i += pairs ? 2 : 1)
      if (pairs)
        into[stack_[i].get<std::string>()] = stack_.at(i + 1);
      else
        into.push_back(stack_[i]);
    stack_.resize(mark);
  }

  const std::string& bytes_;
  size_t at_ = 0;
  std::vector<Json> stack_;
  std::vector<size_t> marks_;
  std::map<uint32_t, Json> memo_;
};

}  // namespace

std::string unpickled_json(const std::string& pickle) { return Unpickler(pickle).value().dump(); }

}  // namespace zl::test
