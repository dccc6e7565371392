#include "dist/trace/pickle_writer.h"

#include "tensor/error.h"

namespace zl {
namespace {

constexpr char kProtocol = char(0x80), kMark = '(', kSetItems = 'u', kAppends = 'e', kStop = '.',
               kUnicode = 'X', kInt1 = 'K', kInt4 = 'J', kLong = char(0x8a), kPut1 = 'q',
               kPut4 = 'r', kGet1 = 'h', kGet4 = 'j';
// As Python does. MemoryViz.js passes a batch as arguments of one call, whose number is limited.
constexpr int64_t kBatch = 1000;

}  // namespace

PickleWriter::PickleWriter(const std::function<void(std::string_view)>& write) : write_(write) {
  op(kProtocol);
  op(2);
}

void PickleWriter::little_endian(uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) op(char(value >> (8 * i)));
}

void PickleWriter::begin(char kind) {
  op(kind);
  op(kMark);
  open_.push_back({kind == ']'});
}

void PickleWriter::close() {
  require(!open_.empty(), "no dictionary and no list is open");
  op(open_.back().list ? kAppends : kSetItems);
  open_.pop_back();
}

void PickleWriter::end() {
  close();
  ended_value();
}

int64_t PickleWriter::end_remembered() {
  close();
  const int64_t remembered = remember();
  ended_value();
  return remembered;
}

void PickleWriter::ended_value() {
  if (text_.size() > (size_t(1) << 20)) write_(text_), text_.clear();
  if (open_.empty() || !open_.back().list || ++open_.back().values < kBatch) return;
  op(kAppends);
  op(kMark);
  open_.back().values = 0;
}

void PickleWriter::text(std::string_view text) {
  if (const auto same = texts_.find(std::string(text)); same != texts_.end())
    return refer(same->second);
  op(kUnicode);
  little_endian(text.size(), 4);
  text_ += text;
  texts_[std::string(text)] = remember();
  ended_value();
}

void PickleWriter::number(int64_t number) {
  const bool small = number == int32_t(number);
  if (number >= 0 && number < 256) {
    op(kInt1);
    little_endian(uint64_t(number), 1);
  } else if (small) {
    op(kInt4);
    little_endian(uint64_t(number), 4);
  } else {
    op(kLong);
    op(8);  // bytes of two's complement
    little_endian(uint64_t(number), 8);
  }
  ended_value();
}

int64_t PickleWriter::remember() {
  const bool small = remembered_ < 256;
  op(small ? kPut1 : kPut4);
  little_endian(uint64_t(remembered_), small ? 1 : 4);
  return remembered_++;
}

void PickleWriter::refer(int64_t remembered) {
  const bool small = remembered < 256;
  op(small ? kGet1 : kGet4);
  little_endian(uint64_t(remembered), small ? 1 : 4);
  ended_value();
}

void PickleWriter::finish() {
  require(open_.empty(), "a dictionary or a list is open");
  op(kStop);
  write_(text_);
  text_.clear();
}

}  // namespace zl
