// Ports for one test.
#pragma once

#include <random>

#include "dist/processes/socket.h"

namespace zl::test {

// The first of two free ports, below those that the system assigns to other programs.
inline int free_ports() {
  static std::mt19937 random{std::random_device{}()};
  for (;;)
    if (const int port = std::uniform_int_distribution(10'000, 32'000)(random);
        listen_on(port).open() && listen_on(port + 1).open())
      return port;
}

}  // namespace zl::test
