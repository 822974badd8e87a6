//! The server name of TLS handshakes, in fields that servers receive and as the key of a map.
//! In: curl over HTTP/1.1 and HTTP/2, TLS 1.2 and 1.3. Out: the fields at the origin.

use crate::gate::Gate;
use crate::origins::Script;
use crate::process::{Folder, run_well};
use crate::requests::curl;

#[test]
fn server_name_of_the_handshake_reaches_fields_and_maps() {
    let folder = Folder::new("server-names");
    let origin = Script::origin(&folder);
    let gate = Gate::start(
        &folder,
        &format!(
            "[[listener]]\nbind = \"127.0.0.1:0\"\ntls = \"self-signed\"\n\
             [[route]]\nrequest-headers = {{ set = {{ x-name = \"[{{tls:sni}}]\" }} }}\n\
             proxy = {{ pool = {{ map = \"names\", key = \"{{tls:sni}}\", default = \"other\" }} }}\n\
             [map.names]\nentries = {{ \"a.example\" = \"app\" }}\n\
             [pool.app]\nservers = [\"{}\"]\n\
             # Nothing listens there.\n[pool.other]\nservers = [\"127.0.0.1:1\"]\nretries = 0\n",
            origin.address
        ),
    );
    let address = gate.address();
    for protocol in ["--http1.1", "--http2", "--tls-max=1.2"] {
        let to = format!("::{}:{}", address.ip(), address.port());
        let get = |host: &str| {
            let protocol = match protocol.split_once('=') {
                Some((option, value)) => vec![option, value],
                None => vec![protocol],
            };
            let mut command = curl();
            command.args(protocol).args(["--insecure", "--include", "--connect-to", &to]);
            run_well(command.arg(format!("https://{host}/head"))).to_lowercase()
        };
        let known = get("a.example");
        assert!(known.contains("\nx-name: [a.example]"), "{protocol}: {known}");
        let other = get("b.example");
        assert!(other.contains(" 502") || other.contains(" 503"), "{protocol}: {other}");
    }
}
