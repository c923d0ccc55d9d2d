//! ncftp, wget and Python's ftplib against `longhaul serve`.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use interop::cells::MatrixRow;
use interop::longhaul::serve::ServeCommand;
use interop::matrix::{self, TestStore};
use interop::peer::ftplib::Ftplib;
use interop::peer::ncftp::Ncftp;
use interop::peer::wget::Wget;
use interop::require;
use interop::test_files;
use interop::tree::TestTree;

/// Moves a copy that has the source's name in `folder` to `to`.
fn rename_from(folder: &Path, served: &str, to: &Path) -> Result<()> {
    let name = Path::new(served)
        .file_name()
        .context("a path without name")?;
    std::fs::rename(folder.join(name), to)?;
    Ok(())
}

#[test]
fn ncftp_transfers_and_lists_files() {
    let ncftp = require!(Ncftp::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let at = server.address();
    let mut cells = MatrixRow::new("ncftp");
    let folder = store.scratch().folder("local/ncftp").unwrap();
    matrix::get(&mut cells, &store, &test_files::SIZES, |from, to| {
        server.explain(ncftp.get(at, &[], &folder, from))?;
        rename_from(&folder, from, to)
    });
    matrix::put(&mut cells, &store, &test_files::SIZES, |from, to| {
        server.explain(ncftp.put(at, &[], "up", from))?;
        rename_from(&store.path("up"), &from.to_string_lossy(), &store.path(to))
    });
    cells.check("list", || {
        for options in [&[][..], &["-l"], &["-1"]] {
            let listed = server.explain(ncftp.list(at, options, "src/"))?;
            ensure!(listed.stdout_text().contains("f65535"), "{listed}");
        }
        Ok(())
    });
    cells.finish();
}

#[test]
fn ncftp_transfers_trees() {
    let ncftp = require!(Ncftp::find());
    let store = TestStore::new().unwrap();
    let tree = TestTree::thousand();
    store.add_tree("tree", &tree).unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let mut cells = MatrixRow::new("ncftp -R");
    cells.check("get", || {
        let folder = store.scratch().folder("local/ncftp")?;
        server.explain(ncftp.get(server.address(), &["-R"], &folder, "src/tree"))?;
        tree.ensure_same_as(&folder.join("tree"))
    });
    cells.check("put", || {
        let from = store.path("src/tree");
        server.explain(ncftp.put(server.address(), &["-R"], "up", &from))?;
        tree.ensure_same_as(&store.path("up/tree"))
    });
    cells.finish();
}

#[test]
fn wget_gets_and_resumes_files() {
    let wget = require!(Wget::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let mut cells = MatrixRow::new("wget");
    for options in [&[][..], &["--no-passive-ftp"]] {
        matrix::get(&mut cells, &store, &test_files::SIZES, |from, to| {
            let to = to.to_string_lossy();
            let url = server.url(from);
            let arguments = [options, &[&url, "-O", &to]].concat();
            server.explain(wget.run(&arguments)).map(drop)
        });
    }
    cells.check("-c", || {
        let source = test_files::shared(test_files::LARGE)?;
        let folder = store.scratch().folder("local/wget")?;
        let partial = folder.join(test_files::name(test_files::LARGE));
        std::fs::write(&partial, &std::fs::read(&source)?[..12_345_678])?;
        let url = server.url(&format!("src/{}", test_files::name(test_files::LARGE)));
        server.explain(wget.run(&["-c", "-P", &folder.to_string_lossy(), &url]))?;
        matrix::check_and_remove(&source, &partial)
    });
    cells.finish();
}

#[test]
fn wget_gets_trees() {
    let wget = require!(Wget::find());
    let store = TestStore::new().unwrap();
    // wget decodes `%20` in names from a listing.
    let tree = TestTree::thousand().without(|path| path.contains('%'));
    store.add_tree("tree", &tree).unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let folder = store.scratch().folder("local/wget").unwrap();
    let to = folder.to_string_lossy().into_owned();
    let options = [
        "-r",
        "-l",
        "inf",
        "-nH",
        "--cut-dirs=2",
        "--restrict-file-names=nocontrol",
        "-P",
        &to,
    ];
    let fetched = wget.run(&[&options[..], &[&server.url("src/tree/")]].concat());
    server.explain(fetched).unwrap();
    tree.ensure_same_as(&folder).unwrap();
}

#[test]
fn ftplib_transfers_files_in_passive_and_active_mode() {
    let ftplib = require!(Ftplib::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let mut cells = MatrixRow::new("ftplib");
    for mode in ["passive", "active"] {
        matrix::get(&mut cells, &store, &test_files::SIZES, |from, to| {
            let script = "f.set_pasv(args[2] == 'passive')\n\
                          with open(args[1], 'wb') as o: f.retrbinary('RETR /' + args[0], o.write)";
            let arguments = [from, &to.to_string_lossy(), mode];
            server
                .explain(ftplib.script(server.address(), script, &arguments))
                .map(drop)
        });
        matrix::put(&mut cells, &store, &test_files::SIZES, |from, to| {
            let script = "f.set_pasv(args[2] == 'passive')\n\
                          with open(args[0], 'rb') as i: f.storbinary('STOR /' + args[1], i)";
            let arguments = [&from.to_string_lossy(), to, mode];
            server
                .explain(ftplib.script(server.address(), script, &arguments))
                .map(drop)
        });
    }
    cells.finish();
}

/// Scripts; a failed assertion fails the cell. `/src/f65536` exists and `/up` is empty.
const DIALOGUES: [(&str, &str); 7] = [
    (
        "nlst",
        "names = f.nlst('/src')\n\
         assert sorted(n.rsplit('/', 1)[-1] for n in names if n[-1] != '.') == \
         ['f0', 'f1', 'f100000000', 'f20000000', 'f65535', 'f65536'], names",
    ),
    (
        "mlsd",
        "f.sendcmd('OPTS MLST type;size;')\n\
         facts = {n: x for n, x in f.mlsd('/src')}\n\
         assert facts['f65536']['size'] == '65536', facts\n\
         assert facts['f65536']['type'] == 'file', facts\n\
         f.voidcmd('TYPE I')\n\
         assert f.size('/src/f65535') == 65535",
    ),
    (
        "rest",
        "f.voidcmd('TYPE I')\n\
         whole, part = io.BytesIO(), io.BytesIO()\n\
         f.retrbinary('RETR /src/f65536', whole.write)\n\
         f.retrbinary('RETR /src/f65536', part.write, rest=65000)\n\
         assert part.getvalue() == whole.getvalue()[65000:]\n\
         again = io.BytesIO()\n\
         f.retrbinary('RETR /src/f65536', again.write)\n\
         assert again.getvalue() == whole.getvalue(), 'REST lasted longer than one transfer'",
    ),
    (
        "stor at an offset",
        "f.storbinary('STOR /up/r', io.BytesIO(b'0123456789'))\n\
         f.storbinary('STOR /up/r', io.BytesIO(b'abc'), rest=4)\n\
         out = io.BytesIO()\n\
         f.retrbinary('RETR /up/r', out.write)\n\
         assert out.getvalue()[:7] == b'0123abc', out.getvalue()\n\
         f.delete('/up/r')",
    ),
    (
        "abort",
        "f.voidcmd('TYPE I')\n\
         c = f.transfercmd('RETR /src/f100000000')\n\
         assert len(c.recv(1000)) > 0\n\
         first = f.abort()\n\
         c.close()\n\
         assert first[:3] in ('426', '226', '225'), first\n\
         if first[:3] == '426': assert f.getmultiline()[:3] in ('226', '225')\n\
         out = io.BytesIO()\n\
         f.retrbinary('RETR /src/f1', out.write)\n\
         assert len(out.getvalue()) == 1",
    ),
    (
        "text",
        "f.storlines('STOR /up/t', io.BytesIO(b'one\\r\\ntwo\\n'))\n\
         lines = []\n\
         f.retrlines('RETR /up/t', lines.append)\n\
         assert lines == ['one', 'two'], lines\n\
         f.voidcmd('TYPE I')\n\
         assert f.size('/up/t') == 8, f.size('/up/t')\n\
         f.delete('/up/t')",
    ),
    (
        "folders and names",
        "f.mkd('/up/d \\u00fc')\n\
         f.cwd('/up/d \\u00fc')\n\
         assert f.pwd() == '/up/d \\u00fc', f.pwd()\n\
         f.storbinary('STOR a', io.BytesIO(b'x'))\n\
         f.rename('a', '../b')\n\
         f.cwd('..')\n\
         assert f.pwd() == '/up'\n\
         f.delete('b')\n\
         f.rmd('d \\u00fc')\n\
         try: f.cwd('/up/none'); assert False\n\
         except ftplib.error_perm as e: assert str(e)[:3] == '550', e",
    ),
];

#[test]
fn ftplib_scripts_get_the_expected_replies() {
    let ftplib = require!(Ftplib::find());
    let store = TestStore::new().unwrap();
    let server = ServeCommand::anonymous(store.root()).start().unwrap();
    let mut cells = MatrixRow::new("ftplib");
    for (name, script) in DIALOGUES {
        cells.check(name, || {
            server
                .explain(ftplib.script(server.address(), script, &[]))
                .map(drop)
        });
    }
    cells.finish();
    matrix::ensure_only(&store.path("up"), &[]).unwrap();
}
