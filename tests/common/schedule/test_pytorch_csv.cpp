// PyTorch's CSV files: what we write reads back, and what others wrote is named by line and column where it is wrong.
#include "common/schedule/pytorch_csv.hpp"

#include <unistd.h>

#include <filesystem>

#include "common/base/error.hpp"
#include "common/base/files.hpp"
#include "common/schedule/registry.hpp"
#include "tests/catch.hpp"

using namespace plumb;

namespace {

struct CsvFile {
  explicit CsvFile(const std::string& content) { write_file(path, content); }
  ~CsvFile() { std::filesystem::remove(path); }
  CsvFile(const CsvFile&) = delete;
  CsvFile& operator=(const CsvFile&) = delete;
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("plumb_csv" + std::to_string(::getpid()) + ".csv");
};

Schedule read(const std::string& content) {
  const CsvFile file(content);
  return read_pytorch_csv(file.path);
}

}  // namespace

TEST_CASE("every schedule reads back from its CSV") {
  for (const ScheduleEntry& entry : schedule_entries()) {
    const Schedule schedule = entry.generate({.ranks = 4, .microbatches = 8, .chunks = entry.uses_chunks ? 2 : 1});
    Schedule again = read(to_pytorch_csv(schedule));
    again.name = schedule.name;
    CHECK(again == schedule);
  }
}

TEST_CASE("1F1B on two ranks is written as PyTorch writes it") {
  CHECK(to_pytorch_csv(generate_schedule("1f1b", {.ranks = 2, .microbatches = 3, .chunks = 1})) ==
        "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
}

TEST_CASE("idle cells, quotes, carriage returns and transfers are read") {
  const Schedule schedule = read("0F0,0SEND_F0,,\"0RECV_B0\", 0B0\r\n,1RECV_F0,1F0,1B0,1SEND_B0\r\n\r\n");
  CHECK(schedule.ranks == 2);
  CHECK(schedule.microbatches == 1);
  CHECK(schedule.rank_of_stage == std::vector<int>{0, 1});
  CHECK(schedule.actions[0].size() == 4);
  CHECK(schedule.actions[1].front() == Action{ActionKind::receive_forward, 1, 0});
}

TEST_CASE("what is wrong in a CSV is named by line and column") {
  CHECK_THROWS_WITH(read("0F0,0B0\n1F0, 1X0\n"), ContainsSubstring(".csv:2:6: "));
  CHECK_THROWS_WITH(read("(0F7;7B3)OVERLAP_F_B\n"), ContainsSubstring(":1:1: ") && ContainsSubstring("not built yet"));
  CHECK_THROWS_WITH(read("0F0,0BW0\n"), ContainsSubstring("letters of 2024"));
  CHECK_THROWS_WITH(read("0F0,0B0\n2F0,2B0\n"), ContainsSubstring("no rank computes stage 1 of 3"));
  CHECK_THROWS_AS(read("2000000000F2000000000\n"), InputError);
  CHECK_THROWS_AS(read(""), InputError);
  CHECK_THROWS_AS(read("\n\n"), InputError);
}
