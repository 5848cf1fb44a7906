// A store's locks, as they come and go. Names, programs and labels are text of others, and shown as text.

import { h, place, rich, say, set, visible } from "./dom.js";
import { feed } from "./feed.js";
import { asOf, clock, counting, duration, number, shortToken } from "./format.js";
import { histogram } from "./histogram.js";
import { t } from "./words.js";

const FRAME_MS = matchMedia("(prefers-reduced-motion: reduce)").matches ? 1000 : 100;

const COLUMNS = ["name", "holder", "mode", "depth", "age", "remaining", "waiters", "token"];

/** Fills `main`, and answers how to leave. */
export function locks(main, lab, told, route) {
  let wanted = route().wanted;
  const summary = h("p", { class: "status", id: "summary" }, t("locks_looking"));
  const looked = h("span", { class: "muted" });
  const trouble = h("p", { class: "notice", role: "alert", hidden: true });
  const filter = h("input", { type: "search", id: "filter", value: wanted, "aria-label": t("filter"), placeholder: t("filter"), autocomplete: "off", spellcheck: "false" });
  const body = h("tbody", {});
  // On Redis a lock of another client is a key like any other: only one that is fenced has a key of a known name.
  const isPartial = /^red(is|iss|lock)\b/.test(lab.store);
  const none = h("div", { class: "none", hidden: true }, h("p", {}, isPartial ? t("locks_none_found") : t("locks_none")), h("p", { class: "muted" }, t("locks_try"), " ", h("code", {}, hint(lab.store))));
  const nothing = h("p", { class: "none", hidden: true, id: "no-match" });
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
      isPartial && h("p", { class: "muted", id: "unlisted" }, rich(t("locks_unlisted"))),
      trouble,
      h("div", { class: "over" }, summary, looked, filter),
      table,
      none,
      nothing,
      more,
      charts,
      h("p", { class: "note" }, rich(t("histogram_how"))),
    ),
  ]);

  // Rows of holders and of queues, in the order they are shown.
  let rows = new Map();
  let last = null;
  // Whether the last look is all that is known.
  let old = false;
  let counted = "";
  const draw = () => {
    if (!last) return;
    const shown = last.locks.filter((lock) => matches(lock, wanted));
    const hidden = last.locks.length - shown.length;
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
      if (lock.queue.length) {
        const key = `queue ${lock.name}`;
        const queue = before.get(key) ?? new Queue();
        queue.update(lock, last.arrived);
        rows.set(key, queue);
      }
    }
    place(body, [...rows.values()].map((row) => row.element));
    table.hidden = rows.size === 0;
    // A column of dashes only takes room.
    table.classList.toggle("no-depth", !shown.some((lock) => lock.holders.some((holder) => holder.depth !== null)));
    none.hidden = last.locks.length > 0;
    nothing.hidden = hidden === 0 || shown.length > 0;
    say(nothing, nothing.hidden ? "" : t("locks_no_match", { wanted: visible(wanted), hidden: number(hidden) }));
    say(more, last.more ? t("locks_more", { count: number(last.more) }) : "");
    const held = shown.filter((lock) => lock.holders.length).length;
    const waited = shown.reduce((sum, lock) => sum + lock.waiters, 0);
    say(summary, t(hidden ? "locks_summary_hidden" : "locks_summary", { held: number(held), waited: number(waited), hidden: number(hidden) }));
    tellAge();
    const key = JSON.stringify([last.held, last.waited]);
    if (key !== counted) {
      counted = key;
      place(charts, [histogram(t("held_times"), last.held), histogram(t("wait_times"), last.waited)]);
    }
  };
  const tellAge = () => {
    say(looked, old ? asOf(last.arrived) : t("locks_looked", { at: clock(last.at_unix_ms), every: duration(last.every_ms) }));
  };
  const freeze = (frozen) => {
    old = frozen;
    table.classList.toggle("old", frozen);
    if (last) tellAge();
  };
  const alive = (alive) => {
    told.alive(alive);
    // It is true again with the next look.
    if (!alive) freeze(true);
  };
  const heard = (message) => {
    trouble.hidden = message.kind !== "unavailable";
    if (message.kind === "unavailable") {
      freeze(true);
      place(trouble, [h("strong", {}, t("locks_unavailable")), " ", h("bdi", {}, visible(message.message))]);
      return;
    }
    last = { ...message, arrived: performance.now() };
    freeze(false);
    draw();
  };
  filter.addEventListener("input", () => {
    wanted = filter.value;
    // No step of the history for each letter.
    history.replaceState(null, "", wanted ? `#/locks?${new URLSearchParams({ q: wanted })}` : "#/locks");
    draw();
  });
  const hash = () => {
    if (route().view !== "locks") return;
    wanted = route().wanted;
    filter.value = wanted;
    draw();
  };
  addEventListener("hashchange", hash);
  const timer = setInterval(() => {
    if (!old) rows.forEach((row) => row.tick());
    else if (last) tellAge();
  }, FRAME_MS);
  const hangUp = feed("/api/locks/events", heard, alive);
  return () => {
    hangUp();
    clearInterval(timer);
    removeEventListener("hashchange", hash);
  };
}

