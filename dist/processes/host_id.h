// Which machine this process runs on.
#pragma once

#include <string>

namespace zl {

std::string host_name();  // "?" if the system does not say
// Another after each start of the system: who shares it shares a steady clock. "" if the system
// does not say.
std::string boot_id();

}  // namespace zl
