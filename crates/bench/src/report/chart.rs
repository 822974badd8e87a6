//! Line and bar charts as inline SVG.
//! In: series of points. Out: SVG text that uses the page's colours.
//! Never: scripts, or fonts and images from other sources.

use core::fmt::Write as _;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 32.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 44.0;
/// A series with more points than this has no tooltips.
const LABELS_MAX: usize = 400;

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    /// Linear from zero to the next round step above the largest value.
    Linear,
    /// Linear from zero to the largest value.
    Exact,
    /// Logarithmic, in whole decades.
    Log,
    /// Percentiles: each step of equal width adds one nine.
    Nines,
}

/// One axis.
pub(super) struct Axis {
    pub(super) label: &'static str,
    pub(super) scale: Scale,
    /// Writes a value.
    pub(super) write: fn(f64) -> String,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stroke {
    Solid,
    Dashed,
    Dotted,
}

/// One line.
pub(super) struct Series {
    pub(super) name: String,
    /// Index of one of the page's colours.
    pub(super) colour: usize,
    pub(super) stroke: Stroke,
    pub(super) points: Vec<(f64, f64)>,
}

/// Maps values to positions on an axis, 0 to 1.
struct AxisMap {
    scale: Scale,
    low: f64,
    high: f64,
}

impl AxisMap {
    fn new(scale: Scale, values: impl Iterator<Item = f64> + Clone) -> Self {
        let finite = values.filter(|value| value.is_finite());
        let (low, high) = match scale {
            Scale::Linear => {
                let most = finite.fold(0.0, f64::max);
                let step = round_step(most / 5.0);
                (0.0, (most / step).ceil() * step)
            }
            Scale::Exact => (0.0, finite.fold(0.0, f64::max)),
            Scale::Log => {
                let positive = finite.filter(|&value| value > 0.0);
                let low = positive.clone().fold(f64::INFINITY, f64::min);
                let high = positive.fold(0.0, f64::max);
                if high > 0.0 { (decade(low).floor(), decade(high).ceil()) } else { (0.0, 1.0) }
            }
            Scale::Nines => {
                let most = finite.filter(|&value| value < 100.0).fold(90.0, f64::max);
                (0.0, nines(most).max(1.0))
            }
        };
        Self { scale, low, high: if high > low { high } else { low + 1.0 } }
    }

    fn place(&self, value: f64) -> f64 {
        let at = match self.scale {
            Scale::Linear | Scale::Exact => value,
            Scale::Log => decade(value.max(1e-12)),
            Scale::Nines if value >= 100.0 => self.high,
            Scale::Nines => nines(value),
        };
        ((at - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// The label of the tick at `value`. On a linear axis it has as many digits as neighbouring ticks need to
    /// differ; on other axes they always differ.
    fn label(&self, value: f64, axis: &Axis) -> String {
        if !matches!(self.scale, Scale::Linear | Scale::Exact) {
            return without_zeros(&(axis.write)(value));
        }
        let step = self.step();
        let (unit, name) = match step {
            step if step >= 1e6 => (1e6, "M"),
            step if step >= 1e3 => (1e3, "k"),
            _ => (1.0, ""),
        };
        let decimals = (-(step / unit).log10()).ceil().clamp(0.0, 9.0) as usize;
        let name = if value == 0.0 { "" } else { name };
        format!("{:.decimals$}{name}", value / unit)
    }

    /// Distance between the ticks of a linear axis.
    fn step(&self) -> f64 {
        round_step(self.high / 5.0)
    }

    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear | Scale::Exact => {
                let step = self.step();
                // A little more than the maximum, because of rounding errors.
                let most = self.high + step / 1000.0;
                (0..=10).map(|index| f64::from(index) * step).filter(|&at| at < most).collect()
            }
            Scale::Log => {
                let (low, high) = (self.low as i32, self.high as i32);
                (low..=high).map(|exponent| 10_f64.powi(exponent)).collect()
            }
            Scale::Nines => [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999, 99.99999]
                .into_iter()
                .filter(|&percent| nines(percent) <= self.high + 1e-9)
                .collect(),
        }
    }
}

fn decade(value: f64) -> f64 {
    value.log10()
}

/// The number of nines in a percentile: 90 % gives 1, 99 % gives 2, 99.9 % gives 3.
fn nines(percent: f64) -> f64 {
    -(1.0 - percent / 100.0).max(1e-12).log10()
}

/// Removes trailing zeros: `1.00 ms` becomes `1 ms`.
fn without_zeros(text: &str) -> String {
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text.to_owned(),
    }
}

/// The smallest number that is at least `least` and is 1, 2 or 5 times a power of ten.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(1e-12).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|&step| step >= least)
        .unwrap_or(least)
}

