// The table of tenants.

/** All lines of all plots, with computed values. */
const LINES = DATA.plots.flatMap((plot, place) => plot.lines.map((line) => ({
  ...line, plot, place,
  share: plot.total > 0 && line.value !== null ? line.value / plot.total : null,
  average: line.value !== null && plot.seconds > 0 ? line.value / plot.seconds : null,
})));

/** Number of lines that are shown until all are requested. */
const FEW = 30;

/** The column of the sort, the plot of the lines, and whether all are shown. */
const sorting = { by: "share", down: true, plot: "", all: false };

const COLUMNS = [
  { by: "place", head: "Link or event", text: ({ plot }) => plot.name, first: "up" },
  { by: "name", head: "Tenant", first: "up" },
  { by: "value", head: "Value", text: ({ value, plot }) => human(value, plot.unit) },
  { by: "high", head: "90 % interval", text: ({ low, high, plot }) => range(low, high, plot.unit) },
  { by: "share", head: "Share", text: ({ share }) => percent(share) },
  { by: "average", head: "Average", text: ({ average, plot }) => rate(average, plot.unit) },
  { by: "peak", head: "Highest window", text: ({ peak, plot }) => rate(peak, plot.unit) },
  { by: "confidence", head: "Confidence", text: ({ confidence, least }) =>
    (known(confidence) ? `${confidence.toFixed(2)} (min ${least.toFixed(2)})` : "–") },
  { by: "methods", head: "Method", text: ({ methods }) => methods, first: "up" },
  { by: "missing", head: "Not known", text: ({ missing }) => String(missing), title: "Rows without a value" },
];

/** Whether any line has missing windows; if not, the column is left out. */
const shownColumns = () => COLUMNS.filter(({ by }) => by !== "missing" || LINES.some((line) => line.missing > 0));

function compare(a, b) {
  const [x, y] = [a[sorting.by], b[sorting.by]];
  // Unknown values come last in both directions.
  if (known(x) !== known(y) && typeof x !== "string" && typeof y !== "string") return known(x) ? -1 : 1;
  const order = typeof x === "string" ? x.localeCompare(y) : x - y;
  return (sorting.down ? -order : order) || a.place - b.place || (b.value ?? 0) - (a.value ?? 0);
}

function showLines() {
  const wanted = LINES.filter((line) => (sorting.plot === "" || line.place === Number(sorting.plot))
    && (state.tenant === null || line.tenant === state.tenant)).sort(compare);
  const shown = sorting.all ? wanted : wanted.slice(0, FEW);
  const heads = shownColumns().map((column) => {
    const sorted = sorting.by === column.by;
    const mark = sorted ? (sorting.down ? " ▼" : " ▲") : "";
    const button = make("button", { type: "button", title: column.title ?? "" }, column.head + mark);
    button.addEventListener("click", () => sortBy(column));
    return make("th", { scope: "col", className: column.first ? "text" : "",
      "aria-sort": sorted ? (sorting.down ? "descending" : "ascending") : "none" }, button);
  });
  const rows = shown.map((line) => {
    const cells = shownColumns().map((column) => {
      const its = { className: column.first ? "text" : "" };
      if (column.by !== "name") return make("td", its, column.text(line));
      const named = line.tenant === null ? line.name : tenantButton(line.tenant, line.name);
      return make("td", its, named);
    });
    return make("tr", {}, ...cells);
  });
  find("lines").replaceChildren(make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
  const more = find("more");
  more.hidden = wanted.length <= shown.length;
  more.textContent = `Show all ${wanted.length} lines`;
}

function sortBy({ by, first }) {
  sorting.down = sorting.by === by ? !sorting.down : first !== "up";
  sorting.by = by;
  showLines();
  find("lines").querySelector(`th[aria-sort$="scending"] button`)?.focus();
}

function startTable() {
  const options = DATA.plots.map((plot, place) => make("option", { value: String(place) }, plot.name));
  const select = find("of");
  select.append(make("option", { value: "" }, "everything"), ...options);
  select.addEventListener("change", () => {
    sorting.plot = select.value;
    showLines();
  });
  find("more").addEventListener("click", () => {
    sorting.all = true;
    showLines();
  });
  showLines();
}

/** Shows the lines of one plot. */
function linesOf(place) {
  sorting.plot = find("of").value = String(place);
  showLines();
  find("of").scrollIntoView({ block: "center" });
}
