//! Facts of MLST and MLSD (RFC 3659 §7.5, §7.8, §7.9).

/// Set of facts that a session shows. The default is the facts marked `*` in the FEAT line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FactSet(u16);

/// A fact of MLST, in output order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// `Type`
    Type,
    /// `Modify`
    Modify,
    /// `Charset`
    Charset,
    /// `Size`
    Size,
    /// `Perm`
    Perm,
    /// `UNIX.mode`
    UnixMode,
    /// `UNIX.owner`
    UnixOwner,
    /// `UNIX.group`
    UnixGroup,
    /// `UNIX.slink`
    UnixSlink,
    /// `Unique`
    Unique,
    /// `UNIX.uid`
    UnixUid,
    /// `UNIX.gid`
    UnixGid,
    /// `X.count`
    XCount,
}

impl Fact {
    /// All facts in output order.
    pub const ALL: [Self; 13] = [
        Self::Type,
        Self::Modify,
        Self::Charset,
        Self::Size,
        Self::Perm,
        Self::UnixMode,
        Self::UnixOwner,
        Self::UnixGroup,
        Self::UnixSlink,
        Self::Unique,
        Self::UnixUid,
        Self::UnixGid,
        Self::XCount,
    ];

    /// The name on the wire. Names are compared without regard to case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Type => "Type",
            Self::Modify => "Modify",
            Self::Charset => "Charset",
            Self::Size => "Size",
            Self::Perm => "Perm",
            Self::UnixMode => "UNIX.mode",
            Self::UnixOwner => "UNIX.owner",
            Self::UnixGroup => "UNIX.group",
            Self::UnixSlink => "UNIX.slink",
            Self::Unique => "Unique",
            Self::UnixUid => "UNIX.uid",
            Self::UnixGid => "UNIX.gid",
            Self::XCount => "X.count",
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u16
    }
}

impl Default for FactSet {
    fn default() -> Self {
        let all_facts = Self(Fact::ALL.iter().fold(0, |set, fact| set | fact.bit()));
        Self(all_facts.0 & !Fact::Charset.bit() & !Fact::XCount.bit())
    }
}

impl FactSet {
    /// Parses the argument of `OPTS MLST a;b;c;`. Unknown names are ignored.
    pub fn parse(text: &str) -> Self {
        let named = text.split(';').map(str::trim).filter_map(|name| {
            Fact::ALL
                .into_iter()
                .find(|fact| fact.name().eq_ignore_ascii_case(name))
        });
        Self(named.fold(0, |set, fact| set | fact.bit()))
    }

    /// Whether the fact is in the set.
    pub fn contains(self, fact: Fact) -> bool {
        self.0 & fact.bit() != 0
    }

    /// The FEAT line `MLST Type*;...`: all facts, with `*` for those of this set (RFC 3659 §7.8).
    pub fn feature_line(self) -> String {
        let facts: String = Fact::ALL
            .into_iter()
            .map(|fact| {
                format!(
                    "{}{};",
                    fact.name(),
                    if self.contains(fact) { "*" } else { "" }
                )
            })
            .collect();
        format!("MLST {facts}")
    }

    /// The facts of this set as `Type;Size;`, for the reply to OPTS MLST.
    pub fn selected(self) -> String {
        Fact::ALL
            .into_iter()
            .filter(|fact| self.contains(*fact))
            .map(|fact| format!("{};", fact.name()))
            .collect()
    }
}
