// mpirun as the starter of `zerolab launch`.
#pragma once

#include <string>
#include <vector>

namespace zl::cli {

// mpirun and its arguments for ranks on this machine, which may be more than its cores. mpirun
// mixes what its ranks write. So each becomes `program` after it has redirected its output, except
// rank 0's stdout, to its own of these pipes of this process. Its first line there is the number of
// its process. Throws InputError, with the cure, if MPI is not built in, or its mpirun is not
// there.
std::vector<std::string> under_mpirun(const std::vector<std::string>& program,
                                      const std::vector<int>& pipes);

}  // namespace zl::cli
