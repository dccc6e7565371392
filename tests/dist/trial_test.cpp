// The trials of bench comm.
#include <catch2/catch_test_macros.hpp>

#include "dist/trace/collective_trial.h"
#include "tests/dist/ranks.h"

namespace zl::test {
namespace {

// The only rank of a run. Counts the calls that ranks which are processes would compare before
// their data moves, each by a message and its answer (dist/processes/control_client.h).
class CountedComparisons final : public Communicator {
 public:
  explicit CountedComparisons(EventStream& events) : Communicator(0, 1, events) {}
  int compared = 0;
  void compare_calls_only_on_timeout() override { only_on_timeout_ = true; }

 private:
  Work count() {
    compared += !only_on_timeout_;
    return {};
  }
  Work do_all_reduce(const Tensor&, const Tensor&, const Call&) override { return count(); }
  Work do_reduce_scatter(const Tensor&, const Tensor&, const Call&) override { return count(); }
  Work do_all_gather(const Tensor&, const Call&) override { return count(); }
  Work do_broadcast(const Tensor&, const Call&) override { return count(); }
  Work do_all_to_all(const Tensor&, const Tensor&, const Call&) override { return count(); }
  Work do_barrier(const Call&) override { return {}; }
  std::vector<std::string> do_all_gather_object(const std::string& text, const Call&) override {
    return {text};
  }
  bool only_on_timeout_ = false;
};

}  // namespace

TEST_CASE("bench comm compares the calls that it checks, and none that it times", "[dist]") {
  EventStream events;
  CountedComparisons comm(events);
  Rank rank(comm);
  CollectiveTrial trial({Collective::all_reduce, 66}, comm, rank.memory);
  trial.fill();
  trial.call();
  CHECK(trial.wrong() == 0);
  CHECK(comm.compared == 1);
  for (int i = 0; i < 5; ++i) (void)trial.time();
  CHECK(comm.compared == 1);
}

}  // namespace zl::test
