//! `-v` and `-vv`: what the parts of the client note in the log, as messages of a copy.

use std::fmt::{Debug, Write};
use std::sync::Arc;

use ftp::session::DIALOGUE;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use super::console::Console;

/// Prints warnings of all parts, and, with `with_dialogue`, the commands and replies of control connections.
pub(crate) fn print_on(console: Arc<Console>, with_dialogue: bool) {
    let dialogue = match with_dialogue {
        true => LevelFilter::DEBUG,
        false => LevelFilter::OFF,
    };
    let filter = Targets::new()
        .with_default(LevelFilter::WARN)
        .with_target(DIALOGUE, dialogue);
    let layer = ConsoleLayer(console).with_filter(filter);
    // It fails only if a subscriber is set already, and each process calls this once.
    let _ = tracing_subscriber::registry().with(layer).try_init();
}

/// Prints each event as one message.
struct ConsoleLayer(Arc<Console>);

impl<S: Subscriber> Layer<S> for ConsoleLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut fields = EventFields::default();
        event.record(&mut fields);
        let line = match event.metadata().target() == DIALOGUE {
            true => format!("{} {} {}", fields.server, fields.direction, fields.line),
            false => format!("longhaul: {}{}", fields.message, fields.others),
        };
        self.0.print(&line);
    }
}

#[derive(Default)]
struct EventFields {
    server: String,
    direction: String,
    line: String,
    message: String,
    others: String,
}

impl Visit for EventFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        match field.name() {
            "server" => self.server = text,
            "direction" => self.direction = text,
            "line" => self.line = text,
            "message" => self.message = text,
            name => {
                let _ = write!(self.others, " {name}={text}");
            }
        }
    }
}
