// The exit code and the sentence of each kind of error.

#include "tutorials/zerolab/cli/failure.h"

#include <catch2/catch_test_macros.hpp>
#include <csignal>

namespace zl::cli {
namespace {

template <class Error>
Failure failure(const Error& error, int signal = 0) {
  return failure_of(std::make_exception_ptr(error), signal);
}

bool has(const Failure& failure, const char* part) {
  return failure.text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a broken contract points to the user's model, and is not called a bug of zerolab",
          "[zerolab]") {
  const Failure contract = failure(std::invalid_argument("matmul: shapes (2, 3) and (4, 5)"));
  CHECK(contract.code == 70);
  CHECK(has(contract, "matmul: shapes (2, 3) and (4, 5)"));
  CHECK(has(contract, "If you changed a model, a stage or an optimizer, look there first"));
  CHECK_FALSE(has(contract, "This is a bug in zerolab"));
  CHECK(has(failure(std::runtime_error("x")), "This is a bug in zerolab"));
}

TEST_CASE("a system without threads is named, and not called unforeseen", "[zerolab]") {
  const Failure threads =
      failure(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)));
  CHECK(threads.code == 4);
  CHECK(has(threads, "the system refused another thread"));
  CHECK(has(threads, "try fewer ranks"));
  CHECK(failure(std::system_error(std::make_error_code(std::errc::io_error))).code == 70);
}

TEST_CASE("an error of a path is the user's, with the path; a full disk is an output's",
          "[zerolab]") {
  const auto of = [](std::errc code) {
    return failure(
        std::filesystem::filesystem_error("status", "runs/a", std::make_error_code(code)));
  };
  CHECK(of(std::errc::permission_denied).code == 2);
  CHECK(of(std::errc::filename_too_long).text == "runs/a: File name too long");
  CHECK(of(std::errc::no_space_on_device).code == 74);
}

TEST_CASE("errors of output, input, memory, communication and signals have codes of their kind",
          "[zerolab]") {
  CHECK(failure(OutputError("full")).code == 74);
  CHECK(failure(InputError("wrong")).code == 2);
  CHECK(failure(std::bad_alloc()).code == 3);
  CHECK(failure(CommunicationError("late")).code == 4);
  CHECK(failure(CommunicationError("late"), SIGTERM).code == 143);
  CHECK(failure(Interrupted()).code == 130);
  CHECK(failure(Interrupted(), SIGHUP).text == "ended by SIGHUP");
  CHECK(failure(InterruptedRun("interrupted after step 3"), SIGINT).text ==
        "interrupted after step 3");
}

}  // namespace zl::cli
