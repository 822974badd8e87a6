//! Every script in the documentation and in `apps/` loads.
//! In: the Lua blocks of docs/lua.md, the files of apps/. Out: VMs.

mod harness;

use std::path::Path;

use harness::{App, TIMED};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn example_applications_load() {
    let mut count = 0;
    for entry in std::fs::read_dir(root().join("apps")).expect("the folder exists") {
        let path = entry.expect("it is readable").path();
        // Annotations and tests are not applications.
        let name = path.to_string_lossy();
        if name.ends_with(".d.lua") || name.ends_with("_test.lua") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("it is UTF-8");
        if let Err(failure) = App::try_load(&text, &TIMED) {
            panic!("{}: {failure}", path.display());
        }
        count += 1;
    }
    assert!(count >= 1, "no applications");
}

#[test]
fn scripts_of_the_documentation_load() {
    let text = std::fs::read_to_string(root().join("docs/lua.md")).expect("the page exists");
    let blocks: Vec<&str> = text
        .split("```lua\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap_or_default())
        .collect();
    assert!(blocks.len() >= 2, "{} blocks", blocks.len());
    // Tests of applications need the VM of tests.
    for block in blocks.into_iter().filter(|block| !block.contains("tide.test")) {
        if let Err(failure) = App::try_load(block, &TIMED) {
            panic!("{failure}\n{block}");
        }
    }
}
