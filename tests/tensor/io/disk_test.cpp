#include "tensor/io/disk.h"

#include <linux/magic.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "tensor/kernels.h"
#include "tensor/platform/quantize.h"
#include "tests/tensor/io/file_faults.h"
#include "tests/tensor/io/swap_case.h"

using namespace zl;
using namespace zl::test;

namespace {

constexpr int64_t kSize = (2 << 20) + 5000;  // [B]

// Tensors of bytes on disk and in memory.
struct Disk {
  explicit Disk(const std::string& folder, FileCalls& calls = system_file_calls())
      : backend(make_disk_backend(folder, calls)) {}
  Tensor on_disk(int64_t n) { return Tensor::empty(disk, MemoryUse::workspace, {n}, Dtype::u8); }
  Tensor in_memory(int64_t n) { return Tensor::empty(host, MemoryUse::workspace, {n}, Dtype::u8); }
  Tensor random(int64_t n, unsigned seed = 7) {
    const Tensor t = in_memory(n);
    std::mt19937 bits(seed);
    for (uint8_t& byte : t.data<uint8_t>()) byte = uint8_t(bits());
    return t;
  }

  std::unique_ptr<Backend> backend;
  EventStream events;
  Memory disk{{}, *backend, events, {.pool = Pool::disk}}, host{{}, cpu_backend(), events};
};

bool same(const Tensor& a, const Tensor& b) {
  return std::ranges::equal(a.data<uint8_t>(), b.data<uint8_t>());
}

// Writes random bytes through `calls` and reads them. Returns whether they are the same.
bool comes_back(const std::string& folder, FileCalls& calls, int64_t at = 0) {
  Disk disk(folder, calls);
  const Tensor file = disk.on_disk(at + kSize).slice(at, {kSize}), written = disk.random(kSize),
               read = disk.in_memory(kSize);
  kernel::start_copy(written, file).get();
  kernel::start_copy(file, read).get();
  return same(read, written);
}

}  // namespace

TEST_CASE("a transfer leaves nothing in the page cache, or the file says that it does",
          "[tensor]") {
  class Watched : public FileCalls {
   public:
    bool refuses = false;
    int64_t cached = -1;  // pages, before and after the last call
    int leave_cache(int file, off_t at, off_t bytes) override {
      if (refuses) return errno = EOPNOTSUPP, -1;
      REQUIRE(cached_pages(file) > 0);  // the twin
      const int result = FileCalls::leave_cache(file, at, bytes);
      cached = cached_pages(file);
      return result;
    }
    static int64_t cached_pages(int file) {
      void* const map = ::mmap(nullptr, size_t(kSize), PROT_READ, MAP_SHARED, file, 0);
      std::vector<unsigned char> in_core(size_t(kSize) / kDiskBlock + 1);
      REQUIRE(::mincore(map, size_t(kSize), in_core.data()) == 0);
      ::munmap(map, size_t(kSize));
      return std::ranges::count_if(in_core, [](unsigned char c) { return c & 1; });
    }
  } calls;
  const ScratchFolder folder;
  struct statfs status {};
  REQUIRE(::statfs(folder.path("").c_str(), &status) == 0);
  if (status.f_type == TMPFS_MAGIC) return;  // it has nothing but the page cache
  CHECK(comes_back(folder.path(""), system_file_calls(), 777));
  Disk disk(folder.path(""), calls);
  const Tensor file = disk.on_disk(kSize), bytes = disk.random(kSize);
  for (const bool refuses : {false, true}) {
    calls.refuses = refuses;
    kernel::copy(bytes, file);
    CHECK(calls.cached == 0);
    CHECK(disk.backend->name() == std::string(refuses ? "disk in the page cache" : "disk"));
  }
}

