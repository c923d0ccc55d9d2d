use super::*;
use crate::experiment::definition::Definition;
use crate::experiment::tally;

fn definition(more: &str) -> Result<Definition, LabError> {
    let text = r#"
title = "T"
kind = "loopback"
measure = "goodput"
unit = "Mbit/s"
programs = { full = ["one", "two", "free"], quick = ["two", "free"] }
repetitions = { full = 1, quick = 1 }
limit = { full = 1, quick = 1 }
[across]
key = "p"
label = "streams"
full = ["1"]
quick = ["1"]
"#;
    Definition::parse("x.toml", &format!("{text}{more}"))
}

const BEST: &str = "[best.set]\nlabel = 'best set'\nof = ['one', 'two']\n";

fn cell(program: &str, median: Option<f64>) -> ResultCell {
    ResultCell {
        median,
        ..tally::empty(program, BTreeMap::new(), None)
    }
}

fn ratio(cell: &ResultCell) -> Option<f64> {
    cell.also.get("of-set")?.median
}

#[test]
fn the_best_gets_a_cell_and_the_others_their_ratio() {
    let definition = definition(BEST).unwrap();
    let mut cells = vec![cell("one", Some(9000.0))];
    cells.extend([("one", 50.0), ("two", 80.0), ("free", 100.0)].map(|(k, v)| cell(k, Some(v))));
    add(&definition.best, definition.higher_is_better, &mut cells, 1);
    let best = cells.last().unwrap();
    assert_eq!((&*best.program, best.median), ("set", Some(80.0)));
    assert_eq!(best.chosen.as_deref(), Some("two"));
    let ratios: Vec<_> = cells.iter().map(ratio).collect();
    // The first cell is of another point.
    let expected = [None, Some(0.625), Some(1.0), Some(1.25), Some(1.0)];
    assert_eq!(ratios, expected);
}

#[test]
fn less_may_be_better() {
    let mut definition = definition(BEST).unwrap();
    definition.higher_is_better = false;
    let mut cells = vec![cell("one", Some(50.0)), cell("two", Some(80.0))];
    add(&definition.best, definition.higher_is_better, &mut cells, 0);
    assert_eq!(cells[2].chosen.as_deref(), Some("one"));
}

#[test]
fn who_failed_is_not_the_best() {
    let definition = definition(BEST).unwrap();
    let mut cells = vec![cell("one", None), cell("two", Some(3.0))];
    add(&definition.best, definition.higher_is_better, &mut cells, 0);
    assert_eq!(cells[2].chosen.as_deref(), Some("two"));
    assert_eq!(ratio(&cells[0]), None);
    let mut cells = vec![cell("one", None), cell("free", Some(3.0))];
    add(&definition.best, definition.higher_is_better, &mut cells, 0);
    assert_eq!((cells.len(), ratio(&cells[1])), (2, None));
}

#[test]
fn it_is_shown_where_one_of_its_own_takes_part() {
    let definition = definition(BEST).unwrap();
    assert_eq!(shown(&definition.best, &["two"])[0].label, "best set");
    assert!(shown(&definition.best, &["free"]).is_empty());
    let ratios: Vec<FurtherMeasure> = ratios(&definition.best, true).collect();
    assert_eq!(ratios[0].label, "ratio to the best set");
}

#[test]
fn each_mistake_names_its_key() {
    for (from, to, named) in [
        ("[best.set]", "[best.free]", "'best.free'"),
        ("['one', 'two']", "[]", "'best.set.of'"),
        ("'two'", "'three'", "'three'"),
        ("label", "lable", "`lable`"),
    ] {
        let message = definition(&BEST.replace(from, to)).unwrap_err().to_string();
        assert!(message.contains(named), "{message}");
    }
    let also = "[[also]]\nmeasure = 'of-set'\nlabel = 'x'\nunit = 'x'\n";
    let message = definition(&format!("{also}{BEST}")).unwrap_err();
    assert!(message.to_string().contains("'best.set'"), "{message}");
    assert!(definition(&format!("baseline = 'set'\n{BEST}")).is_err());
}
