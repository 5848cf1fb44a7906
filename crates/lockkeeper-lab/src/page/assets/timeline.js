// One side of a chapter, drawn: one lane a process, time from left to right.

import { h, place, s, say, set } from "./dom.js";
import { duration, shortToken } from "./format.js";
import { inLegend, legend } from "./legend.js";
import { HATCHED, sign, wordOf } from "./signs.js";
import { handle, Viewport } from "./viewport.js";
import { t } from "./words.js";

const TOP = 22;
const LANE = 48;
const BAR = { y: 22, height: 18 };
const SIGN_Y = 10;
const AXIS = 26;
const RIGHT = 14;
/** How far apart signs are at least. */
const APART = 15;

let count = 0;

export class Timeline {
  /** `label` names it for those who do not see it. */
  constructor(label, viewport = new Viewport()) {
    this.id = `timeline${++count}`;
    this.viewport = viewport;
    this.items = [];
    this.active = null;
    this.kept = new Map();
    this.patterns = h("div", { class: "patterns", "aria-hidden": "true" }, this.defs());
    this.layers = ["lanes", "steps", "bars", "bands", "signs", "axis"].map((name) => s("g", { class: name }));
    this.clip = s("rect", {});
    this.svg = s(
      "svg",
      { class: "drawing", "aria-hidden": "true" },
      s("clipPath", { id: `${this.id}-clip` }, this.clip),
      ...this.layers,
    );
    for (const layer of this.layers.slice(1, 5)) set(layer, "clip-path", `url(#${this.id}-clip)`);
    this.tip = h("div", { class: "tip", hidden: true });
    this.spoken = h("div", { class: "unseen", role: "status" });
    this.stage = h(
      "div",
      {
        class: "stage",
        tabindex: 0,
        role: "group",
        "aria-label": label,
        "aria-description": t("timeline_help"),
        onkeydown: (event) => this.key(event),
        onblur: () => this.point(null),
      },
      this.svg,
      this.tip,
    );
    this.explained = h("div", {});
    this.element = h("div", { class: "timeline" }, this.patterns, this.stage, this.spoken, this.controls(), this.explained);
    handle(this.stage, this.viewport, (x) => this.time(x), () => this.draw());
    this.stage.addEventListener("pointerleave", () => this.point(null));
    this.stage.addEventListener("pointerover", (event) => this.hover(event));
    this.stage.addEventListener("click", (event) => this.hover(event));
    new ResizeObserver(() => this.draw()).observe(this.stage);
  }

  /** Fills for what must be told apart without colours. */
  defs() {
    const hatch = (name, size, ...paths) => turned(45, name, size, ...paths);
    const turned = (angle, name, size, ...paths) =>
      s(
        "pattern",
        { id: `${this.id}-${name}`, width: size, height: size, patternUnits: "userSpaceOnUse", patternTransform: `rotate(${angle})` },
        paths.map((d) => s("path", { class: `stroke-${name}`, d })),
      );
    const patterns = [
      // The other way round than all else: without colours, a pause would look the same.
      turned(-45, "overlap", 7, "M0 0V7"),
      turned(-45, "band", 7, "M0 0V7"),
      hatch("waits", 6, "M0 0V6"),
      hatch("paused", 5, "M0 0V5"),
      hatch("down", 8, "M0 0V8", "M0 0H8"),
      turned(0, "unknown", 6, "M0 0V6"),
    ];
    return s("svg", { width: 0, height: 0 }, s("defs", {}, patterns));
  }

  pattern(name) {
    return `url(#${this.id}-${name})`;
  }

  controls() {
    const button = (word, text, act) =>
      h(
        "button",
        {
          type: "button",
          class: "small",
          "aria-label": t(word),
          title: t(word),
          onclick: () => {
            act();
            this.draw();
          },
        },
        text,
      );
    const { viewport } = this;
    const some = () => (viewport.end - viewport.start) / 4;
    return h(
      "div",
      { class: "controls" },
      button("zoom_in", "+", () => viewport.zoom(0.5)),
      button("zoom_out", "−", () => viewport.zoom(2)),
      button("earlier", "←", () => viewport.pan(-some())),
      button("later", "→", () => viewport.pan(some())),
      button("show_all", t("show_all"), () => viewport.all()),
      h("span", { class: "hint" }, t("timeline_hint")),
    );
  }

