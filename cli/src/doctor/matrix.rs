//! `forebay doctor matrix`: measured by [`forebay_doctor::matrix`], told here.

use super::Asked;
use anyhow::{Context, Result, bail};
use forebay_doctor::checks::links;
use forebay_doctor::findings::{Sentence, Verdict};
use forebay_doctor::matrix::{KEPT, Matrix, Part, Plan, measure};
use forebay_doctor::words::say;
use forebay_host::system::OWN_FOLDER;
use forebay_host::topology;
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::path::Path;

#[derive(clap::Args)]
pub struct MatrixArgs {
    /// Measure also where the host is busy, or has little free memory
    #[arg(long)]
    force: bool,
    /// Keep it for `forebay doctor`, which compares with it until the next boot; needs root
    #[arg(long, conflicts_with = "only")]
    keep: bool,
    /// Measure these parts alone, such as `bandwidth,latency`: the whole takes minutes where there are many nodes
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
}

/// The measurement and what it says, for a program.
#[derive(Serialize)]
struct Told<'a> {
    #[serde(flatten)]
    matrix: &'a Matrix,
    says: Vec<String>,
}

impl MatrixArgs {
    /// Measures. False: it was refused.
    pub fn run(&self, asked: &Asked) -> Result<bool> {
        let topology = topology::read(&asked.system);
        let plan = Plan { only: self.only.clone(), force: self.force, ..Plan::default() };
        let (language, watched) = (asked.language, std::io::stderr().is_terminal());
        let measured = measure(&asked.system, &topology, &plan, |cell, number, count| {
            if watched {
                // Nothing is lost where nobody sees how far it is.
                let _ = write!(std::io::stderr(), "\x1b[K{number}/{count} {}\r", say(language, cell));
            }
        });
        if watched {
            let _ = write!(std::io::stderr(), "\x1b[K");
        }
        let matrix = match measured? {
            Ok(matrix) => matrix,
            Err(reasons) => {
                let why: Vec<String> = reasons.iter().map(|reason| say(language, reason)).collect();
                let refused = Sentence::new("matrix.refused").with("why", why.join("; "));
                bail!("{}", say(language, &refused));
            }
        };
        let mut says = matrix.caveats();
        let caveat = matrix.caveat(language).filter(|_| asked.json);
        match links::of_matrix(&matrix, &topology, "forebay doctor matrix") {
            Verdict::Found(found) | Verdict::FoundPart { found, .. } => {
                says.extend(found.into_iter().map(|finding| finding.text))
            }
            Verdict::Fine(why) => says.push(why),
            Verdict::NotHere | Verdict::NotSeen { .. } => {}
        }
        if self.keep {
            keep(asked, &matrix)?;
            says.push(Sentence::new("matrix.kept").with("path", KEPT));
        }
        // The text has it above its tables.
        let says: Vec<String> = caveat.into_iter().chain(says.iter().map(|sentence| say(language, sentence))).collect();
        if asked.json {
            println!("{}", serde_json::to_string_pretty(&Told { matrix: &matrix, says })?);
        } else {
            print!("{}", matrix.text(language));
            says.iter().for_each(|says| println!("\n{says}"));
        }
        Ok(true)
    }
}

/// Writes it beside its place, and then there: a reader finds all of it or none.
fn keep(asked: &Asked, matrix: &Matrix) -> Result<()> {
    let folder = asked
        .system
        .make_own_folder()
        .with_context(|| format!("make {OWN_FOLDER} to keep the measurement in; run it as root"))?;
    let name = Path::new(KEPT).file_name().context("a file below a folder")?;
    let text = serde_json::to_vec_pretty(matrix)?;
    folder.replace(name, &text, 0o644).with_context(|| format!("write {KEPT}; run it as root"))
}
