//! The data of a page, as JSON for `page/*.js`. Times are seconds after the begin of the recording.

use std::io;

use super::super::answer::line_name;
use super::super::headroom::LinkHeadroom;
use super::super::html::json::Json;
use super::super::json_lines::json_object;
use super::super::links::{Links, PeakLimit, limit};
use super::super::report_sums::ReportLine;
use super::grid::PageGrid;
use super::notices::{LossSpan, PageNotices};
use super::series::{AllSeries, AreaSeries, PlotSeries};
use super::survey::{PagePlot, PageSurvey};
use super::total::ExtremeRates;
use crate::schema::link::{Direction, PeakRate};
use crate::schema::owner;
use crate::text::printable;

/// The data, without the part about the whole recording.
#[derive(Clone, Copy)]
pub(super) struct PageData<'a> {
    pub survey: &'a PageSurvey,
    pub links: &'a Links,
    pub ways: &'a [LinkHeadroom],
    pub grid: PageGrid,
    pub series: &'a AllSeries,
    pub notices: &'a PageNotices,
}

impl PageData<'_> {
    /// Writes the members of the object.
    pub(super) fn write_json(self, json: &mut Json<'_>) -> io::Result<()> {
        json.write_key("time")?.write_object(|json| self.write_time(json))?;
        json.write_key("tenants")?.write_list(&self.survey.tenants, |json, tenant| {
            json.write_value(&(&tenant.name, tenant.kind))
        })?;
        json.write_key("links")?.write_list(
            self.links.links.iter().enumerate(),
            |json, (link_index, link)| {
                json.write_object(|json| {
                    json.write_key("name")?.write_value(&printable(&link.name))?;
                    json.write_key("devices")?
                        .write_value(&link.devices.as_deref().map(printable))?;
                    json.write_key("full")?.write_list(
                        self.ways
                            .iter()
                            .filter(|link_headroom| link_headroom.link_index == link_index),
                        Self::write_headroom,
                    )?;
                    let both_limit = limit(link, Direction::Both);
                    json.write_key("peak")?;
                    write_peak(json, both_limit)?;
                    json.write_key("together")?;
                    match self.series.together.get(&link_index) {
                        Some(rates) => {
                            json.write_object(|json| self.write_extremes(json, rates, |_| None))
                        }
                        None => json.write_value(&()),
                    }
                })
            },
        )?;
        let plots = self.survey.plots.iter().zip(&self.series.plots);
        json.write_key("plots")?
            .write_list(plots, |json, (plot, series)| self.write_plot(json, plot, series))?;
        json.write_key("losses")?;
        match &self.notices.losses {
            Some(losses) => json.write_list(losses, |json, lost| self.write_loss(json, lost))?,
            None => json.write_value(&())?,
        }
        json.write_key("note")?.write_value(&self.notices.note)?;
        json.write_key("cpus")?.write_list(&self.notices.cpus, |json, change| {
            json.write_value(&(self.seconds_after_begin(change.ns), change.cpu, &change.state))
        })?;
        json.write_key("more_cpus")?.write_value(&self.notices.more_cpus)?;
        json.write_key("marks")?.write_list(&self.notices.named, |json, mark| {
            let to_s = mark.to_ns.map(|ns| self.seconds_after_begin(ns));
            json.write_value(&(self.seconds_after_begin(mark.from_ns), to_s, &mark.text))
        })?;
        json.write_key("more_marks")?.write_value(&self.notices.more_named)
    }

    /// Seconds after the begin of the recording, to the nanosecond.
    fn seconds_after_begin(&self, ns: i64) -> f64 {
        ns.saturating_sub(self.survey.start_ns) as f64 / 1e9
    }

    fn write_time(&self, json: &mut Json<'_>) -> io::Result<()> {
        let seconds = |ns: i64| ns as f64 / 1e9;
        json.write_key("begin")?.write_value(&self.seconds_after_begin(self.grid.begin_ns))?;
        json.write_key("end")?.write_value(&self.seconds_after_begin(self.grid.end_ns))?;
        json.write_key("bucket")?.write_value(&seconds(self.grid.bucket_ns))?;
        json.write_key("window")?.write_value(&seconds(self.grid.window_ns))?;
        json.write_key("count")?.write_value(&self.grid.count)
    }

    /// How long a link was nearly full, and who filled it then.
    fn write_headroom(json: &mut Json<'_>, link_headroom: &LinkHeadroom) -> io::Result<()> {
        json.write_object(|json| {
            json.write_key("direction")?.write_value(link_headroom.direction.direction_name())?;
            json.write_key("average")?.write_number(link_headroom.average_per_s())?;
            json.write_key("highest")?.write_number(link_headroom.highest_per_s)?;
            json.write_key("full")?
                .write_value(&link_headroom.full_ns.map(|ns| ns as f64 / 1e9))?;
            json.write_key("unknown")?
                .write_value(&(link_headroom.time.whole.unknown_ns() / 1e9))?;
            let bytes: f64 = link_headroom.fillers.iter().map(|(_, bytes)| bytes).sum();
            json.write_key("fillers")?.write_list(
                link_headroom.fillers.iter().take(3),
                |json, (filler, filled_bytes)| {
                    json.write_value(&(filler_name(filler), filled_bytes / bytes))
                },
            )
        })
    }

    fn write_plot(
        &self,
        json: &mut Json<'_>,
        plot: &PagePlot,
        series: &PlotSeries,
    ) -> io::Result<()> {
        let event = &plot.event;
        let link_peak = event.link.and_then(|link| self.links.peak_limit(link));
        json.write_object(|json| {
            json.write_key("name")?.write_value(&printable(&event.name))?;
            json.write_key("unit")?.write_value(&printable(&event.unit))?;
            json.write_key("link")?.write_value(&event.link.map(|(link, _)| link))?;
            json.write_key("direction")?
                .write_value(&event.link.map(|(_, direction)| direction.direction_name()))?;
            json.write_key("total")?.write_number(Some(event.total))?;
            json.write_key("seconds")?.write_value(&event.known_s())?;
            json.write_key("peak")?;
            write_peak(json, link_peak)?;
            let buckets = || 0..self.grid.count;
            let total = &series.total;
            json.write_key("mean")?
                .write_column(buckets().map(|bucket| total.bucket_mean(bucket)))?;
            self.write_extremes(json, &total.rates, |bucket| total.bucket_mean(bucket))?;
            if buckets()
                .any(|bucket| total.bucket_known_fraction(bucket).is_some_and(|known| known < 1.0))
            {
                let known = buckets()
                    .map(|bucket| Some((total.bucket_known_fraction(bucket)? * 100.0).floor()));
                json.write_key("known")?.write_column(known)?;
            }
            json.write_key("areas")?.write_list(
                plot.areas.iter().zip(&series.areas),
                |json, (tenant, area)| {
                    json.write_object(|json| {
                        json.write_key("tenant")?.write_value(tenant)?;
                        self.write_area(json, area, series)
                    })
                },
            )?;
            let lines = plot.event_lines().filter(|(line, _)| line.says_something());
            json.write_key("lines")?.write_list(lines, |json, (line, tenant)| {
                Self::write_line(json, plot, line, plot.areas.contains(&tenant).then_some(tenant))
            })
        })
    }

    /// The highest and lowest window of each bucket, if buckets have several windows.
    fn write_extremes(
        &self,
        json: &mut Json<'_>,
        rates: &ExtremeRates,
        mean: impl Fn(usize) -> Option<f64>,
    ) -> io::Result<()> {
        if self.grid.bucket_ns <= self.grid.window_ns {
            return Ok(());
        }
        let known_rate = |rate: f64| (!rate.is_nan()).then_some(rate);
        for (column, name) in [(&rates.highest, "max"), (&rates.lowest, "min")] {
            // A bucket that begins in the middle of a window contains only a part of it.
            let extreme = |(bucket, rate): (usize, &f64)| {
                let (rate, mean) = (known_rate(*rate)?, mean(bucket).unwrap_or(*rate));
                Some(if name == "max" { rate.max(mean) } else { rate.min(mean) })
            };
            json.write_key(name)?.write_column(column.iter().enumerate().map(extreme))?;
        }
        Ok(())
    }

    /// Rates of an area, its interval in percent of them, and its confidence in percent.
    fn write_area(
        &self,
        json: &mut Json<'_>,
        area: &AreaSeries,
        series: &PlotSeries,
    ) -> io::Result<()> {
        let rate = |bucket: usize| series.total.bucket_rate(bucket, area.value[bucket]);
        json.write_key("value")?.write_column((0..self.grid.count).map(rate))?;
        for (name, column) in
            [("low", &area.low), ("high", &area.high), ("confidence", &area.confidence)]
        {
            let percent =
                |fraction: &f32| (!fraction.is_nan()).then(|| f64::from(*fraction * 100.0).round());
            let known_percents = column
                .iter()
                .zip(&area.value)
                .map(|(fraction_or_nan, value)| percent(fraction_or_nan).filter(|_| *value > 0.0));
            json.write_key(name)?.write_column(known_percents)?;
        }
        Ok(())
    }

    /// A line of the table of tenants.
    fn write_line(
        json: &mut Json<'_>,
        plot: &PagePlot,
        line: &ReportLine,
        tenant: Option<usize>,
    ) -> io::Result<()> {
        let value = line.known_value();
        let interval = line.value_interval(&plot.event);
        let methods: Vec<_> = line.methods.iter().map(|method| printable(method)).collect();
        json.write_object(|json| {
            json.write_key("tenant")?.write_value(&tenant)?;
            json.write_key("name")?.write_value(&line_name(line))?;
            json.write_key("value")?.write_number(value)?;
            json.write_key("low")?.write_number(interval.map(|ends| ends.low))?;
            json.write_key("high")?
                .write_number(interval.map(|interval_ends| interval_ends.high))?;
            json.write_key("peak")?.write_number(line.peak)?;
            json.write_key("confidence")?.write_number(line.sum.confidence.mean_confidence())?;
            json.write_key("least")?.write_number(line.sum.confidence.lowest.map(f64::from))?;
            json.write_key("missing")?.write_value(&line.sum.missing)?;
            json.write_key("methods")?.write_value(&methods.join(", "))
        })
    }

    fn write_loss(&self, json: &mut Json<'_>, lost: &LossSpan) -> io::Result<()> {
        let seconds = |ns: Option<i64>| ns.map(|ns| self.seconds_after_begin(ns));
        let (from, to) = (seconds(lost.from_ns), seconds(lost.to_ns));
        let (words, detail) = (&lost.words, &lost.detail);
        json.write_value(&json_object! { words: words, from: from, to: to, detail: detail })
    }
}

/// Name of an owner that fills a link; for owners other than tasks, their kind.
fn filler_name(filler: &str) -> String {
    let printed = printable(filler);
    if owner::KINDS.contains(&filler) { format!("({printed})") } else { printed.into_owned() }
}

/// The peak of a link and its source.
fn write_peak(json: &mut Json<'_>, link_peak: Option<PeakLimit<'_>>) -> io::Result<()> {
    let Some(known_peak) = link_peak else { return json.write_value(&()) };
    let words =
        |peak: &PeakRate| format!("{}: {}", peak.source.source_name(), printable(&peak.detail));
    json.write_object(|json| {
        json.write_key("rate")?.write_number(Some(known_peak.peak.bytes_per_s))?;
        json.write_key("source")?.write_value(&words(known_peak.peak))?;
        json.write_key("other")?
            .write_number(known_peak.conflicting_peak.map(|other_peak| other_peak.bytes_per_s))?;
        json.write_key("other_source")?.write_value(&known_peak.conflicting_peak.map(words))
    })
}
