#include "common/cost/costs_json.hpp"

#include <cmath>

#include "common/base/document/json_fields.hpp"
#include "common/base/document/json_lister.hpp"
#include "common/base/text.hpp"

namespace plumb {

static std::vector<std::string> enum_names(PipelineExchange) { return exchange_names(); }

template <class Archive>
static void fields(Archive& archive, ActionTimes& x) {
  archive("forward_s", x.forward, "F of a microbatch.");
  archive("input_gradient_s", x.input_gradient, "I of a microbatch.");
  archive("weight_gradient_s", x.weight_gradient, "W of a microbatch.");
  archive("hidden_in_backward_s", x.hidden_in_backward, "Part of I and W that B does once for both.");
}

template <class Archive>
static void fields(Archive& archive, SliceBytes& x) {
  archive("kept_bytes", x.kept, "Saved activations.");
  archive("kept_for_weight_bytes", x.kept_for_weight, "Saved activations that W still needs after I.");
  archive("forward_workspace_bytes", x.forward_workspace, "Memory of F beside what it saves.");
  archive("input_gradient_workspace_bytes", x.input_gradient_workspace, "Memory of I beside what is saved.");
  archive("weight_gradient_workspace_bytes", x.weight_gradient_workspace, "Memory of W beside what is saved.");
  archive("backward_workspace_bytes", x.backward_workspace, "Memory of B beside what is saved.");
  archive.unless_usual("gradients_taken_bytes", x.gradients_taken, {},
                       "Gradients of carried state that its backward reads.");
  archive.unless_usual("gradients_left_bytes", x.gradients_left, {},
                       "Gradients of carried state that its backward leaves.");
}

// The axes of a grid: 1 column, 2 row, 4 depth, or a sum of these.
template <class Archive>
static void fields(Archive& archive, TensorSum& x) {
  int axes = x.over.bits;
  archive("axes", axes, "Axes of the grid: 1 column, 2 row, 4 depth, or a sum of these.");
  x.over.bits = static_cast<std::uint16_t>(axes);
  archive("bytes", x.bytes, "Bytes of the gradients.");
}

template <class Archive>
static void fields(Archive& archive, DataWaits& x) {
  archive("forward_s", x.forward, "Exposed in F.");
  archive.unless_usual("recompute_s", x.recompute, x.forward, "Exposed in R; as in F if it is left out.");
  archive("input_gradient_s", x.input_gradient, "Exposed in I.");
  archive("weight_gradient_s", x.weight_gradient, "Exposed in W.");
  archive("backward_s", x.backward, "Exposed in B.");
}

template <class Archive>
static void fields(Archive& archive, QuantisedMoves& x) {
  archive("forward_bytes", x.forward, "Memory of quantised moves in F.");
  archive("input_gradient_bytes", x.input_gradient, "Memory of quantised moves in I.");
  archive("weight_gradient_bytes", x.weight_gradient, "Memory of quantised moves in W.");
}

template <class Archive>
static void fields(Archive& archive, DataMoves& x) {
  archive("gathered_bytes", x.gathered, "Whole weights that actions gather.");
  archive("reduced_bytes", x.reduced, "Whole gradients that actions reduce.");
  archive("accumulated_bytes", x.accumulated, "Shard of a rank to which its reduced gradients are added.");
  archive("replicated_bytes", x.replicated, "Gradients that copies of hsdp all-reduce once a step.");
  archive("unsharded_bytes", x.unsharded, "Weights that are gathered from UNSHARD to STEP, beside the rank's shard.");
  archive.unless_usual("second_copy_bytes", x.second_copy, {}, "Secondary shard of weights.");
  archive.unless_usual("quantised", x.quantised, {}, "Memory of quantised collectives.");
  archive("beside", x.beside, "Moves overlap with computing.");
  archive.unless_usual("prefetch", x.prefetch, 1, "Units that are gathered ahead.");
  archive("gathering_s", x.gathering, "Gathering before F.");
  archive("gathering_again_s", x.gathering_again, "Gathering before the backward.");
  archive("reducing_s", x.reducing, "Reduction after the backward.");
  archive("waits", x.waits, "Exposed part of the moves in each action.");
}

template <class Archive>
static void fields(Archive& archive, HostMoves& x) {
  archive("kept_bytes", x.kept, "States in the host's memory.");
  archive("down_bytes", x.down, "Gradients that go to the host.");
  archive("up_bytes", x.up, "Weights that come back.");
  archive("copying_down_s", x.copying_down, "Copy to the host.");
  archive("updating_s", x.updating, "Optimizer on the host.");
  archive("copying_up_s", x.copying_up, "Copy to the device.");
}

template <class Archive>
static void fields(Archive& archive, HostWaits& x) {
  archive("forward_s", x.forward, "Exposed in F.");
  archive("input_gradient_s", x.input_gradient, "Exposed in I.");
  archive("backward_s", x.backward, "Exposed in B.");
}

template <class Archive>
static void fields(Archive& archive, ActivationMoves& x) {
  archive("kept_bytes", x.kept, "Activations of a microbatch in the host's memory.");
  archive("copying_s", x.copying, "Copy of one microbatch, each way.");
  archive("beside", x.beside, "Copies overlap with computing.");
  archive("waits", x.waits, "Exposed part of the copies in each action.");
}

template <class Archive>
static void fields(Archive& archive, ParameterMoves& x) {
  archive("up_bytes", x.up, "Weights that come from the host.");
  archive("copying_s", x.copying, "Copy of the weights.");
  archive("beside", x.beside, "Copies overlap with computing.");
}

template <class Archive>
static void fields(Archive& archive, ComputeCost& x) {
  archive("forward_s", x.forward, "F of a microbatch.");
  archive("input_gradient_s", x.input_gradient, "I of a microbatch.");
  archive("weight_gradient_s", x.weight_gradient, "W of a microbatch.");
  archive("hidden_in_backward_s", x.hidden_in_backward, "Part of I and W that B does once for both.");
  archive("gradient_reduction_s", x.gradient_reduction, "Data-parallel reduction of the gradients of a step.");
  archive("optimizer_s", x.optimizer, "Optimizer step.");
  archive("parameters", x.parameters, "Parameters of a rank.");
  archive("parameter_bytes", x.parameter_bytes, "Stored weights.");
  archive("gradient_bytes", x.gradient_bytes, "Main gradients.");
  archive("optimizer_bytes", x.optimizer_bytes, "Optimizer states and master weights.");
  archive("kept_bytes", x.kept_bytes, "Saved activations of a microbatch.");
  archive("kept_for_weight_bytes", x.kept_for_weight_bytes, "Saved activations that W still needs after I.");
  archive("forward_workspace_bytes", x.forward_workspace_bytes, "Memory of F beside what it saves.");
  archive("input_gradient_workspace_bytes", x.input_gradient_workspace_bytes, "Memory of I beside what is saved.");
  archive("weight_gradient_workspace_bytes", x.weight_gradient_workspace_bytes, "Memory of W beside what is saved.");
  archive("backward_workspace_bytes", x.backward_workspace_bytes, "Memory of B beside what is saved.");
  // Keys that only stages have whose gradients tensor parallelism adds up, that hold a tied table twice, or whose
  // states are shared out, or of which something is offloaded.
  archive.unless_usual("tensor_gradient_bytes", x.tensor_gradient_bytes, {},
                       "Gradients that tensor ranks all-reduce once a step.");
  archive.unless_usual("grid_sums", x.grid_sums, {}, "Gradients that ranks of a tensor grid reduce, by axes.");
  archive.unless_usual("second_gradient_bytes", x.second_gradient_bytes, {},
                       "Gradient of the second copy of a tied embedding.");
  archive.unless_usual("gathered_bytes", x.gathered_bytes, {}, "Weights that are gathered once a step.");
  archive.unless_usual("weight_gathering_s", x.weight_gathering, {}, "Gathering of weights once a step.");
  archive.unless_usual("slices", x.slices, {}, "Times of each slice of a sequence.");
  archive.unless_usual("slice_bytes", x.slice_bytes, {}, "Bytes of each slice of a sequence.");
  archive.unless_usual("data_moves", x.data_moves, {}, "Gathers and reductions within actions.");
  archive.unless_usual("host_moves", x.host_moves, {}, "Optimizer states that are offloaded.");
  archive.unless_usual("activation_moves", x.activation_moves, {}, "Activations that are offloaded.");
  archive.unless_usual("parameter_moves", x.parameter_moves, {}, "Weights that are offloaded.");
}

template <class Archive>
static void fields(Archive& archive, TransferCost& x) {
  archive("latency_s", x.latency, "Latency of a message.");
  archive("bandwidth_bytes_per_s", x.bandwidth, "Bandwidth of a message; null is no limit.");
}

template <class Archive>
static void fields(Archive& archive, SharedLinks& x) {
  archive("ranks_per_nic", x.ranks_per_nic, "Pipeline ranks that share a NIC; 0 if none do.");
  archive("nic_bytes_per_s", x.nic, "Bandwidth of a NIC.");
  archive("ranks_per_switch", x.ranks_per_switch, "Pipeline ranks under a PCIe switch; 0 if there is none.");
  archive("uplink_bytes_per_s", x.uplink, "Bandwidth of the switch's uplink.");
  archive("ranks_per_leaf", x.ranks_per_leaf, "Pipeline ranks under a leaf switch; 0 if there is none.");
  archive("leaf_bytes_per_s", x.leaf, "Bandwidth of the leaf's uplinks.");
  archive("ranks_per_site", x.ranks_per_site, "Pipeline ranks of a site; 0 if there is one site.");
  archive("site_bytes_per_s", x.site, "Bandwidth between two sites.");
  archive("site_latency_s", x.site_latency, "Latency between two sites.");
}

template <class Archive>
static void fields(Archive& archive, BoundaryCost& x) {
  archive("before_bytes", x.before, "Hidden states of a microbatch, as a rank before the boundary holds them.");
  archive("behind_bytes", x.behind, "Hidden states of a microbatch, as a rank behind it holds them.");
  archive("way", x.way, "Link of the messages.");
}

template <class Archive>
static void fields(Archive& archive, JoinCost& x) {
  archive("bytes", x.bytes, "Payload of the collective.");
  archive("latency_s", x.latency, "Latency.");
  archive("inside_bytes", x.inside, "Bytes over links inside a machine.");
  archive("outside_bytes", x.outside, "Bytes over links between machines.");
  archive("alone_s", x.alone, "Time without contention.");
}

template <class Archive>
static void fields(Archive& archive, VocabularyCost& x) {
  archive("parts", x.parts, "Ranks that shard the vocabulary; 0 if it is whole.");
  for (const auto& [name, join] : vocabulary_joins) archive(name, x.*join);
  archive("inside_bytes_per_s", x.inside, "Bandwidth inside a machine.");
}

template <class Archive>
static void fields(Archive& archive, PipelineCosts& x) {
  archive("stages", x.stages, "Costs of each stage.");
  archive("boundary_bytes", x.boundary_bytes, "Message between two stages.");
  archive("tied_bytes", x.tied_bytes, "Gradient of a tied embedding that two ranks all-reduce; 0 if there is none.");
  archive("inside", x.inside, "Messages within a machine.");
  archive("outside", x.outside, "Messages between machines.");
  archive("across", x.across, "Messages within a machine between two PCIe switches.");
  archive("shared", x.shared, "Links that ranks share.");
  archive("ranks_per_machine", x.ranks_per_machine, "Pipeline ranks of a machine.");
  archive("cores_per_machine", x.cores_per_machine, "Cores of a CPU machine; 0 of others.");
  archive.unless_usual("cores_per_rank", x.cores_per_rank, 1,
                       "Cores that a pipeline rank's ranks compute on.");  // more: of plans that fold ranks on cores
  archive("exchange", x.exchange, "Exchange of messages.");
  archive("hidden_in_pairs_fraction", x.hidden_in_pairs,
          "Part of the shorter action of an overlapped pair that the longer one hides.");
  archive("provenance", x.provenance, "Origin of these numbers; edited ones are remarked.");
  archive("transport", x.transport, "Transport that was measured, if one was.");
  archive.unless_usual("boundaries", x.boundaries, {}, "Messages between stages with different data degrees.");
  archive.unless_usual("slice_tokens", x.slice_tokens, {}, "Tokens of each slice where slices differ.");
  archive.unless_usual("slice_gathering_s", x.slice_gathering, {}, "Gathering of each slice's message.");
  archive.unless_usual("gradient_clipping_s", x.gradient_clipping, {}, "Norm of the whole gradient.");
  archive.unless_usual("vocabulary", x.vocabulary, {}, "Collectives of a vocabulary over the pipeline.");
}

Json to_json(const ComputeCost& cost) { return write_fields(cost); }
Json to_json(const PipelineCosts& costs) { return write_fields(costs); }

namespace {

// A pebibyte: of any field, and of counts of parameters, so that a few of them add up in 63 bits.
constexpr std::int64_t most_of_field = std::int64_t{1} << 50;

void require_amounts(const JsonValue& value, std::initializer_list<const char*> keys) {
  for (const char* key : keys) (void)value.at(key).integer(0, most_of_field);
}

void require_vocabulary(const JsonValue& vocabulary) {
  for (const auto& [name, join] : vocabulary_joins) {
    const JsonValue joined = vocabulary.at(name);
    require_amounts(joined, {"bytes"});
    for (const char* sent : {"inside_bytes", "outside_bytes"}) {
      if (joined.at(sent).number() < 0) joined.at(sent).fail("expected a number from zero");
    }
  }
}

// What I and W of a layer read once in B is of both.
void require_hidden(const JsonValue& times) {
  const Seconds both = times.at("input_gradient_s").seconds() + times.at("weight_gradient_s").seconds();
  const JsonValue hidden = times.at("hidden_in_backward_s");
  if (hidden.seconds() > both) {
    hidden.fail("must be a part of input_gradient_s and weight_gradient_s, which are " + plumb::to_text(both) +
                " together");
  }
}

void require_amounts_of_cost(const JsonValue& cost) {
  require_hidden(cost);
  require_amounts(cost, {"parameters", "parameter_bytes", "gradient_bytes", "optimizer_bytes", "kept_bytes",
                         "kept_for_weight_bytes", "forward_workspace_bytes", "input_gradient_workspace_bytes",
                         "weight_gradient_workspace_bytes"});
  for (const char* key :
       {"tensor_gradient_bytes", "second_gradient_bytes", "gathered_bytes", "backward_workspace_bytes"}) {
    if (cost.find(key)) require_amounts(cost, {key});
  }
  const auto sums = cost.find("grid_sums");
  for (std::size_t i = 0; sums && i < sums->size(); ++i) {
    (void)(*sums)[i].at("axes").integer(1, 7);
    require_amounts((*sums)[i], {"bytes"});
  }
  const auto second = cost.find("second_gradient_bytes");
  if (second && second->bytes() > cost.at("gradient_bytes").bytes()) second->fail("must be a part of gradient_bytes");
  if (const auto moves = cost.find("data_moves")) {
    require_amounts(*moves,
                    {"gathered_bytes", "reduced_bytes", "accumulated_bytes", "replicated_bytes", "unsharded_bytes"});
    if (const auto copy = moves->find("second_copy_bytes")) {
      require_amounts(*moves, {"second_copy_bytes"});
      if (copy->bytes() > cost.at("parameter_bytes").bytes()) copy->fail("must be a part of parameter_bytes");
    }
    if (const auto quantised = moves->find("quantised")) {
      require_amounts(*quantised, {"forward_bytes", "input_gradient_bytes", "weight_gradient_bytes"});
    }
    const Bytes second_bytes = second ? second->bytes() : Bytes{};
    const JsonValue accumulated = moves->at("accumulated_bytes");
    if (accumulated.bytes() > cost.at("gradient_bytes").bytes() - second_bytes) {
      accumulated.fail("must be a part of gradient_bytes");
    }
  }
  if (const auto moves = cost.find("host_moves")) require_amounts(*moves, {"kept_bytes", "down_bytes", "up_bytes"});
  const auto times = cost.find("slices");
  for (std::size_t i = 0; times && i < times->size(); ++i) require_hidden((*times)[i]);
  if (const auto moves = cost.find("activation_moves")) {
    require_amounts(*moves, {"kept_bytes"});
    if (cost.at("kept_bytes").bytes() > Bytes{}) cost.at("kept_bytes").fail("expected 0: activations are on the host");
  }
  if (const auto moves = cost.find("parameter_moves")) {
    require_amounts(*moves, {"up_bytes"});
    if (cost.at("parameter_bytes").bytes() > Bytes{}) {
      cost.at("parameter_bytes").fail("expected 0: weights are on the host");
    }
  }
  const auto slices = cost.find("slice_bytes");
  for (std::size_t i = 0; slices && i < slices->size(); ++i) {
    require_amounts((*slices)[i], {"kept_bytes", "kept_for_weight_bytes", "forward_workspace_bytes",
                                   "input_gradient_workspace_bytes", "weight_gradient_workspace_bytes"});
    for (const char* key : {"backward_workspace_bytes", "gradients_taken_bytes", "gradients_left_bytes"}) {
      if ((*slices)[i].find(key)) require_amounts((*slices)[i], {key});
    }
  }
}

}  // namespace

void require_countable(const PipelineCosts& costs, int microbatches, const JsonValue& value) {
  constexpr double most = 4'611'686'018'427'387'904.0;  // 2^62
  double of_microbatch = 0;
  for (std::size_t stage = 0; stage < costs.stages.size(); ++stage) {
    const ComputeCost cost = as_largest_slice(costs.stages[stage]);
    const Bytes longest =
        costs.slice_tokens.empty() ? boundary_of_stage(costs, static_cast<int>(stage), 0) : costs.boundary_bytes;
    const auto boundary = static_cast<double>(longest.value);
    of_microbatch += 4 * boundary;  // in and out, of hidden states and of their gradients
    for (const Bytes bytes :
         {cost.kept_bytes, cost.activation_moves.kept, cost.kept_for_weight_bytes, cost.forward_workspace_bytes,
          cost.input_gradient_workspace_bytes, cost.weight_gradient_workspace_bytes, backward_workspace(cost)}) {
      of_microbatch += static_cast<double>(bytes.value);
    }
  }
  for (const BoundaryCost& boundary : costs.boundaries) {
    of_microbatch += 4 * (static_cast<double>(boundary.before.value) + static_cast<double>(boundary.behind.value));
  }
  for (const auto& [name, join] : vocabulary_joins) {
    of_microbatch += 2 * static_cast<double>((costs.vocabulary.*join).bytes.value);
  }
  if (of_microbatch * microbatches <= most) return;
  value.at("stages").fail("keep and send too much of each microbatch, of which there are " +
                          std::to_string(microbatches) + ": together more than 4 EiB");
}

ComputeCost compute_cost_from_json(const JsonValue& value) {
  ComputeCost cost = read_fields<ComputeCost>(value);
  require_amounts_of_cost(value);
  return cost;
}

PipelineCosts pipeline_costs_from_json(const JsonValue& value) {
  if (const auto each = value.find("ranks_per_machine")) static_cast<void>(each->small_integer(1));
  PipelineCosts costs = read_fields<PipelineCosts>(value);
  static_cast<void>(value.at("hidden_in_pairs_fraction").fraction());
  const JsonValue stages = value.at("stages");
  for (std::size_t i = 0; i < stages.size(); ++i) require_amounts_of_cost(stages[i]);
  require_amounts(value, {"boundary_bytes", "tied_bytes"});
  if (const auto vocabulary = value.find("vocabulary")) require_vocabulary(*vocabulary);
  const JsonValue shared = value.at("shared");
  static_cast<void>(shared.at("ranks_per_nic").small_integer(1));
  static_cast<void>(shared.at("ranks_per_switch").small_integer(0));
  static_cast<void>(shared.at("ranks_per_leaf").small_integer(0));
  static_cast<void>(shared.at("ranks_per_site").small_integer(0));
  const auto require_bandwidth = [&](int ranks, BytesPerSecond bandwidth, const char* key) {
    if (ranks == 0 || bandwidth >= slowest_bandwidth) return;
    shared.at(key).fail("expected a bandwidth from 1 to 1e18 bytes per second");
  };
  if (costs.vocabulary.parts > 0 && !(costs.vocabulary.inside >= slowest_bandwidth)) {
    value.at("vocabulary").at("inside_bytes_per_s").fail("expected a bandwidth from 1 to 1e18 bytes per second");
  }
  require_bandwidth(costs.shared.ranks_per_switch, costs.shared.uplink, "uplink_bytes_per_s");
  require_bandwidth(costs.shared.ranks_per_leaf, costs.shared.leaf, "leaf_bytes_per_s");
  require_bandwidth(costs.shared.ranks_per_site, costs.shared.site, "site_bytes_per_s");
  std::vector<std::pair<const char*, TransferCost>> links{{"inside", costs.inside}, {"outside", costs.outside}};
  if (costs.shared.ranks_per_switch > 0) links.emplace_back("across", costs.across);
  const auto require_link = [](const JsonValue& place, const TransferCost& link) {
    const bool endless = std::isinf(link.bandwidth.value);
    if (link.bandwidth < slowest_bandwidth || (link.bandwidth > fastest_bandwidth && !endless)) {
      place.at("bandwidth_bytes_per_s").fail("expected a bandwidth from 1 to 1e18 bytes per second");
    }
  };
  for (const auto& [name, link] : links) require_link(value.at(name), link);
  if (!costs.boundaries.empty() && costs.boundaries.size() + 1 != costs.stages.size()) {
    value.at("boundaries").fail("expected one boundary behind each stage but the last");
  }
  for (std::size_t i = 0; i < costs.boundaries.size(); ++i) {
    const JsonValue boundary = value.at("boundaries")[i];
    require_amounts(boundary, {"before_bytes", "behind_bytes"});
    require_link(boundary.at("way"), costs.boundaries[i].way);
  }
  return costs;
}

std::vector<JsonTable> costs_tables() { return list_fields<PipelineCosts>("costs"); }

}  // namespace plumb
