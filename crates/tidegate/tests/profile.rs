//! `tidegate ctl profile` of a process under load.
//! In: a process with two workers, a client that sends requests. Out: tables, flame graphs and files with the process's functions.
//! Never: listens anywhere but on unix sockets in a folder of the test.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate_profile::folded::Profile;
use tidegate_testing::{Started, command, run, start};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidegate");
const PATIENCE: Duration = Duration::from_secs(60);

/// A process that serves requests of a client until the test ends.
struct Loaded {
    folder: PathBuf,
    _process: Started,
    ends: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

/// Routes of most tests.
const ROUTES: &str = "[[route]]\npath = \"/lua\"\nlua = \"app\"\n[[route]]\nrespond = { body = \"hello\" }\n\
    [lua.app]\nscript = \"app.lua\"\n";

impl Loaded {
    /// `work`: the path that the client requests; several, separated by blanks, in turns over one connection.
    fn start(name: &str, work: &str) -> Self {
        Self::with(name, 2, ROUTES, &[work])
    }

    /// `routes`: what follows the listener in the configuration. `works`: as in `start`, for each client.
    fn with(name: &str, workers: usize, routes: &str, works: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("tidegate-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        let path = |name: &str| folder.join(name).display().to_string();
        let script = "local function add(count)\n local sum = 0\n \
            for i = 1, count do sum = (sum * 31 + i) % 1000003 end\n return tostring(sum)\nend\n\
            return { on_request = function(_, response) response:finish(add(200000)) end,\n \
            on_log = function() add(200000) end }\n";
        std::fs::write(folder.join("app.lua"), script).expect("a file can be written");
        let text = format!(
            "[server]\nworkers = {workers}\n[admin]\nbind = \"unix:{}\"\n[[listener]]\nbind = \"unix:{}\"\n{}",
            path("admin"),
            path("web"),
            routes.replace("FOLDER", &folder.display().to_string())
        );
        std::fs::write(folder.join("a.toml"), text).expect("a file can be written");
        let process = start(command(PROGRAM).args(["run", &path("a.toml")]).stderr(Stdio::null()));
        let ends = Arc::new(AtomicBool::new(false));
        let begin = Instant::now();
        while UnixStream::connect(path("admin")).is_err()
            || UnixStream::connect(path("web")).is_err()
        {
            assert!(begin.elapsed() < PATIENCE, "it does not start");
            std::thread::yield_now();
        }
        let client = |work: &&str| {
            let (ends, web) = (Arc::clone(&ends), path("web"));
            let request = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
            let requests: Vec<String> = work.split(' ').map(request).collect();
            std::thread::spawn(move || send_requests(&web, &requests, &ends))
        };
        let clients = works.iter().map(client).collect();
        Self { folder, _process: process, ends, clients }
    }

    fn ctl(&self, arguments: &[&str]) -> Output {
        let at = format!("unix:{}", self.folder.join("admin").display());
        run(command(PROGRAM).args(["ctl", "--at", &at]).args(arguments))
    }

    fn profile(&self, arguments: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.ctl(&[&["profile"], arguments].concat());
        assert!(status.success(), "{arguments:?}: {}", text(&stderr));
        text(&stdout)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Sends one request after the other over one connection.
fn send_requests(web: &str, requests: &[String], ends: &AtomicBool) {
    let mut stream = UnixStream::connect(web).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut buffer = [0; 4096];
    for request in requests.iter().cycle() {
        if ends.load(Ordering::Relaxed) {
            return;
        }
        stream.write_all(request.as_bytes()).expect("the request is sent");
        assert!(stream.read(&mut buffer).expect("a response") > 0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The part of the samples whose stack contains `part`.
fn share(profile: &Profile, part: &str) -> f64 {
    let hits: u64 =
        profile.stacks().filter(|(stack, _)| stack.contains(part)).map(|(_, count)| count).sum();
    hits as f64 / profile.samples() as f64
}

#[test]
fn profile_shows_the_functions_of_workers_in_all_formats() {
    let loaded = Loaded::start("profile-formats", "/");
    let svg = loaded.profile(&["1s", "--hertz", "499"]);
    assert!(svg.starts_with("<?xml") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert!(!svg.contains("src=") && !svg.contains("href"), "no foreign script");
    let graph = loaded.folder.join("flame.svg").display().to_string();
    std::fs::write(&graph, &svg).expect("a file can be written");
    let folded = loaded.profile(&["--from", &graph, "--folded"]);
    let profile = Profile::parse(&folded).expect("stacks");
    assert!(profile.samples() > 0 && profile.facts.requests > 0, "{folded}");
    assert_eq!((profile.facts.workers, profile.facts.hertz), (2, 499));
    // Whether the kernel's functions are there depends on the system.
    assert!(share(&profile, "tidegate_server::worker_thread::serve") > 0.5, "{folded}");
    assert!(share(&profile, "[unknown callers]") < 0.5, "{folded}");
    let table = loaded.profile(&["--from", &graph, "--text"]);
    assert!(table.contains("us/request  function ") && table.contains("[.] "), "{table}");
    let pprof = loaded.ctl(&["profile", "--from", &graph, "--pprof"]);
    assert!(pprof.stdout.starts_with(&[0x0a, 4, 8, 1, 16, 2]), "{pprof:?}");
    // A later profile is compared with the graph, as a table and as a graph.
    let comparison = loaded.profile(&["500ms", "--against", &graph, "--text"]);
    assert!(comparison.contains("in us/request\n"), "{comparison}");
    // The client's connection belongs to one of the workers.
    let difference = ["0", "1"].map(|worker| {
        let arguments =
            ["profile", "1s", "--against", &graph, "--worker", worker, "--hertz", "999"];
        text(&loaded.ctl(&arguments).stdout)
    });
    assert!(difference.concat().contains("Difference of two profiles"), "{difference:?}");
}

#[test]
fn timers_replace_perf_and_show_compiled_lua() {
    let loaded = Loaded::start("profile-timers", "/lua");
    let folded = loaded.profile(&["2s", "--by", "timers", "--folded"]);
    let profile = Profile::parse(&folded).expect("stacks");
    assert_eq!(profile.facts.means, "timers");
    assert!(share(&profile, "[compiled Lua]") > 0.0, "{folded}");
    let called = "tidegate_server::worker_thread::serve;";
    assert!(share(&profile, called) > 0.5, "callers of compiled code are found: {folded}");
}

#[test]
fn profile_of_a_route_contains_only_the_work_for_its_requests() {
    let loaded = Loaded::start("profile-route", "/lua / / / / / / /");
    let profile_of = |route: &str| {
        let arguments = ["3s", "--hertz", "999", "--route", route, "--folded"];
        let folded = loaded.profile(&arguments);
        let profile = Profile::parse(&folded).expect("stacks");
        let facts = &profile.facts;
        assert_eq!((facts.means.as_str(), facts.route.as_str()), ("timers", route));
        assert!(facts.requests > 0 && facts.left_out > 0, "{folded}");
        profile
    };
    let (scripted, plain) = (profile_of("/lua"), profile_of("*"));
    let is_lua = "[compiled Lua]";
    assert!(share(&scripted, is_lua) > 0.5, "{scripted}");
    assert_eq!(share(&plain, is_lua), 0.0, "{plain}");
    // The worker sends all responses at the end of its turn.
    assert!(
        share(&plain, "Loop<K>>::flush_dirty") + share(&plain, "send_pending") > 0.0,
        "{plain}"
    );
    // Most requests are those of the other route.
    let requests = (scripted.facts.requests, plain.facts.requests);
    assert!(requests.0 < requests.1, "{requests:?}");
    let everything = Profile::parse(&loaded.profile(&["1s", "--folded"])).expect("stacks");
    assert_eq!((everything.facts.route.as_str(), everything.facts.left_out), ("", 0));
    let table = loaded.profile(&["1s", "--route", "/lua", "--text"]);
    assert!(table.contains(", route /lua\n") && table.contains("the route has "), "{table}");
}

#[test]
fn profile_of_a_route_leaves_out_the_log_hooks_of_another() {
    let routes = "[[listener]]\nname = \"origin\"\nbind = \"unix:FOLDER/origin\"\n\
        [[route]]\nlistener = \"origin\"\nrespond = { body = \"hello\" }\n\
        [[route]]\npath = \"/lua\"\nlua = \"app\"\n[[route]]\nproxy = \"origin\"\nhooks = \"app\"\n\
        [pool.origin]\nservers = [\"unix:FOLDER/origin\"]\n[lua.app]\nscript = \"app.lua\"\n";
    // So many callbacks that some wait for the end of the turn, where the log hooks follow them.
    let mut works = vec!["/lua"; 12];
    works.push("/logged");
    let loaded = Loaded::with("profile-hooks", 1, routes, &works);
    let profile_of = |arguments: &[&str]| {
        let fixed = ["3s", "--hertz", "999", "--by", "timers", "--folded"];
        let folded = loaded.profile(&[&fixed[..], arguments].concat());
        Profile::parse(&folded).expect("stacks")
    };
    let everything = profile_of(&[]);
    assert!(share(&everything, "run_log_hook") > 0.0, "{everything}");
    let scripted = profile_of(&["--route", "/lua"]);
    assert!(share(&scripted, "call_on_request") > 0.5, "{scripted}");
    assert_eq!(share(&scripted, "run_log_hook"), 0.0, "{scripted}");
}

#[test]
fn one_profile_is_taken_at_a_time_and_can_be_ended() {
    let loaded = Loaded::start("profile-one", "/");
    let order = || {
        let mut client = UnixStream::connect(loaded.folder.join("admin")).expect("it listens");
        client.write_all(b"profile 5m attached\n").expect("it is sent");
        client
    };
    let begin = Instant::now();
    let mut long = order();
    // A short profile succeeds until the long one has begun. The long one may be the one that is refused.
    let refusal = loop {
        let output = loaded.ctl(&["profile", "100ms", "--folded"]);
        let why = text(&output.stderr);
        if why.contains("another profile") {
            break why;
        }
        long.set_nonblocking(true).expect("a mode");
        if long.read(&mut [0; 512]).is_ok() {
            long = order();
        }
        assert!(begin.elapsed() < PATIENCE, "{output:?}");
    };
    assert!(refusal.contains("profile stop"), "{refusal}");
    assert!(loaded.ctl(&["profile", "stop"]).status.success());
    long.set_nonblocking(false).expect("a mode");
    let mut reply = String::new();
    long.read_to_string(&mut reply).expect("it ends at once");
    assert!(reply.starts_with("# tidegate-profile "), "{reply}");
    // A client that leaves ends its profile.
    drop(order());
    while text(&loaded.ctl(&["profile", "100ms", "--folded"]).stderr).contains("another profile") {
        assert!(begin.elapsed() < 2 * PATIENCE, "the profile of a client that has left continues");
    }
}

#[test]
fn workers_are_shown_with_their_threads_counters_and_handlers() {
    let loaded = Loaded::start("profile-shown", "/");
    let show = |what: &str| {
        let output = loaded.ctl(&["show", what]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let begin = Instant::now();
    // A handler is timed in one of 64 calls.
    while !show("profiling").contains("downstream_receive") {
        assert!(begin.elapsed() < PATIENCE, "{}", show("profiling"));
    }
    let threads = show("threads");
    let rows: Vec<Vec<&str>> =
        threads.lines().map(|line| line.trim_start_matches("# ").split(' ').collect()).collect();
    assert_eq!((rows.len(), rows[0][..2].to_vec()), (3, vec!["worker", "thread"]), "{threads}");
    assert!(rows.iter().all(|row| row.len() == rows[0].len()), "{threads}");
    assert!(rows[1..].iter().all(|row| row[1].parse::<u32>().is_ok()), "{threads}");
    let activity = show("activity");
    let turns = activity.lines().find_map(|line| line.strip_prefix("turns: ")).expect("a counter");
    let numbers: Vec<u64> = turns.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(numbers.len() == 3 && numbers[0] == numbers[1] + numbers[2], "{turns}");
    let wrong = loaded.ctl(&["show", "threads", "all"]);
    assert!(text(&wrong.stderr).contains("usage: show threads"), "{}", text(&wrong.stderr));
}

/// The commands of the section on profiles, in their order, in a shell.
#[test]
fn commands_of_the_documentation_work() {
    let loaded = Loaded::start("profile-documented", "/");
    let document = include_str!("../../../docs/operations.md");
    let (_, section) = document.split_once("\n## Profiles\n").expect("the section");
    let (_, block) = section.split_once("```sh\n").expect("commands follow");
    let (block, _) = block.split_once("```").expect("the block ends");
    let at = format!("unix:{}", loaded.folder.join("admin").display());
    let programs = std::path::Path::new(PROGRAM).parent().expect("a folder").display();
    let mut count = 0;
    for line in block.lines() {
        let (line, _) = line.split_once(" #").expect("a comment");
        let line = line
            .replace("tidegate ctl", &format!("tidegate ctl --at {at}"))
            .replace(" 10s", " 1s")
            .replace("'/api/*'", "'*'")
            // The other process is the same one here, which takes one profile at a time.
            .replace("--against 127.0.0.1:9902", "--against flame.svg");
        let mut shell = command("sh");
        shell.args(["-c", &line]).current_dir(&loaded.folder);
        let output = run(shell.env("PATH", format!("{programs}:/usr/bin:/bin")));
        let (succeeded, why) = (output.status.success(), text(&output.stderr));
        assert!(succeeded != line.contains("profile stop"), "{line}: {why}");
        count += 1;
    }
    assert!(count >= 7, "{block}");
    let svg = std::fs::read_to_string(loaded.folder.join("diff.svg")).expect("a graph");
    assert!(svg.contains("Difference of two profiles"), "{svg}");
}

#[test]
fn wrong_arguments_are_explained() {
    let loaded = Loaded::start("profile-wrong", "/");
    for (arguments, code, part) in [
        (&["10x"][..], 2, "is not a duration of up to 5m"),
        (&["6m"], 2, "is not a duration of up to 5m"),
        (&["1s", "--worker", "2"], 1, "0 to 1"),
        (&["1s", "--hertz", "1000"], 2, "1..=999"),
        (&["1s", "--route", "/x"], 1, "no route \"/x\"; the routes are: /lua, *"),
        (&["1s", "--route", "/lua", "--by", "perf"], 1, "help: leave out `by perf`"),
        (&["1s", "--text", "--svg"], 2, "cannot be used with"),
        (&["--from", "/nowhere"], 1, "/nowhere: No such file"),
        (&["1s", "--against", "/nowhere"], 1, "/nowhere: No such file"),
        (&["stop"], 1, "no profile is being taken"),
    ] {
        let output = loaded.ctl(&[&["profile"], arguments].concat());
        let why = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {why}");
        assert!(why.contains(part), "{arguments:?}: {why}");
    }
}
