//! Where a verb goes: to a server, or to a database that this process opens itself.
//!
//! In this order: what a flag names, what the environment names, the server that has `.milepost` open, the database in
//! there, the address where `milepost dev` listens.

use std::path::Path;
use std::time::Duration;

use crate::database::{self, Database};
use crate::output::error::Refusal;
use crate::server::file::{self, Content};

/// Where `milepost dev` listens unless it is told otherwise.
pub(crate) const DEFAULT_SERVER: &str = "http://127.0.0.1:7400";
/// Where a server writes a note that it has this folder's database open.
const DATA: &str = ".milepost";
/// A server on this machine answers at once; one that was killed left its file behind.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Server(Server),
    Database(Database),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    pub(crate) source: Source,
}

/// How a server came to be the one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// By a flag or the environment.
    Named,
    /// By the file that it wrote here.
    Found,
    /// There was nothing else.
    Default,
}

/// What the verb does where nothing is named and nothing is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Otherwise {
    /// It makes a database here.
    Embedded,
    /// It asks the server at the default address.
    Server,
}

/// What the flags and the environment say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) server_flag: Option<String>,
    pub(crate) server_env: Option<String>,
    pub(crate) db_flag: Option<String>,
    pub(crate) db_env: Option<String>,
    pub(crate) token: Option<String>,
}

/// A variable of the environment; an empty one says nothing.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

impl Wanted {
    /// What the environment says, to be filled up with flags.
    pub(crate) fn from_env() -> Wanted {
        Wanted {
            server_env: variable("MILEPOST_URL"),
            db_env: variable("MILEPOST_DB"),
            token: variable("MILEPOST_TOKEN"),
            ..Wanted::default()
        }
    }

    /// The database that is named, if one is.
    pub(crate) fn database(&self) -> Option<Database> {
        self.db_flag.as_deref().or(self.db_env.as_deref()).map(Database::parse)
    }

    /// What is named: a flag goes before the environment, a server before a database.
    fn named(&self) -> anyhow::Result<Option<Target>> {
        match self {
            Wanted { server_flag: Some(_), db_flag: Some(_), .. } => Err(Refusal::new(
                "server_and_db",
                "--server and --db name two places; leave one of them out: a server has its own database",
            )
            .into()),
            Wanted { server_flag: Some(url), .. } => Ok(Some(self.server(url, Source::Named))),
            Wanted { db_flag: Some(db), .. } => Ok(Some(Target::Database(Database::parse(db)))),
            Wanted { server_env: Some(url), .. } => Ok(Some(self.server(url, Source::Named))),
            Wanted { db_env: Some(db), .. } => Ok(Some(Target::Database(Database::parse(db)))),
            _ => Ok(None),
        }
    }

    fn server(&self, url: &str, source: Source) -> Target {
        Target::Server(Server { url: url.to_owned(), token: self.token.clone(), source })
    }

    /// The token that somebody gave is for a server that somebody named: a folder's note has its own, or none.
    fn found(Content { url, token, .. }: Content) -> Target {
        Target::Server(Server { url, token, source: Source::Found })
    }

    /// Where the verb goes.
    pub(crate) async fn target(&self, otherwise: Otherwise) -> anyhow::Result<Target> {
        self.target_in(Path::new(""), otherwise, async |url| answers(&url).await).await
    }

    async fn target_in(
        &self,
        folder: &Path,
        otherwise: Otherwise,
        answers: impl AsyncFn(String) -> bool,
    ) -> anyhow::Result<Target> {
        if let Some(named) = self.named()? {
            return Ok(named);
        }
        if let Some(note) = note_in(folder)
            && answers(note.url.clone()).await
        {
            return Ok(Wanted::found(note));
        }
        let here = folder.join(database::DEFAULT).exists();
        if here || otherwise == Otherwise::Embedded {
            return Ok(Target::Database(Database::parse(database::DEFAULT)));
        }
        self.default_server()
    }

    /// The server at the default address. Nobody named it, so it has to be the caller's own: whoever else listens there
    /// would be handed tokens and secrets.
    fn default_server(&self) -> anyhow::Result<Target> {
        let address = DEFAULT_SERVER.trim_start_matches("http://").parse().expect("the default address is one");
        let own = file::check_listener(address).map_err(|why| {
            let detail = format!("{why}; if you trust that server, name it: --server {DEFAULT_SERVER}");
            Refusal::new("server_of_another_user", detail)
        })?;
        let token = self.token.clone().filter(|_| own);
        Ok(Target::Server(Server { url: DEFAULT_SERVER.to_owned(), token, source: Source::Default }))
    }
}

impl Target {
    /// The flag that names it, for a command that is shown to somebody; nothing where none is needed.
    pub(crate) fn as_flag(&self) -> String {
        match self {
            Target::Database(database) => database.as_flag(),
            Target::Server(Server { url, source: Source::Named, .. }) => format!(" --server {url}"),
            Target::Server(_) => String::new(),
        }
    }
}

