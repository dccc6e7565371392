#include "tutorials/lesson/options.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "tensor/error.h"
#include "tutorials/zerolab/cli/parse_error.h"
#include "tutorials/zerolab/cli/removed.h"

namespace zl::lesson {

std::optional<Options> parse_options(int argc, const char* const* argv, const About& about) {
  Options options{.ranks = about.ranks, .predictions = {}, .own = {}};
  CLI::App app{
      str(about.name, ": ", about.question, "\n\nRun the lesson, predict its numbers, then ",
          "change a flag and say beforehand what will change. The chapter is\n", "tutorials/",
          about.name, ".md, the program tutorials/", about.name, ".cpp."),
      "./zl run " + about.name.substr(0, 2)};
  const auto whole_number = [&](const char* name, auto& value, const Flag& flag) {
    app.add_option(name, value,
                   str(flag.help, ", ", flag.least, " to ", flag.most, " (", value, ")"))
        ->type_name(flag.argument)
        ->check(CLI::Range(flag.least, flag.most).description(""));
  };
  for (const Flag& flag : about.flags) {
    int64_t& value = options.own[flag.name] = flag.value;
    if (flag.argument.empty())
      app.add_flag(flag.name, value, flag.help)->disable_flag_override();
    else
      whole_number(flag.name.c_str(), value, flag);
  }
  whole_number("--ranks", options.ranks,
               {"", "N", "number of ranks, each a thread", 0, 1, about.most_ranks});
  whole_number("--seed", options.seed, {"", "S", "of the initial weights", 0, 0, INT64_MAX});
  app.add_option("--device", options.device,
                 "cpu, or reference: kernels in their textbook form (cpu)")
      ->type_name("WHERE")
      ->check(CLI::IsMember({"cpu", "reference"}).description(""));
  const auto predict = [&](const CLI::results_t& given) {
    for (const std::string& text : given) options.predictions.push_back(parse_prediction(text));
    return true;
  };
  app.add_option("--predict", predict, "judges your number; without a value asks for it first")
      ->type_name("KEY=VALUE")
      ->expected(0, 1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  CLI::Option* quiet = app.add_flag("--quiet", options.quiet, "only predictions and the last line");
  CLI::Option* json = app.add_flag("--json", options.json, "one document: numbers and checks");
  CLI::Option* step =
      app.add_flag("--step", options.step, "shows the run event by event; ? lists keys");
  step->excludes(quiet)->excludes(json);
  for (CLI::Option* flag : {quiet, json, step}) flag->disable_flag_override();
  app.footer("Exit code: 0 all checks held, 1 a check failed, 2 wrong usage.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    const std::string gone = cli::was_removed(about.name + " " + cli::unknown_word(app));
    throw InputError(gone.empty() ? cli::sentence_of(app, error.what()) : gone);
  }
  return options;
}

}  // namespace zl::lesson
