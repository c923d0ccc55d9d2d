use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::conflicts::StreamedNames;
use super::copy_plan::CopyPlan;
use super::entries::{NewEntry, PlannedEntry, PlannedFile};
use super::listing::{PlanFiller, list_sources};
use super::outline::{PlanOutline, PlannedDestination};
use super::paths::last_component;
use super::reader::{NextEntry, PlanReader};
use super::*;
use crate::batch::BatchContext;
use crate::batch::totals::BatchTotals;
use crate::options::CopyOptions;
use crate::plan::batch_journal::BatchJournal;
use crate::run::tests::options;
use ftp::answers::SourceFacts;
use ftp::location::Location;
use ftp::{Failure, FailureKind};

mod archived;
mod earlier_run;

fn local(path: impl Into<PathBuf>) -> Location {
    Location::Local(path.into())
}

/// A plan that was read.
#[derive(Debug, Default)]
struct ReadPlan {
    items: Vec<PlannedFile>,
    directories: Vec<Location>,
    failed: Vec<Failure>,
    skipped: u64,
}

async fn make_plan(
    options: CopyOptions,
    sources: &[Location],
    to: Location,
) -> Result<ReadPlan, Failure> {
    let observer = Arc::new(FailureRecorder::default());
    let ctx = Arc::new(BatchContext::new(options, observer.clone()).unwrap());
    let totals = Arc::new(Mutex::new(BatchTotals::default()));
    let outline = PlanOutline::examine(&ctx, sources, &to, None).await?;
    let plan = Arc::new(CopyPlan::in_journal(BatchJournal::unnamed(), &[]));
    let filler = Arc::new(PlanFiller::new(&ctx, &plan, &totals, false));
    list_sources(&filler, outline).await;
    check_conflicts(&plan, &Arc::default())?;
    let mut read = ReadPlan::default();
    let mut reader = PlanReader::of(&plan);
    while let NextEntry::Entry(entry) = reader.next(&plan).unwrap() {
        match entry {
            PlannedEntry::File(item) => read.items.push(item),
            PlannedEntry::Directory { at, .. } => read.directories.push(at),
            PlannedEntry::HardLink(_) | PlannedEntry::Link(_) | PlannedEntry::Unlisted { .. } => {}
        }
    }
    read.items.sort_by_key(|item| item.source.display());
    read.failed = std::mem::take(&mut *observer.0.lock());
    let summary = totals.lock().summary(std::time::Duration::from_secs(1));
    read.skipped = summary.skipped;
    Ok(read)
}

#[derive(Debug, Default)]
struct FailureRecorder(Mutex<Vec<Failure>>);

impl crate::events::CopyObserver for FailureRecorder {
    fn on_event(&self, event: crate::events::CopyEvent) {
        if let crate::events::CopyEvent::Failed { failure, .. } = event {
            self.0.lock().push(failure);
        }
    }
}

async fn planned(options: &CopyOptions, sources: &[Location], to: Location) -> ReadPlan {
    make_plan(options.clone(), sources, to).await.unwrap()
}

fn destinations(plan: &ReadPlan) -> Vec<String> {
    plan.items.iter().map(|i| i.destination.display()).collect()
}

#[tokio::test]
async fn destinations_follow_the_rules_of_cp() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path();
    fs::write(top.join("a"), "1").unwrap();
    fs::write(top.join("b"), "2").unwrap();
    fs::create_dir(top.join("d")).unwrap();
    let ctx = options();
    let show = |p: &str| top.join(p).display().to_string();

    let plan = planned(&ctx, &[local(top.join("a"))], local(top.join("x"))).await;
    assert_eq!(destinations(&plan), [show("x")]);
    let plan = planned(&ctx, &[local(top.join("a"))], local(top.join("d"))).await;
    assert_eq!(destinations(&plan), [show("d/a")]);
    let plan = planned(
        &ctx,
        &[local(top.join("a"))],
        local(format!("{}/new/", top.display())),
    )
    .await;
    assert_eq!(destinations(&plan), [show("new/a")]);
    assert_eq!(plan.directories.len(), 1);
    let both = [local(top.join("a")), local(top.join("b"))];
    let failure = make_plan(ctx.clone(), &both, local(top.join("x")))
        .await
        .unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Usage);
    let plan = planned(&ctx, &[local(top.join("[ab]"))], local(top.join("d"))).await;
    assert_eq!(destinations(&plan), [show("d/a"), show("d/b")]);
}

