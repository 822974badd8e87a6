//! Reloads over several workers, each simulated by a thread.
//! In: configurations, the answer of each worker. Out: the result of the reload, and the mail of the workers.

use std::thread;

use tidegate_gate::process_state::ProcessState;
use tidegate_reactor::{Mailbox, make_wakers};

use super::*;
use crate::health::Roster;

/// The messages that a worker received, and whether the mailbox still exists.
type Log = Arc<Mutex<Vec<&'static str>>>;

/// How a worker answers.
#[derive(Clone, Copy)]
struct Answers {
    /// The applications.
    prepared: Result<(), &'static str>,
    /// The settings.
    applied: Result<(), &'static str>,
}

const SOUND: Answers = Answers { prepared: Ok(()), applied: Ok(()) };

/// The file, and a way to write another one.
struct File(String);

impl ConfigSource for File {
    fn read(&mut self) -> Result<(Config, String), String> {
        let config = tidegate_config::parse(&self.0, "the test");
        config.map(|config| (config, String::new())).map_err(|error| error.to_string())
    }

    fn paths(&self) -> Vec<PathBuf> {
        Vec::new()
    }

    fn explain(&self, findings: Vec<Finding>) -> String {
        findings.iter().map(|finding| format!("{}: {}", finding.subject, finding.what)).collect()
    }
}

