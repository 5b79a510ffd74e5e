#include "exec/stage/vocabulary/part_rows.hpp"

#include "common/base/error.hpp"

namespace plumb::exec {

bool has_rows_of_vocabulary(std::string_view name) {
  return name == "embedding.weight" || name == "head.weight" || name == "head.bias";
}

Model with_rows_of_part(Model model, const VocabularyPart& part) {
  model.vocabulary /= part.count;
  return model;
}

std::vector<std::int64_t> shape_of_part(const Parameter& whole, const VocabularyPart& part) {
  std::vector<std::int64_t> shape = whole.shape;
  if (!has_rows_of_vocabulary(whole.name)) return shape;
  if (shape.front() % part.count != 0) {
    throw RunError("parameter " + whole.name,
                   std::to_string(shape.front()) + " rows do not divide over " + std::to_string(part.count) + " ranks");
  }
  shape.front() /= part.count;
  return shape;
}

IndexRanges elements_of_part(const Parameter& whole, const VocabularyPart& part) {
  return elements_of_part(whole.name, elements_of_shape(shape_of_part(whole, part)), part);
}

IndexRanges elements_of_part(std::string_view name, std::int64_t held, const VocabularyPart& part) {
  const std::int64_t first = has_rows_of_vocabulary(name) ? part.index * held : 0;
  return {{first, first + held}};
}

IndexRanges elements_within_part(IndexRanges some, std::string_view name, std::int64_t held,
                                 const VocabularyPart& part) {
  const std::int64_t first = elements_of_part(name, held, part).front().begin;
  for (IndexRange& range : some) range = {range.begin + first, range.end + first};
  return some;
}

}  // namespace plumb::exec
