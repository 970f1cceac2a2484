//! The data of a page, as JSON for `page/*.js`. Times are seconds after the begin of the recording.

use std::io;

use super::super::headroom::Way;
use super::super::html::json::Json;
use super::super::links::{Limit, Links, limit};
use super::super::usage::Line;
use super::grid::Grid;
use super::notices::{Lost, Notices};
use super::series::{AllSeries, Area, Series};
use super::survey::{Plot, Survey};
use super::total::Rates;
use crate::schema::link::{Direction, PeakRate};
use crate::schema::owner;
use crate::text::printable;

/// The data, without the part about the whole recording.
#[derive(Clone, Copy)]
pub(super) struct Data<'a> {
    pub survey: &'a Survey,
    pub links: &'a Links,
    pub ways: &'a [Way],
    pub grid: Grid,
    pub series: &'a AllSeries,
    pub notices: &'a Notices,
}

impl Data<'_> {
    /// Writes the members of the object.
    pub(super) fn write(self, json: &mut Json<'_>) -> io::Result<()> {
        json.key("time")?.object(|json| self.time(json))?;
        json.key("tenants")?.list(&self.survey.tenants, |json, tenant| {
            json.value(&(&tenant.name, tenant.kind.name()))
        })?;
        json.key("links")?.list(self.links.links.iter().enumerate(), |json, (place, link)| {
            json.object(|json| {
                json.key("name")?.value(&printable(&link.name))?;
                json.key("devices")?.value(&link.devices.as_deref().map(printable))?;
                json.key("full")?
                    .list(self.ways.iter().filter(|way| way.link == place), Self::way)?;
                let both = limit(link, Direction::Both);
                json.key("peak")?;
                peak(json, both)?;
                json.key("together")?;
                match self.series.together.get(&place) {
                    Some(rates) => json.object(|json| self.extremes(json, rates, |_| None)),
                    None => json.value(&()),
                }
            })
        })?;
        let plots = self.survey.plots.iter().zip(&self.series.plots);
        json.key("plots")?.list(plots, |json, (plot, series)| self.plot(json, plot, series))?;
        json.key("losses")?;
        match &self.notices.losses {
            Some(losses) => json.list(losses, |json, lost| self.lost(json, lost))?,
            None => json.value(&())?,
        }
        json.key("note")?.value(&self.notices.note)?;
        json.key("cpus")?.list(&self.notices.cpus, |json, change| {
            json.value(&(self.after(change.ns), change.cpu, &change.state))
        })?;
        json.key("more_cpus")?.value(&self.notices.more_cpus)?;
        json.key("marks")?.list(&self.notices.named, |json, mark| {
            let to = mark.to_ns.map(|ns| self.after(ns));
            json.value(&(self.after(mark.from_ns), to, &mark.text))
        })?;
        json.key("more_marks")?.value(&self.notices.more_named)
    }

    /// Seconds after the begin of the recording, to the nanosecond.
    fn after(&self, ns: i64) -> f64 {
        ns.saturating_sub(self.survey.start_ns) as f64 / 1e9
    }

    fn time(&self, json: &mut Json<'_>) -> io::Result<()> {
        let seconds = |ns: i64| ns as f64 / 1e9;
        json.key("begin")?.value(&self.after(self.grid.begin_ns))?;
        json.key("end")?.value(&self.after(self.grid.end_ns))?;
        json.key("bucket")?.value(&seconds(self.grid.bucket_ns))?;
        json.key("window")?.value(&seconds(self.grid.window_ns))?;
        json.key("count")?.value(&self.grid.count)
    }

    /// How long a link was nearly full, and who filled it then.
    fn way(json: &mut Json<'_>, way: &Way) -> io::Result<()> {
        json.object(|json| {
            json.key("direction")?.value(way.direction.direction_name())?;
            json.key("average")?.number(way.average())?;
            json.key("highest")?.number(way.highest)?;
            json.key("full")?.value(&way.full_ns.map(|ns| ns as f64 / 1e9))?;
            json.key("unknown")?.value(&(way.time.whole_time().unknown_ns() / 1e9))?;
            let bytes: f64 = way.fillers.iter().map(|(_, bytes)| bytes).sum();
            json.key("fillers")?.list(way.fillers.iter().take(3), |json, (who, of)| {
                json.value(&(shown(who), of / bytes))
            })
        })
    }

    fn plot(&self, json: &mut Json<'_>, plot: &Plot, series: &Series) -> io::Result<()> {
        let event = &plot.event;
        let limit =
            event.link.and_then(|(link, direction)| limit(self.links.links.get(link)?, direction));
        json.object(|json| {
            json.key("name")?.value(&printable(&event.name))?;
            json.key("unit")?.value(&printable(&event.unit))?;
            json.key("link")?.value(&event.link.map(|(link, _)| link))?;
            json.key("direction")?.value(&event.link.map(|(_, direction)| direction.direction_name()))?;
            json.key("total")?.number(Some(event.total))?;
            json.key("seconds")?.value(&event.known_s())?;
            json.key("peak")?;
            peak(json, limit)?;
            let buckets = || 0..self.grid.count;
            let total = &series.total;
            json.key("mean")?.column(buckets().map(|bucket| total.mean(bucket)))?;
            self.extremes(json, &total.rates, |bucket| total.mean(bucket))?;
            if buckets().any(|bucket| total.known(bucket).is_some_and(|known| known < 1.0)) {
                let known = buckets().map(|bucket| Some((total.known(bucket)? * 100.0).floor()));
                json.key("known")?.column(known)?;
            }
            json.key("areas")?.list(
                plot.areas.iter().zip(&series.areas),
                |json, (tenant, area)| {
                    json.object(|json| {
                        json.key("tenant")?.value(tenant)?;
                        self.area(json, area, series)
                    })
                },
            )?;
            let lines = plot.lines().filter(|(line, _)| line.says_something());
            json.key("lines")?.list(lines, |json, (line, tenant)| {
                let tenant = plot.areas.contains(&tenant).then_some(tenant);
                Self::line(json, plot, line, tenant)
            })
        })
    }

    /// The highest and lowest window of each bucket, if buckets have several windows.
    fn extremes(
        &self,
        json: &mut Json<'_>,
        rates: &Rates,
        mean: impl Fn(usize) -> Option<f64>,
    ) -> io::Result<()> {
        if self.grid.bucket_ns <= self.grid.window_ns {
            return Ok(());
        }
        let known = |rate: f64| (!rate.is_nan()).then_some(rate);
        let rates = [(&rates.highest, "max"), (&rates.lowest, "min")];
        for (column, name) in rates {
            // A bucket that begins in the middle of a window contains only a part of it.
            let extreme = |(bucket, rate): (usize, &f64)| {
                let (rate, mean) = (known(*rate)?, mean(bucket).unwrap_or(*rate));
                Some(if name == "max" { rate.max(mean) } else { rate.min(mean) })
            };
            json.key(name)?.column(column.iter().enumerate().map(extreme))?;
        }
        Ok(())
    }

    /// Rates of an area, its interval in percent of them, and its confidence in percent.
    fn area(&self, json: &mut Json<'_>, area: &Area, series: &Series) -> io::Result<()> {
        let rate = |bucket: usize| series.total.rate(bucket, area.value[bucket]);
        json.key("value")?.column((0..self.grid.count).map(rate))?;
        for (name, column) in
            [("low", &area.low), ("high", &area.high), ("confidence", &area.confidence)]
        {
            let part = |part: &f32| (!part.is_nan()).then(|| f64::from(*part * 100.0).round());
            let some =
                column.iter().zip(&area.value).map(|(it, value)| part(it).filter(|_| *value > 0.0));
            json.key(name)?.column(some)?;
        }
        Ok(())
    }

    /// A line of the table of tenants.
    fn line(
        json: &mut Json<'_>,
        plot: &Plot,
        line: &Line,
        tenant: Option<usize>,
    ) -> io::Result<()> {
        let value = line.known_value();
        let interval = line.value_interval(&plot.event);
        let methods: Vec<_> = line.methods.iter().map(|it| printable(it)).collect();
        let key = printable(&line.key);
        let name = if line.key == line.owner { format!("({key})") } else { key.into_owned() };
        json.object(|json| {
            json.key("tenant")?.value(&tenant)?;
            json.key("name")?.value(&name)?;
            json.key("value")?.number(value)?;
            json.key("low")?.number(interval.map(|it| it.low))?;
            json.key("high")?.number(interval.map(|it| it.high))?;
            json.key("peak")?.number(line.peak)?;
            json.key("confidence")?.number(line.sum.confidence.mean_confidence())?;
            json.key("least")?.number(line.sum.confidence.lowest.map(f64::from))?;
            json.key("missing")?.value(&line.sum.missing)?;
            json.key("methods")?.value(&methods.join(", "))
        })
    }

    fn lost(&self, json: &mut Json<'_>, lost: &Lost) -> io::Result<()> {
        json.object(|json| {
            json.key("words")?.value(&lost.words)?;
            json.key("from")?.value(&lost.from_ns.map(|ns| self.after(ns)))?;
            json.key("to")?.value(&lost.to_ns.map(|ns| self.after(ns)))?;
            json.key("detail")?.value(&lost.detail)
        })
    }
}

/// Name of an owner that fills a link; for owners other than tasks, their kind.
fn shown(who: &str) -> String {
    let who_shown = printable(who);
    if owner::KINDS.contains(&who) { format!("({who_shown})") } else { who_shown.into_owned() }
}

/// The peak of a link and its source.
fn peak(json: &mut Json<'_>, limit: Option<Limit<'_>>) -> io::Result<()> {
    let Some(limit) = limit else { return json.value(&()) };
    let words = |peak: &PeakRate| format!("{}: {}", peak.source.source_name(), printable(&peak.detail));
    json.object(|json| {
        json.key("rate")?.number(Some(limit.peak.bytes_per_s))?;
        json.key("source")?.value(&words(limit.peak))?;
        json.key("other")?.number(limit.other.map(|other| other.bytes_per_s))?;
        json.key("other_source")?.value(&limit.other.map(words))
    })
}
