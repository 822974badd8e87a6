//! Flame graphs: a profile, or the difference of two, as an SVG file with its own script.
//! In: profiles. Out: an SVG file that browsers show without further files, and that contains the stacks as text.
//! Limits: frames narrower than `PART_MIN` of the width are left out.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::folded::{INLINED, KERNEL, Profile, bare};
use crate::table::scales;

/// The part of the width below which a frame is left out.
const PART_MIN: f64 = 0.0002;
/// The size of the picture before the script fits it to the window.
const WIDTH: f64 = 1200.0;
const ROW: f64 = 18.0;
/// Space above and below the frames.
const ABOVE: f64 = 64.0;
const BELOW: f64 = 44.0;
const SCRIPT: &str = include_str!("graph.js");
const STYLE: &str = include_str!("graph.css");
/// Around the text of the profile.
const DATA: (&str, &str) = ("<metadata id=\"profile\">", "</metadata>");

/// A frame and those above it.
#[derive(Default)]
struct Frame<'p> {
    /// Samples of both profiles, in the unit of the comparison. The first is 0 without one.
    before: f64,
    now: f64,
    above: BTreeMap<&'p str, Frame<'p>>,
}

impl<'p> Frame<'p> {
    /// Rows of this frame and those above it that cost at least `least`.
    fn rows(&self, least: f64) -> usize {
        let above = self.above.values().filter(|frame| frame.now >= least);
        1 + above.map(|frame| frame.rows(least)).max().unwrap_or(0)
    }

    fn add(&mut self, profile: &'p Profile, scale: f64, sum: impl Fn(&mut Self) -> &mut f64) {
        for (stack, count) in profile.stacks() {
            let cost = count as f64 * scale;
            *sum(self) += cost;
            let mut at = &mut *self;
            for name in stack.split(';') {
                at = at.above.entry(name).or_default();
                *sum(at) += cost;
            }
        }
    }
}

/// The flame graph of a profile. With `before`: a graph of the same profile, in which colours show the functions that cost more
/// or less than in the profile before.
#[must_use]
pub fn svg(now: &Profile, before: Option<&Profile>) -> String {
    let mut root = Frame::default();
    let scale = before.map(|before| (before, scales(before, now)));
    match scale {
        Some((before, ((old, new), _))) => {
            root.add(now, new, |frame| &mut frame.now);
            root.add(before, old, |frame| &mut frame.before);
        }
        None => root.add(now, 1.0, |frame| &mut frame.now),
    }
    let unit = scale.map_or("samples", |(_, (_, unit))| unit);
    let is_compared = before.is_some();
    let rows = root.rows(root.now * PART_MIN);
    let mut frames = Frames { text: String::new(), rows, root: &root, unit, is_compared };
    frames.write(&root, "all", 0.0, 0);
    let height = ABOVE + ROW * rows as f64 + BELOW;
    let title = match before {
        None => "Flame graph of Tidegate",
        Some(_) => "Difference of two profiles of Tidegate",
    };
    let legend = match before {
        None => "blue: program, light blue: inlined, red: kernel",
        Some(_) => "width: now; orange: costs more than before, green: less, grey: the same",
    };
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"100%\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         role=\"img\" aria-label=\"{title}\">\n<style>{STYLE}</style>\n\
         <rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n<text class=\"title\" x=\"10\" y=\"22\">{title}</text>\n\
         <text class=\"quiet\" x=\"10\" y=\"40\">{}; {legend}</text>\n\
         <text id=\"reset\" class=\"button\" x=\"10\" y=\"58\">reset zoom</text>\
         <text id=\"search\" class=\"button\" x=\"110\" y=\"58\">search (Ctrl-F)</text>\
         <text id=\"matched\" class=\"quiet\" x=\"240\" y=\"58\"/>\n<g id=\"frames\">\n{}</g>\n\
         <text id=\"details\" x=\"10\" y=\"{}\">point at a frame for its name and cost; click: zoom</text>\n\
         {}{}{}\n<script>//<![CDATA[\n{SCRIPT}//]]></script>\n</svg>\n",
        escaped(&now.facts.words()),
        frames.text,
        height - 16.0,
        DATA.0,
        escaped(&now.to_string()),
        DATA.1,
    )
}

