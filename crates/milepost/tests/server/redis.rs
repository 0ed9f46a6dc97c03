//! A server of the real program with a Redis: over TLS, away, and as others are told of it.

use serde_json::{Value, json};

use super::redis_server::RedisServer;
use super::{Place, Server, ended, eventually};

fn document() -> Value {
    let step = json!({"skill": "echo", "input": {"text": "x".repeat(5000)}, "cache": {"enabled": true}});
    json!({"name": "w", "steps": {"a": step}})
}

/// Runs the document; the results of it that came from Redis until then.
fn from_redis(server: &Server) -> u64 {
    let run = server.start_run(&document());
    server.ended_run(&run);
    metric(server, "milepost_cache_reads_total{from=\"redis\"}")
}

fn metric(server: &Server, series: &str) -> u64 {
    let page = server.get("/metrics").body.as_str().unwrap().to_owned();
    let found = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {series} in\n{page}")).parse().unwrap()
}

fn warnings(server: &Server) -> Value {
    let ready = server.get("/readyz");
    assert_eq!(ready.status, 200, "a Redis that is away keeps no server from being ready");
    ready.body["warnings"].clone()
}

#[test]
fn a_redis_over_tls_spares_the_database_and_may_go_and_come() {
    let (place, mut redis) = (Place::new(), RedisServer::start_with_tls());
    let mut command = place.command(&["serve", "--listen", "127.0.0.1:0", "--redis", &redis.url()]);
    command.env("SSL_CERT_FILE", redis.authority());
    let server = Server::start(command);
    eventually("Redis answers", || (warnings(&server) == Value::Null).then_some(()));
    eventually("outputs come from Redis", || (from_redis(&server) > 0).then_some(()));
    redis.kill();
    from_redis(&server);
    eventually("Redis is missed", || (warnings(&server) == json!(["redis_unreachable"])).then_some(()));
    assert_eq!(metric(&server, "milepost_redis_down"), 1);
    let before = from_redis(&server);
    redis.start_again();
    eventually("outputs come from Redis again", || (from_redis(&server) > before).then_some(()));
    assert_eq!(warnings(&server), Value::Null);
    assert_eq!(metric(&server, "milepost_cache_misses_total"), 1, "the step ran once");
}

#[test]
fn a_redis_whose_certificate_nobody_vouches_for_is_not_talked_to() {
    let (place, redis) = (Place::new(), RedisServer::start_with_tls());
    let server = place.serve(&["--redis", &redis.url()]);
    server.says("Redis cannot be reached");
    from_redis(&server);
    assert_eq!((from_redis(&server), warnings(&server)), (0, json!(["redis_unreachable"])));
}

#[test]
fn a_command_on_a_database_uses_the_redis_that_is_named_and_doctor_tells_when_it_is_away() {
    let (place, mut redis) = (Place::new(), RedisServer::start());
    place.file("flow.yaml", &document().to_string());
    let with_redis = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("MILEPOST_REDIS", redis.url());
        ended(command)
    };
    // The step waits until Redis is there for sure.
    place.file(
        "slow.yaml",
        "{name: s, steps: {a: {skill: shell, input: {command: sleep 2; echo 1}, cache: {enabled: true}}}}",
    );
    assert_eq!(with_redis(&["run", "slow.yaml"]).code, 0);
    let healthy = with_redis(&["doctor"]);
    assert_eq!((healthy.code, healthy.out.contains("warning")), (0, false), "{}", healthy.out);
    let url = redis.url();
    let held = std::process::Command::new("redis-cli").args(["-u", &url, "--raw", "KEYS", "*"]).output().unwrap();
    let held = String::from_utf8(held.stdout).unwrap();
    assert!(held.starts_with("milepost:1:result:"), "{held}");
    redis.kill();
    let with_redis = |args: &[&str]| {
        let mut command = place.command(args);
        command.env("MILEPOST_REDIS", &url);
        ended(command)
    };
    let warned = with_redis(&["doctor"]);
    assert!(warned.code == 0 && warned.out.contains("warning: redis_unreachable:"), "{}{}", warned.out, warned.err);
    let json: Value = serde_json::from_str(&with_redis(&["doctor", "-o", "json"]).out).unwrap();
    assert_eq!((&json["findings"], &json["warnings"][0]["code"]), (&json!([]), &json!("redis_unreachable")));
    assert_eq!(with_redis(&["run", "slow.yaml"]).code, 0);
}

#[test]
fn a_redis_that_cannot_be_one_is_refused_without_its_password() {
    let place = Place::new();
    let refused = place.run(&["serve", "--redis", "http://:hunter2@h"]);
    assert!(refused.code == 2 && refused.err.contains("write redis://HOST:PORT/DB"), "{}", refused.err);
    place.file("milepost.toml", "redis = \"redis://:hunter2@h:7000/3\"\n[cache]\nredis_ttl = \"5m\"\n");
    let shown = place.run(&["serve", "--print-config"]).out;
    assert!(shown.contains("redis = \"redis://:********@h:7000/3\"  # milepost.toml"), "{shown}");
    assert!(shown.contains("redis_ttl = \"5m\"") && !shown.contains("hunter2"), "{shown}");
    let off = place.run(&["serve", "--redis", "off", "--print-config"]).out;
    assert!(off.contains("redis = \"off\"  # --redis"), "{off}");
}
