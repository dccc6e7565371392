// What replaces commands and flags that were removed: the only table of them. The program's message
// has it, and so does CHANGELOG.md.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace zl::cli {

// The command, its flag or the flag of all commands, and the rest of the sentence "'bench disk' was
// removed; …".
inline constexpr std::pair<std::string_view, std::string_view> kRemoved[] = {
    {"draw", "the pictures are SVG files below tutorials/, edited by hand"},
    {"--color", "lines are plain; NO_COLOR=1 leaves colour out of launch and of a lesson's --step"},
    {"--kills", "kill a run while it saves, as the chapter of lesson 13 says"},
    {"--memory-snapshot", "use 'train --trace FILE', whose timeline shows each rank's memory"},
    {"compare --trace", "use 'zerolab train --stage STAGE --trace FILE'"},
    {"config explain --keys", "tutorials/reference/configuration.md has every key"},
    {"config init", "copy the file of tutorials/reference/configuration.md"},
    {"plan --buffers", "use '--stages deepspeed-2', whose formulas count its bucket"},
    {"plan --estimate", "the plan itself has the bytes that a run takes"},
    {"plan --fragmentation", "a plan counts bytes; lesson 12 says what fragments memory"},
    {"plan --paper", "use '--parameters 7.5e9 --ranks 64 --precision bf16', as in the paper"},
    {"bench clock", "tutorials/reference/clock.md has the errors of predictions"},
    {"bench disk", "use 'zerolab bench machine --save FILE --dir DIR'"},
    {"bench random", "use './zl test --random N'"},
    {"bench kernels --only", "all kernels are timed in the same steps; choose among the rows"},
    {"bench machine --cores", "it measures all that the process may use"},
    {"bench machine --samples", "their number is fixed; --quick takes few"},
    {"bench comm --check", "one call of each is always checked"},
    {"bench comm --unordered", "nccl-tests times NCCL's own sums"},
    {"bench machine --array", "the arrays are larger than the caches; --quick has small ones"},
    {"bench kernels --quick", "use '--model tiny --rows 64'"},
    {"bench step --sweep", "run 'zerolab bench step' once for each value"},
    {"bench step --rounds", "rows take three turns, or as many as there are steps"},
    {"bench step --micro-batch", "use '--set train_micro_batch_size_per_gpu=B'"},
    {"bench step --csv", "use --json"},
    {"bench step --force", "it replaced the file of --csv; use --json"},
    {"plan --csv", "use --json"},
    {"plan --trace", "the page of 'compare --out DIR' plays a step of each stage"},
    {"plan --force", "it replaced files; redirect what --json prints: plan --json > FILE"},
    {"plan --out", "the page of 'compare --out DIR' plays a step of each stage"},
    {"plan --sweep", "run 'zerolab plan --machine NAME --ranks N' once for each N"},
    {"compare --as",
     "use 'zerolab plan --stages LIST', which predicts systems as they are shipped"},
    {"bench step --profile",
     "use 'zerolab bench kernels --n-layer L', which times the same kernels"},
    {"plan --stragglers-seed", "--stragglers takes the same numbers in each run"},
    {"--offload", "use '--set zero_optimization.offload_optimizer.device=cpu', or nvme"},
    {"--offload-param", "use '--set zero_optimization.offload_param.device=cpu', or nvme"},
    {"--nvme-path",
     "use '--set zero_optimization.offload_optimizer.nvme_path=DIR', or offload_param"},
    {"data synth", "'train --data FILE' takes any text"}};

// "'bench disk' was removed; use …", or "".
inline std::string was_removed(std::string_view command) {
  for (const auto& [removed, instead] : kRemoved)
    if (command == removed || (removed.starts_with("--") && command.ends_with(removed)))
      return "'" + std::string(removed) + "' was removed; " + std::string(instead);
  return "";
}

}  // namespace zl::cli
