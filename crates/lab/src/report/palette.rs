//! Colours, and the looks of programs and rows.

use plotters::style::RGBColor;

use crate::experiment::results::ComparedProgram;

/// A colour on a light page, and its counterpart on a dark one.
type Shade = (RGBColor, RGBColor);

const fn rgb(number: u32) -> RGBColor {
    let [_, red, green, blue] = number.to_be_bytes();
    RGBColor(red, green, blue)
}

const fn shade(light: u32, dark: u32) -> Shade {
    (rgb(light), rgb(dark))
}

pub(super) const PAGE: Shade = shade(0xff_ff_ff, 0x12_15_1a);
pub(super) const INK: Shade = shade(0x1c_21_28, 0xe6_e9_ee);
/// Labels and axes.
pub(super) const MUTED: Shade = shade(0x57_60_69, 0x9b_a5_b3);
pub(super) const GRID: Shade = shade(0xe8_eb_ee, 0x26_2c_34);
/// Values that were published for no program in particular.
const PUBLISHED: Shade = shade(0x57_60_6a, 0xaa_b4_c0);

/// Colours of programs that colour-blind readers can distinguish: the hues of Okabe and Ito (2008), with lightness
/// changed for a contrast of at least 3:1 on the page. Further programs have the same colours and other markers.
const PROGRAMS: [Shade; 8] = [
    shade(0x00_64_b0, 0x58_a6_ff),
    shade(0xc9_4f_00, 0xff_8f_4d),
    shade(0x00_80_5c, 0x35_c7_9a),
    shade(0xa8_43_7f, 0xe5_8c_c0),
    shade(0x8a_61_00, 0xe6_b4_22),
    shade(0x5a_4f_cf, 0xa7_9b_ff),
    shade(0x00_7f_92, 0x4f_d0_e0),
    shade(0x6b_42_26, 0xd0_a0_80),
];

/// Colours of rows, which have an order: a ramp of rising lightness (part of matplotlib's plasma).
const ROWS: [Shade; 8] = [
    shade(0x0d_08_87, 0xb1_2a_90),
    shade(0x46_03_9f, 0xc5_40_7e),
    shade(0x72_01_a8, 0xd6_55_6d),
    shade(0x9c_17_9e, 0xe5_6b_5d),
    shade(0xbd_37_86, 0xf0_84_4c),
    shade(0xd0_50_6f, 0xf9_a0_3a),
    shade(0xdc_61_50, 0xfc_c8_3a),
    shade(0xd9_71_3a, 0xfb_e9_8a),
];

/// All colours of a chart.
fn shades() -> impl Iterator<Item = Shade> {
    [PAGE, INK, MUTED, GRID, PUBLISHED]
        .into_iter()
        .chain(PROGRAMS)
        .chain(ROWS)
}

/// The style sheet of charts, on a page and in a file: plotters writes the colours of a light page as attributes, and
/// a dark one replaces them.
pub(super) fn style_sheet() -> String {
    let hex = |RGBColor(red, green, blue): RGBColor| format!("#{red:02X}{green:02X}{blue:02X}");
    let rule = |(light, dark): Shade| {
        let (light, dark) = (hex(light), hex(dark));
        format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}\n")
    };
    let rules: String = shades().map(rule).collect();
    format!(
        "polyline{{stroke-linejoin:round}}\n@media screen and (prefers-color-scheme:dark){{\n{rules}}}\n"
    )
}

/// The look of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LineStyle {
    pub(super) colour: RGBColor,
    /// Number of its marker's shape.
    pub(super) marker: usize,
    /// Whether the values are published rather than measured: a dashed line with hollow markers.
    pub(super) published: bool,
}

impl LineStyle {
    /// The look of the published values.
    pub(super) const PUBLISHED: Self = Self {
        colour: PUBLISHED.0,
        marker: 0,
        published: true,
    };

    /// The look of the program with this key. longhaul looks the same in all experiments. Programs with the same colour
    /// have different markers.
    pub(super) fn of_program(key: &str, programs: &[ComparedProgram]) -> Self {
        let (own, others): (Vec<_>, Vec<_>) =
            programs.iter().partition(|one| one.key == "longhaul");
        let position = own.into_iter().chain(others).position(|one| one.key == key);
        let number = position.unwrap_or(0);
        Self {
            colour: PROGRAMS[number % PROGRAMS.len()].0,
            marker: number + number / PROGRAMS.len(),
            published: false,
        }
    }

    /// The look of row `index` of `rows`. The rows are spread over the whole ramp.
    pub(super) fn of_row(index: usize, rows: usize) -> Self {
        let last = rows.saturating_sub(1).max(1);
        let step = (index * (ROWS.len() - 1) + last / 2) / last % ROWS.len();
        Self {
            colour: ROWS[step].0,
            marker: index,
            published: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::chart::MARKERS;
    use super::*;

    #[test]
    fn colours_stand_out_from_the_page_and_have_one_counterpart_each() {
        let page = PAGE;
        for (light, dark) in shades().filter(|colour| ![PAGE, GRID].contains(colour)) {
            for contrast in [contrast(page.0, light), contrast(page.1, dark)] {
                assert!(contrast >= 3.0, "{light:?}: {contrast:.2}");
            }
        }
        let lights: BTreeSet<_> = shades().map(|(RGBColor(r, g, b), _)| (r, g, b)).collect();
        assert_eq!(lights.len(), shades().count());
        assert!(style_sheet().contains("[fill=\"#0064B0\"]{fill:#58A6FF}"));
    }

    #[test]
    fn the_ramp_is_used_from_end_to_end() {
        let colour = |index, rows| LineStyle::of_row(index, rows).colour;
        assert_eq!(
            [colour(0, 7), colour(6, 7), colour(0, 1)],
            [ROWS[0].0, ROWS[7].0, ROWS[0].0]
        );
    }

    #[test]
    fn longhaul_is_first_and_programs_look_different() {
        let named = |key: &str| ComparedProgram {
            key: key.to_owned(),
            label: String::new(),
            published_ratio: None,
        };
        let mut programs: Vec<_> = (0..20).map(|number| named(&format!("p{number}"))).collect();
        programs.push(named("longhaul"));
        let look = |one: &ComparedProgram| {
            let style = LineStyle::of_program(&one.key, &programs);
            let RGBColor(r, g, b) = style.colour;
            (r, g, b, style.marker % MARKERS.len())
        };
        assert_eq!(look(&programs[20]), (0, 0x64, 0xb0, 0));
        assert_eq!(programs.iter().map(look).collect::<BTreeSet<_>>().len(), 21);
    }

    /// Contrast ratio of two colours (WCAG 2.2).
    fn contrast(one: RGBColor, other: RGBColor) -> f64 {
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    fn luminance(RGBColor(red, green, blue): RGBColor) -> f64 {
        let part = |part: u8| match f64::from(part) / 255.0 {
            share if share <= 0.04045 => share / 12.92,
            share => ((share + 0.055) / 1.055).powf(2.4),
        };
        0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue)
    }
}
