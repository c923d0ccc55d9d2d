//! The methods of the service. The first argument of each is the data server that is asked, as in the paper; a
//! second form takes a further argument.

/// A method, its forms and its meaning, as `system.methodSignature` and `system.methodHelp` tell them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    /// Its name on the wire.
    pub name: &'static str,
    /// Its forms: the type of the answer, then those of the arguments.
    pub signatures: &'static [&'static [&'static str]],
    /// One sentence of help.
    pub help: &'static str,
    /// Whether it changes something, so that it needs the token.
    pub writes: bool,
}

const fn read(
    name: &'static str,
    signatures: &'static [&'static [&'static str]],
    help: &'static str,
) -> Method {
    Method {
        name,
        signatures,
        help,
        writes: false,
    }
}

const fn write(
    name: &'static str,
    signatures: &'static [&'static [&'static str]],
    help: &'static str,
) -> Method {
    Method {
        writes: true,
        ..read(name, signatures, help)
    }
}

/// Best TCP buffer of the path to the caller, as in the paper.
pub const GET_BUFFER_SIZE: Method = read(
    "EnableGetBufferSize",
    &[&["int", "string"], &["int", "string", "string"]],
    "Best TCP buffer in bytes between the data server (first argument) and the caller, or the client named by the second argument.",
);
/// Results of all tests of the path, as in the paper.
pub const GET_NET_INFO: Method = read(
    "EnableGetNetInfo",
    &[&["struct", "string"], &["struct", "string", "string"]],
    "Results of all tests of the path between the data server and the caller, or the client named by the second argument.",
);
/// Number of streams.
pub const GET_STREAMS: Method = read(
    "EnableGetStreams",
    &[&["int", "string"], &["int", "string", "string"]],
    "Number of parallel streams to open between the data server and the caller, or the client named by the second argument.",
);
/// All advice.
pub const GET_ADVICE: Method = read(
    "EnableGetAdvice",
    &[&["struct", "string"], &["struct", "string", "struct"]],
    "Buffer, streams, congestion control, pace and expected rate, with confidence, age and reason. The struct may name the client, the direction (download or upload), bytes, files, and the client's own limits.",
);
/// Quality of service.
pub const GET_QOS: Method = read(
    "EnableGetQoS",
    &[
        &["struct", "string"],
        &["struct", "string", "string"],
        &["struct", "string", "struct"],
    ],
    "Service class (DSCP) for transfers to the caller, and whether a reservation would help. The struct may name the client, the purpose (background, bulk, interactive or streaming) and rate_bps, the rate that is wanted in bits per second.",
);
/// Monitored clients.
pub const LIST_HOSTS: Method = read(
    "EnableListHosts",
    &[&["array"], &["array", "string"]],
    "At most 500 clients that this server monitors: those of its settings, then those seen last.",
);
/// Monitor a client.
pub const ADD_HOST: Method = write(
    "EnableAddHost",
    &[&["boolean", "string"]],
    "Monitors the path to a client (address or name). Needs the token.",
);
/// Stop monitoring a client.
pub const REMOVE_HOST: Method = write(
    "EnableRemoveHost",
    &[&["boolean", "string"]],
    "Stops monitoring a client and forgets its measurements. Needs the token.",
);
/// Choose the tests of a client.
pub const SET_TESTS: Method = write(
    "EnableSetTests",
    &[&["boolean", "string", "struct"]],
    "Chooses the periodic tests of a client: test name to its interval (\"10min\"), true or false. Tests that are not named do not run; an empty struct leaves them to the settings. Needs the token.",
);
/// Run a test now.
pub const RUN_TEST: Method = write(
    "EnableRunTest",
    &[&["boolean", "string", "string"]],
    "Runs a test (second argument) of the path to a client (first argument) as soon as the budget allows. Needs the token.",
);
/// Report a transfer.
pub const REPORT: Method = write(
    "EnableReport",
    &[&["boolean", "struct"]],
    "Reports what a finished transfer measured of its path. The struct has values, quantity to number: rtt (seconds), loss and retransmits (0 to 1), bandwidth, reverse_bandwidth, goodput and reverse_goodput (bits per second), streams, hops; and may have client, test, at and detail. Needs the token.",
);
/// Names of all methods.
pub const LIST_METHODS: Method = read("system.listMethods", &[&["array"]], "Names of all methods.");
/// Help of a method.
pub const METHOD_HELP: Method = read(
    "system.methodHelp",
    &[&["string", "string"]],
    "One sentence about a method.",
);
/// Signatures of a method.
pub const METHOD_SIGNATURE: Method = read(
    "system.methodSignature",
    &[&["array", "string"]],
    "The forms of a method: type of the answer, then types of the arguments.",
);

/// Every method.
pub const ALL: [Method; 14] = [
    GET_BUFFER_SIZE,
    GET_NET_INFO,
    GET_STREAMS,
    GET_ADVICE,
    GET_QOS,
    LIST_HOSTS,
    ADD_HOST,
    REMOVE_HOST,
    SET_TESTS,
    RUN_TEST,
    REPORT,
    LIST_METHODS,
    METHOD_HELP,
    METHOD_SIGNATURE,
];

/// Codes of faults.
pub mod fault {
    /// No such method.
    pub const NO_METHOD: i32 = -32601;
    /// The call is not well-formed.
    pub const MALFORMED: i32 = -32700;
    /// Arguments of the wrong number or type.
    pub const ARGUMENTS: i32 = -32602;
    /// The service failed.
    pub const INTERNAL: i32 = -32603;
    /// Nothing is known of this path yet; a test has been scheduled.
    pub const UNKNOWN_PATH: i32 = 404;
    /// The token is missing or wrong.
    pub const FORBIDDEN: i32 = 403;
    /// Too many requests, or too many hosts.
    pub const BUSY: i32 = 503;
}
