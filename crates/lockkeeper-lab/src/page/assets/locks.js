// A store's locks, as they come and go. Names and programs are text of others, and shown as text.

import { h, place, rich, say, set, visible } from "./dom.js";
import { feed } from "./feed.js";
import { clock, counting, duration, number } from "./format.js";
import { histogram } from "./histogram.js";
import { t } from "./words.js";

const FRAME_MS = matchMedia("(prefers-reduced-motion: reduce)").matches ? 1000 : 100;

const COLUMNS = ["name", "holder", "mode", "depth", "age", "remaining", "waiters", "token"];

let wanted = "";

/** Fills `main`, and answers how to leave. */
export function locks(main, lab, told) {
  const summary = h("p", { class: "status", id: "summary" }, t("locks_looking"));
  const looked = h("span", { class: "muted" });
  const trouble = h("p", { class: "notice", role: "alert", hidden: true });
  const filter = h("input", { type: "search", id: "filter", value: wanted, "aria-label": t("filter"), placeholder: t("filter"), autocomplete: "off", spellcheck: "false" });
  const body = h("tbody", {});
  const none = h("div", { class: "none", hidden: true }, h("p", {}, t("locks_none")), h("p", { class: "muted" }, rich(t("locks_try"))));
  const more = h("p", { class: "muted" });
  const charts = h("div", { class: "charts" });
  const table = h(
    "table",
    { class: "locks" },
    h("thead", {}, h("tr", {}, COLUMNS.map((name) => h("th", { scope: "col", class: name }, t(`col_${name}`))))),
    body,
  );
  place(main, [
    h(
      "div",
      { class: "live" },
      h("h1", {}, t("locks_title")),
      h("p", { class: "store" }, t("locks_of"), " ", h("code", {}, h("bdi", {}, visible(lab.store))), " ", h("span", { class: "muted" }, rich(t("locks_how")))),
      trouble,
      h("div", { class: "over" }, summary, looked, filter),
      table,
      none,
      more,
      charts,
      h("p", { class: "note" }, rich(t("histogram_how"))),
    ),
  ]);

  let rows = new Map();
  let last = null;
  let counted = "";
  const draw = () => {
    if (!last) return;
    const shown = last.locks.filter((lock) => lock.name.includes(wanted));
    const before = rows;
    rows = new Map();
    for (const lock of shown) {
      // One row a holder; a lock that is only waited for has a row as well.
      const holders = lock.holders.length ? lock.holders : [null];
      holders.forEach((holder, at) => {
        const key = `${holder?.claim ?? ""} ${lock.name}`;
        const row = before.get(key) ?? new Row(lock, holder);
        row.update(lock, holder, at === 0, last.arrived);
        rows.set(key, row);
      });
    }
    place(body, [...rows.values()].map((row) => row.element));
    table.hidden = rows.size === 0;
    none.hidden = last.locks.length > 0;
    say(more, last.more ? t("locks_more", { count: number(last.more) }) : "");
    const held = last.locks.filter((lock) => lock.holders.length).length;
    const waited = last.locks.reduce((sum, lock) => sum + lock.waiters, 0);
    say(summary, t("locks_summary", { held: number(held), waited: number(waited) }));
    say(looked, t("locks_looked", { at: clock(last.at_unix_ms), every: duration(last.every_ms) }));
    const key = JSON.stringify([last.held, last.waited]);
    if (key !== counted) {
      counted = key;
      place(charts, [histogram(t("held_times"), last.held), histogram(t("wait_times"), last.waited)]);
    }
  };
  const heard = (message) => {
    trouble.hidden = message.kind !== "unavailable";
    if (message.kind === "unavailable") {
      place(trouble, [h("strong", {}, t("locks_unavailable")), " ", h("bdi", {}, visible(message.message))]);
      return;
    }
    last = { ...message, arrived: performance.now() };
    draw();
  };
  filter.addEventListener("input", () => {
    wanted = filter.value;
    draw();
  });
  const timer = setInterval(() => rows.forEach((row) => row.tick()), FRAME_MS);
  const hangUp = feed("/api/locks/events", heard, told.alive);
  return () => {
    hangUp();
    clearInterval(timer);
  };
}

class Row {
  constructor(lock, holder) {
    this.cells = Object.fromEntries(COLUMNS.map((name) => [name, h("td", { class: name, "data-label": t(`col_${name}`) })]));
    this.left = h("span", { class: "left" });
    this.meter = h("span", { class: "meter", "aria-hidden": "true" }, h("span", {}));
    this.longest = 0;
    const { cells } = this;
    place(cells.name, [h("bdi", {}, visible(lock.name))]);
    if (holder) {
      const who = `${holder.program || "?"}[${holder.pid}]`;
      const host = h("span", { class: "muted" }, t("on_host", { host: visible(holder.host) }));
      place(cells.holder, [h("span", {}, h("bdi", {}, visible(who)), " ", host)]);
      place(cells.remaining, [this.left, this.meter]);
      const [count, limit] = holder.permits ?? [];
      say(cells.mode, t(`mode_${holder.mode}`, { count, limit }));
      say(cells.token, String(holder.token));
      if (holder.depth === null) {
        say(cells.depth, "–");
        set(cells.depth, "title", t("depth_unknown"));
      }
    } else {
      say(cells.holder, t("free"));
      for (const name of ["mode", "depth", "age", "remaining", "token"]) say(cells[name], "–");
    }
    this.element = h("tr", {}, Object.values(cells));
  }

  update(lock, holder, first, arrived) {
    this.holder = holder;
    this.arrived = arrived;
    this.element.classList.toggle("again", !first);
    say(this.cells.waiters, number(lock.waiters));
    if (holder?.depth) say(this.cells.depth, number(holder.depth));
    this.tick();
  }

  /** Time passes also between two looks. */
  tick() {
    if (!this.holder) return;
    const passed = performance.now() - this.arrived;
    const left = Math.max(0, this.holder.remaining_ms - passed);
    this.longest = Math.max(this.longest, this.holder.remaining_ms);
    say(this.cells.age, counting(this.holder.age_ms + passed));
    say(this.left, counting(left));
    this.meter.firstChild.style.width = `${this.longest ? (left / this.longest) * 100 : 0}%`;
  }
}
