//! What is wrong with a configuration, by its key.

use backstay_core::{
    Error, Result,
    limits::{Zero, durations},
    router::is_known,
};

use crate::config::ProviderConfig;

impl ProviderConfig {
    /// Checks the values, and against each other.
    ///
    /// # Errors
    ///
    /// A configuration error that names the key, and says what to do.
    pub fn validate(&self) -> Result<()> {
        let Self { pool, read, .. } = self;
        let breaker = &pool.breaker;
        let optional = [
            ("provider.head_poll", self.head_poll),
            ("provider.fence_patience", self.fence_patience),
            ("provider.pool.block_time", pool.block_time),
        ];
        let optional = optional.into_iter().filter_map(|(key, value)| Some((key, value?, Zero::Refused)));
        durations(optional.chain([
            ("provider.attempt_timeout", self.attempt_timeout, Zero::Refused),
            ("provider.operation_timeout", self.operation_timeout, Zero::Refused),
            ("provider.connect_timeout", self.connect_timeout, Zero::Refused),
            ("provider.identity_recheck", self.identity_recheck, Zero::Refused),
            ("provider.lookup_budget", self.lookup_budget, Zero::Refused),
            // A preferred endpoint is taken back at once.
            ("provider.pool.min_hold", pool.min_hold, Zero::Meant),
            ("provider.pool.disbelief", pool.disbelief, Zero::Refused),
            ("provider.pool.breaker.half_life", breaker.half_life, Zero::Refused),
            ("provider.pool.breaker.cooldown", breaker.cooldown, Zero::Refused),
            ("provider.pool.breaker.max_cooldown", breaker.max_cooldown, Zero::Refused),
            // Nothing is waited for.
            ("provider.read.frontier_grace", read.frontier_grace, Zero::Meant),
            ("provider.read.bloom_grace", read.bloom_grace, Zero::Meant),
            ("provider.read.frontier_retry_timeout", read.frontier_retry_timeout, Zero::Refused),
        ]))?;
        let wrong = |what: &str| Err(Error::config(what));
        if self.attempt_timeout > self.operation_timeout {
            return wrong(
                "`provider.attempt_timeout` is longer than `provider.operation_timeout`, so that one endpoint \
                 that hangs would use up the whole operation; make it shorter, a third or less",
            );
        }
        if self.max_reply == 0 {
            return wrong("`provider.max_reply` is zero, so that no reply would be read; it is in bytes");
        }
        if pool.max_lag == Some(0) {
            return wrong(
                "`provider.pool.max_lag` is zero, so that at each block whoever has it second would be stale; \
                 give it at least 1, or leave it out for 3 blocks and 15 s",
            );
        }
        if breaker.max_cooldown < breaker.cooldown {
            return wrong(
                "`provider.pool.breaker.max_cooldown` is below `provider.pool.breaker.cooldown`, from which it \
                 grows; make it longer",
            );
        }
        if breaker.faults == 0 {
            return wrong(
                "`provider.pool.breaker.faults` is zero, so that the breaker would never close; 5 is the default",
            );
        }
        if let Some(hedge) = read.hedge {
            durations([("provider.read.hedge.floor", hedge.floor, Zero::Meant)])?;
            if !(1..=99).contains(&hedge.percentile) {
                return wrong("`provider.read.hedge.percentile` is not between 1 and 99; 90 is the default");
            }
            if !(1..=100).contains(&hedge.budget) {
                return wrong(
                    "`provider.read.hedge.budget` is not between 1 and 100 percent; leave `provider.read.hedge` \
                     out to hedge nothing",
                );
            }
        }
        for method in self.shapes.keys() {
            let why = if method.is_empty() || method.contains(|c: char| c == '*' || c.is_whitespace()) {
                "is no method; a shape is that of one method, by its full name"
            } else if is_known(method) {
                "is a method that Backstay knows, so that the shape would change nothing; leave it out"
            } else {
                continue;
            };
            return Err(Error::config(format!("`provider.shapes`: `{method}` {why}")));
        }
        self.classifier().map(drop)
    }
}