#[tokio::test]
async fn copies_onto_themselves_and_directories_without_r_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path();
    fs::write(top.join("a"), "1").unwrap();
    fs::create_dir(top.join("d")).unwrap();
    fs::hard_link(top.join("a"), top.join("same")).unwrap();
    let ctx = options();
    for to in [top.join("a"), top.join("same"), top.to_owned()] {
        let plan = planned(&ctx, &[local(top.join("a"))], local(to)).await;
        assert!(plan.items.is_empty());
        assert_eq!(plan.failed[0].kind(), FailureKind::Usage);
    }
    let plan = planned(&ctx, &[local(top.join("d"))], local(top.join("e"))).await;
    assert_eq!(plan.failed[0].kind(), FailureKind::Usage);
    assert!(plan.failed[0].to_string().contains("-r"));
    let plan = planned(&ctx, &[local(top.join("none"))], local(top.join("e"))).await;
    assert_eq!(plan.failed[0].kind(), FailureKind::NotFound);
}

#[tokio::test]
async fn trees_keep_their_relative_paths() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path();
    fs::create_dir_all(top.join("src/sub dir")).unwrap();
    fs::write(top.join("src/sub dir/ü"), "1").unwrap();
    fs::create_dir(top.join("there")).unwrap();
    let mut recursive_options = options();
    recursive_options.tree.recursive = true;
    let ctx = recursive_options;
    let show = |p: &str| top.join(p).display().to_string();
    let plan = planned(&ctx, &[local(top.join("src"))], local(top.join("new"))).await;
    assert_eq!(destinations(&plan), [show("new/sub dir/ü")]);
    let plan = planned(&ctx, &[local(top.join("src"))], local(top.join("there"))).await;
    assert_eq!(destinations(&plan), [show("there/src/sub dir/ü")]);
    let plan = planned(
        &ctx,
        &[local(top.join("src"))],
        local(top.join("src/sub dir/x")),
    )
    .await;
    assert_eq!(plan.failed[0].kind(), FailureKind::Usage);
    assert!(plan.items.is_empty());
}

/// The message with which a plan is refused. Sources and destination are relative to `top`.
async fn refused(top: &Path, sources: &[&str], to: &str) -> String {
    let mut recursive_options = options();
    recursive_options.tree.recursive = true;
    let sources: Vec<_> = sources.iter().map(|s| local(top.join(s))).collect();
    let failure = make_plan(recursive_options, &sources, local(top.join(to)))
        .await
        .unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Usage, "{failure}");
    failure.to_string()
}

#[tokio::test]
async fn conflicts_between_local_files_are_refused_naming_both() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path();
    for path in [
        "a/x",
        "b/x",
        "c/x.longhaul-partial",
        "c/x.longhaul-journal~",
        "b/d/x/f",
        "e/a/x",
        "t/x",
    ] {
        let path = top.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "1").unwrap();
    }
    for (sources, to, named) in [
        (&["a/x", "b/x"][..], "t", ["a/x", "b/x"]),
        (&["a/x", "b/x"], "new/", ["a/x", "b/x"]),
        // Trees that merge into one.
        (&["a", "e/a"], "t", ["a/x", "e/a/x"]),
        (
            &["a/x", "c/x.longhaul-partial"],
            "t",
            ["a/x", "c/x.longhaul-partial"],
        ),
        (
            &["a/x", "c/x.longhaul-journal~"],
            "t",
            ["a/x", "x.longhaul-journal~"],
        ),
        (&["a/x", "b/d/x"], "t", ["a/x", "t/x"]),
        // A partial file that is the source of its own copy.
        (
            &["c/x.longhaul-partial"],
            "c/x",
            ["c/x.longhaul-partial", "c/x.longhaul-partial"],
        ),
    ] {
        let message = refused(top, sources, to).await;
        for name in named {
            assert!(message.contains(name), "{name}: {message}");
        }
    }
}

