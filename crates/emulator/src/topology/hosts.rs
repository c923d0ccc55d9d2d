//! Hosts: names, kernel settings and congestion control.

use toml::Value;

use super::error::TopologyError;
use super::file::TopologyFile;
use super::host_name::check_name;
use super::kernel_setting::{insert_or_replace, parse_congestion_control, parse_sysctl};
use super::network_options::ParsedNetworkOptions;
use super::{LabHost, MOST_HOSTS};

/// The hosts of a file; `a` and `b` if it has none.
pub(super) fn hosts(
    file: &TopologyFile,
    options: &ParsedNetworkOptions,
) -> Result<Vec<LabHost>, TopologyError> {
    let mut common = Vec::new();
    add_table(&mut common, "", &file.sysctl).map_err(|f| f.within("sysctl"))?;
    let mut congestion = None;
    if let Some(cc) = &file.cc {
        congestion = Some(parse_congestion_control(cc.get_ref()).map_err(|f| f.at(cc.span()))?);
    }
    let mut hosts = Vec::new();
    for (name, table) in &file.hosts.0 {
        check_name(name).map_err(|f| f.at(table.span()))?;
        let mut host = LabHost {
            name: name.clone(),
            sysctls: common.clone(),
            congestion_control: congestion.clone(),
        };
        let table = table.get_ref();
        add_table(&mut host.sysctls, "", &table.sysctl)
            .map_err(|f| f.within(&format!("host {name}: sysctl")))?;
        if let Some(cc) = &table.cc {
            host.congestion_control =
                Some(parse_congestion_control(cc.get_ref()).map_err(|f| f.at(cc.span()))?);
        }
        hosts.push(host);
    }
    if hosts.is_empty() {
        hosts.extend(["a", "b"].map(|name| LabHost {
            name: name.into(),
            sysctls: common.clone(),
            congestion_control: congestion.clone(),
        }));
    }
    // Command-line options apply last, because they override the file.
    for host in &mut hosts {
        for (key, value) in &options.sysctls {
            insert_or_replace(&mut host.sysctls, key.clone(), value.clone());
        }
        if options.congestion.is_some() {
            host.congestion_control.clone_from(&options.congestion);
        }
    }
    // Checked last: an invalid host name is the more useful error.
    check_number(hosts.len())?;
    Ok(hosts)
}

/// Adds the settings of a table. TOML parses an unquoted `net.ipv4.x = 1` as nested tables.
fn add_table(
    settings: &mut Vec<(String, String)>,
    above: &str,
    table: &toml::Table,
) -> Result<(), TopologyError> {
    for (name, value) in table {
        let key = format!("{above}{name}");
        let text = match value {
            Value::Table(below) => {
                add_table(settings, &format!("{key}."), below)?;
                continue;
            }
            Value::String(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            _ => {
                return Err(TopologyError::new(format!(
                    "{}: write the value as a number or as text in quotes",
                    key.escape_debug()
                )));
            }
        };
        let (key, text) = parse_sysctl(&key, &text)?;
        insert_or_replace(settings, key, text);
    }
    Ok(())
}

fn check_number(number: usize) -> Result<(), TopologyError> {
    match number {
        0..2 => Err(TopologyError::new(
            "one host has no path; define at least two hosts",
        )),
        2..=MOST_HOSTS => Ok(()),
        _ => Err(TopologyError::new(format!(
            "{number} hosts are too many; the maximum is {MOST_HOSTS}"
        ))),
    }
}
