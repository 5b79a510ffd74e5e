// Which rank of a run this process is, from the environment of whoever started it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace plumb::exec {

struct Membership {
  int rank = 0;
  int size = 1;
  int local_rank = 0;        // among the ranks of its host: which of its devices is this one's
  std::string address = {};  // where the run's store listens
  int port = 0;
  bool hosts_store = false;   // rank 0 hosts it where the launcher does not
  int attempt = 0;            // torchrun may restart ranks over the store that they had before
  std::string launcher = {};  // "plumb-exec", "torchrun", "Slurm", "Open MPI"
  bool operator==(const Membership&) const = default;
};

using Environment = std::function<std::optional<std::string>(const std::string& name)>;

// The process's own.
[[nodiscard]] std::optional<std::string> environment_variable(const std::string& name);

// torchrun's variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), which plumb-exec also gives the ranks it starts;
// else Slurm's, else Open MPI's, where MASTER_ADDR and MASTER_PORT have a default. None: nobody has started ranks.
// Throws InputError, naming the variable, for values that make no sense.
[[nodiscard]] std::optional<Membership> membership(const Environment& environment);

// Whether this process writes the run's files: rank 0, or whoever starts ranks. Others may have no such folder.
[[nodiscard]] bool writes_files(const Environment& environment);

// Throws InputError where a launcher has started several processes: each would do all of `command` by itself.
void require_one_process(const Environment& environment, const std::string& command);

// "node[03-07,12],other" is "node03": the first host of SLURM_JOB_NODELIST.
[[nodiscard]] std::string first_host(std::string_view node_list);

}  // namespace plumb::exec