/// What a server that has this folder's database open wrote there.
fn note_in(folder: &Path) -> Option<Content> {
    let folder = folder.join(DATA);
    file::read(&folder).unwrap_or_else(|why| {
        let file = folder.join(file::NAME);
        tracing::warn!("{} is passed over: {why}; a server that you trust can be named with --server", file.display());
        None
    })
}

async fn answers(url: &str) -> bool {
    let Ok(http) = reqwest::Client::builder().no_proxy().timeout(PROBE_TIMEOUT).build() else { return false };
    let answer = http.get(format!("{}/healthz", url.trim_end_matches('/'))).send().await;
    answer.is_ok_and(|answer| answer.status().is_success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(server_flag: &str, server_env: &str, db_flag: &str, db_env: &str) -> Wanted {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Wanted {
            server_flag: given(server_flag),
            server_env: given(server_env),
            db_flag: given(db_flag),
            db_env: given(db_env),
            token: None,
        }
    }

    fn shown(target: anyhow::Result<Target>) -> String {
        match target {
            Ok(Target::Server(server)) => format!("{:?} {}", server.source, server.url),
            Ok(Target::Database(database)) => database.to_string(),
            Err(error) => error.to_string(),
        }
    }

    async fn goes(wanted: &Wanted, folder: &Path, otherwise: Otherwise, alive: bool) -> String {
        shown(wanted.target_in(folder, otherwise, async |_| alive).await)
    }

    #[tokio::test]
    async fn a_flag_goes_before_the_environment_and_a_server_before_a_database() {
        let empty = tempfile::tempdir().unwrap();
        for (wanted, target) in [
            (wanted("http://a", "http://b", "", "d.db"), "Named http://a"),
            (wanted("", "http://b", "", "d.db"), "Named http://b"),
            (wanted("", "http://b", "c.db", ""), "c.db"),
            (wanted("", "", "", "d.db"), "d.db"),
        ] {
            assert_eq!(goes(&wanted, empty.path(), Otherwise::Server, false).await, target);
        }
        let both = goes(&wanted("http://a", "", "c.db", ""), empty.path(), Otherwise::Server, true).await;
        assert!(both.starts_with("--server and --db name two places; "), "{both}");
    }

    #[tokio::test]
    async fn the_server_of_this_folder_goes_before_its_database_if_it_answers() {
        let folder = tempfile::tempdir().unwrap();
        let nothing = Wanted::default();
        assert_eq!(goes(&nothing, folder.path(), Otherwise::Server, true).await, "Default http://127.0.0.1:7400");
        assert_eq!(goes(&nothing, folder.path(), Otherwise::Embedded, true).await, ".milepost/milepost.db");
        std::fs::create_dir(folder.path().join(DATA)).unwrap();
        let note = folder.path().join(DATA).join(file::NAME);
        std::fs::write(note, r#"{"url": "http://127.0.0.1:7401", "pid": 1}"#).unwrap();
        assert_eq!(goes(&nothing, folder.path(), Otherwise::Embedded, true).await, "Found http://127.0.0.1:7401");
        assert_eq!(goes(&nothing, folder.path(), Otherwise::Server, false).await, "Default http://127.0.0.1:7400");
        std::fs::write(folder.path().join(database::DEFAULT), "").unwrap();
        assert_eq!(goes(&nothing, folder.path(), Otherwise::Server, false).await, ".milepost/milepost.db");
        assert_eq!(goes(&nothing, folder.path(), Otherwise::Server, true).await, "Found http://127.0.0.1:7401");
    }

    #[tokio::test]
    async fn a_server_that_was_found_gets_the_token_of_its_note_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(DATA)).unwrap();
        let wanted = Wanted { token: Some("mp_production".to_owned()), ..Wanted::default() };
        for (token, sent) in [("", None), (r#", "token": "mp_note""#, Some("mp_note"))] {
            let note = format!(r#"{{"url": "http://127.0.0.1:1"{token}}}"#);
            std::fs::write(folder.path().join(DATA).join(file::NAME), note).unwrap();
            let target = wanted.target_in(folder.path(), Otherwise::Server, async |_| true).await.unwrap();
            let Target::Server(server) = target else { panic!("{target:?}") };
            assert_eq!((server.source, server.token.as_deref()), (Source::Found, sent));
        }
        let named = Wanted { server_env: Some("http://a".to_owned()), ..wanted };
        let target = named.target_in(folder.path(), Otherwise::Server, async |_| true).await.unwrap();
        let Target::Server(server) = target else { panic!("{target:?}") };
        assert_eq!(server.token.as_deref(), Some("mp_production"));
    }

    #[tokio::test]
    async fn a_note_that_is_not_believed_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join(DATA)).unwrap();
        std::fs::write(folder.path().join(DATA).join(file::NAME), r#"{"url": "http://evil.example:1"}"#).unwrap();
        let found = goes(&Wanted::default(), folder.path(), Otherwise::Server, true).await;
        assert_eq!(found, "Default http://127.0.0.1:7400");
    }
}
