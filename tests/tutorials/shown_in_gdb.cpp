// The program that tests/tutorials/gdb_test.cpp inspects with gdb, as the guide to gdb does. Always
// built with symbols.
#include "autograd/parameter.h"
#include "dist/run_ranks.h"
#include "tensor/kernels.h"

using namespace zl;

[[gnu::noinline]] void look(const Communicator& comm, const Tensor& half, const Tensor& gone,
                            const Parameter& parameter) {
  asm volatile("" : : "r"(&comm), "r"(&half), "r"(&gone), "r"(&parameter));
}

int main() {
  run_ranks(3, [](Communicator& comm) {
    Memory memory({DeviceKind::cpu}, cpu_backend(), comm.events());
    Memory nowhere({DeviceKind::meta}, meta_backend(), comm.events());
    const Tensor half = Tensor::empty(memory, MemoryUse::gradient, {2, 6}, Dtype::bf16);
    kernel::fill(0.5 + comm.rank(), half);
    Parameter parameter{.name = "h.0.ln_1.weight", .shape = {3}};
    parameter.data = Tensor::zeros(memory, MemoryUse::parameter, {3});
    parameter.data.data<float>()[1] = 0.25f;
    parameter.grad = Tensor::empty(nowhere, MemoryUse::gradient, {3});
    comm.barrier({"named", Purpose::check}).wait();  // from here on every rank has its name
    look(comm, half, {}, parameter);
    comm.barrier({"look", Purpose::check}).wait();
  });
}
