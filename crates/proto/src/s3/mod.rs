//! The object storage protocol of Amazon S3: documents, keys, parts of uploads, and the profiles that its users keep.

pub mod documents;
mod elements;
pub mod keys;
pub mod parts;
pub mod profiles;
