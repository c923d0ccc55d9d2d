//! `longhaul advisor qos`: the service class of transfers.

use enable::advice::QosQuestion;
use proto::printable::printable;
use serde_json::json;

use super::asking::{AskingFailure, client_of};
use command_line::flags::advisor::AdvisorServerArgs;
use command_line::output::{print_json, print_line};

pub(crate) fn run(
    question: &QosQuestion,
    json: bool,
    server: &AdvisorServerArgs,
) -> Result<(), AskingFailure> {
    let advice = client_of(server)?.qos(question)?;
    if json {
        return Ok(print_json(&json!(advice))?);
    }
    let helps = match advice.reservation_helps {
        true => "would help",
        false => "would not help",
    };
    let lines = [
        format!("service class  {} (DSCP {})", advice.class, advice.dscp),
        format!("a reservation  {helps}"),
        format!("why            {}", advice.why),
    ];
    for line in lines {
        print_line(&printable(&line).to_string())?;
    }
    Ok(())
}
