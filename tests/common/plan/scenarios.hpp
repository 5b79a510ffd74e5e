// Small scenarios that the tests of this folder share, written to files of their own.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/error.hpp"
#include "common/scenario/scenario.hpp"
#include "common/scenario_file/read_scenario.hpp"

namespace plumb::testing {

// A folder that goes away with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("plumb-plan-test-" + std::to_string(::getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] std::filesystem::path file(const std::string& name) const { return path_ / name; }
  [[nodiscard]] std::filesystem::path write(const std::string& name, const std::string& content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;  // unlike write_file without waiting for the disk
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

inline Scenario read_text(const std::string& text) {
  const TemporaryFolder folder;
  return read_scenario(folder.write("scenario.yaml", text));
}

// The message of the InputError without the folder, or "no error".
inline std::string message_for(const std::string& text) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.write("scenario.yaml", text);
  try {
    (void)read_scenario(path);
  } catch (const InputError& error) {
    std::string message = error.what();
    const std::string prefix = path.parent_path().string() + "/";
    for (std::size_t at = message.find(prefix); at != std::string::npos; at = message.find(prefix)) {
      message.erase(at, prefix.size());
    }
    return message;
  }
  return "no error";
}

// Eight layers, of which the last four and the head are heavier.
inline const std::string model_block = R"(model:
  name: small
  vocabulary: 512
  hidden: 64
  heads: 4
  kv_heads: 2
  ffn: 128
  window: 16
  experts: {count: 4, top_k: 2, ffn: 128, shared: 1}
  layers: "sliding/dense*4, (sliding/moe, full/moe)*2"
)";

// Of the size of scenarios/demo.yaml and scenarios/hybrid-4-ranks.yaml, with these layers.
inline std::string hybrid_block(const std::string& layers) {
  return R"(model:
  name: hybrid
  vocabulary: 8192
  hidden: 256
  heads: 4
  kv_heads: 2
  ffn: 512
  window: 64
  experts: {count: 8, top_k: 2, ffn: 512, shared: 1}
  layers: ")" +
         layers + "\"\n";
}

inline std::string scenario_text(const std::string& rest) { return model_block + rest; }

// A key of a cluster.
inline std::string memory_line(Bytes memory) { return "memory: " + std::to_string(memory.value) + " B"; }

}  // namespace plumb::testing
