// The published times that are shipped, and tables with mistakes, which are not read.
#include "stages/predict/ground_truth/published.h"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <set>

#include "stages/predict/clock/collective_time.h"
#include "tests/nn/scratch_folder.h"

using namespace zl;

namespace {

const std::string kCallColumns =
    "machine,system,network,collective,ranks,nodes,bytes,microseconds,source\n";
const std::string kStepColumns =
    "program,machine,network,memory_bandwidth,model,case,shape,parameters,layers,heads,width,vocab,"
    "window,ranks,stage,micro_batch,accumulation,recomputed,update_ranks,unlike,milliseconds,"
    "source\n";
const std::string kStep =
    "p,a100-80gb,,,m,,gpt,1000,2,4,64,256,128,8,zero3,2,1,0.5,,,12.5,a paper\n";

std::string call_message(const std::string& row) {
  return sentence_of([&] { read_calls("# a comment\n" + kCallColumns + row + "\n", "calls.csv"); });
}
std::string step_message(std::string row, const std::string& from, const std::string& to) {
  const size_t at = row.find(from);
  REQUIRE(at != std::string::npos);
  return sentence_of([&] { read_steps(kStepColumns + row.replace(at, from.size(), to), "s.csv"); });
}

}  // namespace

TEST_CASE("a table of calls is read with its units", "[stages]") {
  const auto calls = read_calls(
      kCallColumns + "h100-sxm,two nodes,2e11,all_gather,16,2,1048576,250.5,a log\n", "");
  REQUIRE(calls.size() == 1);
  CHECK(calls[0].seconds == Catch::Approx(250.5e-6));
  CHECK(calls[0].bytes == 1 << 20);
  CHECK(calls[0].collective == Collective::all_gather);
  CHECK(calls[0].change.network == 2e11);
  CHECK(with(find_machine("h100-sxm"), calls[0].change).network.bandwidth == 2e11 / 8);
  CHECK(with(find_machine("h100-sxm"), {}).network.bandwidth == 400e9 / 8);
}

TEST_CASE("a mistake in a table of calls is named with its line", "[stages]") {
  CHECK(call_message("h100-sxm,s,,all_reduce,8,1,65536,19.54,a log").empty());
  CHECK(call_message("h100-sxm,s,,all_reduce,8,1,65536,19.54") ==
        "calls.csv, line 3: there are 8 values for 9 columns");
  CHECK(call_message("h100-sxm,s,,sum,8,1,65536,19.54,a log") ==
        "calls.csv, line 3: collective is 'sum', which is unknown");
  CHECK(call_message("h100-sxm,s,,all_reduce,8,1,65536,fast,a log") ==
        "calls.csv, line 3: microseconds must be a number of at least 0.001, not 'fast'");
  CHECK(call_message("h100-sxm,s,,all_reduce,8,1,65536,-2,a log").find("-2") != std::string::npos);
  CHECK(call_message("h100-sxm,s,,all_reduce,8,1,0.5,2,a log").find("bytes") != std::string::npos);
  CHECK(call_message("h100-sxm,s,,all_reduce,2,4,64,2,a log") ==
        "calls.csv, line 3: 2 ranks on 4 nodes");
  CHECK(call_message("h100-sxm,s,,all_reduce,8,1,65536,2,") ==
        "calls.csv, line 3: source is empty");
  CHECK(sentence_of([] { read_calls("machine,system\na,b\n", "c.csv"); }) ==
        "c.csv, line 2: there is no column network");
}

TEST_CASE("a mistake in a table of steps is named with its line", "[stages]") {
  CHECK(step_message(kStep, "12.5", "12.5").empty());
  CHECK(step_message(kStep, "zero3", "zero4") ==
        "s.csv, line 2: stage is 'zero4', which is unknown");
  CHECK(step_message(kStep, "gpt", "moe") == "s.csv, line 2: shape must be gpt or llama, not moe");
  CHECK(step_message(kStep, "0.5", "1.5") == "s.csv, line 2: recomputed is a share, not 1.5");
  CHECK(step_message(kStep, "12.5", "").find("milliseconds") != std::string::npos);
  CHECK(!step_message(kStep, ",2,4,64,", ",2,5,64,").empty());  // 5 heads do not divide 64
}

TEST_CASE("the shipped tables say what was left out, and name machines that are shipped",
          "[stages]") {
  for (const std::string& table : published_tables()) {
    CHECK(table.starts_with("# Published "));
    CHECK(table.find("# Left out:") < table.find("\nmachine,") + table.find("\nprogram,"));
  }
  CHECK(published_calls().size() > 300);
  CHECK(published_steps().size() > 200);
  std::set<std::string> names;
  for (const PublishedCall& call : published_calls()) {
    names.insert(call.machine);
    CHECK(call.bytes >= 64 << 10);
  }
  for (const PublishedStep& step : published_steps()) names.insert(step.machine);
  for (const std::string& name : names) CHECK(find_machine(name).name == name);
}

// From the sources themselves: dgxc-benchmarking, nccl/README.md; llm-foundry's table, MPT-7b on 8
// H100, 48 sequences of 2048 tokens; Megatron-LM's Table 2.
TEST_CASE("shipped rows have the values of their sources", "[stages]") {
  const auto call = std::ranges::find_if(published_calls(), [](const PublishedCall& c) {
    return c.system == "DGX H100" && c.bytes == int64_t(1) << 28;
  });
  REQUIRE(call != published_calls().end());
  const double bus = double(call->bytes) * 1.75 / call->seconds;
  CHECK(bus == Catch::Approx(422e9).epsilon(0.005));

  const auto step = std::ranges::find_if(published_steps(), [](const PublishedStep& s) {
    return s.model == "MPT-7b" && s.machine == "h100-sxm" && s.ranks == 8 &&
           s.shape.block_size == 2048;
  });
  REQUIRE(step != published_steps().end());
  const double per_rank = double(step->micro_batch * step->accumulation * 2048) / step->seconds;
  CHECK(per_rank == Catch::Approx(10643).epsilon(0.005));
}

// No link carries more than its data sheet says; sums in the switch send a part of what
// nccl-tests counts, and two nodes send each sum once.
TEST_CASE("no published call is faster than its links allow", "[stages]") {
  for (const PublishedCall& c : published_calls()) {
    const Machine m = with(find_machine(c.machine), c.change);
    const double bus = double(c.bytes) * link_factor(c.collective, c.ranks) / c.seconds;
    CAPTURE(c.system, name(c.collective), c.bytes, bus);
    const bool sums = c.collective == Collective::all_reduce;
    CHECK(bus < m.link.bandwidth * (sums && m.link.switch_sums > 0 ? 2 : 1));
    if (c.nodes > 1)
      CHECK(bus < m.network.ports * m.network.bandwidth * (sums && c.nodes == 2 ? 2 : 1));
  }
}
