//! Reading the address of a database. It holds a password: whatever is wrong with it is said without quoting it.

use sqlx::postgres::PgConnectOptions;
use url::Url;

use super::{Place, PostgresConfig, Result};
use crate::JournalError;

/// The parameters of a URL that mean something. sqlx logs others with their values, and goes on.
const PARAMETERS: [&str; 12] = [
    "application_name",
    "dbname",
    "host",
    "hostaddr",
    "options",
    "password",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "user",
];

pub(super) fn read(url: &str, config: &PostgresConfig) -> Result<(PgConnectOptions, Place)> {
    let bad = |what: String| JournalError::BadAddress { what };
    config.validate().map_err(|error| bad(error.to_string()))?;
    let address: Url = url.parse().map_err(|error: url::ParseError| {
        bad(format!(
            "it cannot be read ({error}): write postgres://user:password@host:port/database, and letters of the \
             password that URLs use, such as `@`, `:`, `/`, `?` and `#`, as %40, %3A, %2F, %3F and %23"
        ))
    })?;
    if !matches!(address.scheme(), "postgres" | "postgresql") {
        return Err(bad("it is no address of PostgreSQL: it starts with `postgres://`".to_owned()));
    }
    if address.cannot_be_a_base() {
        return Err(bad(
            "`//` is missing behind `postgres:`: write postgres://user:password@host:port/database"
                .to_owned(),
        ));
    }
    if address.fragment().is_some() {
        return Err(bad("it has a `#`: write %23 where it belongs to the password".to_owned()));
    }
    for (place, (key, _)) in (1..).zip(address.query_pairs()) {
        if !PARAMETERS.contains(&&*key) {
            return Err(bad(format!(
                "parameter {place} after its `?` is not known: there are {}; where the `?` belongs to the \
                 password, write %3F",
                PARAMETERS.join(", ")
            )));
        }
    }
    // What sqlx says of a value quotes it.
    let options: PgConnectOptions = url.parse().map_err(|_| {
        bad(
            "a value after its `?` cannot be used: `sslmode` is one of disable, allow, prefer, require, verify-ca and \
             verify-full, `port` is a number, `hostaddr` an IP address"
                .to_owned(),
        )
    })?;
    let Some(database) = options.get_database().map(str::to_owned) else {
        return Err(bad("it names no database: add `/` and its name".to_owned()));
    };
    let server = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    let options = match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("backstay"),
    };
    Ok((options, Place::new(server, database, config)))
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn refused(url: &str) -> String {
        let error = read(url, &PostgresConfig::default()).expect_err("it cannot be used");
        assert!(matches!(error, JournalError::BadAddress { .. }), "{error:?}");
        let said = format!("{error} {error:?}");
        assert!(!said.contains("s3cret") && !said.contains("bertha"), "{said}");
        error.to_string()
    }

    #[track_caller]
    fn check(url: &str, expected: Expect) {
        expected.assert_eq(&refused(url));
    }

    #[test]
    fn a_bad_address_is_told_what_is_wrong_and_not_quoted() {
        check(
            "postgres://bertha:s3cret/x@db/app",
            expect![
                "the journal's address cannot be used: it cannot be read (invalid port number): write postgres://user:password@host:port/database, and letters of the password that URLs use, such as `@`, `:`, `/`, `?` and `#`, as %40, %3A, %2F, %3F and %23"
            ],
        );
        check(
            "s3cret",
            expect![
                "the journal's address cannot be used: it cannot be read (relative URL without a base): write postgres://user:password@host:port/database, and letters of the password that URLs use, such as `@`, `:`, `/`, `?` and `#`, as %40, %3A, %2F, %3F and %23"
            ],
        );
        check(
            "https://bertha:s3cret@db/app",
            expect![
                "the journal's address cannot be used: it is no address of PostgreSQL: it starts with `postgres://`"
            ],
        );
        check(
            "postgres://bertha:s3cret@db",
            expect!["the journal's address cannot be used: it names no database: add `/` and its name"],
        );
        check(
            "postgres://bertha:pass#s3cret@db/app",
            expect![
                "the journal's address cannot be used: it cannot be read (invalid port number): write postgres://user:password@host:port/database, and letters of the password that URLs use, such as `@`, `:`, `/`, `?` and `#`, as %40, %3A, %2F, %3F and %23"
            ],
        );
        check(
            "postgres://bertha@db/app?s3cret=1",
            expect![
                "the journal's address cannot be used: parameter 1 after its `?` is not known: there are application_name, dbname, host, hostaddr, options, password, port, sslcert, sslkey, sslmode, sslrootcert, user; where the `?` belongs to the password, write %3F"
            ],
        );
        check(
            "postgres://bertha@db/app?sslmode=s3cret",
            expect![
                "the journal's address cannot be used: a value after its `?` cannot be used: `sslmode` is one of disable, allow, prefer, require, verify-ca and verify-full, `port` is a number, `hostaddr` an IP address"
            ],
        );
    }

    #[test]
    fn a_place_is_named_without_user_and_password() {
        let (options, place) =
            read("postgresql://bertha:s3%40cret@db.example:6543/app", &PostgresConfig::default()).unwrap();
        assert_eq!(
            place.name(),
            "the journal in schema backstay of the PostgreSQL database app at db.example:6543"
        );
        assert_eq!((options.get_username(), options.get_host()), ("bertha", "db.example"));
    }
}
