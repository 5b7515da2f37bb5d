//! Line charts as SVG, for light and dark pages.

use std::fmt::Write as _;

/// One value with its interval.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    /// Shown where a pointer rests.
    pub(super) title: String,
}

/// Points that a line joins, by rising x.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<Point>,
}

/// One chart.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) series: Vec<Series>,
    /// Labels of x = 0, 1, ..; `None` where x is a number.
    pub(super) places: Option<Vec<String>>,
}

/// All lengths are in pixels of a drawing of this width.
const WIDTH: f64 = 800.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 28.0;
const HEAD: f64 = 74.0;
const FOOT: f64 = 48.0;
/// Of a panel: its title, the legend's lines, the chart, the labels below.
const TITLE: f64 = 24.0;
const LEGEND: f64 = 20.0;
const CHART: f64 = 240.0;
const LABELS: f64 = 44.0;
/// Of a letter, about.
const LETTER: f64 = 6.6;
/// Marks of an axis, about.
const MARKS: f64 = 5.0;
/// Of a number along the bottom.
const ROOM: f64 = 44.0;
/// Labels along the bottom at most.
const MAX_LABELS: usize = 16;

const COLOURS: [&str; 8] = [
    "#2f8fd0", "#e0913a", "#3aa76d", "#b8485e", "#8f7cc9", "#1aa6a6", "#a57f4f", "#60676e",
];

const STYLE: &str = "\
:root{color-scheme:light dark;--fg:#1c2024;--dim:#60676e;--bg:#ffffff;--line:#e3e6e9;--axis:#aab1b8}
@media(prefers-color-scheme:dark){:root{--fg:#e6e8ea;--dim:#9aa2a9;--bg:#14171a;--line:#2a2f34;--axis:#565d64}}
text{font:12px system-ui,sans-serif;fill:var(--dim)}
.h{font-size:18px;font-weight:600;fill:var(--fg)}.t{font-size:13px;font-weight:600;fill:var(--fg)}
.g{stroke:var(--line)}.a{stroke:var(--axis)}.l{fill:none;stroke-width:2;stroke-linejoin:round}
.b{opacity:.16}.w{stroke-width:1.5}.p{stroke:var(--bg);stroke-width:1.5}";

/// A drawing of panels, one under the other.
pub(super) fn page(title: &str, subtitle: &str, x_label: &str, panels: &[Panel]) -> String {
    let mut body = String::new();
    let mut y = HEAD;
    for panel in panels {
        y += draw(&mut body, panel, y);
    }
    let height = y + FOOT - 16.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\">\n<title>{}</title>\n<style>{STYLE}</style>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" style=\"fill:var(--bg)\"/>\n",
        escape(title)
    );
    text(&mut out, LEFT, 32.0, "start", "h", title);
    text(&mut out, LEFT, 53.0, "start", "", subtitle);
    out.push_str(&body);
    text(
        &mut out,
        f64::midpoint(LEFT, WIDTH - RIGHT),
        y + 6.0,
        "middle",
        "",
        x_label,
    );
    out.push_str("</svg>\n");
    out
}

/// Where values lie in a chart.
struct Frame {
    top: f64,
    x_min: f64,
    x_max: f64,
    y_max: f64,
}

impl Frame {
    fn x(&self, x: f64) -> f64 {
        let width = WIDTH - LEFT - RIGHT;
        if self.x_max > self.x_min {
            LEFT + (x - self.x_min) / (self.x_max - self.x_min) * width
        } else {
            LEFT + width / 2.0
        }
    }

    fn y(&self, y: f64) -> f64 {
        self.top + CHART * (1.0 - y / self.y_max)
    }
}

/// Draws a panel from `y` down and returns its height.
fn draw(out: &mut String, panel: &Panel, y: f64) -> f64 {
    let points = || panel.series.iter().flat_map(|s| &s.points);
    text(out, LEFT, y + 12.0, "start", "t", &panel.title);
    let legend = legend(out, panel, y + TITLE + 10.0);
    let step = step(points().map(|p| p.high).fold(0.0, f64::max));
    let highest = points().map(|p| p.high).fold(0.0, f64::max);
    // A lone place stands in the middle, several keep off the sides.
    let (x_min, x_max) = match &panel.places {
        Some(places) => (-0.5, places.len() as f64 - 0.5),
        None => (0.0, points().map(|p| p.x).fold(0.0, f64::max)),
    };
    let frame = Frame {
        top: y + TITLE + legend + 8.0,
        x_min,
        x_max,
        y_max: ((highest / step).ceil() * step).max(step),
    };
    grid(out, &frame, step);
    labels(out, panel, &frame);
    // Marks lie over all lines and bands.
    for part in [line, marks] {
        for (i, series) in panel.series.iter().enumerate() {
            part(out, series, &frame, COLOURS[i % COLOURS.len()]);
        }
    }
    frame.top - y + CHART + LABELS
}

/// Names of the series beside their colours, in as many lines as it takes; returns the height.
fn legend(out: &mut String, panel: &Panel, y: f64) -> f64 {
    let (mut x, mut row) = (LEFT, 0.0);
    let named = panel.series.iter().filter(|s| !s.name.is_empty());
    for (i, series) in named.enumerate() {
        let width = 24.0 + series.name.chars().count() as f64 * LETTER;
        if x > LEFT && x + width > WIDTH - RIGHT {
            (x, row) = (LEFT, row + 1.0);
        }
        let (colour, at) = (COLOURS[i % COLOURS.len()], y + row * LEGEND);
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" rx=\"2\" fill=\"{colour}\"/>",
            at - 9.0
        );
        text(out, x + 15.0, at, "start", "", &series.name);
        x += width + 8.0;
    }
    (row + 1.0) * LEGEND
}

