#include "exec/calibrate/calibrate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/quantile.hpp"
#include "common/block_cost/block_costs.hpp"
#include "common/capability/capability.hpp"
#include "common/layout/layout_features.hpp"
#include "exec/calibrate/block_bench.hpp"
#include "exec/calibrate/calibrate_transfer.hpp"
#include "exec/calibrate/calibration_rounds.hpp"
#include "exec/calibrate/device_rates.hpp"
#include "exec/data/data.hpp"
#include "exec/device/blas.hpp"
#include "exec/device/host_device.hpp"
#include "exec/device/torch_error.hpp"
#include "exec/host/enough_memory.hpp"
#include "exec/host/host.hpp"
#include "exec/host/memory.hpp"
#include "exec/launch/launch.hpp"
#include "exec/stage/factory.hpp"
#include "exec/stage/supported.hpp"

namespace plumb::exec {
namespace {

constexpr int most_rounds_of_a_step = 8;
constexpr int optimizer_steps = 5;  // at least
constexpr int most_tries = 3;       // of each round that is asked for

Training training_of(const Scenario& scenario) {
  Training training = scenario.training;
  if (scenario.microbatches.size() > 1) {
    throw InputError("training.microbatch",
                     "calibration measures one microbatch size, found " + std::to_string(scenario.microbatches.size()) +
                         " candidates",
                     "write one number");
  }
  if (!scenario.microbatches.empty()) {
    training.microbatch = scenario.microbatches.front();
  }
  return training;
}

// What all threads hold at once: of each block that is measured its states and the activations of two microbatches, one
// on its way back; and the workspace of one action.
Bytes memory_of_calibration(const Scenario& scenario, int threads) {
  constexpr std::int64_t microbatches = 2;
  Scenario whole = scenario;  // as it is measured: by tensor ranks alone, and no software but this
  whole.layout = {};
  whole.layout.tensor = scenario.layout.tensor;
  whole.software = {};
  whole.profile.reset();
  const std::vector<ComputeCost> costs = block_costs(whole, whole.training.microbatch);
  Bytes held;
  Bytes workspace;
  for (const int block : measured_blocks(scenario.model)) {
    const ComputeCost& cost = costs.at(static_cast<std::size_t>(block));
    held +=
        cost.parameter_bytes + cost.gradient_bytes + cost.optimizer_bytes + Bytes{microbatches * cost.kept_bytes.value};
    workspace = std::max({workspace, cost.forward_workspace_bytes, cost.input_gradient_workspace_bytes,
                          cost.weight_gradient_workspace_bytes});
  }
  const double all = static_cast<double>(threads) * static_cast<double>((held + workspace).value);
  return {static_cast<std::int64_t>(std::min(all, 0x1p62))};
}

void require_memory_for(const Scenario& scenario, const CalibrationOptions& options, const Host& host, int threads) {
  MemoryThere there = memory_of_host(host.identity);
  if (options.device != "cpu") {
    const auto facts = host.device_facts(0);
    if (!facts || facts->memory_bytes == 0) return;
    there = {.where = facts->name, .bytes = Bytes{facts->memory_bytes}};
  }
  require_memory({.where = scenario.name,
                  .what = fmt::format("to measure its blocks with {} ranks at once takes", threads),
                  .made_for = machine_text(scenario.cluster.machine),
                  .bytes = memory_of_calibration(scenario, threads),
                  .hint = "calibrate on that machine, or a smaller model or microbatch here"},
                 there);
}

void require_measured_layout(const Scenario& scenario, const CalibrationOptions& options) {
  const TensorLayout& tensor = scenario.layout.tensor;
  for (const Layout& other : scenario.layouts) {
    if (other.tensor == tensor) continue;
    throw InputError("layout", "calibration measures the shapes of one tensor layout, found several candidates",
                     "write one tensor degree");
  }
  const FeatureSet with_profile = features_of(scenario.layout) | FeatureSet().set(index_of(Feature::profile));
  require_none(refusals(with_profile, Purpose::plan));
  if (tensor.degree == 1) return;
  if (tensor.asynchronous) {
    throw InputError("layout", "asynchronous tensor parallelism is not measured: its products go in pieces",
                     "tensor: {asynchronous: false}");
  }
  const bool executed = tensor.kind == TensorKind::one_d && !scenario.training.lora && !scenario.model.vision;
  if (!executed || options.device != "cpu") {
    throw InputError("layout",
                     "the shapes of a tensor degree of " + std::to_string(tensor.degree) +
                         " are measured of the 1d layout, on the host, and neither with LoRA nor of images",
                     "tensor: {degree: 1}, or leave out what is not measured");
  }
  require_divided(scenario.model, scenario.training, tensor);
}

// What one thread measured.
struct ThreadResult {
  std::vector<CalibrationRound> rounds;
  std::vector<std::vector<Seconds>> optimizer;
  std::vector<ComputeCost> memory;
  std::vector<std::int64_t> trained;  // parameters
  std::vector<int> blocks;
};

// All threads go on until each has enough undisturbed rounds, so that the machine is equally busy throughout.
class Calibration {
 public:
  Calibration(const Scenario& scenario, const CalibrationOptions& options, const Host& host, int threads)
      : scenario_(scenario),
        options_(options),
        host_(host),
        corpus_(load_corpus({}, scenario.model, scenario.training.sequence)),
        results_(static_cast<std::size_t>(threads)) {}

