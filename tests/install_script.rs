//! `install.sh` with small releases in local directories: it installs all files or changes nothing.
//!
//! `cargo xtask dist --check` runs it on a real release.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use crate::command::{Answer, Place, script};
use crate::skip::skip;

/// The files of an archive, with the permissions that they get.
const FILES: [(&str, u32); 5] = [
    ("bin/uncore-trace", 0o755),
    ("bin/uncore-trace-upload", 0o755),
    ("share/bash-completion/completions/uncore-trace", 0o644),
    ("share/doc/uncore-trace/LICENSE-MIT", 0o644),
    ("share/man/man1/uncore-trace.1", 0o644),
];

fn installer() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../install.sh")
}

/// A directory with the release `made`, an empty directory for temporary files, and programs that
/// stand in for those of the machine.
struct InstallPlace(Place);

impl InstallPlace {
    /// With a release for x86-64, whose files have their own names as content.
    fn new() -> Self {
        let place = Self(Place::new());
        for dir in ["made", "tmp", "programs", "stage"] {
            fs::create_dir(place.0.path(dir)).unwrap();
        }
        place.stand_in("uname", "#!/bin/sh\ncase $1 in -m) echo x86_64 ;; *) echo Linux ;; esac\n");
        let name = "uncore-trace-0.2.0-x86_64";
        for (file, _) in FILES {
            let path = place.0.path("stage").join(name).join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        let archive = place.0.path("made").join(format!("{name}.tar.gz"));
        let mut pack = Command::new("tar");
        pack.arg("-czf").arg(archive).arg("-C").arg(place.0.path("stage")).arg(name);
        let mut list = Command::new("sh");
        list.args(["-c", "sha256sum *.tar.gz > SHA256SUMS"]).current_dir(place.0.path("made"));
        for command in [&mut pack, &mut list] {
            Answer::of(command.output().unwrap()).ok();
        }
        place
    }

    fn stand_in(&self, program: &str, text: &str) {
        script(&self.0.path("programs").join(program), text);
    }

    fn run(&self, args: &[&str]) -> Output {
        let path = env::join_paths([
            self.0.path("programs"),
            PathBuf::from("/usr/bin"),
            PathBuf::from("/bin"),
        ]);
        let mut command = Command::new("sh");
        command.arg(installer()).args(args).current_dir(self.0.path("made"));
        command.env("PATH", path.unwrap()).env("TMPDIR", self.0.path("tmp"));
        command.env_remove("UNCORE_TRACE_RELEASE").output().unwrap()
    }

    /// Installs the release below a directory.
    fn install(&self, prefix: &str) -> Answer {
        let prefix = self.0.path(prefix);
        Answer::of(self.run(&["--prefix", prefix.to_str().unwrap(), "--from", "."]))
    }

    /// Panics unless the script changes nothing and fails with one line; returns the line.
    fn refused(&self, prefix: &str) -> String {
        let before = self.0.content();
        let answer = self.install(prefix);
        assert_eq!(self.0.content(), before, "{answer:#?}");
        error_line(&answer)
    }
}

/// The only line of an error with the exit code 2, without the name of the script.
fn error_line(answer: &Answer) -> String {
    assert_eq!((answer.code, answer.out.as_str()), (2, ""), "{answer:#?}");
    let line = answer.err.strip_suffix('\n').and_then(|line| line.strip_prefix("install.sh: "));
    let line = line.unwrap_or_else(|| panic!("{answer:#?}"));
    assert!(!line.contains('\n'), "{answer:#?}");
    line.to_owned()
}

#[test]
fn all_files_are_installed_below_a_prefix_with_spaces() {
    let place = InstallPlace::new();
    let prefix = place.0.path("a prefix/with spaces");
    let said = place.install("a prefix/with spaces").ok();
    let program = prefix.join("bin/uncore-trace");
    assert_eq!(said, format!("uncore-trace 0.2.0 is installed: {}\n", program.display()));
    for (file, mode) in FILES {
        assert_eq!(fs::read_to_string(prefix.join(file)).unwrap(), file);
        let permissions = fs::metadata(prefix.join(file)).unwrap().permissions();
        assert_eq!(permissions.mode() & 0o7777, mode, "{file}");
    }
    // Another version replaces the files and leaves nothing beside them.
    let after_install = place.0.content();
    fs::write(&program, "an old version").unwrap();
    place.install("a prefix/with spaces").ok();
    assert_eq!(place.0.content(), after_install);
}

#[test]
fn an_archive_with_another_digest_is_refused() {
    let place = InstallPlace::new();
    let archive = place.0.path("made/uncore-trace-0.2.0-x86_64.tar.gz");
    let mut bytes = fs::read(&archive).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&archive, bytes).unwrap();
    let line = place.refused("prefix");
    let begin = "uncore-trace-0.2.0-x86_64.tar.gz is not the file of SHA256SUMS: its digest is ";
    assert!(line.starts_with(begin), "{line}");
}

