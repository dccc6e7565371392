// --step: holds all ranks at each named event until a key is pressed, and shows what they have.
//
// It is a listener of the ranks' event streams, and blocks there; the library knows nothing of it.
// Where there is no keyboard it prints a line per event and holds nobody.
#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <vector>

#include "dist/communicator.h"
#include "stages/stage.h"
#include "tutorials/lesson/picture.h"

namespace zl::lesson {

// The learner pressed q.
class Left : public std::exception {
 public:
  const char* what() const noexcept override { return "left with q"; }
};

class Stepper {
 public:
  explicit Stepper(std::string lesson);

  void begin(int ranks);  // before the ranks start; those of an earlier run have ended
  void watch(Communicator& comm, Memory& memory, const Stage* stage,
             const std::vector<Unit>* units);
  void unwatch(int rank) { watched_[size_t(rank)].memory = nullptr; }
  void left(int rank);  // its body has ended: nobody waits for it any more
  void other_output();  // something else was printed: the next picture comes below it

 private:
  struct Watched {
    Communicator* comm = nullptr;
    Memory* memory = nullptr;
    const Stage* stage = nullptr;
    const std::vector<Unit>* units = nullptr;
    bool listens = false, inside = true;
  };
  void hear(int rank, const Event& event);
  RankMoment look(const Watched& watched, const Event& event) const;
  void arrive(int rank, RankMoment moment);
  void meet();  // all that are inside have arrived; under the lock
  void ask(const Moment& moment);
  void draw(const std::vector<std::string>& lines);

  std::string lesson_;
  bool keyboard_;
  std::vector<Watched> watched_;  // by rank
  std::mutex mutex_;              // of all below
  std::condition_variable released_;
  std::vector<RankMoment> moments_;  // by rank
  std::vector<bool> arrived_;
  int64_t event_ = 0;
  int inside_ = 0, waiting_ = 0;
  bool leaving_ = false;
  bool skips_ = false;  // u: on to the next unit
  std::string skipped_unit_;
  Panel panel_ = Panel::none;
  size_t drawn_ = 0;  // lines of the last picture, which the next one writes over
};

}  // namespace zl::lesson
