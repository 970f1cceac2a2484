//! The tests that need more than one module: `machines` plans on captured machines.

mod machines;
