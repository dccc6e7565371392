#include "stages/checkpoint/agreement.h"

#include "tensor/error.h"

namespace zl {

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

void on_all_ranks(Communicator& comm, std::string_view name, const std::function<void()>& action) {
  std::string error;  // its kind, then its sentence
  try {
    action();
  } catch (const OutputError& e) {
    error = str("O", e.what());
  } catch (const InputError& e) {
    error = str("I", e.what());
  }
  for (const std::string& one : comm.all_gather_object(error, name)) {
    if (one.starts_with("O")) throw OutputError(one.substr(1));
    if (one.starts_with("I")) throw InputError(one.substr(1));
  }
}

}  // namespace zl
