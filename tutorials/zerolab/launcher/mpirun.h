// mpirun as the starter of `zerolab launch`, and where its ranks write.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace zl::cli {

// mpirun and its flags for ranks on this machine, which may be more than its cores. Throws
// InputError, with the cure, if MPI is not built in, or its mpirun is not there.
std::vector<std::string> mpirun_command(int ranks);

// mpirun mixes what its ranks write. So each writes into a pipe with a name in a new folder, except
// rank 0's stdout. The folder goes away with this object.
class RankPipes {
 public:
  explicit RankPipes(int ranks);  // throws InputError
  ~RankPipes();
  RankPipes(const RankPipes&) = delete;

  // A command that becomes `program` after it has redirected its output. For mpirun.
  std::vector<std::string> redirected(const std::vector<std::string>& program) const;
  pid_t process(int rank) const;                                    // 0: it has not begun
  const std::vector<int>& read_ends() const { return read_ends_; }  // by rank; the caller closes

 private:
  std::string folder_;
  std::vector<int> read_ends_;
};

}  // namespace zl::cli
