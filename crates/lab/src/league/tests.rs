use super::*;

#[test]
fn the_same_request_gives_the_same_league() {
    let request = LeagueRequest {
        paths: 2,
        seed: 3,
        history: true,
    };
    let one = run(&request);
    assert_eq!(one, run(&request));
    assert_eq!(one.entries.len(), 2);
}
