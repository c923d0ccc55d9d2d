//! `help`, `man` and `completions`, generated from the definitions in `args`.

use std::io::Write;

use anyhow::{Result, anyhow};
use clap::CommandFactory;

use crate::args::Cli;
use crate::output::unless_reader_gone;

/// Prints the manual of one verb, or of all.
pub(crate) fn help(verb: &[String]) -> Result<()> {
    let mut command = Cli::command();
    command.build();
    if !verb.is_empty() {
        let text = find(&mut command, verb)?.render_long_help();
        return write(text.to_string().as_bytes());
    }
    let mut text = command.render_long_help().to_string();
    append_verbs(&mut command, &mut text);
    write(text.as_bytes())
}

/// Appends the manuals of a command's verbs, recursively.
fn append_verbs(command: &mut clap::Command, text: &mut String) {
    let rule = "-".repeat(72);
    let shown = |verb: &&mut clap::Command| !verb.is_hide_set() && verb.get_name() != "help";
    for verb in command.get_subcommands_mut().filter(shown) {
        text.push_str(&format!("\n\n{rule}\n\n{}", verb.render_long_help()));
        append_verbs(verb, text);
    }
}

/// Prints the man page of one verb, or of the program.
pub(crate) fn man(verb: &[String]) -> Result<()> {
    let mut command = Cli::command();
    command.build();
    let page = find(&mut command, verb)?.clone();
    let mut out = Vec::new();
    clap_mangen::Man::new(page).render(&mut out)?;
    write(&out)
}

/// Prints the completion script of a shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> Result<()> {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "longhaul", &mut out);
    write(&out)
}

/// Finds the command of a verb; several words name a verb of a verb (`lab net`).
fn find<'a>(command: &'a mut clap::Command, verb: &[String]) -> Result<&'a mut clap::Command> {
    verb.iter().try_fold(command, |command, word| {
        command
            .find_subcommand_mut(word)
            .ok_or_else(|| anyhow!("unknown verb '{word}'; `longhaul help` lists all verbs"))
    })
}

/// Writes to standard output. A reader that closes early (a pager) is not an error.
fn write(bytes: &[u8]) -> Result<()> {
    Ok(unless_reader_gone(
        std::io::stdout().lock().write_all(bytes),
    )?)
}

#[cfg(test)]
mod tests;
