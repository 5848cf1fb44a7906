// Language and colours: what is chosen, remembered in this browser.

const root = document.documentElement;
const listeners = new Set();

export const language = () => (root.lang === "zh" ? "zh" : "en");
export const theme = () => root.dataset.theme;

export function onLanguage(listener) {
  listeners.add(listener);
}

export function setLanguage(language) {
  root.lang = language;
  remember();
  for (const listener of listeners) listener();
}

export function setTheme(theme) {
  root.dataset.theme = theme;
  remember();
}

function remember() {
  try {
    localStorage.setItem("lockkeeper", JSON.stringify({ language: root.lang, theme: root.dataset.theme }));
  } catch {
    // It is as chosen until the page is left.
  }
}
