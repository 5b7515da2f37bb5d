//! Opens the file and answers.

use gguf::{Error, GgufFile, Outline, validate};
use gguf_cli::{Failure, Result, print_json, warn, write_data};

use crate::facts::{Check, JsonValue};
use crate::plan::{Plan, Sections, Task};
use crate::report::{json, text};

pub(crate) fn run(plan: &Plan) -> Result<()> {
    match &plan.task {
        Task::Show(sections) => show(plan, *sections),
        Task::Key(key) => value(plan, key),
        Task::Check { strict } => check(plan, *strict),
    }
}

fn show(plan: &Plan, sections: Sections) -> Result<()> {
    if plan.json {
        let file = GgufFile::open(&plan.file)?;
        print_json(&json::show(&file, sections))?;
        warn_of_damage(&file);
    } else {
        let outline = Outline::open(&plan.file, text::N_ITEMS)?;
        write_data(|out| text::show(out, &outline, sections))?;
        warn_of_damage(outline.file());
    }
    Ok(())
}

fn warn_of_damage(file: &GgufFile) {
    let n = validate::layout(file).iter().filter(|f| f.severe).count();
    if n > 0 {
        let path = file.path().display();
        warn(&format!(
            "`{path}` is damaged ({n} findings): see `gguf-inspect check {path}`"
        ));
    }
}

fn value(plan: &Plan, key: &str) -> Result<()> {
    let file = GgufFile::open(&plan.file)?;
    let Some(value) = file.metadata.get(key) else {
        let path = plan.file.display();
        return Err(Failure::Input(format!(
            "`{path}` has no metadata key `{key}`: `--metadata` lists them"
        )));
    };
    if plan.json {
        print_json(&JsonValue(value))
    } else {
        write_data(|out| text::value(out, value))
    }
}

fn check(plan: &Plan, strict: bool) -> Result<()> {
    let file = match GgufFile::open(&plan.file) {
        Ok(file) => file,
        Err(Error::Malformed(e)) => {
            if plan.json {
                print_json(&Check::unreadable(&e))?;
            }
            return Err(Error::Malformed(e).into());
        }
        Err(e) => return Err(e.into()),
    };
    let check = Check::of(&file);
    if plan.json {
        print_json(&check)?;
    } else {
        write_data(|out| text::check(out, &check))?;
    }
    let n = if strict {
        check.findings.len()
    } else {
        check.n_errors()
    };
    if n > 0 {
        let path = plan.file.display();
        return Err(Failure::Input(format!("`{path}` failed the check: {n} findings")));
    }
    Ok(())
}
