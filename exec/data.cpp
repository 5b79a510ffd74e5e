#include "exec/data.hpp"

#include <algorithm>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/files.hpp"

namespace plumb::exec {
namespace {

constexpr int byte_values = 256;
const char* const licences = "/usr/share/common-licenses";

std::string licence_texts() {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(licences, error)) {
    if (entry.is_regular_file(error) && !entry.is_symlink(error)) {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  std::string text;
  for (const auto& file : files) {
    text += read_file(file);
  }
  return text;
}

}  // namespace

std::span<const unsigned char> Corpus::window(std::int64_t index, std::int64_t length) const {
  const auto places = static_cast<std::int64_t>(text_.size()) - length;
  const std::int64_t start = index % places * length % places;
  return {reinterpret_cast<const unsigned char*>(text_.data()) + start, static_cast<std::size_t>(length) + 1};
}

std::shared_ptr<const Corpus> load_corpus(const std::filesystem::path& path, const Model& model,
                                          std::int64_t sequence) {
  const std::string where = path.empty() ? licences : path.string();
  if (model.vocabulary < byte_values) {
    throw InputError("model.vocabulary",
                     "expected at least 256, since bytes are token ids, found " + std::to_string(model.vocabulary));
  }
  auto corpus = std::make_shared<const Corpus>(path.empty() ? licence_texts() : read_file(path));
  const auto needed = static_cast<std::size_t>(sequence) + 1;
  if (corpus->size() < needed) {
    throw InputError(where,
                     "expected at least " + std::to_string(needed) + " bytes, one sequence of " +
                         std::to_string(sequence) + " tokens and its last target, found " +
                         std::to_string(corpus->size()),
                     path.empty() ? "name a text with --data" : "take a longer text or a shorter sequence");
  }
  return corpus;
}

}  // namespace plumb::exec
