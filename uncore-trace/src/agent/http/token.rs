//! The token that a request to save the ring shows.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::OFlags;
use sha2::{Digest as _, Sha256};

/// A shorter token can be guessed.
const SHORTEST: usize = 16;

/// Largest file with a token, bytes.
const LARGEST: u64 = 4096;

/// The digest of a token: comparing digests takes a time that says nothing about the token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Token([u8; 32]);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    pub(super) fn from_text(text: &[u8]) -> Self {
        Self(Sha256::digest(text).into())
    }

    /// The token in a file, without blanks around it.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is no regular file, or its token is too short.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = read_token_file(path).with_context(|| {
            format!("cannot read metrics.token-file {}: name another file", path.display())
        })?;
        let token = text.trim_ascii();
        ensure!(
            token.len() >= SHORTEST,
            "the token in {} is too short: choose at least {SHORTEST} characters",
            path.display()
        );
        Ok(Self::from_text(token))
    }
}

fn read_token_file(path: &Path) -> Result<Vec<u8>> {
    // A FIFO without a writer is opened at once, and refused.
    let mut options = File::options();
    let file = options.read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    let metadata = file.metadata()?;
    ensure!(
        metadata.is_file() && metadata.len() <= LARGEST,
        "it is not a file of at most {LARGEST} bytes"
    );
    if metadata.permissions().mode() & 0o007 != 0 {
        log::warn!("everybody can use the token in {}: chmod o-rwx", path.display());
    }
    let mut text = Vec::new();
    file.take(LARGEST).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_token_is_the_text_of_its_file_without_blanks() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("token");
        fs::write(&path, "0123456789abcdef\n").unwrap();
        assert_eq!(Token::read(&path).unwrap(), Token::from_text(b"0123456789abcdef"));
        for (text, says) in [("short\n", "too short"), ("", "too short")] {
            fs::write(&path, text).unwrap();
            assert!(format!("{:#}", Token::read(&path).unwrap_err()).contains(says));
        }
        fs::write(&path, vec![b'a'; 5000]).unwrap();
        for path in [&path, place.path(), &place.path().join("none")] {
            assert!(format!("{:#}", Token::read(path).unwrap_err()).contains("cannot read"));
        }
        assert_eq!(format!("{:?}", Token::from_text(b"secret")), "Token");
    }
}
