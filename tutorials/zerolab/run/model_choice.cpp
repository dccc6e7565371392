#include "tutorials/zerolab/run/model_choice.h"

namespace zl::cli {
namespace {

constexpr const char* kDefaultModel = "small";

// One size of a model: its flag, the value of the flag, and its member of GptConfig.
struct Size {
  const char* flag;
  std::optional<int64_t> RunOptions::*given;
  int64_t GptConfig::*member;
};
constexpr Size kSizes[] = {{"--n-layer", &RunOptions::n_layer, &GptConfig::layers},
                           {"--n-head", &RunOptions::n_head, &GptConfig::heads},
                           {"--n-embd", &RunOptions::n_embd, &GptConfig::width},
                           {"--block-size", &RunOptions::block_size, &GptConfig::block_size},
                           {"--vocab-size", &RunOptions::vocab_size, &GptConfig::vocab}};

ModelChoice without_file(const RunOptions& options, const std::string& name) {
  ModelChoice choice{.model = named_gpt(name), .name = name};
  for (const Size& size : kSizes) {
    if (!(options.*size.given) || *(options.*size.given) == choice.model.*size.member) continue;
    choice.model.*size.member = *(options.*size.given);
    choice.name = name + ", changed by flags";
  }
  choice.model.check();
  choice.window = choice.model.block_size;
  return choice;
}

// `named`: how the model was named, such as "--model tiny", or "".
void require_same_sizes(const RunOptions& options, const ModelChoice& choice,
                        const std::string& named, const std::string& name) {
  const GptConfig& file = choice.model;
  for (const Size& size : kSizes) {
    const bool is_window = size.member == &GptConfig::block_size;
    if (options.*size.given) {
      const int64_t wanted = *(options.*size.given);
      require_input(
          is_window ? wanted <= file.*size.member : wanted == file.*size.member, size.flag, " ",
          wanted, " does not match ", choice.name, ", which has ", file.*size.member,
          is_window ? " positions; a sequence can only be shorter" : "; leave the flag out");
    } else if (!named.empty()) {
      const int64_t wanted = named_gpt(name).*size.member;
      require_input(wanted == file.*size.member, named, " does not match ", choice.name, ": its ",
                    size.flag + 2, " is ", wanted, ", the file's is ", file.*size.member,
                    "; leave the model out, the file gives its sizes");
    }
  }
}

}  // namespace

ModelChoice choose_model(const RunOptions& options,
                         const std::optional<ConfiguredModel>& configured) {
  const std::string name = configured ? configured->name : kDefaultModel;
  if (options.init_from.empty()) return without_file(options, name);

  ModelChoice choice{.name = options.init_from,
                     .weights = open_weights(options.init_from, options.n_head)};
  choice.model = choice.weights->config();
  choice.model.check();
  choice.window = options.block_size.value_or(choice.model.block_size);
  const std::string named = !configured ? ""
                            : configured->where == "--model"
                                ? "--model " + name
                                : configured->where + ": model " + name;
  require_same_sizes(options, choice, named, name);
  return choice;
}

}  // namespace zl::cli
