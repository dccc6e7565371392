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
#include "tests/tensor/io/swap_case.h"

using namespace zl;
using namespace zl::test;

namespace {

constexpr int64_t kSize = (2 << 20) + 5000;  // [B]

// Writes random bytes through `calls` and reads them. Returns whether they are the same.
bool comes_back(const std::string& folder, FileCalls& calls, int64_t at = 0) {
  SwapFile file(folder, calls);
  file.reserve(at + kSize);
  const std::vector<std::byte> written = random_bytes(size_t(kSize));
  file.start_write(at, written)->wait();
  std::vector<std::byte> read(written.size());
  file.start_read(at, read)->wait();
  return read == written;
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
      std::vector<unsigned char> in_core(size_t(kSize) / SwapFile::kBlock + 1);
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
  SwapFile file(folder.path(""), calls);
  file.reserve(kSize);
  const std::vector<std::byte> bytes = random_bytes(size_t(kSize));
  for (const bool refuses : {false, true}) {
    calls.refuses = refuses;
    file.start_write(0, bytes)->wait();
    CHECK(calls.cached == 0);
    CHECK(std::string(file.method()) == (refuses ? "in the page cache" : "waits for the device"));
  }
}

TEST_CASE("new space of a swap file is zeros, and writes change only their bytes", "[tensor]") {
  const FastFolder folder;
  SwapFile file(folder.path(""));
  CHECK(file.reserve(1) == 0);
  CHECK(file.reserve(10'000) == 4096);
  CHECK(file.reserve(8) == 4096 + 12'288);
  CHECK(file.size() == 4096 + 12'288 + 4096);
  std::vector<std::byte> expected(size_t(file.size())), read(size_t(file.size()), std::byte(1));
  file.start_read(0, read)->wait();
  CHECK(read == expected);
  // Neighbours in one block, whose addresses and sizes fit no alignment.
  const std::vector<std::byte> bytes = random_bytes(9000);
  for (const auto& [at, n] : {std::pair{100, 50}, {150, 33}, {4090, 12}, {8191, 9000 - 3}}) {
    file.start_write(at, std::span(bytes).subspan(3, size_t(n)))->wait();
    std::copy_n(bytes.begin() + 3, n, expected.begin() + at);
  }
  file.start_read(0, read)->wait();
  CHECK(read == expected);
  CHECK_THROWS_AS(file.start_read(file.size() - 1, std::span(read).first(2)),
                  std::invalid_argument);
}

TEST_CASE("transfers in flight do not disturb each other", "[tensor]") {
  const FastFolder folder;
  SwapFile file(folder.path(""));
  constexpr size_t kEach = 65'536;
  std::vector<std::vector<std::byte>> written, read(24, std::vector<std::byte>(kEach));
  std::vector<std::unique_ptr<Transfer>> transfers;
  for (size_t i = 0; i < read.size(); ++i) {
    written.push_back(random_bytes(kEach, unsigned(i)));
    file.reserve(int64_t(kEach));
  }
  for (size_t i = 0; i < read.size(); ++i)
    transfers.push_back(file.start_write(int64_t(i * kEach), written[i]));
  for (auto& transfer : transfers) transfer->wait();
  transfers.clear();
  for (size_t i = 0; i < read.size(); ++i)
    transfers.push_back(file.start_read(int64_t(i * kEach), read[i]));
  for (auto& transfer : transfers) transfer->wait();
  CHECK(read == written);
}

TEST_CASE("a transfer is waited for exactly once", "[tensor]") {
  const FastFolder folder;
  SwapFile file(folder.path(""));
  file.reserve(4096);
  std::vector<std::byte> bytes(4096);
  const auto transfer = file.start_write(0, bytes);
  transfer->wait();
  CHECK_THROWS_AS(transfer->wait(), std::logic_error);
  CHECK_NOTHROW(file.start_read(0, bytes)->wait());
  (void)file.start_read(0, bytes);  // dropped
  CHECK_THROWS_AS(file.start_read(0, bytes), std::logic_error);
}

TEST_CASE("an interrupted or a short transfer is continued at every call", "[tensor]") {
  const FastFolder folder;
  SwapCalls calls;
  calls.fault = GENERATE(SwapFault::interrupted, SwapFault::short_transfer);
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
  SwapFile file(folder.path(""), calls);
  const std::vector<std::byte> written = random_bytes(10'000);
  std::vector<std::byte> read(written.size());
  file.reserve(20'000);
  file.start_write(777, written)->wait();
  file.start_read(777, read)->wait();
  CHECK(read == written);
}

TEST_CASE("other failures name the folder, the offset and the reason, and leave nothing in flight",
          "[tensor]") {
  const FastFolder folder;
  struct Case {
    SwapFault fault;
    const char *function, *says;
  };
  const Case c = GENERATE(Case{SwapFault::io_error, "pread", "Input/output error"},
                          Case{SwapFault::io_error, "pwrite", "Input/output error"},
                          Case{SwapFault::no_space, "pwrite", "No space left on device"},
                          Case{SwapFault::io_error, "leave_cache", "Input/output error"},
                          Case{SwapFault::end_of_file, "pread", "ends before"},
                          Case{SwapFault::end_of_file, "pwrite", "Input/output error"});
  SwapCalls calls;
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
  SwapCalls calls;
  calls.fault = SwapFault::no_space, calls.function = "posix_fallocate", calls.at = 2;
  SwapFile file(folder.path(""), calls);
  file.reserve(8192);
  const std::string sentence = sentence_of([&] { file.reserve(1'000'000); });
  for (const char* part :
       {"1003520 bytes", "beside 8192", "bytes are free", "No space left", "nvme_path"})
    CHECK(sentence.find(part) != std::string::npos);
  CHECK(file.size() == 8192);
  calls.fault = SwapFault::interrupted, calls.at = 4;
  CHECK(file.reserve(4096) == 8192);
}

TEST_CASE("a folder in which no file can be made is named", "[tensor]") {
  const FastFolder folder;
  CHECK(sentence_of([&] {
          SwapFile(folder.path("absent"));
        }).find("absent: the file of offloaded ") != std::string::npos);
  CHECK(sentence_of([&] { free_disk_space(folder.path("absent")); }).find("is not a folder") !=
        std::string::npos);
  CHECK(free_disk_space(folder.path("")) > 0);
  SwapCalls calls;
  calls.function = "open", calls.fault = SwapFault::io_error;
  CHECK(sentence_of([&] { SwapFile(folder.path(""), calls); }).find("Input/output error") !=
        std::string::npos);
  calls.fault = SwapFault::interrupted, calls.at = 2;
  CHECK_NOTHROW(SwapFile(folder.path(""), calls));
}

TEST_CASE("nothing of a swap file is left when its process is killed", "[tensor]") {
  const FastFolder folder;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    SwapFile file(folder.path(""));
    file.reserve(kSize);
    const std::vector<std::byte> bytes = random_bytes(size_t(kSize));
    file.start_write(0, bytes)->wait();
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
    SwapFile file(folder.path(""));
    file.reserve(kSize);
    std::vector<std::byte> bytes(size_t(kSize), std::byte(3));
    for (int i = 0; i < 100; ++i) {
      file.start_write(0, std::span(bytes).first(size_t(i) * 100))->wait();
      file.start_read(0, bytes)->wait();
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
  CHECK_NOTHROW(kernel::start_copy(nothing, none)->wait());
  CHECK(disk.ledger().live_total() == 4 * (n + at + 7));
  CHECK_THROWS_AS(kernel::divide(2, on_disk), std::logic_error);
  CHECK_THROWS_AS(kernel::sgd({.parameter = on_disk, .gradient = on_disk}), std::logic_error);
  CHECK_THROWS_AS(on_disk.data<float>(), std::invalid_argument);
}
