// The chapters: a list of them, and the one that is looked at.

import { h, place, rich, say, set, visible } from "./dom.js";
import { act, feed } from "./feed.js";
import { figures } from "./figures.js";
import { asOf } from "./format.js";
import { goesOn, Model } from "./model.js";
import { Side } from "./side.js";
import { Viewport } from "./viewport.js";
import { pick, t } from "./words.js";

/** How often a side that goes on is drawn; seldom where motion is not wanted. */
const FRAME_MS = matchMedia("(prefers-reduced-motion: reduce)").matches ? 500 : 40;

/** Which part of each timeline is looked at; stays when the language changes. */
const viewports = new Map();

/** Fills `main`, and answers how to leave. */
export function laboratory(main, lab, told, route) {
  const model = new Model();
  const entries = new Map(lab.chapters.map((chapter) => [chapter.id, entry(chapter)]));
  const runAll = h("button", { type: "button", id: "run-all" });
  pressed(runAll, async () => told.answered(await act(anything() ? "/api/lab/cancel" : "/api/lab/run")));
  const anything = () => model.running !== null || model.queued.length > 0;
  const detail = h("div", { class: "detail" });
  place(main, [
    h(
      "div",
      { class: "lab" },
      h(
        "aside",
        {},
        h("nav", { "aria-label": t("chapters") }, h("ol", { class: "chapters" }, [...entries.values()].map((entry) => entry.item))),
        runAll,
        h("p", { class: "note" }, t("one_at_a_time")),
      ),
      detail,
    ),
  ]);

  let shown = null;
  const choose = () => {
    const wanted = route().chapter;
    const chapter = wanted === null ? lab.chapters[0] : lab.chapters.find(({ id }) => String(id) === wanted);
    shown = chapter ? opened(chapter, model, told, wanted === null) : unheardOf(wanted);
    place(detail, [shown.element]);
    update();
  };
  const update = () => {
    say(runAll, t(anything() ? "cancel_all" : "run_all"));
    runAll.disabled = anything() && model.known !== null;
    for (const chapter of lab.chapters) entries.get(chapter.id).update(stateOf(model, chapter), shown?.id === chapter.id);
    shown?.update();
    document.title = `${shown?.title() ?? t("laboratory")} – Lockkeeper`;
  };

  // Many messages come at once when a chapter begins, and all of them when the page does.
  let due = false;
  const heard = (message) => {
    model.hear(message);
    if (due) return;
    due = true;
    queueMicrotask(() => {
      due = false;
      if (model.ready) update();
    });
  };
  const timer = setInterval(() => model.running === shown?.id && shown.tick(), FRAME_MS);
  const alive = (alive, known) => {
    told.alive(alive);
    // What it knew is as old as its last word, until all is told anew.
    if (!alive) {
      model.known = known;
      if (model.ready) update();
    }
  };
  const hash = () => {
    if (route().view !== "lab") return;
    choose();
    // Only if it is not in view anyhow: on a phone it is below the list.
    const { top } = detail.getBoundingClientRect();
    if (top < 0 || top > innerHeight / 2) detail.scrollIntoView();
  };
  addEventListener("hashchange", hash);
  choose();
  const hangUp = feed("/api/lab/events", heard, alive);
  return () => {
    hangUp();
    clearInterval(timer);
    removeEventListener("hashchange", hash);
  };
}

/** How long a button that has been pressed takes no further press: it means something else by then. */
const DOUBLE_CLICK_MS = 600;

/** Does something when a button is pressed, once for a double click. */
function pressed(button, act) {
  button.addEventListener("click", () => {
    if (button.hasAttribute("aria-disabled")) return;
    set(button, "aria-disabled", "true");
    setTimeout(() => set(button, "aria-disabled", null), DOUBLE_CLICK_MS);
    act();
  });
}

/** A chapter in a word: what the list shows. */
function stateOf(model, { id, missing }) {
  if (model.running === id) return model.known === null ? "running" : "unknown";
  if (model.queued.includes(id)) return "queued";
  const { status, ended } = model.chapter(id);
  if (status === "ended") return isGood(ended) ? "good" : "bad";
  if (status === "could_not") return "bad";
  return status === "not_run" || missing ? "missing" : "idle";
}

function entry(chapter) {
  const state = h("span", { class: "state" });
  const words = h("span", { class: "unseen" });
  const link = h(
    "a",
    { href: `#/lab/${chapter.id}` },
    h("span", { class: "number" }, String(chapter.id)),
    h("span", { class: "title" }, pick(chapter.title)),
    state,
    words,
  );
  const update = (now, current) => {
    state.className = `state ${now}`;
    say(words, `(${t(`state_${now}`)})`);
    set(link, "aria-current", current && "true");
  };
  return { item: h("li", {}, link), update };
}

/** What is shown where an address names no chapter. */
function unheardOf(wanted) {
  const told = () => t("no_such_chapter", { chapter: visible(wanted) });
  const element = h("article", { tabindex: -1 }, h("h1", {}, told()));
  return { id: null, element, title: told, update: () => {}, tick: () => {} };
}

