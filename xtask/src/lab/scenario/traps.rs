//! Requests that a driver accepts and then counts nothing for, or floods the kernel's log over: the
//! plan refuses them with the reason, before anything is opened.

use anyhow::Result;

use super::super::machine::Instance;
use super::super::step::{Check, Step};
use super::Setting;

/// A request for a PMU, `PMU` standing for its name, and the words that its refusal must hold.
struct Trap {
    name: &'static str,
    model: &'static str,
    events: &'static [&'static str],
    says: &'static [&'static str],
}

const TRAPS: &[Trap] = &[
    Trap {
        name: "bdf-without-enable",
        model: "t410-pcie",
        events: &["PMU/rd_bytes,src_bdf=0x100/"],
        says: &["src_bdf", "src_bdf_en"],
    },
    Trap {
        name: "bdf-and-port-mask",
        model: "t410-pcie",
        events: &["PMU/rd_bytes,src_rp_mask=0x1,src_bdf=0x100,src_bdf_en=1/"],
        says: &["src_rp_mask", "src_bdf_en"],
    },
    Trap {
        name: "bdf-beside-ports",
        model: "t410-pcie",
        events: &["PMU/rd_bytes/", "PMU/wr_bytes,src_bdf=0x100,src_bdf_en=1/"],
        says: &["src_bdf"],
    },
    Trap {
        name: "two-bdfs",
        model: "t410-pcie",
        events: &["PMU/rd_bytes,src_bdf=0x100,src_bdf_en=1/", "PMU/rd_bytes,src_bdf=0x200,src_bdf_en=1/"],
        says: &["src_bdf"],
    },
    Trap {
        name: "rx-tx-group",
        model: "yitian-rootport",
        events: &["{PMU/rx_pcie_tlp_data_payload/,PMU/tx_pcie_tlp_data_payload/}"],
        says: &["group"],
    },
    Trap {
        name: "ddr-group",
        model: "yitian-drw",
        events: &["{PMU/hif_rd/,PMU/hif_wr/}"],
        says: &["group"],
    },
];

pub fn steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let of = |trap: &'static Trap| {
        let instances = setting.machine.of(trap.model);
        instances.first().map(|instance| step(trap, instance))
    };
    Ok(TRAPS.iter().filter_map(of).collect())
}

fn step(trap: &Trap, instance: &Instance) -> Step {
    let name = format!("traps-{}", trap.name);
    let events = trap.events.iter().flat_map(|event| ["-e".to_owned(), event.replace("PMU", &instance.name)]);
    let options: Vec<String> = events.collect();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let says = trap.says.iter().map(|&words| words.to_owned()).collect();
    let checks = vec![
        Check::Exit { code: 2, says },
        Check::NoRecording,
        Check::KernelSilent { about: vec!["pmu".to_owned(), "ali_drw".to_owned()] },
    ];
    Step::record(&name, &options, super::super::step::Work::default(), checks)
}
