// The program's command line in the test's own process: a start of the program loads LibTorch for a quarter of a
// second.
#pragma once

#include <iostream>
#include <sstream>
#include <streambuf>
#include <string>
#include <utility>
#include <vector>

#include "exec/commands/commands.hpp"
#include "tests/exec/running_program.hpp"

namespace plumb::exec {

// What is written to a stream while it lives.
class Captured {
 public:
  explicit Captured(std::ostream& stream) : stream_(stream), before_(stream.rdbuf(text_.rdbuf())) {}
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  ~Captured() { stream_.rdbuf(before_); }

  [[nodiscard]] std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::ostream& stream_;
  std::streambuf* before_;
};

// By what the program's main calls.
inline Ended run_here(const std::vector<std::string>& words) {
  std::vector<const char*> pointers{"plumb-exec"};
  for (const std::string& word : words) pointers.push_back(word.c_str());
  const Captured out(std::cout);
  const Captured err(std::cerr);
  const int status = plumb_exec(static_cast<int>(pointers.size()), pointers.data());
  return {.status = status, .out = out.text(), .err = err.text()};
}

// Ranks that are threads are so here; those that are processes are started by the program.
inline Ended run_over(const std::string& transport, const TemporaryFolder& folder, std::vector<std::string> words) {
  words.insert(words.end(), {"--transport", transport});
  return transport == "local" ? run_here(words) : run(folder, words);
}

}  // namespace plumb::exec
