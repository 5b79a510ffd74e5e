#include "common/planner/predicted_answer.hpp"

#include <cstddef>

#include "common/base/error.hpp"
#include "common/base/workers.hpp"
#include "common/planner/unfolded_memory.hpp"

namespace plumb {
namespace {

// Before what is answered.
constexpr char predicted_mark = 'p';
constexpr char refused_mark = 'r';

std::string packed(const CandidatePrediction& prediction) {
  std::string bytes;
  append_bytes(bytes, prediction.iteration);
  append_bytes(bytes, prediction.ranks.size());
  for (const RankSummary& rank : prediction.ranks) append_bytes(bytes, rank);
  return bytes + prediction.engine;
}

CandidatePrediction unpacked(const std::string& bytes) {
  std::size_t at = 0;
  CandidatePrediction prediction;
  prediction.iteration = take_bytes<Seconds>(bytes, at);
  prediction.ranks.resize(take_bytes<std::size_t>(bytes, at));
  for (RankSummary& rank : prediction.ranks) rank = take_bytes<RankSummary>(bytes, at);
  prediction.engine = bytes.substr(at);
  return prediction;
}

}  // namespace

std::string predicted_answer(const Candidate& candidate, const Evaluator& engine) {
  if (!candidate.built) return {};
  try {
    return predicted_mark + packed(candidate_prediction(engine(candidate.plan)));
  } catch (const NoRoomHere&) {
    throw;
  } catch (const InputError& error) {
    return refused_mark + error.problem();
  }
}

void take_answer(Candidate& candidate, const std::string& answer) {
  if (answer.starts_with(predicted_mark)) add_prediction(candidate, unpacked(answer.substr(1)));
  if (answer.starts_with(refused_mark)) {
    candidate = {.choice = candidate.choice, .own = candidate.own, .reason = answer.substr(1)};
  }
}

}  // namespace plumb
