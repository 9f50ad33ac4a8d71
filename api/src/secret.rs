//! Files that hold a secret: they are refused where others than their owner can read or write them.

use anyhow::{Context, Result, bail};
use forebay_io::folder;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Bytes that are read of a secret.
const SECRET_BYTES_MAX: u64 = 1 << 16;

/// The first line of a file that only its owner can read.
pub fn read_secret(path: &Path) -> Result<String> {
    let shown = path.display();
    let file = folder::open_file(path).with_context(|| format!("cannot read {shown}"))?;
    let metadata = file.metadata().with_context(|| format!("cannot look at {shown}"))?;
    if metadata.permissions().mode() & 0o077 != 0 {
        bail!("{shown} can be read or written by others, and holds a secret: chmod 600 {shown}");
    }
    let text = folder::read_all(file, SECRET_BYTES_MAX, path).with_context(|| format!("cannot read {shown}"))?;
    let text = String::from_utf8_lossy(&text);
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        Some(_) | None => bail!("the first line of {shown} is empty: it should be the value of the option"),
    }
}

/// Refuses a file that others than its owner can read or write.
pub fn check_secret_mode(path: &Path) -> Result<()> {
    let metadata = std::fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        bail!(
            "{} is a secret and can be read or written by others (mode {mode:03o}): chmod 600 it, and renew what is in it if somebody \
             may have read it",
            path.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        std::fs::write(&path, "open sesame\nsecond line\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(read_secret(&path).unwrap_err().to_string().contains("chmod 600"));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(read_secret(&path).unwrap(), "open sesame");
        std::fs::write(&path, "\n").unwrap();
        assert!(read_secret(&path).is_err());
    }
}
