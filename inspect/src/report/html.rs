//! Pieces of HTML and SVG. Everything that comes from a file goes through [`escape`].

use std::fmt::Write;

use gguf_cli::{count, human_bytes};
use gguf_models::component::Component;

use super::model::{Grid, Layer, Parts};
use super::treemap::{self, Rect};

/// Text that stands for itself in HTML, in elements and in quoted attributes. Controls are shown by their codes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// The CSS variable with a component's colour.
fn colour(component: Component) -> &'static str {
    match component {
        Component::Embedding => "embedding",
        Component::Output => "output",
        Component::Attention => "attention",
        Component::Recurrent => "recurrent",
        Component::DenseFfn => "ffn",
        Component::Experts => "experts",
        Component::SharedExperts => "shared",
        Component::Router => "router",
        Component::Norm => "norms",
        Component::NextN => "nextn",
        Component::Vision => "vision",
        Component::Other => "other",
    }
}

fn layer_name(layer: Layer) -> String {
    layer.map_or("outside layers".to_owned(), |n| format!("layer {n}"))
}

/// Colours and names of the components that occur.
pub(super) fn key(parts: &Parts) -> String {
    let mut out = String::from("<div class=\"key\">");
    for component in Component::ALL {
        if parts.cells.values().any(|c| c.contains_key(&component)) {
            let name = component.name();
            let _ = write!(
                out,
                "<span><i style=\"background:var(--{})\"></i>{name}</span>",
                colour(component)
            );
        }
    }
    out + "</div>"
}

/// The sizes of layers, and in each of its components.
pub(super) fn size_map(parts: &Parts) -> String {
    const AREA: Rect = Rect {
        x: 0.0,
        y: 0.0,
        w: 1200.0,
        h: 560.0,
    };
    let mut layers: Vec<_> = parts
        .layers
        .iter()
        .map(|(layer, sums)| (*layer, sums.bytes))
        .collect();
    layers.sort_by_key(|&(layer, bytes)| (std::cmp::Reverse(bytes), layer));
    let sizes: Vec<u64> = layers.iter().map(|&(_, bytes)| bytes).collect();
    let mut out = format!(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"sizes\">",
        AREA.w, AREA.h
    );
    for ((layer, bytes), area) in layers.iter().zip(treemap::layout(&sizes, AREA)) {
        let mut cells: Vec<_> = parts.cells[layer].iter().collect();
        cells.sort_by_key(|(component, sums)| (std::cmp::Reverse(sums.bytes), **component));
        let sizes: Vec<u64> = cells.iter().map(|(_, sums)| sums.bytes).collect();
        for ((component, sums), r) in cells.iter().zip(treemap::layout(&sizes, area)) {
            let bits = sums
                .bits_per_weight()
                .map_or(String::new(), |b| format!(", {b:.2} bits/weight"));
            let _ = write!(
                out,
                "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"var(--{})\" stroke-width=\".5\">\
                 <title>{}, {}: {}{bits}</title></rect>",
                r.x,
                r.y,
                r.w,
                r.h,
                colour(**component),
                layer_name(*layer),
                component.name(),
                human_bytes(sums.bytes)
            );
        }
        let _ = write!(
            out,
            "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{:.2}\" fill=\"none\" stroke-width=\"2\"/>",
            area.x, area.y, area.w, area.h
        );
        let label = layer.map_or("other".to_owned(), |n| n.to_string());
        if area.w > 9.0 * label.len() as f64 + 6.0 && area.h > 16.0 && *bytes > 0 {
            let _ = write!(
                out,
                "<text class=\"in\" x=\"{:.2}\" y=\"{:.2}\">{label}</text>",
                area.x + 5.0,
                area.y + 14.0
            );
        }
    }
    out + "</svg>"
}

