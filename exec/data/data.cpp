#include "exec/data/data.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
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

// It is held in memory, by every process.
void require_readable_at_once(const std::filesystem::path& path) {
  constexpr std::uintmax_t most = std::uintmax_t{1} << 30;
  std::error_code none;
  if (std::filesystem::exists(path, none) && !std::filesystem::is_regular_file(path, none) &&
      !std::filesystem::is_directory(path, none)) {
    throw InputError(path.string(), "is a device or a pipe, expected a file of text");
  }
  const std::uintmax_t size = std::filesystem::file_size(path, none);
  if (!none && size > most) {
    throw InputError(path.string(), "has " + std::to_string(size) + " bytes, more than the GiB that is held in memory",
                     "take a part of it: head -c 1G " + path.string() + " > part.txt");
  }
}

// Each byte becomes its rank among the bytes that the text has, as minGPT counts characters. A user's text must not
// have more of them than the vocabulary; in the licence texts, ranks beyond it begin anew.
std::string with_few_ids(std::string text, std::int64_t vocabulary, const std::filesystem::path& path) {
  std::array<std::int64_t, byte_values> ids{};
  for (const char c : text) ids.at(static_cast<unsigned char>(c)) = 1;
  std::int64_t count = 0;
  for (std::int64_t& id : ids) id = id == 0 ? 0 : count++;
  if (!path.empty() && count > vocabulary) {
    throw InputError(
        path.string(),
        "has " + std::to_string(count) + " different bytes, the model's vocabulary is " + std::to_string(vocabulary),
        "model: {vocabulary: " + std::to_string(count) + "}, or a text with fewer characters");
  }
  for (char& c : text) c = static_cast<char>(ids.at(static_cast<unsigned char>(c)) % vocabulary);
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
  if (model.vision) {
    if (path.empty()) return std::make_shared<const Corpus>("");
    throw InputError(path.string(), "the model's images are drawn from training.seed, it reads no text",
                     "leave --data out");
  }
  const std::string where = path.empty() ? licences : path.string();
  if (!path.empty()) require_readable_at_once(path);
  std::string text = path.empty() ? licence_texts() : read_file(path);
  if (model.vocabulary < byte_values) text = with_few_ids(std::move(text), model.vocabulary, path);
  const auto corpus = std::make_shared<const Corpus>(std::move(text));
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
