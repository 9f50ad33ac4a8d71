//! `forebay dashboard`: where the dashboard is, with a link that logs in.
//!
//! The link holds the token, which may change everything. It is shown on a terminal and nowhere else: not in a pipe, not in a
//! file, not by the daemon, whose messages the system keeps and others read.

use super::Client;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

/// A token has 48 digits.
const TOKEN_FILE_BYTES_MAX: u64 = 4096;

/// Tells where the dashboard is, with the token that logs in where a terminal shows it.
pub fn run(client: &Client, json: bool) -> Result<bool> {
    let status = client.call("GET", "/v1/status", None)?;
    let page = page_of(&status)?;
    let token = PathBuf::from(status["state"].as_str().unwrap_or_default()).join("token");
    if json {
        println!("{}", serde_json::to_string_pretty(&json!({ "page": page, "token_file": token }))?);
    } else if std::io::stdout().is_terminal() {
        match read_token(&token) {
            Ok(word) => println!("{page}#token={word}\nWhoever has this link may change everything."),
            Err(error) => println!("{page}\nIt shows everything from this host. For changes: {error:#}"),
        }
    } else {
        println!("{page}");
        eprintln!("forebay: a link that logs in is shown on a terminal only; the token is in {}", token.display());
    }
    Ok(true)
}

/// What a daemon says is shown as it is only if nothing of it can be a command to the terminal.
fn page_of(status: &Value) -> Result<&str> {
    match status["page"].as_str() {
        Some(page) if page.starts_with("http") && page.bytes().all(|b| b.is_ascii_graphic()) => Ok(page),
        Some(_) => bail!("the daemon names a page that is no address"),
        None => bail!("the daemon serves no page; start it with --http HOST:PORT"),
    }
}

/// A token and nothing else: where the file lies is the daemon's word, and whoever asks may read more than its user.
fn read_token(path: &Path) -> Result<String> {
    let text = forebay_io::folder::read_text(path, TOKEN_FILE_BYTES_MAX)
        .with_context(|| format!("cannot read the token in {}; root and the daemon's user can", path.display()))?;
    let word = text.trim();
    if word.len() < 32 || !word.bytes().all(|b| b.is_ascii_hexdigit()) {
        bail!("{} holds no token", path.display());
    }
    Ok(word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_a_token_is_shown_whatever_the_file_holds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for text in ["", "root:$6$salt$hash:19000:0:99999:7:::", "0123", &"\u{1b}[2J".repeat(20)] {
            std::fs::write(&path, text).unwrap();
            let said = format!("{:#}", read_token(&path).unwrap_err());
            assert!(said.contains("holds no token") && !said.contains("hash"), "{said}");
        }
        let token = "0123456789abcdef".repeat(3);
        std::fs::write(&path, format!("{token}\n")).unwrap();
        assert_eq!(read_token(&path).unwrap(), token);
    }

    #[test]
    fn what_is_no_address_is_not_shown() {
        let page =
            |page: Value| page_of(&json!({ "page": page })).map(str::to_owned).map_err(|error| error.to_string());
        assert_eq!(page(json!("http://127.0.0.1:7070/")).unwrap(), "http://127.0.0.1:7070/");
        assert!(page(json!("http://a/\u{1b}[2J")).unwrap_err().contains("no address"));
        assert!(page(Value::Null).unwrap_err().contains("--http"));
    }
}
