//! Frames between the server and the process that holds its key, and packets to the one that asks PAM.

#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use longhaul_fuzz::pki::PKI;
use security::test_pki::{write_certificates, write_key};
use server::fuzzing::{FuzzedKeyHolder, answer_again, first_frame, question_again, request_again};

/// Longest frame, bytes.
const MAX_FRAME: usize = 64 * 1024;

thread_local! {
    static HOLDER: RefCell<(FuzzedKeyHolder, tempfile::TempDir)> = RefCell::new({
        let folder = tempfile::tempdir().expect("a folder");
        let (chain, key) = (folder.path().join("cert"), folder.path().join("key"));
        write_certificates(&chain, &PKI.host);
        write_key(&key, &PKI.host);
        let mut holder = FuzzedKeyHolder::new(&chain, &key);
        // Key 0, for requests to sign.
        holder.answer(&[0]);
        (holder, folder)
    });
}

fuzz_target!(|input: &[u8]| {
    if let Ok(Some((number, message))) = first_frame(input) {
        assert!(message.len() + 4 <= MAX_FRAME && message.len() + 8 <= input.len());
        assert_eq!(number.to_be_bytes(), input[4..8]);
        assert_eq!(message, input[8..8 + message.len()]);
    }
    if let Some(again) = request_again(input) {
        assert_eq!(again, input, "a request is encoded as it was decoded");
    }
    if let Some(again) = answer_again(input) {
        assert_eq!(answer_again(&again).as_deref(), Some(&again[..]));
    }
    if let Some(again) = question_again(input) {
        // An address has several spellings.
        assert_eq!(question_again(&again).as_deref(), Some(&again[..]));
    }
    let answer = HOLDER.with_borrow_mut(|(holder, _)| holder.answer(input));
    assert!(answer.len() <= MAX_FRAME);
    assert!(answer_again(&answer).is_some(), "every answer can be read");
});
