//! Runs one test of the path to a client and prints its result as JSON.
//!
//! ```sh
//! cargo run -p advisor --example path_test -- ping 192.0.2.7
//! cargo run -p advisor --example path_test -- route 192.0.2.7 --bandwidth 1000000000
//! cargo run -p advisor --example path_test -- ping 192.0.2.7 --port 443
//! ```

#![allow(clippy::print_stdout, reason = "the result goes to standard output")]

use std::error::Error;
use std::net::IpAddr;

use advisor::path_test::{Load, StartDecision, Target, all_tests};
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut words = std::env::args().skip(1);
    let (Some(name), Some(client)) = (words.next(), words.next()) else {
        return Err("usage: path_test TEST ADDRESS [--bandwidth BIT/S] [--port PORT]...".into());
    };
    let client: IpAddr = client.parse()?;
    let mut target = Target::new(client);
    while let (Some(option), Some(value)) = (words.next(), words.next()) {
        match option.as_str() {
            "--bandwidth" => target.bandwidth_bps = Some(value.parse()?),
            "--port" => target.tcp_ports.push(value.parse()?),
            _ => return Err(format!("{option}: no such option").into()),
        }
    }
    let tests = all_tests(Vec::new());
    let test = tests.into_iter().find(|test| test.name() == name);
    let mut test = test.ok_or_else(|| format!("{name}: no such test"))?;
    test.init().await?;
    if let StartDecision::Wait(reason) = test.can_run(&target, &Load::default()) {
        return Err(reason.into());
    }
    let most_bytes = test.most_bytes(&target);
    let found = test.run(&target).await?;
    let mut result = json!({
        "test": found.test,
        "client": found.client,
        "detail": found.detail,
        "cost_bytes": found.cost_bytes,
        "most_bytes": most_bytes,
    });
    for (quantity, value) in found.values {
        result[quantity.name()] = value.into();
    }
    println!("{result}");
    Ok(())
}
