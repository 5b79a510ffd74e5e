#include "exec/launch/membership.hpp"

#include <map>

#include "common/base/error.hpp"
#include "tests/catch.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

std::optional<Membership> of(const std::map<std::string, std::string>& variables) {
  return membership([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

bool writes(const std::map<std::string, std::string>& variables) {
  return writes_files([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

}  // namespace

TEST_CASE("rank 0 writes the run's files, or whoever has no rank yet") {
  CHECK(writes({}));
  const auto of_rank = [](const std::string& rank) {
    return writes({{"RANK", rank}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}});
  };
  CHECK(of_rank("0"));
  CHECK_FALSE(of_rank("1"));
}

TEST_CASE("nobody has started ranks in an ordinary shell, nor in an interactive Slurm shell") {
  CHECK_FALSE(of({{"HOME", "/root"}, {"MASTER_PORT", "1"}}));
  CHECK_FALSE(of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}));
  CHECK_THROWS_WITH(of({{"RANK", "0"}}), ContainsSubstring("WORLD_SIZE: is not set, although RANK is"));
  CHECK_THROWS_WITH(of({{"WORLD_SIZE", "2"}}), ContainsSubstring("RANK: is not set, although WORLD_SIZE is"));
}

TEST_CASE("torchrun's variables: its agent hosts the store, or else rank 0") {
  std::map<std::string, std::string> variables{
      {"RANK", "0"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
  CHECK(
      of(variables) ==
      Membership{.rank = 0, .size = 4, .address = "node1", .port = 29500, .hosts_store = true, .launcher = "torchrun"});
  variables["RANK"] = "3";
  CHECK(of(variables)->hosts_store == false);
  CHECK(of(variables)->local_rank == 3);  // started by hand, on one host
  variables["LOCAL_RANK"] = "1";
  CHECK(of(variables)->local_rank == 1);
  variables["RANK"] = "0";
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  CHECK(of(variables)->hosts_store == false);
  CHECK(of(variables)->attempt == 0);
  variables["TORCHELASTIC_RESTART_COUNT"] = "2";
  CHECK(of(variables)->attempt == 2);
  variables["PLUMB_LAUNCHER"] = "1234";  // it starts ranks once, whoever has started it
  CHECK(of(variables)->attempt == 0);
  CHECK(of(variables)->launcher == "plumb-exec");
}

TEST_CASE("Slurm's variables: the first host of the job, the same port on all ranks") {
  const std::map<std::string, std::string> job{
      {"SLURM_NTASKS", "16"}, {"SLURM_JOB_ID", "812"}, {"SLURM_STEP_ID", "0"}, {"SLURM_JOB_NODELIST", "gpu[07-08]"}};
  auto zero = job;
  zero["SLURM_PROCID"] = "0";
  auto nine = job;
  nine["SLURM_PROCID"] = "9";
  nine["SLURM_LOCALID"] = "1";
  CHECK(of(zero)->rank == 0);
  CHECK(of(zero)->hosts_store);
  CHECK(of(nine)->rank == 9);
  CHECK_FALSE(of(nine)->hosts_store);
  CHECK(of(nine)->local_rank == 1);
  CHECK(of(nine)->address == "gpu07");
  CHECK(of(nine)->port == of(zero)->port);
  CHECK(of(nine)->port >= 1024);
  nine["MASTER_ADDR"] = "other";
  nine["MASTER_PORT"] = "777";
  CHECK(of(nine)->address == "other");
  CHECK(of(nine)->port == 777);
}

TEST_CASE("Open MPI's variables: one host needs no address, several do") {
  std::map<std::string, std::string> variables{{"OMPI_COMM_WORLD_RANK", "1"},
                                               {"OMPI_COMM_WORLD_SIZE", "2"},
                                               {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                               {"PMIX_NAMESPACE", "job-1"}};
  CHECK(of(variables)->address == "127.0.0.1");
  CHECK(of(variables)->launcher == "Open MPI");
  CHECK(of(variables)->local_rank == 0);
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  CHECK_THROWS_WITH(of(variables), ContainsSubstring("MASTER_ADDR"));
  variables["MASTER_ADDR"] = "node1";
  CHECK(of(variables)->address == "node1");
}

TEST_CASE("Open MPI's variables without the number of ranks on this host: that one is named") {
  std::map<std::string, std::string> variables{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  CHECK_THROWS_WITH(of(variables),
                    ContainsSubstring("OMPI_COMM_WORLD_LOCAL_SIZE: is not set") && !ContainsSubstring("several hosts"));
  variables["MASTER_ADDR"] = "node1";
  CHECK(of(variables)->address == "node1");
  variables.erase("MASTER_ADDR");
  variables["OMPI_COMM_WORLD_SIZE"] = "1";
  CHECK(of(variables)->address == "127.0.0.1");  // a lone rank is on one host
}

TEST_CASE("a batch script of Slurm is no rank, and mpirun in it starts ranks of Open MPI") {
  std::map<std::string, std::string> script{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_JOB_ID", "7"}};
  CHECK_FALSE(of(script).has_value());
  script["OMPI_COMM_WORLD_RANK"] = "3";
  script["OMPI_COMM_WORLD_SIZE"] = "4";
  script["OMPI_COMM_WORLD_LOCAL_SIZE"] = "4";
  CHECK(of(script)->launcher == "Open MPI");
  CHECK(of(script)->rank == 3);
}

TEST_CASE("torchrun under Slurm or Open MPI: its variables name the ranks, the outer ones only its agents") {
  const std::map<std::string, std::string> outer{
      {"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"},
      {"RANK", "5"},         {"WORLD_SIZE", "8"},   {"MASTER_ADDR", "node1"},      {"MASTER_PORT", "29500"}};
  CHECK(of(outer)->launcher == "torchrun");
  CHECK(of(outer)->rank == 5);
  CHECK(of(outer)->size == 8);
}

TEST_CASE("values that make no sense are refused by the variable's name") {
  const auto refused = [](const std::string& rank, const std::string& size, const std::string& port) {
    return [=] { (void)of({{"RANK", rank}, {"WORLD_SIZE", size}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", port}}); };
  };
  CHECK_THROWS_WITH(refused("4", "4", "1")(), ContainsSubstring("RANK: is '4', expected a number from 0 to 3"));
  CHECK_THROWS_WITH(of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "2"}, {"MASTER_ADDR", "a"}}),
                    ContainsSubstring("LOCAL_RANK: is '2', expected a number from 0 to 1"));
  CHECK_THROWS_WITH(refused("-1", "4", "1")(), ContainsSubstring("RANK"));
  CHECK_THROWS_WITH(refused("0", "four", "1")(), ContainsSubstring("WORLD_SIZE: is 'four'"));
  CHECK_THROWS_WITH(refused("0", "99999999999", "1")(), ContainsSubstring("WORLD_SIZE"));
  CHECK_THROWS_WITH(refused("0", "4", "65536")(), ContainsSubstring("MASTER_PORT"));
  CHECK_THROWS_WITH(refused("0", "4", "80x")(), ContainsSubstring("MASTER_PORT"));
  CHECK_THROWS_WITH(of({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), ContainsSubstring("MASTER_ADDR"));
}

TEST_CASE("the first host of Slurm's node lists") {
  CHECK(first_host("node1") == "node1");
  CHECK(first_host("node1,node2") == "node1");
  CHECK(first_host("node[03-07,12],other") == "node03");
  CHECK(first_host("node[5,9]") == "node5");
  CHECK(first_host("rack2-node[008]") == "rack2-node008");
}