/// The profile that a flame graph contains.
///
/// # Errors
/// It contains none.
pub fn profile_in(svg: &str) -> Result<Profile, String> {
    let found = svg.split_once(DATA.0).and_then(|(_, rest)| rest.split_once(DATA.1));
    let (text, _) = found.ok_or("the SVG file contains no profile of Tidegate")?;
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
    Profile::parse(&text.replace("&amp;", "&"))
}

/// Writes frames.
struct Frames<'r, 'p> {
    text: String,
    /// Rows of the picture; the outermost frame is in the lowest.
    rows: usize,
    root: &'r Frame<'p>,
    unit: &'static str,
    is_compared: bool,
}

impl<'p> Frames<'_, 'p> {
    /// Writes a frame that begins at `begin`, and those above it.
    fn write(&mut self, frame: &Frame<'p>, name: &str, begin: f64, depth: usize) {
        let all = self.root.now.max(f64::MIN_POSITIVE);
        let (at, part) = (begin / all, frame.now / all);
        if part < PART_MIN {
            return;
        }
        let (shown, is_kernel) = bare(name);
        let (x, width) = (at * WIDTH, part * WIDTH);
        let y = ABOVE + self.rows.saturating_sub(depth + 1) as f64 * ROW;
        let mut title = format!("{shown}{}", if is_kernel { " [kernel]" } else { "" });
        let percent = 100.0 * part;
        let _ = match self.is_compared {
            false => write!(title, " ({:.0} {}, {percent:.2}%)", frame.now, self.unit),
            true => {
                let change = frame.now - frame.before;
                write!(title, " ({:.3} {}, {change:+.3}, {percent:.2}%)", frame.now, self.unit)
            }
        };
        let colour = match self.is_compared {
            true => self.change_colour(frame),
            false => colour(name),
        };
        // 7 pixels for each letter; the script measures and cuts again.
        let label: String = shown.chars().take((width / 7.0) as usize).collect();
        let label = if width < 21.0 { "" } else { label.as_str() };
        let _ = writeln!(
            self.text,
            "<g data-x=\"{at:.6}\" data-w=\"{part:.6}\" data-n=\"{}\"><title>{}</title><rect x=\"{x:.2}\" y=\"{y}\" \
             width=\"{width:.2}\" height=\"{}\" fill=\"{colour}\"/><text x=\"{:.2}\" y=\"{}\">{}</text></g>",
            escaped(shown),
            escaped(&title),
            ROW - 1.0,
            x + 3.0,
            y + 13.0,
            escaped(label),
        );
        let mut begin = begin;
        for (name, above) in &frame.above {
            self.write(above, name, begin, depth + 1);
            begin += above.now;
        }
    }

    /// Orange for functions that cost more, green for functions that cost less; stronger for a larger part of all.
    fn change_colour(&self, frame: &Frame<'_>) -> String {
        let change = (frame.now - frame.before) / self.root.now.max(f64::MIN_POSITIVE);
        // The colour is full from a twentieth of all on.
        let strength = (change.abs() * 20.0).min(1.0).sqrt();
        let mix = |from: f64, to: f64| (from + (to - from) * strength) as u8;
        let (red, green, blue) = match change > 0.0 {
            true => (mix(216.0, 242.0), mix(216.0, 130.0), mix(216.0, 30.0)),
            false => (mix(216.0, 70.0), mix(216.0, 175.0), mix(216.0, 95.0)),
        };
        format!("rgb({red},{green},{blue})")
    }
}

