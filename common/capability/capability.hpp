// Table of capabilities: which features and pairs of features are planned, executed, and run by other frameworks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.hpp"
#include "common/capability/feature.hpp"

namespace plumb {

// One column of the table. What is not planned is not executed either; what is not executed on hosts is not executed on
// devices; ranks that share one device run what devices do, less the rules of that column.
enum class Purpose : std::uint8_t { plan, hosts, devices, shared_device, megatron, torchtitan };
inline constexpr std::array all_purposes = {Purpose::plan,          Purpose::hosts,    Purpose::devices,
                                            Purpose::shared_device, Purpose::megatron, Purpose::torchtitan};
[[nodiscard]] std::string_view column_of(Purpose purpose);  // "planned", "hosts"

enum class Level : std::uint8_t {
  yes,
  not_yet,   // "cannot be planned yet with", "is not executed yet"
  never,     // "cannot be combined with"
  exclusive  // two values of one choice, which no scenario has together
};

struct Capability {
  Level level = Level::yes;
  std::string_view reason = {};  // in a few words; empty where the names say it
  std::string_view hint = {};    // an alternative that works
  std::string_view source = {};  // file of a framework that says so
};

// Rules of the table: none of `first`, alone or with any of `second`, has the columns from `purpose` on.
struct CapabilityRule {
  Purpose purpose = Purpose::plan;
  std::vector<Feature> first = {};
  std::vector<Feature> second = {};  // empty: `first` alone
  Level level = Level::not_yet;
  std::string_view reason = {};
  std::string_view hint = {};
  std::string_view source = {};
};
[[nodiscard]] const std::vector<CapabilityRule>& capability_rules();

[[nodiscard]] Capability capability(Feature feature, Purpose purpose);
// Answers for two features together, in either order.
[[nodiscard]] Capability capability(Feature a, Feature b, Purpose purpose);

// Features of one scenario or plan, and the name of its schedule for messages.
struct UsedFeatures {
  FeatureSet set = {};
  std::string schedule = {};
};

struct Refusal {
  Feature feature = Feature::pipeline;  // the one that the message is about, at whose key it belongs
  std::optional<Feature> with = {};     // the other one of a pair
  std::string problem = {};
  std::string hint = {};
};

// All rules that the features break, in the order of the table; empty if the purpose has them all.
[[nodiscard]] std::vector<Refusal> refusals(const UsedFeatures& used, Purpose purpose);
[[nodiscard]] std::vector<Refusal> refusals(const FeatureSet& set, Purpose purpose);
// Returns true if there is any, without making messages.
[[nodiscard]] bool is_refused(const FeatureSet& set, Purpose purpose);
// Features that the purpose does not have, whatever stands beside them.
[[nodiscard]] FeatureSet refused_alone(Purpose purpose);

// As an InputError of the key's block: "layout", "training", "schedule".
[[nodiscard]] InputError error_of(const Refusal& refusal);
// Throws one InputError that has all refusals; no-op if there is none.
void require_none(const std::vector<Refusal>& refusals);

}  // namespace plumb