  /** Shows this; `now` is the time of a side that goes on, else null; `unknown` is whether nobody knows what came then. */
  show(timeline, now, unknown = false) {
    this.timeline = timeline;
    this.now = now;
    this.unknown = unknown;
    this.element.classList.toggle("old", unknown);
    // How long processes take to start is no part of the story.
    const first = startOf(timeline) ?? now ?? timeline.end;
    const end = Math.max(now ?? timeline.end, first + 300_000);
    this.zero = first;
    const margin = (end - first) * 0.02;
    this.viewport.range(first - margin, end + margin * (unknown ? 5 : 1));
    const entries = inLegend(timeline, unknown);
    if (entries.join() !== this.explains) {
      this.explains = entries.join();
      place(this.explained, entries.length ? [legend(entries, (name) => this.pattern(name))] : []);
    }
    this.draw();
  }

  x(at) {
    const { start, end } = this.viewport;
    return this.left + ((at - start) / (end - start)) * this.plot;
  }

  time(x) {
    const { start, end } = this.viewport;
    return start + ((x - this.left) / this.plot) * (end - start);
  }

  draw() {
    const { timeline } = this;
    const width = this.stage.clientWidth;
    if (!timeline || !width) return;
    const longest = Math.max(1, ...timeline.lanes.map((lane) => [...lane.name].length));
    this.left = Math.min(Math.max(26, longest * 7.6 + 14), width * 0.28);
    this.plot = width - this.left - RIGHT;
    const bottom = TOP + timeline.lanes.length * LANE;
    set(this.svg, "width", width);
    set(this.svg, "height", bottom + AXIS);
    set(this.svg, "viewBox", `0 0 ${width} ${bottom + AXIS}`);
    for (const [name, value] of Object.entries({ x: this.left, y: 0, width: this.plot + RIGHT, height: bottom })) {
      set(this.clip, name, value);
    }
    this.used = new Map();
    this.items = [];
    const [lanes, steps, bars, bands, signs, axis] = this.layers;
    place(lanes, this.drawLanes(width));
    place(steps, this.drawSteps(bottom));
    place(bars, this.drawBars());
    place(bands, [...this.drawOverlaps(), ...this.drawUnknown(bottom)]);
    place(signs, this.drawSigns());
    place(axis, this.drawAxis(bottom));
    this.kept = this.used;
    this.items.sort((a, b) => a.at - b.at || a.lane - b.lane);
    this.drawTip();
  }

  /** The element of this key, as it was drawn last or new. */
  keep(key, make, attributes = {}) {
    const element = this.kept.get(key) ?? make();
    for (const [name, value] of Object.entries(attributes)) set(element, name, value);
    this.used.set(key, element);
    return element;
  }

  rect(key, attributes) {
    return this.keep(key, () => s("rect", {}), attributes);
  }

  text(key, content, attributes) {
    const element = this.keep(key, () => s("text", {}), attributes);
    say(element, content);
    return element;
  }

  y(lane) {
    return TOP + lane * LANE;
  }

  drawLanes(width) {
    return this.timeline.lanes.flatMap((lane) => {
      const y = this.y(lane.id);
      const most = Math.floor((this.left - 10) / 7);
      const letters = [...lane.name];
      const name = letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : lane.name;
      return [
        this.rect(`row${lane.id}`, { class: lane.id % 2 ? "row odd" : "row", x: 0, y, width, height: LANE }),
        this.text(`name${lane.id}`, name, { class: lane.server ? "name server" : "name", x: 10, y: y + BAR.y + 14 }),
      ];
    });
  }

  drawSteps(bottom) {
    let last = -Infinity;
    return this.timeline.steps.flatMap((step, at) => {
      const x = this.x(step.at);
      if (x < this.left || x - last < 14) return [];
      last = x;
      return [
        this.keep(`step${at}`, () => s("line", { class: "step" }), { x1: x, x2: x, y1: TOP - 4, y2: bottom }),
        this.text(`stepno${at}`, String(at + 1), { class: "stepno", x, y: 13 }),
      ];
    });
  }

  end(span) {
    return span.to ?? (this.now === null ? this.timeline.end : Math.max(this.now, span.from));
  }

