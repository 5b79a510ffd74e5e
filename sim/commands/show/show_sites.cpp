#include "sim/commands/show/show_sites.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "common/base/command_line.hpp"
#include "common/base/error.hpp"
#include "common/base/program.hpp"
#include "common/base/text.hpp"
#include "common/layout/sharding.hpp"
#include "common/layout/tensor_grid.hpp"

namespace plumb::sim {
namespace {

std::size_t block_of(const Model& model, const std::string& name) {
  if (name == "embedding") return 0;
  if (name == "head") return model.layers.size() + 1;
  std::size_t index = 0;
  const auto [end, problem] = std::from_chars(name.data(), name.data() + name.size(), index);
  const bool whole = problem == std::errc() && end == name.data() + name.size();
  if (whole && index < model.layers.size()) return index + 1;
  const std::string layers =
      model.layers.empty() ? "" : " or a layer from 0 to " + std::to_string(model.layers.size() - 1);
  throw InputError("--sites", "expected embedding, head" + layers + ", found '" + name + "'");
}

std::string weights_text(const BlockView& view, const PlacedSite& site) {
  std::string text;
  for (const PlacedWeight& weight : view.placed.weights) {
    for (const PlacedTensor& of_site : site.weights) {
      if (of_site.whole.name != weight.stored.whole.name) continue;
      text += (text.empty() ? "" : "; ") + fmt::format("{} ({})", describe(weight.stored.local),
                                                       describe(view.placed.mesh, weight.stored.placement));
    }
  }
  return text;
}

std::string table_of_sites(const BlockView& view) {
  Table table{
      .header = {"site", "a rank keeps of its output", "placed", "weights as stored"}, .rows = {}, .left_columns = 4};
  for (const PlacedSite& site : view.placed.sites) {
    const PlacedTensor& output = site.kept.front();
    table.rows.push_back(
        {site.name, describe(output.local), describe(view.placed.mesh, output.placement), weights_text(view, site)});
  }
  return to_text(table, colour_allowed(Stream::out));
}

std::string moves_text(const BlockView& view) {
  Table table{
      .header = {"phase", "at site", "collective", "of", "over", "ranks", "received"}, .rows = {}, .left_columns = 5};
  for (const PlacedMove& each : view.placed.moves) {
    if (!each.move.collective) continue;
    table.rows.push_back({std::string(name_of(each.phase)), each.site, std::string(name_of(*each.move.collective)),
                          each.tensor + (each.role == Role::statistics ? "" : ", " + std::string(name_of(each.role))),
                          describe(view.placed.mesh, each.move.over),
                          std::to_string(size(view.placed.mesh, each.move.over)),
                          to_text(Bytes{std::llround(received_bytes(view.placed, each, view.precision))})});
  }
  if (table.rows.empty()) {
    return state_shards(view.ranks) > 1 ? "  No collective of activations: each rank computes all of it.\n"
                                        : "  No collective: one rank holds all of it.\n";
  }
  return to_text(table, colour_allowed(Stream::out));
}

std::string sums_text(const BlockView& view) {
  std::string names;
  Axes over;
  for (const PlacedWeight& weight : view.placed.weights) {
    if (is_empty(weight.gradient_partial)) continue;
    names += (names.empty() ? "" : ", ") + weight.stored.whole.name;
    over = over | weight.gradient_partial;
  }
  if (names.empty()) return "";
  return fmt::format("  Summed over {} once a step: the gradients of {}.\n", describe(view.placed.mesh, over), names);
}

// Shards over data-parallel ranks: the table has what actions compute with.
std::string shares_text(const BlockView& view) {
  const int shards = state_shards(view.ranks);
  if (shards == 1) return "";
  return fmt::format("  Shared out over {} data-parallel ranks ({}): {}.\n", shards, name_of(view.ranks.data.sharding),
                     gathers_in_words(view.ranks));
}

Json json_of(const Shape& shape) {
  Json json = Json::array();
  for (const Extent& extent : shape) json.push_back({{"dim", name_of(extent.dim)}, {"size", extent.size}});
  return json;
}

Json json_of(const Mesh& mesh, const PlacedTensor& tensor) {
  return {{"name", tensor.whole.name},
          {"whole", json_of(tensor.whole.shape)},
          {"of_rank", json_of(tensor.local)},
          {"placement", describe(mesh, tensor.placement)}};
}

}  // namespace

BlockView view_of(const Model& model, const std::string& block, const Layout& layout, const Tokens& tokens,
                  ElementType precision) {
  const TensorLayout& tensor = layout.tensor;
  const std::size_t number = block_of(model, block);
  const bool is_layer = number > 0 && number <= model.layers.size();
  BlockView view{.title = is_layer ? fmt::format("layer {} ({})", block, kind_name(model.layers[number - 1])) : block,
                 .layout = tensor.degree == 1 ? "one rank" : "",
                 .ranks = layout,
                 .tokens = tokens,
                 .precision = precision,
                 .placed = place_block(model, number, tensor, tokens)};
  if (tensor.degree > 1) {
    view.layout =
        fmt::format("{}{} over {} ranks", name_of(tensor.kind), divides_tokens(tensor) ? ", sp" : "", tensor.degree);
  }
  return view;
}

std::string sites_text(const BlockView& view) {
  std::string text = fmt::format("{} on {}; a microbatch of {} × {} tokens in {}\n\n", view.title, view.layout,
                                 view.tokens.sequences, view.tokens.sequence, name_of(view.precision));
  text += table_of_sites(view) + "\n" + moves_text(view) + sums_text(view) + shares_text(view);
  const auto of = [&](Phase phase) {
    double sum = 0;
    for (const PlacedMove& each : view.placed.moves)
      sum += each.phase == phase ? received_bytes(view.placed, each, view.precision) : 0;
    return to_text(Bytes{std::llround(sum)});
  };
  return text + fmt::format("  {} rank receives {} in F, {} in I and {} in W of each microbatch.\n",
                            state_shards(view.ranks) > 1 ? "Beside that a" : "A", of(Phase::forward),
                            of(Phase::input_gradient), of(Phase::weight_gradient));
}

Json sites_json(const BlockView& view) {
  Json sites = Json::array();
  for (const PlacedSite& site : view.placed.sites) {
    Json outputs = Json::array();
    for (const PlacedTensor& output : site.kept) outputs.push_back(json_of(view.placed.mesh, output));
    sites.push_back({{"site", site.name}, {"ranks", site.ways}, {"outputs", outputs}});
  }
  Json weights = Json::array();
  for (const PlacedWeight& weight : view.placed.weights) {
    weights.push_back(json_of(view.placed.mesh, weight.stored));
    weights.back()["gradient_partial_over"] = describe(view.placed.mesh, weight.gradient_partial);
  }
  Json moves = Json::array();
  for (const PlacedMove& each : view.placed.moves) {
    if (!each.move.collective) continue;
    moves.push_back({{"phase", name_of(each.phase)},
                     {"site", each.site},
                     {"role", name_of(each.role)},
                     {"tensor", each.tensor},
                     {"collective", name_of(*each.move.collective)},
                     {"over", describe(view.placed.mesh, each.move.over)},
                     {"ranks", size(view.placed.mesh, each.move.over)},
                     {"received_bytes", received_bytes(view.placed, each, view.precision)}});
  }
  Json json{{"block", view.title},
            {"layout", view.layout},
            {"sequences", view.tokens.sequences},
            {"sequence", view.tokens.sequence},
            {"sites", sites},
            {"weights", weights},
            {"moves", moves}};
  if (const int shards = state_shards(view.ranks); shards > 1) {
    json["shared_out"] = {
        {"ranks", shards}, {"sharding", name_of(view.ranks.data.sharding)}, {"moves", gathers_in_words(view.ranks)}};
  }
  return json;
}

}  // namespace plumb::sim