/// A configuration with an application, whose script is in a separate folder.
fn file(name: &str, script: &str) -> String {
    let folder = std::env::temp_dir().join(format!("tidegate-reload-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(format!("{name}.lua"));
    std::fs::write(&path, script).expect("a file");
    format!(
        "[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\npath = \"/p\"\nproxy = \"p\"\n[[route]]\nlua = \"a\"\n\
         [lua.a]\nscript = {path:?}\n[pool.p]\nservers = [\"127.0.0.1:9\"]\n"
    )
}

/// Simulates a worker until its mailbox receives a stop. Without answers, the worker does not react.
fn play(mailbox: Mailbox<Mail>, answers: Option<Answers>, log: &Log, ends: &Mutex<bool>) {
    let note = |what| log.lock().expect("a log").push(what);
    while !*ends.lock().expect("a flag") {
        let Some(mail) = answers.and_then(|_| mailbox.take()) else {
            thread::yield_now();
            continue;
        };
        let Some(answers) = answers else { continue };
        match mail {
            Mail::Prepare(rehearsal) => {
                note("prepare");
                assert!(rehearsal.take().is_some());
                rehearsal.report(answers.prepared.map_err(str::to_owned));
            }
            Mail::Settings(handover) => {
                note("settings");
                assert!(handover.take().is_some());
                let bound = answers.applied.map(|()| vec![None]);
                handover.report(bound.map_err(str::to_owned));
            }
            Mail::DropPrepared => note("drop"),
            Mail::Stop(..)
            | Mail::Tls(_)
            | Mail::ServerStatuses(_)
            | Mail::Addresses(..)
            | Mail::PasswordResult(_)
            | Mail::Inspect(_)
            | Mail::PassListeners(_) => note("other"),
        }
    }
    while let Some(mail) = mailbox.take() {
        if matches!(mail, Mail::DropPrepared) {
            note("drop");
        }
    }
}

/// Reloads in a process whose workers answer so. Returns the result and the mail of each worker.
fn reload(
    name: &str,
    workers: &[Option<Answers>],
    is_stopping: bool,
) -> (Result<Option<String>, String>, Vec<Vec<&'static str>>) {
    with_workers(name, workers, is_stopping, |configuration, changed| {
        let replaced = configuration.replace(changed, &mut TlsLoader::default(), Cause::File);
        replaced.map(|(_, shortfall)| shortfall)
    })
}

/// Changes the configuration of a process whose workers answer so; `change` also gets a changed configuration. Returns the result
/// and the mail of each worker.
fn with_workers<T>(
    name: &str,
    workers: &[Option<Answers>],
    is_stopping: bool,
    change: impl FnOnce(&mut Configuration, Config) -> T,
) -> (T, Vec<Vec<&'static str>>) {
    let text = file(name, "return { on_request = function() end }");
    let config = tidegate_config::parse(&text, "the test").expect("it is valid");
    let wakers = make_wakers(workers.len()).expect("wakers");
    let mailboxes: Vec<_> = wakers.into_iter().map(|waker| Mailbox::new(8, waker)).collect();
    let link =
        |mailbox: &Mailbox<Mail>| WorkerLink { sender: mailbox.sender(), in_use: InUse::default() };
    let arranged = Arranged::first(config.clone());
    let roster = Arc::new(Roster::new(&arranged, Vec::new()));
    let checks = Checks::start(roster, &arranged, &Vec::new(), &TlsPlan::default());
    let mut configuration = Configuration {
        source: Some(Box::new(File(text))),
        keys: KeyFetcher::default(),
        memory: MemoryWatch::default(),
        checks: checks.expect("no server is checked"),
        addresses: Arc::default(),
        numbers: Numbers::of(&config),
        process: ProcessState::new(&config, 0),
        seed: 0,
        passwords: Default::default(),
        scripts: scripts::read(&config).expect("it is readable"),
        refused: Vec::new(),
        has_lua_post: true,
        dictionaries: Arc::default(),
        workers: mailboxes.iter().map(link).collect(),
        listening: Arc::new(Mutex::new(Listening {
            config: Arc::new(config),
            lives: Vec::new(),
            earlier: Vec::new(),
            is_stopping,
        })),
        read: ReadConfig::new(Arc::clone(&arranged.config)),
        arranged,
        takeover: false,
        lookups: Lookups::default(),
        names: Default::default(),
        name_facts: Default::default(),
        unplaced: Default::default(),
        managed: Vec::new(),
        operations: None,
    };
    let changed = file(name, "return { on_request = function() end, on_start = function() end }");
    let config = tidegate_config::parse(&changed, "the test").expect("it is valid");
    let logs: Vec<Log> = workers.iter().map(|_| Log::default()).collect();
    let ends = Mutex::new(false);
    let result = thread::scope(|scope| {
        for ((mailbox, answers), log) in mailboxes.into_iter().zip(workers).zip(&logs) {
            let (answers, ends) = (*answers, &ends);
            scope.spawn(move || play(mailbox, answers, log, ends));
        }
        let result = change(&mut configuration, config);
        *ends.lock().expect("a flag") = true;
        result
    });
    let logs = logs.iter().map(|log| log.lock().expect("a log").clone()).collect();
    (result, logs)
}

#[test]
fn settings_are_in_force_after_all_workers_have_prepared_them() {
    let (result, mail) = reload("sound", &[Some(SOUND); 3], false);
    assert_eq!(result, Ok(None));
    assert_eq!(mail, [["prepare", "settings"]; 3]);
}

#[test]
fn worker_whose_applications_fail_keeps_all_workers_from_changing() {
    let fails = Answers { prepared: Err("a.lua: on_start: no database"), ..SOUND };
    let (result, mail) = reload("fails", &[Some(SOUND), Some(fails), Some(SOUND)], false);
    assert_eq!(
        result.expect_err("it is refused"),
        "tidegate: worker 1: a.lua: on_start: no database"
    );
    assert_eq!(mail, [&["prepare", "drop"][..], &["prepare"], &[]]);
}

#[test]
fn result_names_a_later_worker_that_keeps_the_settings_before() {
    let fails = Answers { applied: Err("no descriptors"), ..SOUND };
    let (result, mail) = reload("later", &[Some(SOUND), Some(fails), Some(SOUND)], false);
    let shortfall = result.expect("the others have changed").expect("a shortfall");
    assert!(
        shortfall.contains("in force, but worker 1") && shortfall.contains("no descriptors"),
        "{shortfall}"
    );
    assert_eq!(mail[1], ["prepare", "settings", "drop"]);
    assert_eq!(mail[2], ["prepare", "settings"]);
    let (result, mail) = reload("first", &[Some(fails), Some(SOUND)], false);
    assert_eq!(result.expect_err("nothing has changed"), "tidegate: no descriptors");
    assert_eq!(mail, [&["prepare", "settings", "drop"][..], &["prepare", "drop"]]);
}

#[test]
fn reload_does_not_wait_for_workers_of_a_process_that_stops() {
    let (result, _) = reload("stops", &[None], true);
    assert_eq!(result.expect_err("it ends"), "tidegate: worker 0: the process is stopping");
}

/// An edit that adds a server.
fn added(address: &str) -> LiveEdit {
    let server = live_edit::parse_server(address, &[]).expect("it is a server");
    LiveEdit::AddServer { pool: "p".to_owned(), server }
}

#[test]
fn edits_last_until_the_file_is_read_again() {
    let loader = &mut TlsLoader::default();
    let ((), mail) = with_workers("edits", &[Some(SOUND); 2], false, |configuration, changed| {
        let (first, second) = (added("127.0.0.1:10"), added("127.0.0.1:11"));
        assert_eq!(configuration.edit(&first, &Found::new(), loader), Ok(Edited::Changed));
        assert_eq!(configuration.edit(&second, &Found::new(), loader), Ok(Edited::Changed));
        let refusal =
            configuration.edit(&first, &Found::new(), loader).expect_err("the server exists");
        assert_eq!(refusal, "server p/127.0.0.1:10 exists already");
        assert_eq!(configuration.read.edits(), [first.clone(), second]);
        assert_eq!(configuration.arranged.config.pools[0].servers.len(), 3);
        assert!(configuration.replace(changed, loader, Cause::File).is_ok());
        assert_eq!(configuration.read.edits(), []);
        assert_eq!(configuration.edit(&first, &Found::new(), loader), Ok(Edited::Changed));
        assert_eq!(configuration.read.edits(), [first]);
    });
    assert_eq!(mail, [["prepare", "settings"].repeat(4), ["prepare", "settings"].repeat(4)]);
}

#[test]
fn edit_returns_the_name_of_the_route_that_it_adds() {
    let loader = &mut TlsLoader::default();
    with_workers("added-routes", &[Some(SOUND)], false, |configuration, _| {
        let before = route_names(&configuration.read.edited).first().cloned();
        for (path, before) in [("/a", before), ("/b", Some("/a".to_owned()))] {
            let text = format!("{{ path = \"{path}\", proxy = \"p\" }}");
            let edit = LiveEdit::AddRoute { text, before };
            let edited = configuration.edit(&edit, &Found::new(), loader);
            assert_eq!(edited, Ok(Edited::AddedRoute(path.to_owned())));
        }
    });
}

#[test]
fn edit_that_workers_refuse_is_not_in_force() {
    let loader = &mut TlsLoader::default();
    let fails = Answers { applied: Err("no descriptors"), ..SOUND };
    let edit = added("127.0.0.1:10");
    with_workers("refused", &[Some(fails), Some(SOUND)], false, |configuration, _| {
        assert_eq!(
            configuration.edit(&edit, &Found::new(), loader),
            Err("no descriptors".to_owned())
        );
        assert_eq!(configuration.read.edits(), []);
        assert_eq!(configuration.arranged.config.pools[0].servers.len(), 1);
    });
    with_workers("partly", &[Some(SOUND), Some(fails)], false, |configuration, _| {
        let shortfall =
            configuration.edit(&edit, &Found::new(), loader).expect_err("one worker keeps them");
        assert!(shortfall.contains("in force, but worker 1"), "{shortfall}");
        assert_eq!(configuration.read.edits(), std::slice::from_ref(&edit));
    });
}

#[test]
fn hubs_may_change_their_keys_only() {
    let config = |settings: &str, file: &str| {
        let text = format!("[[listener]]\nbind = \"127.0.0.1:0\"\n[push.p]\n{settings}");
        let mut config = tidegate_config::parse(&text, "the test").expect("it is valid");
        assert_eq!(tidegate_config::supply(&mut config, |_| Ok(file.into())), Ok(()));
        config
    };
    let own = config("token-keys = \"keys.json\"", "one");
    for (settings, file, is_same) in [
        ("token-keys = \"keys.json\"", "two", true),
        ("token-keys = \"other.json\"\ntoken-audience = \"a\"\ntoken-issuer = \"b\"", "one", true),
        ("token-secret = \"0123456789abcdef\"\ntoken-leeway = \"1s\"", "", true),
        ("api-keys = [\"0123456789abcdef\"]", "", true),
        ("anonymous = true", "", false),
        ("[push.p.namespace.n]", "", false),
        ("[push.q]", "", false),
    ] {
        assert_eq!(has_same_hubs(&own, &config(settings, file)), is_same, "{settings}");
    }
}
