// Light, dark, or as the system has it. A classic script in the head: it runs before anything is drawn.

(() => {
  const NAMES = { "": "Auto", light: "Light", dark: "Dark" };
  const set = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };
  const kept = () => {
    const theme = localStorage.getItem("modelkit.theme") ?? "";
    return theme in NAMES ? theme : "";
  };
  set(kept());
  addEventListener("DOMContentLoaded", () => {
    const name = document.getElementById("theme-name");
    name.textContent = NAMES[kept()];
    document.getElementById("theme").addEventListener("click", () => {
      const order = Object.keys(NAMES);
      const next = order[(order.indexOf(kept()) + 1) % order.length];
      localStorage.setItem("modelkit.theme", next);
      name.textContent = NAMES[next];
      set(next);
    });
  });
})();
