//! `forebay doctor`.

use crate::doctor::Host;
use crate::doctor::report::Report;
use crate::doctor::system::System;
use crate::doctor::words::Language;
use anyhow::{Context, Result};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct DoctorArgs {
    /// Look at a recorded host instead of this one: a folder with its sys and proc
    #[arg(long, value_name = "DIR")]
    sysroot: Option<PathBuf>,
    /// Language [default: of the environment]
    #[arg(long, value_name = "LANGUAGE")]
    language: Option<Language>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Looks, and says what it saw.
pub fn run(args: &DoctorArgs) -> Result<()> {
    let system = match &args.sysroot {
        Some(root) => {
            System::recorded(root).with_context(|| format!("look at the recorded host in {}", root.display()))?
        }
        None => System::live(),
    };
    let language = args.language.unwrap_or_else(Language::of_environment);
    let report = Report::of(&Host::look(system), language);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.text(language));
    }
    Ok(())
}