#[test]
fn conflicts_between_remote_files_are_refused() {
    let at = |url: &str| Location::parse(url).unwrap();
    let plan = |items: &[(&str, &str)], directories: &[&str]| {
        let plan = CopyPlan::in_journal(BatchJournal::unnamed(), &[]);
        for (source, destination) in items {
            let top = plan.add_top(&at(source), &at(destination));
            let file = NewEntry::File(SourceFacts::default());
            plan.add(&top, b"", b"", file).unwrap();
        }
        for url in directories {
            let top = plan.add_top(&at(url), &at(url));
            let directory = NewEntry::Directory(SourceFacts::default());
            plan.add(&top, b"", b"", directory).unwrap();
        }
        plan.end(true);
        plan
    };
    let long = "n".repeat(250);
    let hashed = String::from_utf8(crate::local::partial::partial_name(long.as_bytes())).unwrap();
    let (to_long, to_hashed) = (format!("ftp://h/{long}"), format!("ftp://h/{hashed}"));
    for (items, directories) in [
        (
            &[("/a/x", "ftp://h/t/x"), ("/b/x", "ftp://H//t/./x")][..],
            &[][..],
        ),
        (
            &[
                ("/a/x", "ftp://h/x"),
                ("/a/y", "ftp://h/x.longhaul-partial"),
            ],
            &[],
        ),
        (
            &[
                ("ftp://h/1", "/t/x.longhaul-journal"),
                ("ftp://h/2", "/t/x"),
            ],
            &[],
        ),
        (&[("ftp://g/1", &to_long), ("ftp://g/2", &to_hashed)], &[]),
        (
            &[("ftp://h/1", "ftp://h/2"), ("ftp://h/2", "ftp://h/3")],
            &[],
        ),
        (&[("/a/x", "ftp://h/x")], &["ftp://h/x/"]),
    ] {
        let failure = check_conflicts(&plan(items, directories), &Arc::default()).unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Usage, "{items:?}");
        assert!(
            failure.to_string().contains("nothing was copied"),
            "{failure}"
        );
    }
    for items in [
        [("/a/x", "ftp://h/x"), ("/a/x", "ftp://g/x")],
        [("/a/x", "ftp://u@h/x"), ("/b/x", "ftp://v@h/x")],
        [("ftp://g/2", "ftp://h/1"), ("ftp://g/1", "ftp://h/2")],
    ] {
        check_conflicts(&plan(&items, &[]), &Arc::default()).unwrap();
    }
}

#[tokio::test]
async fn a_copy_over_another_source_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path();
    // The tree x/y/x goes to x and overwrites one of its own files.
    for path in ["x/y/x/f", "x/y/x/y/x/f"] {
        let path = top.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "1").unwrap();
    }
    let message = refused(top, &["x/y/x"], "").await;
    assert!(
        message.contains("x/y/x/y/x/f") && message.contains("replace"),
        "{message}"
    );
}

#[tokio::test]
async fn trees_without_common_files_are_merged() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path();
    for path in ["p/a/x", "q/a/y", "t/z"] {
        let path = top.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "1").unwrap();
    }
    let mut recursive_options = options();
    recursive_options.tree.recursive = true;
    let ctx = recursive_options;
    let both = [local(top.join("p/a")), local(top.join("q/a"))];
    assert_eq!(
        planned(&ctx, &both, local(top.join("t"))).await.items.len(),
        2
    );
    // A source that is named twice counts once.
    let twice = [local(top.join("p/a/x")), local(top.join("p/a/x"))];
    let plan = planned(&ctx, &twice, local(top.join("t"))).await;
    assert_eq!((plan.items.len(), plan.skipped), (1, 1));
}

#[test]
fn remote_locations_are_compared_by_server_and_normalized_path() {
    let at = |url: &str| Location::parse(url).unwrap();
    assert!(is_same_file(&at("ftp://H/a/../b"), &at("ftp://h//b")));
    assert!(!is_same_file(&at("ftp://h/b"), &at("ftp://h:2121/b")));
    assert!(is_inside(&at("ftp://h/a"), &at("ftp://h/a/b")));
    assert!(!is_inside(&at("ftp://h/a"), &at("ftp://h/ab")));
    assert_eq!(last_component(&at("ftp://h/a/b/")), Some(b"b".to_vec()));
    assert_eq!(last_component(&at("ftp://h/")), None);
    assert_eq!(
        join_location(&at("ftp://h/d/"), b"x y").display(),
        "ftp://h/d/x%20y"
    );
    let directory = PlannedDestination::Directory {
        at: local("/there"),
        make: false,
    };
    // A source named `..` has no name that can be created.
    assert!(directory.of_file(&at("ftp://h/a/..")).is_err());
}

#[test]
fn of_two_streamed_files_in_conflict_the_later_one_is_refused() {
    let at = |url: &str| Location::parse(url).unwrap();
    for (pairs, refused) in [
        (&[("/a/x", "ftp://h/x"), ("/b/x", "ftp://H//x")][..], 1),
        (&[("ftp://h/1", "ftp://h/2"), ("ftp://h/2", "ftp://h/3")], 1),
        (&[("ftp://h/2", "ftp://h/3"), ("ftp://h/1", "ftp://h/2")], 1),
        (&[("/a", "ftp://h/x.longhaul-partial")], 0),
    ] {
        let mut names = StreamedNames::default();
        for (n, (source, destination)) in pairs.iter().enumerate() {
            let added = names.add_file(&at(source), &at(destination));
            assert_eq!(added.is_err(), n == refused, "{source} {destination}");
        }
    }
}
