// What CLI11 refuses on a command line, in one sentence. Templates, so that CLI11 stays out of
// headers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stages/deepspeed/keys.h"

namespace zl::cli {

// "; did you mean '--steps'?" if a known word is close to `word` or begins with it, else "".
inline std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string found = nearest_name(word, known);
  return found.empty() ? "" : "; did you mean '" + found + "'?";
}

// The command that was recognised.
template <class App>
const App& chosen(const App& app) {
  const auto deeper = app.get_subcommands();
  return deeper.empty() ? app : chosen<App>(*deeper.front());
}

// "config check", or with the program "zerolab config check".
template <class App>
std::string path_of(const App& command, bool with_program = false) {
  const App* parent = command.get_parent();
  const bool first = !parent || (!with_program && !parent->get_parent());
  return (first ? "" : path_of(*parent, with_program) + " ") + command.get_name();
}

template <class App>
std::vector<std::string> command_names(const App& app) {
  std::vector<std::string> names;
  for (const App* command : app.get_subcommands(nullptr)) names.push_back(command->get_name());
  return names;
}

inline std::string list_of(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

// The first word that is nothing here, such as "--stpes" of "--stpes=5"; "" if there is none.
template <class App>
std::string unknown_word(const App& app) {
  const auto rest = app.remaining(true);
  return rest.empty() ? "" : rest.front().substr(0, rest.front().find('='));
}

// `text`: of CLI11's error.
template <class App>
std::string sentence_of(const App& app, const std::string& text) {
  const App& command = chosen(app);
  const std::string word = unknown_word(app), path = path_of(command);
  auto known = command_names(command);
  if (!word.empty()) {
    const char* kind = word.starts_with("-") ? "flag" : known.empty() ? "argument" : "command";
    for (const auto* option : command.get_options()) known.push_back(option->get_name());
    std::string meant = did_you_mean(word, known);
    if (meant.empty() && *kind == 'c' && command.get_parent())
      meant = "; it has " + list_of(command_names(command));
    return (command.get_parent() ? path + " has" : "there is") + " no " + kind + " '" + word + "'" +
           meant;
  }
  if (!known.empty()) {
    return path + " needs a command: " + list_of(known);
  }
  if (text.ends_with(" missing")) return text.substr(0, text.find(':')) + " needs a value";
  if (text.ends_with("disallowed flag override"))
    return "--" + text.substr(0, text.find(' ')) + " takes no value";
  if (!text.ends_with(" is required")) return text;
  const auto* missing = command.get_option(text.substr(0, text.find(' ')));
  std::string usage = ". Write: " + path_of(command, true);
  for (const auto* option : command.get_options())
    if (option->get_required()) usage += " " + option->get_name();
  const std::string value = missing->get_option_text();
  return path + " needs " + missing->get_name() + (value.empty() ? "" : " " + value) + ": " +
         missing->get_description() + (missing->get_positional() ? usage : "");
}

}  // namespace zl::cli
