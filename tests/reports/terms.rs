//! Terms of an event as perf 7.2 combines them, compared with what it opens on these machines.

use uncore_trace::plan::Plan;

use crate::machines::planned;

/// The config words, unit and scale of an event that is read once.
fn opened(plan: &Plan) -> ([u64; 3], &str, f64) {
    let counter = &plan.counters[0];
    ([counter.config[0], counter.config[1], counter.config[2]], &counter.unit, counter.scale)
}

#[test]
fn an_event_after_the_term_event_is_the_whole_event() {
    for (machine, pmu, event, config) in [
        ("broadwell-ep", "uncore_imc_0", "cas_count_read", [0x304, 0, 0]),
        ("client-alder-lake", "uncore_imc_free_running_0", "data_read", [0x20ff, 0, 0]),
        ("altra-2s", "arm_dmc620_10008c000", "clkdiv2_ranks_in_sref", [0, 0, 0x2c8]),
        ("altra-2s", "arm_cmn_0", "hnf_ld_st_swp_adq_full", [0x12_0005, 0, 0]),
        // Of perf's tables.
        ("broadwell-ep", "uncore_imc_0", "unc_m_cas_count.all", [0xf04, 0, 0]),
        ("grace-2s", "nvidia_scf_pmu_0", "cycles", [0x1_0000_0000, 0, 0]),
    ] {
        let by_name = planned(machine, &[], &[&format!("{pmu}/{event}/")]);
        let by_term = planned(machine, &[], &[&format!("{pmu}/event={event}/")]);
        assert_eq!(by_term.counters, by_name.counters, "{pmu}/{event}/");
        assert_eq!(opened(&by_term).0, config, "{pmu}/{event}/");
    }
    let read = planned("broadwell-ep", &[], &["uncore_imc_0/event=cas_count_read/"]);
    assert_eq!(opened(&read), ([0x304, 0, 0], "bytes", 64.0));
    let more =
        planned("broadwell-ep", &[], &["uncore_imc_0/edge=1,event=cas_count_read,thresh=2/"]);
    assert_eq!(opened(&more), ([0x204_0304, 0, 0], "bytes", 64.0));
}

#[test]
fn terms_that_set_the_same_bits_are_combined() {
    for (machine, text, config, event, unit, scale) in [
        (
            "broadwell-ep",
            "uncore_imc_0/cas_count_read,umask=0xc/",
            [0xf04, 0, 0],
            "event=0x4,umask=0xf",
            "bytes",
            64.0,
        ),
        (
            "broadwell-ep",
            "uncore_qpi_0/drs_data,umask=0x1/",
            [0x902, 0, 0],
            "event=0x2,umask=0x9",
            "bytes",
            8.0,
        ),
        (
            "skylake-sp-2s",
            "uncore_imc/cas_count_read,config=0/",
            [0x304, 0, 0],
            "cas_count_read",
            "bytes",
            64.0,
        ),
        (
            "client-alder-lake",
            "uncore_imc_free_running_0/data_read,config1=0x7/",
            [0x20ff, 7, 0],
            "data_read",
            "bytes",
            64.0,
        ),
    ] {
        let plan = planned(machine, &[], &[text]);
        assert_eq!(opened(&plan), (config, unit, scale), "{text}");
        assert_eq!(plan.counters[0].event, event, "{text}");
        let bit_notes =
            plan.notes.iter().filter(|note| note.contains("terms that set the same bits"));
        assert_eq!(
            bit_notes.count(),
            usize::from(!text.contains("config1")),
            "{text}: {:?}",
            plan.notes
        );
    }
    let plan = planned("cmn-s3", &[], &["cxl_pmu_mem0.0/s2m_ndr_cmpm,gid=0x1/"]);
    assert_eq!(opened(&plan).0[0], 0x1e98_0025_0000_0008);
}

#[test]
fn a_counter_mask_of_a_vendors_event_is_set() {
    let any = "unc_arb_trk_occupancy.cycles_with_any_request";
    for text in [any, &format!("uncore_arb/{any}/")] {
        let plan = planned("client-skylake", &[], &[text]);
        assert_eq!((plan.counters.len(), opened(&plan).0[0]), (1, 0x100_0180), "{text}");
        assert_eq!(plan.counters[0].event, any);
    }
    let all = planned("client-skylake", &[], &["unc_arb_trk_occupancy.all"]);
    assert_eq!(opened(&all).0[0], 0x180);
}
