//! Every function of the API, with arguments of wrong types and sizes.
//! In: random arguments. Out: a result, nil and an error, or a Lua error; the VM serves the next request.
//! Limits: `CALLS` calls of each function for each seed.

mod harness;

use harness::{App, COUNTED};
use tidegate_lua::fuzz::{NGX_CONTENT, ngx_script, tide_script};
use tidegate_lua::{CallbackEnd, Excess};

/// Calls of each function for each seed.
const CALLS: usize = 8;
const SEEDS: u32 = 3;

fn check(mut load: impl FnMut() -> App) {
    for seed in 1..=SEEDS {
        let mut app = load();
        assert_eq!(body_of(&mut app, &format!("/seed/{seed}")), "seeded");
        let count = body_of(&mut app, "/count").parse::<usize>().expect("a number");
        assert!(count >= 20, "{count} functions");
        for number in 1..=count {
            for _ in 0..CALLS {
                let id = app.open(&format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n"));
                let end = app.vm.request(id);
                if let CallbackEnd::Failed(failure) = &end {
                    let is_budget = matches!(failure.excess, Some(Excess::Time | Excess::Memory));
                    assert!(is_budget, "function {number}, seed {seed}: {failure}");
                }
                app.vm.close_request(id);
                app.advance(1);
                app.effects();
                app.requests.clear();
                app.sockets.clear();
                app.log.clear();
            }
        }
        assert_eq!(body_of(&mut app, "/alive"), "alive", "seed {seed}");
    }
}

fn body_of(app: &mut App, target: &str) -> String {
    let (end, response) = app.get(target);
    assert_eq!(end, CallbackEnd::Done);
    response.expect("a response").1
}

#[test]
fn vm_survives_any_arguments_of_tide() {
    check(|| {
        let shared = std::sync::Arc::new(tidegate_lua::Dictionary::new(64 * 1024));
        App::load_sharing(&tide_script(), &COUNTED, &shared)
    });
}

#[test]
fn vm_survives_any_arguments_of_ngx() {
    check(|| {
        App::load_ngx(NGX_CONTENT, &[("init", &ngx_script())], &[])
            .unwrap_or_else(|failure| panic!("{failure}"))
    });
}
