//! Files that a batch writes about what it has copied: checksums, and a receipt.

use std::sync::Arc;

use ftp::Failure;
use ftp::location::Location;

use super::receipt::BatchReceipt;
use super::sums::BatchSums;
use crate::batch::BatchContext;
use crate::options::CopyOptions;
use crate::plan::{CopyPlan, PlannedFile};

/// The files that were asked for.
#[derive(Debug, Default)]
pub(crate) struct BatchRecords {
    pub(crate) sums: Option<BatchSums>,
    receipt: Option<BatchReceipt>,
}

impl BatchRecords {
    /// The files that the options of a copy to `top` ask for.
    ///
    /// # Errors
    /// `Local`; `Usage` for a destination without names.
    pub(crate) fn create(options: &CopyOptions, top: &Location) -> Result<Arc<Self>, Failure> {
        Ok(Arc::new(Self {
            sums: BatchSums::create(options, top)?,
            receipt: BatchReceipt::create(options, top)?,
        }))
    }

    /// Adds a file that is complete, and verified as `verified` says.
    ///
    /// # Errors
    /// No end of the copy can tell its checksum; `Local`.
    pub(crate) async fn add(
        &self,
        ctx: &BatchContext,
        file: &PlannedFile,
        verified: &str,
    ) -> Result<(), Failure> {
        if let Some(sums) = &self.sums {
            sums.add(ctx, file).await?;
        }
        match &self.receipt {
            Some(receipt) => receipt.add(ctx, file, verified).await,
            None => Ok(()),
        }
    }

    /// Takes note of a file that was left alone.
    pub(crate) fn kept(&self, entry: u32) {
        if let Some(receipt) = &self.receipt {
            receipt.note(entry);
        }
    }

    /// After a batch: adds the files that earlier runs of the command have copied.
    ///
    /// # Errors
    /// As [`BatchRecords::add`].
    pub(crate) async fn add_earlier(
        &self,
        ctx: &BatchContext,
        plan: &CopyPlan,
    ) -> Result<(), Failure> {
        match &self.receipt {
            Some(receipt) => receipt.add_earlier(ctx, plan).await,
            None => Ok(()),
        }
    }

    /// Gives the files their names. `failed`: files that were not copied.
    ///
    /// # Errors
    /// `Local`.
    pub(crate) fn finish(&self, options: &CopyOptions, failed: u64) -> Result<(), Failure> {
        if let Some(sums) = &self.sums {
            sums.finish(options.file.sync_policy)?;
        }
        match &self.receipt {
            Some(receipt) => receipt.finish(options, failed),
            None => Ok(()),
        }
    }
}
