// When is a gradient final? First the tape of one expression, entry by entry; then a GPT that uses
// its embedding twice.
#include <map>
#include <set>

#include "tensor/random.h"
#include "tutorials/02_numbers_on_tape.h"
#include "tutorials/lesson/model_m.h"

using namespace zl;
using namespace zl::lesson;

// The expression of micrograd's README, one op after the other.
void micrograd(Lesson& lesson, Memory& memory) {
  Expression on{lesson, memory};
  Parameter pa{"a", {1}, 0, 0, on.scalar(-4), on.scalar(0)},
      pb{"b", {1}, 0, 0, on.scalar(2), on.scalar(0)};
  const Number a(on, Var::parameter(&on.tape, pa), -4, "a"),
      b(on, Var::parameter(&on.tape, pb), 2, "b");
  Number c = a + b, d = a * b, t = 0;
  d = d + pow(b, 3), c = c + (c + 1);              // d = a b + b^3, c += c + 1
  t = 1 + c, t = t + a * -1, c = c + t;            // c += 1 + c - a
  t = d * 2, t = t + relu(b + a), d = d + t;       // d += 2 d + relu(b + a)
  t = 3 * d, t = t + relu(b + a * -1), d = d + t;  // d += 3 d + relu(b - a)
  const Number f = pow(c + d * -1, 2), h = f * 0.5,
               g = h + 10 * pow(f, -1);  // f = (c - d)^2, g = f / 2 + 10 / f
  lesson.say(
      "The tape in the order of the backward pass; each entry with its value and its final "
      "gradient:");
  on.tape.backward(g.var, on.scalar(1));
  lesson.number("contributions", on.contributions, on.uses, "uses of a and b in the forward pass");
  lesson.number("g", g.value, 24.7041, 5e-5, "micrograd's README, which has four decimals");
  lesson.number("a_gradient", kernel::read(pa.grad), 138.8338, 5e-5, "likewise");
  lesson.number("b_gradient", kernel::read(pb.grad), 645.5773, 5e-5, "likewise");
}

struct Seen {  // by one rank
  std::vector<std::string> story;
  int64_t additions = 0, finals = 0, unchanged = 0;
  uint64_t bits = 0;  // of wte.weight's gradient
};

// Observes the hooks that the backward pass runs. The gradients of a unit are final when backward
// has left every pass of the unit.
struct Watcher : UnitObserver {
  Watcher(EventStream& events, const Parameter& tied, Seen& seen)
      : events(events), tied(tied), seen(seen) {
    seen.bits = bits(tied);
  }
  static uint64_t bits(const Parameter& p) {
    return fnv1a({static_cast<const char*>(p.grad.address()), size_t(p.grad.bytes())});
  }
  void before_forward(Unit& u, bool) override { ++passes[&u]; }
  void before_backward(Unit& u) override {
    entered.insert(&u);
    tell("enters ", u);
  }
  void after_backward(Unit& u) override {
    if (--passes[&u] == 0)
      for (const Parameter* p : u.parameters) finals.emplace_back(p, bits(*p));
    tell("leaves ", u);
  }
  std::vector<Row> rows(const std::vector<Unit>& units) const {  // for --step
    std::vector<Row> all;
    for (const Unit& u : units)
      all.push_back({u.name, !entered.contains(&u) ? "0"
                             : passes.at(&u) > 0   ? "growing"
                                                   : "final"});
    return all;
  }
  void tell(const char* what, const Unit& u) {
    events.set_unit(u.name);
    events.append(EventKind::unit, what);
    const bool added = bits(tied) != std::exchange(seen.bits, bits(tied));
    seen.additions += added;
    seen.story.push_back(
        str("  backward ", what, u.name, added ? "; the gradient of wte.weight has changed" : ""));
  }
  EventStream& events;
  const Parameter& tied;
  Seen& seen;
  std::set<const Unit*> entered{};
  std::map<const Unit*, int> passes{};
  std::vector<std::pair<const Parameter*, uint64_t>> finals{};
};

// One forward and backward pass of a rank's own batch, without any stage.
void tied_embedding(Lesson& lesson, Communicator& comm, Seen& seen) {
  Memory memory({DeviceKind::cpu}, lesson.backend(), comm.events());
  Gpt model(model_m());
  for (Parameter& p : model.parameters()) {
    p.data = Tensor::empty(memory, MemoryUse::parameter, p.shape);
    p.grad = Tensor::zeros(memory, MemoryUse::gradient, p.shape);
    kernel::normal({lesson.seed(), fnv1a(p.name), p.initial_mean, p.initial_deviation}, 0, p.data);
  }
  const Tensor ids = Tensor::empty(memory, MemoryUse::activation, {kRowsM, 32}, Dtype::i32),
               targets = activation_like(ids, ids.shape());
  text_m().fill_rows(comm.rank() * kRowsM, ids.data<int32_t>(), targets.data<int32_t>());
  Tape tape;
  Watcher watcher(comm.events(), model.parameters().front(), seen);
  lesson.recording().watch(
      comm, memory, {[&] { return watcher.rows(model.units()); }, {"the gradients of each unit"}});
  const Var loss = model.loss(&tape, watcher, {ids, targets});
  const Tensor one = activation_like(loss.value(), {1});
  kernel::fill(1, one);
  comm.events().set_phase("backward");
  tape.backward(loss, one);
  seen.finals = std::ssize(watcher.finals);
  for (const auto& [parameter, bits] : watcher.finals)
    seen.unchanged += bits == Watcher::bits(*parameter);
  lesson.recording().stop(comm.rank());
}

void body(Lesson& lesson) {
  lesson.run_ranks(1, [&](Communicator& comm) {
    Memory memory({DeviceKind::cpu}, lesson.backend(), comm.events());
    micrograd(lesson, memory);
  });
  const int N = lesson.ranks();
  std::vector<Seen> seen(static_cast<size_t>(N));
  lesson.run_ranks(
      N, [&](Communicator& comm) { tied_embedding(lesson, comm, seen[size_t(comm.rank())]); });
  lesson.say("a GPT that uses wte.weight twice, as embedding and as output head");
  for (const std::string& line : seen[0].story) lesson.say(line);
  const int64_t all = int64_t(Gpt(model_m()).parameters().size());
  lesson.number("additions", seen[0].additions, 2, "uses of wte.weight: head and embedding");
  lesson.number("final_gradients", seen[0].finals, all, "parameters; each is final once");
  lesson.number("unchanged", seen[0].unchanged, all,
                "gradients that did not change after backward left the unit");
  std::set<uint64_t> different;
  for (const Seen& s : seen) different.insert(s.bits);
  lesson.number("different_gradients", int64_t(different.size()), N,
                "ranks: each has its own tape and its own batch");
}

int main(int argc, char** argv) {
  return run(argc, argv, {"02_autograd", "When is a gradient final?", 1, 8}, body);
}
