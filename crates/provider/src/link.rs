//! One endpoint as it is spoken to: where its requests go, and what is measured of it.

use std::sync::atomic::AtomicBool;

use backstay_core::Result;

use crate::{
    config::EndpointConfig,
    http::{Connector, Target},
    meter::EndpointMeter,
    notice::Seldom,
};

/// The way to one endpoint.
pub(crate) struct Link {
    pub(crate) target: Target,
    pub(crate) meter: EndpointMeter,
    /// Whether it was in use when it was last looked at.
    pub(crate) in_use: AtomicBool,
    /// When its rests were last told of.
    pub(crate) rests_told: Seldom,
    /// When its coming and going was last told of.
    pub(crate) use_told: Seldom,
}

impl Link {
    pub(crate) fn new(connector: &Connector, chain_id: u64, config: &EndpointConfig) -> Result<Self> {
        Ok(Self {
            target: Target::new(connector.clone(), config)?,
            meter: EndpointMeter::new(chain_id, config.name.as_str()),
            // It is told of when it falls out of use, not when it comes into it at connect.
            in_use: AtomicBool::new(true),
            rests_told: Seldom::default(),
            use_told: Seldom::default(),
        })
    }
}
