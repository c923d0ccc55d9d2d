//! `longhaul serve` as a service: the sockets and the messages of the service manager.

use std::sync::Arc;

use anyhow::{Context, Result};
use server::config::ServerConfig;
use server::{PassedListeners, ServiceManager};

use crate::args::ServeArgs;

/// The sockets and the manager of this process; empty if it was started by hand.
#[derive(Debug)]
pub(crate) struct Service {
    listeners: PassedListeners,
    manager: Option<Arc<ServiceManager>>,
}

impl Service {
    /// Takes the sockets that were passed. Call it once, before anything else is started.
    ///
    /// # Errors
    /// A socket cannot be used, or the manager cannot be reached.
    pub(crate) fn from_environment() -> Result<Self> {
        Ok(Self {
            listeners: PassedListeners::from_environment()?,
            manager: ServiceManager::from_environment()
                .context("cannot reach the service manager (NOTIFY_SOCKET)")?
                .map(Arc::new),
        })
    }

    /// The settings of the flags and the file, with these sockets.
    ///
    /// # Errors
    /// One line: the settings cannot be used.
    pub(crate) fn settings(&self, args: &ServeArgs) -> Result<ServerConfig, String> {
        let mut config = args.config()?;
        let passed = config.use_passed(&self.listeners);
        passed.map_err(|error| error.to_string())?;
        config.service_manager.clone_from(&self.manager);
        Ok(config)
    }

    /// As [`Service::settings`], for a server that runs. The manager learns of the reload; the server tells it when
    /// the settings are in force.
    ///
    /// # Errors
    /// One line: the settings cannot be used; the manager knows that the server goes on.
    pub(crate) fn reload(&self, args: &ServeArgs) -> Result<ServerConfig, String> {
        let manager = self.manager.as_deref();
        manager.into_iter().for_each(ServiceManager::reloading);
        let settings = self.settings(args);
        if settings.is_err() {
            manager.into_iter().for_each(ServiceManager::ready);
        }
        settings
    }
}
