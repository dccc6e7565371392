// main() of the program that runs a student's code: PROGRAM NUMBER SEED DEVICE CHECK [EVENT]. It
// writes the record of the check to file descriptor 3. With EVENT it shows the run on the terminal
// instead.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>

#include "dist/run_ranks.h"
#include "tensor/error.h"
#include "tutorials/exercises/grader/child_process.h"
#include "tutorials/exercises/judge/measure.h"

namespace zl::exercises {
namespace {

Record measured(const CheckOptions& options) {
  std::string error = "an object that is no std::exception was thrown";
  try {
    return measure(options);
  } catch (const std::exception& e) {
    error = e.what();
  } catch (...) {
  }
  return {.numbers = {}, .texts = {{"error", error}}};
}

// As MessagePack, which keeps NaN and infinity.
bool write_all(const Record& record) {
  std::FILE* file = fdopen(kResultFile, "w");
  const auto bytes =
      nlohmann::json::to_msgpack({{"numbers", record.numbers}, {"texts", record.texts}});
  return file && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size() &&
         std::fflush(file) == 0;
}

}  // namespace

Record run_on_ranks(int ranks, const std::function<void(Communicator&, Record&)>& body) {
  std::vector<Record> records(static_cast<size_t>(ranks));
  std::vector<Costs> costs(records.size());
  const auto run_rank = [&](Communicator& comm) {
    count_costs(comm.events(), costs[size_t(comm.rank())]);
    body(comm, records[size_t(comm.rank())]);
  };
  Record all;
  try {
    run_ranks(ranks, run_rank, {.timeout = kRankTimeout, .grace = kRankGrace});
  } catch (const CommunicationError& e) {
    all.texts["communication"] = e.what();
  }
  for (int r = 0; r < ranks; ++r) all.add(r, records[size_t(r)]);
  all.put_rows("costs", costs);
  return all;
}

}  // namespace zl::exercises

// Ends with _exit(): no destructor of the student's code runs after the record is written.
int main(int argc, char** argv) {
  using namespace zl::exercises;
  if (argc < 5) _exit(2);  // only 'zerolab exercise check' runs this program
  CheckOptions options = check_options(argv + 1);
  options.check = argv[4];
  if (argc == 6) options.step_from = std::strtoll(argv[5], nullptr, 10);
  static char buffer[4096];  // not on the heap, which a check may measure
  std::setvbuf(stdout, buffer, _IOLBF, sizeof buffer);  // a crash keeps what was printed before
  const Record record = measured(options);
  std::fflush(nullptr);
  if (argc == 5) _exit(write_all(record) ? 0 : 74);
  for (const auto& [name, text] : record.texts)
    std::fprintf(stderr, "%s: %s\n", name.c_str(), text.c_str());
  _exit(record.texts.empty() ? 0 : 1);
}