/// A chart of lines with its legend.
pub(super) fn lines(title: &str, x: &Axis, y: &Axis, series: &[Series]) -> String {
    let xs =
        AxisMap::new(x.scale, series.iter().flat_map(|one| one.points.iter().map(|point| point.0)));
    let ys =
        AxisMap::new(y.scale, series.iter().flat_map(|one| one.points.iter().map(|point| point.1)));
    let x_at = |value: f64| LEFT + xs.place(value) * (WIDTH - LEFT - RIGHT);
    let y_at = |value: f64| HEIGHT - BOTTOM - ys.place(value) * (HEIGHT - TOP - BOTTOM);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
        escape(title)
    );
    for tick in ys.ticks() {
        let at = y_at(tick);
        // Writing to a String cannot fail.
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"tick end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            at + 4.0,
            escape(&ys.label(tick, y))
        );
    }
    for tick in xs.ticks() {
        let at = x_at(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>\
             <text class=\"tick mid\" x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
            HEIGHT - BOTTOM,
            HEIGHT - BOTTOM + 17.0,
            escape(&xs.label(tick, x))
        );
    }
    let _ = write!(
        svg,
        "<text class=\"axis mid\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\
         <text class=\"axis mid\" transform=\"translate(14 {:.1}) rotate(-90)\">{}</text>",
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 8.0,
        escape(x.label),
        (TOP + HEIGHT - BOTTOM) / 2.0,
        escape(y.label)
    );
    for one in series {
        draw(&mut svg, one, x, y, &x_at, &y_at);
    }
    svg.push_str("</svg>");
    figure(title, &svg, series)
}

fn draw(
    svg: &mut String,
    series: &Series,
    x: &Axis,
    y: &Axis,
    x_at: &dyn Fn(f64) -> f64,
    y_at: &dyn Fn(f64) -> f64,
) {
    let dashes = match series.stroke {
        Stroke::Solid => "",
        Stroke::Dashed => " stroke-dasharray=\"7 4\"",
        Stroke::Dotted => " stroke-dasharray=\"2 4\"",
    };
    let _ = write!(svg, "<polyline class=\"line c{}\"{dashes} points=\"", series.colour);
    for &(px, py) in &series.points {
        let _ = write!(svg, "{:.1},{:.1} ", x_at(px), y_at(py));
    }
    svg.push_str("\"/>");
    if series.points.len() > LABELS_MAX {
        return;
    }
    // A single point has no line, so it is drawn as a visible dot.
    let alone = if series.points.len() == 1 { " alone" } else { "" };
    for &(px, py) in &series.points {
        let _ = write!(
            svg,
            "<circle class=\"dot{alone} c{}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"5\"><title>{}: {} at {}</title></circle>",
            series.colour,
            x_at(px),
            y_at(py),
            escape(&series.name),
            escape(&(y.write)(py)),
            escape(&(x.write)(px))
        );
    }
}

