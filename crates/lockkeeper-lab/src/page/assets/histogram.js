// How long things took: one bar an order of magnitude.

import { h, s } from "./dom.js";
import { duration, number } from "./format.js";
import { t } from "./words.js";

const WIDTH = 360;
const HEIGHT = 120;

export function histogram(title, { ends_ms: ends, counts }) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  const highest = Math.max(1, ...counts);
  const width = WIDTH / counts.length;
  const range = (at) => {
    if (at === 0) return t("less_than", { end: brief(ends[0]) });
    if (at === ends.length) return t("at_least", { start: brief(ends.at(-1)) });
    return `${brief(ends[at - 1])}–${brief(ends[at])}`;
  };
  const bar = (count, at) => {
    const height = count ? Math.max(3, (count / highest) * (HEIGHT - 40)) : 1;
    const x = at * width;
    return [
      s("rect", { class: count ? "column" : "column none", x: x + 2, y: HEIGHT - 20 - height, width: width - 4, height, rx: 2 }),
      count > 0 && s("text", { class: "count", x: x + width / 2, y: HEIGHT - 25 - height }, number(count)),
      // Where a bar ends.
      at < ends.length && s("text", { class: "end", x: x + width, y: HEIGHT - 6 }, brief(ends[at])),
    ];
  };
  const spoken = counts.map((count, at) => count && t("bar", { range: range(at), count })).filter(Boolean);
  return h(
    "figure",
    { class: "histogram" },
    h("figcaption", {}, h("strong", {}, title), " ", h("span", { class: "muted" }, total ? t("counted", { count: number(total) }) : t("none_counted"))),
    s("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}. ${spoken.join(", ") || t("none_counted")}` }, counts.flatMap(bar).filter(Boolean)),
  );
}

/** The end of a bar, as short as can be. */
function brief(ms) {
  for (const [unit, word] of [[86_400_000, "d"], [3_600_000, "h"], [60_000, "m"], [1000, "s"]]) {
    if (ms >= unit) return `${ms / unit}${t(word)}`;
  }
  return duration(ms).replace(" ", "");
}
