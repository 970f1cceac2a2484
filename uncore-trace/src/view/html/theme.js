// Dark or light.

const dark = matchMedia("(prefers-color-scheme: dark)");
/** Draws what has colours that the style does not set. */
let drawAgain = () => {};

/** `dark` or `light`; as the system has it where nothing is given. */
function setTheme(name) {
  const root = document.documentElement;
  root.dataset.theme = name;
  const isDark = name === "dark" || (name === "" && dark.matches);
  find("theme").textContent = isDark ? "Light" : "Dark";
  find("theme").dataset.next = isDark ? "light" : "dark";
  drawAgain();
}

/** As the system has it, until the button is used. */
function startTheme(draw) {
  drawAgain = draw;
  setTheme("");
  find("theme").addEventListener("click", () => setTheme(find("theme").dataset.next));
  dark.addEventListener("change", () => setTheme(document.documentElement.dataset.theme));
}

/** Paper is light. */
function printTheme(begins) {
  const root = document.documentElement;
  if (begins) root.dataset.before = root.dataset.theme;
  setTheme(begins ? "light" : root.dataset.before);
}