fn grid(out: &mut String, frame: &Frame, step: f64) {
    let right = WIDTH - RIGHT;
    let n = (frame.y_max / step).round() as usize;
    let digits = usize::from(step < 1.0) + usize::from(step < 0.1);
    for i in 0..=n {
        let value = i as f64 * step;
        let y = frame.y(value);
        let class = if i == 0 { "a" } else { "g" };
        let _ = writeln!(
            out,
            "<path class=\"{class}\" d=\"M{LEFT:.1} {y:.1}H{right:.1}\"/>"
        );
        text(out, LEFT - 8.0, y + 4.0, "end", "", &format!("{value:.digits$}"));
    }
}

fn labels(out: &mut String, panel: &Panel, frame: &Frame) {
    let y = frame.top + CHART + 18.0;
    if let Some(places) = &panel.places {
        let each = places.len().div_ceil(MAX_LABELS).max(1);
        for (i, place) in places.iter().enumerate().step_by(each) {
            text(out, frame.x(i as f64), y, "middle", "", place);
        }
        return;
    }
    for x in numbers(panel, frame) {
        text(out, frame.x(x), y, "middle", "", &format!("{x:.0}"));
    }
}

/// The numbers to write along the bottom: those of the points if there is room, else round ones.
fn numbers(panel: &Panel, frame: &Frame) -> Vec<f64> {
    let mut own: Vec<f64> = panel.series.iter().flat_map(|s| &s.points).map(|p| p.x).collect();
    own.sort_unstable_by(f64::total_cmp);
    own.dedup();
    if own
        .windows(2)
        .all(|pair| frame.x(pair[1]) - frame.x(pair[0]) >= ROOM)
    {
        return own;
    }
    let step = step(frame.x_max).max(1.0);
    let n = (frame.x_max / step).floor() as usize;
    (0..=n).map(|i| i as f64 * step).collect()
}