/// Red for the kernel, blue for the program; functions differ a little, always in the same way.
fn colour(name: &str) -> String {
    let hash = name
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let shade = (hash >> 8) % 40;
    match (name.ends_with(KERNEL), name.ends_with(INLINED)) {
        (true, _) => format!("rgb({},{},{})", 214 + shade, 80 + shade, 70 + shade),
        (false, true) => format!("rgb({},{},{})", 140 + shade, 190 + shade, 245),
        (false, false) => format!("rgb({},{},{})", 84 + shade, 146 + shade, 226),
    }
}

/// Text for XML.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            // XML has no other control characters.
            c if c.is_control() && c != '\n' => safe.push('?'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        let facts = "# tidegate-profile seconds=1.00 hertz=99 workers=1 requests=10 means=perf .\n";
        let stacks =
            "serve;<T as X<[u8, 3]>>::f;&\"x\"]]>_[i] 60\nserve;recv_[k] 30\nserve;rare 1\n";
        Profile::parse(&format!("{facts}{stacks}")).expect("stacks")
    }

    #[test]
    fn graph_contains_its_profile() {
        let profile = profile();
        assert_eq!(profile_in(&svg(&profile, None)).as_ref(), Ok(&profile));
        assert!(profile_in("<svg></svg>").is_err());
    }

    /// Checks that tags are closed in order, and that text and values contain no characters that XML forbids there.
    fn check_is_well_formed(svg: &str) {
        let (mut open, mut rest) = (Vec::new(), svg);
        while let Some((text, after)) = rest.split_once('<') {
            for part in text.split('&').skip(1) {
                let entity = part.split(';').next().expect("a part");
                assert!(["amp", "lt", "gt", "quot"].contains(&entity), "{entity}");
            }
            assert!(!text.contains("]]>"), "{text}");
            if let Some(data) = after.strip_prefix("![CDATA[") {
                rest = data.split_once("]]>").expect("it ends").1;
                continue;
            }
            let (tag, after) = after.split_once('>').expect("it ends");
            rest = after;
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            let name = tag.split(' ').next().expect("a name");
            match (name.strip_prefix('/'), tag.ends_with(['/', '?'])) {
                (Some(name), _) => assert_eq!(open.pop(), Some(name)),
                (None, false) => open.push(name),
                (None, true) => {}
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn graph_is_well_formed() {
        check_is_well_formed(&svg(&profile(), None));
        check_is_well_formed(&svg(&profile(), Some(&profile())));
    }

    #[test]
    fn colours_show_the_kind_and_the_change() {
        let text = svg(&profile(), None);
        let frame = |svg: &str, name: &str| {
            let found = svg.lines().find(|line| line.contains(&format!("data-n=\"{name}\"")));
            found.unwrap_or_else(|| panic!("no {name}")).to_owned()
        };
        let rgb = |line: &str| -> Vec<u8> {
            let (_, rest) = line.split_once("rgb(").expect("a colour");
            let (values, _) = rest.split_once(')').expect("three values");
            values.split(',').map(|value| value.parse().expect("a number")).collect()
        };
        let (kernel, program) = (rgb(&frame(&text, "recv")), rgb(&frame(&text, "serve")));
        assert!(kernel[0] > 200 && kernel[2] < 150, "red: {kernel:?}");
        assert!(program[2] > 200 && program[0] < 150, "blue: {program:?}");
        assert!(frame(&text, "recv").contains("<title>recv [kernel] (30 samples, 32.97%)</title>"));
        let before = Profile::parse("serve;recv_[k] 1\nserve;rare 2\n").expect("stacks");
        let compared = svg(&profile(), Some(&before));
        let (less, more) =
            (rgb(&frame(&compared, "rare")), rgb(&frame(&compared, "&amp;&quot;x&quot;]]&gt;")));
        assert!(less[1] > less[0] && more[0] > more[1], "green {less:?}, orange {more:?}");
    }
}