/** Signs for the title of a tab. */
const SIGN_OF = { running: "▶", unknown: "?", queued: "…", good: "✓", bad: "!", missing: "–", idle: "" };

/** The chapter that is looked at. */
function opened(chapter, model, told, introduced) {
  const { id } = chapter;
  const isDue = () => model.running === id || model.queued.includes(id);
  const toggle = h("button", { type: "button", class: "primary", id: "run" });
  pressed(toggle, async () => told.answered(await act(`/api/lab/${id}/${isDue() ? "cancel" : "run"}`)));
  const doing = h("span", {});
  // The verdict is read elsewhere, and said here.
  const said = h("span", { class: "unseen" });
  const status = h("p", { class: "status", role: "status", id: "status" }, doing, said);
  const old = h("span", { class: "muted old" });
  const verdict = h("section", { class: "verdict", id: "verdict", hidden: true, "aria-label": t("verdict") });
  const numbers = h("section", { id: "numbers" });
  const viewport = (side) => {
    const key = `${id}-${side}`;
    if (!viewports.has(key)) viewports.set(key, new Viewport());
    return viewports.get(key);
  };
  const sides = [
    new Side("naive", chapter.naive, viewport("naive")),
    new Side("ours", chapter.ours, viewport("ours")),
  ];
  const element = h(
    "article",
    { "data-chapter": id, tabindex: -1 },
    introduced && h("section", { class: "intro" }, h("h1", {}, t("intro_title")), h("p", {}, t("intro"))),
    h("p", { class: "above" }, t("chapter", { id })),
    h(introduced ? "h2" : "h1", { class: "heading" }, pick(chapter.title)),
    h("p", { class: "why" }, rich(pick(chapter.why))),
    chapter.missing && h("p", { class: "lacks" }, h("strong", {}, t("status_not_run")), " ", pick(chapter.missing)),
    h("div", { class: "actions" }, toggle, status, old),
    verdict,
    sides.map((side) => side.element),
    numbers,
  );
  let figuresOf = null;
  const update = () => {
    const known = model.shown(id);
    const again = known.status === "ended" || known.status === "cancelled";
    say(toggle, t(isDue() ? "cancel" : again ? "run_again" : "run"));
    toggle.classList.toggle("primary", !isDue());
    toggle.disabled = isDue() ? model.known !== null : Boolean(chapter.missing);
    const sentences = verdictOf(known);
    say(doing, statusOf(model, id));
    say(said, sentences.map((sentence) => ` ${sentence}`).join(""));
    for (const side of sides) side.update(known, model.known);
    tellAge();
    drawVerdict(verdict, known, sentences);
    const played = ["naive", "ours"].map((side) => known.sides[side]?.figures ?? []);
    const key = JSON.stringify(played);
    if (key !== figuresOf) {
      figuresOf = key;
      place(numbers, played.some((list) => list.length) ? [h("h2", {}, t("numbers")), figures(played)] : []);
    }
  };
  const tellAge = () => say(old, model.running === id && model.known !== null ? asOf(model.known) : "");
  const tick = () => {
    // Time does not pass in what is not known.
    if (model.known !== null) return tellAge();
    const known = model.shown(id);
    for (const side of sides) {
      const played = known.sides[side.name];
      if (played && goesOn(known, played)) side.update(known, null);
    }
  };
  const title = () => [id, SIGN_OF[stateOf(model, chapter)], pick(chapter.title)].filter(Boolean).join(" ");
  return { id, element, title, update, tick };
}

function statusOf(model, id) {
  const known = model.chapter(id);
  if (model.running === id) return t(known.side ? `status_running_${known.side}` : "status_starting");
  const place = model.queued.indexOf(id) + (model.running === null ? 0 : 1);
  if (model.queued.includes(id)) return place > 1 ? t("status_queued", { place }) : t("status_next");
  switch (known.status) {
    case "ended":
      return t("status_ended", { seconds: known.ended.seconds.toFixed(1) });
    case "cancelled":
      return t("status_cancelled");
    case "could_not":
      return t("status_could_not", { reason: pick(known.message) });
    case "not_run":
      return `${t("status_not_run")} ${pick(known.message)}`;
    default:
      return t("not_played_yet");
  }
}

const isGood = (ended) => ended.naive_failed && ended.ours_held;

/** In words, from what was told at the end: nothing is assumed. */
function verdictOf({ ended }) {
  if (!ended) return [];
  if (isGood(ended)) return [t("as_it_should")];
  return [!ended.naive_failed && t("naive_held"), !ended.ours_held && t("ours_failed")].filter(Boolean);
}

function drawVerdict(element, { ended }, sentences) {
  element.hidden = !ended;
  if (!ended) return;
  element.className = `verdict ${isGood(ended) ? "good" : "bad"}`;
  place(element, sentences.map((sentence) => h("p", {}, sentence)));
}
