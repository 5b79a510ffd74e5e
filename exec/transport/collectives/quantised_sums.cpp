#include "exec/transport/collectives/quantised_sums.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "common/base/error.hpp"
#include "common/cost/block_quantisation.hpp"
#include "exec/transport/collectives/collectives.hpp"
#include "exec/transport/collectives/payloads.hpp"
#include "exec/transport/collectives/quantised_values.hpp"

namespace plumb::exec {
namespace {

// Each part quantised on its own, one behind the other.
template <class List>
std::size_t size_of(const List& parts) {
  std::size_t size = 0;
  for (const auto& part : parts) size += quantised_size(part.size(), quantised_gradient_bits);
  return size;
}

template <class List>
Payload quantised(const List& parts) {
  const Payload message = plain_memory(size_of(parts));
  std::span<std::byte> rest = bytes_in(message);
  for (const auto& part : parts) {
    const std::size_t size = quantised_size(part.size(), quantised_gradient_bits);
    quantise(part, quantised_gradient_bits, rest.first(size));
    rest = rest.subspan(size);
  }
  return message;
}

void add(std::span<const std::byte> message, std::vector<std::vector<float>>& sums) {
  for (std::vector<float>& sum : sums) {
    const std::size_t size = quantised_size(sum.size(), quantised_gradient_bits);
    std::vector<float> values(sum.size());
    dequantise(message.first(size), quantised_gradient_bits, values);
    std::ranges::transform(sum, values, sum.begin(), [](float a, float b) { return a + b; });
    message = message.subspan(size);
  }
}

}  // namespace

QuantisedSums::QuantisedSums(Transport& transport, std::vector<int> inside, std::vector<int> across)
    : transport_(transport),
      inside_(std::move(inside)),
      across_(std::move(across)),
      place_inside_(inside_, transport.rank()),
      place_across_(across_, transport.rank()) {}

std::vector<QuantisedSums::Part> QuantisedSums::parts_of(std::span<float> values) const {
  std::vector<Part> parts;
  const std::size_t count = inside_.size() * across_.size();
  for (std::size_t part = 0; part < count; ++part) {
    parts.push_back(
        values.subspan(begin_of_part(values.size(), count, part), elements_of_part(values.size(), count, part)));
  }
  return parts;
}

std::vector<QuantisedSums::Part> QuantisedSums::given_to(const std::vector<Part>& parts, std::size_t place) const {
  std::vector<Part> given;
  for (std::size_t group = 0; group < across_.size(); ++group) given.push_back(parts[group * inside_.size() + place]);
  return given;
}

void QuantisedSums::start(std::span<float> values) {
  const std::vector<Part> parts = parts_of(values);
  const std::size_t expected = size_of(given_to(parts, place_inside_.position()));
  for (std::size_t distance = 1; distance < inside_.size(); ++distance) {
    transport_.expect(inside_[place_inside_.before(distance)], Channel::collective, expected, 1);
  }
  for (std::size_t distance = 1; distance < inside_.size(); ++distance) {
    const std::size_t to = place_inside_.after(distance);
    transport_.send(inside_[to], Channel::collective, quantised(given_to(parts, to)));
  }
  const Part own = parts[place_across_.position() * inside_.size() + place_inside_.position()];
  for (std::size_t distance = 1; distance < across_.size(); ++distance) {
    transport_.expect(across_[place_across_.before(distance)], Channel::collective,
                      quantised_size(own.size(), quantised_gradient_bits), 1);
  }
  sums_.push_back(values);
}

Received QuantisedSums::receive(const std::vector<int>& group, std::size_t from, Clock::time_point deadline) {
  try {
    Received received = transport_.receive(group[from], Channel::collective, deadline);
    transport_.count_received(group, Bytes{static_cast<std::int64_t>(received.payload.size)});
    return received;
  } catch (const Stopped&) {
    throw;
  } catch (const RunError& error) {
    throw RunError(fmt::format("rank {}", transport_.rank()),
                   fmt::format("all-to-all over ranks {}, waiting for rank {}: {}", fmt::join(group, ", "), group[from],
                               error.problem()),
                   error.hint());
  }
}

std::vector<std::vector<float>> QuantisedSums::summed_inside(const std::vector<Part>& parts,
                                                             Clock::time_point deadline) {
  const std::vector<Part> own = given_to(parts, place_inside_.position());
  std::vector<std::vector<float>> sums;
  for (const Part& part : own) sums.emplace_back(part.begin(), part.end());
  if (inside_.size() == 1) return sums;
  std::vector<Payload> messages(inside_.size());
  messages[place_inside_.position()] = quantised(own);
  for (std::size_t distance = 1; distance < inside_.size(); ++distance) {
    const std::size_t from = place_inside_.before(distance);
    Received received = receive(inside_, from, deadline);
    last_arrival_ = std::max(last_arrival_, received.arrived);
    messages[from] = std::move(received.payload);
  }
  for (std::vector<float>& sum : sums) std::ranges::fill(sum, 0.0F);
  for (const Payload& message : messages) add(bytes_in(message), sums);
  return sums;
}

void QuantisedSums::sum_across(const std::vector<std::vector<float>>& sums, Part own, Clock::time_point deadline) {
  for (std::size_t distance = 1; distance < across_.size(); ++distance) {
    const std::size_t to = place_across_.after(distance);
    transport_.send(across_[to], Channel::collective, quantised(std::span(&sums[to], 1)));
  }
  std::vector<Payload> messages(across_.size());
  messages[place_across_.position()] = quantised(std::span(&sums[place_across_.position()], 1));
  for (std::size_t distance = 1; distance < across_.size(); ++distance) {
    const std::size_t from = place_across_.before(distance);
    messages[from] = receive(across_, from, deadline).payload;
  }
  std::vector<std::vector<float>> total(1, std::vector<float>(own.size(), 0.0F));
  for (const Payload& message : messages) add(bytes_in(message), total);
  std::ranges::copy(total.front(), own.begin());
}

void QuantisedSums::finish(std::size_t count, Clock::time_point deadline) {
  for (; ended_ < count; ++ended_, sums_.pop_front()) {
    const std::vector<Part> parts = parts_of(sums_.front());
    const Part own = parts[place_across_.position() * inside_.size() + place_inside_.position()];
    const std::vector<std::vector<float>> sums = summed_inside(parts, deadline);
    if (across_.size() > 1) {
      sum_across(sums, own, deadline);
    } else {
      std::ranges::copy(sums.front(), own.begin());
    }
  }
}

}  // namespace plumb::exec
