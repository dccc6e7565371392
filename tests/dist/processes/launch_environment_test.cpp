// Reading the environment variables of launchers. The environments are those that each launcher
// sets, without what does not matter here.

#include "dist/processes/launch_environment.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <sstream>

#include "tensor/error.h"

namespace zl {
namespace {

using Variables = std::map<std::string, std::string>;
using Catch::Matchers::ContainsSubstring;

// "NAME=VALUE NAME=VALUE", as in front of a command.
Variables of(const std::string& words) {
  Variables all;
  std::istringstream in(words);
  for (std::string word; in >> word;)
    all[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  return all;
}

LaunchEnvironment in(const Variables& variables) {
  return launch_environment([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}
Variables without(Variables base, const std::string& name) {
  base.erase(name);
  return base;
}

std::string refusal(const Variables& variables) {
  try {
    (void)in(variables);
  } catch (const InputError& e) {
    return e.what();
  }
  return "none";
}

// "1/4, 1/2 here, via torchrun, node7:29501, run".
std::string place(const Variables& variables) {
  const LaunchEnvironment found = in(variables);
  if (!found.rank) return "alone";
  const LaunchedRank& r = *found.rank;
  return str(r.rank, "/", r.size, ", ", r.local_rank, "/", r.local_size, " here, via ", r.launcher,
             ", ", r.address, ":", r.port, ", ", r.run);
}

// torchrun --nnodes=2 --nproc-per-node=2 --rdzv-id=job9 --rdzv-backend=c10d …
const Variables kTorchrun =
    of("RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 GROUP_WORLD_SIZE=2 "
       "ROLE_RANK=3 ROLE_WORLD_SIZE=4 ROLE_NAME=default MASTER_ADDR=gpu01 MASTER_PORT=43211 "
       "TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_MAX_RESTARTS=0 TORCHELASTIC_RUN_ID=job9 "
       "TORCHELASTIC_USE_AGENT_STORE=True OMP_NUM_THREADS=1");
// A batch script of 2 machines with 2 tasks each, before any srun.
const Variables kBatch =
    of("SLURM_JOB_ID=1234567 SLURM_JOBID=1234567 SLURM_NTASKS=4 SLURM_NPROCS=4 SLURM_NNODES=2 "
       "SLURM_NODELIST=gpu[07-08] SLURM_JOB_NODELIST=gpu[07-08] SLURM_TASKS_PER_NODE=2(x2) "
       "SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_GTIDS=0");
// The last task of srun in that script.
const Variables kSrun =
    with(kBatch, of("SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=2 "
                    "SLURM_STEP_NODELIST=gpu[07-08] SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_PROCID=3 "
                    "SLURM_LOCALID=1 SLURM_NODEID=1 SLURM_SRUN_COMM_HOST=10.0.0.7"));
// mpirun -np 2 on one machine.
const Variables kOpenMpi4 =
    of("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 "
       "OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_NODE_RANK=1 OMPI_UNIVERSE_SIZE=2 "
       "OMPI_MCA_ess_base_jobid=3203596289 OMPI_MCA_ess_base_vpid=1 PMIX_RANK=1");
const Variables kOpenMpi5 =
    of("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 "
       "OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_RANK=0 PMIX_NAMESPACE=prterun-laptop-8123@1");
const Variables kMpich = of("PMI_RANK=1 PMI_SIZE=2 PMI_FD=9 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2");

}  // namespace

TEST_CASE("a process without a launcher is the only one", "[dist]") {
  CHECK(place({}) == "alone");
  CHECK(in({}).note.empty());
  CHECK(place(of("MASTER_ADDR=gpu01 MASTER_PORT=29500 WORLD_SIZE=1 RANK=")) ==
        "alone");  // "" is not set
}

TEST_CASE("each launcher's variables give the rank, its place on the machine, and rank 0's address",
          "[dist]") {
  const std::pair<Variables, const char*> launchers[] = {
      {kTorchrun, "3/4, 1/2 here, via torchrun, gpu01:43212, job9.0"},
      {kSrun, "3/4, 1/2 here, via srun, gpu07:19567, 1234567.0"},
      {kOpenMpi4, "1/2, 1/2 here, via mpirun, 127.0.0.1:29501, 3203596289"},
      {kOpenMpi5, "0/2, 0/2 here, via mpirun, 127.0.0.1:29501, prterun-laptop-8123@1"},
      {kMpich, "1/2, 1/2 here, via mpirun, 127.0.0.1:29501, "},
      {of("RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
          "ZEROLAB_PORT=40000 ZEROLAB_RUN_ID=5f3a"),
       "1/2, 1/2 here, via zerolab launch, 127.0.0.1:40000, 5f3a"},
      {of("RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_SIZE=2 CROSS_RANK=0 CROSS_SIZE=1 "
          "MASTER_ADDR=127.0.0.1 MASTER_PORT=29500"),
       "1/2, 1/2 here, via deepspeed, 127.0.0.1:29501, "},
      {of("PMI_RANK=5 PMI_SIZE=8 PMI_LOCAL_RANK=1 PMI_LOCAL_SIZE=4 MASTER_ADDR=x1"),  // Cray's
       "5/8, 1/4 here, via mpirun, x1:29501, "},
      {of("PMIX_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 PMIX_NAMESPACE=ns"),
       "1/2, 1/2 here, via mpirun, 127.0.0.1:29501, ns"}};
  for (const auto& [variables, expected] : launchers) CHECK(place(variables) == expected);
}

TEST_CASE("ranks that share a GPU get NCCL a host name each, and the loopback network", "[dist]") {
  const Variables& set = kTorchrun;
  CHECK_FALSE(in(set).rank->shares_gpu);
  for (const char* off : {"", "0"})
    CHECK_FALSE(in(with(set, {{"ZEROLAB_SHARE_GPU", off}})).rank->shares_gpu);
  CHECK(in(with(set, of("ZEROLAB_SHARE_GPU=1"))).rank->shares_gpu);
  CHECK_THAT(refusal(with(set, of("ZEROLAB_SHARE_GPU=yes"))),
             ContainsSubstring("ZEROLAB_SHARE_GPU is 'yes'"));

  const auto variables = [](int rank, const Variables& environment) {
    return shared_gpu_variables(rank, [&](const char* name) {
      const auto found = environment.find(name);
      return found == environment.end() ? nullptr : found->second.c_str();
    });
  };
  CHECK(variables(3, {}) ==
        of("NCCL_HOSTID=zerolab-rank-3 NCCL_IB_DISABLE=1 NCCL_MULTI_RANK_GPU_ENABLE=1 "
           "NCCL_SOCKET_IFNAME=lo ZEROLAB_SHARE_GPU=1"));
  // The user's network stays, but one host name for all ranks would be refused by NCCL.
  CHECK(variables(0, of("NCCL_SOCKET_IFNAME=eth0 NCCL_HOSTID=mine")) ==
        of("NCCL_HOSTID=zerolab-rank-0 NCCL_IB_DISABLE=1 NCCL_MULTI_RANK_GPU_ENABLE=1 "
           "ZEROLAB_SHARE_GPU=1"));
}

TEST_CASE("RANK wins over Slurm, whose numbers count the torchruns", "[dist]") {
  const Variables step = with(
      kSrun,
      of("SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1 SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=1(x2)"));
  CHECK(place(with(step, kTorchrun)) == "3/4, 1/2 here, via torchrun, gpu01:43212, job9.0");
}

TEST_CASE(
    "mpirun wins over Slurm's step, which has mpirun's servants, but srun --mpi=pmi2 and pmix are "
    "srun",
    "[dist]") {
  const Variables servants = with(kSrun, of("SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1"));
  CHECK(place(with(servants, kOpenMpi5)).find("0/2, 0/2 here, via mpirun, 127.0.0.1:") == 0);
  CHECK(place(with(servants, with(kMpich, of("PMI_SIZE=4 MASTER_ADDR=gpu07")))) ==
        "1/4, 1/2 here, via mpirun, gpu07:19567, ");
  CHECK(place(with(kSrun, of("PMI_RANK=3 PMI_SIZE=4 PMI_FD=12"))) == place(kSrun));
  CHECK(place(with(kSrun, of("PMIX_RANK=3 PMIX_NAMESPACE=slurm.pmix.1234567.0"))) == place(kSrun));
}

TEST_CASE("an allocation without srun is one process, and says so", "[dist]") {
  CHECK(place(kBatch) == "alone");
  CHECK(in(kBatch).note ==
        "Slurm allocation found but not started with srun; running 1 process. Use `srun zerolab "
        "train …`");
  CHECK_FALSE(
      in(with(without(kBatch, "SLURM_NTASKS"), of("SLURM_NTASKS_PER_NODE=2"))).note.empty());
  CHECK(in(with(kBatch, of("SLURM_NTASKS=1"))).note.empty());
  CHECK(in(kSrun).note.empty());
  // `srun --pty bash` in it.
  CHECK(place(with(kBatch,
                   of("SLURM_STEP_ID=1 SLURM_STEP_NUM_TASKS=1 SLURM_NTASKS=1 PMIX_RANK=0"))) ==
        "alone");
  CHECK(place(with(kBatch, of("SLURM_STEP_NUM_TASKS=1 PMI_RANK=0 PMI_SIZE=1"))) == "alone");
}

TEST_CASE(
    "rank 0's machine is MASTER_ADDR, else the first of Slurm's list, else this one if all ranks "
    "are here",
    "[dist]") {
  CHECK(in(with(kSrun, of("MASTER_ADDR=10.1.2.3"))).rank->address == "10.1.2.3");
  const Variables lists =
      of("gpu07=gpu07 gpu07,gpu08=gpu07 node[01-04,7],other=node01 n[9-11]=n9 n[7,9-11]=n7 n[3]=n3 "
         "r[1-2]n[01-04]=r1n01 r[2,4]-n5-ib[0-3],x=r2-n5-ib0 a.b.c=a.b.c lab,node[1-2]=lab");
  for (const auto& [list, host] : lists)
    CHECK(in(with(kSrun, {{"SLURM_STEP_NODELIST", list}})).rank->address == host);
  for (const char* list : {"gpu[07-08", "gpu[]"})
    CHECK_THAT(refusal(with(kSrun, {{"SLURM_STEP_NODELIST", list}})),
               ContainsSubstring("set MASTER_ADDR"));
  const std::string cure = refusal(with(kOpenMpi4, of("OMPI_COMM_WORLD_SIZE=4")));
  CHECK_THAT(cure, ContainsSubstring("4 ranks by mpirun, 2 of them here") &&
                       ContainsSubstring("-x MASTER_ADDR=NAME"));
  CHECK_THAT(refusal(without(kTorchrun, "MASTER_ADDR")), ContainsSubstring("set MASTER_ADDR"));
  CHECK(in(with(kOpenMpi4, of("OMPI_COMM_WORLD_SIZE=4 MASTER_ADDR=a"))).rank->address == "a");
}

TEST_CASE("rank 0's port is never MASTER_PORT, and the next 19 exist too", "[dist]") {
  const auto port = [](const Variables& more) { return in(with(kSrun, more)).rank->port; };
  CHECK(port(of("ZEROLAB_PORT=5000 MASTER_PORT=6000")) == 5000);
  CHECK(port(of("MASTER_PORT=6000")) == 6001);
  CHECK(port(of("SLURM_JOB_ID=42")) == 15042);
  CHECK(port(of("SLURM_JOB_ID=9990099")) == 15099);
  CHECK(port(of("SLURM_JOB_ID=weird")) == 29501);
  for (const int master : {1, 65514, 65515, 65516, 65520, 65535}) {
    const int own = port({{"MASTER_PORT", std::to_string(master)}});
    CAPTURE(master, own);
    CHECK(own >= 1);
    CHECK(own + 19 <= 65535);
    CHECK((master < own || master > own + 19));
  }
  CHECK(port(of("ZEROLAB_PORT=65516")) == 65516);
  for (const char* bad : {"65517", "80", "0", "-1", "x", "70000"})
    CHECK_THAT(refusal(with(kSrun, {{"ZEROLAB_PORT", bad}})),
               ContainsSubstring("ZEROLAB_PORT is '" + std::string(bad) +
                                 "', which is no whole number from 1024 to 65516"));
  for (const char* bad : {"65536", "0", "1e4"})
    CHECK_THAT(refusal(with(kSrun, {{"MASTER_PORT", bad}})), ContainsSubstring("MASTER_PORT is '"));
}

TEST_CASE(
    "a run is distinguished from others by its launcher's variables, and a restart from the run "
    "before",
    "[dist]") {
  CHECK(in(with(kTorchrun, of("TORCHELASTIC_RESTART_COUNT=2"))).rank->run == "job9.2");
  CHECK(in(with(kTorchrun, of("TORCHELASTIC_RUN_ID=none"))).rank->run == "none-43211.0");
  for (const Variables& base : {kTorchrun, kSrun, kOpenMpi4, kMpich})
    CHECK(in(with(base, of("ZEROLAB_RUN_ID=mine"))).rank->run == "mine");
  CHECK(in(with(kSrun, of("SLURM_STEP_ID=3"))).rank->run == "1234567.3");
}

TEST_CASE(
    "srun's ranks on this machine are counted where the machines have different numbers of them",
    "[dist]") {
  const auto here = [](const char* list, const char* machine) {
    return in(with(kSrun, {{"SLURM_STEP_NUM_TASKS", "9"},
                           {"SLURM_STEP_TASKS_PER_NODE", list},
                           {"SLURM_NODEID", machine}}))
        .rank->local_size;
  };
  CHECK(here("4(x2),3", "0") == 4);
  CHECK(here("4(x2),3", "1") == 4);
  CHECK(here("4(x2),3", "2") == 3);
  CHECK(here("9", "0") == 9);
  CHECK_THAT(refusal(without(with(kSrun, of("SLURM_STEP_TASKS_PER_NODE=3,1")), "SLURM_NODEID")),
             ContainsSubstring("has no entry for this machine (SLURM_NODEID=)"));
  CHECK(here("", "1") == 2);  // the job's SLURM_TASKS_PER_NODE
  for (const char* bad : {"4(x2", "x", "4;2", "+4", " 4", "0(x2)", "4294967300"})
    CHECK_THAT(refusal(with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", bad}})),
               ContainsSubstring("SLURM_STEP_TASKS_PER_NODE is '"));
}

TEST_CASE("variables that contradict each other or are no numbers are refused with their values",
          "[dist]") {
  for (const char* bad : {"-1", "two", "1.5", " 1", "1 ", "0x1", "99999999999999999999", "70000"})
    CHECK(refusal(with(kTorchrun, {{"RANK", bad}})) ==
          str("RANK is '", bad, "', which is no whole number from 0 to 65536"));
  const std::pair<Variables, const char*> refused[] = {
      {with(kTorchrun, of("RANK=4")),
       "RANK=4, WORLD_SIZE=4, LOCAL_RANK=1, LOCAL_WORLD_SIZE=2 do not say which rank this process "
       "is: a launcher sets all four (the last two count the ranks of this machine), and ranks "
       "count from 0. Cure: start the ranks by srun, torchrun, mpirun or 'zerolab launch', or "
       "unset RANK"},
      {with(kTorchrun, of("LOCAL_RANK=2")), "LOCAL_RANK=2, LOCAL_WORLD_SIZE=2 do not say"},
      {with(kTorchrun, of("LOCAL_WORLD_SIZE=8")), "WORLD_SIZE=4, LOCAL_RANK=1, LOCAL_WORLD_SIZE=8"},
      {with(kTorchrun, of("WORLD_SIZE=0")), "RANK=3, WORLD_SIZE=0, "},
      {without(kTorchrun, "LOCAL_RANK"), "LOCAL_RANK=, LOCAL_WORLD_SIZE=2 do not say"},
      {of("RANK=1"), "RANK=1, WORLD_SIZE=, LOCAL_RANK=, LOCAL_WORLD_SIZE= do not say"},
      {of("WORLD_SIZE=2"), "WORLD_SIZE=2 is set, but not RANK. Cure: start the ranks by srun"},
      {of("RANK=1 WORLD_SIZE=2"), "LOCAL_RANK=, LOCAL_WORLD_SIZE= do not say"},
      {without(kOpenMpi4, "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_SIZE=, "},
      {of("PMIX_RANK=1"), "PMI_SIZE=, "},
      {with(kMpich, of("PMI_RANK=2")), "PMI_RANK=2, PMI_SIZE=2, "},
      {with(kSrun, of("SLURM_PROCID=4")), "SLURM_PROCID=4, SLURM_STEP_NUM_TASKS=4, "},
      {with(kSrun, of("SLURM_LOCALID=2")),
       "SLURM_LOCALID=2, SLURM_STEP_TASKS_PER_NODE=2(x2) do not say"},
      {without(kSrun, "SLURM_PROCID"), "SLURM_PROCID=, "},
      {with(kSrun, of("WORLD_SIZE=8")), "WORLD_SIZE=8 is set, but srun started 4 ranks"}};
  for (const auto& [variables, part] : refused)
    CHECK_THAT(refusal(variables), ContainsSubstring(part));
  CHECK(place(of("RANK=0 WORLD_SIZE=1")) ==
        "0/1, 0/1 here, via RANK and WORLD_SIZE, 127.0.0.1:29501, ");
  CHECK(place(with(kSrun, of("WORLD_SIZE=4"))) == place(kSrun));  // as many job scripts do
}

}  // namespace zl
