//! `milepost token`: a new API token, and the hash by which a server knows it.

use std::process::ExitCode;

use clap::Args;
use milepost_api::{KnownToken, TokenHash};
use milepost_core::hash::Digest;
use serde_json::json;
use uuid::Uuid;

use crate::context::Context;
use crate::output::print_json;

/// Make a token for callers of a server, and its hash for the server's configuration.
///
/// The token is kept nowhere: give it to whoever calls the server. The server needs its hash only, in `auth.tokens` of
/// its configuration or in MILEPOST_TOKEN_HASHES. With a name, whoever comes with the token is known by that name in the
/// history of tags, whatever they say of themselves.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost token
  milepost token --name ci
  milepost token -o json")]
pub(crate) struct Token {
    /// Who is to have it
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
}

fn name(text: &str) -> Result<String, String> {
    KnownToken::check_name(text).map(ToOwned::to_owned)
}

impl Token {
    pub(crate) fn run(self, context: &Context) -> anyhow::Result<ExitCode> {
        let token = new_token();
        let hash = KnownToken { name: self.name, hash: TokenHash::of(&token) };
        if context.is_json() {
            print_json(&json!({ "token": token, "hash": hash.to_string() }))?;
            return Ok(ExitCode::SUCCESS);
        }
        crate::print_line(&format!("token: {token}"));
        crate::print_line(&format!("hash:  {hash}"));
        crate::say(&format!(
            "\nCallers need the token: --token or MILEPOST_TOKEN, over HTTP `Authorization: Bearer …`. It is kept nowhere.\n\
             The server needs the hash: MILEPOST_TOKEN_HASHES, or in milepost.toml\n\n[auth]\ntokens = [\"{hash}\"]"
        ));
        Ok(ExitCode::SUCCESS)
    }
}

/// 256 bits that nobody can guess: three random UUIDs hold 366 of the system's generator, hashed down to what is needed.
pub(super) fn new_token() -> String {
    let random = [Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4()];
    format!("mp_{}", Digest::of_parts(random.iter().map(|random| random.as_bytes().as_slice())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_is_like_another() {
        let (one, two) = (new_token(), new_token());
        assert_eq!((one.len(), one.get(..3)), (67, Some("mp_")));
        assert_ne!(one, two);
    }
}
