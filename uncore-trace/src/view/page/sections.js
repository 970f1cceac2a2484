// The sections beside the plots: overview, marks, the recording, and queries.

/** The list of the events that are marked in the plots. */
const MARKS = [
  ...(DATA.losses ?? []).filter(({ from }) => from !== null).map((lost) => ({
    kind: "loss", from: Math.max(lost.from, TIME.begin), to: lost.to ?? lost.from,
    text: lost.words,
  })),
  ...DATA.marks.map(([from, to, text]) => ({
    kind: "mark", from: Math.max(from, TIME.begin), to: to ?? from, label: text, text,
  })),
  ...DATA.cpus.map(([from, cpu, word]) => ({ kind: "cpu", from, to: from, text: `CPU ${cpu} ${word}` })),
];

/** A row for each plot: rate, percent of the peak, and tenants. */
function showGlance() {
  const plots = CARDS.map(({ plot }) => plot);
  const full = plots.some((plot) => plot.peak);
  const heads = [["", "text"], ["Who", "text"], ["Average", ""], ["Highest window", ""], ...(full ? [["Of the peak", ""]] : [])];
  const rows = plots.map((plot) => {
    const { mean, highest, parts } = seen(plot);
    const name = make("a", { href: `#plot-${plot.place}` }, plot.name);
    const part = plot.peak ? `${percent(mean / plot.peak.rate)}, at most ${percent(highest / plot.peak.rate)}` : "–";
    return make("tr", {}, make("th", { scope: "row", className: "text" }, name), make("td", { className: "text" }, bar(parts)),
      make("td", {}, rate(mean, plot.unit)), make("td", {}, rate(highest, plot.unit)), ...(full ? [make("td", {}, part)] : []));
  });
  const head = heads.map(([text, className]) => make("th", { scope: "col", className }, text));
  find("glance").replaceChildren(make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
}

/** A bar with the fractions of all tenants, and the names of the largest. */
function bar(areas) {
  const some = areas.filter(({ part }) => part > 0);
  const [width, height] = [180, 14];
  const canvas = make("canvas", { className: "parts", width: width * 2, height: height * 2 });
  canvas.setAttribute("aria-hidden", "true");
  const context = canvas.getContext("2d");
  let x = 0;
  for (const { tenant, part } of some) {
    context.fillStyle = fillOf(tenant, SHADES - 1, context);
    context.fillRect(x, 0, part * canvas.width, canvas.height);
    x += part * canvas.width;
  }
  const best = some.filter(({ tenant }) => TENANTS[tenant].kind === "tenant").sort((a, b) => b.part - a.part)[0];
  const words = best ? tenantButton(best.tenant, undefined, make("span", { className: "part" }, percent(best.part)))
    : make("span", { className: "muted" }, some.length > 0 ? "nobody is known" : "nothing");
  return make("span", { className: "who" }, canvas, words);
}

/** The legend of shades and colours. */
function showKey() {
  const sure = make("span", { className: "shades" });
  const tenant = TENANTS.findIndex(({ kind }) => kind === "tenant");
  for (let shade = 0; tenant >= 0 && shade < SHADES; shade++) {
    const canvas = make("canvas", { width: 32, height: 24, className: "swatch" });
    const context = canvas.getContext("2d");
    context.fillStyle = fillOf(tenant, shade, context);
    context.fillRect(0, 0, 32, 24);
    sure.append(canvas);
  }
  const windows = Math.round(TIME.bucket / TIME.window);
  const step = windows > 1
    ? `A step is ${duration(TIME.bucket)}, ${windows} windows: areas have their mean, the lines above and inside have the highest and the lowest window.`
    : `A step is a window, ${duration(TIME.bucket)}.`;
  const by = DATA.by === "owner" ? "kinds of owners" : `${DATA.by === "pid" ? "processes" : DATA.by === "comm" ? "names of processes" : `${DATA.by}s`}`;
  find("key").replaceChildren(`Tenants are ${by}. `, step, ...(tenant >= 0 ? [" Confidence: 0 ", sure, " 1."] : []));
}

function showNotices() {
  const rows = DATA.marks.map(([from, to, text]) =>
    ["mark", to === null ? clock(from) : `${clock(from)} – ${clock(to)}`, text, to === null ? "marked" : `marked, ${duration(to - from)}`]);
  if (DATA.more_marks > 0) rows.push(["muted", "", "", `and ${DATA.more_marks} more marks`]);
  for (const lost of DATA.losses ?? []) {
    const when = lost.from === null ? "–" : lost.to === null ? `from ${clock(lost.from)} on` : `${clock(lost.from)} – ${clock(lost.to)}`;
    rows.push(["loss", when, lost.words, ["counts or their owners are missing", lost.detail].filter(Boolean).join(": ")]);
  }
  for (const [at, cpu, word] of DATA.cpus) rows.push(["cpu", clock(at), `CPU ${cpu}`, word]);
  if (DATA.more_cpus > 0) rows.push(["muted", "", "", `and ${DATA.more_cpus} more changes of CPUs`]);
  const cells = ([kind, ...texts]) => texts.map((text, at) => make("td", { className: "text" },
    at === 0 && text !== "" ? make("span", { className: kind }, "▼ ") : null, text));
  const nothing = DATA.losses === null ? "Whether anything was lost is not known." : "Nothing was marked or lost, and no CPU went offline.";
  const table = make("table", {}, make("tbody", {}, ...rows.map((row) => make("tr", {}, ...cells(row)))));
  find("marks").replaceChildren(rows.length === 0 ? make("p", {}, nothing) : make("div", { className: "wide" }, table),
    ...(DATA.note === null ? [] : [make("p", { className: "muted" }, DATA.note)]));
}

function showRecording() {
  find("facts").replaceChildren(...DATA.facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
  find("notes").replaceChildren(...DATA.notes.map((note) => make("li", {}, note)));
  const plan = find("plan");
  if (DATA.counters === null || DATA.counters[0].cells.length === 0) {
    plan.remove();
    return;
  }
  const count = DATA.counters[0].cells.length;
  plan.firstElementChild.textContent = count === 1 ? "The counter" : `The ${count} counters`;
  // A large machine has thousands, so they are made when the section is opened.
  plan.addEventListener("toggle", () => {
    const heads = DATA.counters.map(({ name }) => make("th", { scope: "col", className: "text" }, name));
    const row = (at) => make("tr", {}, ...DATA.counters.map(({ cells }) => make("td", { className: "text" }, cells[at])));
    const rows = Array.from({ length: count }, (_, at) => row(at));
    plan.lastElementChild.replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)));
  }, { once: true });
}

/** A word for a shell, quoted if necessary. */
const quoted = (word) => (/^[\w./:@%+=,-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);

function showAsk() {
  const queries = DATA.queries.flatMap(({ question, sql }) => [make("h4", {}, question), make("pre", {}, sql)]);
  find("ask").replaceChildren(make("h4", {}, "The time that the plots show, as a page of its own with shorter steps"),
    make("pre", { id: "again" }), ...queries);
  showAgain();
}

function showAgain() {
  const path = quoted(DATA.path);
  const limited = DATA.limited || state.from > TIME.begin || state.to < TIME.end;
  const times = limited ? ` --from ${state.from.toFixed(9)}s --to ${state.to.toFixed(9)}s` : "";
  const depth = DATA.depth === null ? "" : ` --cgroup-depth ${DATA.depth}`;
  const by = DATA.by === "cgroup" ? "" : ` --by ${DATA.by}`;
  find("again").textContent = `uncore-trace report ${path}${by}${depth}${times} --html part.html`;
}
