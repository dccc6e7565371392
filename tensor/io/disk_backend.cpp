#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "tensor/io/disk.h"
#include "tensor/reference/reference_backend.h"

namespace zl {
namespace {

constexpr int64_t kStaged = 1 << 20;  // [B] that go through a buffer at a time

// The address of a tensor is its offset in the file plus kFirst, because no address is 0. Kernels
// are refused: they ask for values, and the host cannot read a tensor on disk.
class DiskBackend final : public ReferenceBackend {
 public:
  DiskBackend(const std::string& folder, FileCalls& calls) : file_(folder, calls) {}

  const char* name() const override { return "disk"; }
  bool host_addressable() const override { return false; }
  void* allocate(int64_t bytes) override {
    return reinterpret_cast<void*>(uintptr_t(file_.reserve(bytes)) + kFirst);
  }
  void release(void*, int64_t) noexcept override {}  // the file ends with the backend
  void poison(void*, int64_t) noexcept override {}
  int64_t workspace(KernelId, std::span<const int64_t>, Dtype) const override { return 0; }

  void upload(const void* host, const Tensor& to) override {
    file_.start_write(offset(to), bytes_at(host, to.bytes()))->wait();
  }
  void download(const Tensor& from, void* host) override {
    file_.start_read(offset(from), {static_cast<std::byte*>(host), size_t(from.bytes())})->wait();
  }
  void copy(const Tensor& from, const Tensor& to) override {
    require(from.dtype() == to.dtype(), "a tensor on disk is copied without a cast");
    const Tensor& other = is_here(from) ? to : from;
    if (other.backend().host_addressable()) return start_copy(from, to)->wait();
    std::vector<std::byte> staged(size_t(std::min(from.bytes(), kStaged)));
    const int64_t each = kStaged / size_of(from.dtype());
    for (int64_t at = 0; at < from.numel(); at += each) {
      const int64_t n = std::min(each, from.numel() - at);
      from.backend().download(from.slice(at, {n}), staged.data());
      to.backend().upload(staged.data(), to.slice(at, {n}));
    }
  }
  std::unique_ptr<Transfer> start_copy(const Tensor& from, const Tensor& to) override {
    const Tensor& other = is_here(from) ? to : from;
    if (!other.backend().host_addressable()) return Backend::start_copy(from, to);
    if (is_here(from))
      return file_.start_read(offset(from),
                              {static_cast<std::byte*>(to.address()), size_t(to.bytes())});
    return file_.start_write(offset(to), bytes_at(from.address(), from.bytes()));
  }

  void fill(double value, const Tensor& out) override {
    generate(out, [&](int64_t, const Tensor& part) { cpu_backend().fill(value, part); });
  }
  void normal(uint64_t seed, uint64_t stream, int64_t first, double mean, double deviation,
              const Tensor& out) override {
    generate(out, [&](int64_t at, const Tensor& part) {
      cpu_backend().normal(seed, stream, first + at, mean, deviation, part);
    });
  }

  // Those that take an address as it is.
  void adamw(const AdamWUpdate&) override { refuse(); }
  void sgd(const SgdUpdate&) override { refuse(); }
  void move_bytes(const void*, void*, int64_t) override { refuse(); }

 private:
  static constexpr uintptr_t kFirst = SwapFile::kBlock;

  [[noreturn]] static void refuse() {
    throw std::logic_error("a tensor on disk is copied to memory before it is computed with");
  }
  static std::span<const std::byte> bytes_at(const void* host, int64_t n) {
    return {static_cast<const std::byte*>(host), size_t(n)};
  }
  bool is_here(const Tensor& t) const { return &t.backend() == this; }
  static int64_t offset(const Tensor& t) {
    if (t.numel() == 0) return 0;  // it has no address
    return int64_t(reinterpret_cast<uintptr_t>(t.address()) - kFirst);
  }

  // Writes what `make` puts into host tensors, piece by piece.
  template <class Make>
  void generate(const Tensor& out, const Make& make) {
    const int64_t each = kStaged / size_of(out.dtype());
    for (int64_t at = 0; at < out.numel(); at += each) {
      const int64_t n = std::min(each, out.numel() - at);
      const Tensor part = Tensor::empty(staging_, MemoryUse::workspace, {n}, out.dtype());
      make(at, part);
      upload(part.address(), out.slice(at, {n}));
    }
  }

  SwapFile file_;
  EventStream events_{0, 1};
  Memory staging_{Device{}, cpu_backend(), events_};
};

}  // namespace

std::unique_ptr<Backend> make_disk_backend(const std::string& folder, FileCalls& calls) {
  return std::make_unique<DiskBackend>(folder, calls);
}

}  // namespace zl
