// The tape of one forward pass of a GPT, and what its backward pass adds to which gradient.
#include <algorithm>
#include <map>
#include <set>

#include "tensor/cpu/cpu_backend.h"
#include "tensor/error.h"
#include "tensor/kernels.h"
#include "tensor/random.h"
#include "tutorials/zerolab/draw/pictures.h"
#include "tutorials/zerolab/draw/svg.h"
#include "tutorials/zerolab/draw/tiny_run.h"

namespace zl::draw {
namespace {

struct Span {
  size_t begin = 0, end = 0;  // the entries of a unit's two hooks
};

// One forward and backward pass, observed through hooks and kernel events.
class TapeReader final : public UnitObserver {
 public:
  TapeReader() {
    for (Parameter& p : model_.parameters()) {
      p.data = Tensor::empty(memory_, MemoryUse::parameter, p.shape);
      p.grad = Tensor::zeros(memory_, MemoryUse::gradient, p.shape);
      kernel::normal({1, fnv1a(p.name), p.initial_mean, p.initial_deviation}, 0, p.data);
      bits_[&p] = bits(p);
    }
  }
  void run() {
    const Tensor ids = Tensor::zeros(memory_, MemoryUse::activation, {4, 32}, Dtype::i32),
                 targets = Tensor::zeros(memory_, MemoryUse::activation, {4, 32}, Dtype::i32);
    events_.listen([this](const Event& e) {
      if (e.kind != EventKind::kernel) return;
      if (backward_)
        look(tape_.entries());
      else
        operations.emplace(tape_.entries(), e.what);
    });
    const Var loss = model_.loss(&tape_, *this, {ids, targets});
    const Tensor one = activation_like(loss.value(), {1});
    entries = tape_.entries();
    kernel::fill(1, one);
    operations.erase(entries);  // the fill
    backward_ = true;
    tape_.backward(loss, one);
  }

  void before_forward(Unit& u, bool) override { spans[u.index].begin = tape_.entries(); }
  void before_backward(Unit& u) override {
    look(tape_.entries());
    spans[u.index].end = tape_.entries();
  }
  void after_backward(Unit&) override { look(tape_.entries()); }

  const std::vector<Unit>& units() { return model_.units(); }

  size_t entries = 0;
  std::map<size_t, std::string> operations;             // by entry; the others are hooks
  std::map<int, Span> spans;                            // by the unit's index
  std::map<const Parameter*, std::set<size_t>> adding;  // the entries that added to a gradient

 private:
  static uint64_t bits(const Parameter& p) {
    return fnv1a({static_cast<const char*>(p.grad.address()), size_t(p.grad.bytes())});
  }
  // Entry `at` is about to run a kernel: what has changed since the last look, the entry before
  // that look has added.
  void look(size_t at) {
    for (auto& [parameter, before] : bits_)
      if (bits(*parameter) != std::exchange(before, bits(*parameter)))
        adding[parameter].insert(running_);
    running_ = at;
  }

