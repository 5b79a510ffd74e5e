#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/base/text.hpp"
#include "common/timeline/chart/markup.hpp"
#include "sim/commands/show/show_sites.hpp"

namespace plumb::sim {
namespace {

constexpr int box_width = 480;
constexpr int box_height = 40;
constexpr int left = 24;
constexpr int line_height = 16;
constexpr int picture_width = 1160;

constexpr const char* style = R"(<style>
:root { --ink: #1b1f24; --faint: #6b7280; --box: #eef2f7; --edge: #9aa5b1; --F: #2563eb; --I: #059669; --W: #d97706; --ground: #ffffff }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --faint: #9aa5b1; --box: #1f2630; --edge: #4b5563; --F: #7aa2ff; --I: #4ade80; --W: #fbbf24; --ground: #0d1117 } }
text { font: 13px ui-sans-serif, system-ui, sans-serif; fill: var(--ink) } .small { font-size: 11px; fill: var(--faint) }
.ground { fill: var(--ground) } .box { fill: var(--box); stroke: var(--edge) } .F { fill: var(--F) } .I { fill: var(--I) } .W { fill: var(--W) }
.flow { stroke: var(--edge); stroke-width: 1.5 }
</style>
)";

std::string line_of(const BlockView& view, const PlacedMove& each, int y) {
  return fmt::format("<text x=\"{}\" y=\"{}\" class=\"{}\">{} {} of {} ({}) over {}, {} ranks: {} received</text>\n",
                     left + box_width + 24, y, name_of(each.phase), name_of(each.phase), name_of(*each.move.collective),
                     html::escaped(each.tensor), name_of(each.role),
                     html::escaped(describe(view.placed.mesh, each.move.over)), size(view.placed.mesh, each.move.over),
                     to_text(Bytes{std::llround(received_bytes(view.placed, each, view.precision))}));
}

}  // namespace

std::string sites_svg(const BlockView& view) {
  std::string body;
  int y = 56;
  for (const PlacedSite& site : view.placed.sites) {
    const PlacedTensor& output = site.kept.front();
    int beside = y + 12;
    for (const PlacedMove& each : view.placed.moves) {
      if (!each.move.collective || each.site != site.name) continue;
      body += line_of(view, each, beside);
      beside += line_height;
    }
    body += fmt::format("<rect class=\"box\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"6\"/>\n", left, y,
                        box_width, box_height);
    body += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", left + 10, y + 16, html::escaped(site.name));
    body +=
        fmt::format("<text x=\"{}\" y=\"{}\" class=\"small\">{}; {}</text>\n", left + 10, y + 32,
                    html::escaped(describe(output.local)), html::escaped(describe(view.placed.mesh, output.placement)));
    const int next = std::max(y + box_height + 14, beside);
    if (&site != &view.placed.sites.back()) {
      body += fmt::format("<line class=\"flow\" x1=\"{0}\" y1=\"{1}\" x2=\"{0}\" y2=\"{2}\"/>\n", left + box_width / 2,
                          y + box_height, next);
    }
    y = next;
  }
  const std::string title = fmt::format("{} on {}; a microbatch of {} × {} tokens", view.title, view.layout,
                                        view.tokens.sequences, view.tokens.sequence);
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\">\n",
             picture_width, y + 16) +
         style + fmt::format("<rect class=\"ground\" width=\"{}\" height=\"{}\"/>\n", picture_width, y + 16) +
         fmt::format(
             "<text x=\"{}\" y=\"24\">{}</text>\n<text x=\"{}\" y=\"42\" class=\"small\">Boxes: what one rank keeps "
             "of each output, and how it is placed. Beside them: what moves in F, I and W.</text>\n",
             left, html::escaped(title), left) +
         body + "</svg>\n";
}

}  // namespace plumb::sim
