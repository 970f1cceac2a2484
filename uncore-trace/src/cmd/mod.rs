//! The subcommands, one file each: `Args` is what was typed, `run` runs the stages for it and
//! returns the exit code. Adding one adds a file, its `mod` line and its line in [`Command`]'s list.

pub mod attribute;
pub mod catalog;
pub mod check;
pub mod doctor;
pub mod list;
pub mod log;
pub mod record;
pub mod repair;
pub mod report;
pub mod select;
pub mod stat;

macro_rules! commands {
    ($($module:ident: $name:ident,)*) => {
        /// What was asked for.
        #[derive(Debug, clap::Subcommand)]
        pub enum Command {
            $(
                #[expect(missing_docs, reason = "clap takes the help text from the arguments' own doc")]
                $name(Box<$module::Args>),
            )*
        }

        impl Command {
            /// Runs it on the machine whose files are under `root`; returns the exit code.
            pub fn run(&self, root: &std::path::Path) -> anyhow::Result<u8> {
                match self {
                    $(Self::$name(args) => $module::run(args, root),)*
                }
            }
        }
    };
}

commands! {
    record: Record,
    stat: Stat,
    report: Report,
    check: Check,
    attribute: Attribute,
    repair: Repair,
    list: List,
    doctor: Doctor,
}
