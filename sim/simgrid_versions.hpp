// SimGrid's headers, and what differs between its versions 3.32 and 4.0; they stand here and nowhere else. Internal.
#pragma once

#include <simgrid/s4u.hpp>

#include <simgrid/version.h>
#include <xbt/log.h>
#include <simgrid/kernel/Timer.hpp>
#if SIMGRID_VERSION < 40000
#include <simgrid/kernel/resource/NetworkModelIntf.hpp>
#endif

#include <string>
#include <vector>

namespace plumb::sim {

namespace s4u = simgrid::s4u;

inline std::vector<s4u::LinkInRoute> upwards(const std::vector<s4u::Link*>& ports) {
  std::vector<s4u::LinkInRoute> route;
  for (s4u::Link* port : ports) route.emplace_back(port, s4u::LinkInRoute::Direction::UP);
  return route;
}

#if SIMGRID_VERSION >= 40000
inline s4u::NetZone* make_root(s4u::Engine& engine) { return engine.get_netzone_root(); }
inline s4u::NetZone* make_star(s4u::NetZone* root, const std::string& name) { return root->add_netzone_star(name); }
// `speeds`: one for each state of performance, the first at the beginning.
inline s4u::Host* make_host(s4u::NetZone* zone, const std::string& name, const std::vector<double>& speeds = {1.0}) {
  return zone->add_host(name, speeds);
}
inline s4u::SplitDuplexLink* new_duplex(s4u::NetZone* zone, const std::string& name, double bandwidth) {
  return zone->add_split_duplex_link(name, bandwidth);
}
inline void connect(s4u::NetZone* star, s4u::Host* host, const std::vector<s4u::Link*>& ports) {
  star->add_route(host, nullptr, upwards(ports));
}
template <class Callback>
inline void set_latency_factor(s4u::NetZone* root, const Callback& callback) {
  root->set_latency_factor_cb(callback);
}
template <class Callback>
inline void on_any_completion(const Callback& callback) {
  s4u::Exec::on_completion_cb(callback);
  s4u::Comm::on_completion_cb(callback);
}
inline void begin(s4u::Exec& exec) { exec.detach(); }
inline void begin(s4u::Comm& comm) { comm.start(); }
#else
inline s4u::NetZone* make_root(s4u::Engine&) { return s4u::create_full_zone("world"); }
inline s4u::NetZone* make_star(s4u::NetZone* root, const std::string& name) {
  return s4u::create_star_zone(name)->set_parent(root);
}
inline s4u::Host* make_host(s4u::NetZone* zone, const std::string& name, const std::vector<double>& speeds = {1.0}) {
  return zone->create_host(name, speeds);
}
inline s4u::SplitDuplexLink* new_duplex(s4u::NetZone* zone, const std::string& name, double bandwidth) {
  return zone->create_split_duplex_link(name, bandwidth);
}
inline void connect(s4u::NetZone* star, s4u::Host* host, const std::vector<s4u::Link*>& ports) {
  star->add_route(host->get_netpoint(), nullptr, nullptr, nullptr, upwards(ports));
}
template <class Callback>
inline void set_latency_factor(s4u::NetZone* root, const Callback& callback) {
  root->get_network_model()->set_lat_factor_cb(callback);
}
template <class Callback>
inline void on_any_completion(const Callback& callback) {
  s4u::Activity::on_completion_cb(callback);
}
inline void begin(s4u::Exec& exec) { exec.vetoable_start(); }
inline void begin(s4u::Comm& comm) { comm.vetoable_start(); }
#endif

inline s4u::Link* make_duplex(s4u::NetZone* zone, const std::string& name, double bandwidth, double latency) {
  return new_duplex(zone, name, bandwidth)->set_latency(latency)->seal();
}

// Without a latency; of each direction's capacity `share(capacity, flows)` is shared.
template <class Share>
inline s4u::SplitDuplexLink* make_shared_duplex(s4u::NetZone* zone, const std::string& name, double bandwidth,
                                                const Share& share) {
  s4u::SplitDuplexLink* link = new_duplex(zone, name, bandwidth);
  link->get_link_up()->set_sharing_policy(s4u::Link::SharingPolicy::NONLINEAR, share);
  link->get_link_down()->set_sharing_policy(s4u::Link::SharingPolicy::NONLINEAR, share);
  link->seal();
  return link;
}

}  // namespace plumb::sim
