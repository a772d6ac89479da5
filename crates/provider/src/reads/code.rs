//! Empty answers of `eth_call` (R12): a contract that returns nothing, or no contract.

use alloy::primitives::{Address, B256, Bytes, U64, U160};
use backstay_core::{BlockRef, Error, ErrorKind, endpoint::EndpointId};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    endpoints::Shared,
    link::wire::{Call, Reply},
};

/// Below this are precompiles, whose code no chain shows, also those of rollups and side chains.
const PRECOMPILES: u64 = 0x1_0000;

impl Shared {
    /// Looks into an empty answer: the error, where there is no contract at that address and block.
    pub(crate) async fn examine_call(&self, call: &Call, id: EndpointId, reply: &Reply) -> Option<Error> {
        if reply.result() != Some("\"0x\"") {
            return None;
        }
        let (address, block) = called(call)?;
        let code = self.call("eth_getCode", &format!("[\"{address}\",{block}]"));
        if self.aside(id, &[&code]).await.first()?.result() != Some("\"0x\"") {
            return None;
        }
        let block = self.block_at(id, &block).await?;
        let endpoint = self.name(id);
        let message = format!(
            "{}: there is no contract at {address} in block {block}, by {endpoint}; check the address and the chain",
            call.method
        );
        Some(Error::new(ErrorKind::NoContractCode { address, block, endpoint }, message))
    }

    /// The block that a block parameter names at an endpoint.
    async fn block_at(&self, id: EndpointId, block: &str) -> Option<BlockRef> {
        #[derive(Deserialize)]
        struct Found {
            number: U64,
            hash: B256,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Named {
            block_hash: Option<B256>,
            block_number: Option<Box<RawValue>>,
        }
        let by_number = |number: &str| self.call("eth_getBlockByNumber", &format!("[{number},false]"));
        let by_hash = |hash: B256| self.call("eth_getBlockByHash", &format!("[\"{hash}\",false]"));
        let ask = match serde_json::from_str::<Named>(block) {
            Ok(Named { block_hash: Some(hash), .. }) => by_hash(hash),
            Ok(Named { block_number: Some(number), .. }) => by_number(number.get()),
            Ok(_) | Err(_) => match serde_json::from_str::<B256>(block) {
                Ok(hash) => by_hash(hash),
                // A block that is not mined has no hash.
                Err(_) if block == "\"pending\"" => by_number("\"latest\""),
                Err(_) => by_number(block),
            },
        };
        let replies = self.aside(id, &[&ask]).await;
        let found: Found = serde_json::from_str(replies.first()?.result()?).ok()?;
        Some(BlockRef { number: found.number.to(), hash: found.hash })
    }
}

/// The address that is called with a selector, and the block, as JSON; `None` where an empty answer is nothing to look
/// into.
fn called(call: &Call) -> Option<(Address, String)> {
    #[derive(Deserialize)]
    struct Request {
        to: Option<Address>,
        #[serde(alias = "input")]
        data: Option<Bytes>,
    }
    let params = call.param_list();
    // With overrides, the code is not the chain's.
    if params.len() > 2 {
        return None;
    }
    // `data` and `input` may stand side by side.
    let request = params.first()?.get();
    let parsed = serde_json::from_str::<Request>(request);
    let Request { to, data } = parsed.or_else(|_| serde_json::from_value(one_data(request)?)).ok()?;
    let address = to.filter(|to| U160::from_be_bytes(to.into_array()) >= U160::from(PRECOMPILES))?;
    let block = params.get(1).map_or("\"latest\"", |block| block.get());
    data.filter(|data| data.len() >= 4).map(|_| (address, block.to_owned()))
}

fn one_data(request: &str) -> serde_json::Result<serde_json::Value> {
    let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(request)?;
    if fields.contains_key("input") {
        fields.remove("data");
    }
    Ok(fields.into())
}

#[cfg(test)]
mod tests {
    use alloy::rpc::json_rpc::Id;

    use super::*;

    #[test]
    fn only_a_call_with_a_selector_to_what_may_be_a_contract_is_looked_into() {
        let to = "0x2222222222222222222222222222222222222222";
        let check = |params: String, expected: Option<&str>| {
            let call = Call::new(Id::Number(1), "eth_call", &params);
            assert_eq!(called(&call).map(|(_, block)| block).as_deref(), expected, "{params}");
        };
        check(format!(r#"[{{"to":"{to}","data":"0x01020304"}}]"#), Some("\"latest\""));
        check(format!(r#"[{{"to":"{to}","input":"0x01020304"}},"0x10"]"#), Some("\"0x10\""));
        check(format!(r#"[{{"to":"{to}","data":"0x","input":"0x01020304"}},"0x10"]"#), Some("\"0x10\""));
        check(format!(r#"[{{"to":"{to}","input":"0x010203"}}]"#), None);
        check(format!(r#"[{{"to":"{to}"}}]"#), None);
        check(r#"[{"data":"0x01020304"}]"#.into(), None);
        check(format!(r#"[{{"to":"{to}","data":"0x01020304"}},"latest",{{}}]"#), None);
        for precompile in ["01", "0100", "0801", "ffff"] {
            check(format!(r#"[{{"to":"0x{precompile:0>40}","data":"0x01020304"}}]"#), None);
        }
        check(format!(r#"[{{"to":"0x{:0>40}","data":"0x01020304"}}]"#, "010000"), Some("\"latest\""));
    }
}