  std::vector<ThreadResult> run() {
    // All measure on threads made here: LibTorch's settings are per thread, and the caller's stay as they are.
    const auto refused = [this](std::size_t index, const std::string& reason) {
      failed_ = true;
      errors_[index] = std::make_exception_ptr(
          RunError("calibration", "a thread could not be started: " + reason, "see `ulimit -u`"));
    };
    run_threads(
        results_.size(), [this](std::size_t index) { guarded(index); }, refused);
    for (const std::exception_ptr& error : errors_) {
      if (error) {
        std::rethrow_exception(error);
      }
    }
    return std::move(results_);
  }

 private:
  void guarded(std::size_t index) {
    try {
      measure(static_cast<int>(index), results_[index]);
    } catch (const Error&) {
      errors_[index] = std::current_exception();
      failed_ = true;
    } catch (const std::exception& error) {
      errors_[index] = std::make_exception_ptr(RunError("calibration", work_error(error)));
      failed_ = true;
    } catch (...) {
      errors_[index] = std::current_exception();
      failed_ = true;
    }
  }

  void measure(int thread, ThreadResult& result) {
    begin_rank_thread(thread);
    const std::unique_ptr<Device> device = options_.device == "cpu" ? make_host_device() : host_.make_device(0);
    device->enter();
    track_accelerators(device->name() != "cpu");
    BlockBench bench(scenario_, corpus_, thread, *device);
    // It trains, and one step is warm-up, as in a run: experts are chosen differently by weights that learnt nothing.
    const std::int64_t microbatches = scenario_.training.global_batch / scenario_.training.microbatch;
    const auto rounds_of_a_step = static_cast<int>(std::clamp<std::int64_t>(microbatches, 1, most_rounds_of_a_step));
    for (int round = 0; round < rounds_of_a_step && !failed_; ++round) {
      options_.stop.check();
      (void)bench.round();
    }
    (void)bench.optimizer_step();
    bool had_enough = false;
    while (enough_ < static_cast<int>(results_.size()) && !failed_) {
      options_.stop.check();
      result.rounds.push_back(bench.round());
      const auto made = static_cast<int>(result.rounds.size());
      if (made % rounds_of_a_step == 0) {
        result.optimizer.push_back(bench.optimizer_step());
      }
      const auto kept = static_cast<int>(undisturbed(result.rounds).size());
      if (thread == 0 && options_.progress) {
        options_.progress(std::min(kept, options_.rounds), options_.rounds);
      }
      if (!had_enough && (kept >= options_.rounds || made >= most_tries * options_.rounds)) {
        had_enough = true;
        ++enough_;
      }
    }
    while (static_cast<int>(result.optimizer.size()) < optimizer_steps && !failed_) {
      options_.stop.check();
      result.optimizer.push_back(bench.optimizer_step());
    }
    result.memory = bench.memory();
    result.trained = bench.trained_parameters();
    result.blocks = bench.blocks();
  }