/** Whether a lock has this in its name, or in what is told of those who hold it or wait. */
function matches(lock, wanted) {
  const told = ({ host, label, ...of }) => [processOf(of), host ?? "", label ?? "", modeOf(of)];
  const all = [lock.name, ...[...lock.holders, ...lock.queue].flatMap(told)];
  const fold = (text) => text.normalize("NFKC").toLowerCase();
  return all.some((text) => fold(text).includes(fold(wanted)));
}

/** A command that works on the same store. The variable may hold a password, which is starred here. */
const hint = (store) => `LOCKKEEPER_STORE='${visible(store).replaceAll("'", "'\\''")}' lockkeeper run hello -- sleep 30`;

/** A program, and its process id where that is known. */
const processOf = ({ program, pid }) => (pid === null ? program || "?" : `${program || "?"}[${pid}]`);

/** A process, with its label before it if it has one. */
function who(of) {
  const host = h("span", { class: "muted" }, of.host === null ? t("on_unknown_host") : t("on_host", { host: visible(of.host) }));
  const named = h("span", {}, h("bdi", {}, visible(processOf(of))), " ", host);
  return of.label === null ? [named] : [h("bdi", { class: "label" }, visible(of.label)), named];
}

function modeOf(of) {
  const [count, limit] = of.permits ?? [];
  return t(`mode_${of.mode}`, { count, limit });
}

/** Those who wait for a lock, in order. */
class Queue {
  constructor() {
    this.waiters = new Map();
    this.list = h("ol", { class: "waiting", "aria-label": t("queue") });
    this.more = h("p", { class: "muted" });
    const cell = h("td", { colspan: COLUMNS.length, "data-label": t("queue") }, this.list, this.more);
    this.element = h("tr", { class: "queue" }, cell);
  }

  update(lock, arrived) {
    const before = this.waiters;
    this.waiters = new Map();
    for (const waiter of lock.queue) {
      const shown = before.get(waiter.claim) ?? this.waits(waiter);
      this.waiters.set(waiter.claim, { ...shown, waiter });
    }
    place(this.list, [...this.waiters.values()].map(({ element }) => element));
    const more = lock.waiters - lock.queue.length;
    say(this.more, more > 0 ? t("queue_more", { count: number(more) }) : "");
    this.arrived = arrived;
    this.tick();
  }

  waits(waiter) {
    const age = h("span", { class: "age muted" });
    const mode = h("span", { class: "muted" }, modeOf(waiter));
    return { age, element: h("li", {}, h("div", {}, h("span", {}, who(waiter)), mode, age)) };
  }

  tick() {
    const passed = performance.now() - this.arrived;
    for (const { waiter, age } of this.waiters.values()) {
      say(age, waiter.age_ms === null ? "" : t("waits_for", { time: counting(waiter.age_ms + passed) }));
    }
  }
}

// Keepers renew at a third of the lease, so that two thirds are left.
const OVERDUE = 0.5;
const ENDING = 0.1;

class Row {
  constructor(lock, holder) {
    this.cells = Object.fromEntries(COLUMNS.map((name) => [name, h("td", { class: name, "data-label": t(`col_${name}`) })]));
    this.left = h("span", { class: "left" });
    this.state = h("span", { class: "state-of-lease" });
    this.meter = h("span", { class: "meter", "aria-hidden": "true" }, h("span", {}));
    const { cells } = this;
    place(cells.name, [h("bdi", {}, visible(lock.name))]);
    if (holder) {
      place(cells.holder, [h("span", {}, who(holder))]);
      place(cells.remaining, [h("span", {}, this.left, " ", this.state), this.meter]);
      say(cells.mode, modeOf(holder));
      if (holder.token === null) {
        say(cells.token, t("unknown"));
      } else {
        const whole = String(holder.token);
        place(cells.token, [h("span", { class: "short", title: whole }, shortToken(holder.token)), h("span", { class: "whole" }, whole)]);
      }
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
    // They wait for the lock, not for one of its holders.
    say(this.cells.waiters, first ? number(lock.waiters) : "");
    if (holder?.depth) say(this.cells.depth, number(holder.depth));
    this.tick();
  }

  /** Time passes also between two looks. */
  tick() {
    if (!this.holder) return;
    const passed = performance.now() - this.arrived;
    const left = this.holder.remaining_ms === null ? null : Math.max(0, this.holder.remaining_ms - passed);
    say(this.cells.age, this.holder.age_ms === null ? t("unknown") : counting(this.holder.age_ms + passed));
    say(this.left, left === null ? t("no_end") : counting(left));
    const whole = this.holder.ttl_ms;
    this.meter.hidden = !whole || left === null;
    if (!whole || left === null) return;
    const share = Math.min(1, left / whole);
    const state = share < ENDING ? "ending" : share < OVERDUE ? "overdue" : "";
    this.meter.firstChild.style.width = `${share * 100}%`;
    set(this.cells.remaining, "data-lease", state || null);
    set(this.cells.remaining, "title", t("lease_of", { whole: duration(whole) }));
    say(this.state, state && t(`lease_${state}`));
  }
}
