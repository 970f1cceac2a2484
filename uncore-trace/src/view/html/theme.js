// Dark or light.

const dark = matchMedia("(prefers-color-scheme: dark)");
/** Redraws elements whose colours are not set by the style sheet. */
let drawAgain = () => {};

/** `dark` or `light`; the system's preference if nothing is given. */
function setTheme(name) {
  const root = document.documentElement;
  root.dataset.theme = name;
  const isDark = name === "dark" || (name === "" && dark.matches);
  find("theme").textContent = isDark ? "Light" : "Dark";
  find("theme").dataset.next = isDark ? "light" : "dark";
  drawAgain();
}

/** Follows the system's preference until the button is used. */
function startTheme(draw) {
  drawAgain = draw;
  setTheme("");
  find("theme").addEventListener("click", () => setTheme(find("theme").dataset.next));
  dark.addEventListener("change", () => setTheme(document.documentElement.dataset.theme));
}

/** Prints are light. */
function printTheme(begins) {
  const root = document.documentElement;
  if (begins) root.dataset.before = root.dataset.theme;
  setTheme(begins ? "light" : root.dataset.before);
}
