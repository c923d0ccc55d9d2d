//! A file tree in memory that answers file operations as a Unix file system does.

use std::collections::BTreeMap;

use proto::checksum::ChecksumAlgorithm;
use proto::listing::{DirectoryEntry, EntryKind, EntryPermissions, format_ls, format_mlsx};
use proto::path::VPath;
use proto::server::{FileError, FileErrorKind, FileRequest, FileResponse, ListFormat, ListRequest};
use proto::timestamp::Timestamp;

/// 2026-11-20 08:21:03 UTC, the modification time of all new nodes.
const DEFAULT_TIME: Timestamp = Timestamp(1_795_162_863);

#[derive(Debug, Clone)]
struct FileTreeNode {
    /// Content of a file; `None` for a directory.
    content: Option<Vec<u8>>,
    modified: Timestamp,
    mode: u32,
    link_target: Option<Vec<u8>>,
}

/// Nodes by their absolute path.
pub(crate) struct FileTree {
    nodes: BTreeMap<Vec<u8>, FileTreeNode>,
}

type FileTreeResult = Result<FileResponse, FileError>;

impl FileTree {
    /// A tree with the root directory only.
    pub(crate) fn new() -> Self {
        let mut tree = Self {
            nodes: BTreeMap::new(),
        };
        tree.add_dir("/");
        tree
    }

    /// Adds a directory.
    pub(crate) fn add_dir(&mut self, path: &str) {
        self.put(path.as_bytes(), None);
    }

    /// Adds a file.
    pub(crate) fn add_file(&mut self, path: &str, content: &str) {
        self.put(path.as_bytes(), Some(content.as_bytes().to_vec()));
    }

    fn put(&mut self, path: &[u8], content: Option<Vec<u8>>) {
        let mode = if content.is_some() { 0o644 } else { 0o755 };
        let node = FileTreeNode {
            content,
            modified: DEFAULT_TIME,
            mode,
            link_target: None,
        };
        self.nodes.insert(path.to_vec(), node);
    }

    /// Performs a file operation.
    pub(crate) fn answer(&mut self, request: &FileRequest) -> FileTreeResult {
        match request {
            FileRequest::Stat(path) => Ok(FileResponse::Entry(Box::new(self.entry(path)?))),
            FileRequest::ChangeDir(path) => self.directory(path).map(|()| FileResponse::Done),
            FileRequest::MakeDir(path) => self.make_dir(path),
            FileRequest::RemoveDir(path) => self.remove_dir(path),
            FileRequest::Delete(path) => self.delete(path),
            FileRequest::RemoveTree(path) => self.remove_tree(path),
            FileRequest::Rename { from, to } => self.rename(from, to),
            FileRequest::SetModified(path, time) => self
                .change(path, |n| n.modified = *time)
                .map(|_| FileResponse::Modified(*time)),
            FileRequest::Chmod(path, mode) => self.change(path, |n| n.mode = *mode),
            FileRequest::Chgrp(path, group) => {
                self.node(path)?;
                match group.as_str() {
                    "users" => Ok(FileResponse::Done),
                    _ => Err(error(FileErrorKind::Denied, 1, "Operation not permitted")),
                }
            }
            FileRequest::Symlink { target, link } => {
                self.put(link.as_bytes(), Some(Vec::new()));
                self.change(link, |n| n.link_target = Some(target.clone()))
            }
            FileRequest::SymlinkAmong(pairs) => {
                // The script says which of the names exist.
                let (target, link) = pairs[0].clone();
                self.answer(&FileRequest::Symlink { target, link })
            }
            FileRequest::Truncate(path, length) => self.change(path, |n| {
                if let Some(content) = &mut n.content {
                    content.resize(usize::try_from(*length).unwrap(), 0);
                }
            }),
            FileRequest::List(request) => self.list(request),
            // The scripted driver moves no bytes.
            FileRequest::EndBundle(_) => Ok(FileResponse::Bundle(Box::default())),
            FileRequest::Checksum {
                algorithm,
                path,
                offset,
                length,
                ..
            } => self.checksum(*algorithm, path, *offset, *length),
        }
    }

    fn node(&self, path: &VPath) -> Result<&FileTreeNode, FileError> {
        self.nodes.get(path.as_bytes()).ok_or_else(not_found)
    }

    fn change(&mut self, path: &VPath, edit: impl FnOnce(&mut FileTreeNode)) -> FileTreeResult {
        let node = self.nodes.get_mut(path.as_bytes());
        edit(node.ok_or_else(not_found)?);
        Ok(FileResponse::Done)
    }

    fn directory(&self, path: &VPath) -> Result<(), FileError> {
        match self.node(path)?.content {
            None => Ok(()),
            Some(_) => Err(error(FileErrorKind::NotADirectory, 20, "Not a directory")),
        }
    }

