//! How a record is written: in JSON, in an envelope that says how to read it.
//!
//! ```json
//! {"v":1,"record":{"released":{"nonce":7}}}
//! ```
//!
//! What is left of an intent that was pruned is written in the same envelope. What an older version could not read, or would
//! misread, is written with a higher `v`.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::RawValue;

/// The newest envelope that this version reads, and the one that it writes.
pub(crate) const VERSION: i64 = 1;

#[derive(Serialize)]
struct Sealed<'a, T> {
    v: i64,
    record: &'a T,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    v: i64,
    #[serde(borrow)]
    record: &'a RawValue,
}

/// Why a stored record cannot be read.
#[derive(Debug)]
pub(crate) enum Unreadable {
    /// Its envelope is of a version that is not known here.
    Newer(i64),
    /// It is not what was written.
    Damaged(serde_json::Error),
}

/// The record in its envelope.
pub(crate) fn seal<T: Serialize>(record: &T) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Sealed { v: VERSION, record })
}

/// The record out of its envelope.
pub(crate) fn unseal<T: DeserializeOwned>(body: &str) -> Result<T, Unreadable> {
    let envelope: Envelope<'_> = serde_json::from_str(body).map_err(Unreadable::Damaged)?;
    if envelope.v != VERSION {
        return Err(Unreadable::Newer(envelope.v));
    }
    serde_json::from_str(envelope.record.get()).map_err(Unreadable::Damaged)
}

#[cfg(test)]
mod tests {
    use backstay_core::tx::Record;
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_record_is_written_with_its_version() {
        let body = seal(&Record::Released { nonce: 7 }).unwrap();
        expect![[r#"{"v":1,"record":{"released":{"nonce":7}}}"#]].assert_eq(&body);
        assert_eq!(unseal::<Record>(&body).unwrap(), Record::Released { nonce: 7 });
    }

    #[test]
    fn an_envelope_of_another_version_is_not_opened() {
        let read = unseal::<Record>(r#"{"v":2,"record":{"teleported":true},"more":[]}"#);
        assert!(matches!(read, Err(Unreadable::Newer(2))), "{read:?}");
    }

    #[test]
    fn what_is_no_envelope_is_damaged() {
        for body in ["", "{}", r#"{"v":1}"#, r#"{"v":1,"record":{"released":{}}}"#] {
            let read = unseal::<Record>(body);
            assert!(matches!(read, Err(Unreadable::Damaged(_))), "{body}: {read:?}");
        }
    }
}
