//! Plans that go on with what an earlier run has left in the journal.

use proto::timestamp::Timestamp;

use super::*;

/// The files of a plan that are not done, by name.
fn names_left(plan: &CopyPlan) -> Vec<String> {
    let mut reader = PlanReader::of(plan);
    let mut names = Vec::new();
    while let NextEntry::Entry(entry) = reader.next(plan).unwrap() {
        if let PlannedEntry::File(item) = entry {
            names.push(item.destination.display());
        }
    }
    names
}

#[test]
fn a_listing_that_broke_off_is_repeated_and_what_is_done_and_unchanged_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let ends = [local("/from"), local("/to")];
    let open = |resume| {
        let journal = BatchJournal::open(&path, b"cp", resume, true).unwrap();
        taken_over(journal, &ends)
    };
    let add = |plan: &CopyPlan, files: &[(&str, u64)]| {
        let top = plan.add_top(&ends[0], &ends[1]);
        for (name, size) in files {
            let facts = dated(*size);
            plan.add(&top, b"d", name.as_bytes(), NewEntry::File(facts))
                .unwrap();
        }
    };
    let plan = open(false);
    add(&plan, &[("a", 1), ("b", 2), ("c", 3)]);
    plan.note_destination(2);
    plan.mark_done(&[0, 1]);
    drop(plan);
    // Killed before the end of the listing.
    let plan = open(true);
    assert!(plan.continues() && !plan.has_complete_listing());
    assert_eq!(plan.noted_destination(), Some(2));
    add(&plan, &[("c", 3), ("b", 20), ("a", 1), ("new", 1)]);
    plan.end(true);
    assert_eq!(names_left(&plan), ["/to/d/c", "/to/d/b", "/to/d/new"]);
    plan.mark_done(&[3]);
    drop(plan);
    let plan = open(true);
    assert!(plan.has_complete_listing());
    assert_eq!(names_left(&plan), ["/to/d/b", "/to/d/new"]);
    assert_eq!(plan.size(), (2, 21));
}

#[test]
fn a_journal_of_many_listings_keeps_what_is_done_and_does_not_grow() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let ends = [local("/from"), local("/to")];
    let file = |size: u64| NewEntry::File(dated(size));
    let mut lengths = Vec::new();
    for run in 0..20 {
        let journal = BatchJournal::open(&path, b"cp", run > 0, true).unwrap();
        let plan = CopyPlan::in_journal(journal, &ends);
        plan.take_over(true, 0).unwrap();
        let (left, top) = (plan.size().0, plan.add_top(&ends[0], &ends[1]));
        assert_eq!(left, 0);
        for n in 0..100_u64 {
            let (directory, name) = (format!("d{}", n % 2), n.to_string());
            plan.add(&top, directory.as_bytes(), name.as_bytes(), file(n))
                .unwrap();
        }
        // Each run does two more, and the listing is never complete.
        assert_eq!(plan.size().0, 100 - 2 * run, "run {run}");
        plan.end(false);
        let mut reader = PlanReader::of(&plan);
        for _ in 0..2 {
            let item = reader.next_file(&plan).unwrap().unwrap();
            plan.mark_done(&[item.entry]);
        }
        drop(plan);
        lengths.push(fs::metadata(&path).unwrap().len());
    }
    let most = lengths.iter().max().unwrap();
    assert!(*most < 8 * lengths[0], "{lengths:?}");
    assert!(lengths[19] < *most, "{lengths:?}");
}

#[test]
fn a_file_is_done_only_if_what_is_known_of_its_source_shows_that_it_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let modified = |seconds| Some(Timestamp(seconds));
    let tagged = |version| SourceFacts {
        version,
        ..dated(1)
    };
    let undated = SourceFacts {
        modified: None,
        ..tagged(Some(1))
    };
    for (before, now, is_done) in [
        (dated(1), dated(1), true),
        (tagged(Some(1)), tagged(Some(1)), true),
        // Written again in the same second.
        (tagged(Some(1)), tagged(Some(2)), false),
        (dated(1), tagged(Some(1)), false),
        (tagged(Some(1)), dated(1), false),
        (
            dated(1),
            SourceFacts {
                modified: modified(8),
                ..dated(1)
            },
            false,
        ),
        (undated, undated, false),
    ] {
        let plan = plan_at(&path, false);
        add(&plan, "/from", "/to", NewEntry::File(before));
        plan.mark_done(&[0]);
        drop(plan);
        let journal = BatchJournal::open(&path, b"cp", true, true).unwrap();
        let plan = CopyPlan::in_journal(journal, &[local("/from"), local("/to")]);
        let again = plan.take_over(true, 1).unwrap();
        assert_eq!(again, u64::from(before.modified.is_none()));
        assert_eq!(plan.earlier_files(), 1 - again);
        add(&plan, "/from", "/to", NewEntry::File(now));
        assert_eq!(plan.size().0 == 0, is_done, "{before:?} {now:?}");
    }
}

