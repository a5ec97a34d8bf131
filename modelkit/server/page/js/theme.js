// Light, dark, or as the system has it. A classic script in the head: it runs before anything is drawn (and so has no
// local.js). Where the browser allows no storage, a choice holds until the page is closed.

(() => {
  const NAMES = { "": "Auto", light: "Light", dark: "Dark" };
  const set = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };
  const kept = () => {
    try {
      return localStorage.getItem("modelkit.theme");
    } catch {
      return "";
    }
  };
  const keep = (theme) => {
    try {
      localStorage.setItem("modelkit.theme", theme);
    } catch {
      // it is drawn all the same
    }
  };
  let theme = kept();
  if (!(theme in NAMES)) theme = "";
  set(theme);
  const say = (button) => {
    button.setAttribute("aria-label", `Colours: ${NAMES[theme]}`);
    button.querySelector("#theme-name").textContent = NAMES[theme];
  };
  addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    say(button);
    button.addEventListener("click", () => {
      const order = Object.keys(NAMES);
      theme = order[(order.indexOf(theme) + 1) % order.length];
      keep(theme);
      set(theme);
      say(button);
    });
  });
})();
