// Machines that are not as they should be: GPUs that are occupied, full, dead or not ready, kernels
// that cannot be loaded, and pairs of GPUs that cannot or only seem to access each other.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdlib>

#include "tensor/kernels.h"
#include "tests/cuda/differential.h"
#include "tests/cuda/on_cpu/controls.h"
#include "tests/dist/ranks.h"

namespace zl::cuda_on_cpu {
void select_gpu(int index);
}

using namespace zl;
using namespace zl::test;
using namespace zl::cuda_on_cpu;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A kernel that writes 5 on that GPU.
float five_on(int gpu) {
  const auto backend = cuda_on_cpu::make_gpu_backend(gpu);
  Side side(*backend);
  const Tensor t = side.nan({1}, Dtype::f32);
  kernel::fill(5, t);
  return float(values_of(t)[0]);
}

std::string text_of_error(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// Runs on the emulator, rank r on GPU gpus[r].
std::function<RankBackends(int)> on_gpus_of(const std::vector<int>& gpus) {
  return [gpus](int rank) {
    return RankBackends{cuda_on_cpu::make_gpu_backend(gpus[size_t(rank)]),
                        cuda_on_cpu::make_pinned_backend()};
  };
}

using Call = std::function<void(Communicator&, const Tensor&)>;

const Call kCopies = [](Communicator& comm, const Tensor& t) {
  comm.all_gather(t, kName).wait();
  const Tensor half = t.slice(0, {t.numel() / 2});
  comm.broadcast(half, 1, kName).wait();
  const int other = 1 - comm.rank();
  Work receive = comm.receive(t.slice(0, {67}), other, kName);
  comm.send(t.slice(67, {67}), other, kName).wait();
  receive.wait();
};
const Call kSums = [](Communicator& comm, const Tensor& t) {
  comm.all_reduce(t, Reduction::mean, kName).wait();
};

// Whether two ranks on these GPUs get the bits that ranks on the CPU get.
bool as_on_cpu(const Call& call, const std::vector<int>& gpus) {
  const auto in = inputs<float>(2, 2 * 67);
  const auto gpu = after<float>(in, call, on_gpus_of(gpus)),
             cpu = after<float>(in, call, [](int) { return RankBackends{}; });
  return same_bits(gpu[0], cpu[0]) && same_bits(gpu[1], cpu[1]) && !same_bits(gpu[0], in[0]);
}

}  // namespace

TEST_CASE("a process opens the GPUs that it computes on, and no other", "[cuda][host]") {
  const EmulatedMachine machine({.gpus = 3});
  const auto opened = [] { return std::vector{has_context(0), has_context(1), has_context(2)}; };
  CHECK(cuda_on_cpu::find_gpus(0).gpus.size() == 3);
  CHECK(opened() == std::vector{false, false, false});
  {
    const RankBackends backends = on_gpus_of({1})(0);
    Side device(*backends.device), host(*backends.host);
    (void)device.nan({1}, Dtype::f32);
    (void)host.nan({1}, Dtype::f32);
    CHECK(opened() == std::vector{false, true, false});
  }
  cuda_on_cpu::select_gpu(2);
  CHECK(opened() == std::vector{false, true, true});
  (void)cuda_on_cpu::find_gpus(1);
  CHECK(opened() == std::vector{true, true, true});
}

TEST_CASE("a GPU that another process has to itself is named, and the next one works",
          "[cuda][host]") {
  const EmulatedMachine machine({.occupied = {0}});
  const Gpus found = cuda_on_cpu::find_gpus(2);
  CHECK(found.usable());
  CHECK(contains(found.gpus[0].problem, "nvidia-smi -c DEFAULT"));
  CHECK(found.gpus[1].problem == "");
  CHECK_THROWS_AS(cuda_on_cpu::make_gpu_backend(0), std::runtime_error);
  CHECK(five_on(1) == 5);
}

TEST_CASE("a driver or a build that cannot serve the GPU is explained with how to fix it",
          "[cuda][host]") {
  struct Known {
    int code;
    const char *problem, *cure;
    bool broken = true;
  };
  const Known known =
      GENERATE(Known{35, "the driver runs CUDA up to 12.2", "update the driver"},
               Known{98, "no kernels for its compute capability", "CUDAARCHS=90"},
               Known{100, "no GPU", "", false}, Known{209, "no kernels", "CUDAARCHS=90"},
               Known{221, "libnvidia-ptxjitcompiler", "CUDAARCHS=90"},
               Known{222, "toolkit that is newer than the driver", "CUDAARCHS=90"},
               Known{223, "switched off", "CUDA_DISABLE_PTX_JIT"},
               Known{802, "are not ready", "systemctl restart nvidia-fabricmanager"},
               Known{803, "the driver was updated", "restart the machine"},
               Known{804, "cuda-compat", "LD_LIBRARY_PATH"});
  CAPTURE(known.code);
  const EmulatedMachine machine({.error = known.code});
  const Gpus found = cuda_on_cpu::find_gpus(2);
  CHECK_FALSE(found.usable());
  CHECK(found.broken == known.broken);
  CHECK(contains(found.problem, known.problem));
  CHECK(contains(found.problem + found.cure, known.cure));
  if (known.broken) CHECK_FALSE(contains(found.cure, "nvidia-smi must list"));
}

