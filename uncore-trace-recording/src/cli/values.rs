//! Names and help of the values of options, for types that do not depend on the parser of the
//! command line.

use crate::choice::{DeclaredCause, MethodChoice};

/// Implements [`clap::ValueEnum`] for each type, with all its values in the order of the help.
#[macro_export]
macro_rules! option_values {
    ($($type:ident { $($value:ident: $help:literal,)* })*) => {$(
        impl ::clap::ValueEnum for $type {
            fn value_variants<'a>() -> &'a [Self] {
                &[$(Self::$value,)*]
            }

            fn to_possible_value(&self) -> Option<::clap::builder::PossibleValue> {
                let help = match self {
                    $(Self::$value => $help,)*
                };
                Some(::clap::builder::PossibleValue::new(self.name()).help(help))
            }
        }
    )*};
}

option_values! {
    MethodChoice {
        Auto: "io for PCIe root ports, misses for traffic of CPUs if misses are counted, \
               regression for other counters that CPUs share, residency for counters of one CPU",
        Residency: "In proportion to time on the CPUs that the counter sees",
        Io: "PCIe root ports by the bytes that disks and interfaces moved for each owner, other \
             counters by residency",
        Misses: "Traffic of CPUs by last-level cache misses, other counters as with auto; reads \
                 the core's miss counter at every context switch and tick of these CPUs",
        Regression: "By each owner's traffic per CPU time, which is learnt from the ticks; by \
                     residency where nothing can be learnt",
    }
    DeclaredCause {
        Cpu: "CPUs near the PMU: their counts are divided among tasks",
        Device: "Devices: their counts are given to `device`",
    }
}
