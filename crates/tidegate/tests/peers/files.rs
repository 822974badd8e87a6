//! Lua applications that send files, read by threads of the process.
//! In: a folder with files of several sizes. Out: the responses to curl.

use crate::gate::Gate;
use crate::process::{Folder, run_well};
use crate::requests::curl;

const SCRIPT: &str = r#"
return {
  on_request = function(request, response)
    local ok, err = response:file(request.path:sub(2))
    if not ok then response:status(404):finish(err) end
  end,
}
"#;

#[test]
fn scripts_send_files_of_any_size() {
    let folder = Folder::new("files");
    let script = folder.file("app.lua", SCRIPT);
    let public = folder.path().join("public");
    std::fs::create_dir(&public).expect("the folder is ours");
    let sizes = [0, 1, 65_535, 65_536, 65_537, 3_000_000];
    let text = |size: usize| -> String {
        (0..size).map(|at| char::from(b'a' + (at * 7 % 23) as u8)).collect()
    };
    for size in sizes {
        std::fs::write(public.join(format!("{size}.txt")), text(size)).expect("it is ours");
    }
    let config = format!(
        "[[listener]]\nbind = \"127.0.0.1:0\"\nh2c = true\n[[route]]\nlua = \"app\"\n[lua.app]\n\
         script = {script:?}\nfiles = {public:?}\n"
    );
    let gate = Gate::start(&folder, &config);
    for size in sizes {
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            let url = gate.url(&format!("/{size}.txt"));
            let received = run_well(curl().arg(version).arg(&url));
            assert!(received == text(size), "{size} {version}: {} bytes", received.len());
        }
    }
    let none = gate.url("/none");
    assert_eq!(run_well(curl().args(["-w", "%{http_code}"]).arg(none)), "not found404");
    let mut together = curl();
    together.args(["--parallel", "--parallel-max", "40", "-w", "%{size_download}\n"]);
    for _ in 0..40 {
        together.args(["-o", "/dev/null"]).arg(gate.url("/3000000.txt"));
    }
    assert_eq!(run_well(&mut together), "3000000\n".repeat(40));
    gate.terminate();
    assert!(gate.wait().0.success());
}
