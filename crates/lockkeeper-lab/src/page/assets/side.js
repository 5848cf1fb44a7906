// One side of a chapter: its lock, its timeline, what happened in words, what came of it.

import { h, place, say } from "./dom.js";
import { duration } from "./format.js";
import { goesOn } from "./model.js";
import { Timeline } from "./timeline.js";
import { pick, t } from "./words.js";

export class Side {
  constructor(name, lock, viewport) {
    this.name = name;
    this.badge = h("span", { class: "badge", hidden: true });
    const title = t(name === "naive" ? "naive_side" : "our_side");
    this.timeline = new Timeline(t("timeline_of", { side: title }), viewport);
    this.timeline.element.hidden = true;
    this.steps = h("ol", { class: "steps" });
    this.found = h("ul", { class: "found" });
    this.nothing = h("p", { class: "muted" });
    this.element = h(
      "section",
      { class: `side ${name}`, id: `side-${name}` },
      h("h2", {}, h("span", { class: "which" }, title), h("span", { class: "lock" }, pick(lock)), this.badge),
      this.nothing,
      this.found,
      this.timeline.element,
      this.steps,
    );
  }

  /** `known` is until when it is known, if the server is gone. */
  update(chapter, known) {
    const side = chapter.sides[this.name];
    this.timeline.element.hidden = !side;
    this.badge.hidden = !side?.verdict;
    this.nothing.hidden = Boolean(side);
    if (!side) {
      say(this.nothing, t(chapter.status === "started" ? "comes_next" : "not_played_yet"));
      place(this.steps, []);
      place(this.found, []);
      return;
    }
    const live = goesOn(chapter, side);
    const { timeline, verdict } = side;
    // A side that was cut short ends with the last that is known of it.
    const now = live ? ((known ?? performance.now()) - side.began) * 1000 : verdict ? null : lastOf(timeline);
    this.timeline.show(timeline, now, live && known !== null);
    if (verdict) this.judge(verdict);
    else place(this.found, []);
    this.tell(timeline, live);
  }

  judge(verdict) {
    const naive = this.name === "naive";
    const word = naive ? (verdict.held ? "did_not_fail" : "failed") : verdict.held ? "held" : "did_not_hold";
    say(this.badge, t(word));
    this.badge.className = `badge ${verdict.held ? "good" : "bad"}`;
    const told = verdict.found.map(pick);
    if (told.join() !== this.judged || !this.found.childNodes.length) {
      this.judged = told.join();
      place(this.found, told.map((text) => h("li", {}, text)));
    }
  }

  tell(timeline, live) {
    const key = `${timeline.steps.length}${live}${this.timeline.zero}`;
    if (key === this.told) return;
    this.told = key;
    const item = (step, at) =>
      h(
        "li",
        { class: live && at === timeline.steps.length - 1 && "now" },
        h("span", { class: "when" }, timeline.spans.length ? duration((step.at - this.timeline.zero) / 1000) : ""),
        h("span", {}, pick(step.text)),
      );
    place(this.steps, timeline.steps.map(item));
  }
}

function lastOf(timeline) {
  const times = [...timeline.spans.map((span) => span.to ?? span.from), ...timeline.marks.map((mark) => mark.at), ...timeline.steps.map((step) => step.at)];
  return Math.max(timeline.end, ...times);
}
