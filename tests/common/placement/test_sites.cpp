// Sites are the operations, and their weights the parameters, of every model of tests/data/models and of the kinds that
// none of these has: by name and by size.
#include <algorithm>
#include <map>
#include <set>

#include "common/base/error.hpp"
#include "common/model/operations.hpp"
#include "common/model/parameters.hpp"
#include "common/placement/placed_block.hpp"
#include "tests/catch.hpp"
#include "tests/common/placement/all_models.hpp"

using namespace plumb;
using namespace plumb::testing;

namespace {

constexpr Tokens four_sequences{.sequences = 4, .sequence = 64};

std::vector<Operation> operations_of(const Model& model, std::size_t block) {
  const OperationContext context{.sequence = 64};
  if (block == 0) return embedding_operations(model, context);
  if (block <= model.layers.size()) return layer_operations(model, block - 1, context);
  std::vector<Operation> all = head_operations(model, context);
  for (Operation& operation : mtp_operations(model, context)) all.push_back(std::move(operation));
  return all;
}

std::vector<Parameter> parameters_of(const Model& model, std::size_t block) {
  if (block == 0) return embedding_parameters(model);
  if (block <= model.layers.size()) return layer_parameters(model, block - 1);
  std::vector<Parameter> all = final_norm_parameters(model);
  for (Parameter& parameter : head_parameters(model)) all.push_back(std::move(parameter));
  for (Parameter& parameter : mtp_parameters(model)) all.push_back(std::move(parameter));
  return all;
}

std::string without_layer(const std::string& name) {
  return name.starts_with("layers.") ? name.substr(name.find('.', 7) + 1) : name;
}

// Shared: a tied head's table, and the head of multi-token prediction.
bool is_borrowed(const Model& model, const std::string& name) {
  return name.ends_with("head.weight") && (name.starts_with("mtp.") || model.tied_embeddings);
}

}  // namespace

TEST_CASE("every operation has a site of its name and kind", "[placement]") {
  for (const Model& model : models()) {
    for (std::size_t block = 0; block < model.layers.size() + 2; ++block) {
      if (is_repeated(model, block)) continue;
      std::map<std::string, OperationKind> sites;
      for (const Site& site : block_sites(model, block, four_sequences)) {
        INFO(model.name << " " << block << " " << site.name);
        CHECK(sites.emplace(site.name, site.kind).second);
      }
      for (const Operation& operation : operations_of(model, block)) {
        INFO(model.name << ", block " << block << ": " << operation.name);
        REQUIRE(sites.contains(operation.name));
        CHECK(sites.at(operation.name) == operation.kind);
      }
    }
  }
}

TEST_CASE("the weights of a block's sites are its parameters, and as large", "[placement]") {
  for (const Model& model : models()) {
    for (std::size_t block = 0; block < model.layers.size() + 2; ++block) {
      if (is_repeated(model, block)) continue;
      std::map<std::string, std::int64_t> weights;
      for (const Site& site : block_sites(model, block, four_sequences)) {
        for (const NamedShape& weight : site.weights) {
          if (!is_borrowed(model, weight.name)) weights[weight.name] = elements(weight.shape);
        }
      }
      std::map<std::string, std::int64_t> parameters;
      for (const Parameter& parameter : parameters_of(model, block)) {
        parameters[without_layer(parameter.name)] = elements(parameter);
      }
      INFO(model.name << ", block " << block);
      CHECK(weights == parameters);
    }
  }
}

TEST_CASE("a placed operation reads values made before it or block inputs", "[placement]") {
  const std::set<std::string> from_outside = {"input", "tokens", "next_embedding"};
  for (const Model& model : models()) {
    for (std::size_t block = 0; block < model.layers.size() + 2; ++block) {
      if (is_repeated(model, block)) continue;
      std::set<std::string> made;
      std::set<std::string> read;
      const std::vector<Site> sites = block_sites(model, block, four_sequences);
      for (const Site& site : sites) {
        for (const SiteInput& input : site.inputs) {
          INFO(model.name << ", block " << block << ", " << site.name << " reads " << input.value.name);
          CHECK((made.contains(input.value.name) || from_outside.contains(input.value.name)));
          read.insert(input.value.name);
        }
        for (const NamedShape& output : site.outputs) made.insert(output.name);
      }
      for (const Site& site : sites) {
        const std::string& output = site.outputs.front().name;
        const bool leaves = &site == &sites.back() || output.ends_with("loss");
        CHECK((leaves || read.contains(output)));
      }
    }
  }
}

TEST_CASE("every layout places every model whose shapes it divides, without a move that it has not declared",
          "[placement]") {
  for (const TensorLayout& tensor : tensor_layouts()) {
    Layout layout;
    layout.tensor = tensor;
    const Mesh mesh = mesh_of(layout);
    for (const Model& model : models_divided_by(tensor)) {
      for (std::size_t block = 0; block < model.layers.size() + 2; ++block) {
        if (model.vision && block > model.layers.size()) continue;  // 1000 classes
        if (is_repeated(model, block)) continue;
        const std::vector<Site> sites = block_sites(model, block, four_sequences);
        INFO(model.name << ", block " << block);
        if (has_place(tensor, model, block)) {
          CHECK_NOTHROW(place_block(mesh, layout_table(mesh, tensor, sites), sites));
        } else {
          CHECK_THROWS_AS(place_block(mesh, layout_table(mesh, tensor, sites), sites), InputError);
        }
      }
    }
  }
}
