// main() of the program that runs a student's code: PROGRAM CHECK SEED DEVICE [EVENT]. It writes
// the record of the check to file descriptor 3, with the key that it reads from stdin. With EVENT
// it shows the run on the terminal instead.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "tutorials/exercises/grader/child_process.h"
#include "tutorials/exercises/grader/measure.h"
#include "tutorials/exercises/grader/sandbox.h"

namespace zl::exercises {
namespace {

// Where the record goes. The student's code finds neither the key nor the file where it would look.
struct ResultChannel {
  uint64_t key = 0;
  int file = kResultFile;
};

ResultChannel take_channel() {
  ResultChannel channel;
  if (::read(STDIN_FILENO, &channel.key, sizeof channel.key) != sizeof channel.key) _exit(2);
  channel.file = fcntl(kResultFile, F_DUPFD_CLOEXEC, int(16 + channel.key % 200));
  ::close(kResultFile);
  return channel;
}

bool write_all(int file, const std::string& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::write(file, bytes.data() + done, bytes.size() - done);
    if (n <= 0) return false;
    done += size_t(n);
  }
  return true;
}

Record failed(const std::string& error) {
  Record record;
  record.texts["error"] = error;
  return record;
}

// A machine that does not allow the sandbox is no fault of the student.
Record measured(const std::string& check, const CheckOptions& options) {
  try {
    const bool steps = options.step_from >= 0;
    enter_sandbox({.cuda = options.device == DeviceKind::cuda, .file = steps ? 256l << 20 : 0});
  } catch (const std::exception& e) {
    Record record;
    record.texts["sandbox"] = e.what();
    return record;
  }
  try {
    return measure(check, options);
  } catch (const std::exception& e) {
    return failed(e.what());
  } catch (...) {
    return failed("an object that is no std::exception was thrown");
  }
}

// After --step, which has shown the run: what kept it from running.
[[noreturn]] void show(const Record& record) {
  std::fflush(nullptr);
  for (const auto& [name, text] : record.texts)
    std::fprintf(stderr, "%s: %s\n", name.c_str(), text.c_str());
  _exit(record.texts.empty() ? 0 : 1);
}

}  // namespace
}  // namespace zl::exercises

// Ends with _exit(): no destructor of the student's code runs after the record is written.
int main(int argc, char** argv) {
  using namespace zl::exercises;
  if (argc != 4 && argc != 5) {
    std::fprintf(stderr, "this program is run by 'zerolab exercise check'\n");
    _exit(2);
  }
  const std::string check = argv[1], device = argv[3];
  CheckOptions options;
  options.seed = std::strtoull(argv[2], nullptr, 10);
  options.device = device == "cuda" ? zl::DeviceKind::cuda : zl::DeviceKind::cpu;
  if (argc == 5) options.step_from = std::strtoll(argv[4], nullptr, 10);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // so that a crash keeps what was printed before
  if (options.step_from >= 0) show(measured(check, options));
  const ResultChannel channel = take_channel();
  const std::string bytes = encode(measured(check, options), channel.key);
  std::fflush(nullptr);
  _exit(write_all(channel.file, bytes) ? 0 : 74);
}
