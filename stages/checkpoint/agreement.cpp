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
  results_of_all_ranks(comm, name, [&] { return action(), ""; });
}

std::vector<std::string> results_of_all_ranks(Communicator& comm, std::string_view name,
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
