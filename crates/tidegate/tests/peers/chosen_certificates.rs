//! Certificates that a Lua application chooses, seen by openssl.
//! In: names that clients request. Out: the subjects of the certificates that they get.

use std::process::Stdio;

use tidegate_testing::command;

use crate::gate::Gate;
use crate::process::{Folder, program, run, text};
use crate::proxy_protocol::{make_certificate, openssl};

const SCRIPT: &str = r#"
return {
  on_certificate = function(hello)
    if hello.name == "second.example" then return 2 end
    if hello.name == "later.example" then
      tide.sleep(0.05)
      return "new.example"
    end
    if hello.name == "error.example" then error("it fails") end
    if hello.name == "refused.example" then return false end
  end,
}
"#;

#[test]
fn script_chooses_certificates_of_real_handshakes() {
    let folder = Folder::new("chosen-certificates");
    make_certificate(&folder);
    let curve = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    let name = "-subj /CN=new -addext subjectAltName=DNS:new.example";
    openssl(&folder, &format!("req -x509 {curve} -days 2 {name} -keyout new.key -out new.pem"));
    let script = folder.file("app.lua", SCRIPT);
    let [site, new] = ["site", "new"].map(|name| {
        let (cert, key) =
            (folder.join(&format!("{name}.pem")), folder.join(&format!("{name}.key")));
        format!("{{ cert = {cert:?}, key = {key:?} }}")
    });
    let config = format!(
        "[[listener]]\nbind = \"127.0.0.1:0\"\ntls = {{ certificates = [{site}, {new}], lua = \"app\" }}\n\
         [[route]]\nrespond = {{}}\n[lua.app]\nscript = {script:?}\n"
    );
    let gate = Gate::start(&folder, &config);
    let at = gate.address().to_string();
    let subject = |name: &str| {
        let mut command = command(program("openssl", "openssl"));
        command.args(["s_client", "-connect", &at, "-servername", name]).stdin(Stdio::null());
        let printed = text(&run(&mut command).stdout).replace(" = ", "=");
        printed.lines().find_map(|line| line.strip_prefix("subject=CN=")).map(str::to_owned)
    };
    for (name, expected) in [
        ("localhost", Some("localhost")),
        ("new.example", Some("new")),
        ("other.example", Some("localhost")),
        ("second.example", Some("new")),
        ("later.example", Some("new")),
        ("error.example", Some("localhost")),
        ("refused.example", None),
    ] {
        assert_eq!(subject(name).as_deref(), expected, "{name}");
    }
    gate.terminate();
    let (status, log) = gate.wait();
    assert!(status.success());
    assert!(log.contains("it fails"), "{log}");
}
