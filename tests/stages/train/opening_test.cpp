// GPUs that take long to open: ranks wait for them without a deadline.
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <thread>

#include "nn/data/windows.h"
#include "stages/train/gpt_spec.h"

using namespace zl;

TEST_CASE("a GPU may take longer to open than the deadline of a call", "[stages]") {
  using namespace std::chrono_literals;
  const Windows windows(TokenData::of_text("text", std::string(200, 'a')), 8);
  GptTrainingSpec spec =
      gpt_spec({.layers = 1, .heads = 1, .width = 8, .block_size = 8, .vocab = 257}, 8);
  spec.data = &windows;
  spec.ranks = 3;
  spec.steps = 1;
  spec.rank_options.timeout = 300ms;
  const auto late_in = [&](int rank_to_wait_for) {
    spec.backends = [=](int rank) {
      if (rank == rank_to_wait_for) std::this_thread::sleep_for(900ms);
      return RankBackends{};
    };
    return run_training(spec).steps.size();
  };
  CHECK(late_in(2) == 1);

  // Twin: a rank that comes late to a call of the step ends the run.
  TrainingCallbacks late;
  late.at_start = [](Trainer& trainer) {
    if (trainer.comm().rank() == 2) std::this_thread::sleep_for(900ms);
  };
  CHECK_THROWS_AS(run_training(spec, late), CommunicationError);
}