  drawBars() {
    const order = ["serves", "waits", "holds", "paused", "down"];
    const spans = this.timeline.spans.slice().sort((a, b) => order.indexOf(a.doing) - order.indexOf(b.doing) || a.from - b.from);
    const drawn = [];
    const tokens = [];
    // Too thin to be told apart: the last bar of its kind and lane just becomes longer.
    const last = new Map();
    for (const span of spans) {
      const [x, to] = [this.x(span.from), this.x(this.end(span))];
      this.itemOfSpan(span);
      const kind = `${span.doing}${span.lane}`;
      const before = last.get(kind);
      if (before && to - x < 1.5 && x - before.to < 1.5) {
        before.to = Math.max(before.to, to);
        set(before.rect, "width", Math.max(1, before.to - before.x));
        continue;
      }
      if (to < 0 || x > this.left + this.plot + RIGHT) continue;
      const y = this.y(span.lane) + BAR.y;
      const thin = span.doing === "waits" ? 6 : 0;
      const box = { x, y: y + thin, width: Math.max(1.5, to - x), height: BAR.height - 2 * thin, rx: 3 };
      const item = `span${span.id}`;
      const rect = this.rect(`bar${span.id}`, { class: `bar ${span.doing}`, ...box, "data-item": item });
      drawn.push(rect);
      last.set(kind, { rect, x, to });
      if (HATCHED.includes(span.doing)) {
        drawn.push(this.rect(`fill${span.id}`, { ...box, fill: this.pattern(span.doing), "data-item": item }));
      } else if (span.doing === "holds" && span.token !== null && to - Math.max(x, this.left) > 96) {
        const at = Math.max(x, this.left) + 7;
        tokens.push(this.text(`token${span.id}`, t("token", { token: shortToken(span.token) }), { class: "token", x: at, y: y + 13 }));
      }
      if (span.doing === "holds" && span.to === null && span.until !== null && this.now !== null) {
        const until = this.x(span.until);
        drawn.push(this.rect(`lease${span.id}`, { class: "lease", x: to, y, width: Math.max(0, until - to), height: BAR.height }));
      }
    }
    return [...drawn, ...tokens];
  }

  drawOverlaps() {
    return this.timeline.overlaps.flatMap((overlap, at) => {
      const end = overlap.to ?? this.now ?? this.timeline.end;
      const [x, to] = [this.x(overlap.from), this.x(end)];
      if (to < 0 || x > this.left + this.plot + RIGHT) return [];
      const [top, bottom] = overlap.lanes.map((lane) => this.y(lane) + BAR.y);
      const width = Math.max(2, to - x);
      const item = `overlap${at}`;
      this.itemOfOverlap(overlap, item, end);
      const on = (lane, y) => [
        this.rect(`over${at}-${lane}`, { class: "bar overlap", x, y, width, height: BAR.height, rx: 2, "data-item": item }),
        this.rect(`hatch${at}-${lane}`, { x, y, width, height: BAR.height, rx: 2, fill: this.pattern("overlap"), "data-item": item }),
      ];
      const band = { x, y: top + BAR.height, width, height: bottom - top - BAR.height };
      // Where it can be read.
      const wide = Math.min(to, this.left + this.plot) - Math.max(x, this.left) > 76;
      const middle = (Math.min(to, this.left + this.plot) + Math.max(x, this.left)) / 2;
      const words = { class: "two", x: middle, y: (top + BAR.height + bottom) / 2 + 4 };
      return [
        this.rect(`band${at}`, { class: "band", ...band, "data-item": item }),
        this.rect(`bandhatch${at}`, { ...band, fill: this.pattern("band"), "data-item": item }),
        ...on(overlap.lanes[0], top),
        ...on(overlap.lanes[1], bottom),
        ...(wide ? [this.text(`two${at}`, t("two_holders"), words)] : []),
      ];
    });
  }

  /** What comes after the last that is known. */
  drawUnknown(bottom) {
    if (!this.unknown) return [];
    const x = Math.max(this.x(this.now), this.left);
    const width = Math.max(0, this.left + this.plot + RIGHT - x);
    return [this.rect("unknown", { class: "unknown", x, y: TOP, width, height: bottom - TOP, fill: this.pattern("unknown") })];
  }

