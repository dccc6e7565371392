// The program of lesson 01, statement by statement: live bytes, and which handles exist.
#include <algorithm>
#include <functional>
#include <map>

#include "tensor/cpu/cpu_backend.h"
#include "tensor/error.h"
#include "tensor/tensor.h"
#include "tutorials/zerolab/draw/legend.h"
#include "tutorials/zerolab/draw/pictures.h"

namespace zl::draw {
namespace {

using Handles = std::map<std::string, Tensor>;

// What the ledger says after a statement, and the handles that exist then.
struct Column {
  std::string statement;
  int64_t parameter, activation;  // [B]
  std::vector<std::string> handles;
};

class Program {
 public:
  void run(const std::string& statement, const std::function<void(Handles&)>& effect) {
    effect(handles_);
    Column column{statement,
                  memory_.ledger().live(MemoryUse::parameter),
                  memory_.ledger().live(MemoryUse::activation),
                  {}};
    for (const auto& [name, handle] : handles_)
      if (handle.defined()) column.handles.push_back(name);
    columns_.push_back(std::move(column));
  }
  Tensor make(MemoryUse use, Shape shape, Dtype type = Dtype::f32) {
    return Tensor::empty(memory_, use, std::move(shape), type);
  }
  const std::vector<Column>& columns() const { return columns_; }

 private:
  EventStream events_;
  Memory memory_{{DeviceKind::cpu}, cpu_backend(), events_};
  Handles handles_;
  std::vector<Column> columns_;
};

// The allocations and frees of tutorials/01_tensor.cpp, without those of kernels.
std::vector<Column> run_lesson(int64_t R, int64_t C) {
  Program p;
  p.run("a = empty({R, C})", [&](Handles& h) { h["a"] = p.make(MemoryUse::parameter, {R, C}); });
  p.run("row = a.slice(...)", [&](Handles& h) { h["row"] = h["a"].slice((R - 1) * C, {C}); });
  p.run("shaped = a.view(...)", [&](Handles& h) { h["shaped"] = h["a"].view({C, R}); });
  p.run("b = empty({R, C})", [&](Handles& h) { h["b"] = p.make(MemoryUse::activation, {R, C}); });
  p.run("a = {}", [](Handles& h) { h["a"] = {}; });
  p.run("row = {}", [](Handles& h) { h["row"] = {}; });
  p.run("shaped = {}", [](Handles& h) { h["shaped"] = {}; });
  p.run("}", [](Handles& h) { h["b"] = {}; });
  p.run("{ x = empty({R, C})", [&](Handles& h) { h["x"] = p.make(MemoryUse::activation, {R, C}); });
  p.run("y = empty(..., bf16)", [&](Handles& h) {
    h["y"] = p.make(MemoryUse::activation, {R, C}, Dtype::bf16);
  });
  p.run("}", [](Handles& h) { h["y"] = {}, h["x"] = {}; });
  p.run("z = empty({R, C})", [&](Handles& h) { h["z"] = p.make(MemoryUse::activation, {R, C}); });
  return p.columns();
}

struct Area {
  double left = 84, pitch = 55, top = 74, bottom = 214, most = 280;  // most [B]
  double x(size_t column) const { return left + pitch * double(column); }
  double height(int64_t bytes) const { return (bottom - top) * double(bytes) / most; }
};

void draw_bytes(Svg& svg, const Area& area, const std::vector<Column>& columns) {
  for (const int64_t tick : {0, 64, 128, 192, 256}) {
    const double y = area.bottom - area.height(tick);
    svg.line({area.left, y}, {area.x(columns.size()), y}, "faint");
    svg.text({area.left - 8, y + 4}, str(tick, " B"), "soft end");
  }
  for (size_t i = 0; i < columns.size(); ++i) {
    const Column& c = columns[i];
    const double low = area.height(c.parameter), high = area.height(c.activation);
    if (low > 0)
      svg.box({area.x(i), area.bottom - low, area.pitch, low}, "parameter",
              str(c.statement, ": parameter ", c.parameter, " B"));
    if (high > 0)
      svg.box({area.x(i), area.bottom - low - high, area.pitch, high}, "activation",
              str(c.statement, ": activation ", c.activation, " B"));
    svg.text({area.x(i) + area.pitch / 2, area.bottom - low - high - 5},
             str(c.parameter + c.activation), "middle");
  }
}

void draw_handle(Svg& svg, const Area& area, const std::vector<Column>& columns,
                 const std::string& handle, const std::string& style, double y) {
  svg.text({area.left - 8, y + 11}, handle, "mono end");
  for (size_t i = 0; i < columns.size(); ++i) {
    if (std::ranges::find(columns[i].handles, handle) == columns[i].handles.end()) continue;
    svg.box({area.x(i), y, area.pitch, 14}, style);
  }
}

}  // namespace

std::string draw_live_bytes() {
  constexpr int64_t R = 8, C = 4;
  const std::vector<Column> columns = run_lesson(R, C);
  const Area area;
  Svg svg("A block is freed with its last handle",
          "Live bytes after each statement of lesson 01, as the ledger counts them, above the time "
          "in which each handle exists. The block of a stays while one of its three handles a, row "
          "and shaped exists. The peak of the second part is 192 bytes, where x and y exist "
          "together.",
          524);
  draw_legend(svg, {16, 46}, {MemoryUse::parameter, MemoryUse::activation});
  draw_bytes(svg, area, columns);
  double y = area.bottom + 30;
  svg.text({16, y - 6}, "handles", "soft");
  for (const char* handle : {"a", "row", "shaped"}) {
    draw_handle(svg, area, columns, handle, "parameter", y);
    y += 18;
  }
  for (const char* handle : {"b", "x", "y", "z"}) {
    draw_handle(svg, area, columns, handle, "activation", y);
    y += 18;
  }
  svg.line({area.x(8), area.top - 8}, {area.x(8), y}, "soft dash");
  for (size_t i = 0; i < columns.size(); ++i) {
    svg.text_up({area.x(i) + area.pitch / 2 + 4, y + 6}, columns[i].statement, "mono end");
  }
  return svg.document();
}

}  // namespace zl::draw
