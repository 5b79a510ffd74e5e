// Rates of devices without a device: fits by hand, and what is measured of streams that are threads.
#include "exec/calibrate/device_rates.hpp"

#include <memory>
#include <string>
#include <string_view>

#include "tests/catch.hpp"
#include "tests/exec/device/host_with_streams.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

std::vector<RateSample> samples_of(double latency, double bandwidth) {
  std::vector<RateSample> samples;
  for (const std::int64_t bytes : {4096, 65536, 1048576, 16777216}) {
    samples.push_back({{bytes}, {latency + static_cast<double>(bytes) / bandwidth}});
  }
  return samples;
}

// Its clock goes on by what work takes, whatever the machine does: so many bytes in a second.
class SlowCopies final : public Device {
 public:
  explicit SlowCopies(double bandwidth) : compute_(bandwidth) {}
  [[nodiscard]] std::string name() const override { return "slow"; }
  [[nodiscard]] bool is_asynchronous() const override { return true; }
  void enter() override {}
  [[nodiscard]] exec::Stream& compute() override { return compute_; }
  [[nodiscard]] std::unique_ptr<exec::Stream> make_stream(bool urgent) override { return host_.make_stream(urgent); }
  [[nodiscard]] Payload allocate(std::size_t bytes) override { return host_.allocate(bytes); }
  [[nodiscard]] Seconds time_of(const exec::Moment& moment) const override {
    return dynamic_cast<const At&>(moment).time;
  }
  void align_clock() override {}

 private:
  struct At final : exec::Moment {
    explicit At(Seconds at) : time(at) {}
    [[nodiscard]] bool has_come() const override { return true; }
    Seconds time;
  };

  class Compute final : public exec::Stream {
   public:
    explicit Compute(double bandwidth) : bandwidth_(bandwidth) {}
    void wait(const MomentPtr& /*moment*/) override {}
    [[nodiscard]] MomentPtr record() override { return std::make_shared<At>(now_); }
    void copy(std::byte* /*to*/, const std::byte* /*from*/, std::size_t bytes) override { take(bytes); }
    void add(float* /*to*/, const float* /*from*/, std::size_t count) override { take(3 * count * sizeof(float)); }
    [[nodiscard]] void* native() const override { return nullptr; }

   private:
    void take(std::size_t bytes) { now_ += Seconds{static_cast<double>(bytes) / bandwidth_}; }
    double bandwidth_;
    Seconds now_ = {};
  };

  test::HostWithStreams host_;
  Compute compute_;
};

const MeasuredRate& rate(const DeviceRates& measured, std::string_view operation) {
  for (const MeasuredRate& one : measured.rates) {
    if (one.operation == operation) return one;
  }
  throw RunError("test", "no rate of " + std::string(operation));
}

}  // namespace

TEST_CASE("a latency and a bandwidth are found again, and small messages count as much as large ones") {
  const TransferCost cost = fitted(samples_of(12e-6, 40e9));
  CHECK(cost.latency.value == Approx(12e-6).epsilon(1e-6));
  CHECK(cost.bandwidth.value == Approx(40e9).epsilon(1e-6));
  // 1% off at the largest moves the latency by far less than that time.
  std::vector<RateSample> noisy = samples_of(12e-6, 40e9);
  noisy.back().time = noisy.back().time * 1.01;
  CHECK(fitted(noisy).latency.value == Approx(12e-6).epsilon(0.02));
  CHECK(fitted(noisy).bandwidth.value == Approx(40e9).epsilon(0.02));
}

TEST_CASE("times that do not grow with the bytes give no negative latency or endless bandwidth") {
  std::vector<RateSample> falling = samples_of(1e-3, 1e12);
  falling.back().time = {1e-6};
  CHECK(fitted(falling).latency.value >= 0);
  CHECK(fitted(falling).bandwidth.value <= 1e14);
  CHECK(fitted(falling).bandwidth.value > 0);
}

TEST_CASE("copies and adds are timed on the stream: what takes three times as long has a third of the bandwidth") {
  std::vector<std::unique_ptr<Device>> devices;
  devices.push_back(std::make_unique<SlowCopies>(1e9));
  const DeviceRates measured = measure_rates(devices, {.sizes = {std::size_t{1} << 20U, std::size_t{4} << 20U}});
  REQUIRE(measured.rates.size() == 2);
  const double copy = 4 * 1024 * 1024 / 1e9;
  CHECK(rate(measured, "copy").samples.back().time.value == Approx(copy));
  CHECK(rate(measured, "add").samples.back().time.value == Approx(3 * copy));
}

TEST_CASE("two ranks that share a device send each other messages there and back") {
  std::vector<std::unique_ptr<Device>> devices;
  for (std::uint32_t rank = 0; rank < 2; ++rank) {
    devices.push_back(std::make_unique<test::HostWithStreams>(100 * rank + 1,
                                                              test::Speeds{.copies = std::chrono::microseconds(2000)}));
  }
  const DeviceRates measured = measure_rates(devices, {.sizes = {1024, 65536}});
  REQUIRE(measured.rates.size() == 3);
  const MeasuredRate& send = rate(measured, "send");
  CHECK(send.ranks == 2);
  REQUIRE(send.samples.size() == 2);
  // Each copy begins 1 to 2 ms late.
  CHECK(send.samples[0].time.value > 1e-3);
  CHECK(send.samples[0].bytes.value == 1024);
  CHECK(measured.transfer == send.cost);
}
