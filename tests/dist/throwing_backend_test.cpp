// A device that fails in the middle of a move: a GPU's errors come as exceptions, wherever it is
// asked.
#include <catch2/catch_test_macros.hpp>

#include "tensor/cpu/cpu_backend.h"
#include "tests/dist/ranks.h"

using namespace zl;
using namespace zl::test;

namespace {

class BrokenBackend final : public CpuBackend {
 public:
  void move_bytes(const void*, void*, int64_t) override {
    throw std::runtime_error("the device has fallen off the bus");
  }
};

Outcome run_broken(const std::function<void(Communicator&, const Tensor&)>& call) {
  return outcome(
      2,
      [&](Communicator& comm) {
        BrokenBackend broken;
        EventStream events;
        Memory memory({}, broken, events);
        const Tensor t = Tensor::zeros(memory, MemoryUse::gradient, {64});
        call(comm, t);
        comm.barrier(kName).wait();
      },
      std::chrono::seconds(10));
}

}  // namespace

TEST_CASE(
    "a device that fails while it moves what was sent ends both ranks at once, with its own words",
    "[dist]") {
  const Outcome result = run_broken([](Communicator& comm, const Tensor& t) {
    Work work = comm.rank() == 0 ? comm.send(t, 1, kName) : comm.receive(t, 0, kName);
    work.wait();
  });
  CHECK(result.thrown.find("fallen off the bus") != std::string::npos);
  CHECK(result.took < std::chrono::seconds(5));
}

TEST_CASE("a device that fails in a collective ends all ranks at once, with its own words",
          "[dist]") {
  const Outcome result =
      run_broken([](Communicator& comm, const Tensor& t) { comm.all_gather(t, kName).wait(); });
  CHECK(result.thrown == "the device has fallen off the bus");
  CHECK(result.took < std::chrono::seconds(5));
}
