//! One kind of PMU on several kernels and machines: missing fields, different names and sizes, and
//! events that only the catalog has.

use uncore_trace::catalog::Catalog;
use uncore_trace::cmd::list::{ListForm, View, What, render_list};
use uncore_trace::discover::machine;
use uncore_trace::plan::plan;

use crate::machines::{brief, machine_with_files, planned, request, unpacked};

/// Kernels up to 6.12 have no `port` file for C2C: they count both ports, whatever the bits.
#[test]
fn a_filter_that_the_kernel_has_no_field_for_is_left_out() {
    let dir = unpacked("grace-2s");
    let pmu = dir.path().join("sys/bus/event_source/devices/nvidia_nvlink_c2c0_pmu_0");
    std::fs::remove_file(pmu.join("format/port")).unwrap();
    let machine = machine(dir.path()).unwrap();
    let catalog = Catalog::load_embedded().unwrap();
    let text = "nvidia_nvlink_c2c0_pmu_0/rd_bytes_loc/";
    let plan = plan(&machine, &catalog, &request(&[], &[text])).unwrap();
    assert_eq!((plan.counters[0].config[1], plan.counters[0].filter.as_str()), (0, ""));
}

/// Formats as in `arch/x86/events/{amd/uncore.c,intel/uncore_snbep.c}`; events only in the catalog.
#[test]
fn families_without_sysfs_events_use_the_catalog() {
    let (_dir, machine) = machine_with_files(&[
        ("amd_umc_0/type", "20"),
        ("amd_umc_0/cpumask", "0"),
        ("amd_umc_0/format/event", "config:0-7"),
        ("amd_umc_0/format/rdwrmask", "config:8-9"),
        ("uncore_upi_0/type", "21"),
        ("uncore_upi_0/cpumask", "0"),
        ("uncore_upi_0/format/event", "config:0-7"),
        ("uncore_upi_0/format/umask", "config:8-15,32-55"),
    ]);
    let catalog = Catalog::load_embedded().unwrap();
    let plan = plan(&machine, &catalog, &request(&["mem", "c2c"], &[])).unwrap();
    insta::assert_snapshot!(brief(&plan).join("\n"), @r"
    amd_umc_0 umc_cas_cmd.rd [] bytesx64 0x10a,0x0,0x0 cpu 0
    amd_umc_0 umc_cas_cmd.wr [] bytesx64 0x20a,0x0,0x0 cpu 0
    uncore_upi_0 unc_upi_txl_flits.all_data [] bytesx7.111111111111111 0xf02,0x0,0x0 cpu 0
    uncore_upi_0 unc_upi_rxl_flits.all_data [] bytesx7.111111111111111 0xf03,0x0,0x0 cpu 0
    ");
    // The package is not known: every CPU may have caused the traffic.
    assert!(plan.counters.iter().all(|c| c.socket.is_none() && c.sees.len() == 2));
}

/// The same PMU on two kernels: other names, encodings and units.
#[test]
fn cloud_kernel_ports_count_sixteen_bytes() {
    let (_dir, machine) = machine_with_files(&[
        ("pcie_bdf_200/type", "20"),
        ("pcie_bdf_200/cpumask", "1"),
        ("pcie_bdf_200/format/eventid", "config:0-15"),
        ("pcie_bdf_200/format/type", "config:16-19"),
        ("pcie_bdf_200/events/Rx_PCIe_TLP_Data_Payload", "eventid=0x21, type=0x1"),
        ("pcie_bdf_200/events/Tx_PCIe_TLP_Data_Payload", "eventid=0x20, type=0x1"),
    ]);
    let catalog = Catalog::load_embedded().unwrap();
    let events =
        ["pcie_bdf_200/Rx_PCIe_TLP_Data_Payload/", "pcie_bdf_200/Tx_PCIe_TLP_Data_Payload/"];
    let named = plan(&machine, &catalog, &request(&[], &events)).unwrap();
    insta::assert_snapshot!(brief(&named).join("\n"), @r"
    pcie_bdf_200 Rx_PCIe_TLP_Data_Payload [] bytesx16 0x10021,0x0,0x0 cpu 1
    pcie_bdf_200 Tx_PCIe_TLP_Data_Payload [] bytesx16 0x10020,0x0,0x0 cpu 1
    ");
    let group = plan(&machine, &catalog, &request(&["pcie"], &[])).unwrap();
    assert_eq!(brief(&group), brief(&named));
}

/// A kernel that is older than the hardware gives a Tegra410 PMU the name of a Grace PMU.
#[test]
fn a_pmu_with_a_predecessors_name_is_left_out_and_reported() {
    let (_dir, machine) = machine_with_files(&[
        ("nvidia_scf_pmu_0/type", "20"),
        ("nvidia_scf_pmu_0/cpumask", "0"),
        ("nvidia_scf_pmu_0/identifier", "2cf2036b\n"),
        ("nvidia_scf_pmu_0/format/event", "config:0-32"),
        ("nvidia_scf_pmu_0/events/cmem_rd_data", "event=0x1a5"),
        ("software/type", "1"),
    ]);
    let catalog = Catalog::load_embedded().unwrap();
    assert!(plan(&machine, &catalog, &request(&["mem"], &[])).is_err());
    let text =
        render_list(&machine, &catalog, What::Pmus, ListForm::Text(View::default())).unwrap();
    assert!(text.contains("identifier 2cf2036b is not that of nvidia_scf"), "{text}");
}

/// Kernels before 6.15 report a count as 4 bytes although it is 32.
#[test]
fn the_size_of_a_free_running_count_is_corrected() {
    let dir = unpacked("sapphire-rapids-2s");
    let pmus = dir.path().join("sys/bus/event_source/devices");
    for at in 0..3 {
        std::fs::remove_dir_all(pmus.join(format!("uncore_iio_{at}"))).unwrap();
        let events = pmus.join(format!("uncore_iio_free_running_{at}/events"));
        for port in 0..8 {
            let write = |name: &str, text: &str| std::fs::write(events.join(name), text).unwrap();
            write(&format!("bw_in_port{port}.scale"), "3.814697266e-6");
            write(&format!("bw_out_port{port}"), &format!("event=0xff,umask={:#x}", 0x30 + port));
            write(&format!("bw_out_port{port}.scale"), "3.814697266e-6");
            write(&format!("bw_out_port{port}.unit"), "MiB");
        }
    }
    let catalog = Catalog::load_embedded().unwrap();
    let old = plan(&machine(dir.path()).unwrap(), &catalog, &request(&["pcie"], &[])).unwrap();
    assert_eq!(old.counters.len(), 3 * 8 * 2);
    assert!(old.counters.iter().all(|c| c.unit == "bytes" && (c.scale - 32.0).abs() < 1e-9));
    assert!(old.notes.iter().any(|note| note.contains("corrected")), "{:?}", old.notes);
    // On Skylake a count is 4 bytes.
    let new = planned("skylake-sp-2s", &[], &["uncore_iio_free_running/bw_in_port0/"]);
    assert!(new.counters.iter().all(|c| (c.scale - 4.0).abs() < 1e-9));
    assert!(new.notes.iter().all(|note| !note.contains("corrected")), "{:?}", new.notes);
}

/// The cache of a cluster sees the CPUs of the cluster; a DDR controller sees all CPUs, whatever
/// `associated_cpus` says.
#[test]
fn a_cache_of_a_cluster_sees_the_cluster() {
    let plan = planned("kunpeng-920", &["cache"], &[]);
    let sees: std::collections::BTreeSet<_> =
        plan.counters.iter().map(|c| (c.pmu.as_str(), c.sees.to_string())).collect();
    assert!(sees.contains(&("hisi_sccl5_l3c1", "6-7".to_owned())), "{sees:?}");
    assert!(
        planned("altra-2s", &["cache"], &[])
            .counters
            .iter()
            .any(|c| c.pmu == "arm_dsu_1" && c.sees.to_string() == "2-3")
    );
    let mem = planned("kunpeng-920", &["mem"], &[]);
    assert!(mem.counters.iter().all(|c| c.sees.to_string() == "0-7"), "{:?}", mem.counters);
}

/// Home nodes are HN-F on CMN-600 to CMN-700 and HN-S on CMN S3.
#[test]
fn the_mesh_opens_the_home_nodes_that_it_has() {
    for (machine, kind) in [("altra-2s", "hnf_"), ("yitian", "hnf_"), ("cmn-s3", "hns_")] {
        for group in ["cache", "mem"] {
            let plan = planned(machine, &[group], &[]);
            let mesh: Vec<_> = plan.counters.iter().filter(|c| c.pmu.contains("cmn")).collect();
            assert!(!mesh.is_empty(), "{machine} {group}");
            assert!(mesh.iter().all(|c| c.event.starts_with(kind)), "{machine} {mesh:?}");
            assert!(!plan.notes.iter().any(|note| note.contains("no event")), "{:?}", plan.notes);
        }
    }
}
