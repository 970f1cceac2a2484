//! Enums whose values have names in tables, files and options.

/// Defines an enum from a list of its values with their names, and a function that returns the
/// name of a value.
macro_rules! named_values {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $type:ident;
        $(#[$name_doc:meta])*
        $name_visibility:vis fn $name:ident;
        $($(#[$value_attribute:meta])* $value:ident = $text:expr,)+
    ) => {
        $(#[$attribute])*
        $visibility enum $type {
            $($(#[$value_attribute])* $value,)+
        }

        impl $type {
            /// All values.
            $visibility const ALL: [Self; [$(Self::$value,)+].len()] = [$(Self::$value,)+];

            $(#[$name_doc])*
            $name_visibility const fn $name(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)+
                }
            }

            /// The value with this name.
            $visibility fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.$name() == name)
            }
        }
    };
}
pub(crate) use named_values;
