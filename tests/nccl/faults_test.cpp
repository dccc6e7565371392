#include "tests/nccl/fake/faults.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace zl;
using namespace zl::test;
using Catch::Matchers::ContainsSubstring;
using K = Fault::Kind;
using R = NcclResult;

TEST_CASE("faults are read from words, and words that mean none are refused", "[nccl]") {
  const auto faults = faults_from(
      "ncclAllGather:never:rank=2:call=3; "
      "ncclSend:fails:rank=-1:result=ncclRemoteError:said=reset:times=7");
  REQUIRE(faults.size() == 2);
  CHECK((faults[0].function == "ncclAllGather" && faults[0].kind == K::never &&
         faults[0].rank == 2 && faults[0].call == 3));
  CHECK((faults[1].function == "ncclSend" && faults[1].kind == K::fails && faults[1].rank == -1 &&
         faults[1].call == 1));
  CHECK((faults[1].result == R::remote_error && faults[1].said == "reset" && faults[1].times == 7));
  CHECK(faults_from("").empty());
  CHECK_THROWS_WITH(faults_from("ncclSend"), ContainsSubstring("FUNCTION:KIND"));
  CHECK_THROWS_WITH(faults_from("ncclSend:dies"), ContainsSubstring("not 'dies'"));
  CHECK_THROWS_WITH(faults_from("ncclSend:fails:rank=one"), ContainsSubstring("'one'"));
  CHECK_THROWS_WITH(faults_from("ncclSend:fails:result=oops"), ContainsSubstring("'oops'"));
  CHECK_THROWS_WITH(faults_from("ncclSend:fails:lane=3"), ContainsSubstring("'lane=3'"));
}
