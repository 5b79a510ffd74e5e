// Text to train on: bytes are token ids, or of a vocabulary below 256 their ranks among the text's bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "common/scenario/scenario.hpp"

namespace plumb::exec {

// The whole text, read up front: a file that changes during a run changes nothing.
class Corpus {
 public:
  explicit Corpus(std::string text) : text_(std::move(text)) {}

  // The `length` + 1 bytes from which sequence `index` of a run takes its inputs and, one later, its targets.
  // Consecutive sequences are consecutive in the text, which is a ring.
  [[nodiscard]] std::span<const unsigned char> window(std::int64_t index, std::int64_t length) const;
  [[nodiscard]] std::size_t size() const { return text_.size(); }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

// Reads `path`, or, if empty, the licence texts that every Debian has, in the order of their names. Throws InputError
// when the text is shorter than one sequence and its last target, or has more different bytes than the vocabulary ids.
// A model of images reads no text (exec/data/images.hpp): its corpus is empty, and a path is refused.
[[nodiscard]] std::shared_ptr<const Corpus> load_corpus(const std::filesystem::path& path, const Model& model,
                                                        std::int64_t sequence);

}  // namespace plumb::exec