/// Facts of a file of this size whose time is known.
fn dated(size: u64) -> SourceFacts {
    SourceFacts {
        size: Some(size),
        modified: Some(Timestamp(7)),
        ..SourceFacts::default()
    }
}

/// A plan of copies from /from to /to, in the journal at `path`.
fn plan_at(path: &Path, resume: bool) -> CopyPlan {
    let journal = BatchJournal::open(path, b"cp", resume, true).unwrap();
    taken_over(journal, &[local("/from"), local("/to")])
}

/// The plan of a run that goes on with what is in a journal.
fn taken_over(journal: BatchJournal, known: &[Location]) -> CopyPlan {
    let plan = CopyPlan::in_journal(journal, known);
    plan.take_over(false, 0).unwrap();
    plan
}

fn add(plan: &CopyPlan, source: &str, destination: &str, entry: NewEntry) {
    let top = plan.add_top(&local(source), &local(destination));
    plan.add(&top, b"d", b"n", entry).unwrap();
}

#[tokio::test]
async fn a_plan_that_was_listed_but_not_checked_is_listed_again() {
    let dir = tempfile::tempdir().unwrap();
    let (from, path) = (dir.path().join("from"), dir.path().join("j"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("a"), "1").unwrap();
    let mut tree = options();
    tree.tree.recursive = true;
    let ctx = BatchContext::new(tree, Arc::new(FailureRecorder::default())).unwrap();
    let ctx = Arc::new(ctx);
    let sources = [local(&from)];
    for accepted in [false, true] {
        let to = local(dir.path().join("to"));
        let outline = PlanOutline::examine(&ctx, &sources, &to, None).await;
        let plan = Arc::new(plan_at(&path, false));
        let filler = Arc::new(PlanFiller::new(&ctx, &plan, &Arc::default(), false));
        list_sources(&filler, outline.unwrap()).await;
        check_conflicts(&plan, &Arc::default()).unwrap();
        if accepted {
            filler.accept();
        }
        // Killed here.
        drop((filler, plan));
        let ends = [local(&from), to];
        let journal = BatchJournal::open(&path, b"cp", true, true).unwrap();
        let plan = taken_over(journal, &ends);
        assert_eq!(plan.has_complete_listing(), accepted);
    }
}

#[test]
fn a_file_in_conflict_with_one_that_an_earlier_run_has_copied_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let file = || NewEntry::File(dated(0));
    let plan = plan_at(&path, false);
    add(&plan, "/from/a", "/to", file());
    plan.mark_done(&[0]);
    drop(plan);
    let plan = plan_at(&path, true);
    add(&plan, "/from/a", "/to", file());
    assert_eq!(plan.size().0, 0, "done");
    check_conflicts(&plan, &Arc::default()).unwrap();
    add(&plan, "/from/b", "/to", file());
    let failure = check_conflicts(&plan, &Arc::default()).unwrap_err();
    assert_eq!(failure.kind(), FailureKind::Usage, "{failure}");
}

#[test]
fn a_link_that_has_changed_and_every_hard_link_are_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let hard = || NewEntry::HardLink {
        facts: SourceFacts::default(),
        first: b"d/a".to_vec(),
    };
    let link = |target: &str| NewEntry::Link(target.into());
    let plan = plan_at(&path, false);
    let all = [
        link("a"),
        hard(),
        NewEntry::Directory(SourceFacts::default()),
    ];
    for (n, entry) in all.into_iter().enumerate() {
        add(&plan, &format!("/from/{n}"), "/to", entry);
    }
    plan.mark_done(&[0, 1, 2]);
    drop(plan);
    for (n, entry, links) in [
        (0, link("a"), 0),
        (0, link("b"), 1),
        (1, hard(), 1),
        // A link in place of a directory.
        (2, link(""), 1),
    ] {
        let plan = plan_at(&path, true);
        add(&plan, &format!("/from/{n}"), "/to", entry);
        assert_eq!(plan.link_count(), links, "{n}");
    }
}