  EventStream events_;
  Memory memory_{{DeviceKind::cpu}, cpu_backend(), events_};
  Gpt model_{lesson_model()};
  Tape tape_;
  bool backward_ = false;
  size_t running_ = 0;  // the entry of the last look
  std::map<const Parameter*, uint64_t> bits_;
};

constexpr double kLeft = 16, kPitch = 23.4, kTape = 118, kCell = 104;
double x_of(size_t entry) { return kLeft + kPitch * double(entry); }

void draw_entries(Svg& svg, const TapeReader& tape) {
  for (size_t entry = 0; entry < tape.entries; ++entry) {
    const auto operation = tape.operations.find(entry);
    const bool hook = operation == tape.operations.end();
    const std::string label = hook ? "hook" : operation->second;
    svg.box({x_of(entry) + 1, kTape, kPitch - 2, kCell}, hook ? "solid" : "panel",
            str("entry ", entry, ": ", label));
    svg.text_up({x_of(entry) + kPitch / 2 + 4, kTape + kCell - 6}, label,
                hook ? "mono on" : "mono");
  }
}

// From hook to hook, above the tape.
void draw_unit(Svg& svg, const std::string& name, const Span& span, double y) {
  const double begin = x_of(span.begin) + 2, end = x_of(span.end + 1) - 2;
  svg.path(str("M", number(begin), " ", number(kTape - 4), "V", number(y), "H", number(end), "V",
               number(kTape - 4)),
           "ink");
  svg.text({(begin + end) / 2, y - 5}, name, "bold middle");
}

// A row below the tape: where these parameters' gradients grow, and from where they are final.
void draw_gradients(Svg& svg, double y, const std::string& label, const std::set<size_t>& adding,
                    const Span& span, int parameters) {
  const double final_at = x_of(span.begin) + kPitch / 2, first = x_of(*adding.rbegin() + 1);
  svg.text({kLeft, y - 6}, str(label, parameters > 1 ? str(": ", parameters, " gradients") : ""),
           "bold");
  svg.line({kLeft, y + 9}, {Svg::kWidth - kLeft, y + 9}, "faint");
  svg.box({final_at, y, first - final_at, 18}, "gradient",
          str(label, ": grows from entry ", *adding.rbegin(), ", final at the hook ", span.begin));
  if (final_at > kLeft + kPitch) {
    svg.box({kLeft, y, final_at - kLeft, 18}, "parameter weak");
    if (final_at > kLeft + 100)
      svg.text({(kLeft + final_at) / 2, y + 14}, "final: may be sent", "middle");
  }
  for (const size_t entry : adding) svg.circle({x_of(entry) + kPitch / 2, y + 9}, 4, "solid");
  svg.path(str("M", number(final_at), " ", number(y - 4), "v26"), "accent");
}

}  // namespace

std::string draw_tape() {
  TapeReader tape;
  tape.run();
  Svg svg(
      "The tape of a GPT with two blocks: when is a gradient final?",
      "Thirty-one entries in the order of the forward pass, six of them hooks around root, h.0 "
      "and h.1. Backward runs from right to left. The gradients of h.1 and h.0 are final when "
      "backward reaches the first hook of the block; the tied weight wte of root gets its first "
      "contribution at the right end and its last one at the left end.",
      430);
  const auto& units = tape.units();
  svg.text({kLeft, 44}, "forward appends entries", "soft");
  svg.arrow({kLeft + 172, 40}, {kLeft + 236, 40});
  svg.text({x_of(tape.entries), 44}, "backward runs them from the end", "soft end");
  svg.arrow({kLeft + 494, 40}, {kLeft + 430, 40});
  draw_unit(svg, units[0].name, tape.spans[0], 72);
  for (size_t u = 1; u < units.size(); ++u) draw_unit(svg, units[u].name, tape.spans[int(u)], 104);
  draw_entries(svg, tape);
  double y = kTape + kCell + 38;
  for (size_t u = units.size(); u-- > 0;) {
    std::set<size_t> adding;
    for (const Parameter* p : units[u].parameters)
      if (u > 0) adding.merge(std::set<size_t>(tape.adding[p]));
    if (u == 0) adding = tape.adding[units[0].parameters[0]];
    draw_gradients(svg, y, u > 0 ? units[u].name : "root: wte.weight, used twice", adding,
                   tape.spans[int(u)], u > 0 ? int(units[u].parameters.size()) : 1);
    y += 50;
  }
  svg.circle({kLeft + 4, y - 3}, 4, "solid");
  svg.text({kLeft + 14, y + 1}, "an entry adds", "soft");
  svg.path(str("M", number(kLeft + 124), " ", number(y - 10), "v14"), "accent");
  svg.text({kLeft + 132, y + 1}, "the hook after which they are final", "soft");
  return svg.document();
}

}  // namespace zl::draw
