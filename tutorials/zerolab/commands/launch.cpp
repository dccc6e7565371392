// zerolab launch: starts the ranks of a program as processes on this machine.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string_view>

#include "dist/processes/launch_environment.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/number_text.h"
#include "tutorials/zerolab/cli/quantity.h"
#include "tutorials/zerolab/launcher/ranks.h"

namespace zl::cli {
namespace {

LaunchPlan launch_plan{.ranks = 0};     // as the command line says
std::vector<std::string> own_commands;  // of zerolab itself

// Throws InputError if another launcher started this process as one of several ranks.
void require_no_rank() {
  // Job scripts may set WORLD_SIZE and MASTER_ADDR for other programs; the ranks get new values.
  const char* rank = std::getenv("RANK");
  const auto others = launch_environment([rank](const char* name) -> const char* {
    const std::string_view variable = name;
    return variable == "WORLD_SIZE" && !(rank && *rank) ? nullptr
           : variable == "MASTER_ADDR"                  ? "here"
                                                        : std::getenv(name);
  });
  const LaunchedRank other = others.rank.value_or(LaunchedRank());
  require_input(
      other.size == 1, "this is already one of ", other.size, " ranks that ", other.launcher,
      " started. Leave out 'zerolab launch -n N --', or start one process with ", other.launcher);
}

int launch() {
  LaunchPlan plan = launch_plan;
  if (plan.command.empty())
    throw UsageError("launch needs a program, such as: zerolab launch -n 2 -- train --model tiny");
  require_no_rank();
  std::mt19937_64 random{std::random_device{}()};
  // Below those that the system assigns. Rank 0 takes the first free one from here.
  plan.port = std::uniform_int_distribution(15000, 32000)(random);
  plan.run = hexadecimal(random());
  if (std::ranges::count(own_commands, plan.command[0]) > 0) {
    std::string words;  // "--backend=mpi" and "--backend mpi" alike
    for (const std::string& word : plan.command)
      words += word == "--backend" ? word + "=" : word + " ";
    // A link to this program, which ps shows by its path.
    plan.command.insert(plan.command.begin(), std::filesystem::read_symlink("/proc/self/exe"));
    if (words.find("--backend=mpi ") != words.npos) {
      require_input(!plan.share_gpu,
                    "--share-gpu lets ranks on NCCL share a GPU, but ranks on MPI "
                    "use none; leave one of the two out");
      become_mpirun(plan);
    }
  }
  return run_launched_ranks(plan, standard_error());
}

constexpr const char* kLaunchFooter =
    R"(The flags are followed by PROGRAM and its arguments. PROGRAM is a command of zerolab (train,
compare, …), a name on PATH or a path. All that follows belongs to it.

Each process gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, ZEROLAB_PORT and
ZEROLAB_RUN_ID. Rank 0 has stdin and stdout; all other output goes to stderr, in lines that begin
with "[rank 2] ". When a process fails, the others have --grace seconds to end, then they get
SIGTERM, and SIGKILL 2 s later. SIGTERM is sent to all, and SIGKILL after --grace seconds, in which
'train --save-every' saves a checkpoint. Ctrl-C is sent to all; a second one kills them.

With --backend mpi launch becomes the mpirun of the MPI that zerolab was built with, whose
variables, output, signals and exit codes are its own: tutorials/reference/machines.md.

Examples:
  zerolab launch -n 3 -- train --backend mpi --model tiny
  zerolab launch -n 4 --share-gpu -- compare --backend nccl --device cuda --model tiny
  zerolab launch -n 2 sh -c 'echo rank $RANK of $WORLD_SIZE'

Exit codes: 0 all processes ended with 0, else the code of the process that failed first (a code
            other than 4 is preferred, because 4 is often a consequence), 4 if a signal killed it,
            2 usage or the program cannot be started, 130 Ctrl-C, 143 SIGTERM)";

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
  launch_plan.command.assign(argv + word, argv + argc);
  return left;
}

void add_launch(CLI::App& app, Invocation& invocation, std::vector<std::string> commands) {
  own_commands = std::move(commands);
  own_commands.push_back("launch");  // which then says that it is a rank itself
  Flags flags(app, invocation, "launch",
              "start the ranks of a program as processes on this machine", launch);
  flags.value("PROGRAM", "", "and its arguments; '--' may separate them from launch's flags",
              [](const auto&) {});
  flags.add("-n", "N", launch_plan.ranks, count_within(1, 64), "number of processes, 1 to 64");
  flags.required("-n");
  flags.add("--grace", "S", launch_plan.grace, read_seconds,
            "seconds for the processes to end after one has failed, or after SIGTERM (default 5)");
  flags.toggle("--share-gpu",
               "ranks on NCCL may share GPUs, over sockets, to test it; times then mean nothing",
               launch_plan.share_gpu);
  flags.footer(kLaunchFooter);
}

}  // namespace zl::cli
