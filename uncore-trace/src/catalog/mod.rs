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

/// The embedded families, in the order of listings.
const FILES: &[&str] = &[
    include_str!("../../catalog/nvidia_scf.toml"),
    include_str!("../../catalog/nvidia_pcie.toml"),
    include_str!("../../catalog/nvidia_nvlink_c2c0.toml"),
    include_str!("../../catalog/nvidia_nvlink_c2c1.toml"),
    include_str!("../../catalog/nvidia_cnvlink.toml"),
    include_str!("../../catalog/nvidia_ucf.toml"),
    include_str!("../../catalog/nvidia_pcie_rc.toml"),
    include_str!("../../catalog/nvidia_pcie_tgt.toml"),
    include_str!("../../catalog/nvidia_cmem_latency.toml"),
    include_str!("../../catalog/nvidia_nvlink_c2c.toml"),
    include_str!("../../catalog/nvidia_nvclink.toml"),
    include_str!("../../catalog/nvidia_nvdlink.toml"),
    include_str!("../../catalog/nvidia_uncore.toml"),
    include_str!("../../catalog/dwc_rootport.toml"),
    include_str!("../../catalog/pcie_bdf.toml"),
    include_str!("../../catalog/arm_cmn.toml"),
    include_str!("../../catalog/ali_drw.toml"),
    include_str!("../../catalog/arm_dmc620.toml"),
    include_str!("../../catalog/arm_dsu.toml"),
    include_str!("../../catalog/ampere_mcu.toml"),
    include_str!("../../catalog/hisi_ddrc.toml"),
    include_str!("../../catalog/hisi_hha.toml"),
    include_str!("../../catalog/hisi_l3c.toml"),
    include_str!("../../catalog/hisi_pcie.toml"),
    include_str!("../../catalog/hisi_cpa.toml"),
    include_str!("../../catalog/hisi_pa.toml"),
    include_str!("../../catalog/hisi_sllc.toml"),
    include_str!("../../catalog/hisi_noc.toml"),
    include_str!("../../catalog/hisi_mn.toml"),
    include_str!("../../catalog/hisi_uc.toml"),
    include_str!("../../catalog/hns3_pmu.toml"),
    include_str!("../../catalog/mrvl_ddr.toml"),
    include_str!("../../catalog/mrvl_tad.toml"),
    include_str!("../../catalog/mrvl_pem.toml"),
    include_str!("../../catalog/fujitsu_mac.toml"),
    include_str!("../../catalog/fujitsu_pci.toml"),
    include_str!("../../catalog/smmuv3_pmcg.toml"),
    include_str!("../../catalog/arm_ni.toml"),
    include_str!("../../catalog/arm_ccn.toml"),
    include_str!("../../catalog/tx2_dmc.toml"),
    include_str!("../../catalog/tx2_l3c.toml"),
    include_str!("../../catalog/tx2_ccpi2.toml"),
    include_str!("../../catalog/qcom_l3.toml"),
    include_str!("../../catalog/qcom_l2.toml"),
    include_str!("../../catalog/xgene.toml"),
    include_str!("../../catalog/xgene_iob.toml"),
    include_str!("../../catalog/rockchip_ddr.toml"),
    include_str!("../../catalog/meson_ddr.toml"),
    include_str!("../../catalog/imx8_ddr.toml"),
    include_str!("../../catalog/imx8mn_ddr.toml"),
    include_str!("../../catalog/imx8mp_ddr.toml"),
    include_str!("../../catalog/imx9_ddr.toml"),
    include_str!("../../catalog/soc_ddr.toml"),
    include_str!("../../catalog/cxl_mem.toml"),
    include_str!("../../catalog/intel_imc_client.toml"),
    include_str!("../../catalog/intel_imc_client_channel.toml"),
    include_str!("../../catalog/intel_imc_client_free_running.toml"),
    include_str!("../../catalog/intel_imc.toml"),
    include_str!("../../catalog/intel_imc_free_running.toml"),
    include_str!("../../catalog/intel_hbm.toml"),
    include_str!("../../catalog/intel_cxlcm.toml"),
    include_str!("../../catalog/intel_cxldp.toml"),
    include_str!("../../catalog/intel_edc.toml"),
    include_str!("../../catalog/intel_iio.toml"),
    include_str!("../../catalog/intel_iio_free_running.toml"),
    include_str!("../../catalog/intel_irp.toml"),
    include_str!("../../catalog/intel_m2pcie.toml"),
    include_str!("../../catalog/intel_cha.toml"),
    include_str!("../../catalog/intel_cbox.toml"),
    include_str!("../../catalog/intel_upi.toml"),
    include_str!("../../catalog/intel_qpi.toml"),
    include_str!("../../catalog/intel_m2m.toml"),
    include_str!("../../catalog/intel_b2cmi.toml"),
    include_str!("../../catalog/intel_dmr_mesh.toml"),
    include_str!("../../catalog/intel_dmr_io.toml"),
    include_str!("../../catalog/intel_dmar.toml"),
    include_str!("../../catalog/idxd.toml"),
    include_str!("../../catalog/intel_m2hbm.toml"),
    include_str!("../../catalog/intel_m3upi.toml"),
    include_str!("../../catalog/intel_ha.toml"),
    include_str!("../../catalog/intel_sbox.toml"),
    include_str!("../../catalog/intel_arb.toml"),
    include_str!("../../catalog/intel_pcu.toml"),
    include_str!("../../catalog/intel_ubox.toml"),
    include_str!("../../catalog/amd_umc.toml"),
    include_str!("../../catalog/amd_df_zen2.toml"),
    include_str!("../../catalog/amd_df_zen4.toml"),
    include_str!("../../catalog/amd_df_zen5.toml"),
    include_str!("../../catalog/amd_df.toml"),
    include_str!("../../catalog/amd_l3_zen2.toml"),
    include_str!("../../catalog/amd_l3_zen3.toml"),
    include_str!("../../catalog/amd_l3_zen4.toml"),
    include_str!("../../catalog/amd_l3_zen5.toml"),
    include_str!("../../catalog/amd_l3.toml"),
    include_str!("../../catalog/amd_iommu.toml"),
    include_str!("../../catalog/power.toml"),
    include_str!("../../catalog/power_core.toml"),
    include_str!("../../catalog/cstate.toml"),
    include_str!("../../catalog/nest_imc.toml"),
    include_str!("../../catalog/core_imc.toml"),
    include_str!("../../catalog/hv_24x7.toml"),
    include_str!("../../catalog/accelerator.toml"),
    include_str!("../../catalog/arm_core.toml"),
    include_str!("../../catalog/core.toml"),
    include_str!("../../catalog/msr.toml"),
    include_str!("../../catalog/software.toml"),
    include_str!("../../catalog/disk.toml"),
    include_str!("../../catalog/net.toml"),
];

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
