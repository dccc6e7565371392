#include "tensor/platform/shared_library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

namespace zl {
namespace {

std::vector<std::string> candidates(const std::string& file, const std::string& folder) {
  std::vector<std::string> all;
  const char* const asked = std::getenv("LD_LIBRARY_PATH");
  std::istringstream folders(asked ? asked : "");
  for (std::string one; std::getline(folders, one, ':');)
    if (const std::string path = one + "/" + file; !one.empty() && access(path.c_str(), F_OK) == 0)
      all.push_back(path);
  if (!folder.empty()) all.push_back(folder + "/" + file);
  all.push_back(file);
  return all;
}

}  // namespace

SharedLibrary::SharedLibrary(const std::string& name, const std::string& file,
                             const std::string& folder)
    : name_(name) {
  // A path would load a second copy if the program has loaded the library from another folder.
  handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD);
  std::string tried;
  for (const std::string& path : candidates(file, folder)) {
    if (handle_ || (handle_ = dlopen(path.c_str(), RTLD_NOW))) return;
    const char* const said = dlerror();
    const std::string why = said ? said : "";
    tried += (tried.empty() ? "" : "; ") + (why.starts_with(path) ? why : path + ": " + why);
  }
  throw LibraryError(name + " cannot be opened: " + tried,
                     "install it, or put the folder of " + file + " into LD_LIBRARY_PATH");
}

SharedLibrary::Function SharedLibrary::function(const char* name) const {
  if (void* const address = dlsym(handle_, name)) return {address};
  const char* const said = dlerror();
  throw LibraryError(name_ + " has no function " + name + (said ? str(" (", said, ")") : ""),
                     "put the folder of a version that is at least as new as at compile time first "
                     "in LD_LIBRARY_PATH");
}

}  // namespace zl
