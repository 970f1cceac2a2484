//! The PMUs of a machine with their families, which are looked up once: a machine may have
//! thousands of PMUs, and each group and metric asks for those of its family.

use std::collections::HashMap;

use crate::catalog::Catalog;
use crate::catalog::pmu_words::PmuWords;
use crate::discover::Machine;

/// All PMUs in the machine's order, and by the name of their family.
#[derive(Debug)]
pub(super) struct PmuIndex<'a> {
    /// All PMUs.
    pub(super) pmus: Vec<PmuWords<'a>>,
    by_family: HashMap<&'a str, Vec<PmuWords<'a>>>,
}

impl<'a> PmuIndex<'a> {
    pub(super) fn new(machine: &'a Machine, catalog: &'a Catalog) -> Self {
        let pmus: Vec<_> = machine.pmus.iter().map(|pmu| PmuWords::new(catalog, pmu)).collect();
        let mut by_family: HashMap<&str, Vec<PmuWords<'a>>> = HashMap::new();
        for words in &pmus {
            if let Some(family) = words.family {
                by_family.entry(&family.family).or_default().push(*words);
            }
        }
        Self { pmus, by_family }
    }

    /// The PMUs of the family with this name.
    pub(super) fn family_pmus(&self, family: &str) -> &[PmuWords<'a>] {
        self.by_family.get(family).map_or(&[], Vec::as_slice)
    }
}
