// What the signs of a timeline mean: those that are in it.

import { h, s } from "./dom.js";
import { HATCHED, KINDS, sign, wordOf } from "./signs.js";
import { t } from "./words.js";

const DOINGS = ["holds", "waits", "paused", "down", "serves"];

/** What is to be explained, as one text: the legend is made anew when it changes. */
export function inLegend(timeline, unknown) {
  const spans = new Set(timeline.spans.map((span) => span.doing));
  const marks = new Set(timeline.marks.map((mark) => mark.kind));
  return [
    ...(timeline.overlaps.length ? ["overlap"] : []),
    ...DOINGS.filter((doing) => spans.has(doing)),
    ...KINDS.filter((kind) => marks.has(kind)),
    ...(unknown ? ["unknown"] : []),
  ];
}

/** `pattern(name)` is where the timeline has a pattern. */
export function legend(entries, pattern) {
  const entry = (kind) =>
    h("li", {}, KINDS.includes(kind) ? small(sign(kind)) : swatch(kind, pattern), t(KINDS.includes(kind) ? wordOf(kind) : kind));
  return h("ul", { class: "legend", "aria-label": t("legend") }, entries.map(entry));
}

const small = (inside) => s("svg", { class: "key", viewBox: "-8 -8 16 16", width: 16, height: 16, "aria-hidden": "true" }, inside);

function swatch(kind, pattern) {
  const bar = { x: 0, y: 2, width: 24, height: 12, rx: 3 };
  const children = [s("rect", { ...bar, class: `bar ${kind}` })];
  if (HATCHED.includes(kind)) children.push(s("rect", { ...bar, fill: pattern(kind) }));
  return s("svg", { class: "key wide", viewBox: "0 0 24 16", width: 24, height: 16, "aria-hidden": "true" }, children);
}
