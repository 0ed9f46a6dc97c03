//! `milepost dev`: a server with nothing to set up, for the person in front of this machine.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use console::style;
use milepost_api::{Doorway, sockets};
use milepost_engine::Engine;
use milepost_engine::secrets::AllowedVariables;
use tokio::net::TcpListener;
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;

use crate::commands::token::new_token;
use crate::config::values::Listen;
use crate::config::{Layer, Layers, ServerConfig, environment, shown};
use crate::context::{Context, LimitFlags};
use crate::keyfile;
use crate::output::error::Refusal;
use crate::server::watch::{self, Deployer};
use crate::server::{Access, Reporter, Server, Signals, file, listen};

/// Where other commands look for a server.
const DATA: &str = "./.milepost";
/// Ctrl-C must not feel stuck.
const DRAIN_SECONDS: u64 = 3;

/// Start a server here, with nothing to set up.
///
/// An SQLite database in ./.milepost, all built-in skills (`shell` among them, and `http` to private addresses), and an
/// address that only this machine reaches, and on it only your own user (and root): others get 403. If the port is taken,
/// the next free one is used. Commands in the same folder find the server by themselves.
///
/// Ctrl-C ends it in good order; steps under way go on at the next start. A second Ctrl-C ends it at once. No configuration
/// file is read; `milepost serve` is for servers that are kept.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost dev
  milepost dev --watch flows
  milepost dev --listen 127.0.0.1:0 -o json")]
pub(crate) struct Dev {
    /// The address to listen on; port 0 is any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = Listen::DEFAULT)]
    listen: Listen,
    /// The folder for the database
    #[arg(long, value_name = "DIR", default_value = DATA)]
    data: PathBuf,
    /// Deploy the documents in this folder now and whenever they change; may be repeated, and may be a file
    #[arg(long, value_name = "DIR")]
    watch: Vec<PathBuf>,
    /// Let steps have this variable of the environment, or those that begin so (`APP_*`), besides a few harmless ones; may be
    /// repeated [env: MILEPOST_ENV_ALLOWED]
    #[arg(long, value_name = "NAME")]
    allow_env: Vec<AllowedVariables>,
    /// How other users of this machine are kept out [default: socket where the system can tell (Linux), else token]
    #[arg(long, value_name = "HOW")]
    auth: Option<Auth>,
    /// Say nothing of the runs that begin and end
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    limits: LimitFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Auth {
    /// By whose socket the other end of each connection is: your programs need nothing
    Socket,
    /// By a token that is made at each start, in server.json; a browser gets it by an address that works once
    Token,
}

impl Dev {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        context.refuse_callers_flags("dev")?;
        self.check()?;
        let access = self.access()?;
        let config = self.settings(&context)?;
        // So that secrets can be kept at once.
        keyfile::read_or_make(&config.secrets_key_file.value)?;
        let mut signals = Signals::new()?;
        let listener = listen::on_free_port(self.listen).await?;
        let (server, mut beside) = tokio::select! {
            opened = self.open(&config, listener, &access) => opened?,
            () = signals.next() => return Ok(ExitCode::SUCCESS),
        };
        self.announce(&server, &config, &context, &access);
        let on_drain = || {
            beside.abort_all();
            crate::say("\nstopping: steps under way go on at the next start; Ctrl-C again stops at once");
        };
        let ended = server.run(&mut signals, on_drain).await?;
        if ended == ExitCode::SUCCESS {
            crate::say("stopped");
        }
        Ok(ended)
    }

    /// All that can be refused is refused before anything is made.
    fn check(&self) -> Result<(), Refusal> {
        if self.listen.is_loopback() {
            return watch::check(&self.watch);
        }
        let message = format!(
            "`milepost dev` is for this machine alone, and {} can be reached from others; use `milepost serve`",
            self.listen
        );
        Err(Refusal::new("no_auth", message))
    }

    /// Whoever else is on this machine is kept out.
    fn access(&self) -> Result<Access, Refusal> {
        let tells = sockets::tell_their_owners();
        match self.auth {
            Some(Auth::Socket) if !tells => Err(Refusal::new(
                "no_socket_owners",
                "this system does not tell whose a connection is; use `--auth token`, or leave `--auth` out",
            )),
            Some(Auth::Socket) => Ok(Access::OwnUser),
            None if tells => Ok(Access::OwnUser),
            Some(Auth::Token) | None => Ok(Access::Token(Arc::new(Doorway::new(new_token())))),
        }
    }

    async fn open(
        &self,
        config: &ServerConfig,
        listener: TcpListener,
        access: &Access,
    ) -> anyhow::Result<(Server, JoinSet<()>)> {
        let server = Server::open(config, listener, access).await?;
        let mut beside = self.beside(&server.engine).await?;
        if let Access::Token(doorway) = access {
            beside.spawn(show_next_address(server.url.clone(), doorway.keys()));
        }
        Ok((server, beside))
    }

