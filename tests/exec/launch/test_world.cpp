// What ranks find on their hosts, and what of that keeps a run from starting: the same words on every rank.
#include "exec/launch/world.hpp"

#include "exec/launch/launch.hpp"
#include "exec/transport/local/local.hpp"
#include "tests/catch.hpp"
#include "tests/exec/transport/transports.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

// Two hosts of two ranks, each with its device.
std::vector<WorldMember> four_ranks() {
  std::vector<WorldMember> members;
  for (int rank = 0; rank < 4; ++rank) {
    const std::string host = rank < 2 ? "a" : "b";
    members.push_back({.host = host,
                       .host_id = "id of " + host,
                       .device = "cuda:" + std::to_string(rank % 2),
                       .device_bus = "0000:" + std::to_string(rank % 2) + "b:00",
                       .library = "NCCL 2.30.4"});
  }
  return members;
}

std::string problem_of(const std::vector<WorldMember>& members) {
  const std::optional<exec::Refusal> found = world_problem(members);
  return found ? found->problem : "";
}

const exec::Refusal no_device{.where = "--device", .problem = "there is no device 0", .hint = "see nvidia-smi"};

}  // namespace

TEST_CASE("ranks with a device each and one library can start, and what a rank tells is read back") {
  const std::vector<WorldMember> members = four_ranks();
  CHECK_FALSE(world_problem(members));
  CHECK(parse_world_member(to_text(members[3])) == members[3]);
  WorldMember refused = members[1];
  refused.refusal = no_device;
  refused.shares_devices = true;
  CHECK(parse_world_member(to_text(refused)) == refused);
  CHECK_THROWS_WITH(parse_world_member("0b0f\n--steps 5\n"), ContainsSubstring("the same --transport"));
  CHECK_THROWS_AS(parse_world_member("{\"host\": 3}"), RunError);
}

TEST_CASE("ranks that cannot take part are named, those with one reason together") {
  std::vector<WorldMember> members = four_ranks();
  members[2].refusal = members[3].refusal = no_device;
  CHECK(problem_of(members) == "ranks 2, 3 (on b): there is no device 0");
  CHECK(world_problem(members)->hint == "see nvidia-smi");
  members[3].refusal->problem = "something else";
  CHECK(problem_of(members) == "rank 2 (on b): there is no device 0");
  for (WorldMember& member : members) member.refusal = no_device;
  CHECK(problem_of(members) == "there is no device 0");
  members[0].refusal.reset();
  CHECK(problem_of(members) == "ranks 1-3 (on a): there is no device 0");
}

TEST_CASE(
    "libraries of two versions are refused, and so is a device that two ranks have, unless the library bears it") {
  std::vector<WorldMember> members = four_ranks();
  members[3].library = "NCCL 2.27.7";
  CHECK(problem_of(members) == "rank 3 (on b) has NCCL 2.27.7, rank 0 (on a) NCCL 2.30.4: they cannot talk");
  members = four_ranks();
  members[3].device_bus = members[2].device_bus;
  CHECK(problem_of(members) == "ranks 2, 3 have one device, 0000:0b:00 on b: 'nccl' gives each rank its own");
  // The same place on two hosts is two devices, even where the hosts have one name.
  members = four_ranks();
  for (WorldMember& member : members) member.host = "localhost";
  CHECK(problem_of(members).empty());
  // Not refused: what the library bears, and what is not known, which NCCL says itself.
  members = {members[0], members[0]};
  CHECK_THAT(problem_of(members), ContainsSubstring("ranks 0, 1 have one device"));
  for (WorldMember& member : members) member.shares_devices = true;
  CHECK(problem_of(members).empty());
  for (WorldMember& member : members)
    member = {.host = "a", .host_id = "id", .device = "cuda:0", .library = "NCCL 2.30.4"};
  CHECK(problem_of(members).empty());
}

TEST_CASE("a rank takes the device of its number, its only one, or is told how many there are") {
  const auto device = [](int local_rank, int visible, bool shares = false) {
    return device_of_rank({.rank = 8 + local_rank, .size = 16, .local_rank = local_rank}, visible, shares);
  };
  CHECK(device(0, 4) == 0);
  CHECK(device(3, 4) == 3);
  CHECK(device(3, 1) == 0);  // srun --gpus-per-task 1 shows each rank its own
  CHECK(device(5, 4, true) == 1);
  CHECK(device(5, 0) == 0);
  CHECK_THROWS_WITH(device(4, 4), ContainsSubstring("is number 5 of the ranks of its host, which has 4 devices") &&
                                      ContainsSubstring("at most 4 ranks on a host") &&
                                      ContainsSubstring("LOCAL_RANK"));
}

TEST_CASE("every rank throws what rank 0 has found, and none of them hangs") {
  std::vector<std::string> errors(3);
  const auto run = [&](const std::vector<WorldMember>& members) {
    Board board;
    errors.assign(3, "");
    run_on_threads(make_local_transports(3), [&](Transport& control) {
      const auto rank = static_cast<std::size_t>(control.rank());
      try {
        require_world(members[rank], control, board.rendezvous(), in_seconds(600));
      } catch (const InputError& error) {
        errors[rank] = error.what();
      }
    });
  };
  std::vector<WorldMember> members(3, four_ranks()[2]);
  for (std::size_t rank = 0; rank < 3; ++rank) members[rank].device_bus = std::to_string(rank);
  run(members);
  CHECK(errors == std::vector<std::string>(3));
  members[2].refusal = no_device;
  run(members);
  CHECK(errors == std::vector<std::string>(
                      3, InputError("--device", "rank 2 (on b): there is no device 0", "see nvidia-smi").what()));
}

TEST_CASE("a rank whose connection to rank 0 is lost looks for its word once more") {
  const std::string said = R"({"where": "--device", "problem": "there is no device 0", "hint": ""})";
  int looked = 0;
  // Only after the loss.
  const Rendezvous late{.put = [](const std::string&, const std::string&) {},
                        .find = [&](const std::string&) { return ++looked == 1 ? std::nullopt : std::optional(said); }};
  const auto transports = make_local_transports(1);
  transports[0]->abort("lost rank 0");
  CHECK_THROWS_AS(require_world({.host = "a"}, *transports[0], late, in_seconds(600)), RunError);
  CHECK_THROWS_AS(require_world({.host = "a"}, *transports[0], late, in_seconds(600)), InputError);
}

TEST_CASE("a rank that waits for rank 0's word ends when the run is stopped, or in time") {
  const Rendezvous silent{.put = [](const std::string&, const std::string&) {},
                          .find = [](const std::string&) { return std::optional<std::string>(); }};
  CHECK_THROWS_WITH(run_on_threads(make_local_transports(2),
                                   [&](Transport& control) {
                                     if (control.rank() == 0) {
                                       (void)control.gather("", in_seconds(600));
                                       throw RunError("rank 0", "has had enough");
                                     }
                                     require_world({}, control, silent, in_seconds(600));
                                   }),
                    ContainsSubstring("has had enough"));
  CHECK_THROWS_WITH(run_on_threads(make_local_transports(2),
                                   [&](Transport& control) { require_world({}, control, silent, in_seconds(0.2)); }),
                    ContainsSubstring("rank 0 did not decide in time"));
}
