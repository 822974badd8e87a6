//! Shared dictionaries of Lua applications that survive a restart.
//! In: processes that start one after the other with the same file. Out: what their scripts find.

use std::fs;

use crate::gate::Gate;
use crate::process::{Folder, run_well};
use crate::requests::curl;

const SCRIPT: &str = r#"
local users = tide.shared.users
return {
  on_request = function(request, response)
    local name = request.path:sub(2)
    if request.query.set then users:set(name, request.query.set, tonumber(request.query.seconds)) end
    if request.query.push then users:rpush(name, tonumber(request.query.push)) end
    if request.query.pop then return response:finish(tostring(users:lpop(name))) end
    response:finish(tostring(users:get(name)))
  end,
  on_stop = function()
    if tide.worker.id == 0 then users:incr("stops", 1, 0) end
  end,
}
"#;

#[test]
fn dictionary_survives_a_restart() {
    let folder = Folder::new("dictionaries");
    let script = folder.file("app.lua", SCRIPT);
    let file = folder.join("users.dictionary");
    let config = |size: &str| {
        format!(
            "[server]\nworkers = 2\n[[listener]]\nbind = \"127.0.0.1:0\"\n[[route]]\nlua = \"app\"\n[lua.app]\n\
             script = {script:?}\nshared = {{ users = {size:?} }}\nshared-files = {{ users = {file:?} }}\n"
        )
    };
    let get = |gate: &Gate, target: &str| run_well(curl().arg(gate.url(target)));
    let gate = Gate::start(&folder, &config("1MiB"));
    assert_eq!(get(&gate, "/anna?set=blue"), "blue");
    assert_eq!(get(&gate, "/brief?set=x&seconds=0.2"), "x");
    assert_eq!(get(&gate, "/lasting?set=y&seconds=3600"), "y");
    get(&gate, "/list?push=1");
    get(&gate, "/list?push=2");
    gate.terminate();
    assert!(gate.wait().0.success());

    // Another size, too.
    for (size, stops) in [("1MiB", "1"), ("4MiB", "2")] {
        let gate = Gate::start(&folder, &config(size));
        assert_eq!(get(&gate, "/anna"), "blue");
        assert_eq!(get(&gate, "/brief"), "nil");
        assert_eq!(get(&gate, "/lasting"), "y");
        assert_eq!(get(&gate, "/list?pop=1"), stops, "a value of the list");
        assert_eq!(get(&gate, "/stops"), stops);
        gate.terminate();
        assert!(gate.wait().0.success());
    }

    let whole = fs::read(&file).expect("the file is there");
    fs::write(&file, &whole[..whole.len() - 1]).expect("it is ours");
    let gate = Gate::start(&folder, &config("1MiB"));
    assert_eq!(get(&gate, "/anna"), "nil");
    assert_eq!(fs::read(format!("{file}.broken")).ok().as_deref(), Some(&whole[..whole.len() - 1]));
    gate.terminate();
    assert!(gate.wait().0.success());
}