  const Scenario& scenario_;
  const CalibrationOptions& options_;
  const Host& host_;
  std::shared_ptr<const Corpus> corpus_;
  std::vector<ThreadResult> results_;
  std::vector<std::exception_ptr> errors_ = std::vector<std::exception_ptr>(results_.size());
  std::atomic<int> enough_ = 0;
  std::atomic<bool> failed_ = false;
};

struct KindSamples {
  std::vector<Seconds> forward;
  std::vector<Seconds> input_gradient;
  std::vector<Seconds> weight_gradient;
  std::vector<Seconds> sum;
  std::vector<Seconds> optimizer;
  ComputeCost cost;
  std::int64_t trained = 0;  // parameters
};

// Samples of all threads and instances of a kind, by block key.
std::map<std::string, KindSamples> by_kind(const Model& model, const std::vector<ThreadResult>& results) {
  std::map<std::string, KindSamples> kinds;
  for (const ThreadResult& result : results) {
    const std::vector<CalibrationRound> rounds = undisturbed(result.rounds);
    for (std::size_t index = 0; index < result.blocks.size(); ++index) {
      KindSamples& kind = kinds[block_key(model, result.blocks[index])];
      for (const CalibrationRound& round : rounds) {
        const BlockSample& sample = round.samples[index];
        kind.forward.push_back(sample.forward);
        kind.input_gradient.push_back(sample.input_gradient);
        kind.weight_gradient.push_back(sample.weight_gradient);
        kind.sum.push_back(sample.forward + sample.input_gradient + sample.weight_gradient);
      }
      for (const std::vector<Seconds>& step : result.optimizer) {
        kind.optimizer.push_back(step[index]);
      }
      kind.cost = result.memory[index];
      kind.trained = result.trained[index];
    }
  }
  return kinds;
}

MeasuredBlock measured(const std::string& key, const KindSamples& kind, const Training& training) {
  MeasuredBlock block{.block = key, .cost = kind.cost};
  block.cost.forward = median(kind.forward);
  block.cost.input_gradient = median(kind.input_gradient);
  block.cost.weight_gradient = median(kind.weight_gradient);
  block.cost.optimizer = median(kind.optimizer);
  const StateBytes states = state_bytes({block.cost.parameters, kind.trained, kind.trained}, training);
  block.cost.parameter_bytes = states.parameters;
  block.cost.gradient_bytes = states.gradients;
  block.cost.optimizer_bytes = states.optimizer;
  std::vector<double> sums;
  for (const Seconds sum : kind.sum) {
    sums.push_back(sum.value);
  }
  block.spread_fraction = (quantile(sums, 0.75) - quantile(sums, 0.25)) / quantile(sums, 0.5);
  return block;
}

}  // namespace

Profile calibrate(const Scenario& scenario, const CalibrationOptions& options) {
  return calibrate(scenario, options, this_host());
}

Profile calibrate(const Scenario& given, const CalibrationOptions& options, const Host& host) {
  require_measurable(options);
  if (options.rounds < 1) {
    throw InputError("--rounds", "expected at least 1, found " + std::to_string(options.rounds));
  }
  Scenario scenario = given;
  scenario.training = training_of(given);
  require_executed(scenario.model, scenario.training);
  require_measured_layout(scenario, options);
  // Never more than the cores: what the others then cost a rank is the simulator's to say, and would count twice.
  const bool on_host = options.device == "cpu";
  const int threads = on_host ? std::clamp(scenario.cluster.ranks, 1, usable_cores()) : 1;
  if (threads > 1) require_blas_for_threads();
  const std::vector<std::unique_ptr<Device>> devices = devices_to_measure(options, host);
  require_memory_for(scenario, options, host, threads);
  const std::vector<ThreadResult> results = Calibration(scenario, options, host, threads).run();

  const Provenance provenance = provenance_of(options, host);
  Profile profile{.machine = provenance.machine,
                  .versions = provenance.versions,
                  .busy_ranks = threads,
                  .shapes = {.model = scenario.model.name,
                             .model_digest = model_digest(scenario.model),
                             .sequence = scenario.training.sequence,
                             .microbatch = scenario.training.microbatch,
                             .precision = scenario.training.precision,
                             .optimizer = scenario.training.optimizer,
                             .lora = scenario.training.lora,
                             .tensor_degree = scenario.layout.tensor.degree,
                             .sequence_parallel = divides_tokens(scenario.layout.tensor)},
                  .transfer = on_host ? measure_transfer(options.transport) : TransferCost{},
                  .transport = options.transport};
  if (!on_host) {
    RateOptions rates{.transport = options.transport, .nccl_library = host.nccl_library};
    if (!options.message_bytes.empty()) rates.sizes = options.message_bytes;
    DeviceRates measured = measure_rates(devices, rates);
    profile.transfer = measured.transfer;
    profile.rates = std::move(measured.rates);
  }
  for (const ThreadResult& result : results) {
    const auto kept = static_cast<int>(undisturbed(result.rounds).size());
    profile.samples += kept;
    profile.rejected += static_cast<int>(result.rounds.size()) - kept;
  }
  const std::map<std::string, KindSamples> kinds = by_kind(scenario.model, results);
  std::map<std::string, int> counts;
  for (int block = 0; block < static_cast<int>(scenario.model.layers.size()) + 2; ++block) {
    const std::string key = block_key(scenario.model, block);
    if (counts[key]++ == 0) {
      profile.blocks.push_back(measured(key, kinds.at(key), scenario.training));
    }
  }
  for (MeasuredBlock& block : profile.blocks) {
    block.count = counts.at(block.block);
  }
  return profile;
}

}  // namespace plumb::exec
