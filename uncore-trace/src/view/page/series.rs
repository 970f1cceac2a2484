//! Values of a page's plots over time: a second pass over the rows, when buckets and areas are
//! known.
//!
//! Guarantees: the areas of a plot sum to its mean, and over time to the count; the highest window
//! of a bucket is kept beside the mean; an unknown value is `None`, never 0. Memory is that of the
//! buckets of all areas, whatever the length of the recording.
//!
//! A window that is longer than a bucket, as after a failed reading, is spread evenly over its
//! time. If only some windows of a bucket are known, the mean is over these.

use std::collections::HashMap;

use anyhow::Result;

use super::super::key::{FabricColumns, QuickKey};
use super::super::links::Links;
use super::super::question::ReportQuestion;
use super::super::span::SelectedTime;
use super::super::sums::{MomentRate, ShareSum, TimeSteps as _};
use super::grid::PageGrid;
use super::survey::{PagePlot, PageSurvey};
use super::total::{ExtremeRates, PlotTotal};
use crate::schema::columns::nullable_value;
use crate::schema::fabric;
use crate::schema::link::Direction;
use crate::tables::reader::Recording;

/// Values of an area over time.
#[derive(Debug, Default)]
pub(super) struct AreaSeries {
    /// Value in each bucket.
    pub value: Vec<f64>,
    /// The lower end of the 90 % interval, as a fraction of the value; NaN if not known.
    pub low: Vec<f32>,
    /// The higher end.
    pub high: Vec<f32>,
    /// The mean confidence, weighted by value; NaN if no row has one.
    pub confidence: Vec<f32>,
    /// Sums of the windows that end in the current bucket.
    bucket_sum: ShareSum,
}

impl AreaSeries {
    fn new(count: usize) -> Self {
        Self {
            value: vec![0.0; count],
            low: vec![f32::NAN; count],
            high: vec![f32::NAN; count],
            confidence: vec![f32::NAN; count],
            bucket_sum: ShareSum::default(),
        }
    }

    /// Stores the sums of `bucket`, whose windows are complete.
    fn end_bucket(&mut self, bucket: usize) {
        let sum = &mut self.bucket_sum;
        let figures = sum
            .confidence
            .mean_confidence()
            .zip(sum.interval_if_sure(f64::INFINITY))
            .filter(|_| sum.value > 0.0);
        if let Some((confidence, interval)) = figures {
            self.confidence[bucket] = confidence as f32;
            self.low[bucket] = (interval.low / sum.value) as f32;
            self.high[bucket] = (interval.high / sum.value) as f32;
        }
        sum.remove_rows();
    }

    /// A bucket in which no window ends, because it lies within one, gets interval and confidence
    /// of that window.
    fn fill_gaps(&mut self) {
        for column in [&mut self.low, &mut self.high, &mut self.confidence] {
            let mut later_figure = f32::NAN;
            for (figure, value) in column.iter_mut().zip(&self.value).rev() {
                if figure.is_nan() && *value > 0.0 {
                    *figure = later_figure;
                }
                later_figure = *figure;
            }
        }
    }
}

/// Values of a plot over time.
#[derive(Debug)]
pub(super) struct PlotSeries {
    /// Totals of the plot.
    pub total: PlotTotal,
    /// In the order of [`PagePlot::areas`].
    pub areas: Vec<AreaSeries>,
}

/// All plots over time.
#[derive(Debug)]
pub(super) struct AllSeries {
    /// In the order of the plots.
    pub plots: Vec<PlotSeries>,
    /// Highest and lowest rates of both directions together, by link.
    pub together: HashMap<usize, ExtremeRates>,
}

/// The plot and area for the rows of one counter and line.
#[derive(Debug, Clone, Copy)]
struct AreaSlot {
    plot: usize,
    area: usize,
    cause: usize,
}

/// Sums the rows of a recording by bucket and area.
pub(super) struct SeriesFilling<'a> {
    survey: &'a PageSurvey,
    links: &'a Links,
    grid: PageGrid,
    /// Index of the plot for each direction of a link.
    plot_of_link: HashMap<(usize, Direction), usize>,
    plot_of_event: HashMap<(&'a str, &'a str), usize>,
    all_series: AllSeries,
    /// The bucket in which the current windows end.
    bucket: usize,
    /// The areas with rows in it.
    touched: Vec<(usize, usize)>,
    end_ns: i64,
}

impl<'a> SeriesFilling<'a> {
    /// No rows yet.
    pub(super) fn new(survey: &'a PageSurvey, links: &'a Links, grid: PageGrid) -> Self {
        let plots = || survey.plots.iter().enumerate();
        let of_links = plots().filter_map(|(link_plot, plot)| Some((plot.event.link?, link_plot)));
        let event = |plot: &'a PagePlot| (plot.event.name.as_str(), plot.event.unit.as_str());
        let of_events = plots().filter(|(_, plot)| plot.event.link.is_none());
        let series = |plot: &PagePlot| PlotSeries {
            total: PlotTotal::new(grid),
            areas: plot.areas.iter().map(|_| AreaSeries::new(grid.count)).collect(),
        };
        let of_links: HashMap<_, _> = of_links.collect();
        let both_ways = |(link, direction): &&(usize, Direction)| {
            *direction == Direction::In && of_links.contains_key(&(*link, Direction::Out))
        };
        let together =
            of_links.keys().filter(both_ways).map(|(link, _)| (*link, ExtremeRates::new(grid)));
        Self {
            survey,
            links,
            grid,
            all_series: AllSeries {
                plots: survey.plots.iter().map(series).collect(),
                together: together.collect(),
            },
            plot_of_event: of_events.map(|(event_plot, plot)| (event(plot), event_plot)).collect(),
            plot_of_link: of_links,
            bucket: 0,
            touched: Vec::new(),
            end_ns: i64::MIN,
        }
    }

