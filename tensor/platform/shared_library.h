// Libraries that are opened when they are first used: a program that does not use them neither
// waits for them nor needs them.
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
  // The `file` ("libnccl.so.2") that this program has loaded already, else that of the first of
  // these which has one: the folders in LD_LIBRARY_PATH, the folder where the build found it, the
  // loader's own search. Throws LibraryError, which tells what was tried.
  SharedLibrary(const std::string& name, const std::string& file, const std::string& folder);

  struct Function {
    void* address;
    template <class F>
    operator F*() const {
      return reinterpret_cast<F*>(address);
    }
  };
  // Becomes whatever pointer it is assigned to, whose type should be that of the library's header.
  // Throws LibraryError.
  Function function(const char* name) const;

 private:
  std::string name_;  // "NCCL"
  void* handle_ = nullptr;
};

}  // namespace zl