  drawSigns() {
    return this.timeline.lanes.flatMap((lane) => {
      const marks = this.timeline.marks
        .map((mark, id) => ({ ...mark, id }))
        .filter((mark) => mark.lane === lane.id)
        .sort((a, b) => a.at - b.at);
      const groups = [];
      for (const mark of marks) {
        const x = this.x(mark.at);
        const last = groups.at(-1);
        // Many of one kind in one place are one sign with a number.
        if (last?.marks[0].kind === mark.kind && x - last.x < APART) last.marks.push(mark);
        else groups.push({ x, marks: [mark] });
      }
      const right = this.left + this.plot + RIGHT;
      const seen = groups.filter(({ x }) => x >= this.left - 8 && x <= right);
      // Signs make room for each other: first to the right, and from the edge back again.
      let free = -Infinity;
      for (const group of seen) {
        group.width = APART + (group.marks.length > 1 ? 14 : 0);
        group.shown = Math.max(group.x, free);
        free = group.shown + group.width;
      }
      free = right + APART - 8;
      for (const group of seen.toReversed()) {
        group.shown = Math.min(group.shown, free - group.width);
        free = group.shown;
      }
      return seen.flatMap(({ x, shown, marks }) => this.drawSign(marks, x, shown, this.y(lane.id)));
    });
  }

  drawSign(marks, x, shown, y) {
    const [{ id, kind }] = marks;
    const item = `mark${id}`;
    this.items.push({ key: item, at: marks[0].at, lane: marks[0].lane, x: shown, y: y + SIGN_Y + 8, told: () => toldMarks(this, marks) });
    const group = this.keep(`sign${id}`, () => s("g", { "data-item": item }, s("circle", { class: "touch", r: 9 }), sign(kind)));
    set(group, "transform", `translate(${shown} ${y + SIGN_Y})`);
    const thread = this.keep(`thread${id}`, () => s("path", { class: "thread" }));
    set(thread, "d", `M${shown} ${y + SIGN_Y + 7}L${x} ${y + BAR.y}V${y + BAR.y + BAR.height}`);
    const number = marks.length > 1 ? [this.text(`many${id}`, `×${marks.length}`, { class: "many", x: shown + 8, y: y + SIGN_Y + 4 })] : [];
    return [thread, group, ...number];
  }

  drawAxis(bottom) {
    const { start, end } = this.viewport;
    const rough = ((end - start) / this.plot) * 90;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
    const drawn = [this.keep("axis", () => s("line", { class: "axis" }), { x1: this.left, x2: this.left + this.plot + RIGHT, y1: bottom, y2: bottom })];
    for (let n = Math.ceil((start - this.zero) / step); n * step + this.zero <= end; n += 1) {
      const x = this.x(n * step + this.zero);
      // A number that would be cut off says nothing.
      if (x < this.left + 2 || x > this.left + this.plot - 6) continue;
      drawn.push(
        this.keep(`tick${n * step}`, () => s("line", { class: "axis" }), { x1: x, x2: x, y1: bottom, y2: bottom + 5 }),
        this.text(`at${n * step}`, this.label(n * step, step), { class: "at", x, y: bottom + 18 }),
      );
    }
    return drawn;
  }

  label(us, step) {
    if (step >= 100_000) return `${(us / 1e6).toFixed(step >= 1e6 ? 0 : 1)} ${t("s")}`;
    return `${(us / 1000).toFixed(step >= 1000 ? 0 : 1)} ${t("ms")}`;
  }

  /** A moment, from the start of the story. */
  moment(at) {
    return duration((at - this.zero) / 1000);
  }

  name(lane) {
    return this.timeline.lanes[lane]?.name ?? "?";
  }

  itemOfSpan(span) {
    const middle = (Math.max(span.from, this.viewport.start) + Math.min(this.end(span), this.viewport.end)) / 2;
    this.items.push({
      key: `span${span.id}`,
      at: span.from,
      lane: span.lane,
      x: this.x(Math.max(span.from, middle)),
      y: this.y(span.lane) + BAR.y + BAR.height,
      told: () => toldSpan(this, span),
    });
  }

  itemOfOverlap(overlap, key, end) {
    this.items.push({
      key,
      at: overlap.from,
      lane: overlap.lanes[0],
      under: overlap.lanes[1],
      x: this.x((overlap.from + end) / 2),
      y: this.y(overlap.lanes[1]) + BAR.y + BAR.height,
      told: () => [
        t("both_believed", { a: this.name(overlap.lanes[0]), b: this.name(overlap.lanes[1]) }),
        between(this, overlap.from, overlap.to),
      ],
    });
  }

