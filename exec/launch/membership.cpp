#include "exec/launch/membership.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>

#include "common/base/error.hpp"

namespace plumb::exec {
namespace {

int number(const Environment& environment, const std::string& name, int least, int most) {
  const std::optional<std::string> text = environment(name);
  if (!text) throw InputError(name, "is not set, although the other variables of its launcher are");
  int value = 0;
  const char* end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < least || value > most) {
    throw InputError(
        name, "is '" + *text + "', expected a number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return value;
}

// Names of a launcher's variables.
struct Variables {
  std::string rank;
  std::string size;
  std::string local_rank;
};

Membership of(const Environment& environment, const std::string& launcher, const Variables& names) {
  constexpr int most_ranks = 1 << 20;
  Membership made;
  made.launcher = launcher;
  made.size = number(environment, names.size, 1, most_ranks);
  made.rank = number(environment, names.rank, 0, made.size - 1);
  // Ranks that were started by hand on one host may leave it out.
  made.local_rank = environment(names.local_rank) ? number(environment, names.local_rank, 0, made.size - 1) : made.rank;
  made.hosts_store = made.rank == 0;
  return made;
}

// Returns a port in the range of free ones, equal on all ranks of a job: FNV-1a over the job's name.
int port_of_job(const std::string& job) {
  std::uint32_t hash = 2166136261U;
  for (const char c : job) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return 20000 + static_cast<int>(hash % 12000);
}

void find_store(const Environment& environment, Membership& made, const std::string& default_address,
                const std::string& job) {
  made.address = environment("MASTER_ADDR").value_or(default_address);
  made.port = environment("MASTER_PORT") ? number(environment, "MASTER_PORT", 1, 65535) : port_of_job(job);
}

}  // namespace

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  return value;
}

bool writes_files(const Environment& environment) {
  const std::optional<Membership> member = membership(environment);
  return !member || member->rank == 0;
}

void require_one_process(const Environment& environment, const std::string& command) {
  const std::optional<Membership> member = membership(environment);
  if (!member || member->size == 1) return;
  throw InputError(
      command,
      fmt::format("{} has started {} processes, each of which would do all of it", member->launcher, member->size),
      "start it once: it starts the ranks that it measures itself");
}

std::string first_host(std::string_view node_list) {
  const std::size_t end = node_list.find_first_of(",[");
  std::string host(node_list.substr(0, end));
  if (end == std::string_view::npos || node_list[end] == ',') return host;
  const std::string_view numbers = node_list.substr(end + 1);
  host += numbers.substr(0, numbers.find_first_of(",-]"));
  return host;
}

std::optional<Membership> membership(const Environment& environment) {
  if (environment("RANK").has_value() != environment("WORLD_SIZE").has_value()) {
    const bool rank = environment("RANK").has_value();
    throw InputError(rank ? "WORLD_SIZE" : "RANK",
                     fmt::format("is not set, although {} is", rank ? "RANK" : "WORLD_SIZE"),
                     "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each rank, or none of them");
  }
  if (environment("RANK") && environment("WORLD_SIZE")) {
    const bool own = environment("PLUMB_LAUNCHER").has_value();
    Membership made = of(environment, own ? "plumb-exec" : "torchrun", {"RANK", "WORLD_SIZE", "LOCAL_RANK"});
    if (environment("MASTER_ADDR").value_or("").empty())
      throw InputError("MASTER_ADDR", "is not set, although RANK and WORLD_SIZE are");
    made.address = *environment("MASTER_ADDR");
    made.port = number(environment, "MASTER_PORT", 1, 65535);
    if (environment("TORCHELASTIC_USE_AGENT_STORE") == "True") made.hosts_store = false;
    if (!own && environment("TORCHELASTIC_RESTART_COUNT")) {
      made.attempt = number(environment, "TORCHELASTIC_RESTART_COUNT", 0, 1 << 20);
    }
    return made;
  }
  // Before Slurm: mpirun passes on what a batch script of Slurm has.
  if (environment("OMPI_COMM_WORLD_RANK")) {
    Membership made =
        of(environment, "Open MPI", {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"});
    const std::optional<std::string> on_this_host = environment("OMPI_COMM_WORLD_LOCAL_SIZE");
    if (!on_this_host && made.size > 1 && !environment("MASTER_ADDR")) {
      throw InputError("OMPI_COMM_WORLD_LOCAL_SIZE",
                       "is not set, although OMPI_COMM_WORLD_RANK is: whether the ranks are on one host is not known",
                       "mpirun sets it; else set MASTER_ADDR to rank 0's host, or, if nothing has started ranks, unset "
                       "OMPI_COMM_WORLD_RANK");
    }
    const bool one_host = made.size == 1 || on_this_host == environment("OMPI_COMM_WORLD_SIZE");
    if (!one_host && !environment("MASTER_ADDR")) {
      throw InputError("MASTER_ADDR", "is not set, and the ranks are on several hosts",
                       "mpirun -x MASTER_ADDR=HOST_OF_RANK_0 …");
    }
    find_store(environment, made, "127.0.0.1",
               environment("PMIX_NAMESPACE").value_or(environment("OMPI_MCA_ess_base_jobid").value_or("")));
    return made;
  }
  // An interactive shell of Slurm has these with one task, a batch script has them without a step. Neither is a rank
  // yet (sbatch and srun, "Output environment variables").
  if (environment("SLURM_PROCID") && environment("SLURM_STEP_ID") && environment("SLURM_NTASKS").value_or("1") != "1") {
    Membership made = of(environment, "Slurm", {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"});
    find_store(environment, made, first_host(environment("SLURM_JOB_NODELIST").value_or("127.0.0.1")),
               environment("SLURM_JOB_ID").value_or("") + "." + *environment("SLURM_STEP_ID"));
    return made;
  }
  return std::nullopt;
}

}  // namespace plumb::exec
