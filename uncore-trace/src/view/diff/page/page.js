// The page of a comparison: summary, overview of all links or events, and each by tenant.

/** Number of tenants of a table that are shown until all are requested. */
const FEW = 12;

/** `+6.6 GB/s` */
const signed = (value, unit) => (known(value) && value > 0 ? `+${rate(value, unit)}` : rate(value, unit));

/** `+1.2 … +6.6 GB/s`, both in the unit of the larger one. */
function between({ low, high }, unit) {
  if (!known(low) || !known(high)) return "–";
  const [size, name] = scaleOf(Math.max(Math.abs(low), Math.abs(high)), unit);
  const figure = (value) => (value > 0 ? "+" : "") + digits(value / size);
  return `${figure(low)} … ${figure(high)}${SPACE}${name}/s`;
}

const times = (value) => (known(value) ? `${digits(value)}${SPACE}x` : "–");

/** The sentences are the same as in the text output. */
const arrows = (text) => text.replaceAll(" -> ", " → ");

/** The columns after the name; `of` returns the value for sorting. */
const COLUMNS = [
  { head: "Before and after", className: "picture text", text: (it, { unit, most, peak }) => picture(it, most, peak, unit) },
  { head: "Before", of: ({ before }) => before.rate, text: (it, { unit }) => rate(it.before.rate, unit) },
  { head: "After", of: ({ after }) => after.rate, text: (it, { unit }) => rate(it.after.rate, unit) },
  { head: "Difference", of: ({ difference }) => difference, text: (it, { unit }) => signed(it.difference, unit) },
  { head: "90 % interval", className: "interval", of: ({ high }) => high, text: (it, { unit }) => between(it, unit) },
  { head: "Ratio", of: ({ ratio }) => ratio, text: ({ ratio }) => times(ratio) },
  { head: "Change", of: ({ verdict }) => verdict, text: ({ verdict }) => verdict ?? "–", className: "verdict text" },
];

/** A row: its name, which may be an element, and the columns. */
function row(name, change, way, className = "") {
  const cells = COLUMNS.map((column) => make("td", { className: column.className ?? "" }, column.text(change, way)));
  return make("tr", { className: `${kindOf(change)} ${className}`.trim() }, make("td", { className: "name" }, name), ...cells);
}

/** Largest first, names from A; unknown values come last in both directions. */
function compare(a, b, { of, down }) {
  const [x, y] = [of(a), of(b)];
  if (known(x) !== known(y) && typeof x !== "string" && typeof y !== "string") return known(x) ? -1 : 1;
  const order = typeof x === "string" && typeof y === "string" ? x.localeCompare(y) : (x ?? 0) - (y ?? 0);
  return down ? -order : order;
}

/** The table of a link or an event. */
function tenantsOf(way) {
  const table = make("table", {});
  const more = make("button", { type: "button", hidden: true }, `Show all ${way.tenants.length}`);
  const size = ({ difference }) => (known(difference) ? Math.abs(difference) : null);
  const sorting = { of: size, down: true, head: null };
  const heads = [{ head: DATA.by, of: ({ name }) => name, className: "text" }, ...COLUMNS];
  const show = () => {
    const sorted = [...way.tenants].sort((a, b) => compare(a, b, sorting));
    const shown = more.dataset.all ? sorted : sorted.slice(0, FEW);
    more.hidden = shown.length === sorted.length;
    const cells = heads.map(({ head, of, className }) => {
      if (!of) return make("th", { scope: "col", className: className ?? "" }, head);
      const isSorted = sorting.head === head;
      const mark = isSorted ? (sorting.down ? " ▼" : " ▲") : "";
      const button = make("button", { type: "button" }, head + mark);
      button.addEventListener("click", () => {
        sorting.down = isSorted ? !sorting.down : head !== DATA.by && head !== "Change";
        [sorting.of, sorting.head] = [of, head];
        show();
        table.querySelector(`th[aria-sort$="scending"] button`)?.focus();
      });
      return make("th", { scope: "col", className: className?.includes("text") ? "text" : "",
        "aria-sort": isSorted ? (sorting.down ? "descending" : "ascending") : "none" }, button);
    });
    table.replaceChildren(make("thead", {}, make("tr", {}, ...cells)),
      make("tbody", {}, row("all together", way.total, way, "total"), ...shown.map((it) => row(it.name, it, way))));
  };
  more.addEventListener("click", () => {
    more.dataset.all = "1";
    show();
  });
  show();
  return [make("div", { className: "wide" }, table), more];
}

function card(way, place) {
  const notes = way.notes.map((note) => make("p", { className: "hint" }, note));
  const peak = known(way.peak) && way.peak <= way.most
    ? [make("p", { className: "hint" }, `The dashed line is the peak, ${rate(way.peak, way.unit)}.`)] : [];
  const head = make("h3", {}, way.name, make("span", { className: "figures" }, arrows(way.said)));
  const rest = way.rest ? [make("p", { className: "muted" }, way.rest)] : [];
  return make("div", { className: "link", id: `way-${place}` }, head, ...notes, ...peak, ...tenantsOf(way), ...rest);
}

/** The totals; those with the same unit have the same scale. */
function showGlance() {
  find("overview").hidden = DATA.ways.length < 2;
  const rows = DATA.ways.map((way, place) => {
    const totals = DATA.ways.filter(({ unit }) => unit === way.unit).map(({ total }) => total);
    const link = make("a", { href: `#way-${place}` }, way.name);
    return row(link, way.total, { unit: way.unit, most: scaleOfChanges(totals, null), peak: null });
  });
  const head = COLUMNS.map(({ head, className }) => make("th", { scope: "col", className: className ?? "" }, head));
  find("glance").replaceChildren(make("thead", {}, make("tr", {}, make("th", {}), ...head)), make("tbody", {}, ...rows));
}

function start() {
  find("answer").textContent = arrows(DATA.answer.replace(/(\d) (?=[%A-Za-z])/g, `$1${SPACE}`));
  find("sides").replaceChildren(...DATA.sides.flatMap(({ word, called, length, lacks }) => [make("dt", {}, word),
    make("dd", {}, `${called}, ${length}`, lacks === null ? null : make("p", { className: "warning" }, lacks))]));
  find("notes").replaceChildren(...DATA.notes.map((note) => make("p", { className: "warning" }, note)));
  for (const way of DATA.ways) way.most = scaleOfChanges([way.total, ...way.tenants], way.peak);
  showGlance();
  find("ways").replaceChildren(...DATA.ways.map(card));
  startTheme(() => {});
  addEventListener("beforeprint", () => printTheme(true));
  addEventListener("afterprint", () => printTheme(false));
}

start();