    fn make_dir(&mut self, path: &VPath) -> FileTreeResult {
        if self.node(path).is_ok() {
            return Err(error(FileErrorKind::Exists, 17, "File exists"));
        }
        self.directory(&path.parent())?;
        self.put(path.as_bytes(), None);
        Ok(FileResponse::Done)
    }

    fn remove_dir(&mut self, path: &VPath) -> FileTreeResult {
        self.directory(path)?;
        if self.entries_below(path).next().is_some() {
            return Err(error(FileErrorKind::NotEmpty, 39, "Directory not empty"));
        }
        self.nodes.remove(path.as_bytes());
        Ok(FileResponse::Done)
    }

    fn delete(&mut self, path: &VPath) -> FileTreeResult {
        if self.node(path)?.content.is_none() {
            return Err(error(FileErrorKind::IsADirectory, 21, "Is a directory"));
        }
        self.nodes.remove(path.as_bytes());
        Ok(FileResponse::Done)
    }

    fn remove_tree(&mut self, path: &VPath) -> FileTreeResult {
        self.node(path)?;
        let entries_below: Vec<Vec<u8>> = self.entries_below(path).cloned().collect();
        for path in entries_below {
            self.nodes.remove(&path);
        }
        self.nodes.remove(path.as_bytes());
        Ok(FileResponse::Done)
    }

    fn rename(&mut self, from: &VPath, to: &VPath) -> FileTreeResult {
        self.directory(&to.parent())?;
        let node = self.nodes.remove(from.as_bytes()).ok_or_else(not_found)?;
        self.nodes.insert(to.as_bytes().to_vec(), node);
        Ok(FileResponse::Done)
    }

    fn entries_below<'a>(&'a self, path: &VPath) -> impl Iterator<Item = &'a Vec<u8>> + use<'a> {
        let mut prefix = path.as_bytes().to_vec();
        if !path.is_root() {
            prefix.push(b'/');
        }
        let first = prefix.clone();
        self.nodes
            .range(first..)
            .map(|(path, _)| path)
            .take_while(move |path| path.starts_with(&prefix))
            .filter(|path| path.as_slice() != b"/")
    }

    fn entry(&self, path: &VPath) -> Result<DirectoryEntry, FileError> {
        let node = self.node(path)?;
        Ok(DirectoryEntry {
            name: path.name().to_vec(),
            kind: match node.content {
                Some(_) => EntryKind::File,
                None => EntryKind::Dir,
            },
            size: node.content.as_ref().map_or(4096, |c| c.len() as u64),
            modified: node.modified,
            mode: node.mode,
            link_count: 1,
            uid: 1001,
            gid: 100,
            owner: "ann".to_owned(),
            group: "users".to_owned(),
            device_and_inode: (0xfe00, 0x99),
            link_target: node.link_target.clone(),
            permissions: EntryPermissions {
                read: true,
                write: true,
                execute: true,
            },
        })
    }

    fn list(&self, request: &ListRequest) -> FileTreeResult {
        let listed = self.entry(&request.path)?;
        let entries: Vec<DirectoryEntry> = if listed.kind == EntryKind::Dir {
            self.entries_below(&request.path)
                .filter_map(|path| VPath::root().resolve(path).ok())
                .filter(|path| path.parent() == request.path)
                .map(|path| self.entry(&path))
                .collect::<Result<_, _>>()?
        } else {
            vec![listed]
        };
        let lines = entries
            .iter()
            .map(|entry| match request.format {
                ListFormat::Facts(facts) => format_mlsx(entry, facts, None),
                ListFormat::LsLong => format_ls(entry, DEFAULT_TIME),
                ListFormat::Names => entry.name.clone(),
            })
            .collect();
        Ok(FileResponse::Lines(lines))
    }

    /// Computes Adler-32 (RFC 1950 §8.2). Transcripts must answer requests for other algorithms.
    fn checksum(
        &self,
        algorithm: ChecksumAlgorithm,
        path: &VPath,
        offset: u64,
        length: Option<u64>,
    ) -> FileTreeResult {
        assert_eq!(
            algorithm,
            ChecksumAlgorithm::Adler32,
            "answer it with > File digest"
        );
        let Some(content) = &self.node(path)?.content else {
            return Err(error(FileErrorKind::IsADirectory, 21, "Is a directory"));
        };
        let start = usize::try_from(offset).unwrap().min(content.len());
        let remaining = content.len() - start;
        let length = length.map_or(remaining, |n| remaining.min(usize::try_from(n).unwrap()));
        let (mut a, mut b) = (1_u32, 0_u32);
        for &byte in &content[start..start + length] {
            a = (a + u32::from(byte)) % 65_521;
            b = (b + a) % 65_521;
        }
        Ok(FileResponse::Checksum(format!("{b:04x}{a:04x}")))
    }
}

fn not_found() -> FileError {
    error(FileErrorKind::NotFound, 2, "No such file or directory")
}

fn error(kind: FileErrorKind, errno: i32, text: &str) -> FileError {
    FileError {
        kind,
        errno: Some(errno),
        text: text.to_owned(),
    }
}