  hover(event) {
    const key = event.target.closest?.("[data-item]")?.dataset.item ?? null;
    this.point(key);
  }

  /** Shows what is known about an item; null for none. */
  point(key) {
    this.active = key;
    this.drawTip();
  }

  drawTip() {
    const item = this.items.find((item) => item.key === this.active);
    for (const element of this.svg.querySelectorAll(".active")) element.classList.remove("active");
    this.tip.hidden = !item;
    if (!item) return;
    for (const element of this.svg.querySelectorAll(`[data-item="${item.key}"]`)) element.classList.add("active");
    const [title, ...lines] = item.told().filter(Boolean);
    place(this.tip, [h("strong", {}, title), ...lines.map((line) => h("div", {}, line))]);
    const width = this.stage.clientWidth;
    const half = this.tip.offsetWidth / 2;
    const x = Math.min(Math.max(item.x, half + 4), Math.max(half + 4, width - half - 4));
    this.tip.style.left = `${x - half}px`;
    // Not over the lane below, which is the one to compare with.
    const isLast = (item.under ?? item.lane) === this.timeline.lanes.length - 1;
    this.tip.style.top = `${isLast ? item.y + 6 : this.y(item.lane) - this.tip.offsetHeight - 2}px`;
  }

  key(event) {
    if (event.target !== this.stage || event.ctrlKey || event.metaKey || event.altKey) return;
    const { viewport } = this;
    const some = (viewport.end - viewport.start) / 5;
    const acts = {
      "+": () => viewport.zoom(0.6),
      "=": () => viewport.zoom(0.6),
      "-": () => viewport.zoom(1 / 0.6),
      0: () => viewport.all(),
      ArrowLeft: () => (event.shiftKey ? viewport.pan(-some) : this.next(-1)),
      ArrowRight: () => (event.shiftKey ? viewport.pan(some) : this.next(1)),
      Home: () => this.next(-Infinity),
      End: () => this.next(Infinity),
      Escape: () => this.point(null),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
    this.draw();
  }

  /** Goes on to the next item, and says what it is. */
  next(by) {
    if (!this.items.length) return;
    const at = this.items.findIndex((item) => item.key === this.active);
    const to = at < 0 && by === 1 ? 0 : Math.min(Math.max(at + by, 0), this.items.length - 1);
    const item = this.items[to];
    this.viewport.reveal(item.at);
    this.active = item.key;
    say(this.spoken, item.told().filter(Boolean).join(". "));
  }
}

/** When the story begins: with the first that is said, or lasts. */
function startOf(timeline) {
  let start = timeline.steps[0]?.at ?? null;
  for (const { from } of timeline.spans) if (start === null || from < start) start = from;
  return start;
}

function between(timeline, from, to) {
  const end = to ?? timeline.now ?? timeline.timeline.end;
  return t("from_to", { from: timeline.moment(from), to: timeline.moment(end), lasted: duration((end - from) / 1000) });
}

function toldSpan(timeline, span) {
  return [
    `${timeline.name(span.lane)}: ${t(span.doing)}`,
    span.to === null && timeline.now !== null ? t("since", { from: timeline.moment(span.from) }) : between(timeline, span.from, span.to),
    span.token !== null && t("token", { token: span.token }),
    span.until !== null && `${t("until")} ${timeline.moment(span.until)}`,
  ];
}

/** The token that a stock had seen, and whose it is. */
function seenToken(timeline, token) {
  const hold = timeline.timeline.spans.find((span) => span.token === token);
  return hold ? t("seen_token_of", { token, name: timeline.name(hold.lane) }) : t("seen_token", { token });
}

function toldMarks(timeline, marks) {
  const [mark] = marks;
  const what = `${timeline.name(mark.lane)}: ${t(wordOf(mark.kind))}`;
  if (marks.length > 1) return [what, t("times", { count: marks.length }), between(timeline, mark.at, marks.at(-1).at)];
  return [
    what,
    t("at", { at: timeline.moment(mark.at) }),
    mark.left !== undefined && t("left_in_stock", { left: mark.left }),
    mark.token !== undefined && t(mark.kind === "refused" ? "showed_token" : "token", { name: timeline.name(mark.lane), token: mark.token }),
    mark.seen !== undefined && seenToken(timeline, mark.seen),
    mark.note,
  ];
}