fn line(out: &mut String, series: &Series, frame: &Frame, colour: &str) {
    let at = |x: f64, y: f64| format!("{:.1} {:.1}", frame.x(x), frame.y(y));
    let points = &series.points;
    if points.len() > 1 {
        let upper = points.iter().map(|p| at(p.x, p.high));
        let lower = points.iter().rev().map(|p| at(p.x, p.low));
        let band = upper.chain(lower).collect::<Vec<_>>().join("L");
        let _ = writeln!(out, "<path class=\"b\" fill=\"{colour}\" d=\"M{band}Z\"/>");
        let middle = points.iter().map(|p| at(p.x, p.y)).collect::<Vec<_>>().join("L");
        let _ = writeln!(out, "<path class=\"l\" stroke=\"{colour}\" d=\"M{middle}\"/>");
    }
}

fn marks(out: &mut String, series: &Series, frame: &Frame, colour: &str) {
    for p in &series.points {
        let (x, low, high) = (frame.x(p.x), frame.y(p.low), frame.y(p.high));
        let _ = writeln!(
            out,
            "<path class=\"w\" stroke=\"{colour}\" d=\"M{x:.1} {low:.1}V{high:.1}\"/>\
             <circle class=\"p\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"4\" fill=\"{colour}\"><title>{}</title></circle>",
            frame.y(p.y),
            escape(&p.title)
        );
    }
}

fn text(out: &mut String, x: f64, y: f64, anchor: &str, class: &str, what: &str) {
    let class = if class.is_empty() {
        String::new()
    } else {
        format!(" class=\"{class}\"")
    };
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{class}>{}</text>",
        escape(what)
    );
}

/// A round number that goes into `most` about [`MARKS`] times: 1, 2 or 5 times a power of ten.
fn step(most: f64) -> f64 {
    let rough = most.max(1e-6) / MARKS;
    let power = 10f64.powf(rough.log10().floor());
    let of = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|&s| s * power >= rough * 0.999);
    of.unwrap_or(10.0) * power
}

/// Text as XML takes it; names of files may have anything in them.
fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in gguf_cli::printable(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(x: f64, y: f64) -> Point {
        Point {
            x,
            y,
            low: y * 0.9,
            high: y * 1.1,
            title: "tg8".into(),
        }
    }

    #[test]
    fn marks_are_round() {
        for (most, expected) in [
            (100.0, 20.0),
            (7.0, 2.0),
            (0.4, 0.1),
            (4096.0, 1000.0),
            (26.0, 10.0),
        ] {
            let found = step(most);
            assert!((found / expected - 1.0).abs() < 1e-9, "{most}: {found}");
        }
    }

    #[test]
    fn points_lie_inside_and_names_are_escaped() {
        let series = |name: &str| Series {
            name: name.into(),
            points: vec![point(0.0, 80.0), point(1024.0, 20.0)],
        };
        let panel = Panel {
            title: "Generation".into(),
            series: vec![series("a<b&\"c\""), series("two")],
            places: None,
        };
        let page = page("T", "S", "X", &[panel.clone(), panel]);
        assert!(page.contains("a&lt;b&amp;&quot;c&quot;") && !page.contains("a<b"));
        assert_eq!(page.matches("<circle").count(), 8);
        let numbers = page
            .split("cx=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap());
        let xs: Vec<f64> = numbers.map(|n| n.parse().unwrap()).collect();
        assert_eq!((xs[0], xs[1]), (LEFT, WIDTH - RIGHT));
        assert!(!page.contains("NaN") && !page.contains("inf"));
    }

    #[test]
    fn a_lone_point_and_no_speed_are_drawn() {
        let panel = Panel {
            title: "P".into(),
            series: vec![Series {
                name: String::new(),
                points: vec![point(0.0, 0.0)],
            }],
            places: Some(vec!["pp512".into()]),
        };
        let page = page("T", "S", "X", &[panel]);
        assert!(page.contains(">pp512</text>") && !page.contains("NaN"), "{page}");
    }
}
