//! Colours, in light and in dark, and which program has which.

use std::collections::BTreeMap;

use super::load::Loaded;

/// How many colours there are for programs, and how many steps in the ramp for ordered rows; further
/// series share a colour and differ by their marker.
pub(super) const SERIES: usize = 8;

/// A colour's name (a CSS custom property), its light and its dark value.
///
/// `s0`..`s7` tell programs apart also for the colour-blind (hues after Okabe and Ito, 2008, with
/// lightness changed for a contrast of at least 3:1 on the page); `r0`..`r7` are a ramp of rising
/// lightness for rows that have an order (part of matplotlib's plasma).
const COLOURS: &[(&str, &str, &str)] = &[
    ("page", "#ffffff", "#12151a"),
    ("raised", "#f6f7f9", "#1a1e25"),
    ("ink", "#1c2128", "#e6e9ee"),
    ("muted", "#57606a", "#9ba5b3"),
    ("rule", "#d9dde2", "#323943"),
    ("grid", "#e8ebee", "#262c34"),
    ("accent", "#0b5cad", "#79b8ff"),
    ("warn", "#a03c00", "#ffa657"),
    ("paper", "#57606a", "#aab4c0"),
    ("s0", "#0064b0", "#58a6ff"),
    ("s1", "#c94f00", "#ff8f4d"),
    ("s2", "#00805c", "#35c79a"),
    ("s3", "#a8437f", "#e58cc0"),
    ("s4", "#8a6100", "#e6b422"),
    ("s5", "#5a4fcf", "#a79bff"),
    ("s6", "#007f92", "#4fd0e0"),
    ("s7", "#6b4226", "#d0a080"),
    ("r0", "#0d0887", "#b12a90"),
    ("r1", "#46039f", "#c5407e"),
    ("r2", "#7201a8", "#d6556d"),
    ("r3", "#9c179e", "#e56b5d"),
    ("r4", "#bd3786", "#f0844c"),
    ("r5", "#d0506f", "#f9a03a"),
    ("r6", "#dc6150", "#fcc83a"),
    ("r7", "#d9713a", "#fbe98a"),
];

/// Style of charts, on the page and in SVG files.
const CHART_STYLE: &str = include_str!("chart.css");

/// Which of the two sets of colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shade {
    Light,
    Dark,
}

/// The page's custom properties: light, dark where the system or the reader wants it, and light
/// again on paper.
pub(super) fn page_style() -> String {
    let (light, dark) = (properties(Shade::Light), properties(Shade::Dark));
    format!(
        ":root{{color-scheme:light;{light}}}\n\
         @media (prefers-color-scheme:dark){{:root{{color-scheme:dark;{dark}}}}}\n\
         :root[data-theme=light]{{color-scheme:light;{light}}}\n\
         :root[data-theme=dark]{{color-scheme:dark;{dark}}}\n\
         @media print{{:root,:root[data-theme]{{color-scheme:light;{light}}}}}\n\
         {CHART_STYLE}"
    )
}

/// The style of an SVG file, with plain colours: not every program that shows SVG knows custom
/// properties.
pub(super) fn file_style() -> String {
    let light = substituted(CHART_STYLE, Shade::Light);
    let dark = substituted(CHART_STYLE, Shade::Dark);
    format!("{light}\n@media (prefers-color-scheme:dark){{\n{dark}}}\n")
}

fn properties(shade: Shade) -> String {
    COLOURS
        .iter()
        .map(|colour| format!("--{}:{};", colour.0, pick(colour, shade)))
        .collect()
}

fn substituted(style: &str, shade: Shade) -> String {
    COLOURS.iter().fold(style.to_owned(), |style, colour| {
        style.replace(&format!("var(--{})", colour.0), pick(colour, shade))
    })
}

fn pick(colour: &(&str, &'static str, &'static str), shade: Shade) -> &'static str {
    match shade {
        Shade::Light => colour.1,
        Shade::Dark => colour.2,
    }
}

/// The number of each program's look, the same in every experiment of a report. longhaul's is always
/// the first; programs that never meet in one experiment may share a number.
#[derive(Debug, Default)]
pub(super) struct Palette {
    numbers: BTreeMap<String, usize>,
}

