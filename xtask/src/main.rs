//! The project's own tasks.
mod bpf;
fn main() -> anyhow::Result<()> {
    bpf::run(std::env::args().any(|arg| arg == "--check"))
}
