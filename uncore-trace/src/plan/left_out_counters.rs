//! Leaves counters out of a plan.

use super::{Counter, Plan};
use crate::catalog::metric::PlannedMetric;

impl Plan {
    /// Keeps some of the counters, which get new ids, and the metrics of which an input is left. A
    /// link without one of its counters goes, because its bytes would be too few. The leader of a
    /// group must stay if a member does: the kernel opens no member without it.
    pub fn retain_counters(&mut self, keep: impl Fn(&Counter) -> bool) {
        let mut ids = 0..;
        let kept = |counter: &Counter| if keep(counter) { ids.next() } else { None };
        let new: Vec<Option<u32>> = self.counters.iter().map(kept).collect();
        let new_id = |id: u32| new.get(id as usize).copied().flatten();
        let renumbered = |counter: &Counter| {
            let leader = counter.leader.and_then(new_id);
            Some(Counter { id: new_id(counter.id)?, leader, ..counter.clone() })
        };
        self.counters = self.counters.iter().filter_map(renumbered).collect();
        let renumber = |metric: &mut PlannedMetric| {
            for input in &mut metric.inputs {
                input.counter = input.counter.and_then(new_id);
            }
        };
        self.metrics.iter_mut().for_each(renumber);
        self.metrics.retain(|metric| metric.inputs.iter().any(|input| input.counter.is_some()));
        self.links.retain(|link| {
            link.counters.iter().all(|link_counter| new_id(link_counter.counter).is_some())
        });
        for link in &mut self.links {
            for link_counter in &mut link.counters {
                link_counter.counter = new_id(link_counter.counter).unwrap_or(link_counter.counter);
            }
            link.latencies.iter_mut().for_each(renumber);
            link.latencies
                .retain(|metric| metric.inputs.iter().all(|input| input.counter.is_some()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;
    use crate::discover::captured_machine;
    use crate::plan::{PlanRequest, plan};

    /// On Grace each socket has its own link, and CPU 72 reads the counters of the second.
    #[test]
    fn retained_counters_keep_their_metrics_and_links() {
        let machine = captured_machine("grace-2s");
        let request = PlanRequest {
            metrics: vec!["pcie_read_bandwidth".to_owned()],
            groups: vec!["pcie".to_owned()],
            tick_ns: 1_000_000,
            window_ns: 10_000_000,
            ..PlanRequest::default()
        };
        let full_plan = plan(&machine, &Catalog::load_embedded().unwrap(), &request).unwrap();
        let mut part = full_plan.clone();
        let cpu = full_plan.counters.last().unwrap().cpu;
        assert_ne!(full_plan.counters[0].cpu, cpu);
        part.retain_counters(|counter| counter.cpu == cpu);
        assert!(part.counters.len() < full_plan.counters.len());
        assert!((0..).zip(&part.counters).all(|(id, counter)| counter.id == id));
        let named = |plan: &Plan, id: u32| {
            let counter = &plan.counters[id as usize];
            (counter.pmu.clone(), counter.event.clone(), counter.filter.clone())
        };
        let inputs = |plan: &Plan| -> Vec<_> {
            let cpu_metrics = plan.metrics.iter().filter(|metric| metric.cpu == cpu);
            let ids =
                cpu_metrics.flat_map(|metric| &metric.inputs).filter_map(|input| input.counter);
            ids.map(|id| named(plan, id)).collect()
        };
        assert!(!inputs(&part).is_empty());
        assert_eq!(inputs(&part), inputs(&full_plan));
        let links = |plan: &Plan| -> Vec<_> {
            let counter_names = |link: &crate::schema::link::Link| {
                link.counters.iter().map(|counted| named(plan, counted.counter)).collect::<Vec<_>>()
            };
            plan.links.iter().map(|link| (link.name.clone(), counter_names(link))).collect()
        };
        assert!(!part.links.is_empty() && part.links.len() < full_plan.links.len());
        assert!(links(&part).iter().all(|link| links(&full_plan).contains(link)));
    }
}
