// How the one rank of this process stands in contact with those of other processes.
//
// The ranks' meeting takes place in the process of rank 0 (dist/meeting_host.h). Every other rank has one connection to it
// (dist/remote_line.h), over which it agrees with the others, tells what goes wrong, and gives a sign of life. So whoever dies or
// stops is noticed by rank 0, and if that is rank 0, by all.
#pragma once

#include <memory>
#include <string>

#include "dist/agreement.h"

namespace zl {

// Why a run ended, for all its ranks.
struct LineFailure {
  std::string why;     // "" if there is none
  std::string detail;  // of an error that every rank throws as its own (dist/process_ranks.cpp); mostly ""
};

class RankLine {
 public:
  virtual ~RankLine() = default;

  // For the rank's thread; the line must outlive it.
  virtual std::unique_ptr<Agreement> agreement() = 0;

  // From the rank's thread, when it ends: with an error of its own, or well.
  virtual void stopped(const LineFailure& failure) = 0;
  virtual void ended() = 0;

  // From another thread, every few milliseconds: deadlines and signs of life. Returns whether all ranks are done with the line.
  virtual bool watch() = 0;

  virtual LineFailure failure() const = 0;
  // How things stood at the failure, for people: rank 0 shows the last calls of all ranks, the others theirs if it cannot.
  virtual std::string report() const = 0;
};

// The kinds of messages on a line.
enum class LineMessage : uint8_t {
  // From a rank, which waits for an answer.
  agree, exchange, post, await, met, withdraw,
  // From a rank, which goes on.
  tell, fail, stopped, flight, ended,
  // From rank 0.
  answer, failure, send_flight, stands, over,
  // From rank 0: a sign of life. That of the others is their flight.
  alive
};

}  // namespace zl
