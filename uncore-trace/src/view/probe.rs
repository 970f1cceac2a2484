//! What probes cost the tenants.

use crate::schema::probe::Probe;
use crate::text::{counted, printable};
use crate::units::percent;

/// Says which cgroup was paused most, and for how much of the time.
pub fn sentence(probe: &Probe) -> String {
    let most = probe.paused.iter().max_by_key(|(_, paused)| paused.ns);
    let Some((cgroup, paused)) = most else { return "Probes paused no cgroup.".to_owned() };
    let part = percent(paused.ns as f64 / probe.time_ns.max(1) as f64);
    let others = match probe.paused.len() - 1 {
        0 => String::new(),
        others => format!(", and {} for no more", counted(others, "other")),
    };
    format!("Probes paused {} for {part} of its time{others}.", printable(cgroup))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_who_was_paused_most() {
        let mut probe = Probe { time_ns: 1000, ..Probe::default() };
        assert_eq!(sentence(&probe), "Probes paused no cgroup.");
        probe.add("/a".to_owned(), 4);
        assert_eq!(sentence(&probe), "Probes paused /a for 0.4 % of its time.");
        probe.add("/b\u{1b}".to_owned(), 20);
        let said = sentence(&probe);
        assert!(said.ends_with(" for 2 % of its time, and 1 other for no more."), "{said}");
        assert!(!said.contains('\u{1b}'));
    }
}
