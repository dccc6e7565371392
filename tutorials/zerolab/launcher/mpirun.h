// mpirun as the starter of `zerolab launch`.
#pragma once

#include <string>
#include <vector>

namespace zl::cli {

// mpirun and its arguments for ranks on this machine, which may be more than its cores. mpirun
// mixes what its ranks write. So each rank first redirects its output, except rank 0's stdout, to
// its own of these pipes of this process, and writes its process's number as the first line. Then
// it becomes `program`. Throws InputError, with the cure, if MPI is not built in, or its mpirun is
// not there.
std::vector<std::string> under_mpirun(const std::vector<std::string>& program,
                                      const std::vector<int>& pipes);

}  // namespace zl::cli