#[test]
fn a_release_without_an_archive_for_the_machine_is_refused() {
    let place = InstallPlace::new();
    fs::remove_file(place.0.path("made/uncore-trace-0.2.0-x86_64.tar.gz")).unwrap();
    let line = place.refused("prefix");
    assert_eq!(line, "there is no file ./uncore-trace-0.2.0-x86_64.tar.gz");
    let listed = fs::read_to_string(place.0.path("made/SHA256SUMS")).unwrap();
    // A name must not lead out of the directory for downloads.
    for names in [
        listed.replace("x86_64", "aarch64"),
        listed.replace("0.2.0", "/../x"),
        String::new(),
        listed.replace(".tar.gz", ".deb"),
    ] {
        fs::write(place.0.path("made/SHA256SUMS"), names).unwrap();
        assert_eq!(place.refused("prefix"), ". has no archive for x86_64 in its SHA256SUMS");
    }
    fs::write(place.0.path("made/SHA256SUMS"), listed.repeat(2)).unwrap();
    assert_eq!(place.refused("prefix"), ". has several archives for x86_64 in its SHA256SUMS");
    fs::remove_file(place.0.path("made/SHA256SUMS")).unwrap();
    assert_eq!(place.refused("prefix"), "there is no file ./SHA256SUMS");
}

#[test]
fn other_machines_and_kernels_are_refused() {
    let place = InstallPlace::new();
    let uname = |kernel: &str, machine: &str| {
        let text =
            format!("#!/bin/sh\ncase $1 in -m) echo {machine} ;; *) echo {kernel} ;; esac\n");
        place.stand_in("uname", &text);
        place.refused("prefix")
    };
    assert_eq!(
        uname("Linux", "riscv64"),
        "there is no release for riscv64, only for x86_64 and aarch64"
    );
    assert_eq!(uname("Darwin", "arm64"), "uncore-trace runs on Linux, and this is Darwin");
    assert_eq!(uname("Linux", "arm64"), ". has no archive for aarch64 in its SHA256SUMS");
}

#[test]
fn a_file_that_cannot_be_replaced_leaves_all_others_as_they_were() {
    let place = InstallPlace::new();
    fs::create_dir_all(place.0.path("prefix/bin/uncore-trace")).unwrap();
    let line = place.refused("prefix");
    let program = place.0.path("prefix/bin/uncore-trace");
    assert_eq!(line, format!("{} is a directory", program.display()));
    // The last of the files, when others are in their places.
    fs::remove_dir_all(place.0.path("prefix")).unwrap();
    place.install("prefix").ok();
    fs::write(place.0.path("prefix/share/man/man1/uncore-trace.1"), "an old page").unwrap();
    let target = place.0.path("prefix/bin/uncore-trace-upload");
    for (program, source) in
        [("cp", "*/uncore-trace-upload"), ("mv", "*/uncore-trace-upload.new.*")]
    {
        let refuses = format!("case $3 in {source}) echo no >&2; exit 1 ;; esac");
        let text = format!("#!/bin/sh\n{refuses}\nexec /bin/{program} \"$@\"\n");
        place.stand_in(program, &text);
        let line = place.refused("prefix");
        assert_eq!(line, format!("cannot replace {}: no", target.display()));
        fs::remove_file(place.0.path("programs").join(program)).unwrap();
    }
}

#[test]
fn a_prefix_that_is_a_file_is_refused_before_anything_is_fetched() {
    let place = InstallPlace::new();
    fs::write(place.0.path("prefix"), "a file").unwrap();
    fs::remove_file(place.0.path("made/SHA256SUMS")).unwrap();
    let line = place.refused("prefix/below");
    assert_eq!(line, format!("{} is not a directory", place.0.path("prefix").display()));
}

#[test]
fn wrong_options_are_refused_and_the_help_is_printed() {
    let place = InstallPlace::new();
    for (args, expected) in [
        (["--prefix"].as_slice(), "--prefix needs a value"),
        (&["--from="], "--from needs a value"),
        (&["--prefx", "/x"], "there is no option --prefx: try --help"),
        (&["--prefix", "a\nb"], "the directory of --prefix has a newline in its name"),
    ] {
        assert_eq!(error_line(&Answer::of(place.run(args))), expected);
    }
    let help = Answer::of(place.run(&["--help"])).ok();
    let release = concat!(
        env!("CARGO_PKG_REPOSITORY"),
        "/releases/download/v",
        env!("CARGO_PKG_VERSION"),
        "]"
    );
    assert!(help.contains(release), "install.sh and Cargo.toml differ: {help}");
}

#[test]
fn the_script_is_accepted_by_shellcheck() {
    match Command::new("shellcheck").arg(installer()).output() {
        Err(error) if error.kind() == ErrorKind::NotFound => skip("no shellcheck"),
        output => {
            let output = output.unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        }
    }
}
