// Weights to begin with from files: a Hugging Face checkpoint, or what `--export` has written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/model/files/checkpoint_names.hpp"
#include "common/model/model.hpp"
#include "common/placement/placement.hpp"
#include "exec/data/safetensors_file.hpp"

namespace plumb::exec {

// In a checkpoint's folder, as transformers names them: all weights, or which file has which; the first goes before.
inline constexpr const char* weights_file = "model.safetensors";
inline constexpr const char* weights_index_file = "model.safetensors.index.json";

// The plan's model with the config.json that lies beside the weights, which must describe the same: then that counts as
// the one that the model was read from. Without such a file the model as it is. `path` as PretrainedWeights takes it.
// Throws InputError that names what differs, and where the config.json of either asks for something that is not
// computed (common/model/files/config_json.hpp, require_computed).
[[nodiscard]] Model model_in_checkpoint(const Model& model, const std::filesystem::path& path);

// Open files whose tensors are all of a model's parameters. Only headers are in memory. Calls of `read` may come from
// several threads.
class PretrainedWeights {
 public:
  // `path`: a folder with model.safetensors, or else model.safetensors.index.json, or one such file. Tensors have their
  // names in checkpoints of the model's family (common/model/files/checkpoint_names.hpp), with or without the prefix of
  // a model with a head, or plumb's own. Throws InputError, naming the tensor: one that is missing, has another shape,
  // is of a type other than F32, BF16 and F16, or is not the model's and not among those that transformers passes over.
  PretrainedWeights(const std::filesystem::path& path, const Model& model);

  // Elements of a parameter as fp32, those of one range behind those of the one before, into `values`, which has room
  // for exactly these. Throws InputError where a file has become shorter since, and for a value that is not finite.
  void read(const Parameter& parameter, std::span<const IndexRange> ranges, std::span<float> values) const;

  [[nodiscard]] std::vector<std::string> files() const;                // all that are read, by model_in_checkpoint, too
  [[nodiscard]] const std::string& digest() const { return digest_; }  // of names, types, shapes and sizes, not values

 private:
  struct Place {
    const SafetensorsFile* file;
    const StoredTensor* tensor;
  };

  void open(const std::filesystem::path& path);
  void open_index(const std::filesystem::path& path);
  void add(const std::filesystem::path& path);
  [[nodiscard]] std::vector<TensorPiece> pieces(const Parameter& parameter) const;
  void require_all_there(const std::vector<Parameter>& parameters) const;
  void require_no_others(const std::vector<Parameter>& parameters) const;
  [[nodiscard]] std::string name_here(const std::string& tensor) const;

  Model model_;
  std::string path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<std::string> beside_;  // read, without tensors: an index, a config.json
  std::map<std::string, Place> tensors_;
  bool own_names_ = false;
  std::string left_out_prefix_;  // of all names, which the files do not have
  std::string digest_;
};

}  // namespace plumb::exec
