// The GPUs of the emulated machine: contexts, errors, peers, and which kernels are loaded.
#include "tests/cuda/on_cpu/devices.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

namespace zl::cuda_on_cpu {
namespace {

int number_in(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text ? std::atoi(text) : otherwise;
}

std::set<int> list_in(const char* name) {
  const char* text = std::getenv(name);
  std::istringstream in(text ? text : "");
  std::set<int> all;
  for (std::string one; std::getline(in, one, ',');) all.insert(std::stoi(one));
  return all;
}

Machine machine_of_environment() {
  return {.gpus = number_in("ZEROLAB_EMULATED_GPUS", Machine().gpus),
          .error = number_in("ZEROLAB_EMULATED_ERROR", 0),
          .dies_after = number_in("ZEROLAB_EMULATED_DIES_AFTER", 0),
          .occupied = list_in("ZEROLAB_EMULATED_OCCUPIED"),
          .full = list_in("ZEROLAB_EMULATED_FULL"),
          .load_ms = number_in("ZEROLAB_EMULATED_LOAD_MS", 0)};
}

struct State {
  Machine machine = machine_of_environment();
  std::mutex mutex;  // guards the sets
  std::set<int> contexts;
  std::set<std::pair<int, int>> peers;           // (GPU, the other, whose memory it accesses)
  std::set<std::pair<int, const void*>> loaded;  // (GPU, kernel)
  std::atomic<int64_t> staged{0}, run{0};
  std::atomic<bool> dead{false};

  void become(const Machine& next) {
    const std::lock_guard lock(mutex);
    machine = next;
    contexts.clear();
    peers.clear();
    loaded.clear();
    staged = run = 0;
    dead = false;
  }
};

State& state() {
  static State all;
  return all;
}

thread_local int current = 0;
thread_local cudaError_t last = cudaSuccess;

bool about_code(int error) { return error == 98 || (error >= 209 && error <= 223); }

}  // namespace

EmulatedMachine::EmulatedMachine(const Machine& machine) {
  state().become(machine);
  last = cudaSuccess;
  current = 0;
}
EmulatedMachine::~EmulatedMachine() {
  finish_gpu(-1);
  state().become(machine_of_environment());
  last = cudaSuccess;
  current = 0;
}

const Machine& machine() { return state().machine; }
int current_gpu() { return current; }
bool has_context(int gpu) {
  const std::lock_guard lock(state().mutex);
  return state().contexts.contains(gpu);
}
int64_t loaded_kernels() {
  const std::lock_guard lock(state().mutex);
  return int64_t(state().loaded.size());
}
int64_t staged_copies() { return state().staged; }
void count_staged_copy() { ++state().staged; }

cudaError_t result(cudaError_t status) {
  if (dead()) status = cudaErrorIllegalAddress;
  if (status != cudaSuccess) last = status;
  return status;
}

bool dead() { return state().dead; }
void may_die_at_kernel() {
  if (machine().dies_after > 0 && ++state().run >= machine().dies_after) state().dead = true;
}

cudaError_t open_context(int gpu) {
  if (machine().occupied.contains(gpu)) return cudaErrorDevicesUnavailable;
  const std::lock_guard lock(state().mutex);
  state().contexts.insert(gpu);
  return cudaSuccess;
}

bool enabled(int gpu, int other) {
  const std::lock_guard lock(state().mutex);
  return gpu == other || state().peers.contains({gpu, other});
}
bool loses(int gpu, int other) { return gpu != other && gpu >= 4 && other >= 4; }

// CUDA C++ Programming Guide, "Lazy Loading": "loading a kernel might require context
// synchronization", so kernels that must run beside each other have to be loaded before.
cudaError_t load(const void* kernel) {
  State& all = state();
  const std::pair which(current, kernel);
  const auto loaded = [&] {
    const std::lock_guard lock(all.mutex);
    return all.loaded.contains(which);
  };
  if (loaded()) return cudaSuccess;
  const std::lock_guard lock(driver());
  if (loaded()) return cudaSuccess;
  if (about_code(machine().error)) return cudaError_t(machine().error);
  if (machine().load_ms > 0) finish_gpu(current);
  std::this_thread::sleep_for(std::chrono::milliseconds(machine().load_ms));
  const std::lock_guard guard(all.mutex);
  all.loaded.insert(which);
  return cudaSuccess;
}

bool begin_launch(const void* kernel, cudaStream_t stream) {
  if (gpu_of(stream) != current) return result(cudaErrorInvalidResourceHandle), false;
  return result(load(kernel)) == cudaSuccess;
}

cudaError_t get_attributes(cudaFuncAttributes* attributes, const void* kernel) {
  attributes->ptxVersion = machine().ptx_version;
  if (const cudaError_t status = open_context(current); status != cudaSuccess)
    return result(status);
  return result(load(kernel));
}

}  // namespace zl::cuda_on_cpu

using namespace zl::cuda_on_cpu;

const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorDevicesUnavailable: return "CUDA-capable device(s) is/are busy or unavailable";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorNotReady: return "device not ready";
    default: return "an error";
  }
}
cudaError_t cudaGetLastError() {
  return dead() ? cudaErrorIllegalAddress : std::exchange(last, cudaSuccess);
}

cudaError_t cudaDriverGetVersion(int* version) {
  return *version = machine().error == cudaErrorInsufficientDriver ? 12020 : 13010, cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  const int error = machine().error;
  if (error != 0 && !about_code(error)) return result(cudaError_t(error));
  return *count = machine().gpus, cudaSuccess;
}
// cuda_runtime_api.h: since CUDA 12 this "will also immediately initialize the runtime state on the
// primary context", and fails on a GPU "in cudaComputeModeExclusiveProcess and is occupied by
// another process".
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= machine().gpus) return result(cudaErrorInvalidDevice);
  const cudaError_t status = open_context(device);
  if (status == cudaSuccess) current = device;
  return result(status);
}
cudaError_t cudaGetDevice(int* device) { return *device = current, cudaSuccess; }
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {"a GPU on the CPU", size_t(1) << 30, 9, 0, 1};
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* address, int size, int device) {
  std::snprintf(address, size_t(size), "0000:0%d:00.0", device);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int other) {
  *can = device >= 2 && device != other && device / 2 == other / 2;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned) {
  int can = 0;
  cudaDeviceCanAccessPeer(&can, current, other);
  if (!can) return result(cudaErrorPeerAccessUnsupported);
  for (const int gpu : {current, other})
    if (const cudaError_t status = open_context(gpu); status != cudaSuccess) return result(status);
  const std::lock_guard lock(state().mutex);
  return result(state().peers.emplace(current, other).second ? cudaSuccess
                                                             : cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaDeviceDisablePeerAccess(int other) {
  const std::lock_guard lock(state().mutex);
  return result(state().peers.erase({current, other}) > 0 ? cudaSuccess
                                                          : cudaErrorPeerAccessNotEnabled);
}
