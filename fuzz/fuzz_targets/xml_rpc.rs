//! XML-RPC, as the advice service and its clients read it: what was read is written and read back unchanged, and
//! advice of any server becomes flags that hold no others.

#![no_main]

use enable::advice::Advice;
use enable::emit::Program;
use enable::xmlrpc::{AnswerError, MAX_BODY, read_answer, read_call, write_answer, write_call};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    if let Ok(call) = read_call(body) {
        assert!(body.len() <= MAX_BODY);
        let written = write_call(&call).expect("a call that was read can be written");
        let again = read_call(written.as_bytes()).expect("what was written can be read");
        assert_eq!(again.method, call.method);
        assert_eq!(write_call(&again).expect("again"), written);
    }
    match read_answer(body) {
        Ok(value) => {
            let written = write_answer(&value).expect("a value that was read can be written");
            let again = read_answer(written.as_bytes()).expect("what was written can be read");
            assert_eq!(write_answer(&again).expect("again"), written);
            if let Ok(advice) = serde_json::from_value::<Advice>(value) {
                check_flags(&advice);
            }
        }
        Err(AnswerError::Fault { .. } | AnswerError::Body(_)) => {}
    }
});

/// Nothing in a flag ends a word, a line or a quotation of a shell.
fn check_flags(advice: &Advice) {
    for program in Program::ALL {
        for word in program.flags(advice) {
            // These two set several things in one word.
            let is_list = matches!(program, Program::Lftp | Program::Sysctl);
            let allowed = |b: u8| {
                b.is_ascii_alphanumeric() || b"-_.=".contains(&b) || is_list && b" ;:".contains(&b)
            };
            assert!(word.bytes().all(allowed), "{}: {word:?}", program.name());
        }
    }
}