TEST_CASE("after an illegal access every call says so, and all can be destroyed", "[cuda][host]") {
  const char* const says = "an illegal memory access was encountered; a kernel has accessed memory";
  {
    const EmulatedMachine machine({.dies_after = 3});
    const auto backend = cuda_on_cpu::make_gpu_backend(0);
    Side side(*backend);
    const Tensor t = side.nan({64}, Dtype::f32);
    for (int i = 0; i < 2; ++i) kernel::fill(i, t);
    backend->synchronize();
    kernel::fill(2, t);
    CHECK(contains(text_of_error([&] { backend->synchronize(); }), says));
    CHECK(contains(text_of_error([&] { kernel::fill(3, t); }), says));
    CHECK(contains(text_of_error([&] { (void)values_of(t); }), says));
    CHECK(contains(text_of_error([] { cuda_on_cpu::make_gpu_backend(1); }), says));
  }
  {
    const EmulatedMachine machine({.dies_after = 5});
    const Outcome result = outcome(2, [&](Communicator& comm) {
      Rank rank(comm, {}, on_gpus_of({0, 1})(comm.rank()));
      const Tensor t = rank.filled(64, 1);
      for (int i = 0; i < 10; ++i) {
        comm.all_reduce(t, Reduction::mean, kName).wait();
        rank.memory.backend().synchronize();
      }
    });
    CHECK(contains(result.thrown, says));
  }
  CHECK(five_on(0) == 5);
}

TEST_CASE("an event that is not ready is no error of the next launch", "[cuda][host]") {
  const EmulatedMachine machine({});
  const auto backend = cuda_on_cpu::make_gpu_backend(0);
  Side side(*backend);
  const Tensor t = side.nan({64}, Dtype::f32);
  for (int i = 0; i < 5; ++i) kernel::fill(i, t);
  const auto event = backend->record_event(Stream::compute);
  CHECK_FALSE(backend->event_done(event.get()));
  kernel::fill(7, t);
  CHECK(values_of(t) == std::vector<double>(64, 7));
}

TEST_CASE("copies between GPUs that can access each other do not go through the host",
          "[cuda][host]") {
  const bool can = GENERATE(true, false);
  const EmulatedMachine machine({.gpus = 4});
  const std::vector<int> gpus = can ? std::vector{2, 3} : std::vector{0, 1};
  CHECK(as_on_cpu(kCopies, gpus));
  CHECK((staged_copies() == 0) == can);
  CHECK(as_on_cpu(kSums, gpus));
  CHECK((staged_copies() == 0) == can);
}

TEST_CASE("a GPU that reads garbage from another one is found out, and copies avoid that path",
          "[cuda][host]") {
  const EmulatedMachine machine({.gpus = 6});
  CHECK(as_on_cpu(kSums, {4, 5}));
  CHECK(as_on_cpu(kCopies, {4, 5}));
  CHECK(staged_copies() > 0);
}

TEST_CASE("parts of a sum over K are added in fp32, also if the matrices are in fp16 or bf16",
          "[cuda]") {
  Backend& gpu = test_gpu();  // skips the test without one, which a CHECK does not let it do
  const auto product = [&](const std::vector<double>& a, const std::vector<double>& b,
                           Dtype dtype) {
    Side side(gpu);
    const int64_t K = int64_t(a.size());
    const Tensor out = side.nan({1, 1}, dtype);
    kernel::matmul({side.of(a, {1, K}, dtype)}, {side.of(b, {K, 1}, dtype)}, {}, out);
    return values_of(out)[0];
  };
  // Parts of 180,000, which no fp16 holds, cancel.
  const std::vector<double> a{300, 300, -300, -300, 1, 1, 1, 1}, b{300, 300, 300, 300, 1, 1, 1, 1};
  CHECK(product(a, b, Dtype::f16) == 4);
  // Above 256 bf16 holds even numbers: 256 + 1 + 1 + 1 is 259, which rounds to 260.
  CHECK(product({256, 1, 1, 1}, {1, 1, 1, 1}, Dtype::bf16) == 260);
}

TEST_CASE("ZEROLAB_POOL_SEGMENT=1 gives each block on a GPU a segment for itself", "[cuda][host]") {
  const auto calls = [](const char* segment) {
    if (segment) setenv("ZEROLAB_POOL_SEGMENT", segment, 1);
    const auto backend = cuda_on_cpu::make_gpu_backend(0);
    unsetenv("ZEROLAB_POOL_SEGMENT");
    Side side(*backend);
    const Tensor one = side.nan({3}, Dtype::f32), two = side.nan({3}, Dtype::f32);
    return side.memory.system_calls();
  };
  CHECK(calls(nullptr) == 1);
  CHECK(calls("1") == 2);
  CHECK_THROWS_AS(calls("many"), std::invalid_argument);
  CHECK_THROWS_AS(calls("0"), std::invalid_argument);
  unsetenv("ZEROLAB_POOL_SEGMENT");
}

TEST_CASE("a GPU that was opened for one type has loaded the kernels of attention for it",
          "[cuda][host]") {
  const auto loads = [](GpuOptions options, Dtype dtype) {
    const EmulatedMachine machine({});
    const auto backend = cuda_on_cpu::make_gpu_backend(0, options);
    Side side(*backend);
    const AttentionSaved saved{side.of(std::vector<double>(5 * 48, 0.5), {1, 5, 48}, dtype),
                               side.nan({1, 5, 16}, dtype), side.nan({1, 2, 5}, Dtype::f32), 2};
    const Tensor dqkv = side.nan({1, 5, 48}, dtype);
    const int64_t before = loaded_kernels();
    kernel::attention(saved);
    kernel::attention_backward(saved, saved.y, dqkv);
    backend->synchronize();
    return loaded_kernels() - before;
  };
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    CAPTURE(name(dtype));
    CHECK(loads({.preloads = dtype}, dtype) == 0);
    CHECK(loads({}, dtype) > 0);
  }
}
