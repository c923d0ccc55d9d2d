//! Data connections under TLS: what arrives, who may take part, and which end is no end.

mod cuts;
mod ends;
mod proxies;
mod round_trip;
mod strangers;
