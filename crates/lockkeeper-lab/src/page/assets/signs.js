// How marks are drawn: a shape of its own each, so that nobody has to tell them apart by colour.

import { s } from "./dom.js";

// Around 0,0, within ±6. "bad", "warn", "good" and "plain" are colours; a shape is filled or only has an outline.
const SIGNS = {
  read: { tone: "plain", path: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", outline: true },
  sold: { tone: "good", path: "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0" },
  sold_out: { tone: "plain", path: "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0M-3.2 3.2L3.2 -3.2", outline: true },
  refused: { tone: "bad", path: "M-2.5 -6H2.5L6 -2.5V2.5L2.5 6H-2.5L-6 2.5V-2.5Z", cut: "M-3 0H3" },
  abstained: { tone: "plain", path: "M-4.5 -4.5H4.5V4.5H-4.5ZM-2.5 0H2.5", outline: true },
  at_risk: { tone: "warn", path: "M0 -6L6.2 5H-6.2Z", cut: "M0 -2.6V1.2M0 3.2V3.4" },
  lost: { tone: "bad", path: "M0 -6.5L6.5 0L0 6.5L-6.5 0Z", cut: "M0 -3V0.8M0 3V3.2" },
  entered: { tone: "plain", path: "M-5 0H5M0 -5V5", outline: true },
  left: { tone: "plain", path: "M-5 0H5", outline: true },
  released: { tone: "plain", path: "M-3 -5H3V5H-3M-3 -5", outline: true },
  not_held: { tone: "warn", path: "M0 -6L6 0L0 6L-6 0Z", outline: true },
  gave_up: { tone: "bad", path: "M-4.5 -5.5H4.5L-4.5 5.5H4.5Z", outline: true },
  failed: { tone: "bad", path: "M-6 -5H6L0 6Z", cut: "M0 -3V0.5M0 2.4V2.6" },
  killed: { tone: "bad", path: "M-4.5 -4.5L4.5 4.5M4.5 -4.5L-4.5 4.5", outline: true, bold: true },
  restarted: { tone: "plain", path: "M4.5 -2.5A5 5 0 1 0 5 1.5M5 -6V-2H1", outline: true },
  promoted: { tone: "good", path: "M0 -6L6 1H2.5V6H-2.5V1H-6Z" },
};

const NONE = { tone: "plain", path: "M-3 -3H3V3H-3Z" };

/** The words of kinds that have other meanings, too. */
export const wordOf = (kind) => ({ refused: "refused_mark", failed: "failed_mark" })[kind] ?? kind;

/** What lasts and has a pattern beside its colour. */
export const HATCHED = ["overlap", "waits", "paused", "down", "unknown"];

/** All kinds, in the order of the legend. */
export const KINDS = Object.keys(SIGNS);

export function sign(kind) {
  const { tone, path, cut, outline, bold } = SIGNS[kind] ?? NONE;
  return s(
    "g",
    { class: `sign ${tone}${outline ? " outline" : ""}${bold ? " bold" : ""}` },
    s("path", { d: path }),
    cut && s("path", { class: "cut", d: cut }),
  );
}
