// Which machine this process runs on.
#pragma once

#include <string>

namespace zl {

std::string host_name();  // "?" if the system does not say
// Changes at each start of the system: processes with the same id share a steady clock. "" if the
// system does not say.
std::string boot_id();
std::string machine_id();  // both, which differ between machines

}  // namespace zl
