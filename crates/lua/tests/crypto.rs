//! `tide.crypto`.
//! In: scripts. Out: what each test's name says.

mod harness;

use harness::{App, TIMED};

/// Runs statements that end with a `return`, and returns the body.
fn run(statements: &str) -> String {
    let text = format!(
        "local crypto = tide.crypto
        local function bytes(hex) return (hex:gsub('%x%x', function(byte) return string.char(tonumber(byte, 16)) end)) end
        return {{ on_request = function(request, response)
          local function run() {statements} end
          local ok, one, other = pcall(run)
          response:finish(tostring(one) .. ' ' .. tostring(other))
        end }}"
    );
    App::load(&text, &TIMED).get("/").1.expect("it answers").1
}

#[test]
fn sealed_data_is_that_of_the_standard() {
    // The test cases 4 and 16 of "The Galois/Counter Mode of Operation" by McGrew and Viega.
    let key = "feffe9928665731c6d6a8f9467308308";
    let data = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525\
        b16aedf5aa0de657ba637b39";
    let context = "feedfacedeadbeeffeedfacedeadbeefabaddad2";
    let cases = [
        (
            key.to_owned(),
            "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa05\
             1ba30b396a0aac973d58e0915bc94fbc3221a5db94fae95ae7121a47",
        ),
        (
            key.repeat(2),
            "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838\
             c5f61e6393ba7a0abcc9f66276fc6ece0f4e1768cddf8853bb2d551b",
        ),
    ];
    for (key, sealed) in cases {
        let got = run(&format!(
            "local key, data, context, nonce = bytes '{key}', bytes '{data}', bytes '{context}', bytes 'cafebabefacedbaddecaf888'
             local sealed = crypto.seal(key, data, context, nonce)
             return tide.hex(sealed), crypto.open(key, sealed, context, nonce) == data"
        ));
        assert_eq!(got, format!("{sealed} true"));
    }
}

#[test]
fn data_without_a_nonce_begins_with_a_random_one() {
    // The harness provides 0, 1, 2 and so on.
    assert_eq!(run("return tide.hex(crypto.random(3) .. crypto.random(2))"), "0001020304 nil");
    let key = "('k'):rep(32)";
    let seal = |data: &str| format!("crypto.seal({key}, {data}, 'to ann')");
    let got = run(&format!("return #{0}, tide.hex({0}:sub(1, 12))", seal("'hello'")));
    assert_eq!(got, "33 0c0d0e0f1011121314151617");
    let got =
        run(&format!("return crypto.open({key}, {}, 'to ann'), {}", seal("'hi'"), seal("'hi'")));
    assert!(got.starts_with("hi "), "{got}");
    assert_eq!(
        run(&format!("return crypto.open({key}, {}, 'to ann') == ''", seal("''"))),
        "true nil"
    );
}

#[test]
fn changed_data_is_not_opened() {
    let refused = "nil the data is not authentic";
    for change in [
        "key = ('l'):rep(16)",
        "context = 'to bob'",
        "context = nil",
        "sealed = sealed:sub(1, -2)",
        "sealed = sealed .. 'x'",
        "sealed = 'x' .. sealed:sub(2)",
        "sealed = sealed:sub(1, 14) .. 'x' .. sealed:sub(16)",
        "sealed = ''",
        "sealed = sealed:sub(1, 12)",
    ] {
        let got = run(&format!(
            "local key, context = ('k'):rep(16), 'to ann'
             local sealed = crypto.seal(key, 'hello', context)
             {change}
             return crypto.open(key, sealed, context)"
        ));
        assert_eq!(got, refused, "{change}");
    }
}

#[test]
fn wrong_arguments_are_errors() {
    for (call, error) in [
        ("crypto.seal('short', 'x')", "nil the key must have 16 or 32 bytes"),
        ("crypto.seal(('k'):rep(16), 'x', nil, 'n')", "nil the nonce must have 12 bytes"),
        ("crypto.open(('k'):rep(16), 'x', nil, ('n'):rep(13))", "nil the nonce must have 12 bytes"),
        ("crypto.random(65537)", "nil the number of bytes must be 0 to 65536"),
        ("crypto.random(-1)", "nil the number of bytes must be 0 to 65536"),
        ("crypto.random(0 / 0)", "nil the number of bytes must be 0 to 65536"),
    ] {
        assert_eq!(run(&format!("return {call}")), error, "{call}");
    }
    for call in [
        "crypto.seal(1, 'x')",
        "crypto.open(('k'):rep(16))",
        "crypto.random('1')",
        "crypto.equal('a')",
    ] {
        assert!(run(&format!("return {call}")).contains("bad argument #"), "{call}");
    }
}

#[test]
fn secrets_are_compared_by_their_bytes() {
    assert_eq!(
        run("return crypto.equal('secret', 'secret'), crypto.equal('secret', 'secreT')"),
        "true false"
    );
    assert_eq!(run("return crypto.equal('', ''), crypto.equal('a', '')"), "true false");
}