impl Palette {
    /// Gives every program of `loaded` a number.
    pub(super) fn of(loaded: &[Loaded]) -> Self {
        let programs = |one: &Loaded| -> Vec<String> {
            one.results
                .programs
                .iter()
                .map(|program| program.key.clone())
                .collect()
        };
        let experiments: Vec<Vec<String>> = loaded.iter().map(programs).collect();
        let mut keys: Vec<&String> = experiments.iter().flatten().collect();
        // Stable: others keep the order in which they first occur.
        keys.sort_by_key(|key| *key != "longhaul");
        let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
        for key in keys {
            if !numbers.contains_key(key) {
                let met = experiments
                    .iter()
                    .filter(|programs| programs.contains(key))
                    .flatten();
                let taken: Vec<usize> = met
                    .filter_map(|other| numbers.get(other).copied())
                    .collect();
                let free = (0..).find(|number| !taken.contains(number)).unwrap_or(0);
                numbers.insert(key.clone(), free);
            }
        }
        Self { numbers }
    }

    /// The CSS class of a program's colour.
    pub(super) fn colour(&self, key: &str) -> String {
        format!("s{}", self.number(key) % SERIES)
    }

    /// The number of a program's marker; programs that share a colour differ in it.
    pub(super) fn marker(&self, key: &str) -> usize {
        let number = self.number(key);
        number + number / SERIES
    }

    fn number(&self, key: &str) -> usize {
        self.numbers.get(key).copied().unwrap_or(0)
    }
}

/// The step of the ramp for row `index` of `rows`: the whole ramp is used.
pub(super) fn ramp(index: usize, rows: usize) -> usize {
    let steps = SERIES - 1;
    match rows {
        0 | 1 => 0,
        _ => (index * steps + (rows - 1) / 2) / (rows - 1) % SERIES,
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use crate::experiment::results::Program;

    #[test]
    fn a_files_style_needs_no_custom_properties() {
        assert!(!file_style().contains("var("));
        assert!(page_style().contains("--s0:#0064b0"));
    }

    #[test]
    fn colours_stand_out_from_the_page() {
        let page = COLOURS[0];
        for colour in COLOURS.iter().filter(|colour| {
            let numbered = colour.0.starts_with(['s', 'r']) && colour.0.len() == 2;
            numbered || ["ink", "muted", "accent", "warn", "paper"].contains(&colour.0)
        }) {
            for (ground, value) in [(page.1, colour.1), (page.2, colour.2)] {
                let contrast = contrast(ground, value);
                assert!(
                    contrast >= 3.0,
                    "{}: {value} on {ground}: {contrast:.2}",
                    colour.0
                );
            }
        }
    }

    #[test]
    fn the_ramp_is_used_from_end_to_end() {
        let steps: Vec<usize> = (0..7).map(|index| ramp(index, 7)).collect();
        assert_eq!((steps[0], steps[6]), (0, 7));
        assert!(steps.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(ramp(0, 1), 0);
        assert!((0..40).all(|index| ramp(index, 40) < SERIES));
    }

    #[test]
    fn longhaul_is_first_and_programs_that_meet_look_different() {
        let experiment = |keys: &[&str]| {
            let mut results = samples::two_by_two();
            let program = results.programs[0].clone();
            results.programs = keys
                .iter()
                .map(|key| Program {
                    key: (*key).to_owned(),
                    ..program.clone()
                })
                .collect();
            Loaded::new(keys.concat(), results)
        };
        let many: Vec<String> = (0..20).map(|number| format!("p{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let loaded = [
            experiment(&["globus", "longhaul"]),
            experiment(&["ping"]),
            experiment(&many),
        ];
        let palette = Palette::of(&loaded);
        assert_eq!(
            (palette.number("longhaul"), palette.number("globus")),
            (0, 1)
        );
        assert_eq!(palette.number("ping"), 0);
        let mut looks: Vec<(String, usize)> = many
            .iter()
            .map(|key| (palette.colour(key), palette.marker(key) % SERIES))
            .collect();
        looks.sort();
        looks.dedup();
        assert_eq!(looks.len(), many.len());
    }

    /// Contrast ratio of two colours (WCAG 2.2).
    fn contrast(one: &str, other: &str) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    fn luminance(colour: &str) -> f64 {
        let part = |from: usize| {
            let share = f64::from(u8::from_str_radix(&colour[from..from + 2], 16).unwrap()) / 255.0;
            if share <= 0.04045 {
                share / 12.92
            } else {
                ((share + 0.055) / 1.055).powf(2.4)
            }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }
}
