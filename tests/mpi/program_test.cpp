// The program under mpirun: the results of threads bit for bit and byte for byte, its files, and
// what it says where it cannot run.

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tensor/error.h"
#include "tests/mpi/mpirun.h"

namespace zl::test {
namespace {

using cli::contains;
using cli::Finished;
using cli::read_file;
using Json = nlohmann::ordered_json;

const std::string kTiny = " --model tiny --steps 3 --device cpu";

// What a comparison says, without times and the memory of MPI's scratch. It says itself whether
// all memory is as predicted.
Json results(const std::string& text) {
  const Json document = Json::parse(text);
  Json stages = Json::array();
  for (const Json& stage : document["stages"]) {
    Json memory = Json::array();
    for (const Json& row : stage["memory"])
      if (row["use"] != "communication") memory.push_back(row);
    stages.push_back({stage["stage"], stage["loss"], stage["grad_norm"], stage["weights_hash"],
                      stage["communication"], memory});
  }
  return {document["ok"], document["ranks"], stages};
}

void require_results_of_threads(const Mpi& mpi, int ranks, const std::string& flags) {
  const Finished here = zerolab_on(mpi, ranks, "compare --backend mpi -q --json" + flags + kTiny),
                 threads = cli::shell("$ZEROLAB compare -q --json --ranks " +
                                      std::to_string(ranks) + flags + kTiny);
  INFO(mpi.start << flags << "\n" << here.err);
  REQUIRE((here.code == 0 && threads.code == 0));
  CHECK(Json::parse(here.out)["ok"] == true);
  CHECK(Json::parse(here.out)["backend"] == "mpi");
  CHECK(results(here.out) == results(threads.out));
}

}  // namespace

TEST_CASE("compare on MPI has bits, memory and traffic of threads in all precisions and variants",
          "[mpi]") {
  const Mpi mpi = mpi_of_build();
  const std::string variants =
      " --stages zero3,hsdp,zero3_hpz,zero3_qwz,zero3_qgz --ranks-per-node 2 --precision ";
  for (const std::string precision : {"fp32", "bf16", "fp16"}) {
    require_results_of_threads(mpi, 3, " --precision " + precision);
    require_results_of_threads(mpi, 4, variants + precision);
  }
  require_results_of_threads(mpi, 2,
                             " --set gradient_accumulation_steps=2 --set zerolab.ordered=false");
  require_results_of_threads(
      mpi, 4, " --set zero_optimization.overlap_comm=true --set gradient_clipping=1");
  require_results_of_threads(mpi, 3, " --reproducible --check");
  const Finished other = zerolab_on(mpi, 3, "compare -q --json --seed 5" + kTiny),
                 threads = cli::shell("$ZEROLAB compare -q --json --ranks 3" + kTiny);
  REQUIRE(other.code == 0);
  CHECK(results(other.out) != results(threads.out));
}

TEST_CASE("under mpirun ranks without a GPU take MPI by themselves, and only rank 0 prints",
          "[mpi]") {
  const Mpi mpi = mpi_of_build();
  const Finished run = zerolab_on(mpi, 3, "train --stage zero3" + kTiny);
  INFO(run.err);
  REQUIRE(run.code == 0);
  CHECK(contains(run.err, std::string("ranks   ") + mpi_in_build()->name() + " "));
  CHECK(contains(run.err, "sums in rank order; each is a process, started by mpirun"));
  const size_t first = run.err.find("ranks   ");
  CHECK(run.err.find("ranks   ", first + 1) == std::string::npos);
}

TEST_CASE("train on MPI writes the files of threads, and a resumed run ends with the same weights",
          "[mpi]") {
  const Mpi mpi = mpi_of_build();
  const cli::ScratchFolder folder;
  const std::string flags =
      " --stage zero2 --save-every 2 --eval-every 2 --model tiny --device cpu";
  const auto train = [&](const std::string& more) {
    const Finished run = zerolab_on(mpi, 3, "train --backend mpi" + flags + more);
    INFO(run.err);
    REQUIRE(run.code == 0);
  };
  train(" --steps 4 --trace " + (folder / "trace.json") + " --out " + (folder / "whole"));
  train(" --steps 2 --out " + (folder / "resumed"));
  const Finished threads =
      cli::shell("$ZEROLAB train --ranks 3 --steps 4" + flags + " --out " + (folder / "threads"));
  REQUIRE(threads.code == 0);
  const auto weights = [&](const std::string& run) {
    return read_file(folder / (run + "/model.safetensors"));
  };
  CHECK(weights("whole") == weights("threads"));
  CHECK(weights("resumed") != weights("threads"));
  train(" --steps 4 --resume --out " + (folder / "resumed"));
  CHECK(weights("resumed") == weights("threads"));
  CHECK(cli::lines(read_file(folder / "resumed/metrics.jsonl")).size() == 4);
  CHECK(Json::parse(read_file(folder / "trace.json"))["traceEvents"].size() > 100);
}

TEST_CASE("two runs on MPI at once do not meet", "[mpi]") {
  const std::string train = " $ZEROLAB train --backend mpi --sample 0" + kTiny;
  const Mpi mpi = mpi_of_build();
  for (int attempt = 0; attempt < 3; ++attempt) {
    const Finished both = cli::shell("(" + mpi.ranks(2) + train + " || echo the other failed) & " +
                                     mpi.ranks(3) + train + "; code=$?; wait; exit $code");
    INFO(both.err);
    CHECK(both.code == 0);
    CHECK_FALSE(contains(both.out, "the other failed"));
  }
}

TEST_CASE("plan predicts the scratch of sums on MPI, which threads do not need", "[mpi]") {
  const auto peaks = [](const std::string& backend) {
    const Finished plan =
        cli::shell("$ZEROLAB plan --model tiny --ranks 3 --json --backend " + backend);
    REQUIRE(plan.code == 0);
    return Json::parse(plan.out)["stages"].dump();
  };
  CHECK(peaks("mpi") != peaks("threads"));
  CHECK(cli::shell("$ZEROLAB plan --model tiny --backend mpi --as cuda").code == 2);
}

TEST_CASE("the mpi backend says in one sentence what is missing", "[mpi]") {
  const std::string
      train = "train --backend mpi" + kTiny,
      torchrun = "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 TORCHELASTIC_RUN_ID=a ";
  const Mpi mpi = mpi_of_build();
  const std::pair<Finished, const char*> refused[] = {
      {cli::shell("$ZEROLAB " + train),
       "--backend mpi: ranks are processes, and this one was started by no launcher; start them "
       "with zerolab launch -n 2 -- train --backend mpi …, or with mpirun or srun"},
      {cli::shell(torchrun + "$ZEROLAB " + train),
       "--backend mpi: torchrun started these ranks, and cannot start ranks of MPI"},
      {zerolab_on(mpi, 3, train + " --ranks 2"), "--ranks 2, but mpirun started 3 processes"}};
  for (const auto& [run, says] : refused) {
    CHECK(run.code == 2);
    CHECK(contains(run.err, says));
  }
}

// As under srun with another PMI, or the mpirun of another MPI: MPI finds no other rank.
TEST_CASE("a size that MPI counts differently than the launcher is named with both numbers",
          "[mpi]") {
  if (!mpi_of_build().open_mpi) SKIP("these are Open MPI's variables");
  const std::string rank = "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 ";
  const auto of = [&](int r) {
    const std::string number = std::to_string(r);
    return rank + "OMPI_COMM_WORLD_RANK=" + number + " OMPI_COMM_WORLD_LOCAL_RANK=" + number +
           " ZEROLAB_PORT=23456 timeout 50 $ZEROLAB train --timeout 20 --backend mpi" + kTiny;
  };
  const Finished run = cli::shell(of(1) + " 2>/dev/null & " + of(0));
  INFO(run.err);
  CHECK(run.code == 2);
  CHECK(contains(run.err,
                 "the launcher started 2 ranks, but on rank 0 Open MPI counts 1 rank and calls "
                 "it rank 0, so another MPI's launcher started them"));
  CHECK(contains(run.err, "Cure: start them with " + mpi_in_build()->mpirun));
}

TEST_CASE("doctor names the MPI of the build and its mpirun", "[mpi]") {
  const Json mpi = Json::parse(cli::shell("$ZEROLAB doctor --json").out)["mpi"];
  const std::string text = cli::shell("$ZEROLAB doctor").out;
  const std::optional<MpiInBuild> built = mpi_in_build();
  CHECK(mpi["built_in"] == built.has_value());
  if (!built) {
    CHECK(contains(text, "How to fix it: " + std::string(kMpiCure)));
    return;
  }
  CHECK((mpi["name"] == built->name() && mpi["compiled_for"] == built->version));
  CHECK(contains(text, str(", name ", built->name(), ", compiled for ", built->version)));
  if (!mpi["mpirun"].is_null()) CHECK(contains(text, ", mpirun " + built->mpirun));
}

}  // namespace zl::test
