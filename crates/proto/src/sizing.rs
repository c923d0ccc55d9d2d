//! How socket buffers are sized while data moves: what `OPTS DRS` and `--buffer` name.

/// Who decides about a data connection's socket buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Sizing {
    /// longhaul watches the kernel's autotuning and takes over where that is too small.
    #[default]
    Auto,
    /// The kernel alone (or a size that was pinned).
    Kernel,
    /// The first drsFTP (Gardner, Feng and Fisk 2003, §4): sizes travel on the control channel.
    Drs1,
    /// The re-architected drsFTP (Engelhart, Gardner and Feng 2004, §3 and §4): a channel of its
    /// own between the two ends of the data channel.
    Drs,
}

impl Sizing {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Auto, Self::Kernel, Self::Drs1, Self::Drs];

    /// The name in `OPTS DRS`, in the FEAT line ` DRS auto;kernel;drs1;drs;` and in `--buffer`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Kernel => "kernel",
            Self::Drs1 => "drs1",
            Self::Drs => "drs",
        }
    }

    /// Reads a name, in any case.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|sizing| sizing.name().eq_ignore_ascii_case(text))
    }

    /// Whether connections must be opened with the largest buffer so that the window can grow to
    /// it later (RFC 7323 §2.2: the scale is fixed by the SYN), and then be set back.
    pub const fn starts_small(self) -> bool {
        matches!(self, Self::Drs1 | Self::Drs)
    }
}
