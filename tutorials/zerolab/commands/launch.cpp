// zerolab launch: starts the ranks of a program as processes on this machine.

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string_view>

#include "dist/processes/launch_environment.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/parse_error.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/launcher/ranks.h"

namespace zl::cli {
namespace {

constexpr int kMostProcesses = 64;

struct LaunchOptions {
  int ranks = 0;
  std::chrono::milliseconds grace{5000};
  bool share_gpu = false;
  std::vector<std::string> program;   // and its arguments
  std::vector<std::string> commands;  // of zerolab itself
};
LaunchOptions options;

// Throws InputError if another launcher started this process as one of its ranks.
void require_no_rank() {
  const char* rank = std::getenv("RANK");
  require_input(rank == nullptr || *rank == '\0', "RANK=", rank ? rank : "",
                " is set: this is already a rank of another launcher. Use one launcher, or unset "
                "RANK");
  // Job scripts may set WORLD_SIZE and MASTER_ADDR for other programs; the ranks get new values.
  const auto others = launch_environment([](const char* name) -> const char* {
    const std::string_view variable = name;
    return variable == "WORLD_SIZE"    ? nullptr
           : variable == "MASTER_ADDR" ? "here"
                                       : std::getenv(name);
  });
  const LaunchedRank other = others.rank.value_or(LaunchedRank());
  require_input(
      other.size == 1, "this is already one of ", other.size, " ranks that ", other.launcher,
      " started. Leave out 'zerolab launch -n N --', or start one process with ", other.launcher);
}

// The path of this program, as ps should show it.
std::string own_program() {
  std::error_code missing;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", missing);
  const bool replaced = access(path.c_str(), X_OK) != 0;  // by a new build
  return replaced ? "/proc/self/exe" : path.string();
}

int launch() {
  if (options.program.empty())
    throw UsageError("launch needs a program, such as: zerolab launch -n 2 -- train --model tiny");
  require_no_rank();
  std::mt19937_64 random{std::random_device{}()};
  LaunchPlan plan{.command = options.program,
                  .ranks = options.ranks,
                  .grace = options.grace,
                  // Below those that the system assigns. Rank 0 takes the first free one from here.
                  .port = std::uniform_int_distribution(15000, 32000)(random),
                  .run = hexadecimal(random()),
                  .share_gpu = options.share_gpu};
  if (std::ranges::count(options.commands, plan.command[0]) > 0) {
    std::string words;  // "--backend=mpi" and "--backend mpi" alike
    for (const std::string& word : plan.command)
      words += word + (word.starts_with("--") && word.find('=') == word.npos ? "=" : " ");
    const bool cpu = words.find("--device=cpu ") != words.npos,
               mpi = words.find("--backend=mpi ") != words.npos;
    require_input(!plan.share_gpu || (!mpi && !cpu),
                  "--share-gpu lets ranks on NCCL share a GPU, but ranks ",
                  mpi ? "on MPI" : "on --device cpu", " use none; leave one of the two out");
    plan.command.insert(plan.command.begin(), own_program());
    if (mpi) become_mpirun(plan);
  }
  try {
    return run_launched_ranks(plan, standard_error(Color::automatic));
  } catch (const ProgramNotFound& e) {
    throw InputError(e.what() + did_you_mean(options.program[0], options.commands));
  }
}

constexpr const char* kLaunchFooter =
    R"(The flags are followed by PROGRAM and its arguments. PROGRAM is a command of zerolab (train,
compare, …), a name on PATH or a path. All that follows belongs to it.

Each process gets its rank and the address of rank 0 in RANK, WORLD_SIZE, LOCAL_RANK,
LOCAL_WORLD_SIZE, MASTER_ADDR, ZEROLAB_PORT and ZEROLAB_RUN_ID. The stdout of rank 0 is passed on
unchanged; all other output goes to stderr, in complete lines that begin with "[rank 2] ". Rank 0
gets stdin unless that is a terminal.

When a process fails, the others have --grace seconds to end with their own error. Then they get
SIGTERM, and SIGKILL 2 s later. Ctrl-C is sent to all; a second one kills them. SIGTERM is
sent to all; those that are left after --grace seconds are killed. In this time 'train --save-every'
saves a checkpoint.

With --backend mpi all this is different: launch becomes the mpirun of the MPI that zerolab was
built with. It sets its own variables, writes no prefixes, and has its own exit codes. Open MPI's
waits --grace seconds, rounded up, between SIGTERM and SIGKILL; MPICH's kills at once.

--share-gpu lets NCCL run several ranks on one GPU, which it refuses otherwise; data goes over
sockets: tutorials/reference/machines.md.

Examples:
  zerolab launch -n 3 -- train --backend mpi --model tiny
  zerolab launch -n 4 --share-gpu -- compare --backend nccl --device cuda --model tiny
  zerolab launch -n 2 sh -c 'echo rank $RANK of $WORLD_SIZE'

Exit codes: 0 all processes ended with 0, else the code of the process that failed first (a code
            other than 4 is preferred, because 4 is often a consequence), 4 if a signal killed it,
            2 usage or the program cannot be started, 130 Ctrl-C, 143 SIGTERM; with
            --backend mpi those of mpirun)";

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
  Flags flags(app, invocation, "launch",
              "start the ranks of a program as processes on this machine", launch);
  flags.value("PROGRAM", "", "and its arguments; '--' may separate them from launch's flags",
              [](const auto&) {});
  flags.add("-n", "N", options.ranks, count_within(1, kMostProcesses),
            str("number of processes, 1 to ", kMostProcesses));
  flags.required("-n");
  flags.add("--grace", "S", options.grace, read_seconds,
            "seconds for the processes to end after one has failed, or after SIGTERM (default 5)");
  flags.toggle("--share-gpu",
               "ranks on NCCL may share GPUs, to test NCCL on fewer GPUs than ranks; times then "
               "mean nothing",
               options.share_gpu);
  flags.footer(kLaunchFooter);
}

}  // namespace zl::cli
