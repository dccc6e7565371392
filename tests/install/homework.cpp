#include <cstdio>

#include "tensor/memory.h"

int main() {
  zl::MemoryLedger ledger;
  ledger.add(zl::MemoryUse::gradient, 1024);
  std::printf("%s\n", ledger.holders().c_str());
  return ledger.live_total() == 1024 ? 0 : 1;
}