    /// Reads the rows of a time, grouped as the survey is.
    ///
    /// # Errors
    ///
    /// The table cannot be read.
    pub(super) fn read_rows(
        mut self,
        recording: &Recording,
        question: &ReportQuestion<'_>,
        span: &SelectedTime,
    ) -> Result<AllSeries> {
        let table = recording.open_table(&fabric::TABLE)?;
        let question = &ReportQuestion { links: None, ..question.clone() };
        let read = question.columns_to_read(recording);
        for batch in table.scan_within(&read, "mono_ns", span.wanted.clone())?.decode_ahead()? {
            let batch = batch?;
            let columns = FabricColumns::new(&batch, question)?;
            let mut known: HashMap<(i32, QuickKey), [Option<AreaSlot>; 2]> = HashMap::new();
            for row in 0..columns.rows {
                let end_ns = columns.mono_ns.value(row);
                if !span.wanted.contains(&end_ns) || !columns.is_wanted(row) {
                    continue;
                }
                self.advance_to(end_ns);
                let key = (columns.counter.value(row), columns.quick_key(row));
                let slots = *known.entry(key).or_insert_with(|| self.slots_of_row(&columns, row));
                for slot in slots.into_iter().flatten() {
                    self.add_row(slot, &columns, row);
                }
            }
        }
        Ok(self.finish_series())
    }

    /// The next rows belong to windows that end at `end_ns`; rows come in the order of their
    /// windows' ends.
    fn advance_to(&mut self, end_ns: i64) {
        if end_ns == self.end_ns {
            return;
        }
        self.end_windows();
        self.end_ns = end_ns;
        let bucket = self.grid.ends_in(end_ns);
        if bucket != self.bucket {
            self.end_bucket();
            self.bucket = bucket;
        }
    }

    /// Where a row belongs: to its link, and to its event if that has a plot of its own.
    fn slots_of_row(&mut self, columns: &FabricColumns<'_>, row: usize) -> [Option<AreaSlot>; 2] {
        let link = self.links.link_of(columns.counter.value(row));
        let of_link =
            link.and_then(|link_and_direction| self.plot_of_link.get(&link_and_direction).copied());
        let event = columns.event_label(row);
        let of_event = self.plot_of_event.get(&(event.as_str(), columns.row_unit(row))).copied();
        [of_link, of_event].map(|plot| {
            let plot = plot?;
            let area =
                self.survey.plots[plot].area_of_line(columns.row_owner(row), columns.line_key(row));
            let Some(area) = area else {
                return Some(AreaSlot { plot, area: usize::MAX, cause: 0 });
            };
            let cause = columns.error_cause(row).map(|(socket, name)| {
                self.all_series.plots[plot].areas[area].bucket_sum.cause_number(socket, name)
            });
            Some(AreaSlot { plot, area, cause: cause.unwrap_or_default() })
        })
    }

    fn add_row(&mut self, slot: AreaSlot, columns: &FabricColumns<'_>, row: usize) {
        let window = columns.row_window(row);
        let value = nullable_value(columns.value, row);
        let series = &mut self.all_series.plots[slot.plot];
        series.total.add_row(columns.counter.value(row), window, value);
        let (Some(area), Some(value)) = (series.areas.get_mut(slot.area), value) else { return };
        let add_value = |bucket: usize, fraction| area.value[bucket] += value * fraction;
        self.grid.split_time(window.span(), add_value);
        if area.bucket_sum.rows == 0 {
            self.touched.push((slot.plot, slot.area));
        }
        match columns.uncertain_share(row, value) {
            Some(claim) => area.bucket_sum.add_claim(slot.cause, claim),
            None => area.bucket_sum.add_whole(value, nullable_value(columns.confidence, row)),
        }
    }

    /// Called when all rows of the windows that end at one time have come.
    fn end_windows(&mut self) {
        let rates: Vec<MomentRate> =
            self.all_series.plots.iter_mut().map(|series| series.total.end_windows()).collect();
        for (link, together) in &mut self.all_series.together {
            let rate_in = |direction| {
                let plot = self.plot_of_link.get(&(*link, direction));
                plot.map_or(MomentRate::Absent, |plot| rates[*plot])
            };
            let sum = rate_in(Direction::In).sum_directions(rate_in(Direction::Out));
            together.add_rate(self.grid.ends_in(self.end_ns), sum);
        }
    }

    fn end_bucket(&mut self) {
        for (plot, area) in self.touched.drain(..) {
            self.all_series.plots[plot].areas[area].end_bucket(self.bucket);
        }
    }

    fn finish_series(mut self) -> AllSeries {
        self.end_windows();
        self.end_bucket();
        for series in &mut self.all_series.plots {
            series.areas.iter_mut().for_each(AreaSeries::fill_gaps);
        }
        self.all_series
    }
}
