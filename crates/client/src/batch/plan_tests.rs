use std::fs;
use std::path::PathBuf;

use super::*;
use crate::batch::Context;
use crate::batch::tests::{context, options};

fn local(path: impl Into<PathBuf>) -> Location {
    Location::Local(path.into())
}

async fn planned(ctx: &Context, sources: &[Location], to: Location) -> Plan {
    plan(ctx, sources, &to).await.unwrap()
}

fn destinations(plan: &Plan) -> Vec<String> {
    plan.items.iter().map(|i| i.destination.display()).collect()
}

#[tokio::test]
async fn rules_of_cp() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path();
    fs::write(top.join("a"), "1").unwrap();
    fs::write(top.join("b"), "2").unwrap();
    fs::create_dir(top.join("d")).unwrap();
    let ctx = context(options());
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
    let failure = super::plan(&ctx, &both, &local(top.join("x")))
        .await
        .unwrap_err();
    assert_eq!(failure.exit, Exit::Usage);
    let plan = planned(&ctx, &[local(top.join("[ab]"))], local(top.join("d"))).await;
    assert_eq!(destinations(&plan), [show("d/a"), show("d/b")]);
}

#[tokio::test]
async fn onto_itself_and_without_r() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path();
    fs::write(top.join("a"), "1").unwrap();
    fs::create_dir(top.join("d")).unwrap();
    fs::hard_link(top.join("a"), top.join("same")).unwrap();
    let ctx = context(options());
    for to in [top.join("a"), top.join("same"), top.to_owned()] {
        let plan = planned(&ctx, &[local(top.join("a"))], local(to)).await;
        assert!(plan.items.is_empty());
        assert_eq!(plan.failed[0].1.exit, Exit::Usage);
    }
    let plan = planned(&ctx, &[local(top.join("d"))], local(top.join("e"))).await;
    assert_eq!(plan.failed[0].1.exit, Exit::Usage);
    assert!(plan.failed[0].1.message.contains("-r"));
    let plan = planned(&ctx, &[local(top.join("none"))], local(top.join("e"))).await;
    assert_eq!(plan.failed[0].1.exit, Exit::NotFound);
}

#[tokio::test]
async fn trees_keep_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path();
    fs::create_dir_all(top.join("src/sub dir")).unwrap();
    fs::write(top.join("src/sub dir/ü"), "1").unwrap();
    fs::create_dir(top.join("there")).unwrap();
    let mut wanted = options();
    wanted.recursive = true;
    let ctx = context(wanted);
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
    assert_eq!(plan.failed[0].1.exit, Exit::Usage);
    assert!(plan.items.is_empty());
}

#[test]
fn remote_places() {
    let at = |url: &str| Location::parse(url).unwrap();
    assert!(same_place(&at("ftp://H/a/../b"), &at("ftp://h//b")));
    assert!(!same_place(&at("ftp://h/b"), &at("ftp://h:2121/b")));
    assert!(inside(&at("ftp://h/a"), &at("ftp://h/a/b")));
    assert!(!inside(&at("ftp://h/a"), &at("ftp://h/ab")));
    assert_eq!(name_of(&at("ftp://h/a/b/")), Some(b"b".to_vec()));
    assert_eq!(name_of(&at("ftp://h/")), None);
    assert_eq!(
        below(&at("ftp://h/d/"), b"x y").display(),
        "ftp://h/d/x%20y"
    );
    let directory = Destination::Directory {
        at: local("/there"),
        make: false,
    };
    // A source named `..` has no name that could be created.
    assert!(file_target(&at("ftp://h/a/.."), &directory).is_err());
}
