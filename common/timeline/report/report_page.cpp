#include "common/timeline/report/report_parts.hpp"

namespace plumb::html {
namespace {

// Colours hold in light and dark, and for most kinds of colour blindness: blue, teal, amber, violet, and grey for what
// is not work.
constexpr std::string_view style = R"(
:root { color-scheme: light dark;
  --paper: #fbfbf9; --card: #ffffff; --ink: #1d2329; --quiet: #68727d; --line: #e3e5e4; --grid: #ebedec; --lane: #f0f1f0;
  --F: #4a7fd4; --B: #2a9a8a; --I: #45b3c4; --W: #e2a33c; --R: #9b73c4; --step: #7b8794; --message: #c2566b;
  --reduction: #a8862f; --busy: #5f7f9f; --waits: #d98896; --idle: #dfe2e1; --longer: #c8553d; --shorter: #3b8f63;
  --whole: #8d99a6; --parameters: #47699b; --gradients: #6fa8a0; --optimizer: #b9a06a;
  --activations: #d0805c; --in: #ffffff; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #14171a; --card: #1b1f23; --ink: #e4e7ea; --quiet: #939da7; --line: #2d3339; --grid: #252a2f; --lane: #22272c;
  --F: #5b8fe0; --B: #35a898; --I: #4fb9ca; --W: #dda243; --R: #a984cf; --step: #8793a0; --message: #d4707f;
  --reduction: #c7a64e; --busy: #7393b3; --waits: #b96f7c; --idle: #343b42; --longer: #dd7159; --shorter: #55a97c;
  --whole: #66727e; --parameters: #5f83b8; --gradients: #6fa8a0; --optimizer: #b39a62;
  --activations: #cf8563; --in: #10141a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 40px 28px 64px; }
header { margin-bottom: 28px; }
.brand { color: var(--quiet); letter-spacing: .08em; font-size: 12px; text-transform: uppercase; }
h1 { font-size: 27px; line-height: 1.25; margin: 4px 0 6px; font-weight: 640; letter-spacing: -.01em; }
h2 { font-size: 18px; margin: 0 0 4px; font-weight: 620; }
h3 { font-size: 14px; margin: 22px 0 6px; font-weight: 620; }
p { margin: 6px 0; max-width: 78ch; }
.lead { font-size: 17px; line-height: 1.5; }
.quiet, .note { color: var(--quiet); font-weight: 400; }
.note { font-size: 13px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 20px 22px; margin: 18px 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 13.5px; }
th { text-align: right; font-weight: 560; color: var(--quiet); border-bottom: 1px solid var(--line); padding: 5px 9px;
  white-space: nowrap; vertical-align: bottom; }
td { text-align: right; padding: 5px 9px; border-bottom: 1px solid var(--grid); white-space: nowrap; }
tr:last-child td { border-bottom: 0; }
th.left, td.left, th.wide, .overview th:nth-child(-n+2), .overview td:nth-child(-n+2),
.ranks th:nth-child(2), .ranks td:nth-child(2) { text-align: left; }
.overview td:first-child, .overview th { white-space: normal; }
.wide { width: 26%; min-width: 130px; }
.bar { display: flex; height: 11px; border-radius: 3px; overflow: hidden; background: var(--grid); }
.bar i { display: block; height: 100%; }
.limited { position: relative; } .limited .limit { position: absolute; top: -3px; bottom: -3px; margin-left: -2px; }
.limit { width: 2px; background: var(--ink); } .key.limit { width: 2px; margin: 0 10px 0 4px; border-radius: 0; }
.scroll { overflow-x: auto; }
.waterfall td.left:first-child { white-space: normal; min-width: 170px; }
.waterfall .actions { white-space: normal; font-size: 12px; color: var(--quiet); line-height: 1.45; width: 34%; }
.waterfall tr.total td { font-weight: 620; }
.waterfall tr.none td { color: var(--quiet); }
.nobreak { white-space: nowrap; }
th.fall { width: 28%; min-width: 180px; text-align: center; }
div.fall { position: relative; height: 13px; background: var(--lane); border-radius: 3px; overflow: hidden; }
div.fall i { position: absolute; top: 0; bottom: 0; border-radius: 2px; }
i.longer { background: var(--longer); } i.shorter { background: var(--shorter); } i.whole { background: var(--whole); }
i.nothing { background: var(--quiet); }
svg.timeline { display: block; width: 100%; height: auto; margin: 8px 0 2px; overflow: visible; }
svg text { font-size: 11px; fill: var(--ink); font-family: inherit; font-variant-numeric: tabular-nums; }
svg .axis text { fill: var(--quiet); text-anchor: middle; } svg .axis line { stroke: var(--grid); stroke-width: 1; }
svg .busy { text-anchor: end; fill: var(--quiet); } svg .lane { fill: var(--lane); }
svg .in { text-anchor: middle; font-size: 9.5px; fill: var(--in); pointer-events: none; }
svg .end { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 3 3; opacity: .55; }
svg rect.odd { opacity: .72; } svg rect.third { opacity: .42; } svg rect.share { shape-rendering: crispEdges; }
svg rect:hover { opacity: .6; }
.F { fill: var(--F); background: var(--F); } .B { fill: var(--B); background: var(--B); }
.I { fill: var(--I); background: var(--I); } .W { fill: var(--W); background: var(--W); }
.R { fill: var(--R); background: var(--R); } .step { fill: var(--step); background: var(--step); }
.message { fill: var(--message); background: var(--message); }
.reduction { fill: var(--reduction); background: var(--reduction); } .busy { background: var(--busy); }
.waits { background: var(--waits); } .idle { background: var(--idle); }
.parameters { background: var(--parameters); } .gradients { background: var(--gradients); }
.optimizer { background: var(--optimizer); } .activations { background: var(--activations); }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; font-size: 13px; max-width: none; }
.key { display: inline-block; width: 11px; height: 11px; border-radius: 2.5px; margin-right: 6px; vertical-align: -1px; }
.words { display: grid; grid-template-columns: max-content 1fr; gap: 5px 18px; margin: 10px 0 0; font-size: 14px; }
.words dt { font-weight: 600; } .words dd { margin: 0; max-width: 82ch; } .words dd .key { margin-left: 3px; }
footer { color: var(--quiet); font-size: 12.5px; margin-top: 26px; }
code { font: 12.5px ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; }
@media print { section { break-inside: avoid; } }
)";

}  // namespace

std::string page(std::string_view title, std::string_view body) {
  std::string text = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n";
  text += "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>";
  text += escaped(title);
  text += "</title>\n<style>";
  text += style;
  text += "</style></head>\n<body><main>\n";
  text += body;
  text += "</main></body></html>\n";
  return text;
}

}  // namespace plumb::html
