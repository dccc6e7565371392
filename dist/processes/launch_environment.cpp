#include "dist/processes/launch_environment.h"

#include <sys/socket.h>

#include <charconv>
#include <regex>
#include <sstream>
#include <string_view>

#include "tensor/error.h"

namespace zl {
namespace {

constexpr int kMaxSize = 65536;  // more is a mistake
constexpr int kLastPort = 65535 - (kPorts - 1);
constexpr int kDefaultPort = 29501;  // torchrun's default for MASTER_PORT, plus 1

std::optional<int> whole_number(const std::string& text) {
  int number = 0;
  const char* const all = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), all, number);
  return error == std::errc() && end == all ? std::optional(number) : std::nullopt;
}

// The environment. An empty variable counts as not set.
class Variables {
 public:
  explicit Variables(const Environment& get) : get_(get) {}

  std::string text(const char* name) const {
    const char* value = get_(name);
    return value ? value : "";
  }
  bool has(const char* name) const { return !text(name).empty(); }

  std::optional<int> number(const char* name, int least = 0, int most = kMaxSize) const {
    const std::string value = text(name);
    if (value.empty()) return std::nullopt;
    const auto number = whole_number(value);
    require_input(number && *number >= least && *number <= most, name, " is '", value,
                  "', which is no whole number from ", least, " to ", most);
    return number;
  }
  // "RANK=3".
  std::string assignment(const char* name) const { return str(name, "=", text(name)); }

 private:
  const Environment& get_;
};

// A launcher's variables.
struct Names {
  const char *launcher, *mark;  // a variable that no launcher in a later row sets
  const char *rank, *size, *local_rank, *local_size;
};

// The first row whose mark and rank are set counts. RANK takes precedence over Slurm, whose numbers
// count the launchers under `srun torchrun`, and over mpirun. Cray's launcher has other names for
// MPICH's local numbers, and PMIx another for the rank.
constexpr Names kLaunchers[] = {
    {"torchrun", "TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"zerolab launch", "ZEROLAB_RUN_ID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"deepspeed", "LOCAL_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_SIZE"},
    {kNoLauncher, "RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"mpirun", "PMI_LOCAL_RANK", "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"},
    {"mpirun", "PMI_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"mpirun", "PMIX_RANK", "PMIX_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}};
// Here the last is a list of how many ranks run on each machine; some steps have only the job's.
constexpr Names kSrun{"srun",          "SLURM_STEP_NUM_TASKS",
                      "SLURM_PROCID",  "SLURM_STEP_NUM_TASKS",
                      "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"};
constexpr const char* kTasksOfJob = "SLURM_TASKS_PER_NODE";

// 4 of "2(x3),4" in variable `name` for machine 3, machines counted from 0.
int tasks_on(const Variables& v, const char* name, int machine) {
  static const std::regex kEntry("([1-9][0-9]{0,7})(?:\\(x([1-9][0-9]{0,7})\\))?");
  std::istringstream list(v.text(name));
  std::smatch found;  // tasks on each of so many machines
  for (std::string entry;
       machine >= 0 && std::getline(list, entry, ',') && regex_match(entry, found, kEntry);)
    if ((machine -= found[2].matched ? std::stoi(found[2]) : 1) < 0) return std::stoi(found[1]);
  throw InputError(str(name, " is '", v.text(name),
                       "', which is no list such as 4(x2),1, or has no entry for this machine "
                       "(SLURM_NODEID=",
                       v.text("SLURM_NODEID"), ")"));
}

constexpr const char* kStartThem =
    ". Cure: start the ranks by srun, torchrun, mpirun or 'zerolab launch', or unset ";

LaunchedRank numbers(const Variables& v, const Names& names) {
  const auto [launcher, mark, rank, size, local_rank, local_size] = names;
  LaunchedRank r{.rank = v.number(rank).value_or(-1),
                 .size = v.number(size).value_or(-1),
                 .launcher = launcher};
  if (r.size != 1 || v.has(local_rank) || v.has(local_size)) {
    r.local_rank = v.number(local_rank).value_or(-1);
    r.local_size = r.launcher == kSrun.launcher
                       ? tasks_on(v, local_size, v.number("SLURM_NODEID").value_or(-1))
                       : v.number(local_size).value_or(-1);
  }
  const bool counted = r.rank >= 0 && r.rank < r.size && r.local_rank >= 0 &&
                       r.local_rank < r.local_size && r.local_size <= r.size;
  require_input(counted, v.assignment(rank), ", ", v.assignment(size), ", ",
                v.assignment(local_rank), ", ", v.assignment(local_size),
                " do not say which rank this process is: a launcher sets all four (the last two "
                "count the ranks of this machine), and ranks count from 0",
                kStartThem, rank);
  return r;
}

// The process that started the ranks of this machine, which is at the other end of their PMI_FD.
std::string starter(const Variables& v) {
  ucred process{};
  socklen_t size = sizeof process;
  const int fd = whole_number(v.text("PMI_FD")).value_or(-1);
  const int error = ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &process, &size);
  return error == 0 && process.pid > 0 ? str("process ", process.pid) : "";
}

std::string run(const Variables& v, const LaunchedRank& r) {
  if (r.launcher == "srun") return v.text("SLURM_JOB_ID") + "." + v.text("SLURM_STEP_ID");
  if (r.launcher == "torchrun") {
    std::string run = v.text("TORCHELASTIC_RUN_ID");
    // torchrun's default is the same for all runs of this machine.
    if (run == "none") run += "-" + v.text("MASTER_PORT");
    const std::string restarts = v.text("TORCHELASTIC_RESTART_COUNT");
    return restarts.empty() ? run : run + "." + restarts;
  }
  if (r.launcher != "mpirun") return "";
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"})
    if (v.has(name)) return v.text(name);
  return r.local_size == r.size ? starter(v) : "";  // MPICH names no run
}

