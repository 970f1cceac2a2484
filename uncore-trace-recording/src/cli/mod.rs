//! What the command lines of both programs share: options, messages and output.

pub mod command_line;
pub mod heading;
pub mod messages;
pub mod output;
pub mod repeated_warnings;
pub mod upload_args;
mod values;
