// Before anything is drawn: colours and language as chosen, or as the browser has them. The only script that is no module.
(() => {
  const root = document.documentElement;
  let chosen = {};
  try {
    chosen = JSON.parse(localStorage.getItem("lockkeeper")) ?? {};
  } catch {
    // Nothing was chosen, or nothing may be remembered here.
  }
  const languages = navigator.languages?.length ? navigator.languages : [navigator.language ?? "en"];
  const first = languages.find((language) => /^(en|zh)\b/i.test(language)) ?? "en";
  root.dataset.theme = ["light", "dark"].includes(chosen.theme) ? chosen.theme : "auto";
  root.lang = ["en", "zh"].includes(chosen.language) ? chosen.language : first.slice(0, 2).toLowerCase();
})();
