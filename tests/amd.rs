//! AMD processors, RAPL and POWER: encodings compared with published numbers, and their plans.

use uncore_trace::catalog::Catalog;

use crate::machines::{brief, captured, planned, refused};

/// The numbers are those of perf (`tools/perf/pmu-events/arch/x86/amdzen3/data-fabric.json`, Linux
/// 7.2) in the bits of the format `config:0-7,32-35,59-60`.
#[test]
fn zen_3_counts_dram_channels_and_links_in_turns() {
    let plan = planned("zen3-2s", &["mem", "c2c"], &[]);
    let first: Vec<String> = brief(&plan).into_iter().step_by(2).collect();
    insta::assert_snapshot!(first.join("\n"), @r"
    amd_df dram_channel_data_controller_0 [] bytesx64 0x3807,0x0,0x0 cpu 0
    amd_df dram_channel_data_controller_1 [] bytesx64 0x3847,0x0,0x0 cpu 0
    amd_df dram_channel_data_controller_2 [] bytesx64 0x3887,0x0,0x0 cpu 0
    amd_df dram_channel_data_controller_3 [] bytesx64 0x38c7,0x0,0x0 cpu 0
    amd_df dram_channel_data_controller_4 [] bytesx64 0x100003807,0x0,0x0 cpu 0
    amd_df dram_channel_data_controller_5 [] bytesx64 0x100003847,0x0,0x0 cpu 0
    amd_df dram_channel_data_controller_6 [] bytesx64 0x100003887,0x0,0x0 cpu 0
    amd_df dram_channel_data_controller_7 [] bytesx64 0x1000038c7,0x0,0x0 cpu 0
    amd_df remote_outbound_data_controller_0 [] bytesx32 0x7000002c7,0x0,0x0 cpu 0
    amd_df remote_outbound_data_controller_1 [] bytesx32 0x800000207,0x0,0x0 cpu 0
    amd_df remote_outbound_data_controller_2 [] bytesx32 0x800000247,0x0,0x0 cpu 0
    amd_df remote_outbound_data_controller_3 [] bytesx32 0x800000287,0x0,0x0 cpu 0
    ");
    let turns =
        |counted| format!("events share 4 counters of amd_df: each counts about {counted} %");
    assert!(plan.notes.iter().any(|note| note.contains(&turns(33))), "{:?}", plan.notes);
    let mem = planned("zen3-2s", &["mem"], &[]);
    assert!(mem.notes.iter().any(|note| note.contains(&turns(50))), "{:?}", mem.notes);
}

/// The models are those of perf's `mapfile.csv` (Linux 7.2).
#[test]
fn the_model_tells_the_generation() {
    let catalog = Catalog::load_embedded().unwrap();
    let mut pmu = captured("zen3-2s").find_pmu("amd_df").unwrap().clone();
    for (model, family) in [
        ("23-1", "amd_df_zen2"),
        ("23-31", "amd_df_zen2"),
        ("25-1", "amd_df_zen2"),
        ("25-21", "amd_df_zen2"),
        ("25-50", "amd_df_zen2"),
        ("25-11", "amd_df_zen4"),
        ("25-61", "amd_df_zen4"),
        ("25-a0", "amd_df_zen4"),
        ("26-2", "amd_df_zen5"),
        ("26-11", "amd_df_zen5"),
        ("26-50", "amd_df"),
        ("24-1", "amd_df"),
    ] {
        pmu.processor = Some(format!("AuthenticAMD-{model}"));
        assert_eq!(catalog.family_of(&pmu).unwrap().family, family, "{model}");
    }
}

/// Numbers of `amdzen3/cache.json`: the driver sets slices, cores and threads.
#[test]
fn each_last_level_cache_has_its_counters() {
    let plan = planned("zen3-2s", &["cache", "latency"], &[]);
    let lines = brief(&plan);
    let first: Vec<&str> = lines.iter().step_by(4).map(String::as_str).collect();
    insta::assert_snapshot!(first.join("\n"), @r"
    amd_l3 l3_lookup_state.all_l3_req_typs [] requestsx1 0xff04,0x0,0x0 cpu 0
    amd_l3 l3_comb_clstr_state.request_miss [] requestsx1 0x106,0x0,0x0 cpu 0
    amd_l3 xi_sys_fill_latency [] request_cyclesx16 0x90,0x0,0x0 cpu 0
    amd_l3 xi_ccx_sdp_req1 [] requestsx1 0xff9a,0x0,0x0 cpu 0
    ");
    let cpus: Vec<u32> = plan.counters.iter().take(4).map(|counter| counter.cpu).collect();
    assert_eq!(cpus, [0, 2, 4, 6]);
    let sees: Vec<_> = plan.counters.iter().take(2).map(|c| c.sees.to_string()).collect();
    assert_eq!(sees, ["0-1", "2-3"]);
    assert!(plan.notes.is_empty(), "{:?}", plan.notes);
    let sampled = planned("zen5-2s", &["latency"], &[]);
    insta::assert_snapshot!(brief(&sampled)[0], @"amd_l3 l3_xi_sampled_latency.all [] nsx10 0x303c00000003fac,0x0,0x0 cpu 0");
}

/// What a CPU receives comes in beats of 32 bytes, what it sends in beats of 64 bytes
/// (`amdzen4/data-fabric.json`).
#[test]
fn zen_4_and_5_count_the_bytes_that_cpus_of_a_ccd_move() {
    let mesh = planned("zen4-2s", &["mesh"], &[]);
    let lines = brief(&mesh);
    let of = |name: &str| lines.iter().find(|line| line.contains(name)).unwrap();
    insta::assert_snapshot!(of("local_socket_inf0_inbound_data_beats_ccm0"), @"amd_df local_socket_inf0_inbound_data_beats_ccm0 [] bytesx32 0x40700fe1e,0x0,0x0 cpu 0");
    insta::assert_snapshot!(of("remote_socket_inf1_outbound_data_beats_ccm7"), @"amd_df remote_socket_inf1_outbound_data_beats_ccm7 [] bytesx64 0x50b00ffdf,0x0,0x0 cpu 0");
    assert!(mesh.notes[0].contains("64 events share 16 counters of amd_df"), "{:?}", mesh.notes);
    let mesh = planned("zen5-2s", &["mesh"], &[]);
    let lines = brief(&mesh);
    assert_eq!(lines.len(), 64);
    insta::assert_snapshot!(lines[0], @"amd_df local_or_remote_socket_inbound_data_beats_cfi_0 [] bytesx32 0x40f00fe1e,0x0,0x0 cpu 0");
    assert!(mesh.notes[0].contains("32 events share 16 counters of amd_df"), "{:?}", mesh.notes);
}

/// `arch/x86/events/rapl.c` and `arch/x86/events/amd/iommu.c`: names, scale and unit of sysfs.
#[test]
fn energy_and_the_iommu_are_read_where_their_masks_say() {
    let energy = planned("zen3-2s", &["energy"], &[]);
    insta::assert_snapshot!(brief(&energy)[..3].join("\n"), @r"
    power energy-pkg [] Joulesx0.00000000023283064365386963 0x2,0x0,0x0 cpu 0
    power energy-pkg [] Joulesx0.00000000023283064365386963 0x2,0x0,0x0 cpu 4
    power_core energy-core [] Joulesx0.00000000023283064365386963 0x1,0x0,0x0 cpu 0
    ");
    let sees: Vec<usize> = energy.counters.iter().map(|counter| counter.sees.len()).collect();
    assert_eq!(sees, [4, 4, 1, 1, 1, 1, 1, 1, 1, 1]);
    assert!(energy.notes.iter().any(|note| note.contains("do not add")), "{:?}", energy.notes);
    let iommu = planned("zen3-2s", &[], &["amd_iommu/mem_trans_total/"]);
    insta::assert_snapshot!(brief(&iommu).join("\n"), @r"
    amd_iommu_0 mem_trans_total [] requestsx1 0x5,0x0,0x0 cpu 0
    amd_iommu_1 mem_trans_total [] requestsx1 0x5,0x0,0x0 cpu 0
    ");
    // Devices cause it, whatever their socket.
    assert!(iommu.counters.iter().all(|counter| counter.sees.is_empty()));
}

/// The factors are those of perf's metrics for power9 and power10: a scaled count of a memory
/// controller is 64 bytes, one of the hypervisor's is 524288 bytes read.
#[test]
fn power_counts_memory_in_bytes() {
    let nest = planned("power9-2s", &["mem"], &[]);
    insta::assert_snapshot!(brief(&nest)[0], @"nest_mcs01_imc PM_MCS01_128B_RD_DISP_PORT01 [] bytesx16384 0x118,0x0,0x0 cpu 0");
    assert_eq!(nest.counters.len(), 16);
    let read = "hv_24x7/PM_MCS_128B_RD_DATA_BLOCKS_MC0_CHAN01";
    let chip = planned("power10", &[], &[&format!("{read},chip=1/")]);
    insta::assert_snapshot!(brief(&chip)[0], @"hv_24x7 PM_MCS_128B_RD_DATA_BLOCKS_MC0_CHAN01 [chip=0x1] bytesx524288 0x20000010001,0x0,0x0 cpu 0");
    let asked = refused("power10", &[], &[&format!("{read}/")]);
    assert!(asked.contains("chip"), "{asked}");
}