// "node01" of "node[01-04,7],other".
std::string first_host(const std::string& list) {
  static const std::regex kNumbers("\\[([^-,\\]]+)[^\\]]*\\]");  // the first of them stays
  const std::string hosts = std::regex_replace(list, kNumbers, "$1"),
                    first = hosts.substr(0, hosts.find(','));
  require_input(first.find('[') == first.npos, "SLURM_STEP_NODELIST is '", list,
                "', which is no list of machines. Cure: set MASTER_ADDR to rank 0's machine");
  return first;
}

std::string address(const Variables& v, const LaunchedRank& r) {
  if (v.has("MASTER_ADDR")) return v.text("MASTER_ADDR");
  // Only under srun: under mpirun this would be the step of mpirun's daemons.
  if (r.launcher == "srun" && v.has("SLURM_STEP_NODELIST"))
    return first_host(v.text("SLURM_STEP_NODELIST"));
  require_input(
      r.local_size == r.size, r.size, " ranks by ", r.launcher, ", ", r.local_size,
      " of them here: they are on several machines, and no variable says which machine has rank 0. "
      "Cure: set MASTER_ADDR to its name",
      r.launcher == "mpirun"
          ? " (mpirun -x MASTER_ADDR=NAME with Open MPI, -genv MASTER_ADDR NAME with MPICH)"
          : "");
  return "127.0.0.1";
}

// Rank 0 listens on this port or one of the next 19, so these must exist. Never on MASTER_PORT
// itself, where torchrun's agent listens.
int port(const Variables& v) {
  if (const auto own = v.number("ZEROLAB_PORT", 1024, kLastPort)) return *own;
  if (const auto master = v.number("MASTER_PORT", 1, 65535))
    return *master < kLastPort ? *master + 1 : *master - kPorts;
  // As in Lightning: each job has its port, below those that the system assigns.
  const std::string job = v.text("SLURM_JOB_ID");
  if (!job.empty() && job.find_first_not_of("0123456789") == job.npos)
    return 15000 + std::stoi(job.substr(job.size() < 4 ? 0 : job.size() - 4));
  return kDefaultPort;
}

std::optional<LaunchedRank> launched(const Variables& v) {
  // Under srun PMI's variables count only if they differ from the step's.
  const std::string tasks = v.text("SLURM_STEP_NUM_TASKS"), of_pmi = v.text("PMI_SIZE");
  const bool pmi_of_srun = !tasks.empty() && (of_pmi.empty() || of_pmi == tasks);
  for (const Names& names : kLaunchers) {
    const bool pmi = std::string_view(names.rank).starts_with("PMI");
    if (v.has(names.mark) && v.has(names.rank) && !(pmi && pmi_of_srun)) return numbers(v, names);
  }
  Names srun = kSrun;
  if (!v.has(srun.local_size) && v.has(kTasksOfJob)) srun.local_size = kTasksOfJob;
  if (v.number("SLURM_STEP_NUM_TASKS", 1).value_or(1) > 1) return numbers(v, srun);
  return std::nullopt;
}

}  // namespace

LaunchEnvironment launch_environment(const Environment& get) {
  const Variables v(get);
  LaunchEnvironment found{launched(v), ""};
  // Many job scripts set WORLD_SIZE for srun, which sets the ranks.
  const int size = found.rank ? found.rank->size : 1;
  const int world = v.number("WORLD_SIZE", 1).value_or(size);
  require_input(found.rank || world == 1, v.assignment("WORLD_SIZE"), " is set, but not RANK",
                kStartThem, "WORLD_SIZE");
  require_input(world == size, v.assignment("WORLD_SIZE"), " is set, but ",
                found.rank.value_or(LaunchedRank()).launcher, " started ", size,
                " ranks. Cure: unset WORLD_SIZE");
  if (found.rank) {
    LaunchedRank& r = *found.rank;
    r.run = v.has("ZEROLAB_RUN_ID") ? v.text("ZEROLAB_RUN_ID") : run(v, r);
    r.shares_gpu = v.number("ZEROLAB_SHARE_GPU", 0, 1).value_or(0) == 1;
    r.address = address(v, r);
    r.port = port(v);
  } else if (v.has("SLURM_JOB_ID") && (v.number("SLURM_NTASKS").value_or(1) > 1 ||
                                       v.number("SLURM_NTASKS_PER_NODE").value_or(1) > 1)) {
    // Such a process has SLURM_PROCID=0 and SLURM_NTASKS=4, but the other ranks are never started.
    found.note =
        "Slurm allocation found but not started with srun; running 1 process. Use `srun zerolab "
        "train …`";
  }
  return found;
}

std::map<std::string, std::string> shared_gpu_variables(int rank, const Environment& get) {
  std::map<std::string, std::string> set{{"NCCL_SOCKET_IFNAME", "lo"}, {"NCCL_IB_DISABLE", "1"}};
  std::erase_if(set, [v = Variables(get)](const auto& one) { return v.has(one.first.c_str()); });
  set["NCCL_HOSTID"] = str("zerolab-rank-", rank);
  set["NCCL_MULTI_RANK_GPU_ENABLE"] = "1";  // since NCCL 2.30.3
  set["ZEROLAB_SHARE_GPU"] = "1";
  return set;
}

}  // namespace zl
