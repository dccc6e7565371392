// An error that one rank finds is thrown by all ranks, which then go on together.
#include "stages/checkpoint/agreement.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <string>
#include <vector>

#include "dist/run_ranks.h"
#include "tensor/error.h"

using namespace zl;

namespace {

using Texts = std::vector<std::string>;

// What each of three ranks has caught, of which `rank` throws; -1: none does.
template <class Error>
Texts caught(int rank) {
  Texts texts(3);
  run_ranks(3,
            [&](Communicator& comm) {
              try {
                on_all_ranks(comm, "agreement", [&] {
                  if (comm.rank() == rank) throw Error("the disk is full");
                });
              } catch (const Error& error) {
                texts[size_t(comm.rank())] = error.what();
              }
              comm.barrier({"after the error", Purpose::check}).wait();
            },
            {.timeout = std::chrono::seconds(5)});
  return texts;
}

}  // namespace

TEST_CASE("an error of one rank is thrown by all ranks, with its kind and its words", "[stages]") {
  const int rank = GENERATE(0, 1, 2);
  CHECK(caught<OutputError>(rank) == Texts(3, "the disk is full"));
  CHECK(caught<InputError>(rank) == Texts(3, "the disk is full"));
  CHECK(caught<OutputError>(-1) == Texts(3));  // the twin
}
