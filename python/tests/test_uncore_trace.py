"""The package with rows of known sums: `python -m unittest discover -s tests`, after `pip install '.[plot]'`."""

import copy
import math
import subprocess
import sys
import unittest

import pyarrow as pa
import pyarrow.compute as pc
import uncore_trace

try:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from uncore_trace._plot import plots_of
except ImportError:
    matplotlib = None

WINDOW = 100_000_000
NAMES = "event filter unit owner counter socket comm cgroup value confidence ts mono_ns window_ns total".split()
#: Owner, name of the process, cgroup, value of a window and its confidence.
TENANTS = [
    ("task", "web", "/web", 600.0, 0.9),
    ("task", "train", "/train", 300.0, 0.5),
    ("task", "small", "/small", 20.0, 0.1),
    ("task", "least", "/least", 10.0, 0.1),
    ("irq", "nvme0q1", None, 50.0, 0.8),
    ("unattributed", None, None, 200.0, 0.0),
]


def rows_of(moments=10, event="reads", unit="bytes", tenants=TENANTS, unknown=(), absent=()):
    """`/train` has something in every second window only."""
    rows = []
    for moment in range(1, moments + 1):
        if moment in absent:
            continue
        time = [1_700_000_000_000_000 + moment * WINDOW // 1000, moment * WINDOW, WINDOW]
        own = [it for it in tenants if it[2] != "/train" or moment % 2]
        total = sum(it[3] for it in own)
        if moment in unknown:
            own, total = [("unattributed", None, None, None, None)], None
        for owner, comm, cgroup, value, confidence in own:
            rows.append([event, "", unit, owner, 0, 0, comm, cgroup, value, confidence, *time, total])
    table = pa.table({name: list(column) for name, column in zip(NAMES, zip(*rows))})
    return table.set_column(NAMES.index("ts"), "ts", table["ts"].cast(pa.timestamp("us", "UTC")))


def interval(rows, cgroup, begin, end):
    """Ends of the rate of a cgroup, of the windows that end after `begin` and until `end`."""
    own = rows.filter(pc.and_(pc.greater(rows["mono_ns"], begin), pc.less_equal(rows["mono_ns"], end)))
    for line in uncore_trace.sums(own).to_pylist():
        if line["cgroup"] == cgroup:
            return line["low"] / line["known_s"], line["high"] / line["known_s"]
    return 0.0, 0.0


class Tables(unittest.TestCase):
    def test_sums_and_their_intervals(self):
        lines = {line["cgroup"] or line["owner"]: line for line in uncore_trace.sums(rows_of()).to_pylist()}
        self.assertEqual(lines["/web"]["value"], 6000.0)
        self.assertEqual(lines["/train"]["value"], 1500.0)
        self.assertAlmostEqual(lines["/web"]["low"], 5400.0)
        self.assertAlmostEqual(lines["/web"]["per_s"], 6000.0)
        # By process, and of rows in a frame or in what `windows` returns.
        (web,) = [line for line in uncore_trace.sums(rows_of(), "comm").to_pylist() if line["comm"] == "web"]
        self.assertAlmostEqual(web["low"], 5400.0)

    def test_windows_are_a_table_with_zeros(self):
        windows = uncore_trace.windows(rows_of())
        own = [row["value"] for row in windows.to_pylist() if row["cgroup"] == "/train"]
        self.assertEqual(own, [300.0, 0.0] * 5)
        self.assertEqual(len(windows), 60)
        self.assertEqual(windows["value"], windows.table["value"])
        self.assertEqual(windows.group_by("owner").aggregate([]).num_rows, 3)
        self.assertTrue(pa.table(windows).equals(windows.table))
        self.assertIn("reads", repr(windows))
        self.assertEqual(copy.copy(windows).num_rows, 60)
        with self.assertRaises(AttributeError):
            windows.no_such_column

    def test_the_error_without_matplotlib_says_what_to_do(self):
        source = "import sys; sys.modules['matplotlib'] = None\n"
        source += "sys.path[:0] = [sys.argv[1]]; import test_uncore_trace as it, uncore_trace\n"
        source += "try: uncore_trace.windows(it.rows_of()).plot()\nexcept ImportError as error: print(error)"
        here = __file__.rpartition("/")[0] or "."
        out = subprocess.run([sys.executable, "-c", source, here], check=True, capture_output=True, text=True).stdout
        self.assertEqual(out, "plots need matplotlib: pip install matplotlib\n")


@unittest.skipIf(matplotlib is None, "matplotlib is not installed")
class Plots(unittest.TestCase):
    def tearDown(self):
        pyplot.close("all")

    def drawn(self, rows, by="cgroup", **options):
        """The only plot and the texts of its legend."""
        (ax,) = uncore_trace.windows(rows, by).plot(**options).axes
        ax.figure.canvas.draw()
        return ax, [text.get_text() for text in ax.get_legend().get_texts()]

    def test_each_large_tenant_has_a_line_and_the_rest_is_other(self):
        ax, names = self.drawn(rows_of(), top=3)
        self.assertEqual(names, ["total", "/web", "/train", "irq", "other", "unattributed"])
        highest = [max(line.get_ydata()) for line in ax.get_lines()]
        for found, expected in zip(highest, [11.8, 6.0, 3.0, 0.5, 0.3, 2.0]):
            self.assertAlmostEqual(found, expected)
        self.assertEqual([ax.get_ylabel(), ax.get_xlabel(), ax.get_title()], ["kB/s", "UTC", "reads"])
        begin, end = (matplotlib.dates.num2date(x).timestamp() for x in ax.get_lines()[0].get_xdata(orig=False)[[0, -1]])
        self.assertAlmostEqual(begin, 1_700_000_000.0, 3)
        self.assertAlmostEqual(end, 1_700_000_001.0, 3)
        # All of them, without other.
        self.assertNotIn("other", self.drawn(rows_of(), top=9)[1])

    def test_bands_are_the_intervals_of_sums(self):
        rows = rows_of()
        ax, names = self.drawn(rows, top=3)
        # None for the total and for what is unattributed.
        self.assertEqual(len(ax.collections), 4)
        for band, cgroup in zip(ax.collections, ["/web", "/train"]):
            ends = [interval(rows, cgroup, end - WINDOW, end) for end in range(WINDOW, 11 * WINDOW, WINDOW)]
            self.assertGreater(ends[0][1] - ends[0][0], 100.0)
            drawn = {round(y, 6) for path in band.get_paths() for _, y in path.vertices}
            self.assertEqual(drawn, {round(it / 1000, 6) for both in ends for it in both})

    def test_steps_of_several_windows_have_the_interval_of_their_sum(self):
        rows = rows_of(300)
        (plot,) = plots_of(rows, "cgroup", 2)
        self.assertEqual(len(plot.spans), 100)
        for line, cgroup in zip(plot.lines, ["/web", "/train"]):
            self.assertEqual(line.name, cgroup)
            for step, ends in enumerate(zip(line.low, line.high)):
                expected = interval(rows, cgroup, step * 3 * WINDOW, (step + 1) * 3 * WINDOW)
                for found, end in zip(ends, expected):
                    self.assertAlmostEqual(found, end)
        # Errors of one program are the same in all cgroups.
        tenants = [("task", "web", "/a", 600.0, 0.9), ("task", "web", "/b", 600.0, 0.9)]
        (plot,) = plots_of(rows_of(tenants=tenants), ["comm"], 1)
        self.assertEqual(plot.lines[0].name, "web")
        self.assertAlmostEqual(plot.lines[0].low[0], 10800.0)

    def test_lines_are_interrupted_where_nothing_is_known(self):
        (plot,) = plots_of(rows_of(unknown=[4], absent=[7]), "cgroup", 2)
        web = plot.lines[0]
        self.assertEqual([step for step, rate in enumerate(web.rate) if math.isnan(rate)], [3])
        self.assertTrue(math.isnan(web.low[3]) and math.isnan(plot.total[3]))
        self.assertEqual([b - a for (_, a), (b, _) in zip(plot.spans, plot.spans[1:])], [0, 0, 0, 0, 0, WINDOW, 0, 0])
        ax, _ = self.drawn(rows_of(absent=[7]))
        self.assertTrue(any(math.isnan(y) for y in ax.get_lines()[1].get_ydata()))

    def test_names_are_text(self):
        hostile = ["$\\frac{1}{0}$", "_hidden", "/a\x1b[2J\n\u202e", "\\$a\\$", "/" + 99 * "x"]
        tenants = [("task", "c", name, 100.0 - place, 0.9) for place, name in enumerate(hostile)]
        ax, names = self.drawn(rows_of(tenants=tenants, event="$\\frac{1}{0}$"))
        shown = ["$\\frac{1}{0}$", "_hidden", "/a\\u{1b}[2J\\n\\u{202e}", "\\$a\\$", "/" + 18 * "x" + "…" + 19 * "x"]
        self.assertEqual(names, ["total", *shown])
        texts = [*ax.get_legend().get_texts(), ax.title]
        self.assertEqual({(text.get_parse_math(), text.get_usetex()) for text in texts}, {(False, False)})

    def test_each_event_has_a_plot_and_ax_takes_one(self):
        both = pa.concat_tables([rows_of(), rows_of(event="misses", unit="count")])
        windows = uncore_trace.windows(both)
        self.assertEqual([ax.get_title() for ax in windows.plot().axes], ["misses", "reads"])
        self.assertEqual(windows.plot().axes[0].get_ylabel(), "k/s")
        figure, ax = pyplot.subplots()
        with self.assertRaisesRegex(ValueError, "one event, not of 2"):
            windows.plot(ax)
        self.assertIs(uncore_trace.windows(rows_of()).plot(ax), figure)
        nothing = rows_of(tenants=[("task", "a", "/a", 0.0, 0.9)])
        with self.assertRaisesRegex(ValueError, "nothing was counted"):
            uncore_trace.windows(nothing).plot()


if __name__ == "__main__":
    unittest.main()
