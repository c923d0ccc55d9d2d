//! Colours of the light and the dark theme, and their assignment to programs.

use std::collections::BTreeMap;

use super::load::LoadedResults;

/// Number of colours for programs, and of steps of the ramp for rows. Further programs share a colour and
/// have a different marker.
pub(super) const COLOURS: usize = 8;

/// The custom properties of `chart.css`: name, colour in the light theme, colour in the dark theme.
///
/// `s0`..`s7` are colours of programs that colour-blind readers can distinguish: the hues of Okabe and
/// Ito (2008), with lightness changed for a contrast of at least 3:1 on the page. `r0`..`r7` are a ramp
/// of rising lightness for rows, which have an order (part of matplotlib's plasma).
const PALETTE: &[(&str, &str, &str)] = &[
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

/// Style sheet of charts, on the page and in SVG files.
const CHART_STYLE: &str = include_str!("chart.css");

/// The page's custom properties and the style of charts. The theme is light, dark if the system or the
/// reader chooses it, and always light in print.
pub(super) fn page_style() -> String {
    let property = |(name, value): (&str, &str)| format!("--{name}:{value};");
    let light: String = PALETTE.iter().map(|c| property((c.0, c.1))).collect();
    let dark: String = PALETTE.iter().map(|c| property((c.0, c.2))).collect();
    format!(
        ":root{{color-scheme:light;{light}}}\n\
         @media (prefers-color-scheme:dark){{:root{{color-scheme:dark;{dark}}}}}\n\
         :root[data-theme=light]{{color-scheme:light;{light}}}\n\
         :root[data-theme=dark]{{color-scheme:dark;{dark}}}\n\
         @media print{{:root,:root[data-theme]{{color-scheme:light;{light}}}}}\n\
         {CHART_STYLE}"
    )
}

/// The style of an SVG file, with literal colours: some SVG viewers do not support custom properties.
pub(super) fn file_style() -> String {
    let (mut light, mut dark) = (CHART_STYLE.to_owned(), CHART_STYLE.to_owned());
    for (name, of_light, of_dark) in PALETTE {
        let property = format!("var(--{name})");
        light = light.replace(&property, of_light);
        dark = dark.replace(&property, of_dark);
    }
    format!("{light}\n@media (prefers-color-scheme:dark){{\n{dark}}}\n")
}

/// The number of each program's style, which is the same in all experiments of a report. longhaul always
/// has 0. Programs that are never in the same experiment may have the same number.
#[derive(Default)]
pub(super) struct Palette {
    numbers: BTreeMap<String, usize>,
}

impl Palette {
    /// Assigns a number to every program of `loaded`.
    pub(super) fn of(loaded: &[LoadedResults]) -> Self {
        let programs = |one: &LoadedResults| -> Vec<String> {
            one.results
                .programs
                .iter()
                .map(|program| program.key.clone())
                .collect()
        };
        let experiments: Vec<Vec<String>> = loaded.iter().map(programs).collect();
        let mut keys: Vec<&String> = experiments.iter().flatten().collect();
        // The sort is stable, so other programs keep the order in which they first occur.
        keys.sort_by_key(|key| *key != "longhaul");
        let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
        for key in keys {
            if !numbers.contains_key(key) {
                let met = experiments.iter().filter(|programs| programs.contains(key));
                let taken: Vec<usize> = met
                    .flatten()
                    .filter_map(|other| numbers.get(other).copied())
                    .collect();
                let free = (0..).find(|number| !taken.contains(number)).unwrap_or(0);
                numbers.insert(key.clone(), free);
            }
        }
        Self { numbers }
    }

    /// The CSS class of the program's colour.
    pub(super) fn colour(&self, key: &str) -> String {
        format!("s{}", self.number(key) % COLOURS)
    }

    /// The number of the program's marker. Programs with the same colour have different markers.
    pub(super) fn marker(&self, key: &str) -> usize {
        let number = self.number(key);
        number + number / COLOURS
    }

    fn number(&self, key: &str) -> usize {
        self.numbers.get(key).copied().unwrap_or(0)
    }
}

/// The CSS class of the colour of row `index` of `rows`. The rows are spread over the whole ramp.
pub(super) fn ramp(index: usize, rows: usize) -> String {
    let step = match rows {
        0 | 1 => 0,
        _ => (index * (COLOURS - 1) + (rows - 1) / 2) / (rows - 1) % COLOURS,
    };
    format!("r{step}")
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use crate::experiment::results::ComparedProgram;

    #[test]
    fn colours_stand_out_from_the_page() {
        assert!(!file_style().contains("var(") && page_style().contains("--s0:#0064b0"));
        let page = PALETTE[0];
        for (name, light, dark) in PALETTE {
            let numbered = name.starts_with(['s', 'r']) && name.len() == 2;
            if numbered || ["ink", "muted", "accent", "warn", "paper"].contains(name) {
                for contrast in [contrast(page.1, light), contrast(page.2, dark)] {
                    assert!(contrast >= 3.0, "{name}: {contrast:.2}");
                }
            }
        }
    }

    #[test]
    fn the_ramp_is_used_from_end_to_end() {
        let steps: Vec<String> = (0..7).map(|index| ramp(index, 7)).collect();
        assert_eq!((&*steps[0], &*steps[6], &*ramp(0, 1)), ("r0", "r7", "r0"));
        assert!(steps.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn longhaul_is_first_and_programs_of_one_experiment_look_different() {
        let experiment = |keys: &[&str]| {
            let mut results = samples::two_by_two();
            let named = |key: &&str| ComparedProgram {
                key: (*key).to_owned(),
                ..samples::two_by_two().programs[0].clone()
            };
            results.programs = keys.iter().map(named).collect();
            LoadedResults::new(keys.concat(), results)
        };
        let many: Vec<String> = (0..20).map(|number| format!("p{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let loaded = [&["globus", "longhaul"][..], &["ping"], &many].map(experiment);
        let palette = Palette::of(&loaded);
        let number = |key| palette.number(key);
        assert_eq!(
            (number("longhaul"), number("globus"), number("ping")),
            (0, 1, 0)
        );
        let looks: std::collections::BTreeSet<_> = many
            .iter()
            .map(|key| (palette.colour(key), palette.marker(key) % COLOURS))
            .collect();
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
            match share <= 0.04045 {
                true => share / 12.92,
                false => ((share + 0.055) / 1.055).powf(2.4),
            }
        };
        0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5)
    }
}
