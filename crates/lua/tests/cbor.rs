//! `tide.cbor`: values to bytes and back (RFC 8949).
//! In: values, bytes. Out: bytes, values as JSON, errors.

mod harness;

use harness::{App, TIMED};

/// Runs `body`, which returns a string.
fn run(body: &str) -> String {
    let text = format!(
        "local function hex(text) return (text:gsub('%x%x', function(two) return string.char(tonumber(two, 16)) end)) end
        return {{ on_request = function(_, response) response:finish(tostring((function() {body} end)())) end }}"
    );
    let (_, response) = App::load(&text, &TIMED).get("/");
    response.expect("it answers").1
}

#[test]
fn values_are_written_in_their_shortest_form() {
    for (value, expected) in [
        ("nil", "f6"),
        ("tide.json.null", "f6"),
        ("true", "f5"),
        ("false", "f4"),
        ("0", "00"),
        ("23", "17"),
        ("24", "1818"),
        ("255", "18ff"),
        ("256", "190100"),
        ("65536", "1a00010000"),
        ("1000000000000", "1b000000e8d4a51000"),
        ("-1", "20"),
        ("-100", "3863"),
        ("-1000", "3903e7"),
        ("1.1", "fb3ff199999999999a"),
        ("1/0", "fb7ff0000000000000"),
        ("''", "60"),
        ("'IETF'", "6449455446"),
        ("'\\xc3\\xbc'", "62c3bc"),
        ("'\\xff'", "41ff"),
        ("{}", "a0"),
        ("tide.json.array()", "80"),
        ("{ 1, { 2, 3 }, 'a' }", "83018202036161"),
        ("{ a = 1 }", "a1616101"),
        ("{ aa = 1, b = 2, [5] = 3 }", "a3050361620262616101"),
        ("{ [5] = 1 }", "a10501"),
    ] {
        let written = run(&format!("return tide.hex(tide.cbor.encode({value}))"));
        assert_eq!(written, expected, "{value}");
    }
}

#[test]
fn values_of_the_standard_are_read() {
    // RFC 8949 appendix A.
    for (data, expected) in [
        ("00", "0"),
        ("1864", "100"),
        ("1b000000e8d4a51000", "1000000000000"),
        ("3903e7", "-1000"),
        ("f93c00", "1"),
        ("f93e00", "1.5"),
        ("f97bff", "65504"),
        ("f90001", "5.960464477539063e-8"),
        ("f9c400", "-4"),
        ("fa47c35000", "100000"),
        ("fb3ff199999999999a", "1.1"),
        ("f4", "false"),
        ("f6", "null"),
        ("f7", "null"),
        ("c074323031332d30332d32315432303a30343a30305a", "\"2013-03-21T20:04:00Z\""),
        ("4401020304", "\"\\u0001\\u0002\\u0003\\u0004\""),
        ("6449455446", "\"IETF\""),
        ("80", "[]"),
        ("8301820203820405", "[1,[2,3],[4,5]]"),
        ("a0", "{}"),
        ("a26161016162820203", "a and b"),
        ("5f42010243030405ff", "\"\\u0001\\u0002\\u0003\\u0004\\u0005\""),
        ("7f657374726561646d696e67ff", "\"streaming\""),
        ("9fff", "[]"),
        ("9f018202039f0405ffff", "[1,[2,3],[4,5]]"),
        ("bf6346756ef563416d7421ff", "Fun and Amt"),
        ("a10502", "{\"5\":2}"),
    ] {
        let read = run(&format!(
            "local value = tide.cbor.decode(hex('{data}'))
            if type(value) == 'table' and value.b then return (value.a == 1 and value.b[2] == 3) and 'a and b' end
            if type(value) == 'table' and value.Fun then return value.Amt == -2 and 'Fun and Amt' end
            return tide.json.encode(value)"
        ));
        assert_eq!(read, expected, "{data}");
    }
}

#[test]
fn malformed_data_is_an_error() {
    for (data, error) in [
        ("", "ends too early (at byte 1)"),
        ("18", "ends too early"),
        ("62c3", "ends too early"),
        ("9b7fffffffffffffff01", "ends too early"),
        ("bb7fffffffffffffff", "ends too early"),
        ("5b7fffffffffffffff", "ends too early"),
        ("9f01", "ends too early"),
        ("1c", "not a CBOR item"),
        ("ff", "not a CBOR value"),
        ("f8ff", "not a CBOR value"),
        ("0000", "data after the value (at byte 2)"),
        ("5f6161ff", "a part of an indefinite-length string"),
        ("a1f97e0001", "a key of a map"),
        ("a1f601", "a key of a map"),
        ("a18001", "a key of a map"),
    ] {
        let read = run(&format!("return (select(2, tide.cbor.decode(hex('{data}'))))"));
        assert!(read.contains(error), "{data}: {read}");
    }
    for (value, error) in [
        ("print", "functions"),
        ("{ [true] = 1 }", "keys of CBOR maps"),
        ("(function() local t = {} t.t = t return t end)()", "100 levels"),
    ] {
        let written = run(&format!("return (select(2, tide.cbor.encode({value})))"));
        assert!(written.contains(error), "{value}: {written}");
    }
    for deep in ["('\\x81'):rep(1000)", "('\\xc0'):rep(100000)", "('\\xa1aa'):rep(1000)"] {
        let read = run(&format!("return (select(2, tide.cbor.decode({deep})))"));
        assert!(read.contains("100 levels") || read.contains("not a CBOR item"), "{deep}: {read}");
    }
    let wrong = run("return (select(2, pcall(tide.cbor.decode, 5)))");
    assert!(wrong.contains("bad argument #1 to 'tide.cbor.decode'"), "{wrong}");
}

#[test]
fn values_survive_a_round_trip() {
    let read = run("local value = { 1, 2.5, -3, 'text', '\\xff', true, tide.json.null, { a = { b = tide.json.array() } } }
        return tide.json.encode(tide.cbor.decode(tide.cbor.encode(value))) == tide.json.encode(value)");
    assert_eq!(read, "true");
}

#[test]
fn numbers_of_every_kind_are_keys() {
    let read = run("local value = { [0.5] = 'half', [-7] = 'seven', [2^60] = 'large', [1/0] = 'infinite', nan = 'text' }
        local read = tide.cbor.decode(tide.cbor.encode(value))
        for key, text in pairs(value) do assert(read[key] == text, text) end
        return read[0.5] .. tide.cbor.decode(hex('a1f9380001'))[0.5]");
    assert_eq!(read, "half1");
}
