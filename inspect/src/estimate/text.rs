//! The estimate for people.

use std::io::{self, Write};

use gguf_cli::{human_bytes, printable, table};

use super::{Estimate, LayerMemory};

pub(super) fn write(out: &mut dyn Write, e: &Estimate) -> io::Result<()> {
    head(out, e)?;
    writeln!(out, "\n{}\n", sums(e))?;
    if let Some(layers) = &e.layers {
        writeln!(out, "{}\n", by_layer(layers))?;
    }
    let apart = &e.experts_apart;
    let experts = if e.weights.experts > 0 {
        " -ot exps=CPU"
    } else {
        ""
    };
    writeln!(
        out,
        "with `-ngl 99{experts}`: {} in main memory, {} on the device",
        human_bytes(apart.main_memory),
        human_bytes(apart.device)
    )?;
    if let Some(s) = &e.this_suite {
        writeln!(
            out,
            "with `gguf-run`: {} (file {}, cache {}, buffers {}, program {})",
            human_bytes(s.total),
            human_bytes(s.file),
            human_bytes(s.cache),
            human_bytes(s.buffers),
            human_bytes(s.program)
        )?;
    }
    for line in &e.left_out {
        writeln!(out, "left out: {}", printable(line))?;
    }
    Ok(())
}

fn head(out: &mut dyn Write, e: &Estimate) -> io::Result<()> {
    let run = &e.run;
    writeln!(out, "model: {}", printable(&e.file))?;
    if let Some(name) = &e.architecture {
        writeln!(out, "architecture: {}", printable(name))?;
    }
    let made_for = match e.context_length {
        Some(n) if n < run.n_ctx => format!(", more than the {n} that the model was made for"),
        Some(n) if n > run.n_ctx => format!(" of the model's {n}"),
        _ => String::new(),
    };
    writeln!(out, "context: {} tokens{made_for}", run.n_ctx)?;
    write!(out, "cache: {} cells", e.cache.cells)?;
    if let Some(window) = e.cache.window_cells {
        write!(out, ", {window} in layers with a window")?;
    }
    if run.n_seq > 1 {
        write!(out, ", for each of {} sequences", run.n_seq)?;
    }
    writeln!(out, "; keys {}, values {}", run.type_k.name, run.type_v.name)?;
    let flash = if run.flash_attn { "with" } else { "without" };
    writeln!(
        out,
        "batch: {} tokens, {} at once, {flash} flash attention",
        run.n_batch, run.n_ubatch
    )
}

fn sums(e: &Estimate) -> String {
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut row = |name: &str, bytes: u64| {
        rows.push(vec![name.to_owned(), human_bytes(bytes), bytes.to_string()]);
    };
    row("weights", e.weights.total);
    for part in &e.weights.by_component {
        row(&format!("  {}", part.component), part.bytes);
    }
    row("cache", e.cache.total);
    for (name, bytes) in [
        ("  keys", e.cache.keys),
        ("  values", e.cache.values),
        ("  recurrent states", e.cache.states),
    ] {
        if bytes > 0 {
            row(name, bytes);
        }
    }
    row("compute buffers, at most", e.compute.total);
    row("total", e.total);
    table(&["memory", "size", "bytes"], &rows, &[1, 2])
}

fn by_layer(layers: &[LayerMemory]) -> String {
    let rows: Vec<Vec<String>> = layers
        .iter()
        .map(|l| {
            let c = &l.cache;
            let heads = match c.head_count_kv {
                0 => "-".to_owned(),
                n => format!("{n} x ({} + {})", c.key_length, c.value_length),
            };
            let cells = format!("{}{}", c.cells, if c.window { " (window)" } else { "" });
            vec![
                l.layer.to_string(),
                human_bytes(l.weights),
                human_bytes(l.experts),
                heads,
                cells,
                human_bytes(c.keys.saturating_add(c.values)),
                human_bytes(c.state),
            ]
        })
        .collect();
    let headers = [
        "layer",
        "weights",
        "of it experts",
        "heads x (key + value)",
        "cells",
        "cache",
        "state",
    ];
    table(&headers, &rows, &[0, 1, 2, 3, 4, 5, 6])
}
