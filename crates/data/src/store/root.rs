//! A directory tree that a session is confined to.
//!
//! Every path is resolved by the kernel below the root's descriptor (openat2 with
//! RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS): `..` and symbolic links cannot leave it.
