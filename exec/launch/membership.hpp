// Rank of this process in its run, from the environment that its launcher set.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace plumb::exec {

struct Membership {
  int rank = 0;
  int size = 1;
  int local_rank = 0;        // among the ranks of its host, whose device of that number it takes
  std::string address = {};  // where the run's store listens
  int port = 0;
  bool hosts_store = false;   // true for rank 0 if the launcher does not host it
  int attempt = 0;            // torchrun may restart ranks over the store that they had before
  std::string launcher = {};  // "plumb-exec", "torchrun", "Slurm", "Open MPI"
  bool operator==(const Membership&) const = default;
};

using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// Returns the variable of this process; none if it is not set.
[[nodiscard]] std::optional<std::string> environment_variable(const std::string& name);

// Reads torchrun's variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), which plumb-exec also gives the ranks that
// it starts; else Slurm's or Open MPI's, with defaults for MASTER_ADDR and MASTER_PORT. None if no launcher has started
// ranks. Throws InputError, naming the variable, for values that make no sense.
[[nodiscard]] std::optional<Membership> membership(const Environment& environment);

// Returns whether this process writes the run's files: rank 0 and launchers do. Others may have no such folder.
[[nodiscard]] bool writes_files(const Environment& environment);

// Throws InputError if a launcher has started several processes, each of which would do all of `command`.
void require_one_process(const Environment& environment, const std::string& command);

// Returns the first host of SLURM_JOB_NODELIST: "node03" for "node[03-07,12],other".
[[nodiscard]] std::string first_host(std::string_view node_list);

}  // namespace plumb::exec
