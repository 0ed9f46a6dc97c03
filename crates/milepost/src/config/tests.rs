use milepost_api::TokenHash;

use super::*;

fn layers(file: Layer, environment: Layer, flags: Layer) -> Layers {
    Layers { file: Some(("milepost.toml".into(), file)), environment, flags }
}

fn listening(listen: &str) -> Layer {
    Layer { listen: Some(listen.parse().unwrap()), ..Layer::default() }
}

#[test]
fn nothing_needs_to_be_said() {
    let config = ServerConfig::new(&Layers::default()).unwrap();
    assert_eq!(config.listen.value.to_string(), "127.0.0.1:7400");
    assert_eq!(config.db.value, Database::Sqlite("./.milepost/milepost.db".into()));
    assert_eq!(config.retention.value.to_string(), "90d");
    assert!(!config.allow_shell.value && config.is_open());
    config.check_auth().unwrap();
}

#[test]
fn each_later_place_wins_setting_by_setting() {
    let file = Layer { allow_shell: Some(true), drain_seconds: Some(3), ..listening("127.0.0.1:1") };
    let environment = Layer { drain_seconds: Some(4), ..listening("127.0.0.1:2") };
    let config = ServerConfig::new(&layers(file, environment, listening("127.0.0.1:3"))).unwrap();
    assert_eq!((config.listen.value.0.port(), config.listen.from), (3, Source::Flag("--listen")));
    assert_eq!(
        (config.drain_seconds.value, config.drain_seconds.from),
        (4, Source::Variable("MILEPOST_DRAIN_SECONDS"))
    );
    assert_eq!((config.allow_shell.value, config.allow_shell.from), (true, Source::File("milepost.toml".into())));
    assert_eq!(config.retention.from, Source::Default);
}

#[test]
fn the_database_goes_with_the_folder_unless_it_is_named() {
    let flags = Layer { data: Some("/var/lib/milepost".into()), ..Layer::default() };
    let config = ServerConfig::new(&layers(Layer::default(), Layer::default(), flags.clone())).unwrap();
    assert_eq!(config.db.value, Database::Sqlite("/var/lib/milepost/milepost.db".into()));
    assert_eq!(config.db.from, Source::Flag("--data"));
    let file = Layer { db: Some("postgres://h/d".to_owned()), ..Layer::default() };
    let config = ServerConfig::new(&layers(file, Layer::default(), flags)).unwrap();
    assert_eq!(config.db.value, Database::Postgres("postgres://h/d".to_owned()));
}

#[test]
fn limits_are_set_one_by_one() {
    let limited = |pairs: &[(&str, u64)]| Layer {
        limits: pairs.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
        ..Layer::default()
    };
    let file = limited(&[("steps", 5), ("attempts", 7)]);
    let config = ServerConfig::new(&layers(file, Layer::default(), limited(&[("steps", 6)]))).unwrap();
    assert_eq!((config.limits.steps, config.limits.attempts), (6, 7));
    let shown = config.as_toml();
    assert!(shown.contains("\nsteps = 6  # --limit\n"), "{shown}");
    assert!(shown.contains("\nattempts = 7  # milepost.toml\n"), "{shown}");
    let unknown = ServerConfig::new(&layers(limited(&[("step", 5)]), Layer::default(), Layer::default()));
    assert!(unknown.is_err());
}

#[test]
fn an_address_that_others_reach_needs_tokens_or_a_word() {
    let open = |flags: Layer| ServerConfig::new(&Layers { flags, ..Layers::default() }).unwrap().check_auth();
    let refused = open(listening("0.0.0.0:7400")).unwrap_err().to_string();
    assert!(refused.contains("`milepost token`") && refused.contains("--insecure-no-auth"), "{refused}");
    assert!(open(listening("[::]:7400")).is_err());
    open(Layer { tokens: Some(vec![TokenHash::of("a").into()]), ..listening("0.0.0.0:7400") }).unwrap();
    open(Layer { insecure_no_auth: Some(true), ..listening("0.0.0.0:7400") }).unwrap();
    assert!(open(Layer { tokens: Some(Vec::new()), ..listening("0.0.0.0:7400") }).is_err());
}

