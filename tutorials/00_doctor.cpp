// Can this machine run the course? Runs a small computation on the CPU, alone, with N ranks, and as
// two steps of training.
#include <algorithm>
#include <thread>

#include "tensor/kernels.h"
#include "tutorials/lesson/model_m.h"

using namespace zl;
using namespace zl::lesson;

// An element of the matmul of (M, K) ones and (K, N) twos: 2 K if the kernels work.
float ones_times_twos(Backend& backend, int64_t K) {
  EventStream events;
  Memory memory({DeviceKind::cpu}, backend, events);
  const auto filled = [&](Shape shape, double value) {
    const Tensor t = Tensor::empty(memory, MemoryUse::activation, std::move(shape));
    kernel::fill(value, t);
    return t;
  };
  const Tensor out = filled({5, 3}, 0);
  kernel::matmul({filled({5, K}, 1)}, {filled({K, 3}, 2)}, {}, out);
  return kernel::download<float>(out).back();
}

// The sum of 1, 2, …, N by an all-reduce of N ranks.
float sum_of_ranks(Communicator& comm, Backend& backend) {
  Memory memory({DeviceKind::cpu}, backend, comm.events());
  const Tensor t = Tensor::empty(memory, MemoryUse::communication, {1});
  kernel::fill(comm.rank() + 1, t);
  comm.all_reduce(t, Reduction::sum, {"doctor", Purpose::check}).wait();
  return kernel::download<float>(t)[0];
}

void cpu(Lesson& lesson) {
  const int N = lesson.ranks();
  lesson.number("product", int64_t(ones_times_twos(lesson.backend(), 100)), 2 * 100,
                "100 x 1 x 2, by the CPU's matmul");
  std::vector<int64_t> sums(static_cast<size_t>(N));
  lesson.run_ranks(N, [&](Communicator& comm) {
    sums[size_t(comm.rank())] = int64_t(sum_of_ranks(comm, lesson.backend()));
  });
  lesson.number("sum_of_ranks", sums.back(), N * (N + 1) / 2,
                "1 + 2 + ... + N, by an all-reduce of threads");
  lesson.check("every rank has that sum", std::ranges::count(sums, sums[0]) == N);
  const auto loss = [&](StageKind stage) {
    TrainingSpec spec = training_m(lesson, stage);
    spec.steps = 2;  // the second step depends on the first one's update
    return run_training(spec).steps.back().loss;
  };
  lesson.check("two steps of a small GPT give the same loss under ddp and zero3, bit for bit",
               loss(StageKind::ddp) == loss(StageKind::zero3));
}

int main(int argc, char** argv) {
  return run(argc, argv, {"00_doctor", "Can this machine run the course?"}, [](Lesson& lesson) {
    lesson.say(str("~ this machine: ", std::thread::hardware_concurrency(), " cores; compiled by ",
                   __VERSION__));
    cpu(lesson);
    lesson.say(
        "The course runs here: all lessons use the CPU, with ranks as threads. ./zl doctor looks "
        "for GPUs, NCCL and MPI");
  });
}
