// Shows all parts of the page, and updates them when the selection changes.

/** Shows a time span in all plots. */
function look(from, to) {
  const all = TIME.end - TIME.begin;
  const least = Math.min(all, 4 * TIME.bucket);
  const length = Math.min(all, Math.max(least, to - from));
  const middle = (from + to) / 2;
  state.from = Math.min(Math.max(TIME.begin, middle - length / 2), TIME.end - length);
  state.to = Math.min(TIME.end, state.from + length);
  const whole = length >= all * 0.9999;
  if (whole) [state.from, state.to] = [TIME.begin, TIME.end];
  hideTip();
  find("range").textContent = whole ? `all ${duration(all)}`
    : `${clock(state.from, length / 1000)} – ${clock(state.to, length / 1000)}, ${duration(length)}`;
  for (const id of ["farther", "earlier", "later", "whole"]) find(id).disabled = whole;
  find("closer").disabled = length <= least * 1.0001;
  CARDS.forEach(refresh);
  showAgain();
}

/** Zooms by a factor; the moment `around` stays at its place on the screen. */
function zoom(factor, around = (state.from + state.to) / 2) {
  look(around - (around - state.from) * factor, around + (state.to - around) * factor);
}

/** Moves to the time before or after. */
function shift(sign) {
  const by = sign * (state.to - state.from) / 2;
  look(state.from + by, state.to + by);
}

/** Shows one tenant alone; null: all. */
function single(tenant) {
  state.tenant = tenant === state.tenant ? null : tenant;
  find("only").hidden = state.tenant === null;
  if (state.tenant !== null) find("only-name").textContent = TENANTS[state.tenant].name;
  for (const button of document.querySelectorAll("button.tenant")) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.tenant) === state.tenant));
  }
  CARDS.forEach(refresh);
  showLines();
}

/** Redraws everything in the colours of the theme. */
function repaint() {
  readTheme();
  for (const canvas of document.querySelectorAll("canvas.swatch[data-tenant]")) paintSwatch(canvas);
  showGlance();
  showKey();
  CARDS.forEach(refresh);
}

/** The cards: those of a link below its name, the others one after the other. */
function startPlots() {
  const groups = new Map();
  DATA.plots.forEach((plot, place) => {
    const key = plot.link === null ? `event ${place}` : `link ${plot.link}`;
    groups.set(key, [...(groups.get(key) ?? []), { plot, place }]);
  });
  const idle = [];
  for (const members of groups.values()) {
    const link = members[0].plot.link === null ? null : DATA.links[members[0].plot.link];
    // Where nothing was counted all the time, a plot shows nothing.
    if (members.every(({ plot }) => plot.total === 0 && plot.known === undefined)) {
      idle.push(link ? link.name : members[0].plot.name);
      continue;
    }
    const section = make("div", { className: "link" });
    const anchors = members.map(({ place }) => make("a", { id: `plot-${place}`, className: "anchor" }));
    section.append(...anchors);
    if (link) section.append(linkHead(link, members, section));
    else section.append(...members.map(({ plot }) => card(plot).element));
    find("plots").append(section);
  }
  if (idle.length > 0) find("plots").append(make("p", { className: "muted" }, `Nothing was counted of: ${idle.join(", ")}`));
}

/** The heading of a link: its name, its tenants, and whether in and out are one plot. */
function linkHead(link, members, section) {
  const of = (direction) => members.find(({ plot }) => plot.direction === direction)?.plot;
  const [into, out] = [of("in"), of("out")];
  const box = make("div", { className: "cards" });
  let shown = [];
  const show = (plots) => {
    for (const its of shown) {
      its.u?.destroy();
      watcher.unobserve(its.element);
      CARDS.splice(CARDS.indexOf(its), 1);
    }
    // At the place of those that they replace, in the order of the page.
    shown = plots.map(card);
    box.replaceChildren(...shown.map((its) => its.element));
    CARDS.sort((a, b) => a.plot.place - b.plot.place);
  };
  const apart = members.map(({ plot }) => plot);
  const head = make("h3", {}, link.name);
  if (link.devices && !link.name.includes(link.devices)) head.append(make("span", { className: "muted" }, ` ${link.devices}`));
  if (into && out && link.together) {
    let sum = null;
    const rest = apart.filter((plot) => plot !== into && plot !== out);
    const button = make("button", { type: "button" });
    const set = (one) => {
      sum ??= one ? together(link, into, out) : null;
      button.textContent = one ? "In and out apart" : "In and out together";
      button.setAttribute("aria-pressed", String(one));
      show(one ? [sum, ...rest] : apart);
    };
    button.addEventListener("click", () => {
      set(button.getAttribute("aria-pressed") !== "true");
      showGlance();
    });
    head.append(button);
    // A peak of both directions limits their sum.
    set(link.peak !== null && !into.peak && !out.peak);
  } else {
    show(apart);
  }
  const full = link.full.filter((way) => way.full > 0).map((way) => {
    const who = way.fillers.map(([name, part]) => `${name} ${percent(part)}`).join(", ");
    return `${way.direction === "both" ? "In and out together" : way.direction === "in" ? "In" : "Out"} was above 80 % of the peak for ${duration(way.full)}: ${who}.`;
  });
  const words = full.length > 0 ? make("p", { className: "full" }, full.join(" ")) : null;
  section.append(head, ...(words ? [words] : []), box);
  return document.createDocumentFragment();
}

function start() {
  document.title = DATA.host === null ? "Who used what" : `${DATA.host}: who used what`;
  const span = `${duration(TIME.end - TIME.begin)}${TIME.begin > 0 ? ` from ${clock(TIME.begin)} on` : ""}`;
  find("when").textContent = [DATA.host, wall(TIME.begin, 0), span].filter(Boolean).join(" · ");
  // No line break between a figure and its unit.
  const [answer, more] = DATA.answer.map((text) => text.replace(/(\d) (?=[%A-Za-z])/g, `$1${SPACE}`));
  find("answer").textContent = answer;
  find("more-answer").textContent = more;
  find("incomplete").hidden = DATA.incomplete === null;
  find("incomplete").textContent = DATA.incomplete ?? "";
  find("made").textContent = "Made by uncore-trace. This page needs no network and loads nothing.";
  readTheme();
  showRecording();
  showAsk();
  showNotices();
  startTable();
  startPlots();
  startTheme(repaint);
  look(TIME.begin, TIME.end);
  find("closer").addEventListener("click", () => zoom(0.5));
  find("farther").addEventListener("click", () => zoom(2));
  find("earlier").addEventListener("click", () => shift(-1));
  find("later").addEventListener("click", () => shift(1));
  find("whole").addEventListener("click", () => look(TIME.begin, TIME.end));
  find("all").addEventListener("click", () => single(null));
  document.addEventListener("click", ({ target }) => {
    const button = target instanceof Element && target.closest("button.tenant");
    if (button) single(Number(button.dataset.tenant));
  });
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== width) CARDS.forEach(refresh);
    width = innerWidth;
  });
  addEventListener("beforeprint", () => print(true));
  addEventListener("afterprint", () => print(false));
}

/** A print has all plots. */
function print(begins) {
  for (const its of CARDS) its.near ||= begins;
  printTheme(begins);
}

start();
