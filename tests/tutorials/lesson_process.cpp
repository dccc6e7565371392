#include "tests/tutorials/lesson_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <stdexcept>

#include "tests/paths.h"

namespace tutorials {
namespace {

std::string program(const std::string& name) { return std::string(ZEROLAB_TUTORIALS) + "/" + name; }

}  // namespace

std::vector<std::string> lesson_names() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(ZEROLAB_SOURCE_DIR) + "/tutorials"))
    if (std::regex_match(entry.path().filename().string(), std::regex("[0-9][0-9]_.*\\.cpp")))
      names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

cli::Finished run_lesson(const std::string& name, const std::string& arguments,
                         const std::string& answers) {
  if (answers.empty()) return cli::shell("'" + program(name) + "' " + arguments);
  const cli::ScratchFolder folder;
  return cli::shell("'" + program(name) + "' " + arguments + " < " +
                    cli::write_file(folder / "answers", answers));
}

std::string lesson_document(const std::string& name, const std::string& arguments) {
  return run_lesson(name, arguments + " --json").out;
}

double measured_number(const std::string& document, const std::string& key) {
  const nlohmann::json parsed = nlohmann::json::parse(document);
  for (const auto& number : parsed.at("numbers"))
    if (number.at("key") == key) return number.at("measured").get<double>();
  throw std::runtime_error("no number " + key);
}

int64_t measured(const std::string& document, const std::string& key) {
  return std::llround(measured_number(document, key));
}

void check_numbers(const std::string& lesson, const std::string& arguments,
                   const std::map<std::string, int64_t>& expected) {
  const std::string document = lesson_document(lesson, arguments);
  INFO(document);
  CHECK(cli::contains(document, "\"ok\": true"));
  CHECK_FALSE(cli::contains(document, "\"ok\": false"));
  for (const auto& [key, number] : expected) {
    CAPTURE(lesson, arguments, key);
    CHECK(measured(document, key) == number);
  }
}

int64_t up(int64_t n, int64_t multiple) {
  return n % multiple == 0 ? n : n + multiple - n % multiple;
}

Layout layout(int64_t ranks, int64_t layers) {
  const auto unit = [&](const std::vector<int64_t>& parameters) {
    int64_t end = 0;
    for (const int64_t n : parameters) end = up(end, 16) + n;
    return up(end, 16 * ranks);
  };
  return {ranks, layers, unit({65 * 32, 32 * 32, 32, 32}),
          unit({32, 32, 32 * 96, 96, 32 * 32, 32, 32, 32, 32 * 128, 128, 128 * 32, 32})};
}

LessonOnTerminal::LessonOnTerminal(const std::string& name,
                                   const std::vector<std::string>& arguments, bool colors) {
  const auto [master, slave] = cli::make_terminal(80, 24);
  master_ = master;
  std::vector<std::string> command{program(name)};
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::map<std::string, std::string> environment;
  if (!colors) environment["NO_COLOR"] = "1";
  process_ = cli::start(command, {slave, slave, slave}, environment);
  close(slave);
}

LessonOnTerminal::~LessonOnTerminal() {
  if (process_ > 0) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  close(master_);
}

bool LessonOnTerminal::read_more(double seconds) {
  pollfd one{master_, POLLIN, 0};
  if (poll(&one, 1, int(1000 * seconds)) <= 0) return false;
  char buffer[65536];
  const ssize_t n = read(master_, buffer, sizeof buffer);  // an error once the other side is closed
  if (n > 0) unread_.append(buffer, size_t(n));
  return n > 0;
}

std::string LessonOnTerminal::until(const std::string& text) {
  size_t at = std::string::npos;
  while ((at = unread_.find(text)) == std::string::npos)
    if (!read_more(10))
      throw std::runtime_error("'" + text + "' did not come; there was: " + unread_);
  const std::string all = unread_.substr(0, at + text.size());
  unread_.erase(0, at + text.size());
  return all;
}

void LessonOnTerminal::press(const std::string& keys) {
  if (write(master_, keys.data(), keys.size()) != ssize_t(keys.size()))
    throw std::runtime_error("the terminal takes no keys");
}

std::pair<std::string, int> LessonOnTerminal::end() {
  while (read_more(10)) {
  }
  // It has closed the terminal and is about to end, or it hangs.
  int status = 0;
  for (int tries = 0; waitpid(process_, &status, WNOHANG) == 0; ++tries) {
    if (tries == 100) kill(process_, SIGKILL);
    usleep(10'000);
  }
  process_ = -1;
  return {std::exchange(unread_, ""), cli::exit_code(status)};
}

bool LessonOnTerminal::is_cooked() const {
  termios state;
  return tcgetattr(master_, &state) == 0 && (state.c_lflag & ICANON) != 0 &&
         (state.c_lflag & ECHO) != 0;
}

}  // namespace tutorials
