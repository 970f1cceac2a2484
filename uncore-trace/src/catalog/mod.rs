//! The catalog: the knowledge of PMU families that is not in sysfs.
//!
//! There is one embedded TOML file per family in `catalog/`. A new family is a file and a line in
//! [`FILES`], or a file that [`Catalog::add_files`] adds. Names and encodings in sysfs always take
//! precedence.

pub mod asides;
pub mod budget;
pub mod cache_names;
pub mod correction;
pub mod devices_behind;
#[cfg(test)]
mod document;
pub mod domain;
pub mod encode;
pub mod exact;
pub mod family;
pub mod filter;
pub mod formula;
pub mod group;
pub mod kernels;
pub mod link;
pub mod metric;
pub mod modifiers;
mod naming;
pub mod near;
pub mod overlay;
pub mod pattern;
pub mod pmu_words;
pub mod ports;
pub mod rules;
pub mod scope;
pub mod source;
pub mod spec;
pub(crate) mod vendor;
pub mod verified;
pub mod witness;

use anyhow::{Context, Result};

use self::family::{Family, StatUnit};
use self::pattern::matches_any;
use crate::discover::Pmu;

/// The texts of these files of the catalog.
macro_rules! family_files {
    ($($name:literal)*) => {
        &[$(include_str!(concat!("../../catalog/", $name, ".toml"))),*]
    };
}

/// The embedded families, in the order of listings.
const FILES: &[&str] = family_files! {
    "nvidia_scf" "nvidia_pcie" "nvidia_nvlink_c2c0" "nvidia_nvlink_c2c1" "nvidia_cnvlink"
    "nvidia_ucf" "nvidia_pcie_rc" "nvidia_pcie_tgt" "nvidia_cmem_latency" "nvidia_nvlink_c2c"
    "nvidia_nvclink" "nvidia_nvdlink" "nvidia_uncore"
    "dwc_rootport" "pcie_bdf" "arm_cmn" "ali_drw"
    "arm_dmc620" "arm_dsu"
    "ampere_mcu"
    "hisi_ddrc" "hisi_hha" "hisi_l3c" "hisi_pcie" "hisi_cpa" "hisi_pa" "hisi_sllc" "hisi_noc"
    "hisi_mn" "hisi_uc"
    "hns3_pmu"
    "mrvl_ddr" "mrvl_tad" "mrvl_pem"
    "fujitsu_mac" "fujitsu_pci"
    "smmuv3_pmcg"
    "arm_ni" "arm_ccn"
    "tx2_dmc" "tx2_l3c" "tx2_ccpi2"
    "qcom_l3" "qcom_l2"
    "xgene" "xgene_iob"
    "rockchip_ddr" "meson_ddr" "imx8_ddr" "imx8mn_ddr" "imx8mp_ddr" "imx9_ddr" "soc_ddr" "cxl_mem"
    "intel_imc_client" "intel_imc_client_channel" "intel_imc_client_free_running" "intel_imc"
    "intel_imc_free_running" "intel_hbm" "intel_cxlcm" "intel_cxldp" "intel_edc" "intel_iio"
    "intel_iio_free_running" "intel_irp" "intel_m2pcie" "intel_cha" "intel_cbox" "intel_upi"
    "intel_qpi" "intel_m2m" "intel_b2cmi" "intel_dmr_mesh" "intel_dmr_io" "intel_dmar"
    "idxd"
    "intel_m2hbm" "intel_m3upi" "intel_ha" "intel_sbox" "intel_arb" "intel_pcu" "intel_ubox"
    "amd_umc" "amd_df_zen2" "amd_df_zen4" "amd_df_zen5" "amd_df" "amd_l3_zen2" "amd_l3_zen3"
    "amd_l3_zen4" "amd_l3_zen5" "amd_l3" "amd_iommu"
    "power" "power_core"
    "cstate" "nest_imc" "core_imc" "hv_24x7" "accelerator" "arm_core" "core" "msr" "software"
    "disk" "net"
};

/// All families.
#[derive(Debug, Clone)]
pub struct Catalog {
    /// In the order of [`FILES`], preceded by the user's families that replace none of them.
    pub families: Vec<Family>,
    /// The user's files.
    pub outside: Vec<String>,
}

impl Catalog {
    /// The embedded catalog.
    pub fn load_embedded() -> Result<Self> {
        let families = FILES.iter().map(|text| {
            let first_line = || text.lines().find(|line| line.starts_with("family")).unwrap_or("?");
            toml::from_str(text).with_context(|| format!("the embedded catalog, {}", first_line()))
        });
        let mut families = families.collect::<Result<Vec<Family>>>()?;
        vendor::add_metrics(&mut families)?;
        Ok(Self { families, outside: Vec::new() })
    }

    /// The family of a PMU, if known.
    pub fn family_of(&self, pmu: &Pmu) -> Option<&Family> {
        self.families.iter().find(|family| family.recognises_pmu(pmu))
    }

    /// The family with this name.
    pub fn family_named(&self, family: &str) -> Option<&Family> {
        self.families.iter().find(|known| known.family == family)
    }

    /// The unit in which `stat` prints events with this unit of the family called `family`, if it
    /// is another one.
    pub fn stat_unit(&self, family: &str, unit: &str) -> Option<&StatUnit> {
        self.family_named(family)?.stat_unit(unit)
    }

    /// The family with the name of `pmu` but another identifier: its event names could mean
    /// something else on this PMU.
    pub fn find_impostor(&self, pmu: &Pmu) -> Option<&Family> {
        let named = |family: &&Family| matches_any(&family.names, &pmu.name);
        let named = self.families.iter().find(named).filter(|_| self.family_of(pmu).is_none());
        named.filter(|family| !family.identifiers_agree(pmu))
    }
}

#[cfg(test)]
mod tests {
    use self::family::PmuKind;
    use super::*;

    #[test]
    fn every_catalog_file_is_consistent() {
        let catalog = Catalog::load_embedded().unwrap();
        let files = std::fs::read_dir("catalog").unwrap().flatten();
        let files = files.filter(|file| file.path().is_file()).count();
        assert_eq!(catalog.families.len(), files);
        let mut names = std::collections::BTreeSet::new();
        for family in &catalog.families {
            assert!(names.insert(&family.family), "{} is there twice", family.family);
            let is_core = family.kind == PmuKind::Core;
            assert!(!is_core || !family.exact.is_empty(), "{}", family.family);
            assert!(!is_core || !family.witnesses.is_empty(), "{}", family.family);
            for other in family.yields_to.iter().chain(&family.events_of) {
                assert!(catalog.families.iter().any(|f| f.family == *other), "{other}");
            }
        }
    }
}
