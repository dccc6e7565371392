// zerolab launch: starts the ranks of a program as processes on this machine.

#include "tutorials/zerolab/commands/launch.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string_view>

#include "dist/processes/launch_environment.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/nearest.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/launcher/launched_ranks.h"

namespace zl::cli {
namespace {

constexpr int kMostProcesses = 64;

struct LaunchOptions {
  int ranks = 0;
  double grace = 5;                   // [s]
  std::vector<std::string> program;   // and its arguments
  std::vector<std::string> commands;  // of zerolab itself
};
LaunchOptions options;

// A port on which nobody listens now; nor do the system's own choices begin so low.
int free_port(std::mt19937& random) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int port = std::uniform_int_distribution(15000, 32000)(random);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(uint16_t(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require_input(listener >= 0, "this machine gives no sockets, by which the ranks would meet");
    const bool free = bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    close(listener);
    if (free) return port;
  }
  throw InputError("no free port was found between 15000 and 32000, at which the ranks would meet");
}

std::string random_name(std::mt19937& random) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string name;
  for (int i = 0; i < 16; ++i) name += kDigits[random() % 16];
  return name;
}

// Of another launcher, which would have started this one once for each of its ranks.
void require_no_rank() {
  const char* rank = std::getenv("RANK");
  require_input(rank == nullptr || *rank == '\0', "RANK=", rank ? rank : "",
                " is set: this is already a rank of another launcher. Cure: start the program by "
                "one launcher, or unset RANK");
  // Job scripts may set WORLD_SIZE for others; the ranks get their own, and MASTER_ADDR too.
  const auto others = launch_environment([](const char* name) -> const char* {
    const std::string_view variable = name;
    return variable == "WORLD_SIZE"    ? nullptr
           : variable == "MASTER_ADDR" ? "here"
                                       : std::getenv(name);
  });
  require_input(!others.rank || others.rank->size == 1, "this is already one of ",
                others.rank ? others.rank->size : 1, " ranks that ",
                others.rank ? others.rank->launcher : "",
                " started. Cure: leave out 'zerolab launch -n N --', or start one process by ",
                others.rank ? others.rank->launcher : "");
}

// This very program, under the name that ps shows best.
std::string own_program() {
  std::error_code missing;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", missing);
  return access(path.c_str(), X_OK) == 0 ? path.string()
                                         : "/proc/self/exe";  // it was replaced meanwhile
}

int launch() {
  if (options.ranks == 0) throw UsageError("launch needs -n N, the number of processes");
  if (options.program.empty())
    throw UsageError("launch needs a program, such as: zerolab launch -n 2 -- train --model tiny");
  require_no_rank();
  LaunchPlan plan{.command = options.program,
                  .ranks = options.ranks,
                  .grace = std::chrono::duration<double>(options.grace)};
  if (std::ranges::count(options.commands, plan.command[0]) > 0)
    plan.command.insert(plan.command.begin(), own_program());
  std::mt19937 random{std::random_device{}()};
  plan.port = free_port(random);
  plan.run = random_name(random);
  const std::string& word = options.program[0];
  try {
    return LaunchedRanks(plan, standard_error(Color::automatic)).run();
  } catch (const InputError& e) {
    throw InputError(e.what() + (word.find('/') == std::string::npos
                                     ? did_you_mean(word, options.commands)
                                     : ""));
  }
}

constexpr const char* kFooter =
    R"(After the flags come PROGRAM and its arguments; "--" may stand between. PROGRAM is one of zerolab's commands (train,
compare, …), a name on PATH or a path; all that follows it is its own.

Each process is told its place by RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, ZEROLAB_PORT and
ZEROLAB_RUN_ID. What rank 0 writes to stdout comes out untouched; what else is written comes to stderr, in whole
lines behind "[rank 2] ". On a terminal rank 0's stderr is the terminal's, so that its progress stays one line.
Rank 0 reads stdin, the others nothing. What a rank leaves running in its process group ends with it.

When a process fails, the others have --grace seconds to end with their own error, then get SIGTERM and 2 s later
SIGKILL. Ctrl-C goes to all; a second one kills them.

Examples:
  zerolab launch -n 2 -- train --backend nccl --model tiny
  zerolab launch -n 4 ./build/default/tutorials/own_model
  zerolab launch -n 2 sh -c 'echo rank $RANK of $WORLD_SIZE'

Exit codes: 0 all processes ended with 0, else that of the one that failed first (not 4 if another explains it),
            4 if a signal killed it, 2 usage, or the program cannot be started, 130 Ctrl-C, 143 SIGTERM)";

}  // namespace

int take_launched_program(int argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "launch") return argc;
  int word = 2;
  for (; word < argc && argv[word][0] == '-'; ++word) {
    const std::string_view flag = argv[word];
    if (flag == "--") break;
    if (flag == "-n" || flag == "--grace") ++word;  // and its value
  }
  if (word >= argc) return argc;
  const int left = word;
  if (std::string_view(argv[word]) == "--") ++word;
  options.program.assign(argv + word, argv + argc);
  return left;
}

void add_launch(CLI::App& app, Invocation& invocation, std::vector<std::string> commands) {
  options.commands = std::move(commands);
  options.commands.push_back("launch");  // which then says that it is a rank itself
  Flags flags(app, invocation, "launch", "start a program's ranks as processes of this machine",
              launch);
  flags.group("Ranks");
  flags.value("-n", "N", str("how many processes, 1 to ", kMostProcesses),
              [](const auto& text) { options.ranks = int(read_count(text, 1, kMostProcesses)); });
  flags.value("--grace", "S", "seconds that the others have when one has failed (default 5)",
              [](const auto& text) {
                options.grace = read_real(text);
                require_input(options.grace >= 0 && options.grace <= 1e6, "'", text,
                              "' is not within 0 to 1e6 seconds");
              });
  flags.footer(kFooter);
}

}  // namespace zl::cli