    /// What only one who develops wants: shell, private addresses, no file and no variables that were meant for servers.
    fn settings(&self, context: &Context) -> anyhow::Result<ServerConfig> {
        let flags = Layer {
            listen: Some(self.listen),
            db: context.db_flag().map(ToOwned::to_owned),
            data: Some(self.data.clone()),
            allow_shell: Some(true),
            allow_private_http: Some(true),
            env_allowed: self.allow_env.iter().cloned().reduce(AllowedVariables::and),
            drain_seconds: Some(DRAIN_SECONDS),
            limits: context.limit_flags(&self.limits),
            ..Layer::default()
        };
        let environment = environment::read_few(|name| std::env::var(name).ok())?;
        Ok(ServerConfig::new(&Layers { file: None, environment, flags })?.with_harmless_variables())
    }

    /// What goes on beside the server: documents are watched, runs are told.
    async fn beside(&self, engine: &Arc<Engine>) -> anyhow::Result<JoinSet<()>> {
        let mut tasks = JoinSet::new();
        if !self.watch.is_empty() {
            let mut deployer = Deployer::new(engine.clone(), self.watch.clone());
            deployer.start().await;
            tasks.spawn(deployer.run());
        }
        if !self.quiet && std::io::stderr().is_terminal() {
            tasks.spawn(Reporter::new(engine.clone()).await?.run());
        }
        Ok(tasks)
    }

    fn announce(&self, server: &Server, config: &ServerConfig, context: &Context, access: &Access) {
        let is_taken = self.listen.0.port() != 0 && !server.url.ends_with(&format!(":{}", self.listen.0.port()));
        crate::say(&banner(server, config, is_taken.then_some(self.listen), access));
        match context.is_json() {
            // One line, on a terminal, too.
            true => crate::print_json(&server.ready(config).to_string()),
            false => crate::print_line(&format!("listening on {}", server.url)),
        }
    }
}

/// After one browser has come in, another one needs another address.
async fn show_next_address(url: String, mut keys: Receiver<String>) {
    while keys.changed().await.is_ok() {
        let path = Doorway::path(&keys.borrow_and_update());
        crate::say(&format!("a browser has come in; another one gets in by {url}{path}"));
    }
}

fn banner(server: &Server, config: &ServerConfig, taken: Option<Listen>, access: &Access) -> String {
    let url = &server.url;
    let name = style("milepost dev").bold().for_stderr();
    let mut lines = vec![format!("{name} {}", env!("CARGO_PKG_VERSION"))];
    if let Some(taken) = taken {
        lines.push(format!("  port {} is taken; the next free one is used", taken.0.port()));
    }
    let page = match access {
        Access::Token(doorway) => Doorway::path(&doorway.keys().borrow()),
        _ => "/".to_owned(),
    };
    for (what, address) in [("API", "/api/v1"), ("docs", "/docs"), ("page", &page)] {
        lines.push(format!("  {what:<5} {}", style(format!("{url}{address}")).cyan().for_stderr()));
    }
    lines.push(format!("  data  {}", shown(&config.db.value)));
    lines.push(match access {
        Access::Token(_) => format!(
            "  for   whoever has the token in {}; the page's address lets one browser in",
            config.data.value.join(file::NAME).display()
        ),
        _ => "  for   your own user alone".to_owned(),
    });
    lines.push(String::new());
    lines.push("Try this in another terminal:".to_owned());
    lines.push(format!("  {}", next_command(server, config, access)));
    if let Some(set) = other_place() {
        lines.push(format!("\n{set} is set: this server does not use it, other commands do; pass them --server {url}"));
    }
    lines.join("\n")
}

/// Something that works as it stands: the example if it is here, else a call that brings its own document.
fn next_command(server: &Server, config: &ServerConfig, access: &Access) -> String {
    const EXAMPLE: &str = "examples/diamond.yaml";
    const HELLO: &str = r#"{"document": {"name": "hello", "steps": {"greet": {"skill": "shell", "input": {"command": "echo hello"}}}}}"#;
    let url = &server.url;
    if !Path::new(EXAMPLE).exists() {
        let token = match access {
            Access::Token(_) => {
                let file = config.data.value.join(file::NAME);
                format!(" -H \"authorization: Bearer $(jq -r .token {})\"", file.display())
            }
            _ => String::new(),
        };
        return format!("curl {url}/api/v1/runs{token} -H 'content-type: application/json' -d '{HELLO}'");
    }
    // Called as this program was called; in this folder the server is found by itself.
    let program = std::env::args().next().filter(|name| name.contains('/')).unwrap_or_else(|| "milepost".to_owned());
    let is_found = config.data.value == Path::new(DATA) && other_place().is_none();
    let flag = if is_found { String::new() } else { format!(" --server {url}") };
    format!("{program} run {EXAMPLE}{flag}")
}

/// A variable that sends other commands elsewhere.
fn other_place() -> Option<&'static str> {
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    ["MILEPOST_URL", "MILEPOST_DB"].into_iter().find(is_set)
}