fn figure(title: &str, svg: &str, series: &[Series]) -> String {
    let mut legend = String::new();
    for one in series {
        let class = match one.stroke {
            Stroke::Solid => "solid",
            Stroke::Dashed => "dashed",
            Stroke::Dotted => "dotted",
        };
        let _ = write!(
            legend,
            "<li><i class=\"key {class} b{}\"></i>{}</li>",
            one.colour,
            escape(&one.name)
        );
    }
    format!("<figure><h2>{}</h2><ul class=\"legend\">{legend}</ul>{svg}</figure>", escape(title))
}

/// Horizontal bars: name, value, colour.
pub(super) fn bars(
    title: &str,
    write: fn(f64) -> String,
    values: &[(String, f64, usize)],
) -> String {
    let most = values.iter().map(|(_, value, _)| *value).fold(0.0, f64::max).max(1e-12);
    let mut rows = String::new();
    for (name, value, colour) in values {
        let _ = write!(
            rows,
            "<div class=\"bar\"><span>{}</span><b class=\"fill f{colour}\" style=\"width:{:.2}%\"></b><em>{}</em></div>",
            escape(name),
            (value / most * 100.0).clamp(0.5, 100.0) * 0.6,
            escape(&write(*value))
        );
    }
    format!("<figure><h2>{}</h2><div class=\"bars\">{rows}</div></figure>", escape(title))
}

/// Escapes text for use between tags and in attributes.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentile_axis_spaces_nines_evenly() {
        let placing = AxisMap::new(Scale::Nines, [50.0, 99.99].into_iter());
        assert!((placing.place(99.0) - 0.5).abs() < 1e-9);
        assert!((placing.place(99.99) - 1.0).abs() < 1e-9);
        assert!((placing.place(100.0) - 1.0).abs() < 1e-9);
        assert_eq!(placing.ticks().last(), Some(&99.99));
    }

    #[test]
    fn empty_series_gives_an_empty_chart() {
        let axis = Axis { label: "x", scale: Scale::Log, write: |value| format!("{value}") };
        let nothing =
            [Series { name: "<a>".into(), colour: 0, stroke: Stroke::Solid, points: vec![] }];
        let svg = lines("t", &axis, &axis, &nothing);
        assert!(svg.contains("&lt;a&gt;") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn single_point_is_drawn_as_a_dot() {
        let axis = Axis { label: "x", scale: Scale::Linear, write: |value| format!("{value}") };
        let of = |points| {
            let series = Series { name: "a".into(), colour: 0, stroke: Stroke::Solid, points };
            lines("t", &axis, &axis, &[series])
        };
        assert!(of(vec![(1.0, 1.0)]).contains("<circle class=\"dot alone c0\""));
        assert!(!of(vec![(1.0, 1.0), (2.0, 1.0)]).contains("alone"));
    }

    #[test]
    fn labels_of_a_linear_axis_differ() {
        let axis = Axis { label: "x", scale: Scale::Linear, write: |value| format!("{value:.0}") };
        for most in [0.0003, 0.26, 1.0, 2.3, 2.5, 7.0, 10.0, 99.0, 1234.0, 107_000.0, 3.2e6] {
            let placing = AxisMap::new(Scale::Linear, [most].into_iter());
            let labels: Vec<String> =
                placing.ticks().into_iter().map(|tick| placing.label(tick, &axis)).collect();
            let mut different = labels.clone();
            different.dedup();
            assert_eq!(labels, different, "{most}");
            assert!((3..=8).contains(&labels.len()), "{most}: {labels:?}");
        }
        let placing = AxisMap::new(Scale::Linear, [2.3].into_iter());
        assert_eq!(placing.label(1.5, &axis), "1.5");
        assert_eq!(without_zeros("1.00 ms"), "1 ms");
        assert_eq!(without_zeros("100 µs"), "100 µs");
    }

    #[test]
    fn steps_are_round() {
        for (least, step) in [(0.7, 1.0), (1.2, 2.0), (23.0, 50.0), (600.0, 1000.0)] {
            assert!((round_step(least) - step).abs() < 1e-9, "{least}");
        }
    }
}