TEST_CASE("new space on disk is zeros, and writes change only their bytes", "[tensor]") {
  const FastFolder folder;
  Disk disk(folder.path(""));
  const Tensor one = disk.on_disk(1), file = disk.on_disk(10'000), next = disk.on_disk(8);
  const auto between = [](const Tensor& a, const Tensor& b) {
    return static_cast<char*>(b.address()) - static_cast<char*>(a.address());
  };
  CHECK((between(one, file) == 4096 && between(file, next) == 12'288));
  const Tensor expected = disk.in_memory(10'000), read = disk.random(10'000, 3);
  std::ranges::fill(expected.data<uint8_t>(), uint8_t(0));
  kernel::copy(file, read);
  CHECK(same(read, expected));
  // Neighbours in one block, whose addresses and sizes fit no alignment.
  const Tensor bytes = disk.random(9000);
  for (const auto& [at, n] : {std::pair{100, 50}, {150, 33}, {4090, 12}, {8191, 10'000 - 8191}}) {
    kernel::copy(bytes.slice(3, {n}), file.slice(at, {n}));
    kernel::copy(bytes.slice(3, {n}), expected.slice(at, {n}));
  }
  kernel::copy(file, read);
  CHECK(same(read, expected));
}

TEST_CASE("transfers in flight do not disturb each other", "[tensor]") {
  const FastFolder folder;
  Disk disk(folder.path(""));
  constexpr int64_t kEach = 65'536, kParts = 24;
  const Tensor written = disk.random(kParts * kEach), read = disk.in_memory(kParts * kEach),
               file = disk.on_disk(kParts * kEach);
  for (const auto& [from, to] : {std::pair{written, file}, std::pair{file, read}}) {
    std::vector<std::future<void>> transfers;
    for (int64_t at = 0; at < file.numel(); at += kEach)
      transfers.push_back(kernel::start_copy(from.slice(at, {kEach}), to.slice(at, {kEach})));
    for (std::future<void>& transfer : transfers) transfer.get();
  }
  CHECK(same(read, written));
}

TEST_CASE("an interrupted or a short transfer is continued at every call", "[tensor]") {
  const FastFolder folder;
  FaultyFiles calls;
  calls.fault = GENERATE(FileFault::interrupted, FileFault::short_transfer);
  calls.function = GENERATE("pread", "pwrite");
  const int64_t at = GENERATE(0, 777);
  CAPTURE(int(calls.fault), calls.function, at);
  CHECK(comes_back(folder.path(""), calls, at));
  CHECK(calls.calls(calls.function) == 2);
}

TEST_CASE("a transfer that comes short again and again is continued to its end", "[tensor]") {
  class OneByte : public FileCalls {
    ssize_t pread(int file, void* data, size_t, off_t at) override {
      return FileCalls::pread(file, data, 1, at);
    }
    ssize_t pwrite(int file, const void* data, size_t, off_t at) override {
      return FileCalls::pwrite(file, data, 1, at);
    }
  } calls;
  const FastFolder folder;
  Disk disk(folder.path(""), calls);
  const Tensor file = disk.on_disk(20'000).slice(777, {10'000}), written = disk.random(10'000),
               read = disk.in_memory(10'000);
  kernel::copy(written, file);
  kernel::copy(file, read);
  CHECK(same(read, written));
}

TEST_CASE("other failures name the folder, the offset and the reason, and leave nothing in flight",
          "[tensor]") {
  const FastFolder folder;
  struct Case {
    FileFault fault;
    const char *function, *says;
  };
  const Case c = GENERATE(Case{FileFault::io_error, "pread", "Input/output error"},
                          Case{FileFault::io_error, "pwrite", "Input/output error"},
                          Case{FileFault::no_space, "pwrite", "No space left on device"},
                          Case{FileFault::io_error, "leave_cache", "Input/output error"},
                          Case{FileFault::end_of_file, "pread", "ends before"},
                          Case{FileFault::end_of_file, "pwrite", "Input/output error"});
  FaultyFiles calls;
  calls.fault = c.fault, calls.function = c.function;
  const std::string sentence = sentence_of([&] { comes_back(folder.path(""), calls); });
  CAPTURE(int(c.fault), c.function, sentence);
  CHECK(sentence.starts_with(folder.path("")));
  CHECK(sentence.find(std::string(c.function) == "pread" ? "read from" : "written to") !=
        std::string::npos);
  CHECK(sentence.find(" offset ") != std::string::npos);
  CHECK(sentence.find(c.says) != std::string::npos);
}

TEST_CASE("a disk that is full says so when space is taken, with the bytes", "[tensor]") {
  const FastFolder folder;
  FaultyFiles calls;
  calls.fault = FileFault::no_space, calls.function = "posix_fallocate", calls.at = 2;
  Disk disk(folder.path(""), calls);
  const Tensor first = disk.on_disk(8192);
  const std::string sentence = sentence_of([&] { disk.on_disk(1'000'000); });
  for (const char* part : {"1003520 bytes", "beside 8192", "No space left", "nvme_path"})
    CHECK(sentence.find(part) != std::string::npos);
  calls.fault = FileFault::interrupted, calls.at = 4;
  const Tensor next = disk.on_disk(4096);  // where the one that failed would have begun
  CHECK(static_cast<char*>(next.address()) == static_cast<char*>(first.address()) + 8192);
}

TEST_CASE("a folder in which no file can be made is named", "[tensor]") {
  const FastFolder folder;
  CHECK(sentence_of([&] {
          make_disk_backend(folder.path("absent"));
        }).find("absent: the file of offloaded ") != std::string::npos);
  CHECK(sentence_of([&] { free_disk_space(folder.path("absent")); }).find("is not a folder") !=
        std::string::npos);
  CHECK(free_disk_space(folder.path("")) > 0);
  FaultyFiles calls;
  calls.function = "open", calls.fault = FileFault::io_error;
  CHECK(sentence_of([&] {
          make_disk_backend(folder.path(""), calls);
        }).find("Input/output error") != std::string::npos);
  calls.fault = FileFault::interrupted, calls.at = 2;
  CHECK_NOTHROW(make_disk_backend(folder.path(""), calls));
}

TEST_CASE("nothing of a swap file is left when its process is killed", "[tensor]") {
  const FastFolder folder;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    Disk disk(folder.path(""));
    kernel::copy(disk.random(kSize), disk.on_disk(kSize));
    (void)!::write(ready[1], "", 1);
    for (;;) ::pause();
  }
  char byte = 1;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  CHECK(files_in(folder.path("")) == 0);
  ::kill(child, SIGKILL);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(files_in(folder.path("")) == 0);
  ::close(ready[0]), ::close(ready[1]);
}

TEST_CASE("a swap file has one descriptor, and 100 transfers open none", "[tensor]") {
  const FastFolder folder;
  const int64_t before = open_files();
  {
    Disk disk(folder.path(""));
    const Tensor file = disk.on_disk(kSize), bytes = disk.random(kSize);
    for (int64_t i = 0; i < 100; ++i) {
      kernel::copy(bytes.slice(0, {i * 100}), file.slice(0, {i * 100}));
      kernel::copy(file, bytes);
      if (i % 25 == 0) CHECK(open_files() == before + 1);
    }
  }
  CHECK(open_files() == before);
}

TEST_CASE("tensors on disk are copied, filled and made like others, and nothing else", "[tensor]") {
  const FastFolder folder;
  const auto backend = make_disk_backend(folder.path(""));
  EventStream events;
  Memory disk({}, *backend, events, {.pool = Pool::disk}), host({}, cpu_backend(), events);
  const int64_t n = 300'001, at = 12'345;  // several pieces, at odd offsets
  const Tensor on_disk = Tensor::empty(disk, MemoryUse::optimizer_state, {n + at + 7});
  const Tensor values = Tensor::empty(host, MemoryUse::workspace, {n + at + 7});
  const Tensor expected = Tensor::zeros(host, MemoryUse::workspace, {n + at + 7});
  const auto same = [&] {
    kernel::copy(on_disk, values);
    return kernel::download<float>(values) == kernel::download<float>(expected);
  };
  CHECK(same());  // a new file is zeros
  for (const Tensor& t : {on_disk, expected}) kernel::normal({3, 5, 0, 1}, 11, t.slice(at, {n}));
  CHECK(same());
  for (const Tensor& t : {on_disk, expected}) kernel::fill(0.5, t.slice(at + 5, {n - 100}));
  CHECK(same());
  kernel::upload_floats(std::vector<float>(9, 4.f), on_disk.slice(1, {9}));
  CHECK_FALSE(same());
  kernel::fill(4, expected.slice(1, {9}));
  CHECK(same());
  CHECK(kernel::download_floats(on_disk.slice(at, {n})) ==
        kernel::download_floats(expected.slice(at, {n})));
  // A unit without parameters has shards of nothing.
  const Tensor nothing = Tensor::empty(disk, MemoryUse::parameter, {0});
  const Tensor none = Tensor::empty(host, MemoryUse::parameter, {0});
  CHECK_NOTHROW(kernel::copy(nothing, none));
  CHECK_NOTHROW(kernel::copy(none, nothing));
  CHECK_NOTHROW(kernel::start_copy(nothing, none).get());
  CHECK(disk.ledger().live_total() == 4 * (n + at + 7));
  CHECK_THROWS_AS(kernel::divide(2, on_disk), std::logic_error);
  const OptimizerUpdate update{on_disk, on_disk, {}, {}, {}, {.kind = OptimizerKind::sgd}};
  CHECK_THROWS_AS(kernel::update_parameters(update), std::logic_error);
  CHECK_THROWS_AS(on_disk.data<float>(), std::invalid_argument);
}
