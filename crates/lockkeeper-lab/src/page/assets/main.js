// The frame: two views, language and colours, and what is told about the server.

import { h, place, rich, set } from "./dom.js";
import { laboratory } from "./laboratory.js";
import { locks } from "./locks.js";
import { language, onLanguage, setLanguage, setTheme, theme } from "./settings.js";
import { t } from "./words.js";

const THEMES = ["auto", "light", "dark"];

const page = document.getElementById("page");
let lab = null;
let leave = () => {};

/** What the address names: a chapter, or the locks and which of them are wanted. */
function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [view, chapter] = path.split("/");
  const wanted = new URLSearchParams(query).get("q") ?? "";
  return { view: view === "locks" ? "locks" : "lab", chapter: chapter || null, wanted };
}

function frame() {
  leave();
  const { view } = route();
  document.title = `${t(view === "locks" ? "live_locks" : "laboratory")} – Lockkeeper`;
  const notice = h("p", { class: "notice", role: "alert", hidden: true });
  let gone = false;
  let refusal = null;
  const notify = () => {
    notice.hidden = !gone && refusal === null;
    place(notice, gone ? rich(t("server_gone")) : refusal === null ? [] : [t("refused", { reason: refusal })]);
  };
  const told = {
    /** Whether the server is there. */
    alive: (alive) => {
      gone = !alive;
      notify();
    },
    /** What came of a request: nothing reached the server, or it refused, or all is well. */
    answered: ({ reached, refused }) => {
      gone = !reached;
      if (reached) refusal = refused;
      notify();
    },
  };
  const main = h("main", { id: "main", tabindex: -1 });
  const link = (name, href, word) => h("a", { href, "aria-current": view === name && "page" }, t(word));
  place(page, [
    h("a", { class: "skip", href: "#main", onclick: (event) => (event.preventDefault(), (main.querySelector("article") ?? main).focus()) }, t("skip")),
    h(
      "header",
      {},
      h("a", { class: "brand", href: "#/lab" }, h("img", { src: "/icon.svg", alt: "", width: 22, height: 22 }), "Lockkeeper"),
      h("nav", { "aria-label": t("views") }, link("lab", "#/lab", "laboratory"), link("locks", "#/locks", "live_locks")),
      h("div", { class: "settings" }, languageButton(), themeButton()),
    ),
    notice,
    main,
  ]);
  leave = (view === "locks" ? locks : laboratory)(main, lab, told, route);
}

function languageButton() {
  const other = language() === "zh" ? "en" : "zh";
  return h(
    "button",
    { type: "button", class: "quiet", id: "language", lang: other, "aria-label": t("switch_language"), onclick: () => setLanguage(other) },
    t("other_language"),
  );
}

function themeButton() {
  const button = h("button", { type: "button", class: "quiet", id: "theme" });
  const told = () => {
    button.textContent = `◐ ${t(`theme_${theme()}`)}`;
    set(button, "aria-label", `${t("theme")}: ${t(`theme_${theme()}`)}`);
  };
  button.addEventListener("click", () => {
    setTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
    told();
  });
  told();
  return button;
}

async function load() {
  try {
    const answer = await fetch("/api/lab");
    lab = await answer.json();
  } catch {
    place(page, [h("p", { class: "notice", role: "alert" }, rich(t("server_gone")))]);
    setTimeout(load, 2000);
    return;
  }
  frame();
}

let shown = route().view;
addEventListener("hashchange", () => {
  // The laboratory follows its chapters by itself.
  if (lab && route().view !== shown) {
    shown = route().view;
    frame();
    document.getElementById("main").focus({ preventScroll: true });
  }
});
onLanguage(() => {
  if (!lab) return;
  frame();
  document.getElementById("language").focus();
});
load();
