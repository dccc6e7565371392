// What the commands of this folder share. A template, so that the JSON library stays out of
// headers.
#pragma once

#include "tutorials/zerolab/cli/document.h"
#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/options.h"

namespace zl::cli {

void add_losses(CLI::App& check, Invocation& invocation);  // of 'zerolab check losses'
void add_settings(Flags& flags, RunOptions& options);      // --model, --config and --set

// Prints a comparison as JSON, or for people: `text`, "differences", "notes" and `end`. A
// difference is a sentence, or an object with "text" and "harmless". Returns the exit code that
// "ok" means.
template <class Json>
int print_comparison(const Json& document, bool as_json, std::string text, const std::string& end) {
  for (const Json& d : document["differences"]) {
    const bool harmless = d.is_object() && d["harmless"];
    text += (harmless ? "  harmless    " : "  difference  ") + as_is(d.is_object() ? d["text"] : d);
    text += "\n";
  }
  for (const Json& note : document["notes"]) text += "  note        " + as_is(note) + "\n";
  text = as_json ? json_text(document) : printable(text + end);
  std::fputs(text.c_str(), stdout);
  return document["ok"] ? kFine : kFailed;
}

}  // namespace zl::cli
