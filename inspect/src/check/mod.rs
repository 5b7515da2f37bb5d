//! `check`: everything that is wrong with a model.

mod architecture;
mod data;
mod generic;
mod keys;
mod vocabulary;

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args as ClapArgs;
use gguf::validate::{self, Finding, Findings};
use gguf::{Error, GgufFile, OpenOptions};
use gguf_cli::{
    Failure, Result, TalkArgs, ThreadArgs, count, file_name, print_json, printable, write_report,
};
use serde::Serialize;

#[derive(ClapArgs, Debug)]
pub(crate) struct Args {
    /// A GGUF file, any shard of a split set, a folder with one model, or an address
    file: PathBuf,
    /// Write JSON
    #[arg(long)]
    json: bool,
    /// Fail on warnings too
    #[arg(long)]
    strict: bool,
    /// Read the weights too, and look for values and scales that no sound file has
    #[arg(long)]
    data: bool,
    #[command(flatten)]
    threads: ThreadArgs,
    #[command(flatten)]
    talk: TalkArgs,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let file = match OpenOptions::new().incomplete().open(&args.file) {
        Ok(file) => file,
        Err(Error::Malformed(e)) => {
            if args.json {
                print_json(&Check::unreadable(&e))?;
            }
            return Err(Error::Malformed(e).into());
        }
        Err(e) => return Err(e.into()),
    };
    let data = if args.data {
        data::findings(&file, &args.threads.pool()?, args.talk.quiet)?
    } else {
        Vec::new()
    };
    let check = Check::of(&file, data);
    if args.json {
        print_json(&check)?;
    } else {
        write_report(|out| check.write(out))?;
    }
    let n = if args.strict {
        check.findings.len()
    } else {
        check.n_errors()
    };
    if n > 0 {
        let path = args.file.display();
        let n = count(n as u64, "finding");
        return Err(Failure::Input(format!("`{path}` failed the check: {n}")));
    }
    Ok(())
}

/// What a check found.
#[derive(Debug, Serialize)]
struct Check {
    file: String,
    /// Whether no finding is an error.
    sound: bool,
    tensors: usize,
    /// Tensors proved to lie inside the file, aligned and without overlap.
    proved: usize,
    findings: Vec<Item>,
}

/// A finding.
#[derive(Debug, Serialize)]
struct Item {
    severity: &'static str,
    /// The file of a split set.
    file: Option<String>,
    object: String,
    at: Option<u64>,
    what: String,
    remedy: Option<&'static str>,
}

impl Item {
    fn of(file: &GgufFile, f: Finding) -> Self {
        let path = file.parts()[f.part].path();
        Self {
            severity: if f.severe { "error" } else { "warning" },
            file: (file.parts().len() > 1).then(|| file_name(path).into_owned()),
            object: f.object,
            at: f.at,
            what: f.what,
            remedy: Some(f.remedy),
        }
    }
}

impl Check {
    /// `data` is what was found in the weights. Errors stand in front of warnings.
    fn of(file: &GgufFile, data: Vec<Finding>) -> Self {
        let report = validate::tensors(file);
        let mut findings = Findings::new();
        findings.extend(report.findings);
        findings.extend(validate::metadata(file));
        keys::check(&file.metadata, &mut findings);
        vocabulary::check(&file.metadata, &mut findings);
        architecture::check(file, &mut findings);
        findings.extend(data);
        let mut findings = findings.into_vec();
        findings.sort_by_key(|f| !f.severe);
        Self {
            file: file.path().display().to_string(),
            sound: findings.iter().all(|f| !f.severe),
            tensors: file.tensors.len(),
            proved: report.n_proved,
            findings: findings.into_iter().map(|f| Item::of(file, f)).collect(),
        }
    }

    /// The check of a file that cannot be opened.
    fn unreadable(e: &gguf::Malformed) -> Self {
        let item = Item {
            severity: "error",
            file: None,
            object: "file".to_owned(),
            at: Some(e.at),
            what: e.what.clone(),
            remedy: None,
        };
        Self {
            file: e.file.display().to_string(),
            sound: false,
            tensors: 0,
            proved: 0,
            findings: vec![item],
        }
    }

    fn n_errors(&self) -> usize {
        self.findings.iter().filter(|f| f.severity == "error").count()
    }

    /// The findings, then what was proved.
    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        for f in &self.findings {
            let file = f
                .file
                .as_ref()
                .map_or(String::new(), |name| format!("`{name}`: "));
            let at = f.at.map_or(String::new(), |at| format!(" at byte {at}"));
            let remedy = f.remedy.map_or(String::new(), |r| format!("; {r}"));
            let line = format!("{}: {file}{}{at}: {}{remedy}", f.severity, f.object, f.what);
            writeln!(out, "{}", printable(&line))?;
        }
        writeln!(
            out,
            "proved: {} of {} lie inside the file, aligned and without overlap",
            self.proved,
            count(self.tensors as u64, "tensor")
        )
    }
}
