// Within dist/rendezvous*.cpp: the messages of a rendezvous.
#pragma once

#include "dist/processes/bootstrap.h"
#include "dist/processes/wire.h"
#include "tensor/error.h"

namespace zl {

enum class Word : uint8_t {
  hello = 100,  // from a newcomer: what it says of itself
  here,  // from rank 0: you are expected, wait. This and the next two are what a newcomer is told
         // first
  other_run,  // from rank 0 of another run
  refused,    // whether it is about what the user gave, and why
  welcome     // all have come
};

// How long one who was called may take to answer its first word.
inline constexpr std::chrono::seconds kFirstWord{2};

inline void require_not_interrupted(const Rendezvous& where) {
  if (where.interrupted && where.interrupted())
    throw CommunicationError("interrupted while the ranks were coming together");
}

}  // namespace zl
