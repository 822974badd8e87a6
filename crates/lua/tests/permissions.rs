//! What an operator allows an application besides the sandbox (`permissions`).
//! In: permissions, expressions. Out: whether their functions exist and work.

mod harness;

use harness::App;
use tidegate_lua::Permissions;

/// The value of an expression with these permissions.
fn eval(permissions: Permissions, expression: &str) -> String {
    let text = format!(
        "return {{ on_request = function(request, response)
            response:finish(tostring({expression}))
        end }}"
    );
    let mut app = App::load_permitted(&text, permissions);
    app.get("/").1.expect("a response").1
}

#[test]
fn each_permission_opens_its_own_functions() {
    let (none, both) = (Permissions::default(), Permissions { io: true, os: true });
    let (io, os) = (Permissions { io: true, os: false }, Permissions { io: false, os: true });
    for (expression, expected) in [
        ("io", [false, true, false, true]),
        ("io and io.open", [false, true, false, true]),
        ("package.loaded.io", [false, true, false, true]),
        ("os.execute", [false, false, true, true]),
        ("os.getenv", [false, false, true, true]),
        ("os.remove", [false, false, true, true]),
        ("os.exit", [false; 4]),
        ("rawget(_G, 'ffi')", [false; 4]),
        ("string.dump", [false; 4]),
        ("debug.getinfo", [false; 4]),
    ] {
        let found = [none, io, os, both]
            .map(|permissions| eval(permissions, &format!("({expression}) and true or false")));
        assert_eq!(found, expected.map(|is| is.to_string()), "{expression}");
    }
}

#[test]
fn permitted_functions_work() {
    let both = Permissions { io: true, os: true };
    assert_eq!(eval(both, "io.open('/nothing/here')"), "nil");
    assert_eq!(eval(both, "io.open('/dev/null'):read('*a')"), "");
    assert_eq!(eval(both, "os.getenv('TIDEGATE_NOTHING')"), "nil");
    assert_eq!(eval(both, "pcall(function() io.open = nil end)"), "false");
}
