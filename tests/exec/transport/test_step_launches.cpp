// What a rank launches against what its launches say, in order.
#include "exec/transport/step_launches.hpp"

#include "tests/catch.hpp"
#include "tests/exec/transport/launch_plan/made_up_calls.hpp"

using namespace plumb;
using namespace plumb::exec;

namespace {

const CommunicatorSpec tensor{CommunicatorUse::tensor, {0, 1}};
const CommunicatorSpec data{CommunicatorUse::data, {0, 2}};

LaunchBatch message(std::int32_t place) {
  return {.use = CommunicatorUse::down,
          .operations = {{.action = {ActionKind::receive_forward, 1, 0}, .index = place, .peer = 3}},
          .place = place};
}

LaunchBatch call(std::int32_t place, Collective kind, std::size_t count) {
  auto made = std::make_shared<GroupCall>();
  made->of = tensor;
  made->kind = kind;
  made->count = count;
  made->what = std::string(name_of(kind)) + " of a test";
  return {.use = tensor.use,
          .operations = {{.action = {ActionKind::forward, 1, 0}, .index = place, .peer = -1}},
          .place = place,
          .call = std::move(made)};
}

LaunchBatch sums(std::int32_t place) {
  LaunchBatch batch = call(place, Collective::all_reduce, 0);
  auto open = std::make_shared<GroupCall>(*batch.call);
  open->of = data;
  open->open = true;
  batch.use = data.use;
  batch.call = std::move(open);
  return batch;
}

CollectiveCall of(const CommunicatorSpec& over, Collective kind, std::size_t count,
                  Reduction reduction = Reduction::sum) {
  return {.kind = kind, .reduction = reduction, .use = over.use, .group = over.ranks, .count = count};
}

}  // namespace

TEST_CASE("messages are launched up to a place, collectives when their action makes them, sums as often as they come") {
  const RankLaunches launches{message(0), call(1, Collective::all_gather, 4), call(1, Collective::reduce_scatter, 2),
                              message(2), sums(3)};
  StepLaunches step(0);
  CHECK(step.next(0) == nullptr);  // between steps there is nothing
  CHECK(step.made(tensor, of(tensor, Collective::all_reduce, 1)) == nullptr);
  step.begin(launches);
  REQUIRE(step.next(0) == launches.data());
  step.launched({}, {});
  CHECK(step.next(1) == nullptr);
  CHECK(step.next_sum() == CommunicatorUse::tensor);
  REQUIRE(step.made(tensor, of(tensor, Collective::all_gather, 4)) == &launches[1]);
  step.launched({}, {});
  REQUIRE(step.made(tensor, of(tensor, Collective::reduce_scatter, 2)) == &launches[2]);
  step.launched({}, {});
  REQUIRE(step.next(3) == &launches[3]);
  step.launched({}, {});
  CHECK(step.next(3) == nullptr);
  CHECK(step.next_sum() == CommunicatorUse::data);
  for (const std::size_t count : {8, 3}) {
    REQUIRE(step.made(data, of(data, Collective::all_reduce, count)) == &launches[4]);
    step.launched({}, {});
  }
  CHECK(step.next(4) == nullptr);
  CHECK(step.end().size() == launches.size());
}

TEST_CASE("surplus, missing, different and reordered launches of an action are named before they reach a stream") {
  const RankLaunches launches{call(0, Collective::all_gather, 4), call(0, Collective::reduce_scatter, 2), sums(2)};
  StepLaunches step(7);
  const auto says = [&](const CommunicatorSpec& over, const CollectiveCall& made, const std::string& text) {
    CHECK_THROWS_WITH(step.made(over, made), ContainsSubstring("rank 7: ") && ContainsSubstring(text));
  };
  const std::string gather_comes = "was made where all-gather of a test on tensor (ranks 0, 1) comes next";
  step.begin(launches);
  CHECK(step.next(0) == nullptr);
  says(tensor, of(tensor, Collective::reduce_scatter, 2),
       "reduce-scatter of 2 elements on tensor (ranks 0, 1) " + gather_comes);
  says(tensor, of(tensor, Collective::all_gather, 5), "all-gather of 5 elements");
  says(tensor, of(tensor, Collective::all_gather, 4, Reduction::maximum), "all-gather (maximum) of 4");
  says(data, of(data, Collective::all_reduce, 1), "on data (ranks 0, 2) " + gather_comes);
  CHECK(step.made(tensor, of(tensor, Collective::all_gather, 4)) == launches.data());
  step.launched({}, {});
  says(tensor, of(tensor, Collective::all_gather, 4), "where reduce-scatter of a test");
  CHECK_THROWS_WITH(step.next(1), ContainsSubstring("rank 7: reduce-scatter of a test on tensor (ranks 0, 1) was not "
                                                    "made in 1F0"));
  CHECK_THROWS_WITH(step.end(), ContainsSubstring("2 batches were not launched, the first reduce-scatter of a test"));

  step.begin(launches);
  CHECK(step.next(0) == nullptr);
  step.launched({}, {});
  step.launched({}, {});
  says(tensor, of(tensor, Collective::all_gather, 4), "where its action makes none any more");
  CHECK(step.next(1) == nullptr);
  says(tensor, of(tensor, Collective::all_gather, 4), "where its action makes none any more");
  CHECK(step.next(2) == nullptr);
  CHECK(step.next(3) == nullptr);  // a stage without gradients
  CHECK(step.end().size() == 3);
}

TEST_CASE("a bucket is of the gradients that were stated, in their order, and nothing else stands for it") {
  const std::vector<CollectiveValue> two{{.data = nullptr, .count = 8}, {.data = nullptr, .count = 4}};
  const std::vector<CollectiveValue> exchanged{two.back(), two.front()};
  const auto bucket_of = [&](const std::vector<CollectiveValue>& values) {
    CollectiveCall made = of(data, Collective::all_reduce, 12);
    made.bucket = values;
    return made;
  };
  LaunchBatch batch = sums(0);
  auto bucket = std::make_shared<GroupCall>(*batch.call);
  bucket->open = false;
  bucket->bucket = {8, 4};
  bucket->count = 12;
  batch.call = bucket;
  const RankLaunches launches{batch, sums(1)};
  StepLaunches step(7);
  step.begin(launches);
  CHECK(step.next(0) == nullptr);
  CHECK_THROWS_WITH(step.made(data, bucket_of(exchanged)),
                    ContainsSubstring("rank 7: all-reduce of 12 elements in 2 values on data (ranks 0, 2) was made "
                                      "where all-reduce of a test on data (ranks 0, 2) comes next"));
  CHECK_THROWS_AS(step.made(data, of(data, Collective::all_reduce, 12)), RunError);
  CHECK(step.made(data, bucket_of(two)) == launches.data());
  step.launched({}, {});
  CHECK(step.next(1) == nullptr);
  CHECK_THROWS_AS(step.made(data, bucket_of(two)), RunError);  // sums behind the backward are no buckets
  CHECK(step.made(data, of(data, Collective::all_reduce, 12)) == &launches[1]);
}
