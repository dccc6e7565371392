// zerolab draw: the pictures of the documents.

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "tutorials/zerolab/cli/flags.h"
#include "tutorials/zerolab/cli/nearest.h"
#include "tutorials/zerolab/cli/output_file.h"
#include "tutorials/zerolab/draw/pictures.h"

namespace zl::cli {
namespace {

using draw::Picture;

struct DrawCommand {
  std::string name, out;
  bool force = false;
};

int list() {
  for (const Picture& picture : draw::pictures())
    std::printf("%-16s %s; for %s\n", picture.name, picture.description, picture.page);
  return kFine;
}

// All files are checked before the first one is drawn, and get their names after the last one.
int draw_all(const std::string& folder, bool force) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  require_input(!error, "--out '", folder, "' cannot be made: ", error.message());
  std::vector<std::unique_ptr<OutputFile>> files;
  for (const Picture& picture : draw::pictures())
    files.push_back(
        std::make_unique<OutputFile>(str(folder, "/", picture.name, ".svg"), "", force));
  for (size_t i = 0; i < files.size(); ++i) files[i]->write_text(draw::pictures()[i].draw());
  for (const auto& file : files) file->commit();
  return kFine;
}

int draw_one(const Picture& picture, const DrawCommand& command) {
  if (command.out.empty()) {
    std::fputs(picture.draw().c_str(), stdout);
    return kFine;
  }
  OutputFile file(command.out, "", command.force);
  file.write_text(picture.draw());
  file.commit();
  return kFine;
}

int run(const DrawCommand& command) {
  if (command.force && command.out.empty())
    throw UsageError("--force replaces the file of --out, which is missing");
  if (command.name.empty()) {
    if (!command.out.empty())
      throw UsageError("which picture? write: zerolab draw NAME --out FILE");
    return list();
  }
  if (command.name == "all") {
    if (command.out.empty()) throw UsageError("'draw all' needs a folder: --out DIR");
    return draw_all(command.out, command.force);
  }
  std::vector<std::string> names = {"all"};
  for (const Picture& picture : draw::pictures()) {
    if (picture.name == command.name) return draw_one(picture, command);
    names.emplace_back(picture.name);
  }
  const std::string meant = did_you_mean(command.name, names);
  throw UsageError(str("there is no picture '", command.name, "'",
                       meant.empty() ? "; 'zerolab draw' lists them" : meant));
}

}  // namespace

void add_draw(CLI::App& app, Invocation& invocation) {
  auto command = std::make_shared<DrawCommand>();
  Flags flags(app, invocation, "draw", "draw a picture of the documents as SVG",
              [command] { return run(*command); });
  flags.name("NAME", "", "the picture; 'all': every one; without it they are listed",
             command->name);
  flags.name("--out", "PATH", "write to this file instead of stdout; 'all': into this folder",
             command->out);
  flags.toggle("--force", "replace files that exist", command->force);
  flags.footer(
      "Pictures show runs of a tiny model that take place when they are drawn. They contain no "
      "times,\nso they are equal on every machine.");
}

}  // namespace zl::cli
