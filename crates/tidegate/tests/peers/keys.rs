//! Keys of tokens fetched from a Python server over https: before it runs, rotated, and after it has stopped.
//! In: tokens of two keys. Out: the status of each request.

use std::process::Stdio;

use tidegate_testing::command;

use crate::origins::python;
use crate::process::{Folder, Process, free_address, run_well};
use crate::proxy_protocol::openssl;
use crate::requests::curl;

/// Public keys of Ed25519, `a` and `b`, in JSON.
const KEYS: [&str; 2] = [
    r#"{"kty":"OKP","crv":"Ed25519","use":"sig","kid":"a","x":"zZE-ijElY8hTUn49yN3MHhQdwBJks-gJj6lcyFD7y0A"}"#,
    r#"{"kty":"OKP","crv":"Ed25519","use":"sig","kid":"b","x":"XcZ5d8MNc1YuqzVS-EqQK0cJ-Uzw05SW1XvxIMGAjzA"}"#,
];
/// A token of each key, for the audience "app".
const TOKENS: [&str; 2] = [
    "eyJhbGciOiJFZERTQSIsImtpZCI6ImEifQ.eyJzdWIiOiJib2ItYSIsImF1ZCI6ImFwcCJ9.88OX7uzcvB-23T7XeIc9ZMypwqOS50Td4YHuyX5p\
     gxAX0DQHvE_HVfJPnex-LkPXZugoT7GVm0jdvv1ji96cAw",
    "eyJhbGciOiJFZERTQSIsImtpZCI6ImIifQ.eyJzdWIiOiJib2ItYiIsImF1ZCI6ImFwcCJ9.BNwVf3MmZhu-gm2_SjvLmPMarmxvBZIc8AxE5Ltv\
     uivOhvDYdLEymzFoPT_lSGpHBUImxh_m3LvkrcdAyHf6AA",
];

fn set(keys: &[&str]) -> String {
    format!("{{\"keys\":[{}]}}", keys.join(","))
}

#[test]
fn keys_are_fetched_rotated_and_kept() {
    let folder = Folder::new("keys");
    let (door, admin, issuer) = (free_address(), free_address(), free_address());
    openssl(
        &folder,
        &format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=issuer \
             -addext subjectAltName=IP:{} -keyout issuer.key -out issuer.pem",
            issuer.ip()
        ),
    );
    let route = |path: &str, ca: &str| {
        format!(
            "[[route]]\npath = \"{path}\"\nrespond = {{ status = 200 }}\n\
             auth = {{ jwt = {{ keys = \"https://{issuer}/jwks.json\", audience = \"app\"{ca} }} }}\n"
        )
    };
    let text = format!(
        "[admin]\nbind = \"{admin}\"\n[[listener]]\nbind = \"{door}\"\n{}{}",
        route("/known", ", ca = \"issuer.pem\""),
        route("/unknown", "")
    );
    let file = folder.file("tidegate.toml", &text);
    let mut program = command(env!("CARGO_BIN_EXE_tidegate"));
    let mut process = Process::spawn(program.args(["run", &file]).stderr(Stdio::null()));
    process.wait_for_listener(door);
    process.wait_for_listener(admin);
    let get = |path: &str, token: &str| {
        let bearer = format!("Authorization: Bearer {token}");
        let shown = ["-o", "-", "-w", "%{http_code}", "-D", "-", "-H", &bearer];
        let output = run_well(curl().args(shown).arg(format!("http://{door}{path}")));
        let status = output.get(output.len().saturating_sub(3)..).unwrap_or_default().to_owned();
        (status, output.to_ascii_lowercase())
    };
    let status = |token: &str| get("/known", token).0;

    let (first, head) = get("/known", TOKENS[0]);
    assert!(first == "503" && head.contains("\r\nretry-after: 2\r\n"), "{head}");
    assert_eq!(status("no.to.ken"), "503");
    folder.file("jwks.json", set(&KEYS[..1]));
    let script = folder.file("key_server.py", include_str!("key_server.py"));
    let mut server = python();
    server.args([&script, &issuer.ip().to_string(), &issuer.port().to_string()]);
    server.args(["issuer.pem", "issuer.key", "jwks.json"].map(|name| folder.join(name)));
    let mut server = Process::spawn(server.stdout(Stdio::piped()).stderr(Stdio::null()));
    assert_eq!(server.first_line(), "ready");
    process.wait_until("accepting tokens of the first key", || status(TOKENS[0]) == "200");
    let forged = TOKENS[0].replace(".88OX", ".98OX");
    assert_eq!(status(&forged), "401");

    // A token names a key that is not in the set: it is fetched again, once it is ten seconds old.
    folder.file("jwks.json", set(&KEYS[1..]));
    process.wait_until("accepting tokens of the second key", || {
        let found = status(TOKENS[1]);
        assert!(["200", "401", "503"].contains(&found.as_str()), "{found}");
        found == "200"
    });
    assert_eq!(status(TOKENS[0]), "401", "its key was withdrawn, although the token is remembered");

    // A reload fetches the keys again, although they may be used for an hour; and those of another address.
    folder.file("jwks.json", set(&KEYS));
    let at = admin.to_string();
    let reload = || {
        let mut ctl = command(env!("CARGO_BIN_EXE_tidegate"));
        run_well(ctl.args(["ctl", "--at", &at, "reload"]));
    };
    let shown_keys = |url: &str, count: usize| {
        let shown = run_well(curl().arg(format!("http://{admin}/metrics")));
        shown.contains(&format!("tidegate_token_keys{{url=\"https://{issuer}/{url}\"}} {count}\n"))
    };
    assert!(shown_keys("jwks.json", 1));
    reload();
    process.wait_until("the keys are fetched again", || shown_keys("jwks.json", 2));
    folder.file("tidegate.toml", text.replace("/jwks.json", "/other.json"));
    reload();
    process.wait_until("keys are fetched from the other address", || shown_keys("other.json", 2));
    assert_eq!(status(TOKENS[0]), "200");
    folder.file("jwks.json", set(&KEYS[1..]));
    folder.file("tidegate.toml", text.as_str());
    reload();
    process.wait_until("keys of the first address", || status(TOKENS[1]) == "200");
    process.wait_until("the withdrawn key", || shown_keys("jwks.json", 1));

    // The keys stay without the server, also over a reload.
    server.terminate();
    server.wait();
    folder.file("tidegate.toml", text + "[[route]]\npath = \"/new\"\nrespond = { status = 204 }\n");
    reload();
    process.wait_until("reloaded", || {
        assert_eq!(status(TOKENS[1]), "200");
        get("/new", "").0 == "204"
    });
    assert_eq!(status(TOKENS[1]), "200");
    let shown = run_well(curl().arg(format!("http://{admin}/metrics")));
    assert!(
        shown.contains(&format!("tidegate_token_keys{{url=\"https://{issuer}/jwks.json\"}} 1\n")),
        "{shown}"
    );
    // No authority of the system vouches for the server.
    assert_eq!(get("/unknown", TOKENS[1]).0, "503");
}
