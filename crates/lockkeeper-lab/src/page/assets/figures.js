// The numbers of both sides, beside each other.

import { h } from "./dom.js";
import { duration, number } from "./format.js";
import { pick, t } from "./words.js";

/** What should be nothing. */
const FAULTS = new Set(["oversold", "lost_updates", "overlap_ms"]);

/** `played` has the figures of the naive side and of ours. */
export function figures(played) {
  const kinds = new Map(played.flat().map((figure) => [figure.key, figure]));
  const cell = (list, key) => {
    const figure = list.find((figure) => figure.key === key);
    if (!figure) return h("td", {}, "–");
    const text = figure.unit === "ms" ? duration(figure.value) : number(figure.value);
    return h("td", { class: FAULTS.has(key) && figure.value > 0 && "fault" }, text);
  };
  const row = ([key, { label }]) =>
    h("tr", { "data-figure": key }, h("th", { scope: "row" }, pick(label)), played.map((list) => cell(list, key)));
  return h(
    "table",
    { class: "figures" },
    h("thead", {}, h("tr", {}, ["figure", "naive", "ours"].map((word) => h("th", { scope: "col" }, t(word))))),
    h("tbody", {}, [...kinds].map(row)),
  );
}