/// Bits of each layer as bars.
pub(super) fn layer_bits(parts: &Parts) -> String {
    const HEIGHT: f64 = 160.0;
    let layers: Vec<(u32, f64, u64)> = parts
        .layers
        .iter()
        .filter_map(|(layer, sums)| Some(((*layer)?, sums.bits_per_weight()?, sums.bytes)))
        .collect();
    let most = layers.iter().fold(1.0_f64, |most, &(_, bits, _)| most.max(bits));
    let step = 1160.0 / layers.len().max(1) as f64;
    let mut out = format!(
        "<svg viewBox=\"0 0 1200 {}\" role=\"img\" aria-label=\"bits by layer\">",
        HEIGHT + 24.0
    );
    for part in 0..=4 {
        let bits = most * f64::from(part) / 4.0;
        let y = HEIGHT - (HEIGHT - 12.0) * f64::from(part) / 4.0;
        let _ = write!(
            out,
            "<line class=\"axis\" x1=\"36\" x2=\"1200\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <text x=\"0\" y=\"{:.1}\">{bits:.1}</text>",
            y + 4.0
        );
    }
    let every = layers.len().div_ceil(32).max(1);
    for (i, (layer, bits, bytes)) in layers.iter().enumerate() {
        let h = (HEIGHT - 12.0) * bits / most;
        let x = 38.0 + step * i as f64;
        let _ = write!(
            out,
            "<rect x=\"{x:.2}\" y=\"{:.2}\" width=\"{:.2}\" height=\"{h:.2}\" fill=\"var(--bits)\">\
             <title>layer {layer}: {bits:.3} bits/weight, {}</title></rect>",
            HEIGHT - h,
            (step * 0.85).min(60.0),
            human_bytes(*bytes)
        );
        if i % every == 0 {
            let _ = write!(out, "<text x=\"{x:.2}\" y=\"{}\">{layer}</text>", HEIGHT + 16.0);
        }
    }
    out + "</svg>"
}

/// A table whose cells are the stronger in colour the nearer their value is to the largest. With `log` the colours go
/// by orders of magnitude.
pub(super) fn heat(grid: &Grid, variable: &str, log: bool) -> String {
    let (low, high) = grid.range();
    let share = |value: f64| {
        if !value.is_finite() {
            return 1.0;
        }
        let (v, low, high) = if log {
            let floor = (high * 1e-6).max(f64::MIN_POSITIVE);
            (value.max(floor).ln(), low.max(floor).ln(), high.max(floor).ln())
        } else {
            (value, low, high)
        };
        if high > low { (v - low) / (high - low) } else { 0.5 }
    };
    let mut out = String::from("<div class=\"wide\"><table class=\"heat\"><tr><th>layer</th>");
    for kind in &grid.kinds {
        let _ = write!(out, "<th>{}</th>", escape(kind));
    }
    out.push_str("</tr>");
    for (layer, cells) in &grid.layers {
        let _ = write!(out, "<tr><th>{layer}</th>");
        let mut next = 0;
        for (&kind, cell) in cells {
            blank(kind - next, &mut out);
            next = kind + 1;
            let percent = 8.0 + 72.0 * share(cell.value);
            let _ = write!(
                out,
                "<td style=\"background:color-mix(in srgb,var(--{variable}) {percent:.0}%,var(--bg))\" \
                 title=\"{}\">{}</td>",
                escape(&cell.title),
                escape(&cell.text)
            );
        }
        blank(grid.kinds.len() - next, &mut out);
        out.push_str("</tr>");
    }
    out.push_str("</table></div>");
    if grid.n_left_out > 0 {
        let _ = write!(
            out,
            "<p>{} of tensors are not shown.</p>",
            count(grid.n_left_out as u64, "more kind")
        );
    }
    out
}

/// Cells without a value, in one, so that a row is as long as its values are many.
fn blank(n: usize, out: &mut String) {
    match n {
        0 => {}
        1 => out.push_str("<td></td>"),
        _ => {
            let _ = write!(out, "<td colspan=\"{n}\"></td>");
        }
    }
}

/// A table with headers.
pub(super) fn table(headers: &[&str], rows: &[Vec<String>]) -> String {
    let mut out = String::from("<div class=\"wide\"><table><tr>");
    for header in headers {
        let _ = write!(out, "<th>{}</th>", escape(header));
    }
    out.push_str("</tr>");
    for row in rows {
        out.push_str("<tr>");
        for cell in row {
            let _ = write!(out, "<td>{}</td>", escape(cell));
        }
        out.push_str("</tr>");
    }
    out + "</table></div>"
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn markup_in_names_stays_text() {
        assert_eq!(
            escape("<b a='1'>\"&\u{7}"),
            "&lt;b a=&#39;1&#39;&gt;&quot;&amp;\\u{7}"
        );
    }
}
