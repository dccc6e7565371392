#include "tutorials/zerolab/run/own_rank.h"

#include <cstdio>
#include <cstdlib>

#include "tensor/error.h"

namespace zl::cli {

std::optional<LaunchedRank> launched_rank(const RunOptions& options) {
  const LaunchEnvironment found =
      launch_environment([](const char* name) { return std::getenv(name); });
  if (!found.note.empty() && !options.quiet) std::fprintf(stderr, "note: %s\n", found.note.c_str());
  if (!found.rank || found.rank->size == 1) return std::nullopt;
  const LaunchedRank& place = *found.rank;
  require_input(!options.ranks || *options.ranks == place.size, "--ranks ",
                options.ranks.value_or(0), ", but ", place.launcher, " started ", place.size,
                " processes, which are one rank each; leave --ranks out");
  require_input(options.backend != RunOptions::BackendWish::threads,
                "--backend threads: ranks are threads of one process, but ", place.launcher,
                " started ", place.size, "; use --backend nccl, or start one process with --ranks ",
                place.size);
  return place;
}

void hush(RunOptions& options) {
  options.quiet = true;
  options.json = false;
}

RunRanks run_as_process(const LaunchedRank& place, const NcclOptions& nccl,
                        const ProcessOptions& process) {
  const auto runs = std::make_shared<int>(0);
  return [place, nccl, process, runs](int ranks, const std::function<void(Communicator&)>& body,
                                      RankOptions options) {
    require(ranks == place.size, "a run of ", ranks, " ranks on ", place.size, " processes");
    LaunchedRank here = place;
    here.run +=
        str("/", ++*runs);  // a rank that is late with one run is not taken for one of the next
    run_process_rank(here, body, options, nccl, process);
  };
}

}  // namespace zl::cli