#[test]
fn what_is_shown_can_be_read_again_and_holds_no_secret() {
    let file = Layer {
        db: Some("postgres://ada:hunter2@h/d".to_owned()),
        tokens: Some(vec![TokenHash::of("a").into(), format!("ci={}", TokenHash::of("b")).parse().unwrap()]),
        secrets_key: Some("0a".repeat(32).parse().unwrap()),
        traces_endpoint: Some("http://collector:4318".to_owned()),
        traces_headers: Some("authorization=hunter3".parse().unwrap()),
        ..Layer::default()
    };
    let config = ServerConfig::new(&layers(file, Layer::default(), listening("0.0.0.0:80"))).unwrap();
    let shown = config.as_toml();
    assert!(shown.starts_with("listen = \"0.0.0.0:80\"  # --listen\n"), "{shown}");
    assert!(shown.contains("db = \"postgres://ada:********@h/d\"  # milepost.toml\n"), "{shown}");
    assert!(shown.contains("tokens = [\"sha256:********\", \"ci=sha256:********\"]  # milepost.toml\n"), "{shown}");
    assert!(shown.contains("headers = { authorization = \"********\" }  # milepost.toml\n"), "{shown}");
    assert!(shown.contains("key = \"********\"  # milepost.toml\n"), "{shown}");
    assert!(!shown.contains("hunter") && !shown.contains("0a0a"), "{shown}");
    let read: toml::Table = toml::from_str(&shown).unwrap();
    assert_eq!(read["retention"]["completed_runs"].as_str(), Some("90d"));
    assert_eq!(read["traces"]["endpoint"].as_str(), Some("http://collector:4318"));
    let items = config.as_json();
    assert_eq!(items["items"][0], serde_json::json!({"key": "listen", "value": "0.0.0.0:80", "from": "--listen"}));
}

#[test]
fn a_server_may_not_take_for_ever_to_stop() {
    let flags = Layer { drain_seconds: Some(100_000), ..Layer::default() };
    let refused = ServerConfig::new(&Layers { flags, ..Layers::default() }).unwrap_err().to_string();
    assert!(refused.starts_with("--drain-seconds: "), "{refused}");
}

#[test]
fn traces_go_where_they_are_told() {
    let with = |endpoint: &str, headers: &str| {
        let file = Layer {
            traces_endpoint: Some(endpoint.to_owned()),
            traces_headers: Some(headers.parse().unwrap()),
            ..Layer::default()
        };
        ServerConfig::new(&layers(file, Layer::default(), Layer::default())).map(|config| config.traces.is_some())
    };
    assert!(with("http://collector:4318", "authorization=x").unwrap());
    let refused = with("collector:4318", "").unwrap_err().to_string();
    assert!(refused.starts_with("milepost.toml: `collector:4318` is no address of a collector"), "{refused}");
    for endpoint in ["ada:hunter2@collector:4318", "ftp://ada:hunter2@collector?key=hunter3", "http://?key=hunter3"] {
        let refused = with(endpoint, "").unwrap_err().to_string();
        assert!(!refused.contains("hunter"), "{refused}");
    }
    let refused = with("http://collector:4318", "a%0Ab=hunter2%0A").unwrap_err().to_string();
    assert!(!refused.contains("hunter2"), "{refused}");
    assert!(ServerConfig::new(&Layers::default()).unwrap().traces.is_none());
}

#[test]
fn every_setting_is_shown() {
    let shown = ServerConfig::new(&Layers::default()).unwrap().as_toml();
    let unset: Vec<&str> = shown.lines().filter(|line| line.ends_with("is not set")).collect();
    assert_eq!(
        unset,
        [
            "# cert is not set",
            "# key is not set",
            "# key is not set",
            "# folder is not set",
            "# signing_secret is not set",
            "# endpoint is not set"
        ],
        "{shown}"
    );
    let count = shown.lines().filter(|line| line.ends_with("  # default")).count();
    assert_eq!(count, settings::ALL.len() - unset.len() + Limits::TABLE.len(), "{shown}");
}
