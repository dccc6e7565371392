// Shared libraries that are opened at first use, so that only programs that use them need them.
#pragma once

#include <string>

#include "tensor/error.h"

namespace zl {

// A library is missing, or lacks a function. what() is "problem. Cure: cure".
struct LibraryError : InputError {
  LibraryError(const std::string& the_problem, const std::string& the_cure)
      : InputError(the_problem + ". Cure: " + the_cure), problem(the_problem), cure(the_cure) {}
  std::string problem, cure;
};

// A shared library that stays open until the program ends.
class SharedLibrary {
 public:
  // Opens `file` ("libnccl.so.2"). If the program has loaded it already, uses that; else searches
  // the folders in LD_LIBRARY_PATH, then `folder` (where the build found it), then the loader's own
  // path. Throws LibraryError, which lists what was tried.
  SharedLibrary(const std::string& name, const std::string& file, const std::string& folder);

  struct Function {
    void* address;
    template <class F>
    operator F*() const {
      return reinterpret_cast<F*>(address);
    }
  };
  // Converts to any function pointer; take its type from the library's header. Throws LibraryError.
  Function function(const char* name) const;

 private:
  std::string name_;  // "NCCL"
  void* handle_ = nullptr;
};

}  // namespace zl
