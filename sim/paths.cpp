#include "sim/paths.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/cluster/machine.hpp"

namespace plumb::sim {
namespace {

constexpr double endless = std::numeric_limits<double>::infinity();

// What is not set is not in use.
double usable(BytesPerSecond bandwidth) { return bandwidth.value > 0 ? bandwidth.value : endless; }

int parts(int whole, int each) { return (whole + each - 1) / each; }

}  // namespace

Paths::Paths(const Platform& platform)
    : platform_(platform),
      ranks_(platform.ranks),
      nics_per_machine_(parts(platform.ranks_per_machine, platform.shared.ranks_per_nic)),
      has_ports_(platform.collective.value > 0 || platform.shared.ranks_per_switch > 0) {
  const int machines = parts(ranks_, platform.ranks_per_machine);
  const auto add = [&](int count, double capacity) {
    const auto first = static_cast<PortId>(capacities_.size());
    capacities_.insert(capacities_.end(), static_cast<std::size_t>(count), capacity);
    return first;
  };
  const BytesPerSecond nic = platform.shared.nic.value > 0 ? platform.shared.nic : platform.outside.bandwidth;
  add(ranks_, usable(platform.inside.bandwidth));
  first_ring_ = add(platform.collective.value > 0 ? ranks_ : 0, usable(platform.collective));
  first_port_ = add(has_ports_ ? ranks_ : 0, usable(std::max(platform.inside.bandwidth, platform.collective)));
  first_nic_ = add(machines * nics_per_machine_, usable(nic));
  if (platform.shared.ranks_per_switch > 0) {
    switches_per_machine_ = parts(platform.ranks_per_machine, platform.shared.ranks_per_switch);
  }
  first_switch_ = add(machines * switches_per_machine_, usable(platform.shared.uplink));
  const auto borders = [&](int each) { return each > 0 ? parts(ranks_, each) : 0; };
  first_leaf_ = add(borders(platform.shared.ranks_per_leaf), usable(platform.shared.leaf));
  first_site_ = add(borders(platform.shared.ranks_per_site), usable(platform.shared.site));
}

int Paths::within(int rank, int shared_by, int per_machine) const {
  const int machine = machine_of(rank, platform_.ranks_per_machine);
  return machine * per_machine + (rank - machine * platform_.ranks_per_machine) / shared_by;
}

bool Paths::carries_latency(PortId port) const {
  return port < first_port_ || (port >= first_nic_ && port < first_switch_);
}

Paths::End Paths::end(int rank, Exit exit) const {
  End end;
  const auto add = [&](PortId first, int offset) { end.ports.at(end.count++) = first + static_cast<PortId>(offset); };
  const int under = platform_.shared.ranks_per_switch;
  const bool ring = exit == Exit::ring || exit == Exit::ring_across;
  const bool outside = exit >= Exit::outside;
  if (outside) {
    add(first_nic_, within(rank, platform_.shared.ranks_per_nic, nics_per_machine_));
    if (under > 0) add(first_port_, rank);
  } else {
    add(ring ? first_ring_ : 0, rank);
    if (has_ports_) add(first_port_, rank);
  }
  const bool inside_switch = exit == Exit::message || exit == Exit::ring;
  if (under > 0 && !inside_switch) add(first_switch_, within(rank, under, switches_per_machine_));
  const SharedLinks& shared = platform_.shared;
  if (exit > Exit::outside && shared.ranks_per_leaf > 0) add(first_leaf_, rank / shared.ranks_per_leaf);
  if (exit == Exit::outside_site) add(first_site_, rank / shared.ranks_per_site);
  return end;
}

std::vector<PortId> Paths::ports(int rank, Exit exit) const {
  const int each = platform_.ranks_per_machine;
  const bool across = exit == Exit::message_across || exit == Exit::ring_across;
  if (across && platform_.shared.ranks_per_switch == 0) return {};
  if ((exit == Exit::ring || exit == Exit::ring_across) && platform_.collective.value <= 0) return {};
  if (exit >= Exit::outside && ranks_ <= each) return {};
  if (exit == Exit::outside_leaf && platform_.shared.ranks_per_leaf == 0) return {};
  if (exit == Exit::outside_site && platform_.shared.ranks_per_site == 0) return {};
  const End all = end(rank, exit);
  return {all.ports.begin(), all.ports.begin() + all.count};
}

Path Paths::between(int from, int to, bool collective) const {
  Path path;
  const int under = platform_.shared.ranks_per_switch;
  if (!on_one_machine(platform_, from, to)) {
    const auto apart = [&](int each) { return each > 0 && from / each != to / each; };
    path.exit = apart(platform_.shared.ranks_per_site)   ? Exit::outside_site
                : apart(platform_.shared.ranks_per_leaf) ? Exit::outside_leaf
                                                         : Exit::outside;
  } else {
    const bool across =
        under > 0 && within(from, under, switches_per_machine_) != within(to, under, switches_per_machine_);
    if (collective) path.exit = across ? Exit::ring_across : Exit::ring;
    if (!collective) path.exit = across ? Exit::message_across : Exit::message;
  }
  path.rate = endless;
  const auto add = [&](PortId port, ResourceId resource) {
    path.uses.at(path.count++) = resource;
    path.rate = std::min(path.rate, capacities_[port]);
  };
  const End leaving = end(from, path.exit);
  const End arriving = end(to, path.exit);
  for (std::size_t i = 0; i < leaving.count; ++i) add(leaving.ports.at(i), out_of(leaving.ports.at(i)));
  for (std::size_t i = 0; i < arriving.count; ++i) add(arriving.ports.at(i), in_of(arriving.ports.at(i)));
  return path;
}

}  // namespace plumb::sim
