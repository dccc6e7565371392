// Where does every byte live, and who may free it? One Memory, its ledger, and a few tensors.
#include <atomic>

#include "tensor/kernels.h"
#include "tutorials/lesson/lesson.h"

using namespace zl;
using namespace zl::lesson;

// A memory that prints what its ledger counts.
struct PrintedMemory {
  PrintedMemory(Lesson& lesson, Communicator& comm)
      : memory({DeviceKind::cpu}, lesson.backend(), comm.events()) {
    comm.events().listen([this, &lesson](const Event& e) {
      if (e.kind == EventKind::phase) lesson.say(e.what);
      if (e.kind != EventKind::allocate && e.kind != EventKind::release) return;
      lesson.say(str("    ", e.kind == EventKind::allocate ? "+ " : "- ", with_commas(e.bytes),
                     " B of ", e.what, ", now ", with_commas(memory.ledger().live_total()), " B"));
    });
  }
  Memory memory;
};

// Who owns memory: a storage counts its holders, and every Tensor on it is one.
void views_and_copies(Lesson& lesson, Memory& memory, int64_t R, int64_t C) {
  const MemoryLedger& ledger = memory.ledger();
  const int64_t bytes = 4 * R * C;
  memory.events().set_phase("a tensor");
  Tensor a = Tensor::empty(memory, MemoryUse::parameter, {R, C});
  for (float i = 0; float& x : a.data<float>()) x = i++;
  lesson.number("tensor", ledger.live_total(), bytes, "rows x columns x 4 B");

  memory.events().set_phase("two views: the last row, and the same elements in another shape");
  Tensor row = a.slice((R - 1) * C, {C}), reshaped = a.view({C, R});
  lesson.number("views_add", ledger.live_total() - bytes, 0, "a view is an offset and a shape");
  const auto at = [](const Tensor& t) { return static_cast<char*>(t.address()); };
  lesson.number("row_begins_at", at(row) - at(a), (R - 1) * C * 4, "(rows - 1) x columns x 4 B");
  kernel::fill(-1, row);
  lesson.check("a write through one view is visible through all",
               a.data<float>()[size_t((R - 1) * C)] == -1);
  lesson.check("a view in another shape is not a transpose: element (0, 1) stays element (0, 1)",
               reshaped.data<float>()[1] == 1);

  memory.events().set_phase("a copy");
  Tensor b = Tensor::empty(memory, MemoryUse::activation, a.shape());
  kernel::copy(a, b);
  lesson.number("copy_adds", ledger.live_total() - bytes, bytes,
                "rows x columns x 4 B: a second storage");
  kernel::fill(-2, row);
  lesson.check("a later write is not visible in the copy",
               b.data<float>()[size_t((R - 1) * C)] == -1);

  memory.events().set_phase("destroy the first handle, then both views");
  a = {};
  lesson.number("held_by_views", ledger.live(MemoryUse::parameter), bytes,
                "all of it: a view keeps the storage alive");
  row = {};
  lesson.check("one holder is left", reshaped.unique());
  reshaped = {};
  lesson.number("nobody_holds", ledger.live(MemoryUse::parameter), 0, "the last holder freed it");
}

void peak_and_limit(Lesson& lesson, Memory& memory, int64_t R, int64_t C) {
  MemoryLedger& ledger = memory.ledger();
  EventStream no_listener;
  const auto make = [&](Memory& where, Dtype type) {
    return Tensor::empty(where, MemoryUse::activation, {R, C}, type);
  };
  memory.events().set_phase("x and y live together; z is allocated after both are freed");
  ledger.reset_peak();
  { const Tensor x = make(memory, Dtype::f32), y = make(memory, Dtype::bf16); }
  const Tensor z = make(memory, Dtype::f32);
  lesson.number("live", ledger.live_total(), 4 * R * C, "z");
  lesson.number("peak", ledger.peak_total(), (4 + 2) * R * C,
                "x in fp32 and y in bf16, at the same time");

  memory.events().set_phase("a memory with a limit of two tensors");
  Memory small({DeviceKind::cpu}, lesson.backend(), no_listener, {.limit = 8 * R * C});
  const Tensor first = make(small, Dtype::f32), second = make(small, Dtype::f32);
  int64_t asked = 0;
  try {
    make(small, Dtype::f32);
  } catch (const OutOfMemory& error) {
    asked = error.asked;
    lesson.say(str("    ", error.what()));
  }
  lesson.number("refused", asked, 4 * R * C, "the third: rows x columns x 4 B");
}

void body(Lesson& lesson) {
  const int64_t R = lesson.count("--rows"), C = lesson.count("--columns"), N = lesson.ranks();
  lesson.run_ranks(1, [&](Communicator& comm) {
    PrintedMemory printed(lesson, comm);
    lesson.recording().watch(comm, printed.memory, {});
    views_and_copies(lesson, printed.memory, R, C);
    peak_and_limit(lesson, printed.memory, R, C);
    lesson.number("at_the_end", printed.memory.ledger().live_total(), 0,
                  "the last holder of every tensor is gone");
  });
  std::atomic<int64_t> live = 0;
  lesson.run_ranks(int(N), [&](Communicator& comm) {
    Memory memory({DeviceKind::cpu}, lesson.backend(), comm.events());
    const Tensor mine = Tensor::empty(memory, MemoryUse::parameter, {R, C});
    live += memory.ledger().live_total();
  });
  lesson.number("all_ranks", live, N * 4 * R * C,
                "one tensor per rank: each rank has its own memory and ledger");
}

int main(int argc, char** argv) {
  const Flag rows{"--rows", "R", "rows of the tensors", 8, 2, 300},
      columns{"--columns", "C", "columns of the tensors", 4, 2, 300};
  return run(
      argc, argv,
      {"01_tensor", "Where does every byte live, and who may free it?", 1, 8, {rows, columns}},
      body);
}
