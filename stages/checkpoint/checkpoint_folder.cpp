#include "stages/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <regex>

#include "tensor/error.h"
#include "tensor/io/small_file.h"

namespace zl {
namespace fs = std::filesystem;
namespace {

std::string step_name(int64_t step) {
  const std::string digits = std::to_string(step);
  return "step-" + std::string(8 - std::min<size_t>(8, digits.size()), '0') + digits;
}

// The number in "step-00000100"; nothing for any other name.
std::optional<int64_t> step_of(const std::string& name) {
  long long step = -1;
  const bool is = std::sscanf(name.c_str(), "step-%lld", &step) == 1 && name == step_name(step);
  return is && step >= 0 ? std::optional<int64_t>(step) : std::nullopt;
}

// The last name, also of "runs/a/".
std::string file_name(const fs::path& path) {
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

// Whether an interrupted save has left it; earlier versions gave such folders other names.
bool is_left_behind(const fs::path& path) {
  static const std::regex kEarlier("\\.trash-step-\\d+-\\d+|step-\\d+\\.tmp-\\d+-[0-9a-f]+");
  return is_temporary(file_name(path)) || std::regex_match(file_name(path), kEarlier);
}

// Listed before any is removed: NFS may skip names in a folder that changes meanwhile.
std::vector<fs::path> entries(const fs::path& folder) {
  std::error_code error;
  const fs::directory_iterator all(folder, error);
  return {begin(all), end(all)};
}

// Creates a folder of checkpoints, so that its name is durable.
const std::string& created(const CheckpointOptions& options) {
  std::error_code error;
  fs::create_directories(options.folder, error);
  if (error) throw OutputError(str(options.folder, ": cannot be created: ", error.message()));
  (void)error_of([&] {  // its name may be new
    sync_folder(*options.files, fs::absolute(options.folder).parent_path().string());
  });
  return options.folder;
}

}  // namespace

std::string checkpoint_path(const std::string& folder, int64_t step) {
  return (fs::path(folder) / step_name(step)).string();
}

std::vector<CheckpointPath> list_checkpoints(const std::string& folder) {
  std::vector<CheckpointPath> all;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  const std::string reason = error.message();
  require_input(!error || !fs::exists(fs::status(folder, error)), folder,
                ": cannot be read as a folder of checkpoints: ", reason);
  for (const fs::directory_entry& entry : entries)
    if (const auto step = step_of(file_name(entry.path())); step && entry.is_directory(error))
      all.push_back({*step, entry.path().string()});
  std::ranges::sort(all, {}, [](const CheckpointPath& c) { return std::pair(c.step, c.path); });
  return all;
}

bool is_checkpoint(const std::string& path) {
  const fs::path given = fs::path(path).lexically_normal();
  std::error_code error;
  return fs::exists(given / "checkpoint.json", error) || step_of(file_name(given)).has_value();
}

Manifest read_manifest(const std::string& checkpoint) {
  const fs::path folder(checkpoint), path = folder / "checkpoint.json";
  Manifest manifest =
      parse_manifest(path.string(), read_small_file(path.string(), {"manifest", 256 << 20}));
  const auto step = step_of(file_name(folder));
  require_input(!step || *step == manifest.position.step, path.string(), ": is of step ",
                manifest.position.step, ", but the folder is named ", file_name(folder));
  std::error_code error;
  for (const auto& [name, record] : manifest.files) {
    const auto bytes = fs::file_size(folder / name, error);
    require_input(!error, (folder / name).string(), ": cannot be read: ", error.message());
    require_input(int64_t(bytes) == record.bytes, (folder / name).string(), ": has ", bytes,
                  " bytes, but checkpoint.json says ", record.bytes);
  }
  return manifest;
}

NewestCheckpoint newest_checkpoint(const std::string& path) {
  if (is_checkpoint(path)) return {path, read_manifest(path), {}};
  NewestCheckpoint newest;
  std::vector<CheckpointPath> all = list_checkpoints(path);
  for (auto at = all.rbegin(); at != all.rend() && newest.path.empty(); ++at) try {
      newest.manifest = read_manifest(at->path);
      newest.path = at->path;
    } catch (const InputError& error) {
      newest.rejected.push_back(error.what());
    }
  return newest;
}

void remove_path(FileCalls& calls, const std::string& path) {
  std::error_code error;
  if (fs::is_directory(fs::symlink_status(path, error)))
    for (const fs::path& inner : entries(path)) remove_path(calls, inner.string());
  if (calls.remove(path) != 0 && errno != ENOENT)
    throw OutputError(str(path, ": cannot be removed: ", std::strerror(errno)));
}

void rename_path(FileCalls& calls, const std::string& from, const std::string& to) {
  if (calls.rename(from, to) != 0)
    throw OutputError(
        str(from, ": cannot be renamed to ", file_name(to), ": ", std::strerror(errno)));
}

CheckpointFolder::CheckpointFolder(const CheckpointOptions& options, int64_t step)
    : lock_(system_file_calls(), created(options), O_RDONLY | O_DIRECTORY) {
  require_input(lock_against_other_processes(lock_.descriptor()), options.folder,
                ": another process saves checkpoints into it; wait for its end, or choose another "
                "folder");
  for (const fs::path& entry : entries(options.folder))
    if (is_left_behind(entry) && fs::is_directory(entry))
      remove_path(*options.files, entry.string());
  for (const CheckpointPath& later : list_checkpoints(options.folder)) {
    if (later.step <= step) continue;
    const bool complete = error_of([&] { read_manifest(later.path); }).empty();
    require_input(!complete, options.folder, " holds a checkpoint of step ", later.step,
                  ", but this run begins after step ", step,
                  "; resume from the newest one, or save into another folder");
    const std::string manifest = later.path + "/checkpoint.json";
    require_input(::access(manifest.c_str(), R_OK) == 0 || errno == ENOENT, manifest,
                  ": cannot be read: ", std::strerror(errno));
    std::string name = later.path + ".broken";  // which no loader takes
    while (fs::exists(name)) name += "+";
    rename_path(*options.files, later.path, name);
  }
}

// A folder is renamed before it is emptied, so that a half-empty one never has a checkpoint's name.
void remove_old_checkpoints(const CheckpointOptions& options, int64_t newest) {
  std::vector<CheckpointPath> all = list_checkpoints(options.folder);
  std::erase_if(all, [&](const CheckpointPath& c) {
    return c.step == newest || fs::is_symlink(fs::path(c.path));
  });
  for (size_t i = 0; int64_t(all.size() - i) >= options.keep && i < all.size(); ++i) {
    const std::string trash = temporary_beside(all[i].path);
    rename_path(*options.files, all[i].path, trash);
    remove_path(*options.files, trash);
  }
}

// ---- ranks ------------------------------------------------------------------------------------

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> on_all_ranks(Communicator& comm, std::string_view name,
                                      const std::function<std::string()>& action) {
  std::string mine;  // 'R', or the kind of an error, and the result or the sentence
  try {
    mine = "R" + action();
  } catch (const OutputError& e) {
    mine = str("O", e.what());
  } catch (const InputError& e) {
    mine = str("I", e.what());
  }
  std::vector<std::string> all = comm.all_gather_object(mine, name);
  for (std::string& one : all) {
    const char kind = one[0];
    one.erase(0, 1);
    if (kind == 'O') throw OutputError(one);
    if (kind == 'I') throw InputError(one);
  }
  return all;
}

}  // namespace zl
