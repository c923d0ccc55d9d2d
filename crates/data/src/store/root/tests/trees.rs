//! A client's own trees.

use super::*;

/// The tree by openat2(2), and as without it.
fn both_ways(tree: &JailTree) -> [Root; 2] {
    let open = || Root::open_tree(&tree.host("jail")).unwrap();
    let without = Root {
        has_openat2: false,
        ..open()
    };
    [open(), without]
}

#[test]
fn no_link_in_a_tree_is_followed_also_without_openat2() {
    let tree = JailTree::new();
    tree.mkdir("d");
    tree.file("d/f", "content");
    tree.link("d", "inside");
    tree.link("../outside", "outside");
    tree.link("f", "d/link");
    for root in both_ways(&tree) {
        assert!(root.open_read(&v("d/f")).is_ok());
        for name in ["inside/f", "outside/file", "d/link"] {
            assert_eq!(errno(root.open_read(&v(name))), Errno::LOOP, "{name}");
        }
        for name in ["inside/new", "outside/new"] {
            assert_eq!(errno(root.make_dir(&v(name))), Errno::LOOP, "{name}");
            assert_eq!(errno(root.open_parent(&v(name))), Errno::LOOP, "{name}");
        }
    }
    // The tree itself may be named by a link.
    symlink(tree.host("jail"), tree.host("named")).unwrap();
    let named = Root::open_tree(&tree.host("named")).unwrap();
    assert!(named.open_read(&v("d/f")).is_ok());
}

#[test]
fn a_link_leads_out_of_a_tree_whatever_its_text_says() {
    let tree = JailTree::new();
    tree.mkdir("a");
    tree.mkdir("a/b");
    tree.link("a", "short");
    tree.link("../../outside", "a/out");
    let [root, _] = both_ways(&tree);
    for (directory, target, is_inside) in [
        ("a/b", "../../a", true),
        ("a/b", "../../../jail", false),
        ("a", "b/not yet", true),
        ("a", "out/file", false),
        ("/", "short/b", true),
        ("/", "/etc", false),
    ] {
        let holds = root.holds_target(&v(directory), target.as_bytes());
        assert_eq!(holds, is_inside, "{directory} {target}");
    }
}
