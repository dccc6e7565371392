// compare --baseline: a stored compare.json that the results of this run must equal.
#pragma once

#include <string>

namespace zl::cli {

class Baseline {
 public:
  // Throws InputError if `path` is not a document of compare in schema 1.
  explicit Baseline(std::string path);

  // Throws InputError, naming the first one, if a setting of the two runs differs. `settings` is
  // the document of this run without results. Settings that only one of them has are not compared.
  void require_same_settings(const std::string& settings) const;
  // The first result in `document` that differs, in one sentence; "" if none does. Results are
  // losses, gradient norms, hashes of weights, memory and traffic; times are not compared.
  std::string first_difference(const std::string& document) const;

  const std::string& path() const { return path_; }

 private:
  std::string path_, text_;
};

}  // namespace zl::cli
