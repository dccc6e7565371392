// Ports for one test.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include "dist/socket.h"

namespace zl::test {

// The first of some that nobody listens on; the system gives each caller another.
inline int free_ports() {
  for (;;) {
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in any{};
    any.sin_family = AF_INET;
    socklen_t size = sizeof any;
    if (::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&any), size) != 0) continue;
    (void)::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&any), &size);
    if (const int port = ntohs(any.sin_port); port < 65'000) return port;
  }
}

}  // namespace zl::test
