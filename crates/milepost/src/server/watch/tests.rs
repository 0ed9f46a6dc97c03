use milepost_store::memory::MemoryStore;
use tempfile::TempDir;

use super::*;

const GOOD: &str = "name: flow\nsteps:\n  one: {skill: echo}\n";
const BETTER: &str = "name: flow\nsteps:\n  one: {skill: echo}\n  two: {skill: echo}\n";
const BAD: &str = "name: flow\nsteps:\n  one: {skil: echo}\n";

struct Watched {
    folder: TempDir,
    deployer: Deployer,
    /// Later than every file.
    now: SystemTime,
}

impl Watched {
    async fn new() -> Watched {
        console::set_colors_enabled_stderr(false);
        let folder = tempfile::tempdir().unwrap();
        let engine = Arc::new(Engine::open(Arc::new(MemoryStore::default())).await.unwrap());
        let deployer = Deployer::new(engine, vec![folder.path().to_owned()]);
        Watched { folder, deployer, now: SystemTime::now() + Duration::from_secs(60) }
    }

    /// Files that differ in nothing but their time must differ in that.
    fn write(&mut self, name: &str, text: &str) {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(self.now).unwrap();
        self.now += Duration::from_secs(60);
    }

    /// What a look says, without the folder and with short hashes.
    async fn look(&mut self) -> Vec<String> {
        let folder = format!("{}/", self.folder.path().display());
        let look = self.deployer.run_once(self.now).await;
        let short = |line: &String| match line.split_once("sha256:") {
            Some((before, hash)) => format!("{before}{}", &hash[..4]),
            None => line.replace(&folder, ""),
        };
        look.lines.iter().map(short).collect()
    }

    async fn is_deployed(&self, name: &str) -> bool {
        self.deployer.engine.resolve(name).await.is_ok()
    }
}

#[tokio::test]
async fn documents_are_deployed_when_they_come_and_when_they_change() {
    let mut watched = Watched::new().await;
    watched.write("a.yaml", &format!("{GOOD}---\nname: other\nsteps: {{one: {{skill: noop}}}}\n"));
    let said = watched.look().await;
    assert!(said[0].starts_with("deployed flow (") && said[1].starts_with("deployed other ("), "{said:?}");
    assert_eq!(watched.look().await, [""; 0]);
    watched.write("a.yaml", BETTER);
    let changed = watched.look().await;
    assert!(changed.len() == 1 && changed[0].starts_with("deployed flow (") && changed[0] != said[0], "{changed:?}");
    assert_eq!(watched.deployer.engine.resolve("flow").await.unwrap().steps.len(), 2);
    watched.write("a.yaml", BETTER);
    assert_eq!(watched.look().await, [""; 0]);
}

#[tokio::test]
async fn problems_are_told_once_and_so_is_their_end() {
    let mut watched = Watched::new().await;
    watched.write("a.yaml", BAD);
    let said = watched.look().await.join("\n");
    assert!(said.contains("a.yaml:3:9: unknown_key: there is no key `skil` here"), "{said}");
    assert!(said.ends_with("error: a.yaml has 2 problems"), "{said}");
    assert_eq!(watched.look().await, [""; 0]);
    assert!(!watched.is_deployed("flow").await);
    watched.write("a.yaml", GOOD);
    let fixed = watched.look().await;
    assert_eq!(fixed[0], "a.yaml is in order again");
    assert!(fixed[1].starts_with("deployed flow ("), "{fixed:?}");
}

#[tokio::test]
async fn a_file_that_is_being_written_waits_for_the_next_look() {
    let mut watched = Watched::new().await;
    watched.write("a.yaml", GOOD);
    let written = watched.now - Duration::from_secs(60);
    let fresh = watched.deployer.run_once(written + Duration::from_millis(50)).await;
    assert!(fresh.unsettled && fresh.lines.is_empty(), "{fresh:?}");
    let settled = watched.deployer.run_once(written + Duration::from_millis(150)).await;
    assert!(!settled.unsettled && settled.lines.len() == 1, "{settled:?}");
}

#[tokio::test]
async fn a_file_that_is_gone_is_told_at_the_second_look_and_its_tag_stays() {
    let mut watched = Watched::new().await;
    watched.write("a.yaml", GOOD);
    watched.look().await;
    std::fs::remove_file(watched.folder.path().join("a.yaml")).unwrap();
    assert_eq!(watched.look().await, [""; 0]);
    assert_eq!(watched.look().await, ["a.yaml was removed; flow stays deployed"]);
    assert_eq!(watched.look().await, [""; 0]);
    assert!(watched.is_deployed("flow").await);
}

#[tokio::test]
async fn a_file_that_is_replaced_was_never_gone() {
    let mut watched = Watched::new().await;
    watched.write("a.yaml", GOOD);
    watched.look().await;
    std::fs::remove_file(watched.folder.path().join("a.yaml")).unwrap();
    watched.look().await;
    watched.write("a.yaml", GOOD);
    assert_eq!(watched.look().await, [""; 0]);
    assert_eq!(watched.look().await, [""; 0]);
}

#[tokio::test]
async fn two_files_with_one_name_are_told() {
    let mut watched = Watched::new().await;
    watched.write("a.yaml", GOOD);
    watched.look().await;
    watched.write("b.yaml", BETTER);
    let said = watched.look().await;
    assert_eq!(said[1], "flow is in a.yaml, too; the one that changes last counts");
}

#[test]
fn what_cannot_be_watched_is_refused() {
    let refused = check(&["/nowhere/at/all".into()]).unwrap_err().to_string();
    assert!(refused.starts_with("/nowhere/at/all cannot be watched: "), "{refused}");
}
