// When the nodes of a compiled graph end: its longest paths, with as many microbatches as are asked for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/search/compiled_graph.hpp"

namespace plumb {

// Keeps its memory from one timing to the next. The sums and maxima are those of `evaluate`, in the same order: the
// same numbers to the last bit, unless microbatches are left out.
class CompiledTimes {
 public:
  // With `more` blocks added by each loop. In a steady state all nodes of a block end the same time after those of the
  // block q before; once they do, q blocks more only shift all that follows by that time (the longest paths are linear
  // in max and plus: what starts from shifted times is shifted), so that as many as possible are left out and the shift
  // is added. That they do is checked, node by node, on as many blocks as any node looks back; how far the shifts of
  // single nodes lie apart bounds the error, since max and plus never widen differences: it stays below `tolerance` of
  // the makespan. 0: nothing is left out, nor where there are several loops (each rank has its own pace there).
  void time(const CompiledGraph& compiled, const std::vector<double>& durations, int more, double tolerance);

  [[nodiscard]] double makespan() const { return makespan_; }
  // Adds, by kind of duration, how often one of the longest paths passes it; after a timing that left nothing out.
  void count_longest_path(const CompiledGraph& compiled, std::vector<double>& passes) const;
  // Blocks that each loop added and that were not left out.
  [[nodiscard]] int more() const { return more_; }
  [[nodiscard]] bool leaves_out() const { return leaves_out_; }
  [[nodiscard]] double end(std::size_t position) const { return ends_[position + 1]; }
  // Of the position that is a repetition of this node.
  [[nodiscard]] double start(const CompiledNode& node, std::size_t position) const {
    return std::max(ends_[position + 1 - node.back_a], ends_[position + 1 - node.back_b]);
  }

 private:
  struct Shift {
    int blocks = 0;   // that are left out
    double time = 0;  // that they would have added
  };
  void repeat(const CompiledGraph& compiled, const CompiledLoop& loop, const double* durations, int more,
              double tolerance);
  [[nodiscard]] std::size_t shifted(const CompiledGraph& compiled, std::uint32_t sink) const;
  void run(const CompiledNode* nodes, std::size_t count, const double* durations);
  [[nodiscard]] Shift periodic(const CompiledLoop& loop, std::size_t end, int left, double tolerance) const;
  [[nodiscard]] Shift with_period(const CompiledLoop& loop, std::size_t end, std::size_t q, double spread) const;

  std::vector<double> ends_;  // by position + 1; the first is 0
  double makespan_ = 0;
  double left_out_ = 0;  // seconds
  std::size_t run_ = 0;  // nodes so far
  int more_ = 0;
  bool leaves_out_ = false;
};

}  // namespace plumb
