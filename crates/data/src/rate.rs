//! Rate limit: a token bucket shared by the streams of a transfer. Pure: time is an argument.
